//! Rows and proofs of one file → the locks on it and who has each.
//!
//! Pure. The process that a row names is the one that took the lock; the one that has it may be a
//! child that inherited the descriptor. A pid is named only when its own descriptors prove it.

use std::collections::BTreeMap;

use super::origin::Identity;
use crate::lock::LockMode;
use crate::proc::locks::{Class, Row};
use crate::proc::procfs::Proof;

/// A process as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// Its parent's.
    pub parent: i64,
    /// The first process of its session.
    pub session: i64,
    /// Its start, in ticks since the boot.
    pub start: u64,
}

impl Process {
    /// What no other process of this boot has.
    pub fn identity(&self) -> Identity {
        (self.pid, self.start)
    }
}

/// One lock, held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// How it was taken.
    pub class: Class,
    /// Who took it; -1 when that is not recorded, 0 when it is outside of the PID namespace.
    pub taker: i64,
    /// Exclusive if any part of the file is.
    pub mode: LockMode,
    /// Who has it, of several processes the one that the others come from; none is proven to.
    pub holder: Option<Process>,
    /// How many processes are proven to have it.
    pub holders: usize,
}

/// Requests that wait for a lock.
pub fn waiters(rows: &[Row]) -> u64 {
    rows.iter().filter(|row| row.waits && row.class.is_lock()).count() as u64
}

/// Whether every lock that is listed is proven to be on another file that shares the number. One
/// row is of one file: it takes as many files as there are rows of the same words.
pub fn are_of_others(rows: &[Row], others: &[((u64, u64), Row)]) -> bool {
    let granted = || rows.iter().filter(|row| !row.waits && row.class.is_lock());
    granted().all(|row| {
        let listed = granted().filter(|other| is_same(other, row)).count();
        let mut files: Vec<_> = others
            .iter()
            .filter(|(_, proven)| is_same(proven, row))
            .map(|(file, _)| file)
            .collect();
        files.sort_unstable();
        files.dedup();
        listed <= files.len()
    })
}

/// Whether two rows are of one lock, as far as their words tell.
fn is_same(a: &Row, b: &Row) -> bool {
    (a.class, a.pid, a.mode, a.range) == (b.class, b.pid, b.mode, b.range)
}

/// The locks that are granted. `proofs` are of the same file, `processes` says what is known of
/// those that they name; one that has ended meanwhile is unknown there.
///
/// Proofs are read after the rows. One that is of no row is of a lock that was taken meanwhile:
/// beside one that was released it would make two of one. `listed` = no row is hidden.
pub fn held(
    rows: &[Row],
    listed: bool,
    proofs: &[Proof],
    processes: &BTreeMap<i32, Process>,
) -> Vec<Held> {
    let is_listed = |proof: &&Proof| {
        let Row { class, pid, .. } = proof.row;
        let is_its = |row: &Row| match class {
            Class::Ofd => is_same(row, &proof.row),
            // They may have come to another mode, or range, since.
            Class::Flock | Class::Posix | Class::Lease | Class::Other => {
                (row.class, row.pid) == (class, pid)
            }
        };
        !listed || rows.iter().any(|row| !row.waits && is_its(row))
    };
    let mut locks: BTreeMap<(Class, i64), Lock<'_>> = BTreeMap::new();
    let mut open: BTreeMap<(u64, Option<u64>, LockMode), Lock<'_>> = BTreeMap::new();
    // Outside of the initial PID namespace a row may be hidden whose lock a descriptor proves.
    let proven = proofs.iter().filter(is_listed).map(|proof| (&proof.row, Some(proof)));
    let granted = rows.iter().filter(|row| !row.waits).map(|row| (row, None));
    for (row, proof) in granted.chain(proven).filter(|(row, _)| row.class.is_lock()) {
        let Some(mode) = row.mode else { continue };
        let lock = match row.class {
            // Without a pid only the range tells the locks of several descriptors apart.
            Class::Ofd => open.entry((row.range.0, row.range.1, mode)).or_default(),
            Class::Flock | Class::Posix | Class::Lease | Class::Other => {
                locks.entry((row.class, row.pid)).or_default()
            }
        };
        lock.exclusive |= mode == LockMode::Exclusive && (proof.is_none() || !listed);
        lock.proofs.extend(proof);
    }
    let mut all: Vec<Held> = Vec::new();
    for ((class, taker), lock) in locks {
        all.push(lock.held(class, taker, lock.top(processes).first().copied(), processes));
    }
    all.extend(open_file_locks(open, processes));
    all
}

/// Of an exclusive range one descriptor has the lock; a shared one may be of many.
fn open_file_locks(
    open: BTreeMap<(u64, Option<u64>, LockMode), Lock<'_>>,
    processes: &BTreeMap<i32, Process>,
) -> Vec<Held> {
    let mut by_holder: BTreeMap<Option<i32>, Held> = BTreeMap::new();
    for ((.., mode), lock) in open {
        let top = lock.top(processes);
        let shown = match (mode, top.is_empty()) {
            (_, true) => vec![None],
            (LockMode::Exclusive, false) => vec![top.first().copied()],
            (LockMode::Shared, false) => top.into_iter().map(Some).collect(),
        };
        for holder in shown {
            let one = lock.held(Class::Ofd, -1, holder, processes);
            let known = by_holder.entry(holder.map(|holder| holder.pid)).or_insert(one.clone());
            known.mode = known.mode.min(one.mode);
        }
    }
    by_holder.into_values().collect()
}

#[derive(Default)]
struct Lock<'a> {
    exclusive: bool,
    proofs: Vec<&'a Proof>,
}

impl Lock<'_> {
    /// The processes that have it and do not come from another one that has it; the eldest first.
    fn top(&self, processes: &BTreeMap<i32, Process>) -> Vec<Process> {
        let mut known: Vec<Process> =
            self.proofs.iter().filter_map(|proof| processes.get(&proof.pid).copied()).collect();
        known.sort_by_key(|process| (process.start, process.pid));
        known.dedup();
        let is_known = |pid: i64| known.iter().any(|other| i64::from(other.pid) == pid);
        known.iter().filter(|process| !is_known(process.parent)).copied().collect()
    }

    fn held(
        &self,
        class: Class,
        taker: i64,
        holder: Option<Process>,
        processes: &BTreeMap<i32, Process>,
    ) -> Held {
        let mut pids: Vec<i32> = self.proofs.iter().map(|proof| proof.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids.retain(|pid| processes.contains_key(pid));
        let mode = if self.exclusive { LockMode::Exclusive } else { LockMode::Shared };
        Held { class, taker, mode, holder, holders: pids.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::locks::parse;

    fn rows(text: &str) -> Vec<Row> {
        let rows = parse(text.as_bytes());
        assert_eq!(rows.odd, 0, "{text}");
        rows.rows
    }

    fn proof(pid: i32, line: &str) -> Proof {
        Proof { pid, fd: 9, row: rows(line)[0] }
    }

    fn processes(all: &[(i32, i64, u64)]) -> BTreeMap<i32, Process> {
        let process = |&(pid, parent, start): &(i32, i64, u64)| {
            (pid, Process { pid, parent, session: 1, start })
        };
        all.iter().map(process).collect()
    }

    const FLOCK: &str = "1: FLOCK ADVISORY WRITE 50 fe:00:5 0 EOF";

    #[test]
    fn the_eldest_that_inherited_it_is_named_and_the_dead_taker_is_not() {
        let proofs = [proof(61, FLOCK), proof(60, FLOCK)];
        let known = processes(&[(60, 1, 10), (61, 60, 20)]);
        let all = held(&rows(FLOCK), true, &proofs, &known);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].holder.map(|holder| holder.pid), Some(60));
        assert_eq!((all[0].taker, all[0].holders), (50, 2));
        // The shell is gone: its child has the same lock.
        let all = held(&rows(FLOCK), true, &proofs[..1], &processes(&[(61, 1, 20)]));
        assert_eq!(all[0].holder.map(|holder| holder.pid), Some(61));
    }

    #[test]
    fn nobody_is_named_without_proof() {
        let all = held(&rows(FLOCK), true, &[], &processes(&[(50, 1, 10)]));
        assert_eq!((all[0].holder, all[0].holders), (None, 0));
    }

    #[test]
    fn two_ranges_of_one_process_are_one_lock() {
        let text =
            "1: POSIX ADVISORY WRITE 7 fe:00:5 10 14\n2: POSIX ADVISORY READ 7 fe:00:5 100 100";
        let all = held(&rows(text), true, &[], &processes(&[]));
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].class, all[0].mode), (Class::Posix, LockMode::Exclusive));
    }

    #[test]
    fn shared_holders_are_locks_of_their_own() {
        let text = "1: FLOCK ADVISORY READ 7 fe:00:5 0 EOF\n2: FLOCK ADVISORY READ 8 fe:00:5 0 EOF\n\
                    2: -> FLOCK ADVISORY WRITE 9 fe:00:5 0 EOF\n3: LEASE ACTIVE READ 9 fe:00:5 0 EOF";
        let rows = rows(text);
        assert_eq!(held(&rows, true, &[], &processes(&[])).len(), 2);
        assert_eq!(waiters(&rows), 1);
    }

    #[test]
    fn descriptors_tell_who_has_a_lock_without_a_pid() {
        let write = "1: OFDLCK ADVISORY WRITE -1 fe:00:5 0 EOF";
        let all = held(&rows(write), true, &[proof(7, write)], &processes(&[(7, 1, 1)]));
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].holder.map(|holder| holder.pid), Some(7));
        let read = "1: OFDLCK ADVISORY READ -1 fe:00:5 0 EOF";
        let both = [proof(7, read), proof(8, read)];
        let all = held(&rows(read), true, &both, &processes(&[(7, 1, 1), (8, 1, 2)]));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn a_hidden_row_is_proven_by_a_descriptor() {
        let line = "1: FLOCK ADVISORY WRITE 0 fe:00:5 0 EOF";
        let all = held(&[], false, &[proof(12, line)], &processes(&[(12, 1, 1)]));
        assert_eq!(all[0].holder.map(|holder| holder.pid), Some(12));
        assert!(held(&[], true, &[], &processes(&[])).is_empty());
    }

    #[test]
    fn flock_and_fcntl_do_not_see_each_other() {
        let text = format!("{FLOCK}\n2: POSIX ADVISORY WRITE 51 fe:00:5 0 EOF");
        assert_eq!(held(&rows(&text), true, &[], &processes(&[])).len(), 2);
    }

    #[test]
    fn what_was_taken_after_the_list_was_read_makes_no_two_of_one() {
        let known = processes(&[(50, 1, 10), (60, 1, 20)]);
        // Handed on from one job to the next, and from shared to exclusive.
        let later = "1: FLOCK ADVISORY WRITE 60 fe:00:5 0 EOF";
        let all = held(&rows(FLOCK), true, &[proof(60, later)], &known);
        assert_eq!((all.len(), all[0].taker, all[0].holder), (1, 50, None));
        let (read, write) =
            (FLOCK.replace("WRITE", "READ"), "1: OFDLCK ADVISORY WRITE -1 fe:00:5 0 EOF");
        let all = held(&rows(&read), true, &[proof(50, FLOCK)], &known);
        assert_eq!((all.len(), all[0].mode), (1, LockMode::Shared));
        assert_eq!(all[0].holder.map(|holder| holder.pid), Some(50));
        let open = write.replace("WRITE", "READ");
        let all = held(&rows(&open), true, &[proof(60, write)], &known);
        assert_eq!((all.len(), all[0].mode, all[0].holder), (1, LockMode::Shared, None));
    }

    #[test]
    fn a_shared_number_is_free_only_if_each_lock_is_proven_to_be_anothers() {
        let other = "2: FLOCK ADVISORY WRITE 51 fe:00:5 0 EOF";
        let both = rows(&format!("{FLOCK}\n{other}\n3: LEASE ACTIVE READ 9 fe:00:5 0 EOF"));
        let proven = |file: u64, line: &str| ((1, file), rows(line)[0]);
        assert!(are_of_others(&[], &[]));
        assert!(!are_of_others(&both, &[]));
        assert!(!are_of_others(&both, &[proven(2, other)]));
        assert!(are_of_others(&both, &[proven(2, other), proven(2, FLOCK)]));
        // One process took both, and only one file is known.
        let twice = rows(&format!("{FLOCK}\n{FLOCK}"));
        assert!(!are_of_others(&twice, &[proven(2, FLOCK), proven(2, FLOCK)]));
        assert!(are_of_others(&twice, &[proven(2, FLOCK), proven(3, FLOCK)]));
    }
}
