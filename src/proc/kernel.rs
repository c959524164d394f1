//! All kernel locks of the machine at one moment, and who is proven to have them.
//!
//! One reading serves every path that is watched, because each makes every lock call of the
//! machine wait. Descriptors are read only of processes that a row points to; where those do not
//! have the lock (it was inherited, handed on, or has no pid) once of all, within a budget.
#![allow(clippy::disallowed_methods, reason = "the age of a reading is measured here")]

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::locks::{Class, FileKey, Row};
use super::procfs::{Budget, Procfs, Proof};

/// `/proc/locks` is not read more often than this.
pub const AGE_MAX: Duration = Duration::from_secs(5);
/// Descriptors that one reading may look at.
const FDS_MAX: usize = 200_000;
/// How long it may take to look at them.
const WALK_MAX: Duration = Duration::from_secs(2);
/// What the kernel adds to the name of a file that has it no more.
const DELETED: &[u8] = b" (deleted)";

/// The kernel's locks, read at most every [`AGE_MAX`].
#[derive(Debug)]
pub struct KernelLocks {
    procfs: Procfs,
    age_max: Duration,
    last: Mutex<Option<Arc<Picture>>>,
}

/// One reading. Who has the locks is found out when it is asked for, once.
#[derive(Debug)]
pub struct Picture {
    procfs: Procfs,
    taken: Instant,
    /// Rows by file; none when there is no `/proc/locks`.
    rows: Option<BTreeMap<FileKey, Vec<Row>>>,
    /// Lines that could not be read.
    pub odd: u64,
    /// Whether a lock that is not listed is not held.
    pub shows_all: bool,
    takers: Mutex<HashMap<i32, Arc<Vec<Proof>>>>,
    walk: OnceLock<Walk>,
    orphans: OnceLock<Vec<Orphan>>,
    open: OnceLock<Open>,
}

/// Every lock that some descriptor is proven to have.
#[derive(Debug)]
struct Walk {
    by_file: HashMap<FileKey, Vec<Proof>>,
    /// It ended before the last descriptor.
    cut: bool,
}

/// Every file that some process has open.
#[derive(Debug)]
struct Open {
    /// Process and descriptor by inode number; under none those whose number is not known.
    by_inode: HashMap<Option<u64>, Vec<(i32, u32)>>,
    /// All processes were looked at.
    complete: bool,
}

/// One lock, whoever has it now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LockRow {
    /// On which file.
    pub file: FileKey,
    /// How it was taken.
    pub class: Class,
    /// Who took it.
    pub taker: i64,
}

/// A lock on a file that has lost its name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Orphan {
    path: Vec<u8>,
    lock: LockRow,
}

impl From<&Row> for LockRow {
    fn from(row: &Row) -> Self {
        Self { file: row.file, class: row.class, taker: row.pid }
    }
}

impl KernelLocks {
    /// Nothing is read yet. `age_max` is [`AGE_MAX`] but in tests.
    pub fn new(procfs: Procfs, age_max: Duration) -> Self {
        Self { procfs, age_max, last: Mutex::new(None) }
    }

    /// A reading that is young enough. Others wait meanwhile. Belongs on a thread that may block.
    ///
    /// # Errors
    /// When `/proc/locks` is there and cannot be read.
    pub fn picture(&self) -> io::Result<Arc<Picture>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(picture) = last.as_ref().filter(|last| last.taken.elapsed() < self.age_max) {
            return Ok(Arc::clone(picture));
        }
        let picture = Arc::new(Picture::read(&self.procfs)?);
        *last = Some(Arc::clone(&picture));
        Ok(picture)
    }
}

impl Picture {
    fn read(procfs: &Procfs) -> io::Result<Self> {
        let taken = Instant::now();
        let (rows, odd) = match procfs.locks() {
            Ok(all) => {
                let mut by_file: BTreeMap<FileKey, Vec<Row>> = BTreeMap::new();
                for row in all.rows {
                    by_file.entry(row.file).or_default().push(row);
                }
                (Some(by_file), all.odd)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, 0),
            Err(error) => return Err(error),
        };
        Ok(Self {
            procfs: procfs.clone(),
            taken,
            odd,
            shows_all: rows.is_some() && procfs.shows_all(),
            rows,
            takers: Mutex::default(),
            walk: OnceLock::new(),
            orphans: OnceLock::new(),
            open: OnceLock::new(),
        })
    }

    /// Whether there is a `/proc/locks`.
    pub fn has_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// What is listed of one file: granted and waiting, leases too.
    pub fn rows(&self, file: FileKey) -> &[Row] {
        self.rows.as_ref().and_then(|rows| rows.get(&file)).map_or(&[], Vec::as_slice)
    }

    /// Whether this lock is there.
    pub fn has(&self, lock: LockRow) -> bool {
        self.rows(lock.file).iter().any(|row| !row.waits && LockRow::from(row) == lock)
    }

    /// Whether this lock is there on the file that was made then: its number may have gone to
    /// another file since. Where no descriptor may be looked through, the number is believed.
    pub fn has_on(&self, lock: LockRow, born_at: Option<Timestamp>) -> bool {
        if !self.has(lock) {
            return false;
        }
        let (proofs, _) = self.proofs(lock.file);
        let mut seen = proofs
            .iter()
            .filter(|proof| LockRow::from(&proof.row) == lock)
            .filter_map(|proof| self.procfs.descriptor_born_at(proof.pid, proof.fd))
            .peekable();
        seen.peek().is_none() || born_at.is_none() || seen.any(|born| Some(born) == born_at)
    }

    /// Which descriptors are proven to have locks on one file, and whether it is certain that
    /// there are no more.
    pub fn proofs(&self, file: FileKey) -> (Vec<Proof>, bool) {
        let granted = || self.rows(file).iter().filter(|row| !row.waits && row.class.is_lock());
        let mut pids: Vec<i32> = granted().filter_map(|row| row.pid.try_into().ok()).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut proofs: Vec<Proof> = Vec::new();
        for pid in pids.into_iter().filter(|pid| *pid > 0) {
            let of_file = self
                .taker(pid)
                .iter()
                .filter(|proof| proof.row.file == file)
                .cloned()
                .collect::<Vec<_>>();
            proofs.extend(of_file);
        }
        let proven = |row: &Row| {
            let class = |proof: &Proof| proof.row.class == row.class;
            proofs.iter().any(|proof| i64::from(proof.pid) == row.pid && class(proof))
        };
        if self.shows_all && granted().all(proven) {
            return (proofs, true);
        }
        let walk = self.walk();
        (walk.by_file.get(&file).cloned().unwrap_or_default(), !walk.cut)
    }

    /// Locks on files that had this path and have no name any more.
    pub fn orphans(&self, path: &[u8]) -> impl Iterator<Item = LockRow> {
        let all = self.orphans.get_or_init(|| self.find_orphans());
        all.iter().filter(move |orphan| orphan.path == path).map(|orphan| orphan.lock)
    }

    /// Whether some process has this file open: by its number as the kernel counts, then by device
    /// and inode as `stat` shows them. `None` when none is seen to and not all may be seen. Files
    /// with other numbers are not asked for, since their file systems may not answer.
    pub fn is_open(&self, inode: u64, file: (u64, u64)) -> Option<bool> {
        let open = self.open.get_or_init(|| self.find_open());
        let candidates = [Some(inode), None].into_iter().filter_map(|key| open.by_inode.get(&key));
        let mut complete = open.complete;
        for (pid, fd) in candidates.flatten() {
            match self.procfs.descriptor_file(*pid, *fd) {
                Some(found) if found == file => return Some(true),
                Some(_) => {}
                // It may be closed to us.
                None => complete = false,
            }
        }
        complete.then_some(false)
    }

    fn find_open(&self) -> Open {
        let mut budget = Budget::new(FDS_MAX, WALK_MAX);
        let mut open = Open { by_inode: HashMap::new(), complete: self.shows_all };
        for pid in self.procfs.pids().unwrap_or_default() {
            let Some(files) = self.procfs.open_files(pid, &mut budget) else {
                open.complete &= self.procfs.is_kept(pid);
                continue;
            };
            for (fd, inode) in files {
                open.by_inode.entry(inode).or_default().push((pid, fd));
            }
        }
        open.complete &= !budget.is_spent();
        open
    }

    fn taker(&self, pid: i32) -> Arc<Vec<Proof>> {
        let mut takers = self.takers.lock().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let mut budget = Budget::new(FDS_MAX, WALK_MAX);
            Arc::new(self.procfs.proofs(pid, &mut budget))
        };
        Arc::clone(takers.entry(pid).or_insert_with(read))
    }

    fn walk(&self) -> &Walk {
        self.walk.get_or_init(|| {
            let mut budget = Budget::new(FDS_MAX, WALK_MAX);
            let mut by_file: HashMap<FileKey, Vec<Proof>> = HashMap::new();
            for pid in self.procfs.pids().unwrap_or_default() {
                for proof in self.procfs.proofs(pid, &mut budget) {
                    by_file.entry(proof.row.file).or_default().push(proof);
                }
            }
            Walk { by_file, cut: budget.is_spent() }
        })
    }

    /// Locks are looked for only on descriptors of files without a name, since to read what a
    /// descriptor has costs several times as much as to read its link. First of the processes that
    /// rows point to; of all where a row has no such process.
    fn find_orphans(&self) -> Vec<Orphan> {
        let granted = || {
            let rows = self.rows.iter().flat_map(BTreeMap::values).flatten();
            rows.filter(|row| !row.waits && row.class.is_lock())
        };
        let mut takers: Vec<i64> = granted().map(|row| row.pid).collect();
        takers.sort_unstable();
        takers.dedup();
        let mut budget = Budget::new(FDS_MAX, WALK_MAX);
        let mut nameless = Vec::new();
        let mut all_there = self.shows_all;
        for taker in takers {
            let pid = i32::try_from(taker).ok().filter(|pid| *pid > 0);
            let files = pid.and_then(|pid| self.procfs.nameless(pid, DELETED, &mut budget));
            match (pid, files) {
                (Some(pid), Some(files)) => nameless.push((pid, files)),
                (Some(_) | None, _) => all_there = false,
            }
        }
        if !all_there {
            nameless.clear();
            for pid in self.procfs.pids().unwrap_or_default() {
                let files = self.procfs.nameless(pid, DELETED, &mut budget);
                nameless.extend(files.map(|files| (pid, files)));
            }
        }
        let mut found = Vec::new();
        for (pid, files) in nameless {
            for (fd, path) in files {
                let locks = self.procfs.proofs_of(pid, fd);
                for Proof { row, .. } in locks.iter().filter(|proof| proof.row.class.is_lock()) {
                    let orphan = Orphan { path: path.clone(), lock: LockRow::from(row) };
                    if !found.contains(&orphan) {
                        found.push(orphan);
                    }
                }
            }
        }
        found
    }
}
