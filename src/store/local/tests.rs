//! Real folders with everything in them that nobody expects.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::mpsc;

use rustix::fs::{CWD, Mode, mknodat};
use tempfile::TempDir;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

fn store(root: &Path, limit: Duration) -> Local {
    Local::new(root.to_owned(), limit, Arc::new(Telemetry::new(&[], &["local"])))
}

fn repository() -> (TempDir, Local) {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(dir.path().join("locks")).expect("makes");
    let store = store(dir.path(), LIMIT);
    (dir, store)
}

fn pipe(path: &Path) {
    mknodat(CWD, path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
}

#[tokio::test]
async fn every_name_is_listed_with_its_kind_and_none_hides_another() {
    let (dir, store) = repository();
    let locks = dir.path().join("locks");
    std::fs::write(dir.path().join("target"), b"0123456789").expect("writes");
    std::fs::write(locks.join("good"), b"12345").expect("writes");
    std::fs::write(locks.join("empty"), b"").expect("writes");
    std::fs::write(locks.join(".nfs1"), b"x").expect("writes");
    std::fs::write(locks.join("a\nb#12 ü"), b"x").expect("writes");
    std::fs::write(locks.join(OsStr::from_bytes(b"bad\xFF")), b"x").expect("writes");
    std::fs::create_dir(locks.join("folder")).expect("makes");
    symlink("../target", locks.join("link")).expect("links");
    symlink("folder", locks.join("link to folder")).expect("links");
    symlink("nothing", locks.join("link to nothing")).expect("links");
    symlink("/dev/zero", locks.join("link to device")).expect("links");
    symlink("loop", locks.join("loop")).expect("links");
    pipe(&locks.join("pipe"));
    let _socket = UnixListener::bind(locks.join("socket")).expect("binds");

    let listing = store.list("locks").await.expect("lists");
    let kinds: BTreeMap<_, _> =
        listing.entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
    assert_eq!(
        kinds,
        BTreeMap::from([
            ("good", EntryKind::File),
            ("empty", EntryKind::File),
            (".nfs1", EntryKind::File),
            ("a\nb#12 ü", EntryKind::File),
            ("bad\u{FFFD}", EntryKind::File),
            ("folder", EntryKind::Folder),
            ("link", EntryKind::File),
            ("link to folder", EntryKind::BadLink),
            ("link to nothing", EntryKind::BadLink),
            ("link to device", EntryKind::BadLink),
            ("loop", EntryKind::BadLink),
            ("pipe", EntryKind::Special),
            ("socket", EntryKind::Special),
        ])
    );
    assert_eq!(listing.entries.len(), kinds.len());
    let size = |name| listing.entries.iter().find(|e| e.name == name).map(|e| e.size);
    assert_eq!((size("good"), size("empty")), (Some(5), Some(0)));
    assert_eq!(size("link"), Some("../target".len() as u64), "restic takes the link's own size");
    assert!(listing.entries.iter().all(|entry| entry.modified_at.is_some()));
    assert_eq!(store.folders("locks").await, Ok(Some(vec!["folder".to_owned()])));
}

#[tokio::test]
async fn links_are_read_like_files_and_nothing_else_is_opened() {
    let (dir, store) = repository();
    let locks = dir.path().join("locks");
    std::fs::write(dir.path().join("target"), b"content").expect("writes");
    symlink("../target", locks.join("link")).expect("links");
    symlink("/dev/zero", locks.join("device")).expect("links");
    symlink("..", locks.join("folder")).expect("links");
    pipe(&locks.join("pipe"));
    let content = Ok(Bytes::from_static(b"content"));
    assert_eq!(store.read("locks/link", 7).await, content);
    assert_eq!(store.stat("locks/link").await.map(|entry| entry.size), Ok(7));
    for name in ["device", "folder", "pipe"] {
        let error = store.read(&format!("locks/{name}"), 7).await.expect_err("is not opened");
        assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Damaged), "{error}");
        assert!(error.cause.contains(name), "{error}");
    }
}

#[tokio::test]
async fn a_size_is_not_believed() {
    let (dir, store) = repository();
    std::fs::write(dir.path().join("locks/eight"), b"12345678").expect("writes");
    let sparse = File::create(dir.path().join("locks/huge")).expect("makes");
    sparse.set_len(10 << 30).expect("grows");
    assert_eq!(store.read("locks/eight", 8).await.map(|b| b.len()), Ok(8));
    for name in ["locks/eight", "locks/huge"] {
        let error = store.read(name, 7).await.expect_err("is too large");
        assert_eq!(error.kind, StoreErrorKind::TooLarge);
    }
}

#[tokio::test]
async fn a_missing_folder_is_empty_and_a_missing_repository_is_an_error() {
    let (dir, store) = repository();
    assert_eq!(store.list("keys").await, Ok(Listing::default()));
    let error = store.stat("config").await.expect_err("is missing");
    assert_eq!(error.kind, StoreErrorKind::NotFound);
    std::fs::write(dir.path().join("keys"), b"").expect("writes");
    let error = store.list("keys").await.expect_err("is a file");
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Damaged));

    // What lies behind a link to a file system that is not mounted is not known to be nothing.
    std::os::unix::fs::symlink("/nonexistent/locks", dir.path().join("linked")).expect("links");
    let error = store.list("linked").await.expect_err("leads nowhere");
    assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Damaged));

    let gone = dir.path().join("gone");
    let error = self::store(&gone, LIMIT).list("locks").await.expect_err("is missing");
    assert_eq!(error.kind, StoreErrorKind::NotFound);
    assert!(error.cause.contains(&*gone.to_string_lossy()), "{error}");
    assert!(error.advice.contains("mounted"), "{error:?}");
    let file = dir.path().join("keys");
    let error = self::store(&file, LIMIT).list("locks").await.expect_err("is a file");
    assert_eq!(error.kind, StoreErrorKind::NotFound);
}

/// Root is refused nothing, so as root the test runs itself again as nobody.
#[tokio::test]
async fn what_may_not_be_read_is_a_permission_error_with_its_path() {
    if rustix::process::geteuid().is_root() {
        let me = std::env::current_exe().expect("is known");
        let as_nobody = std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(me)
            .args([
                "--exact",
                "store::local::tests::what_may_not_be_read_is_a_permission_error_with_its_path",
            ])
            .output()
            .expect("setpriv is there (util-linux)");
        let said = String::from_utf8_lossy(&as_nobody.stdout);
        assert!(as_nobody.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (dir, store) = repository();
    let locks = dir.path().join("locks");
    std::fs::write(locks.join("secret"), b"x").expect("writes");
    let close = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("sets");
    };
    close(&locks.join("secret"), 0o000);
    assert_eq!(store.list("locks").await.map(|l| l.entries.len()), Ok(1));
    let refused = store.read("locks/secret", 10).await.expect_err("is refused");
    assert_eq!(refused.kind, StoreErrorKind::Failed(ErrorClass::Permission));
    assert!(refused.to_string().starts_with("read locks/secret: "), "{refused}");
    close(&locks, 0o000);
    let refused = store.list("locks").await;
    close(&locks, 0o700);
    let refused = refused.expect_err("is refused");
    assert_eq!(refused.kind, StoreErrorKind::Failed(ErrorClass::Permission));
    assert!(refused.advice.contains("CAP_DAC_READ_SEARCH"), "{refused:?}");
}

#[tokio::test]
async fn no_path_leads_out() {
    let (_dir, store) = repository();
    for path in ["..", "locks/../../etc", "/etc/passwd", "locks//a", "./locks", "a\0b"] {
        let error = store.read(path, 10).await.expect_err("is refused");
        assert_eq!(error.kind, StoreErrorKind::Failed(ErrorClass::Internal), "{path}");
    }
}

/// A hung network mount must not eat one more thread with every scan.
#[tokio::test]
async fn a_hanging_call_times_out_and_holds_back_the_next_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(dir.path(), Duration::from_millis(40));
    let (release, hang) = mpsc::channel::<()>();
    let hung = store
        .call(Operation::List, "list", "locks", move |_, _| {
            let _ = hang.recv();
            Ok(())
        })
        .await
        .expect_err("times out");
    assert_eq!(hung.kind, StoreErrorKind::Failed(ErrorClass::Timeout));
    let (started, starts) = mpsc::channel::<()>();
    let second = store
        .call(Operation::List, "list", "locks", move |_, _| {
            let _ = started.send(());
            Ok(())
        })
        .await
        .expect_err("waits for its turn");
    assert_eq!(second.kind, StoreErrorKind::Failed(ErrorClass::Timeout));
    assert!(starts.recv().is_err(), "the second call never started");
    drop(release);
    while store.list("").await.is_err() {}
}
