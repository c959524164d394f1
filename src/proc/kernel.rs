//! All kernel locks of the machine at one moment, and who is proven to have them.
//!
//! One reading serves every path that is watched, because each makes every lock call of the
//! machine wait. Descriptors are read only of processes that a row points to; where those do not
//! have the lock (it was inherited, handed on, or has no pid) once of all, within a budget.
#![allow(clippy::disallowed_methods, reason = "the age of a reading is measured here")]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
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
    /// Whether a lock that is not listed is not held, unless the list is [cut](Self::cut).
    pub shows_all: bool,
    /// There are more locks than are listed here.
    pub cut: bool,
    takers: Mutex<Looked<Arc<Vec<Proof>>>>,
    walk: OnceLock<Walk>,
    folders: Mutex<HashMap<PathBuf, Arc<OnceLock<Vec<Orphan>>>>>,
    nameless: Mutex<Looked<Option<Arc<Nameless>>>>,
    all_nameless: OnceLock<Vec<(i32, Nameless)>>,
    open: OnceLock<Open>,
}

/// What was found at the descriptors of processes that rows point to.
#[derive(Debug)]
struct Looked<T> {
    by_pid: HashMap<i32, T>,
    /// Descriptors that may still be looked at, of all of them together.
    left: usize,
}

impl<T: Clone> Looked<T> {
    fn new() -> Self {
        Self { by_pid: HashMap::new(), left: FDS_MAX }
    }

    fn get(&mut self, pid: i32, look: impl FnOnce(&mut Budget) -> T) -> T {
        let Self { by_pid, left } = self;
        let look = || {
            let mut budget = Budget::new(*left, WALK_MAX);
            let found = look(&mut budget);
            *left = budget.left();
            found
        };
        by_pid.entry(pid).or_insert_with(look).clone()
    }
}

/// The numbers of all files that have names in one folder, by which the kernel locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// Major number of the folder's device.
    pub major: u32,
    /// Minor number of the folder's device.
    pub minor: u32,
    /// The numbers; each is of one file of that device.
    pub inodes: HashSet<u64>,
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

/// Descriptors of one process whose files have lost their names, with the paths they had.
type Nameless = Vec<(u32, Vec<u8>)>;

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
        Ok(Self {
            procfs: procfs.clone(),
            taken,
            odd,
            shows_all: rows.is_some() && procfs.shows_all(),
            rows,
            cut,
            takers: Mutex::new(Looked::new()),
            walk: OnceLock::new(),
            folders: Mutex::default(),
            nameless: Mutex::new(Looked::new()),
            all_nameless: OnceLock::new(),
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
    ///
    /// They are looked for at the descriptors of processes, which is most of a reading's cost, so
    /// only where a lock can be on such a file: `numbers` says which files have names in a folder.
    /// It is asked once for each folder, and may hang without harm to others.
    pub fn orphans(
        &self,
        path: &Path,
        numbers: impl FnOnce(&Path) -> Option<Numbers>,
    ) -> Vec<LockRow> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let found = {
            let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(folders.entry(folder.to_owned()).or_default())
        };
        let all = found.get_or_init(|| self.find_orphans(folder, numbers(folder).as_ref()));
        let path = path.as_os_str().as_bytes();
        all.iter().filter(|orphan| orphan.path == path).map(|orphan| orphan.lock).collect()
    }

    /// Who took the locks that may be on files without a name that were in a folder. A file whose
    /// number the folder lists has one: it was moved, not removed.
    fn suspects(&self, named: Option<&Numbers>) -> Vec<i64> {
        let may_be_lost = |file: &FileKey| {
            named.is_none_or(|named| {
                let is_there = (file.major, file.minor) == (named.major, named.minor);
                is_there && !named.inodes.contains(&file.inode)
            })
        };
        let rows = self.rows.iter().flatten().filter(|(file, _)| may_be_lost(file));
        let granted = rows.flat_map(|(_, rows)| rows).filter(|row| !row.waits);
        let mut takers: Vec<i64> =
            granted.filter(|row| row.class.is_lock()).map(|row| row.pid).collect();
        takers.sort_unstable();
        takers.dedup();
        takers
    }

    /// Locks are looked for only on descriptors of files without a name, since to read what a
    /// descriptor has costs several times as much as to read its link. First of the processes that
    /// rows point to; of all where a row has no such process.
    fn find_orphans(&self, folder: &Path, named: Option<&Numbers>) -> Vec<Orphan> {
        let was_here = |path: &[u8]| Path::new(OsStr::from_bytes(path)).parent() == Some(folder);
        let mut found = Vec::new();
        let mut add = |pid: i32, files: &Nameless| {
            for (fd, path) in files.iter().filter(|(_, path)| was_here(path)) {
                let locks = self.procfs.proofs_of(pid, *fd);
                for Proof { row, .. } in locks.iter().filter(|proof| proof.row.class.is_lock()) {
                    let orphan = Orphan { path: path.clone(), lock: LockRow::from(row) };
                    if !found.contains(&orphan) {
                        found.push(orphan);
                    }
                }
            }
        };
        let known = |taker: &i64| {
            let pid = i32::try_from(*taker).ok().filter(|pid| *pid > 0)?;
            Some((pid, self.nameless(pid)?))
        };
        let takers: Option<Vec<_>> = self.suspects(named).iter().map(known).collect();
        match takers.filter(|_| self.shows_all && !self.cut) {
            Some(takers) => takers.iter().for_each(|(pid, files)| add(*pid, files)),
            None => self.all_nameless().iter().for_each(|(pid, files)| add(*pid, files)),
        }
        found
    }

    fn nameless(&self, pid: i32) -> Option<Arc<Nameless>> {
        let mut known = self.nameless.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(pid, |budget| self.procfs.nameless(pid, DELETED, budget).map(Arc::new))
    }

    fn all_nameless(&self) -> &[(i32, Nameless)] {
        self.all_nameless.get_or_init(|| {
            let mut budget = Budget::new(FDS_MAX, WALK_MAX);
            let pids = self.procfs.pids().unwrap_or_default().into_iter();
            let files = |pid| Some((pid, self.procfs.nameless(pid, DELETED, &mut budget)?));
            pids.filter_map(files).filter(|(_, files)| !files.is_empty()).collect()
        })
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
        takers.get(pid, |budget| Arc::new(self.procfs.proofs(pid, budget)))
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine with this list of locks, on which one process can be looked at.
    fn picture(locks: &str) -> (tempfile::TempDir, Picture) {
        let folder = tempfile::tempdir().unwrap();
        for (pid, comm) in [("1", "systemd"), ("2", "kthreadd"), ("50", "job")] {
            fs::create_dir_all(folder.path().join(pid).join("fdinfo")).unwrap();
            fs::create_dir_all(folder.path().join(pid).join("fd")).unwrap();
            fs::write(folder.path().join(pid).join("comm"), format!("{comm}\n")).unwrap();
            fs::write(folder.path().join(pid).join("stat"), "").unwrap();
        }
        fs::write(folder.path().join("locks"), locks).unwrap();
        let picture = Picture::read(&Procfs::new(folder.path())).unwrap();
        (folder, picture)
    }

    const LOST: &str = "1: FLOCK ADVISORY WRITE 50 fe:00:5 0 EOF\n";

    /// Lets the process have a lock on a file that lost its name.
    fn lose(folder: &Path) {
        fs::write(folder.join("50/fdinfo/3"), format!("lock:\t{LOST}")).unwrap();
        std::os::unix::fs::symlink("/run/job.lock (deleted)", folder.join("50/fd/3")).unwrap();
    }

    fn numbers(major: u32, inodes: &[u64]) -> Option<Numbers> {
        Some(Numbers { major, minor: 0, inodes: inodes.iter().copied().collect() })
    }

    #[test]
    fn descriptors_are_looked_through_only_where_a_name_may_be_lost() {
        let path = Path::new("/run/job.lock");
        for (major, named, found) in
            [(0xfe, &[5, 6][..], 0), (0xfe, &[6], 1), (0xfd, &[5], 0), (0xfd, &[], 0)]
        {
            let (folder, picture) = picture(LOST);
            lose(folder.path());
            assert_eq!(picture.orphans(path, |_| numbers(major, named)).len(), found, "{major}");
            // Known of this folder from now on.
            assert_eq!(picture.orphans(path, |_| panic!("asked again")).len(), found);
        }
        // Unknown numbers, hidden or cut lists: everything is looked through.
        let (folder, read) = picture(LOST);
        lose(folder.path());
        assert_eq!(read.orphans(path, |_| None).len(), 1);
        let (folder, mut read) = picture(LOST);
        lose(folder.path());
        read.cut = true;
        assert_eq!(read.orphans(path, |_| numbers(0xfe, &[5])).len(), 1);
        read.cut = false;
        let (folder, mut read) = picture("");
        lose(folder.path());
        read.shows_all = false;
        assert_eq!(read.orphans(path, |_| numbers(0xfe, &[])).len(), 1);
    }

    #[test]
    fn what_one_process_has_does_not_fill_our_memory() {
        let (folder, picture) = picture(LOST);
        // As one that has thousands of ranges, and the file open thousands of times, shows them all
        // at each descriptor.
        let line = "lock:\t1: POSIX ADVISORY WRITE 50 fe:00:5 0 0\n";
        for fd in 0..100 {
            let path = folder.path().join(format!("50/fdinfo/{fd}"));
            fs::write(path, line.repeat(BYTES / line.len())).unwrap();
        }
        const BYTES: usize = 250 << 10;
        assert!(picture.taker(50).len() <= FDS_MAX);
        assert_eq!(picture.taker(1).len(), 0);
        assert!(!picture.proofs(FileKey { major: 0xfe, minor: 0, inode: 5 }).1);
    }
}
