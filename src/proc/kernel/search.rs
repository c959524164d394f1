//! Which descriptors have a lock: of the process that took it, else of those that started about
//! when it did, else of all.
//!
//! What a descriptor has is the only proof. Where all processes had to be looked at, that is
//! remembered for a while, as long as each descriptor still proves what it did. It does not know
//! what a lock is good for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::locks::{FileKey, Row};
use super::super::procfs::{Budget, Proof};
use super::{LockRow, Picture, WALK_MAX};

/// What was found by looking at all processes is good for so long: who got a descriptor since is
/// not known.
const KNOWN_MAX: Duration = Duration::from_secs(60);
/// Processes that are looked at first where the one that took a lock has ended: its parent, its
/// children, and others that started about when it did.
const NEAR: usize = 64;

/// What processes are proven to have, each looked at once.
#[derive(Debug)]
pub(super) struct Looked {
    by_pid: HashMap<i32, Arc<Vec<Proof>>>,
    /// For all of them together.
    left: Budget,
}

/// Every lock that some descriptor is proven to have.
#[derive(Debug)]
pub(super) struct Walk {
    by_file: HashMap<FileKey, Vec<Proof>>,
    /// It ended before the last descriptor.
    pub(super) cut: bool,
}

/// Descriptors of locks for which all processes had to be looked at, from reading to reading.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<LockRow, Had>>);

/// Who had one lock.
#[derive(Clone, Debug)]
struct Had {
    at: Instant,
    /// All of them, and not just one.
    all: bool,
    descriptors: Vec<(i32, u32)>,
}

/// One descriptor that has a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    At(i32, u32),
    /// None that may be looked at.
    Nowhere,
    /// None among those that could be looked at.
    Unfinished,
}

impl Looked {
    /// Nothing yet, and no more than so many descriptors.
    pub(super) fn new(fds: usize) -> Self {
        Self { by_pid: HashMap::new(), left: Budget::new(fds, WALK_MAX) }
    }
}

impl Known {
    /// Forgets what is not there any more.
    pub(super) fn keep(&self, is_there: impl Fn(&LockRow) -> bool) {
        self.get_all().retain(|lock, _| is_there(lock));
    }

    fn get_all(&self) -> std::sync::MutexGuard<'_, HashMap<LockRow, Had>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, lock: LockRow) -> Option<Had> {
        self.get_all().get(&lock).cloned()
    }

    fn put(&self, lock: LockRow, all: bool, descriptors: Vec<(i32, u32)>) {
        self.get_all().insert(lock, Had { at: Instant::now(), all, descriptors });
    }
}

impl Picture {
    /// Which descriptors are proven to have locks on one file, and whether it is certain that
    /// there are no more.
    pub fn proofs(&self, file: FileKey) -> (Vec<Proof>, bool) {
        let granted = || self.rows(file).iter().filter(|row| !row.waits && row.class.is_lock());
        let mut pids: Vec<i32> = granted().filter_map(|row| row.pid.try_into().ok()).collect();
        pids.retain(|pid| *pid > 0);
        pids.sort_unstable();
        pids.dedup();
        let of_file = |proof: &&Proof| proof.row.file == file;
        let mut proofs: Vec<Proof> = Vec::new();
        for pid in pids {
            proofs.extend(self.process(pid).iter().filter(of_file).cloned());
        }
        let proven = |row: &Row| {
            let class = |proof: &Proof| proof.row.class == row.class;
            proofs.iter().any(|proof| i64::from(proof.pid) == row.pid && class(proof))
        };
        if self.shows_all && granted().all(proven) {
            return (proofs, true);
        }
        if let Some(known) = self.known_proofs(file).filter(|_| self.shows_all) {
            return (known, true);
        }
        let near = granted().map(|row| row.pid).find(|pid| *pid > 0);
        let walk = self.walk(near.unwrap_or(0));
        let found = walk.by_file.get(&file).cloned().unwrap_or_default();
        for lock in granted().filter(|_| !walk.cut).map(LockRow::from) {
            let its = found.iter().filter(|proof| LockRow::from(&proof.row) == lock);
            self.known.put(lock, true, its.map(|proof| (proof.pid, proof.fd)).collect());
        }
        (found, !walk.cut)
    }

    /// Who had the locks on a file when all processes were looked at, where each still has them.
    fn known_proofs(&self, file: FileKey) -> Option<Vec<Proof>> {
        let granted = self.rows(file).iter().filter(|row| !row.waits && row.class.is_lock());
        let mut locks: Vec<LockRow> = granted.map(LockRow::from).collect();
        locks.sort_unstable();
        locks.dedup();
        let mut proofs = Vec::new();
        for lock in locks {
            let had = self.known.get(lock)?;
            if !had.all || had.at.elapsed() > KNOWN_MAX || had.descriptors.is_empty() {
                return None;
            }
            for (pid, fd) in had.descriptors {
                let now = self.procfs.proofs_of(pid, fd);
                let before = proofs.len();
                proofs.extend(now.into_iter().filter(|proof| LockRow::from(&proof.row) == lock));
                if proofs.len() == before {
                    return None;
                }
            }
        }
        Some(proofs)
    }

    /// One descriptor that has a lock.
    pub(super) fn place_of(&self, lock: LockRow) -> Place {
        let has = |proof: &Proof| LockRow::from(&proof.row) == lock;
        let still = |(pid, fd): &(i32, u32)| self.procfs.proofs_of(*pid, *fd).iter().any(has);
        let known = self.known.get(lock).and_then(|had| had.descriptors.into_iter().find(still));
        if let Some((pid, fd)) = known {
            return Place::At(pid, fd);
        }
        let found = |pid: i32| {
            self.process(pid).iter().find(|proof| has(proof)).map(|proof| (proof.pid, proof.fd))
        };
        let taker = i32::try_from(lock.taker).ok().filter(|pid| *pid > 0);
        if let Some(place) = taker.and_then(found) {
            return Place::At(place.0, place.1);
        }
        let near = taker.and_then(|taker| self.near(taker.into()).into_iter().find_map(found));
        let walked = || {
            let walk = self.walk(lock.taker);
            let proof = walk.by_file.get(&lock.file)?.iter().find(|proof| has(proof))?;
            Some((proof.pid, proof.fd))
        };
        match near.or_else(walked) {
            Some((pid, fd)) => {
                self.known.put(lock, false, vec![(pid, fd)]);
                Place::At(pid, fd)
            }
            None if self.walk(lock.taker).cut => Place::Unfinished,
            // It may have been released meanwhile and taken again, so this is not remembered.
            None => Place::Nowhere,
        }
    }

    /// The processes whose pids are next to one.
    fn near(&self, pid: i64) -> Vec<i32> {
        let mut pids = self.procfs.pids().unwrap_or_default();
        pids.sort_unstable_by_key(|other| i64::from(*other).abs_diff(pid));
        pids.truncate(NEAR);
        pids
    }

    fn process(&self, pid: i32) -> Arc<Vec<Proof>> {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let Looked { by_pid, left } = &mut *processes;
        let look = || Arc::new(left.spend(|budget| self.procfs.proofs(pid, budget)));
        Arc::clone(by_pid.entry(pid).or_insert_with(look))
    }

    /// Looks at all processes, from this pid on to both sides.
    pub(super) fn walk(&self, near: i64) -> &Walk {
        self.walk.get_or_init(|| {
            let mut pids = self.procfs.pids().unwrap_or_default();
            pids.sort_unstable_by_key(|pid| i64::from(*pid).abs_diff(near));
            let mut by_file: HashMap<FileKey, Vec<Proof>> = HashMap::new();
            for pid in pids {
                for proof in self.process(pid).iter() {
                    by_file.entry(proof.row.file).or_default().push(proof.clone());
                }
            }
            let processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
            Walk { by_file, cut: processes.left.is_spent() }
        })
    }
}
