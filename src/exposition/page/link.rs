//! Where the page of a target is, and how far a page is from the root.

/// The address of a target's page, relative to the root. Slashes in a name stay, as long as no
/// browser or proxy takes what is between them for a step up or nothing at all.
pub fn href(name: &str) -> String {
    let is_step = |part: &str| matches!(part, "" | "." | "..");
    // A browser resolves these however they are written.
    if name == "." || name == ".." {
        return format!("targets?name={name}");
    }
    let keep_slashes = !name.split('/').any(is_step);
    let mut out = String::from("targets/");
    for byte in name.bytes() {
        match byte {
            b'/' if keep_slashes => out.push('/'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The way from the page at this path back to the root: `./`, `../`, `../../`, …
pub fn root(path: &str) -> String {
    match path.bytes().filter(|byte| *byte == b'/').count() {
        0 | 1 => "./".into(),
        deep => "../".repeat(deep - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_an_address_that_leads_back_to_it() {
        for (name, address) in [
            ("db01", "targets/db01"),
            ("s3.example.com/backups/db01", "targets/s3.example.com/backups/db01"),
            ("töpf 100% \"1\"?#", "targets/t%C3%B6pf%20100%25%20%221%22%3F%23"),
            ("/srv/a", "targets/%2Fsrv%2Fa"),
            ("a//b", "targets/a%2F%2Fb"),
            ("a/../b", "targets/a%2F..%2Fb"),
            ("..", "targets?name=.."),
        ] {
            assert_eq!(href(name), address);
            let base = url::Url::parse("http://x/prefix/").unwrap();
            let there = base.join(address).unwrap();
            if there.query().is_none() {
                let path = there.path().strip_prefix("/prefix/targets/").unwrap();
                let plain = percent(path);
                assert_eq!(plain, name, "{there}");
            }
            let path = there.path().strip_prefix("/prefix").unwrap();
            assert_eq!(there.join(&root(path)).unwrap().path(), "/prefix/", "{there}");
        }
    }

    fn percent(path: &str) -> String {
        // A form decoder, to which a plus would be a space; none is left unescaped.
        url::form_urlencoded::parse(path.as_bytes()).next().unwrap().0.into_owned()
    }
}
