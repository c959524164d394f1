//! What a request wants, from its texts: which metrics, whose page, in which coding, as whom. Pure;
//! who may have it is decided elsewhere.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// What a scrape asked for in its query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `name[]`: only families of these names; all when empty.
    pub names: BTreeSet<String>,
    /// Sources whose targets are left out.
    pub without: Vec<&'static str>,
}

impl Wanted {
    /// `None` when the query names an unknown source, or both includes and excludes.
    pub fn of(query: &str, sources: &[&'static str]) -> Option<Self> {
        let mut wanted = Self::default();
        let (mut only, mut without, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let source = || sources.iter().find(|source| **source == value).copied();
            match &*key {
                "name[]" => drop(names.insert(value.into_owned())),
                "collect[]" => only.push(source()?),
                "exclude[]" => without.push(source()?),
                _ => {}
            }
        }
        if !only.is_empty() && !without.is_empty() {
            return None;
        }
        if !only.is_empty() {
            without = sources.iter().filter(|source| !only.contains(source)).copied().collect();
        }
        // Each target is compared with each of them; a query may repeat one thousands of times.
        without.sort_unstable();
        without.dedup();
        (wanted.names, wanted.without) = (names, without);
        Some(wanted)
    }
}

/// Whether an `Accept-Encoding` allows gzip: named with a weight above 0, or covered by `*`.
pub fn accepts_gzip(header: &str) -> bool {
    let (mut named, mut star) = (None, None);
    for coding in header.split(',') {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts
            .filter_map(|part| part.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("q"))
            .map_or(Some(1.0), |(_, weight)| weight.trim().parse::<f32>().ok())
            .unwrap_or(0.0);
        let allowed = weight > 0.0;
        // Named twice, it is as the first says; `x-gzip` is another name of it (RFC 9110, 8.4.1.3).
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            named.get_or_insert(allowed);
        } else if name == "*" {
            star.get_or_insert(allowed);
        }
    }
    named.or(star).unwrap_or(false)
}

/// The target that a path names, with escapes; `None` when it is none, or no text.
pub fn target_name(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                bytes.push(u8::try_from(high * 16 + low).ok()?);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok().filter(|name| !name.is_empty())
}

/// User and password of an `Authorization`; `None` when it is another way to log in, or none.
pub fn claim(header: &str) -> Option<(String, Zeroizing<Vec<u8>>)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = Zeroizing::new(STANDARD.decode(encoded.trim()).ok()?);
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((user, Zeroizing::new(decoded[colon + 1..].to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_families_and_sources() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        let names: &dyn Fn(&[&str]) -> BTreeSet<String> = &names;
        let of = |query: &str| Wanted::of(query, &["restic", "file"]);
        assert_eq!(of(""), Some(Wanted::default()));
        assert_eq!(of("name[]=a&name%5B%5D=b").unwrap().names, names(&["a", "b"]));
        assert_eq!(of("collect[]=restic").unwrap().without, ["file"]);
        assert_eq!(of("exclude[]=restic").unwrap().without, ["restic"]);
        assert_eq!(of("collect[]=restic&exclude[]=file"), None);
        assert_eq!(of("collect[]=borg"), None);
        assert_eq!(of(&"exclude[]=file&".repeat(5000)).unwrap().without, ["file"]);
        assert_eq!(of(&"name[]=a&".repeat(5000)).unwrap().names, names(&["a"]));
    }

    #[test]
    fn gzip_is_used_only_where_it_is_accepted() {
        for (header, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip;q=0, *", false),
            ("*", true),
            ("identity", false),
            ("gzip;q=x", false),
            ("gzip;Q=0", false),
            ("gzip; q = 0", false),
            ("gzip;a=b;q=0", false),
            ("x-gzip", true),
            ("*;q=0", false),
            ("", false),
        ] {
            assert_eq!(accepts_gzip(header), expected, "{header}");
        }
    }

    #[test]
    fn a_path_names_a_target_or_nothing() {
        for (path, name) in [
            ("db01", Some("db01")),
            ("a/b", Some("a/b")),
            ("%2Fsrv%2fa", Some("/srv/a")),
            ("t%C3%B6pf%20100%25", Some("töpf 100%")),
            ("a+b", Some("a+b")),
            ("", None),
            ("%", None),
            ("%4", None),
            ("%zz", None),
            ("%ff", None),
        ] {
            assert_eq!(target_name(path).as_deref(), name, "{path}");
        }
    }
}
