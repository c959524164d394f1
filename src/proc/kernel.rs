//! All kernel locks of the machine at one moment, and who is proven to have them.
//!
//! One reading serves every path that is watched, because each makes every lock call of the
//! machine wait. Descriptors are read only of processes that a row points to; where those do not
//! have the lock (it was inherited, handed on, or has no pid) of those near them and at last of
//! all, within a budget. What was found so is tried first with the next reading.
#![allow(clippy::disallowed_methods, reason = "the age of a reading is measured here")]

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use self::nameless::{Nameless, Orphans};
use self::search::{Known, Looked, Walk};
use super::locks::{Class, FileKey, Row};
use super::procfs::{Budget, Procfs};

mod nameless;
mod search;

pub use nameless::Numbers;

/// `/proc/locks` is not read more often than this, but where a lock may be younger than the last
/// reading.
pub const AGE_MAX: Duration = Duration::from_secs(5);
/// Then so much of the time at least nobody's lock call waits for a reading: as many times the
/// last reading's own time.
const SPARE: u32 = 10;
/// Descriptors that one reading may look at.
const FDS_MAX: usize = 200_000;
/// Processor time that it may take to look at them. Waiting for a processor is not counted: on a
/// busy machine as much is seen.
const WALK_MAX: Duration = Duration::from_secs(2);

/// The kernel's locks, read at most every [`AGE_MAX`].
#[derive(Debug)]
pub struct KernelLocks {
    procfs: Procfs,
    age_max: Duration,
    last: Mutex<Option<Arc<Picture>>>,
    /// The last reading that [`Self::picture_since`] made.
    fresh: Mutex<Option<Arc<Picture>>>,
    known: Arc<Known>,
}

/// One reading. Who has the locks is found out when it is asked for, once.
#[derive(Debug)]
pub struct Picture {
    procfs: Procfs,
    taken: Instant,
    /// How long the reading took, while lock calls waited.
    took: Duration,
    /// Rows by file; none when there is no `/proc/locks`.
    rows: Option<BTreeMap<FileKey, Vec<Row>>>,
    /// Lines that could not be read.
    pub odd: u64,
    /// Whether a lock that is not listed is not held, unless the list is [cut](Self::cut).
    pub shows_all: bool,
    /// There are more locks than are listed here.
    pub cut: bool,
    /// What earlier readings found out.
    known: Arc<Known>,
    processes: Mutex<Looked>,
    walk: OnceLock<Walk>,
    folders: Mutex<HashMap<PathBuf, Arc<OnceLock<Orphans>>>>,
    all_nameless: OnceLock<Nameless>,
    open: OnceLock<Open>,
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

impl From<&Row> for LockRow {
    fn from(row: &Row) -> Self {
        Self { file: row.file, class: row.class, taker: row.pid }
    }
}

impl KernelLocks {
    /// Nothing is read yet. `age_max` is [`AGE_MAX`] but in tests.
    pub fn new(procfs: Procfs, age_max: Duration) -> Self {
        let (last, fresh) = (Mutex::default(), Mutex::default());
        Self { procfs, age_max, last, fresh, known: Arc::default() }
    }

    /// A reading that is young enough. Others wait meanwhile. Belongs on a thread that may block.
    ///
    /// # Errors
    /// When `/proc/locks` is there and cannot be read.
    pub fn picture(&self) -> io::Result<Arc<Picture>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.as_ref().filter(|last| last.taken.elapsed() < self.age_max) {
            Some(picture) => Ok(Arc::clone(picture)),
            None => self.read(&mut last),
        }
    }

    /// A reading that was begun after this moment, for who must not miss a lock that was there
    /// then. What [`Self::picture`] gives stays the same: its looks at processes are shared.
    ///
    /// # Errors
    /// As [`Self::picture`].
    pub fn picture_since(&self, begun: Instant) -> io::Result<Arc<Picture>> {
        loop {
            let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
            let pause = match fresh.as_ref() {
                Some(picture) if picture.is_since(begun) => return Ok(Arc::clone(picture)),
                Some(picture) => {
                    let pause = (picture.took * SPARE).min(self.age_max);
                    pause.saturating_sub(picture.taken.elapsed())
                }
                None => Duration::ZERO,
            };
            if pause.is_zero() {
                return self.read(&mut fresh);
            }
            drop(fresh);
            std::thread::sleep(pause);
        }
    }

    fn read(&self, last: &mut Option<Arc<Picture>>) -> io::Result<Arc<Picture>> {
        let picture = Arc::new(Picture::read(&self.procfs, &self.known)?);
        *last = Some(Arc::clone(&picture));
        Ok(picture)
    }
}

impl Picture {
    fn read(procfs: &Procfs, known: &Arc<Known>) -> io::Result<Self> {
        let taken = Instant::now();
        let (rows, odd, cut) = match procfs.locks() {
            Ok(all) => {
                let cut = all.cut;
                let mut by_file: BTreeMap<FileKey, Vec<Row>> = BTreeMap::new();
                for row in all.rows {
                    by_file.entry(row.file).or_default().push(row);
                }
                (Some(by_file), all.odd, cut)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, 0, false),
            Err(error) => return Err(error),
        };
        let picture = Self {
            procfs: procfs.clone(),
            taken,
            took: taken.elapsed(),
            odd,
            shows_all: rows.is_some() && procfs.shows_all(),
            rows,
            cut,
            known: Arc::clone(known),
            processes: Mutex::new(Looked::new(FDS_MAX)),
            walk: OnceLock::new(),
            folders: Mutex::default(),
            all_nameless: OnceLock::new(),
            open: OnceLock::new(),
        };
        picture.known.keep(|lock| picture.has(*lock));
        Ok(picture)
    }

    /// Whether there is a `/proc/locks`.
    pub fn has_rows(&self) -> bool {
        self.rows.is_some()
    }

    /// Whether it was not begun before this moment.
    pub fn is_since(&self, begun: Instant) -> bool {
        self.taken >= begun
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
}

#[cfg(test)]
mod tests;
