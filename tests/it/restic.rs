//! The restic source over the real local disk: what a backend in memory cannot show.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]
#![allow(clippy::disallowed_methods, reason = "makes files to be read")]

use std::fs;
use std::path::Path;
use std::process::Command;

use lock_exporter::cmd::demo::writer::{Fields, Form, Layout, Repository, Version};
use lock_exporter::lock::{LockEntry, SealedWhy};
use lock_exporter::scan::{ErrorClass, Look};
use lock_exporter::secret::PasswordSpec;
use lock_exporter::source::LockSource;

use crate::target::{context, reader, scan};

fn with_password(root: &Path, password: &str) -> Box<dyn LockSource> {
    reader(root, PasswordSpec::Inherit, &[("RESTIC_PASSWORD", password)], &context())
}

fn words(look: &Look) -> Vec<&str> {
    let mut words: Vec<&str> = look
        .entries
        .iter()
        .map(|entry| match entry {
            LockEntry::Readable(lock) => lock.mode.as_str(),
            LockEntry::Sealed(_, why) => why.as_str(),
            LockEntry::Empty(_) => "empty",
            LockEntry::Unreadable(_, why) => why.as_str(),
        })
        .collect();
    words.sort_unstable();
    words
}

fn fields(pid: i64, exclusive: bool) -> Fields {
    Fields {
        time: "2026-01-02T03:04:05Z".parse().unwrap(),
        exclusive,
        hostname: "host".into(),
        username: "user".into(),
        pid,
        uid: 1000,
        gid: 1000,
    }
}

#[tokio::test]
async fn every_kind_of_lock_file_in_both_versions_and_layouts() {
    let temp = tempfile::tempdir().unwrap();
    for (folder, version, layout) in [
        ("v1", Version::V1, Layout::Default),
        ("v2", Version::V2, Layout::Default),
        ("legacy", Version::V1, Layout::S3Legacy),
    ] {
        let root = temp.path().join(folder);
        let made = Repository::init_with(&root, version, layout, b"p", Repository::CHEAP).unwrap();
        made.lock(&fields(1, false)).unwrap();
        made.lock_as(&fields(2, true), Form::Plain).unwrap();
        made.unreadable().unwrap();
        made.empty().unwrap();
        made.raw("README", b"x").unwrap();
        let locks = made.lock_folder();
        // A good lock kept elsewhere; a link to a folder; a folder; what would block for ever.
        let good = made.lock(&fields(3, false)).unwrap();
        fs::rename(locks.join(&good), root.join(&good)).unwrap();
        std::os::unix::fs::symlink(root.join(&good), locks.join(&good)).unwrap();
        std::os::unix::fs::symlink(&root, locks.join("aa".repeat(32))).unwrap();
        fs::create_dir(locks.join("bb".repeat(32))).unwrap();
        let fifo = locks.join("cc".repeat(32));
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let look = scan(&*with_password(&root, "p")).await.unwrap();
        let expected = ["empty", "exclusive", "mac", "name", "name", "shared", "shared"];
        assert_eq!(words(&look), expected, "{folder}");
        assert_eq!(look.ignored.count, 2, "{folder}: {:?}", look.ignored);
    }
}

#[tokio::test]
async fn a_refreshed_lock_stays_one_holder() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("r");
    let made = Repository::init(&root, Version::V2, b"p", Repository::CHEAP).unwrap();
    let old = made.lock(&fields(1, true)).unwrap();
    let source = with_password(&root, "p");
    let key = |look: &Look| match &look.entries[..] {
        [LockEntry::Readable(lock)] => (lock.key.clone(), lock.stub.id.clone()),
        other => panic!("{other:?}"),
    };
    let before = key(&scan(&*source).await.unwrap());
    let mut later = fields(1, true);
    later.time = "2026-01-02T03:09:05Z".parse().unwrap();
    made.refresh(&old, &later).unwrap();
    let after = key(&scan(&*source).await.unwrap());
    assert_eq!(before.0, after.0);
    assert_ne!(before.1, after.1);
}

#[tokio::test]
async fn a_repository_made_anew_under_a_running_exporter() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("r");
    let made = Repository::init(&root, Version::V2, b"p", Repository::CHEAP).unwrap();
    made.lock(&fields(1, false)).unwrap();
    let source = with_password(&root, "p");
    assert_eq!(words(&scan(&*source).await.unwrap()), ["shared"]);
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(scan(&*source).await.unwrap_err().class, ErrorClass::NotFound);
    let made = Repository::init(&root, Version::V1, b"p", Repository::CHEAP).unwrap();
    made.lock(&fields(2, true)).unwrap();
    let look = loop {
        let look = scan(&*source).await.unwrap();
        if !look.facts.sealed {
            break look;
        }
    };
    assert_eq!(words(&look), ["exclusive"]);
    assert_eq!(&*look.facts.details["repository_version"], "1");
    // This time nobody looks in between, and the password is another.
    fs::remove_dir_all(&root).unwrap();
    let made = Repository::init(&root, Version::V2, b"q", Repository::CHEAP).unwrap();
    made.lock(&fields(3, true)).unwrap();
    let noticed = source.scan().await.unwrap();
    assert_eq!(words(&noticed), [SealedWhy::KeyPending.as_str()]);
    assert_eq!(scan(&*source).await.unwrap_err().class, ErrorClass::WrongPassword);
}

#[tokio::test]
async fn every_way_to_the_key() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("r");
    let made = Repository::init(&root, Version::V2, b"p", Repository::CHEAP).unwrap();
    let empty = made.add_key(b"", Repository::CHEAP).unwrap();
    made.lock(&fields(1, false)).unwrap();
    let file = |name: &str, text: &str| {
        let path = temp.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let password_file = file("password", "\u{FEFF} p\r\n");
    let command = format!("cat {}", file("word", "p\n").display());
    let master = file("master", &made.master_key_json());
    for (password, env) in [
        (PasswordSpec::Inherit, vec![("RESTIC_PASSWORD", "p")]),
        (PasswordSpec::Variable("WORD".into()), vec![("WORD", "p")]),
        (PasswordSpec::File(password_file), vec![]),
        (PasswordSpec::Command(command), vec![]),
        (PasswordSpec::MasterKeyFile(master), vec![]),
        (PasswordSpec::Empty, vec![("RESTIC_KEY_HINT", &empty[..8])]),
    ] {
        let source = reader(&root, password.clone(), &env, &context());
        let look = scan(&*source).await.unwrap_or_else(|error| panic!("{password:?}: {error}"));
        assert_eq!(words(&look), ["shared"], "{password:?}");
    }
    let sealed = reader(&root, PasswordSpec::Inherit, &[], &context());
    assert_eq!(words(&scan(&*sealed).await.unwrap()), ["no_key"]);
    let missing = PasswordSpec::File(temp.path().join("not there"));
    let error = scan(&*reader(&root, missing, &[], &context())).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Config);
    assert!(error.to_string().contains("not there"), "{error}");
}

#[tokio::test]
async fn a_hint_in_the_environment_is_restics_own() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("r");
    let made = Repository::init(&root, Version::V2, b"p", 2).unwrap();
    let mut names: Vec<String> =
        (0..30).map(|index| made.add_key(format!("{index}").as_bytes(), 2).unwrap()).collect();
    let by_index = names.clone();
    names.sort();
    let last = names.pop().unwrap();
    let index = by_index.iter().position(|name| *name == last).unwrap().to_string();
    let without = with_password(&root, &index);
    assert_eq!(scan(&*without).await.unwrap_err().class, ErrorClass::WrongPassword);
    let env = [("RESTIC_PASSWORD", &*index), ("RESTIC_KEY_HINT", &last[..6])];
    let with = reader(&root, PasswordSpec::Inherit, &env, &context());
    let look = scan(&*with).await.unwrap();
    assert_eq!(&*look.facts.details["key_id"], &last[..10]);
}

#[tokio::test]
async fn host_names_that_look_like_numbers_stay_text_and_nobody_is_not_root() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("r");
    let made = Repository::init(&root, Version::V2, b"p", Repository::CHEAP).unwrap();
    // Container ids; restic leaves the user out when it cannot look it up.
    for (pid, hostname) in [(1, "328444606c34"), (2, "585564e63712"), (3, "0042")] {
        let nobody = Fields {
            hostname: hostname.into(),
            username: String::new(),
            uid: 0,
            gid: 0,
            ..fields(pid, false)
        };
        made.lock(&nobody).unwrap();
    }
    let look = scan(&*with_password(&root, "p")).await.unwrap();
    let mut holders: Vec<_> = look
        .entries
        .iter()
        .map(|entry| match entry {
            LockEntry::Readable(lock) => {
                let holder = &lock.holder;
                (holder.hostname.to_string(), holder.username.to_string(), holder.uid, holder.gid)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    holders.sort();
    let nobody = |hostname: &str| (hostname.to_owned(), String::new(), None, None);
    assert_eq!(
        holders,
        ["0042", "328444606c34", "585564e63712"].map(nobody),
        "no user is shown where none was stored"
    );
}

#[tokio::test]
async fn what_a_refused_chmod_leaves_behind() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("r");
    let made = Repository::init(&root, Version::V2, b"p", Repository::CHEAP).unwrap();
    let whole = made.lock_folder().join(made.lock(&fields(1, false)).unwrap());
    fs::set_permissions(whole, fs::Permissions::from_mode(0o600)).unwrap();
    made.empty().unwrap();
    let look = scan(&*with_password(&root, "p")).await.unwrap();
    assert_eq!(words(&look), ["empty", "shared"]);
}

#[tokio::test]
async fn passwords_of_any_length_open() {
    let temp = tempfile::tempdir().unwrap();
    for length in [20, 200, 4096] {
        let password: String = (0..length).map(|n| char::from(b'!' + n as u8 % 90)).collect();
        let root = temp.path().join(length.to_string());
        let made =
            Repository::init(&root, Version::V2, password.as_bytes(), Repository::CHEAP).unwrap();
        made.lock(&fields(1, true)).unwrap();
        let look = scan(&*with_password(&root, &password)).await.unwrap();
        assert_eq!(words(&look), ["exclusive"], "{length} in a variable");
        let file = temp.path().join("password");
        fs::write(&file, format!("{password}\n")).unwrap();
        let source = reader(&root, PasswordSpec::File(file), &[], &context());
        assert_eq!(words(&scan(&*source).await.unwrap()), ["exclusive"], "{length} in a file");
    }
}
