//! Real files and real commands in a temporary folder.

#![allow(clippy::disallowed_methods, reason = "the tests write the files that are read")]

use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::secret::EnvSpec;

fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment::only(variables.iter().map(|(name, value)| (name.to_string(), Secret::new(*value))))
}

fn write(dir: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, content).expect("writes");
    path
}

fn password(text: &str) -> Result<Opener, SecretError> {
    Ok(Opener::Password(Secret::new(text)))
}

#[tokio::test]
async fn the_order_is_command_file_variable_and_both_of_the_first_contradict() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = write(dir.path(), "pw", b"from file\r\n");
    let file = path.to_str().expect("UTF-8");
    let of = async |variables: &[(&str, &str)]| {
        resolve(&PasswordSpec::Inherit, &environment(variables)).await
    };
    assert_eq!(of(&[]).await, Ok(Opener::Sealed));
    assert_eq!(of(&[("RESTIC_PASSWORD", "")]).await, Ok(Opener::Sealed));
    assert_eq!(of(&[("RESTIC_PASSWORD", " pw\n")]).await, password(" pw\n"));
    assert_eq!(
        of(&[("RESTIC_PASSWORD", "x"), ("RESTIC_PASSWORD_FILE", file)]).await,
        password("from file")
    );
    let command = ("RESTIC_PASSWORD_COMMAND", "printf '\\n from command \\n'");
    assert_eq!(of(&[("RESTIC_PASSWORD", "x"), command]).await, password("from command"));
    let both = of(&[command, ("RESTIC_PASSWORD_FILE", file)]).await.expect_err("contradicts");
    assert!(both.to_string().contains("both"), "{both}");
}

#[tokio::test]
async fn an_empty_password_must_be_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = write(dir.path(), "pw", b"\xEF\xBB\xBF \n");
    let none = environment(&[]);
    let error = resolve(&PasswordSpec::File(path), &none).await.expect_err("is empty");
    assert!(error.advice.contains("insecure_no_password"), "{error:?}");
    assert!(resolve(&PasswordSpec::Command("true".into()), &none).await.is_err());
    assert!(resolve(&PasswordSpec::Variable("NONE".into()), &none).await.is_err());
    assert_eq!(resolve(&PasswordSpec::Empty, &none).await, password(""));
}

#[tokio::test]
async fn a_failing_command_is_told_by_its_status_and_never_by_its_words_or_arguments() {
    let run = async |line: &str| {
        resolve(&PasswordSpec::Command(line.into()), &environment(&[("TOKEN", "t0k3n")])).await
    };
    let error = run("sh -c 'echo planted >&2; : planted; exit 3'").await;
    let error = error.expect_err("fails");
    assert!(error.cause.contains('3') && error.advice.contains("by hand"), "{error:?}");
    assert!(!format!("{error:?}").contains("planted"), "{error:?}");
    let missing = run("/nowhere/askpass planted").await.expect_err("is missing");
    assert!(missing.to_string().contains("/nowhere/askpass"), "{missing}");
    assert!(!format!("{missing:?}").contains("planted"), "{missing:?}");
    assert!(run("head -c 100000 /dev/zero").await.is_err());
    assert_eq!(run("sh -c 'echo $TOKEN'").await, password("t0k3n"));
}

#[tokio::test(start_paused = true)]
async fn a_command_that_never_ends_is_killed_at_the_limit() {
    // Nobody else on this machine sleeps for so long.
    let mark = format!("600.{}", std::process::id());
    let running = || {
        std::fs::read_dir("/proc").expect("is mounted").flatten().any(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line == format!("sleep\0{mark}\0").as_bytes())
        })
    };
    // Not the command itself but what it started is the one that stays behind most easily.
    let command = PasswordSpec::Command(format!("sh -c 'sleep {mark}; true'"));
    let error = resolve(&command, &environment(&[])).await;
    assert!(error.expect_err("takes too long").cause.contains("within 20 s"));
    while running() {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn pipes_and_folders_are_no_password_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("makes a pipe");
    for path in [pipe, dir.path().to_owned()] {
        let error = resolve(&PasswordSpec::File(path), &environment(&[])).await;
        assert_eq!(error.expect_err("refuses").cause, "not a regular file");
    }
    let missing = PasswordSpec::MasterKeyFile(dir.path().join("none"));
    let error = resolve(&missing, &environment(&[])).await.expect_err("is missing");
    assert!(error.to_string().contains("none") && !error.advice.is_empty(), "{error:?}");
}

#[tokio::test]
async fn a_location_file_is_trimmed_like_a_password_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = write(dir.path(), "repo", "\u{FEFF} s3:host/bück et \r\n".as_bytes());
    assert_eq!(read_location(&path).await.expect("reads").as_str(), "s3:host/bück et");
    let path = write(dir.path(), "repo", b" \n");
    assert!(read_location(&path).await.is_err());
}

#[tokio::test]
async fn variables_come_from_env_before_file_before_folder_before_the_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let vars = dir.path().join("vars");
    std::fs::create_dir_all(vars.join("..2026")).expect("makes");
    write(&vars, "A", b"dir A");
    write(&vars, "B", b"dir B");
    write(&vars, "C", b"dir C\n");
    write(&vars, "ca.crt", b"no variable");
    std::os::unix::fs::symlink("..2026", vars.join("..data")).expect("links");
    let file = write(dir.path(), "env", b"export A='file A'\nB=\"file B\"\n");
    let spec = EnvSpec {
        env: BTreeMap::from([
            ("A".to_owned(), Secret::new("env A")),
            ("HOME".to_owned(), Secret::new("")),
        ]),
        env_file: Some(file.clone()),
        env_dir: Some(vars),
    };
    let environment = Environment::load(&spec).await.expect("loads");
    let get = |name: &str| environment.get(name).map(|value| value.expose().to_vec());
    assert_eq!(get("A"), Some(b"env A".to_vec()));
    assert_eq!(get("B"), Some(b"file B".to_vec()));
    assert_eq!(get("C"), Some(b"dir C\n".to_vec()));
    assert!(get("PATH").is_some(), "the exporter's own variables are inherited");
    assert_eq!(get("HOME"), None, "an empty value takes an inherited one away");
    assert!(environment.text("C").is_err(), "a text has no line break");
    let shown = format!("{environment:?}");
    assert!(shown.contains("\"A\"") && !shown.contains("file"), "{shown}");

    write(dir.path(), "env", b"A=1\nB=$planted\n");
    let error = Environment::load(&spec).await.expect_err("refuses");
    assert!(error.to_string().contains(&format!("{} line 2", file.display())), "{error}");
    assert!(!format!("{error:?}").contains("planted"), "{error:?}");
}
