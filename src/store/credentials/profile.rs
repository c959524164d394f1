//! The profile files of Amazon's tools: sections of `name = value` lines. Pure.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

/// The settings of one profile.
pub type Profile = BTreeMap<String, Zeroizing<String>>;

/// Finds a profile in a text: in `credentials` its section has its name, in `config` all but
/// `default` have the word `profile` before it.
pub fn find(text: &str, name: &str) -> Option<Profile> {
    let mut found: Option<Profile> = None;
    let mut inside = false;
    for line in text.lines() {
        if let Some(section) = line.trim().strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let section = section.0.trim();
            let section = match section.split_once(char::is_whitespace) {
                Some(("profile", name)) => name.trim(),
                _ => section,
            };
            inside = section.trim_matches(['"', '\'']) == name;
            if inside {
                found.get_or_insert_default();
            }
            continue;
        }
        // An indented line belongs to the setting above it.
        if !inside || line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        if let Some((key, value)) = line.split_once('=')
            && let Some(found) = &mut found
        {
            let value = value.trim();
            let end = value.find(" #").or(value.find(" ;")).unwrap_or(value.len());
            let value = Zeroizing::new(value[..end].trim_end().to_owned());
            found.insert(key.trim().to_lowercase(), value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# mine\n[default]\naws_access_key_id = AKIA1\nAWS_SECRET_ACCESS_KEY=a/b=c\n\
                        s3 =\n  aws_access_key_id = nested\n; no\n[profile backup]\n\
                        credential_process = /opt/get --key \"a b\" # why\n\n[ other ]\nregion=x\n";

    #[test]
    fn a_profile_is_found_by_its_name() {
        let of = |name: &str, key: &str| find(TEXT, name)?.get(key).map(|value| value.to_string());
        for (name, key, value) in [
            ("default", "aws_access_key_id", Some("AKIA1")),
            ("default", "aws_secret_access_key", Some("a/b=c")),
            ("backup", "credential_process", Some("/opt/get --key \"a b\"")),
            ("other", "region", Some("x")),
            ("other", "aws_access_key_id", None),
            ("profile backup", "credential_process", None),
        ] {
            assert_eq!(of(name, key).as_deref(), value, "{name} {key}");
        }
        assert!(find(TEXT, "none").is_none());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String, lines in "(\\[|\\]|profile|=|a| |#|\n)*") {
            let _ = find(&text, "a");
            let _ = find(&lines, "a");
        }
    }
}
