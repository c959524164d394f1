//! A machine in a folder: which locks are found to have lost their files' names, who has those whose
//! takers have ended, and at what cost.
#![allow(clippy::disallowed_methods, reason = "makes what is read")]

use std::fs;
use std::path::Path;

use super::search::Place;
use super::*;

/// Lets a process be there, with descriptors that say this.
fn process(folder: &Path, pid: i32, descriptors: &[&str]) {
    let own = folder.join(pid.to_string());
    fs::create_dir_all(own.join("fdinfo")).unwrap();
    fs::create_dir_all(own.join("fd")).unwrap();
    let flags = if pid == 2 { 0x20_0000 } else { 0 };
    let rest = "0 ".repeat(13);
    fs::write(own.join("stat"), format!("{pid} (x) S 0 0 0 0 0 {flags} {rest}0\n")).unwrap();
    for (fd, line) in descriptors.iter().enumerate() {
        fs::write(own.join(format!("fdinfo/{fd}")), format!("lock:\t{line}")).unwrap();
    }
}

/// A machine with this list of locks, on which one process can be looked at.
fn machine(locks: &str) -> (tempfile::TempDir, KernelLocks) {
    let folder = tempfile::tempdir().unwrap();
    for pid in [1, 2, 50] {
        process(folder.path(), pid, &[]);
    }
    fs::write(folder.path().join("locks"), locks).unwrap();
    let locks = KernelLocks::new(Procfs::new(folder.path()), AGE_MAX);
    (folder, locks)
}

fn read(locks: &KernelLocks) -> Picture {
    Picture::read(&locks.procfs, &locks.known).unwrap()
}

fn picture(locks: &str) -> (tempfile::TempDir, Picture) {
    let (folder, locks) = machine(locks);
    (folder, read(&locks))
}

const LOST: &str = "1: FLOCK ADVISORY WRITE 50 fe:00:5 0 EOF\n";
const FILE: FileKey = FileKey { major: 0xfe, minor: 0, inode: 5 };
const LOCK: LockRow = LockRow { file: FILE, class: Class::Flock, taker: 50 };

/// Lets a process have a lock on a file that lost its name.
fn lose(folder: &Path, pid: i32) {
    process(folder, pid, &[]);
    let own = folder.join(pid.to_string());
    fs::write(own.join("fdinfo/3"), format!("lock:\t{LOST}")).unwrap();
    std::os::unix::fs::symlink("/run/job.lock (deleted)", own.join("fd/3")).unwrap();
}

fn numbers(major: u32, inodes: &[u64]) -> Option<Numbers> {
    Some(Numbers { major, minor: 0, inodes: inodes.iter().copied().collect() })
}

#[test]
fn descriptors_are_looked_through_only_where_a_name_may_be_lost() {
    let path = Path::new("/run/job.lock");
    let found = |picture: &Picture, named| {
        let (found, all) = picture.orphans(path, |_| named);
        (found.len(), all)
    };
    for (major, named, count) in
        [(0xfe, &[5, 6][..], 0), (0xfe, &[6], 1), (0xfd, &[5], 0), (0xfd, &[], 0)]
    {
        let (folder, picture) = picture(LOST);
        lose(folder.path(), 50);
        assert_eq!(found(&picture, numbers(major, named)), (count, true), "{major}");
        // Known of this folder from now on.
        assert_eq!(picture.orphans(path, |_| panic!("asked again")).0.len(), count);
    }
    // Unknown numbers, hidden or cut lists: everything is looked through.
    let (folder, read) = picture(LOST);
    lose(folder.path(), 50);
    assert_eq!(found(&read, None), (1, true));
    let (folder, mut read) = picture(LOST);
    lose(folder.path(), 50);
    read.cut = true;
    assert_eq!(found(&read, numbers(0xfe, &[5])).0, 1);
    read.cut = false;
    let (folder, mut read) = picture("");
    lose(folder.path(), 50);
    read.shows_all = false;
    // Other processes may be hidden.
    assert_eq!(found(&read, numbers(0xfe, &[])), (1, false));
}

#[test]
fn a_search_that_ended_early_found_at_least_so_many() {
    let path = Path::new("/run/job.lock");
    let taken_by_nobody = LOST.replace(" 50 ", " 51 ");
    for (fds, expected) in [(1, (0, false)), (100, (1, true))] {
        let (folder, mut read) = picture(&format!("{LOST}{taken_by_nobody}"));
        lose(folder.path(), 50);
        read.processes = Mutex::new(Looked::new(fds));
        let (found, all) = read.orphans(path, |_| numbers(0xfe, &[]));
        assert_eq!((found.len(), all), expected, "{fds}");
    }
}

#[test]
fn one_that_its_taker_left_is_looked_for_near_it_first() {
    let (folder, locks) = machine(LOST);
    fs::remove_dir_all(folder.path().join("50")).unwrap();
    for pid in 100..300 {
        process(folder.path(), pid, &[]);
    }
    lose(folder.path(), 52);
    // Who is farther away, and seems to have it too, is not looked at.
    lose(folder.path(), 299);
    let first = read(&locks);
    assert_eq!(first.place_of(LOCK), Place::At(52, 3));
    assert!(first.walk.get().is_none());
    // Known from now on, as long as it is true.
    let mut second = read(&locks);
    second.processes = Mutex::new(Looked::new(0));
    assert_eq!(second.place_of(LOCK), Place::At(52, 3));
    fs::remove_file(folder.path().join("52/fdinfo/3")).unwrap();
    assert_eq!(second.place_of(LOCK), Place::Unfinished);
    assert_eq!(read(&locks).place_of(LOCK), Place::At(299, 3));
}

#[test]
fn who_shares_a_lock_is_known_without_looking_at_all_processes_again() {
    let (folder, locks) = machine(LOST);
    lose(folder.path(), 60);
    lose(folder.path(), 61);
    let pids = |picture: &Picture| {
        let (proofs, all) = picture.proofs(FILE);
        let mut pids: Vec<_> = proofs.iter().map(|proof| proof.pid).collect();
        pids.sort_unstable();
        (pids, all)
    };
    assert_eq!(pids(&read(&locks)), (vec![60, 61], true));
    let second = read(&locks);
    assert_eq!(pids(&second), (vec![60, 61], true));
    assert!(second.walk.get().is_none());
    // One of them has it no more, so it is asked again who has it.
    fs::remove_file(folder.path().join("60/fdinfo/3")).unwrap();
    let third = read(&locks);
    assert_eq!(pids(&third), (vec![61], true));
    assert!(third.walk.get().is_some());
    // Another lock is unknown.
    fs::write(folder.path().join("locks"), LOST.replace(" 50 ", " 51 ")).unwrap();
    read(&locks);
    fs::write(folder.path().join("locks"), LOST).unwrap();
    let last = read(&locks);
    assert_eq!(pids(&last), (vec![61], true));
    assert!(last.walk.get().is_some());
}

#[test]
fn a_lock_that_is_younger_than_a_reading_is_in_the_next_one() {
    let (folder, locks) = machine("");
    let before = locks.picture().unwrap();
    fs::write(folder.path().join("locks"), LOST).unwrap();
    let begun = Instant::now();
    assert!(!before.is_since(begun));
    assert!(!locks.picture().unwrap().has(LOCK), "it is young enough");
    let fresh = locks.picture_since(begun).unwrap();
    assert!(fresh.is_since(begun) && fresh.has(LOCK));
    // One reading serves all who began before it, and the others keep theirs.
    assert!(Arc::ptr_eq(&fresh, &locks.picture_since(begun).unwrap()));
    assert!(Arc::ptr_eq(&before, &locks.picture().unwrap()));
}

#[test]
fn what_one_process_has_does_not_fill_our_memory() {
    let (folder, picture) = picture(LOST);
    // As one that has thousands of ranges, and the file open thousands of times, shows them all
    // at each descriptor.
    let line = "lock:\t1: POSIX ADVISORY WRITE 50 fe:00:5 0 0\n";
    const BYTES: usize = 250 << 10;
    for fd in 0..100 {
        let path = folder.path().join(format!("50/fdinfo/{fd}"));
        fs::write(path, line.repeat(BYTES / line.len())).unwrap();
    }
    let (proofs, all) = picture.proofs(FILE);
    assert!(!all && proofs.len() <= FDS_MAX, "{}", proofs.len());
}
