//! The `file` source: locks of the kernel on files of this machine, and files that are locks by
//! existing.
//!
//! A watched file is never opened for reading (but one that names a process), never locked and
//! never probed: a probe makes the job that comes in the same moment fail. The presence of a file
//! says nothing, unless the target says that it does. What this kernel cannot know is unknown.
#![allow(clippy::disallowed_methods, reason = "a scan must know when it began")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;

use self::apart::Apart;
use self::held::Process;
use self::place::{Found, Place, Root};
use self::present::present;
use super::{Context, LockSource, SourceKind};
use crate::lock::{
    HoldKey, Holder, LeasePolicy, Liveness, Lock, LockEntry, LockId, LockMode, Origin, Stub, Tenure,
};
use crate::proc::kernel::{LockRow, Picture};
use crate::proc::locks::{Class, FileKey, Row};
use crate::proc::machine::Machine;
use crate::proc::process::{Clock, Stat};
use crate::proc::traces::{LOCKS_MAX, OfPath, Trace};
use crate::scan::{ErrorClass, Facts, Look, ScanError, UnknownWhy};
use crate::target::{FileFormat, FileSpec};

mod apart;
mod glob;
mod held;
mod origin;
pub mod pid;
mod place;
mod present;

pub use glob::{Matched, Matches};

/// The row of this source.
pub const KIND: SourceKind = SourceKind {
    name: "file",
    help: "kernel locks on files (flock, fcntl), and lock files that hold by existing",
    policy: LeasePolicy {
        // Nobody refreshes these locks; what lies within one of these times counts as one look
        // after the other.
        refresh_every: Duration::from_secs(5 * 60),
        refresh_deadline: Duration::from_secs(22 * 60 + 30),
        stale_limit: Duration::from_secs(30 * 60),
    },
};

/// The reader of one lock file.
pub struct LockFile {
    spec: FileSpec,
    machine: Arc<Machine>,
    apart: Apart,
    /// Locks that were seen on files that had the path.
    traces: OfPath,
}

impl LockFile {
    /// Makes a reader whose scans may take so long; no I/O.
    pub fn new(spec: FileSpec, timeout: Duration, context: &Context) -> Self {
        let machine = Arc::clone(&context.machine);
        let traces = machine.traces.of(&spec.path);
        Self { spec, machine, apart: Apart::new(timeout), traces }
    }
}

#[async_trait]
impl LockSource for LockFile {
    async fn scan(&self) -> Result<Look, ScanError> {
        let doing = format!("look at {}", self.spec.path.display());
        let (spec, machine) = (self.spec.clone(), Arc::clone(&self.machine));
        let traces = Arc::clone(&self.traces);
        let begun = Instant::now();
        self.apart.look(&doing, move || look(&spec, &machine, &traces, begun)).await
    }

    async fn ready(&self) {}
}

fn look(
    spec: &FileSpec,
    machine: &Machine,
    traces: &Mutex<Vec<Trace>>,
    begun: Instant,
) -> Result<Look, ScanError> {
    let root = Root(machine.spec.rootfs.clone());
    match spec.format {
        FileFormat::Kernel => {
            let place = root.find(&spec.path, true)?;
            let picture = machine.locks.picture().map_err(no_locks)?;
            let mut traces = traces.lock().unwrap_or_else(PoisonError::into_inner);
            let look = kernel(&root, &place, &picture, machine, &mut traces)?;
            let Some(found) = &place.found else { return Ok(look) };
            let is_old = !machine.spec.one_look && !picture.is_since(begun);
            if !look.entries.is_empty() || !picture.has_rows() || !is_old {
                return Ok(look);
            }
            // A lock that was there when this scan began may be younger than the reading.
            let fresh = machine.locks.picture_since(begun).map_err(no_locks)?;
            match fresh.rows(found.key) == picture.rows(found.key) {
                true => Ok(look),
                false => kernel(&root, &place, &fresh, machine, &mut traces),
            }
        }
        FileFormat::Pid | FileFormat::Exists => {
            let place = root.find(&spec.path, false)?;
            present(spec, &root, place.found, machine)
        }
    }
}

fn no_locks(error: std::io::Error) -> ScanError {
    ScanError::new(ErrorClass::Permission, "read /proc/locks", &error.to_string(), "")
}

/// A file whose locks the kernel knows.
fn kernel(
    root: &Root,
    place: &Place,
    picture: &Picture,
    machine: &Machine,
    traces: &mut Vec<Trace>,
) -> Result<Look, ScanError> {
    let mut facts = Facts::default();
    let rows = place.found.as_ref().map_or(&[][..], |found| picture.rows(found.key));
    let mut entries = Vec::new();
    let mut held_now = Vec::new();
    if let Some(found) = &place.found {
        facts.details.insert("file_system", found.mount.kind.as_str().into());
        let (mut proofs, complete) = picture.proofs(found.key);
        let mut others = Vec::new();
        if found.mount.is_ambiguous() {
            let procfs = &machine.spec.procfs;
            for proof in std::mem::take(&mut proofs) {
                match procfs.descriptor_file(proof.pid, proof.fd) {
                    Some(file) if file == found.stat => proofs.push(proof),
                    Some(file) => others.push((file, proof.row)),
                    None => {}
                }
            }
        }
        let mut processes = BTreeMap::new();
        for proof in &proofs {
            if let Some(stat) = machine.spec.procfs.stat(proof.pid) {
                let Stat { parent, session, start, .. } = stat;
                processes.insert(proof.pid, Process { pid: proof.pid, parent, session, start });
            }
        }
        // On btrfs a row may be of another file with this number, so only proofs count there.
        let trusted = if found.mount.is_ambiguous() { &[] } else { rows };
        let listed = picture.shows_all && !picture.cut && !found.mount.is_ambiguous();
        let all = held::held(trusted, listed, &proofs, &processes);
        facts.unknown = unknown(found, &all, rows, &others, picture);
        if facts.unknown.is_none() && all.is_empty() && picture.cut {
            return Err(ScanError::new(
                ErrorClass::Incomplete,
                "read /proc/locks",
                "it lists more locks than are read, so one that was not read may be on this file",
                "Find out who takes so many: `lslocks -u -n -o COMMAND,PID | sort | uniq -c`.",
            ));
        }
        if facts.unknown.is_none() && all.is_empty() && !picture.has_rows() {
            return Err(ScanError::new(
                ErrorClass::Unsupported,
                "read /proc/locks",
                "there is no such file, so nobody knows of locks but those who have them",
                "Mount /proc without subset=pid, or name it with --path.procfs.",
            ));
        }
        if facts.unknown.is_none() {
            held_now = follow(rows, &all, found.born_at, traces);
            let origins: Vec<Origin> =
                all.iter().map(|one| origin_of(one, &held_now, picture, machine)).collect();
            describe(&mut facts, &all, &origins, rows, complete);
            if let Some(after) = taken_after(&all, &machine.spec.procfs.clock()) {
                facts.details.insert("taken_after", after.to_string().into());
            }
            let entry = |(one, origin)| entry(one, origin, found, machine);
            entries.extend(all.iter().zip(origins).map(entry));
        }
    }
    facts.details.insert("present", if place.found.is_some() { "yes" } else { "no" }.into());
    if facts.unknown.is_none() {
        facts.waiters = (!picture.cut).then(|| held::waiters(rows));
        let (orphaned, all) = orphans(root, place, picture, traces, held_now);
        if !all {
            facts.details.insert("orphans_search", "cut short".into());
        }
        // What was found is there; that there is nothing takes a whole search.
        facts.orphaned = Some(orphaned).filter(|orphaned| all || *orphaned > 0);
    }
    Ok(Look { entries, facts, ..Look::default() })
}

fn is_granted(row: &Row) -> bool {
    !row.waits && row.class.is_lock()
}

/// Why it cannot be told whether the file is held.
fn unknown(
    found: &Found,
    all: &[held::Held],
    rows: &[Row],
    others: &[((u64, u64), Row)],
    picture: &Picture,
) -> Option<UnknownWhy> {
    if !all.is_empty() {
        None
    } else if found.mount.is_ambiguous() && !held::are_of_others(rows, others) {
        Some(UnknownWhy::Ambiguous)
    } else if found.mount.is_remote() {
        Some(UnknownWhy::RemoteFs)
    } else if picture.has_rows() && !picture.shows_all {
        Some(UnknownWhy::Namespace)
    } else {
        None
    }
}

/// What is to be remembered of the locks on a file, with what was known of them before.
fn follow(
    rows: &[Row],
    all: &[held::Held],
    born_at: Option<Timestamp>,
    before: &[Trace],
) -> Vec<Trace> {
    let trace = |lock: LockRow| {
        let known = before.iter().find(|trace| (trace.lock, trace.born_at) == (lock, born_at));
        let first = known.and_then(|trace| trace.first);
        let held = all.iter().find(|one| (one.class, one.taker) == (lock.class, lock.taker));
        Trace { lock, born_at, first: held.and_then(|one| origin::first(one, first)) }
    };
    rows.iter().filter(|row| is_granted(row)).map(|row| trace(row.into())).collect()
}

fn origin_of(one: &held::Held, held: &[Trace], picture: &Picture, machine: &Machine) -> Origin {
    let lock = |trace: &&Trace| (trace.lock.class, trace.lock.taker) == (one.class, one.taker);
    let first = held.iter().find(lock).and_then(|trace| trace.first);
    let has_ended = |pid, start| picture.shows_all && machine.spec.procfs.has_ended(pid, start);
    origin::origin(one, first, has_ended)
}

/// What is worth knowing beside the locks themselves.
fn describe(
    facts: &mut Facts,
    all: &[held::Held],
    origins: &[Origin],
    rows: &[Row],
    complete: bool,
) {
    if let Some(first) = all.first() {
        let mixed = all.iter().any(|one| one.class != first.class);
        let class = if mixed { "mixed" } else { first.class.as_str() };
        facts.details.insert("class", class.into());
        let holders: usize = all.iter().map(|one| one.holders).sum();
        facts.details.insert("holders", holders.to_string().into());
        if origins.contains(&Origin::Through) {
            facts.details.insert("taker", "ended".into());
        }
        // The usual reason of a lock that never ends.
        if origins.contains(&Origin::Left) {
            facts.details.insert("inherited", "yes".into());
        }
        if !complete {
            facts.details.insert("holders_search", "cut short".into());
        }
    }
    if let Some(lease) = rows.iter().find(|row| row.class == Class::Lease) {
        facts.details.insert("lease", if lease.breaking { "breaking" } else { "active" }.into());
    }
}

/// A lock is not older than the process that took it, where that still has it: the other bound of
/// how long it is held. Of several locks that of the first.
fn taken_after(all: &[held::Held], clock: &Clock) -> Option<Timestamp> {
    let takers = all.iter().map(|one| {
        let holder = one.holder.filter(|holder| i64::from(holder.pid) == one.taker)?;
        Some(clock.at_ticks(holder.start))
    });
    takers.min().flatten()
}

fn entry(one: &held::Held, origin: Origin, found: &Found, machine: &Machine) -> LockEntry {
    // The same lock whoever has it now; without a pid of its taker it is known by its holder.
    let taker = match (one.class, one.holder) {
        (Class::Ofd, Some(holder)) => format!("{}.{}", holder.pid, holder.start),
        _ => one.taker.to_string(),
    };
    let FileKey { major, minor, inode } = found.key;
    let born = found.born_at.map_or(0, |born| born.as_nanosecond());
    let (class, mode) = (one.class.as_str(), one.mode);
    let id = format!("{major:x}:{minor:x}:{inode}.{born:x} {class} {taker} {}", mode.as_str());
    let holder = match one.holder {
        Some(Process { pid, .. }) => {
            let stat = machine.spec.procfs.stat(pid);
            let numbers = machine.spec.procfs.numbers(pid).ok().flatten();
            let uid = numbers.map(|numbers| numbers.uid);
            Holder {
                hostname: machine.name(),
                username: uid.map(|uid| machine.user(uid)).unwrap_or_default(),
                command: stat.map(|stat| stat.command).unwrap_or_default(),
                pid: Some(pid.into()),
                uid,
                gid: None,
            }
        }
        None => Holder::default(),
    };
    let liveness = if one.holder.is_some() { Liveness::Alive } else { Liveness::Unknown };
    lock(id, mode, holder, Tenure::Kernel(origin), liveness)
}

fn lock(
    id: String,
    mode: LockMode,
    holder: Holder,
    tenure: Tenure,
    liveness: Liveness,
) -> LockEntry {
    let id: Arc<str> = id.into();
    let stub = Stub { id: LockId::new(Arc::clone(&id)), size: 0, stored_at: None };
    let key = HoldKey::new(id);
    LockEntry::Readable(Arc::new(Lock { stub, key, mode, holder, tenure, liveness, doubt: None }))
}

/// How many locks are on files that this path was the name of, and whether there are no more: those
/// that say so by a descriptor, and those that were seen before the path got another file.
fn orphans(
    root: &Root,
    place: &Place,
    picture: &Picture,
    traces: &mut Vec<Trace>,
    held_now: Vec<Trace>,
) -> (u64, bool) {
    let key = place.found.as_ref().map(|found| found.key);
    let is_left =
        |trace: &Trace| Some(trace.lock.file) != key && picture.has_on(trace.lock, trace.born_at);
    traces.retain(is_left);
    let mut left: Vec<LockRow> = traces.iter().map(|trace| trace.lock).collect();
    traces.extend(held_now);
    traces.sort_unstable();
    traces.dedup();
    traces.truncate(LOCKS_MAX);
    let numbers = |folder: &Path| root.numbers(folder);
    let (deleted, all) = picture.orphans(Path::new(OsStr::from_bytes(&place.path)), numbers);
    left.extend(deleted.into_iter().filter(|lock| Some(lock.file) != key));
    left.sort_unstable();
    left.dedup();
    (left.len() as u64, all && !picture.cut)
}

#[cfg(test)]
mod tests;
