//! This machine as a place where holders run: its names, and whether one of its processes can be
//! the holder of a lock.
//!
//! The question is never put to the process: no signal is sent, unlike restic, whose SIGHUP ends
//! a bystander that got the pid (restic `internal/repository/lock_file_unix.go`). What may not be
//! seen is unknown, and a process of another user is as alive as any.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use super::kernel::{self, KernelLocks};
use super::process::{Clock, Programs, SLACK, weigh};
use super::procfs::Procfs;
use super::steady::Steady;
use super::traces::Traces;
use crate::lock::{GoneReason, Liveness};
use crate::status::{HolderProcess, Holders, MachineStatus};

/// Processes are listed anew when the last list is older, except to prove that one is gone.
const LIST_AGE_MAX: Duration = Duration::from_secs(5);

/// Most processes that are shown; no machine runs so many backups at once.
const HOLDERS_MAX: usize = 500;
/// Most bytes of `/etc/passwd`.
const PASSWD_BYTES_MAX: u64 = 1 << 20;

/// What is known of the machine's own name and processes from the start.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// Names by which locks of this machine are known; the first is its own.
    pub names: Vec<Arc<str>>,
    /// No other machine has one of these names.
    pub unique: bool,
    /// Whether processes are looked at at all.
    pub evidence: bool,
    /// Whether the processes that can hold repository locks are shown to others.
    pub show_holders: bool,
    /// Programs that hold repository locks.
    pub programs: Programs,
    /// Where `/proc` is.
    pub procfs: Procfs,
    /// Where the watched machine's root is mounted; none = it is our own.
    pub rootfs: Option<PathBuf>,
    /// How old a reading of `/proc/locks` may be.
    pub locks_age_max: Duration,
    /// All scans of this process are one look, so that each reading is young enough for each.
    pub one_look: bool,
}

/// This machine. Its lists are shared by all targets.
#[derive(Debug)]
pub struct Machine {
    /// What was known from the start.
    pub spec: MachineSpec,
    /// Its kernel locks.
    pub locks: KernelLocks,
    /// Locks that were seen at watched paths.
    pub traces: Traces,
    users: OnceLock<HashMap<u32, Arc<str>>>,
    list: Mutex<Option<Arc<List>>>,
    steady: Mutex<Option<Steady>>,
}

/// Every process by every pid that it is known by.
#[derive(Debug)]
struct List {
    /// Begin of its reading.
    taken: Instant,
    by_pid: HashMap<i64, Vec<Named>>,
    /// Each process could be read that did not end meanwhile.
    complete: bool,
}

/// A process under one of its pids.
#[derive(Clone, Copy, Debug)]
struct Named {
    /// Its pid in this `/proc`.
    pid: i32,
    whose: Whose,
}

/// Who knows a process by a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// This machine.
    Host,
    /// A container around that in which it runs: those who watch it there, never itself.
    Between,
    /// It itself.
    Own,
}

impl MachineSpec {
    /// A machine of which nothing can be said: no lock is its own.
    pub fn unknown() -> Self {
        Self {
            names: Vec::new(),
            unique: false,
            evidence: false,
            show_holders: false,
            programs: Programs::default(),
            procfs: Procfs::new("/proc"),
            rootfs: None,
            locks_age_max: kernel::AGE_MAX,
            one_look: false,
        }
    }
}

impl Machine {
    /// Nothing is read yet.
    pub fn new(spec: MachineSpec) -> Self {
        let locks = KernelLocks::new(spec.procfs.clone(), spec.locks_age_max);
        Self {
            spec,
            locks,
            users: OnceLock::new(),
            list: Mutex::default(),
            steady: Mutex::default(),
            traces: Traces::default(),
        }
    }

    /// The machine's own name.
    pub fn name(&self) -> Arc<str> {
        self.spec.names.first().cloned().unwrap_or_default()
    }

    /// The name of a user of this machine, else the number. Names of directories such as LDAP are
    /// not asked for: that could block.
    pub fn user(&self, uid: u32) -> Arc<str> {
        let users = self.users.get_or_init(|| {
            let root = self.spec.rootfs.as_deref().unwrap_or(Path::new("/"));
            users(&bounded(&root.join("etc/passwd")).unwrap_or_default())
        });
        users.get(&uid).cloned().unwrap_or_else(|| uid.to_string().into())
    }

    /// Whether a host name is one of this machine's, exactly as it stands.
    pub fn is_named(&self, hostname: &str) -> bool {
        self.spec.names.iter().any(|name| &**name == hostname)
    }

    /// What this machine's processes say of a lock that names one of them, with this time (the
    /// lock's last refresh). Reads `/proc`, so it belongs on a thread that may block; the lock
    /// must have been seen before `seen`.
    pub fn liveness(&self, pid: i64, time: Timestamp, seen: Instant) -> Liveness {
        self.judged(pid, time, seen, Some(&self.spec.programs))
    }

    /// The same of any program, for a lock file that names a pid.
    pub fn liveness_of_any(&self, pid: i64, time: Timestamp, seen: Instant) -> Liveness {
        self.judged(pid, time, seen, None)
    }

    fn judged(
        &self,
        pid: i64,
        time: Timestamp,
        seen: Instant,
        programs: Option<&Programs>,
    ) -> Liveness {
        let procfs = &self.spec.procfs;
        if !self.spec.evidence || pid <= 0 || !procfs.shows_all() {
            return Liveness::Unknown;
        }
        let found = |list: &List| {
            let named = list.by_pid.get(&pid).map(Vec::as_slice).unwrap_or_default();
            // A program that takes a lock writes down what it takes itself for; a pid file may be
            // written by another.
            let named =
                named.iter().filter(|one| programs.is_none() || one.whose != Whose::Between);
            let mut candidates = Vec::new();
            let mut complete = list.complete;
            for one in named {
                match procfs.candidate(one.pid, one.whose != Whose::Host) {
                    Ok(candidate) => candidates.extend(candidate),
                    Err(_) => complete = false,
                }
            }
            let (clock, lag) = self.clock(time);
            match weigh(&candidates, time, clock, lag, programs) {
                Liveness::Gone(GoneReason::Gone | GoneReason::Reused) if !complete => {
                    Liveness::Unknown
                }
                liveness => liveness,
            }
        };
        let Some(list) = self.list(|list| list.taken.elapsed() <= LIST_AGE_MAX) else {
            return Liveness::Unknown;
        };
        let mut liveness = found(&list);
        if liveness.gone().is_some() && list.taken < seen {
            // A process may have started, and taken the lock, after that list.
            let Some(list) = self.list(|list| list.taken >= seen) else {
                return Liveness::Unknown;
            };
            liveness = found(&list);
        }
        match liveness {
            Liveness::Gone(reason) if !self.spec.unique => Liveness::Suspect(reason),
            Liveness::Gone(_)
            | Liveness::Alive
            | Liveness::AliveNamespaced
            | Liveness::AliveStopped
            | Liveness::AliveNotRefreshing
            | Liveness::Suspect(_)
            | Liveness::Foreign
            | Liveness::OtherProgram
            | Liveness::Ambiguous
            | Liveness::Unknown => liveness,
        }
    }

    /// Whether this time, which this machine's clock wrote down, is of another boot for certain.
    pub fn is_before_boot(&self, time: Timestamp) -> bool {
        let (clock, lag) = self.clock(time);
        let latest = time.saturating_add(SLACK).and_then(|time| time.saturating_add(lag));
        latest.is_ok_and(|latest| latest < clock.boot())
    }

    /// The clocks now, and by how much a time that this machine wrote down may be too early.
    fn clock(&self, time: Timestamp) -> (Clock, SignedDuration) {
        let procfs = &self.spec.procfs;
        let mut steady = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        let clock = procfs.clock();
        let steady = steady.get_or_insert_with(|| Steady::new(clock));
        steady.read(clock);
        // By a boot-time clock of our own nothing can be dated that is older than it.
        let lag = match procfs.has_other_boot_time() {
            true => SignedDuration::MAX,
            false => steady.lag(time, procfs.mounted_at()),
        };
        (clock, lag)
    }

    /// When a process started, by a clock that its locks may have been written by: where the wall
    /// clock was set forward since, as far as that shows, by the clock of before.
    fn started_at(&self, start: u64) -> Timestamp {
        let (clock, _) = self.clock(Timestamp::MAX);
        let started_at = clock.at_ticks(start);
        let steady = *self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        let mounted = self.spec.procfs.mounted_at();
        let stepped = steady.map(|steady| steady.stepped(started_at, mounted)).unwrap_or_default();
        started_at.saturating_sub(stepped).unwrap_or(Timestamp::MIN)
    }

    /// What may be seen now, and the processes that can hold repository locks if they are
    /// to be shown. Reads `/proc`, so it belongs on a thread that may block.
    pub fn status(&self) -> MachineStatus {
        let procfs = &self.spec.procfs;
        // From now on the clock is watched.
        self.clock(Timestamp::MAX);
        let shows_all = procfs.shows_all();
        let capabilities = vec![
            ("fdinfo", procfs.shows_descriptors()),
            ("initial_pid_namespace", shows_all),
            ("kernel_locks", self.locks.picture().is_ok_and(|picture| picture.has_rows())),
        ];
        let holders = self.spec.show_holders.then(|| {
            // Where one may be missing from the list, or is not dated by the machine's clock,
            // nobody can be said to be gone.
            let (processes, complete) = self.holders().unwrap_or_default();
            let complete = complete && !procfs.has_other_boot_time();
            Holders {
                hostnames: self.spec.names.clone(),
                watched: shows_all && self.spec.unique && complete,
                processes,
            }
        });
        MachineStatus { capabilities, holders }
    }

    /// The processes that can hold repository locks, and whether these are all.
    fn holders(&self) -> Option<(Vec<HolderProcess>, bool)> {
        let procfs = &self.spec.procfs;
        let list = self.list(|_| false)?;
        let mut complete = list.complete;
        let mut holders = Vec::new();
        for (pid, named) in &list.by_pid {
            for one in named.iter().filter(|one| one.whose != Whose::Between) {
                let found = match procfs.candidate(one.pid, one.whose != Whose::Host) {
                    Ok(Some(found)) => found,
                    Ok(None) => continue,
                    Err(_) => {
                        complete = false;
                        continue;
                    }
                };
                if !self.spec.programs.hold_locks(&found.program) || found.stat.state == 'Z' {
                    continue;
                }
                let started_at = self.started_at(found.stat.start);
                holders.push(HolderProcess { pid: *pid, command: found.program, started_at });
            }
        }
        holders.sort_by_key(|holder| (holder.pid, holder.started_at));
        complete &= holders.len() < HOLDERS_MAX;
        holders.truncate(HOLDERS_MAX);
        Some((holders, complete))
    }

    /// The last list if it is good enough, else a new one. Others wait for it meanwhile.
    #[allow(clippy::disallowed_methods, reason = "the age of a list is measured here")]
    fn list(&self, good: impl Fn(&List) -> bool) -> Option<Arc<List>> {
        let mut last = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = last.as_ref().filter(|list| good(list)) {
            return Some(Arc::clone(list));
        }
        let procfs = &self.spec.procfs;
        let taken = Instant::now();
        let mut by_pid: HashMap<i64, Vec<Named>> = HashMap::new();
        let mut complete = true;
        for pid in procfs.pids().ok()? {
            let numbers = match procfs.numbers(pid) {
                Ok(Some(numbers)) => numbers,
                Ok(None) => continue,
                Err(_) => {
                    complete = false;
                    continue;
                }
            };
            let (outer, between, own) = match numbers.pids.as_slice() {
                [] => (i64::from(pid), &[][..], None),
                [only] => (*only, &[][..], None),
                [outer, between @ .., own] => (*outer, between, Some(*own)),
            };
            let mut name = |known: i64, whose: Whose| {
                let names = by_pid.entry(known).or_default();
                // In a namespace of its own a process can have the same number inside.
                if names.iter().all(|name| name.pid != pid) {
                    names.push(Named { pid, whose });
                }
            };
            name(outer, Whose::Host);
            own.into_iter().for_each(|known| name(known, Whose::Own));
            between.iter().for_each(|known| name(*known, Whose::Between));
        }
        let list = Arc::new(List { taken, by_pid, complete });
        *last = Some(Arc::clone(&list));
        Some(list)
    }
}

#[allow(clippy::disallowed_methods, reason = "names of users are in a file")]
fn bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(PASSWD_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// passwd(5): name, password, number, and what is of no interest here. Of equal numbers the first.
fn users(text: &[u8]) -> HashMap<u32, Arc<str>> {
    let mut users = HashMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let mut fields = line.split(':');
        if let (Some(name), Some(Ok(uid))) = (fields.next(), fields.nth(1).map(str::parse)) {
            users.entry(uid).or_insert_with(|| name.into());
        }
    }
    users
}

#[cfg(test)]
mod tests;
