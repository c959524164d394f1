//! Files that are locks by existing, and the process that some of them name.
//!
//! The age of a file proves nothing: who is dead is judged by processes and by the boot alone.
#![allow(clippy::disallowed_methods, reason = "processes are looked for after the file is seen")]

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::place::{self, Found, Root};
use super::{lock, pid};
use crate::lock::{GoneReason, Holder, Liveness, LockMode, Tenure};
use crate::proc::locks::FileKey;
use crate::proc::machine::Machine;
use crate::scan::{Facts, Look, ScanError, UnknownWhy};
use crate::target::{FileFormat, FileSpec};

/// A file whose presence is the lock.
pub(super) fn present(
    spec: &FileSpec,
    root: &Root,
    found: Option<Found>,
    machine: &Machine,
) -> Result<Look, ScanError> {
    let mut facts = Facts::default();
    let Some(found) = found else {
        facts.details.insert("present", "no".into());
        return Ok(Look { facts, ..Look::default() });
    };
    facts.details.insert("present", "yes".into());
    let since = found.modified_at;
    let (pid, liveness) = match spec.format {
        FileFormat::Pid => {
            let bytes = if found.is_regular { root.read(&spec.path)? } else { None };
            let Some((bytes, written_at)) = bytes else {
                facts.unknown = Some(UnknownWhy::NotAFile);
                return Ok(Look { facts, ..Look::default() });
            };
            match pid::parse(&bytes) {
                pids if pids.is_empty() || bytes.len() as u64 > place::PID_BYTES_MAX => {
                    facts.details.insert("pid", "unknown".into());
                    (None, Liveness::Unknown)
                }
                // Its process may be another machine's.
                pids if found.mount.is_remote() => (pids.first().copied(), Liveness::Unknown),
                pids => judged(&pids, written_at, Instant::now(), machine),
            }
        }
        FileFormat::Exists | FileFormat::Kernel => (None, opened(&found, machine)),
    };
    let FileKey { major, minor, inode } = found.key;
    let born = found.born_at.map_or(0, |born| born.as_nanosecond());
    let id = format!("{major:x}:{minor:x}:{inode}.{born:x} {}", spec.format.as_str());
    let stat = pid.and_then(|pid| machine.spec.procfs.stat(pid.try_into().ok()?));
    let command = match liveness.is_alive() {
        true => stat.map(|stat| stat.command).unwrap_or_default(),
        false => Arc::default(),
    };
    let hostname = pid.map(|_| machine.name()).unwrap_or_default();
    let holder = Holder { hostname, command, pid, ..Holder::default() };
    let entries = vec![lock(id, LockMode::Exclusive, holder, Tenure::Present { since }, liveness)];
    Ok(Look { entries, facts, ..Look::default() })
}

/// Of the processes that a file names one is enough.
fn judged(
    pids: &[i64],
    since: Timestamp,
    seen: Instant,
    machine: &Machine,
) -> (Option<i64>, Liveness) {
    let all: Vec<_> =
        pids.iter().map(|pid| (Some(*pid), machine.liveness_of_any(*pid, since, seen))).collect();
    let unproven = all.iter().find(|(_, liveness)| liveness.is_alive());
    let unproven = unproven.or_else(|| all.iter().find(|(_, one)| one.gone().is_none()));
    *unproven.or(all.first()).unwrap_or(&(None, Liveness::Unknown))
}

/// A file that somebody has open is alive. A closed one proves nothing, unless its writer cannot
/// have survived the boot.
fn opened(found: &Found, machine: &Machine) -> Liveness {
    let Ok(picture) = machine.locks.picture() else { return Liveness::Unknown };
    match picture.is_open(found.key.inode, found.stat) {
        Some(true) => Liveness::Alive,
        Some(false) if found.mount.is_remote() => Liveness::Unknown,
        Some(false) if machine.spec.evidence && machine.is_before_boot(found.untouched_since) => {
            match machine.spec.unique {
                true => Liveness::Gone(GoneReason::Rebooted),
                false => Liveness::Suspect(GoneReason::Rebooted),
            }
        }
        Some(false) | None => Liveness::Unknown,
    }
}
