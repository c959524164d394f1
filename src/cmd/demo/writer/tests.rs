//! What restic itself says of the repositories made here.

use std::process::{Command, Output};

use super::*;

fn fields() -> Fields {
    Fields {
        time: "2026-01-02T03:04:05.123456789Z".parse().unwrap(),
        exclusive: true,
        hostname: "quote\"d".into(),
        username: "bäcker".into(),
        pid: 4711,
        uid: 1000,
        gid: 0,
    }
}

fn restic(repository: &Repository, password: &str, arguments: &[&str]) -> Output {
    let output = Command::new("restic")
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("RESTIC_PASSWORD", password)
        .env("RESTIC_CACHE_DIR", repository.root().join("cache"))
        .arg("-r")
        .arg(repository.root())
        .arg("--no-lock")
        .args(arguments)
        .output()
        .expect("restic is needed: apt-get install restic");
    assert!(
        output.status.success(),
        "restic {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn restic_accepts_what_it_writes() {
    let temp = tempfile::tempdir().unwrap();
    for (folder, version, number) in [("v1", Version::V1, 1), ("v2", Version::V2, 2)] {
        let root = temp.path().join(folder);
        let repository = Repository::init(&root, version, b"one", Repository::CHEAP).unwrap();
        repository.add_key(b"two", Repository::CHEAP).unwrap();
        let mut names = vec![
            repository.lock(&fields()).unwrap(),
            repository.lock_as(&fields(), Form::Plain).unwrap(),
        ];
        names.sort();
        let config = json(&restic(&repository, "two", &["cat", "config"]));
        assert_eq!(config["version"], number);
        let listed = restic(&repository, "one", &["list", "locks"]);
        let mut listed: Vec<_> =
            String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect();
        listed.sort();
        assert_eq!(listed, names);
        for name in &names {
            let lock = json(&restic(&repository, "one", &["cat", "lock", name]));
            assert_eq!(lock["hostname"], "quote\"d");
            assert_eq!(lock["username"], "bäcker");
            assert_eq!(lock["exclusive"], true);
            assert_eq!(lock["pid"], 4711);
            assert_eq!(lock["uid"], 1000);
            assert_eq!(lock["time"], "2026-01-02T03:04:05.123456789Z");
        }
        // restic prints the key with its `r` clamped, so compare by what it opens.
        let printed = restic(&repository, "one", &["cat", "masterkey"]).stdout;
        let master = MasterKey::from_json(&printed).unwrap();
        master.open(&fs::read(root.join("config")).unwrap()).unwrap();
    }
}

#[test]
fn a_refresh_leaves_the_new_file_only() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("r");
    let repository = Repository::init(&root, Version::V2, b"p", Repository::CHEAP).unwrap();
    let old = repository.lock(&fields()).unwrap();
    let new = repository.refresh(&old, &fields()).unwrap();
    assert_ne!(old, new);
    let names: Vec<_> = fs::read_dir(repository.lock_folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names, [new]);
}

#[test]
fn it_writes_only_into_folders_it_made() {
    let temp = tempfile::tempdir().unwrap();
    let exists = Repository::init(temp.path(), Version::V2, b"p", Repository::CHEAP);
    assert_eq!(exists.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let repository =
        Repository::init(&temp.path().join("r"), Version::V2, b"p", Repository::CHEAP).unwrap();
    for name in ["", ".", "..", "../config", "/etc/x"] {
        assert!(repository.raw(name, b"x").is_err(), "{name}");
        assert!(repository.remove(name).is_err(), "{name}");
    }
}
