//! Reads a mounted `/proc`: thin, bounded, and without an opinion on what it finds.
//!
//! What counts is the PID namespace of the mount, not that of the reader: a host's `/proc` that
//! is mounted into a container shows the host.
#![allow(clippy::disallowed_methods, reason = "this is where /proc and the clocks are read")]

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::locks::{self, FdInfo, Row, Rows};
use super::process::{self, Candidate, Clock, Numbers, Stat};

/// Most bytes of `/proc/locks`: over half a million rows.
const LOCKS_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of any other file of `/proc`.
const BYTES_MAX: u64 = 256 << 10;
/// Processes whose descriptors are tried, to learn whether ours may read such.
const SAMPLE: usize = 64;
/// Most processes that are looked at.
const PIDS_MAX: usize = 1 << 20;

/// A mounted `/proc`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Procfs {
    root: PathBuf,
}

/// A lock that one open descriptor is proven to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proof {
    /// The process.
    pub pid: i32,
    /// Its descriptor.
    pub fd: u32,
    /// The lock; its pid is that of whoever took it.
    pub row: Row,
}

/// How far a walk over descriptors may go.
#[derive(Debug)]
pub struct Budget {
    left: usize,
    time: Duration,
    /// Processor time of this thread when it began to spend.
    begun: Duration,
}

impl Budget {
    /// For so many descriptors and so much processor time of this thread.
    pub fn new(fds: usize, time: Duration) -> Self {
        Self { left: fds, time, begun: processor_time() }
    }

    /// Takes one; false when it is used up.
    fn take(&mut self) -> bool {
        // The clock is not free; a look at it for every 64 descriptors is exact enough.
        let is_late = || processor_time().saturating_sub(self.begun) >= self.time;
        if self.left == 0 || (self.left.is_multiple_of(64) && is_late()) {
            self.left = 0;
            return false;
        }
        self.left -= 1;
        true
    }

    /// Lets this thread, which may be another one than before, spend of it.
    pub fn spend<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        self.begun = processor_time();
        let found = look(self);
        self.time = self.time.saturating_sub(processor_time().saturating_sub(self.begun));
        if self.time.is_zero() {
            self.left = 0;
        }
        found
    }

    /// Whether it was not enough.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }
}

impl Procfs {
    /// A `/proc` that is mounted there.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn read(&self, path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
        // Room for what most of these files hold: one reading and one for its end are enough.
        let mut bytes = Vec::with_capacity(1024);
        File::open(self.root.join(path))?.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// All kernel locks. Every lock call of the machine waits while this is read, so it is read
    /// rarely.
    ///
    /// # Errors
    /// When there is no such file: `/proc` is mounted with `subset=pid`, or is none.
    pub fn locks(&self) -> io::Result<Rows> {
        let text = self.read("locks", LOCKS_BYTES_MAX)?;
        let mut rows = locks::parse(&text);
        rows.cut |= text.len() as u64 >= LOCKS_BYTES_MAX;
        Ok(rows)
    }

    /// Whether it shows all processes and all locks: it belongs to the initial PID namespace,
    /// where alone threads of the kernel live (the first of them is 2), and hides no process of
    /// others from us.
    pub fn shows_all(&self) -> bool {
        self.stat(2).is_some_and(|stat| stat.of_kernel) && self.read("1/stat", BYTES_MAX).is_ok()
    }

    /// Whether our boot-time clock is another than the machine's: we are in a time namespace that
    /// was given one (time_namespaces(7)). Starts of processes are then dated by ours too, as far
    /// as they can be.
    pub fn has_other_boot_time(&self) -> bool {
        let text = self.read("self/timens_offsets", BYTES_MAX).unwrap_or_default();
        process::parse_boot_offset(&text).is_some_and(|offset| offset != (0, 0))
    }

    /// Whether the descriptors of the first few other processes can be read. The init of a
    /// container's host may be closed to all, and threads of the kernel have none.
    pub fn shows_descriptors(&self) -> bool {
        let others = self.pids().unwrap_or_default().into_iter().filter(|pid| !self.is_kept(*pid));
        others.take(SAMPLE).all(|pid| self.shows_descriptors_of(pid))
    }

    /// Whether the descriptors of a process can be read; also when it has ended meanwhile.
    pub fn shows_descriptors_of(&self, pid: i32) -> bool {
        let folder = std::fs::read_dir(self.root.join(format!("{pid}/fdinfo")));
        !folder.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// The init, or a thread of the kernel.
    pub fn is_kept(&self, pid: i32) -> bool {
        pid <= 2 || self.stat(pid).is_some_and(|stat| stat.of_kernel)
    }

    /// This boot of the machine.
    pub fn boot_id(&self) -> Option<String> {
        let id = self.read("sys/kernel/random/boot_id", 64).ok()?;
        let id = String::from_utf8(id).ok()?;
        Some(id.trim().to_owned()).filter(|id| !id.is_empty())
    }

    /// Every process; threads are not listed.
    ///
    /// # Errors
    /// When the folder cannot be read to its end.
    pub fn pids(&self) -> io::Result<Vec<i32>> {
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(&self.root)? {
            let pid = entry?.file_name().to_str().and_then(|name| name.parse().ok());
            pids.extend(pid.filter(|pid: &i32| *pid > 0));
        }
        pids.truncate(PIDS_MAX);
        Ok(pids)
    }

    /// What `stat` tells of a process; `None` when it is gone, hidden, or cannot be read.
    pub fn stat(&self, pid: i32) -> Option<Stat> {
        self.find(pid, "stat", process::parse_stat).ok().flatten()
    }

    /// Whether a process is certainly not there; without a start, whether none of this pid is.
    pub fn has_ended(&self, pid: i32, start: Option<u64>) -> bool {
        match self.find(pid, "stat", process::parse_stat) {
            Ok(stat) => stat.is_none_or(|stat| start.is_some_and(|start| start != stat.start)),
            Err(_) => false,
        }
    }

    /// What `status` tells of a process; `None` when there is no such process.
    ///
    /// # Errors
    /// When it cannot be read, as where this process may open no more files: it may be there.
    pub fn numbers(&self, pid: i32) -> io::Result<Option<Numbers>> {
        self.find(pid, "status", process::parse_status)
    }

    /// One file of a process; `None` only when there is certainly no such process.
    fn find<T>(
        &self,
        pid: i32,
        name: &str,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        match self.read(format!("{pid}/{name}"), BYTES_MAX) {
            Ok(text) => parse(&text).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Base name of the program that a process runs, by the best source that may be read.
    pub fn program(&self, pid: i32, stat: &Stat) -> Arc<str> {
        let exe = std::fs::read_link(self.root.join(format!("{pid}/exe"))).ok();
        let name = exe.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy());
        match name {
            Some(name) => name.strip_suffix(" (deleted)").unwrap_or(&name).into(),
            None => Arc::clone(&stat.command),
        }
    }

    /// A process as a lock's holder; `None` when there is no such process.
    ///
    /// # Errors
    /// When it cannot be read: it may be there.
    pub fn candidate(&self, pid: i32, namespaced: bool) -> io::Result<Option<Candidate>> {
        let Some(stat) = self.find(pid, "stat", process::parse_stat)? else { return Ok(None) };
        let program = self.program(pid, &stat);
        Ok(Some(Candidate { namespaced, stat, program }))
    }

    /// The locks that a process is proven to have; nothing where its descriptors are closed to us
    /// or it ended meanwhile.
    pub fn proofs(&self, pid: i32, budget: &mut Budget) -> Vec<Proof> {
        let mut found = Vec::new();
        let folder = format!("{pid}/fdinfo");
        // A process costs as much as a descriptor, if it has none.
        if !budget.take() {
            return found;
        }
        let Ok(entries) = std::fs::read_dir(self.root.join(&folder)) else { return found };
        for entry in entries.flatten() {
            if !budget.take() {
                break;
            }
            let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            for proof in self.proofs_of(pid, fd) {
                // One descriptor may have thousands, and show those of the whole process.
                if !budget.take() {
                    return found;
                }
                found.push(proof);
            }
        }
        found
    }

    /// The locks that one descriptor is proven to have.
    pub fn proofs_of(&self, pid: i32, fd: u32) -> Vec<Proof> {
        let text = self.read(format!("{pid}/fdinfo/{fd}"), BYTES_MAX).unwrap_or_default();
        let FdInfo { locks, .. } = locks::parse_fdinfo(&text);
        locks.into_iter().map(|row| Proof { pid, fd, row }).collect()
    }

    /// The path of what a descriptor was opened by, as the kernel tells it.
    pub fn descriptor_path(&self, pid: i32, fd: u32) -> Option<Vec<u8>> {
        let link = std::fs::read_link(self.root.join(format!("{pid}/fd/{fd}"))).ok()?;
        Some(link.into_os_string().into_vec())
    }

    /// Descriptors of a process whose files have lost their names, which is shown by this `mark`
    /// behind the path; with the path.
    pub fn nameless(&self, pid: i32, mark: &[u8], budget: &mut Budget) -> Vec<(u32, Vec<u8>)> {
        let mut found = Vec::new();
        let folder = std::fs::read_dir(self.root.join(format!("{pid}/fd")));
        for entry in folder.into_iter().flatten().flatten() {
            if !budget.take() {
                break;
            }
            let Ok(link) = std::fs::read_link(entry.path()) else { continue };
            let Some(path) = link.as_os_str().as_bytes().strip_suffix(mark) else { continue };
            if let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                found.push((fd, path.to_vec()));
            }
        }
        found
    }

    /// What is known of an open file without asking its file system, which may not answer.
    fn descriptor_stat(&self, pid: i32, fd: u32, wanted: StatxFlags) -> Option<Statx> {
        let path = self.root.join(format!("{pid}/fd/{fd}"));
        let stat = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
        StatxFlags::from_bits_retain(stat.stx_mask).contains(wanted).then_some(stat)
    }

    /// Device and inode of an open file, as `stat` shows them.
    pub fn descriptor_file(&self, pid: i32, fd: u32) -> Option<(u64, u64)> {
        let stat = self.descriptor_stat(pid, fd, StatxFlags::INO)?;
        Some((rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino))
    }

    /// When an open file was made, where its file system knows.
    pub fn descriptor_born_at(&self, pid: i32, fd: u32) -> Option<Timestamp> {
        let stat = self.descriptor_stat(pid, fd, StatxFlags::BTIME)?;
        let nanos = i32::try_from(stat.stx_btime.tv_nsec).ok()?;
        Timestamp::new(stat.stx_btime.tv_sec, nanos).ok()
    }

    /// Descriptor and inode number of every file that a process has open; the number is absent
    /// before Linux 5.14. `None` where not all of that may be read.
    pub fn open_files(&self, pid: i32, budget: &mut Budget) -> Option<Vec<(u32, Option<u64>)>> {
        let folder = format!("{pid}/fdinfo");
        let fds = match std::fs::read_dir(self.root.join(&folder)) {
            Ok(fds) => fds,
            Err(error) if is_gone(&error) => return Some(Vec::new()),
            Err(_) => return None,
        };
        let mut files = Vec::new();
        for entry in fds.flatten() {
            if !budget.take() {
                return None;
            }
            let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            match self.read(format!("{folder}/{fd}"), BYTES_MAX) {
                Ok(text) => files.push((fd, locks::parse_fdinfo(&text).inode)),
                // It was closed meanwhile.
                Err(error) if is_gone(&error) => {}
                Err(_) => return None,
            }
        }
        Some(files)
    }

    /// When it was mounted, by the wall clock of then.
    pub fn mounted_at(&self) -> Option<Timestamp> {
        let modified = std::fs::metadata(&self.root).and_then(|root| root.modified()).ok()?;
        Timestamp::try_from(modified).ok()
    }

    /// The clocks now.
    pub fn clock(&self) -> Clock {
        let boot = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(boot.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(boot.tv_nsec).unwrap_or(0);
        Clock {
            now: Timestamp::now(),
            since_boot: Duration::new(seconds, nanos),
            ticks: rustix::param::clock_ticks_per_second(),
        }
    }
}

fn processor_time() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(spent.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), nanos)
}

/// Whether this says that a process, or a descriptor of it, is not there; anything else, such as
/// too many open files, says nothing of it.
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}
