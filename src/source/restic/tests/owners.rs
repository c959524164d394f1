//! What this machine's processes say of its own locks, and what asking them costs.
#![allow(clippy::disallowed_methods, reason = "makes what is read")]

use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::lock::{GoneReason, Liveness};
use crate::proc::procfs::Procfs;

/// A folder that looks like the `/proc` of a host where these processes run `restic`.
fn procfs(pids: &[i32]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    add(folder.path(), 1, "systemd");
    add(folder.path(), 2, "kthreadd");
    for pid in pids {
        add(folder.path(), *pid, "restic");
    }
    folder
}

fn add(root: &Path, pid: i32, comm: &str) {
    let folder = root.join(pid.to_string());
    fs::create_dir_all(&folder).unwrap();
    let flags = if pid == 2 { 0x20_0000 } else { 0 };
    let (before, after) = ("0 ".repeat(4), "0 ".repeat(13));
    let stat = format!("{pid} ({comm}) S 1 {before}{flags} {after}0\n");
    fs::write(folder.join("stat"), stat).unwrap();
    fs::write(folder.join("status"), format!("Tgid:\t{pid}\nUid:\t0\nNSpid:\t{pid}\n")).unwrap();
}

fn watched_by(root: &Path) -> Fixture {
    let mut fixture = Fixture::with_password();
    fixture.context.machine = Arc::new(Machine::new(MachineSpec {
        names: vec!["web01".into()],
        unique: true,
        evidence: true,
        procfs: Procfs::new(root),
        ..MachineSpec::unknown()
    }));
    fixture.reload();
    fixture
}

/// A lock of this host, a minute old. Returns its path.
fn put_lock(fixture: &Fixture, host: &str, pid: i32) -> String {
    let time = Timestamp::now() - SignedDuration::from_secs(60);
    let text = json!({ "time": time.to_string(), "exclusive": true, "hostname": host, "pid": pid });
    let bytes = known::master().seal([9; 16], text.to_string().as_bytes());
    let path = format!("locks/{}", name_of(&bytes));
    fixture.store.put(&path, bytes);
    path
}

fn liveness(look: &Look) -> Vec<Liveness> {
    let of = |entry: &LockEntry| match entry {
        LockEntry::Readable(lock) => lock.liveness,
        other => panic!("{other:?}"),
    };
    look.entries.iter().map(of).collect()
}

#[tokio::test]
async fn a_living_holder_costs_no_request() {
    let proc = procfs(&[300]);
    let fixture = watched_by(proc.path());
    put_lock(&fixture, "web01", 300);
    assert_eq!(liveness(&fixture.look().await), [Liveness::Alive]);
    fixture.store.requests();
    assert_eq!(liveness(&fixture.look().await), [Liveness::Alive]);
    assert_eq!(fixture.store.requests(), ["list locks"]);
}

#[tokio::test]
async fn a_holder_that_is_gone_is_looked_up_once_more_and_then_known() {
    let proc = procfs(&[300]);
    let fixture = watched_by(proc.path());
    put_lock(&fixture, "web01", 300);
    fixture.look().await;
    fs::remove_dir_all(proc.path().join("300")).unwrap();
    fixture.store.requests();
    let gone = [Liveness::Gone(GoneReason::Gone)];
    assert_eq!(liveness(&fixture.look().await), gone);
    assert_eq!(fixture.store.requests(), ["list locks", "list locks"]);
    assert_eq!(liveness(&fixture.look().await), gone);
    assert_eq!(fixture.store.requests(), ["list locks"]);
}

#[tokio::test]
async fn a_lock_that_is_released_while_its_process_is_looked_for_is_no_dead_lock() {
    let proc = procfs(&[300]);
    let fixture = watched_by(proc.path());
    let path = put_lock(&fixture, "web01", 300);
    fixture.look().await;
    // The listing shows it; then its holder takes it away and ends, and is looked for.
    fs::remove_dir_all(proc.path().join("300")).unwrap();
    let listings = AtomicUsize::new(0);
    let release = move |files: &mut memory::Files| {
        if listings.fetch_add(1, Ordering::Relaxed) == 1 {
            files.remove(&path);
        }
    };
    fixture.store.rule("list locks", 2, Effect::Change(Box::new(release)));
    let look = fixture.look().await;
    assert!(look.entries.is_empty(), "{:?}", look.entries);
    assert_eq!(look.vanished, 1);
}

#[tokio::test]
async fn locks_of_other_hosts_are_nobody_here() {
    let proc = procfs(&[]);
    let fixture = watched_by(proc.path());
    put_lock(&fixture, "web01.example.org", 300);
    assert_eq!(liveness(&fixture.look().await), [Liveness::Foreign]);
}
