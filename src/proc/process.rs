//! What `/proc/<pid>` tells of one process → who it is, since when, and what program it runs.
//!
//! Pure parsers, then what they amount to for one lock's holder. A process is identified by its
//! pid and its start together; its number alone may have been somebody else's before.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::lock::{GoneReason, Liveness};

/// How much the clocks of a lock's time and of a process's start may differ.
pub const SLACK: SignedDuration = SignedDuration::from_secs(5);
/// A live holder refreshes long before this; restic itself ends without a refresh for 22.5 min
/// (restic `internal/repository/lock.go`).
const REFRESH_LIMIT: SignedDuration = SignedDuration::from_mins(30);

/// The flag of threads of the kernel (Linux `include/linux/sched.h`), which no program can have.
const PF_KTHREAD: u32 = 0x0020_0000;

/// One line of `/proc/<pid>/stat`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Program name as the kernel keeps it: 15 bytes at most, cut anywhere.
    pub command: Arc<str>,
    /// `R`, `S`, `D`, `T`, `Z` and others.
    pub state: char,
    /// The parent's pid.
    pub parent: i64,
    /// Session: the pid of its first process.
    pub session: i64,
    /// A thread of the kernel, and no process of a program.
    pub of_kernel: bool,
    /// Start in clock ticks since the boot.
    pub start: u64,
}

/// Reads `/proc/<pid>/stat`. The name in parentheses may hold anything, parentheses and blanks
/// too, so what follows is found from the end.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
    let command = String::from_utf8_lossy(&text[open + 1..close]);
    let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let flags: u32 = fields.nth(2)?.parse().ok()?;
    let start = fields.nth(12)?.parse().ok()?;
    let of_kernel = flags & PF_KTHREAD != 0;
    Some(Stat { command: command.as_ref().into(), state, parent, session, of_kernel, start })
}

/// What is needed of `/proc/<pid>/status`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    /// Process of which this is a thread.
    pub group: i64,
    /// Owner.
    pub uid: u32,
    /// Its pid in each PID namespace, from that of `/proc` inwards. Empty before Linux 4.1.
    pub pids: Vec<i64>,
}

/// Reads `/proc/<pid>/status`.
pub fn parse_status(text: &[u8]) -> Option<Numbers> {
    let mut numbers = Numbers::default();
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let Some((name, value)) = line.split_once(':') else { continue };
        let mut words = value.split_ascii_whitespace();
        match name {
            "Tgid" => numbers.group = words.next()?.parse().ok()?,
            "Uid" => numbers.uid = words.next()?.parse().ok()?,
            // Namespaces are nested 32 deep at most.
            "NSpid" => {
                numbers.pids.extend(words.take(33).filter_map(|word| word.parse::<i64>().ok()))
            }
            _ => {}
        }
    }
    (numbers.group > 0).then_some(numbers)
}

/// Reads `/proc/<pid>/timens_offsets` (time_namespaces(7)): by how much the boot-time clock of its
/// time namespace is ahead, in seconds and nanoseconds.
pub fn parse_boot_offset(text: &[u8]) -> Option<(i64, i64)> {
    let text = std::str::from_utf8(text).ok()?;
    // Numbers stand here before Linux 5.7: 7 is the boot-time clock.
    let is_boot = |name| matches!(name, Some("boottime" | "7"));
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut words = lines.find_map(|mut words| is_boot(words.next()).then_some(words))?;
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The clock of this machine at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Wall clock.
    pub now: Timestamp,
    /// Time since the boot, suspends included.
    pub since_boot: Duration,
    /// Clock ticks in a second.
    pub ticks: u64,
}

impl Clock {
    /// When the machine booted, by today's wall clock.
    pub fn boot(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.since_boot).unwrap_or(SignedDuration::MAX);
        self.now.saturating_sub(since).unwrap_or(Timestamp::MIN)
    }

    /// When something happened that is dated in ticks since the boot.
    pub fn at_ticks(&self, ticks: u64) -> Timestamp {
        let hz = self.ticks.max(1);
        let nanos = (ticks % hz).saturating_mul(1_000_000_000) / hz;
        let after = Duration::new(ticks / hz, u32::try_from(nanos).unwrap_or(0));
        let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
        self.boot().saturating_add(after).unwrap_or(Timestamp::MAX)
    }
}

/// Programs that hold repository locks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Programs {
    /// Names beside `restic` itself.
    pub others: Vec<String>,
}

impl Programs {
    /// Whether a program of this name takes repository locks itself. `restic_0.18.1_linux` does;
    /// wrappers and servers that have `restic` in their names do not.
    pub fn hold_locks(&self, program: &str) -> bool {
        const NOT: &[&str] = &["resticprofile", "restic-exporter", "rest-server", "autorestic"];
        if self.others.iter().any(|other| other == program) {
            return true;
        }
        let Some(rest) = program.strip_prefix("restic") else { return false };
        !NOT.contains(&program) && rest.chars().next().is_none_or(|c| ".-_".contains(c))
    }
}

/// One process that may be a lock's holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its innermost pid is the lock's, but not its pid on the host.
    pub namespaced: bool,
    /// What its `stat` says.
    pub stat: Stat,
    /// Base name of what it runs.
    pub program: Arc<str>,
}

/// What the processes of this host say of a lock with this time.
///
/// `candidates` are all processes that have the lock's pid, in any PID namespace. The caller has
/// made sure that all processes can be seen, that the lock is this host's, and that they were
/// looked at after the lock was seen. `lag` is by how much the lock's time may be too early, see
/// [`super::steady`]. `programs` says which can hold such a lock; none = any.
pub fn weigh(
    candidates: &[Candidate],
    time: Timestamp,
    clock: Clock,
    lag: SignedDuration,
    programs: Option<&Programs>,
) -> Liveness {
    let by_now = time.saturating_add(SLACK).unwrap_or(Timestamp::MAX);
    let last_possible = by_now.saturating_add(lag).unwrap_or(Timestamp::MAX);
    if last_possible < clock.boot() {
        return Liveness::Gone(GoneReason::Rebooted);
    }
    let alive = candidates.iter().filter(|one| !matches!(one.stat.state, 'Z' | 'X' | 'x'));
    if alive.clone().next().is_none() {
        return Liveness::Gone(GoneReason::Gone);
    }
    let started_by =
        |end: Timestamp| alive.clone().filter(move |one| clock.at_ticks(one.stat.start) <= end);
    let is_able = |one: &&Candidate| programs.is_none_or(|known| known.hold_locks(&one.program));
    if started_by(last_possible).next().is_none() {
        return Liveness::Gone(GoneReason::Reused);
    }
    if started_by(by_now).next().is_none() {
        // It is the holder if somebody set the clock forward since, and else it is not.
        return match started_by(last_possible).any(|one| is_able(&one)) {
            true => Liveness::Ambiguous,
            false => Liveness::OtherProgram,
        };
    }
    let mut able = started_by(by_now).filter(is_able);
    match (able.next(), able.next()) {
        (None, _) => Liveness::OtherProgram,
        (Some(_), Some(_)) => Liveness::Ambiguous,
        (Some(one), None) if matches!(one.stat.state, 'T' | 't') => Liveness::AliveStopped,
        (Some(_), None) if programs.is_some() && clock.now.duration_since(time) > REFRESH_LIMIT => {
            Liveness::AliveNotRefreshing
        }
        (Some(one), None) if one.namespaced => Liveness::AliveNamespaced,
        (Some(_), None) => Liveness::Alive,
    }
}

#[cfg(test)]
mod tests;
