use proptest::prelude::*;

use super::*;

fn at_s3(text: &str) -> (bool, String, String, String) {
    match Location::parse(text) {
        Ok(Location::S3(at)) => (at.plain_http, at.host, at.bucket, at.prefix),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn s3_is_read_in_every_form() {
    for (text, http, host, prefix) in [
        ("s3:s3.amazonaws.com/bucket", false, "s3.amazonaws.com", ""),
        ("s3:host:9000/bucket/", false, "host:9000", ""),
        ("s3://host/bucket/a/b", false, "host", "a/b"),
        ("s3:https://host/bucket/a//b/./c/", false, "host", "a/b/c"),
        ("s3:http://127.0.0.1:9000/bucket/x/../y", true, "127.0.0.1:9000", "y"),
        ("s3:http://[::1]:9000/bucket/.", true, "[::1]:9000", ""),
        ("s3:http://h/bucket/bäckup/repo", true, "h", "bäckup/repo"),
        ("s3:http://h/bucket/b%C3%A4ckup%20a%23b%25", true, "h", "bäckup a#b%"),
        ("s3:host/bucket/b%C3%A4ck?up #1", false, "host", "b%C3%A4ck?up #1"),
        ("s3:https://key:secret@host/bucket/a?x=y#z", false, "host", "a"),
        ("s3:bücher.example:9000/bucket", false, "xn--bcher-kva.example:9000", ""),
    ] {
        assert_eq!(
            at_s3(text),
            (http, host.to_owned(), "bucket".to_owned(), prefix.to_owned()),
            "{text}"
        );
    }
}

#[test]
fn what_is_shown_can_be_given_back_to_restic() {
    for text in [
        "s3:https://host/bucket",
        "s3:http://h:9000/bucket/bäckup mit Leerzeichen/repo",
        "s3:http://h/bucket/a%2523%23%3F",
        "s3:h/bucket/a%23#?",
        "sftp:ann@host:dir/x",
        "sftp://ann@[::1]:2222//srv/x",
        "sftp://host:2222//srv/a%2520b%23",
        "/srv/restic/db01",
        "local:s3",
    ] {
        let first = Location::parse(text).expect(text);
        let Ok(again) = Location::parse(&first.to_string()) else {
            assert_eq!(text, "local:s3", "a relative folder is made absolute before it is shown");
            continue;
        };
        assert_eq!(first.to_string(), again.to_string(), "{text}");
        assert_eq!(first.target_name(), again.target_name(), "{text}");
        assert!(text.starts_with("sftp") || first == again, "{text}");
    }
}

#[test]
fn folders_are_read_in_every_form() {
    for (text, path) in [
        ("/srv/restic/a:b", "/srv/restic/a:b"),
        ("bäckup mit Leerzeichen/repo", "bäckup mit Leerzeichen/repo"),
        ("../a:b", "../a:b"),
        ("local:a:b", "a:b"),
        ("local:/srv", "/srv"),
    ] {
        assert_eq!(Location::parse(text), Ok(Location::Local(path.into())), "{text}");
    }
}

#[test]
fn sftp_is_read_as_restic_reads_it() {
    let at = |text: &str| match Location::parse(text) {
        Ok(Location::Sftp(at)) => (at.user.unwrap_or_default(), at.host, at.port, at.path),
        other => panic!("{text}: {other:?}"),
    };
    let parts = |user: &str, host: &str, port: Option<u16>, path: &str| {
        (user.to_owned(), host.to_owned(), port, path.to_owned())
    };
    for (text, want) in [
        ("sftp:ac@127.0.0.1:2222/repo", parts("ac", "127.0.0.1", None, "2222/repo")),
        ("sftp://ac@127.0.0.1:2222//srv/repo", parts("ac", "127.0.0.1", Some(2222), "/srv/repo")),
        ("sftp://user@127.0.0.1:2222//mnt/r1", parts("user", "127.0.0.1", Some(2222), "/mnt/r1")),
        ("sftp://borg@host:/mnt/x", parts("borg", "host", None, "mnt/x")),
        ("sftp:alias:", parts("", "alias", None, ".")),
        ("sftp:a@b@host:/x/", parts("a@b", "host", None, "/x")),
        ("sftp://u:pw@[::1]/x", parts("u", "::1", None, "x")),
    ] {
        assert_eq!(at(text), want, "{text}");
    }
    let looks = |text| match Location::parse(text) {
        Ok(Location::Sftp(at)) => at.looks_like_a_port(),
        other => panic!("{other:?}"),
    };
    assert!(looks("sftp:ac@host:2222/repo"));
    assert!(!looks("sftp:ac@host:2222") && !looks("sftp:ac@host:/2222/repo"));
    assert!(!looks("sftp://ac@host:2222/repo"));
}

#[test]
fn other_backends_are_known_and_shown_without_credentials() {
    for (text, shown, name) in [
        ("rest:http://u:pass%2Fword@h:8000/repo/", "rest:http://h:8000/repo/", "h:8000/repo"),
        ("rest:http+unix:///run/r.sock:/a/", "rest:http+unix:///run/r.sock:/a/", "/run/r.sock:/a"),
        ("azure:box:/a/../b/", "azure:box:/b", "box:/b"),
        ("gs:bucket:/a", "gs:bucket:/a", "bucket:/a"),
        ("b2:bucket:a", "b2:bucket:/a", "bucket:/a"),
        ("b2:bucket", "b2:bucket:/", "bucket:"),
        ("rest:https://h", "rest:https://h/", "h"),
        ("swift:box:/", "swift:box:/", "box:"),
        ("rclone:remote:a/b", "rclone:remote:a/b", "remote:a/b"),
        ("rclone::s3,secret=\"a:b\":x/y", "rclone::s3:x/y", ":s3:x/y"),
    ] {
        let at = Location::parse(text).expect(text);
        assert_eq!(at.to_string(), shown);
        assert_eq!(at.target_name(), name);
        assert_eq!(Some(at.scheme()), text.split(':').next());
    }
}

#[test]
fn what_names_no_repository_says_what_would() {
    for (text, word) in [
        ("", "no folder"),
        ("local:", "no folder"),
        (r"C:\restic", "Windows"),
        ("local:D:/restic", "Windows"),
        (r"..\restic", "Windows"),
        ("ftp://host/x", "local:"),
        ("dir:x", "local:"),
        ("s3", "HOST"),
        ("s3:bucket", "bucket"),
        ("s3:host/ab", "3 to 63"),
        ("s3:https://host", "bucket"),
        ("s3:ftp://host/bucket", "HOST"),
        ("s3:host/bucket//x", "slash"),
        ("s3:host/bucket/../x", "leads out"),
        ("s3:https://host/bucket/%zz", "%25"),
        ("s3:https://host/bucket/%0a", "control"),
        ("s3:ke:y@host/bucket", "AWS_ACCESS_KEY_ID"),
        ("s3:host:99999/bucket", "HOST"),
        ("sftp:host", "sftp:USER@HOST:PATH"),
        ("sftp:u:pw@host:x", "no password"),
        ("sftp://host:port/x", "port"),
        ("sftp:host:~/x", "home"),
        ("sftp:-oProxyCommand=x:y", "sftp:USER"),
        ("rest:http://user:pass/word@127.0.0.1:8000/repo", "RESTIC_REST_PASSWORD"),
        ("rest:host", "rest:https"),
        ("rest:http://h/a?b", "%3F"),
        ("rest:https://ann:pw@0/a 0Z@host:8000/repo/", "%40"),
        ("rest:http+unix://h/sock:/a", "no host"),
        ("azure:box:/a?sv=2020&sig=s3cret", "AZURE_ACCOUNT_SAS"),
        ("azure:box", "azure:CONTAINER"),
        ("swift:box:a", "slash"),
        ("gs:bucket:../a", "leads out"),
        ("rclone:--config:x", "rclone:REMOTE"),
        ("b2", "local:b2"),
        ("/srv/a\nb", "control"),
    ] {
        match Location::parse(text) {
            Err(error) => assert!(error.to_string().contains(word), "{text}: {error}"),
            Ok(at) => panic!("{text}: {at}"),
        }
    }
    assert!(Location::parse(&"x".repeat(5000)).is_err());
}

#[test]
fn options_of_a_remote_are_secrets() {
    let secrets = |text: &str| match Location::parse(text) {
        Ok(Location::Rclone(remote)) => remote.secrets(),
        other => panic!("{text}: {other:?}"),
    };
    for text in ["rclone:remote:a/b", "rclone:remote:a,b=c", "rclone::s3:x/y"] {
        assert_eq!(secrets(text), [""; 0], "{text}");
    }
    for (text, wanted) in [
        ("rclone:r,pass=pl4nted:x", &["pl4nted"][..]),
        ("rclone::sftp,host=h,pass=pl4nted,flag:x", &["pl4nted", "h"]),
        (r#"rclone::s3,key="pl4:n""t,ed",b='q''r':x/y"#, &["pl4:n\"t,ed", "pl4:n\"\"t,ed", "q'r"]),
        ("rclone:r,pass=\"pl4nted", &["pl4nted"]),
        ("rclone:r,pass=", &[""]),
    ] {
        let secrets = secrets(text);
        for value in wanted {
            assert!(secrets.iter().any(|secret| secret == value), "{text}: {secrets:?}");
        }
        let whole = text.strip_prefix("rclone:").expect("is one");
        assert!(secrets.iter().any(|secret| secret == whole), "{text}: as rclone is given it");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text: String, scheme in "(local|s3|sftp|rest|rclone|azure|):(//|http://|)") {
        for text in [text.clone(), format!("{scheme}{text}")] {
            if let Ok(at) = Location::parse(&text) {
                let _ = (at.to_string(), format!("{at:?}"), at.target_name());
                if let Location::Rclone(at) = at {
                    let _ = at.secrets();
                }
            }
        }
    }

    #[test]
    fn no_planted_password_is_ever_shown(
        // A letter first: nobody can tell `host:12/3@x` from a port and a path.
        password in "pw[a-z0-9!$&'()*+,;=:@/?#%. ]{1,12}Z",
        form in 0..8_usize,
    ) {
        let text = [
            format!("rest:https://ann:{password}@host:8000/repo/"),
            format!("rest:http://{password}@host/repo/"),
            format!("s3:https://AKIA:{password}@host/bucket/x"),
            format!("s3:AKIA:{password}@host/bucket/x"),
            format!("sftp://ann:{password}@host//srv"),
            format!("azure:box:/x?sig={password}"),
            format!("rclone::sftp,pass={password}:x"),
            format!("https://ann:{password}@host/"),
        ][form].clone();
        let shown = match Location::parse(&text) {
            Ok(at) => format!("{at} {at:?} {}", at.target_name()),
            Err(error) => format!("{error} {error:?}"),
        };
        // Even a part would be too much.
        let parts = password.split(['/', '?', '#', '@', ':', ',']).filter(|part| part.len() > 3);
        for part in parts {
            prop_assert!(!shown.contains(part), "{text}: {shown}");
        }
    }

    #[test]
    fn cleaning_twice_changes_nothing(path in "[a./]{0,16}") {
        prop_assert_eq!(clean(&clean(&path)), clean(&path));
    }
}

#[test]
fn rest_is_read_in_every_form() {
    let at = |text: &str| match Location::parse(text) {
        Ok(Location::Rest(at)) => at,
        other => panic!("{text}: {other:?}"),
    };
    for (text, url, user, password) in [
        ("rest:http://h:8000", "http://h:8000/", None, None),
        ("rest:https://h/a/b", "https://h/a/b/", None, None),
        ("rest:https://h//a//b//", "https://h/a/b/", None, None),
        (
            "rest:http://user:pass%2Fword@h:8000/repo",
            "http://h:8000/repo/",
            Some("user"),
            Some("pass/word"),
        ),
        ("rest:http://ann@[::1]:8000/", "http://[::1]:8000/", Some("ann"), None),
        ("rest:http+unix:///run/r.sock:/a/", "http://localhost/a/", None, None),
        ("rest:https+unix:///run/r.sock", "https://localhost/", None, None),
    ] {
        let at = at(text);
        let shown_password = at.password.as_ref().map(|password| password.as_str());
        assert_eq!((at.url().as_str(), at.user.as_deref(), shown_password), (url, user, password));
    }
    assert_eq!(at("rest:http+unix:///run/r.sock").place, RestPlace::Socket("/run/r.sock".into()));
    assert_eq!(at("rest:http+unix:///r%20x.sock:/a").place, RestPlace::Socket("/r x.sock".into()));
}

#[test]
fn what_was_found_below_a_place_is_a_place() {
    let below = |text: &str, relative: &str| {
        Location::parse(text).expect(text).below(relative).map(|at| at.to_string())
    };
    for (text, relative, want) in [
        ("/srv/restic/", "a b/c", Some("/srv/restic/a b/c")),
        ("/srv/restic", "", Some("/srv/restic")),
        ("s3:https://h/bucket", "a/b", Some("s3:https://h/bucket/a/b")),
        ("s3:https://h/bucket/x", "a%", Some("s3:h/bucket/x/a%")),
        ("sftp:host:/", "a", Some("sftp:host:/a")),
        ("sftp://host:22/x", "a#b", Some("sftp://host:22/x/a%23b")),
        ("azure:box:/", "a", Some("azure:box:/a")),
        ("gs:box:/x", "a", Some("gs:box:/x/a")),
        ("rest:http://h/", "a", None),
        ("b2:bucket:x", "a", None),
        ("rclone:r:x", "a", None),
    ] {
        assert_eq!(below(text, relative).as_deref(), want, "{text} {relative}");
    }
}
