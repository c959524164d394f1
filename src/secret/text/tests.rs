#![allow(clippy::disallowed_methods, reason = "a shell reads the same file")]

use super::*;

#[test]
fn password_files_are_read_as_restic_reads_them() {
    let utf16 = |bom: [u8; 2], unit: fn(u16) -> [u8; 2], text: &str| -> Vec<u8> {
        bom.into_iter().chain(text.encode_utf16().flat_map(unit)).collect()
    };
    for (bytes, text) in [
        (b"pw\r\n".to_vec(), "pw"),
        (b"  inner blank \t\n".to_vec(), "inner blank"),
        ("\u{a0}\u{2003}pw\u{85}\u{2028}".into(), "pw"),
        (b"\xEF\xBB\xBFpw\n".to_vec(), "pw"),
        (utf16([0xFF, 0xFE], u16::to_le_bytes, "pässwörd\r\n"), "pässwörd"),
        (utf16([0xFE, 0xFF], u16::to_be_bytes, "pässwörd😀"), "pässwörd😀"),
        (b"\xFF\xFEa".to_vec(), "\u{FFFD}"),
        (b"\n \n".to_vec(), ""),
        (vec![b'x'; 4096], &"x".repeat(4096)),
    ] {
        assert_eq!(of_file(&bytes).as_slice(), text.as_bytes(), "{bytes:?}");
    }
    assert_eq!(of_file(b" \xFFpw\xFE ").as_slice(), b"\xFFpw\xFE");
}

#[test]
fn commands_are_split_as_restic_splits_them() {
    for (line, parts) in [
        ("pass show  backup/db01", vec!["pass", "show", "backup/db01"]),
        (r#"sh -c "cat 'a b' | head""#, vec!["sh", "-c", "cat 'a b' | head"]),
        ("a'b'c", vec!["a", "b", "c"]),
        (r#"a\ b"#, vec!["a", "b"]),
        (r#""a\"b""#, vec![r#"a\"b"#]),
        ("a\u{a0}b", vec!["a", "b"]),
    ] {
        assert_eq!(split_command(line), Ok(parts), "{line}");
    }
    for line in ["", "  ", "\"\"", "'a", "a \"b"] {
        assert!(split_command(line).is_err(), "{line}");
    }
}

#[test]
fn files_of_variables_mean_what_a_shell_makes_of_them() {
    let file = b"\xEF\xBB\xBF# restic\r\n\
        export AWS_ACCESS_KEY_ID=AKIA/+=\r\n\
        B='single \"$HOME\" # kept'  # comment\n\
        C=\"double \\\"\\$x\\\" \\n two\n lines\" ; D=a\\ b#c\n\
        \texport E= F=x'y'\"z\"\n\
        G=pa$ G2=one\\\ntwo\n\
        export B C\n\
        H=\xFF";
    let found: Vec<_> = assignments(file)
        .expect("reads")
        .into_iter()
        .map(|(name, value)| (name, value.expose().to_vec()))
        .collect();
    let want: [(&str, &[u8]); 9] = [
        ("AWS_ACCESS_KEY_ID", b"AKIA/+="),
        ("B", b"single \"$HOME\" # kept"),
        ("C", b"double \"$x\" \\n two\n lines"),
        ("D", b"a b#c"),
        ("E", b""),
        ("F", b"xyz"),
        ("G", b"pa$"),
        ("G2", b"onetwo"),
        ("H", b"\xFF"),
    ];
    assert_eq!(found, want.map(|(name, value)| (name.to_owned(), value.to_vec())));
}

/// Only a command that begins with it exports: the name of another command could be anything.
#[test]
fn names_are_exported_by_export_alone() {
    for file in ["export A='x\ny' B C=1\n", "A=1;export A\tA", "export\r\n", "export A=1;export B"]
    {
        assert!(assignments(file.as_bytes()).is_ok(), "{file}");
    }
    for file in ["export A\nB", "export A;B", "export=1 B", "A=1 B", "export A # x\nB"] {
        assert!(assignments(file.as_bytes()).is_err(), "{file}");
    }
}

/// A file of 256 KiB may hold ninety thousand of them.
#[test]
fn a_value_takes_no_more_memory_than_it_has_bytes() {
    let file = "A=;B=xyz;".repeat(1_000);
    for (_, value) in assignments(file.as_bytes()).expect("reads") {
        assert!(value.0.capacity() <= 3, "{} bytes", value.0.capacity());
    }
}

#[test]
fn what_only_a_running_shell_knows_is_refused_with_its_line() {
    for (file, line) in [
        ("A=1\nB=$HOME/x", 2),
        ("A=\"`id`\"", 1),
        ("A=1\n\nB=\"x\ny", 3),
        ("A='x", 1),
        ("A=1\nset -a", 2),
        ("A =1", 1),
        ("1A=x", 1),
        ("A=x&y", 1),
        ("A=~/x", 1),
        ("A=a:~/x", 1),
        ("A=$\\\nHOME", 1),
        ("=x", 1),
    ] {
        assert_eq!(assignments(file.as_bytes()).map_err(|e| e.line), Err(line), "{file}");
    }
    assert!(assignments(b"A=a\0b").is_err());
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, line: String) {
        let _ = assignments(&bytes);
        let _ = of_file(&bytes);
        let _ = split_command(&line);
        proptest::prop_assert_eq!(trim(trim(&bytes)), trim(&bytes));
    }

    #[test]
    fn trimming_is_what_strings_do(text: String) {
        proptest::prop_assert_eq!(trim(text.as_bytes()), text.trim().as_bytes());
    }
}

/// What a file of variables makes of A, B and C in a real shell; none when it complains.
fn in_a_shell(file: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("file"), file).expect("writes");
    let ran = std::process::Command::new("sh")
        .args(["-ec", "set -a; . ./file; exec env -0"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", "/home/planted")
        .current_dir(dir.path())
        .output()
        .expect("a shell is there");
    if !ran.status.success() || !ran.stderr.is_empty() {
        return None;
    }
    let variables = ran.stdout.split(|c| *c == 0).filter_map(|variable| {
        let at = variable.iter().position(|c| *c == b'=')?;
        let name = std::str::from_utf8(&variable[..at]).ok()?;
        ["A", "B", "C"].contains(&name).then(|| (name.to_owned(), variable[at + 1..].to_vec()))
    });
    let mut variables: Vec<_> = variables.collect();
    variables.sort();
    Some(variables)
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(200))]

    /// What both accept means the same to both.
    #[test]
    fn a_real_shell_agrees(
        file in "((export )?[ABC]=([a-z/+ ]|[:~#'\"\\\\$;*?!{}\\[\\]=,.%@^]|\n|''|\"\"|\\\\\n){0,8}[\n ;]){1,4}",
    ) {
        let Ok(ours) = assignments(file.as_bytes()) else { return Ok(()) };
        let ours: std::collections::BTreeMap<_, _> = ours
            .into_iter()
            .filter(|(name, _)| ["A", "B", "C"].contains(&name.as_str()))
            .map(|(name, value)| (name, value.expose().to_vec()))
            .collect();
        let ours: Vec<_> = ours.into_iter().collect();
        // A shell is more particular about `;` than we are.
        if let Some(theirs) = in_a_shell(file.as_bytes()) {
            proptest::prop_assert_eq!(ours, theirs, "{}", file);
        }
    }
}
