//! What is known of each lock in words, how bad it is, and the safe next step.
//!
//! Pure. A sentence states only what was seen and by which clock. Verdicts are as of the last
//! successful look; ages in words are as of the moment in which they are read, so that all on one
//! page agree. The next step is never more than advice: one line to copy. It is
//! `unlock` only where the evidence says that the lock is dead, because `restic unlock` deletes
//! the lock of a living process whose clock is behind, and sends a real SIGHUP to the process
//! that a lock of its own host names (restic `internal/repository/lock_file.go`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::lock::{Holder, LockEntry, LockId, LockMode};
use crate::status::{Hold, Phase, SeenEntry, TargetStatus};
use crate::target::{PerMode, Proof};

mod file;
mod happened;
mod search;
mod steps;
mod view;
mod words;

pub use happened::{happened, who};
pub use steps::Step;
pub use view::Evidence;
pub use words::{in_words, lasting, quoted};

use words::{ago, plain};

/// How bad a finding is. The order is that in which the worst one decides, 2, 1, 3, 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// Nothing to do.
    Ok,
    /// It cannot be told.
    Unknown,
    /// Somebody should look at it in the daytime.
    Warning,
    /// Backups are refused or two holders are at work at once.
    Critical,
}

impl Severity {
    /// The exit code of the Nagios plugin guidelines.
    pub fn exit_code(self) -> u8 {
        match self {
            Severity::Ok => 0,
            Severity::Warning => 1,
            Severity::Critical => 2,
            Severity::Unknown => 3,
        }
    }

    /// The severity as one word, for tables and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
            Severity::Unknown => "unknown",
        }
    }
}

/// What a finding is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Topic {
    /// A hold that is refreshed as it should be, or not late enough to be stuck.
    Alive,
    /// A hold, or a sealed file, that was not refreshed for its stuck limit.
    Stuck,
    /// A hold whose process is proven gone, and that is not stuck yet.
    OwnerGone,
    /// A hold longer than its limit.
    HeldTooLong,
    /// New locks of one mode were refused for longer than the limit.
    BlockedTooLong,
    /// A file that nobody can decode.
    Unreadable,
    /// A file that is closed to us and not stuck.
    Sealed,
    /// A file of 0 bytes.
    Empty,
    /// Two holders at once that exclude each other.
    Conflict,
    /// Lock times and storage times differ, or this machine's clock was stepped.
    ClockSkew,
    /// A daemon's lock that is not held.
    NotHeld,
    /// A lock file that was never seen held, and may be one of another format.
    NeverHeld,
    /// Locks on a file that is no longer at its path.
    ReplacedFile,
    /// The target could not be looked at, or looking did not tell.
    NotSeen,
    /// It is no target but a search for targets.
    Search,
}

impl Topic {
    /// The topic as one word, for JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Topic::Alive => "alive",
            Topic::Stuck => "stuck",
            Topic::OwnerGone => "owner_gone",
            Topic::HeldTooLong => "held_too_long",
            Topic::BlockedTooLong => "blocked_too_long",
            Topic::Unreadable => "unreadable",
            Topic::Sealed => "sealed",
            Topic::Empty => "empty",
            Topic::Conflict => "conflict",
            Topic::ClockSkew => "clock_skew",
            Topic::NotHeld => "not_held",
            Topic::NeverHeld => "never_held",
            Topic::ReplacedFile => "replaced_file",
            Topic::NotSeen => "not_seen",
            Topic::Search => "search",
        }
    }
}

/// One thing that a look shows about a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub topic: Topic,
    /// The lock file, or the newest file of the hold; absent when it is about the target.
    pub id: Option<LockId>,
    /// Whose lock it is, of what mode, held for how long; absent when it is about no one holder.
    pub lock_of: Option<String>,
    /// One sentence without an end mark, on one line, safe to print.
    pub evidence: String,
    /// What to know before the next step, or what to do where no command does it: one sentence
    /// without an end mark, on one line, safe to print.
    pub note: Option<String>,
    /// One line to copy, a command that is harmless in any shell; absent when there is none.
    pub next_step: Option<String>,
}

impl Finding {
    /// A finding about the target.
    fn new(severity: Severity, topic: Topic, evidence: String) -> Self {
        let (note, next_step) = (None, None);
        Self { severity, topic, id: None, lock_of: None, evidence, note, next_step }
    }

    /// The same about one file.
    fn about(self, entry: &SeenEntry) -> Self {
        Self { id: Some(entry.entry.stub().id.clone()), ..self }
    }

    /// The same with what to do.
    fn then(self, Step { note, line }: Step) -> Self {
        Self { note, next_step: line, ..self }
    }

    /// Whether it is about how long ago a lock was refreshed.
    pub fn shows_age(&self) -> bool {
        match self.topic {
            Topic::Alive | Topic::Stuck | Topic::OwnerGone | Topic::Sealed => true,
            Topic::HeldTooLong
            | Topic::BlockedTooLong
            | Topic::Unreadable
            | Topic::Empty
            | Topic::Conflict
            | Topic::ClockSkew
            | Topic::NotHeld
            | Topic::NeverHeld
            | Topic::ReplacedFile
            | Topic::NotSeen
            | Topic::Search => false,
        }
    }

    /// Whose lock and what is known of it, as one line.
    pub fn line(&self) -> String {
        match &self.lock_of {
            Some(lock_of) => format!("{lock_of}: {}", self.evidence),
            None => self.evidence.clone(),
        }
    }
}

/// Clocks that differ by no more than this are as good as equal.
pub const SKEW_MAX: Duration = Duration::from_secs(300);

/// restic writes its lock, waits 200 ms and looks again, so two that exclude each other are both
/// there for a moment; only what is older than this is a conflict.
const CREATION_RACE: Duration = Duration::from_secs(10);

/// Everything that is to be said about a target, the worst first. `hold` is how long values of a
/// failing target stay valid.
pub fn findings(target: &TargetStatus, now: Timestamp, hold: Duration) -> Vec<Finding> {
    if target.spec.search().is_some() {
        return search::of_search(target, now, hold);
    }
    let mut all = Vec::new();
    all.extend(not_seen(target, now, hold, "scanned"));
    if let Some(seen) = target.seen_at(now, hold) {
        let view = Evidence::new(target, seen, now);
        all.extend(seen.holds.iter().flat_map(|hold| view.of_hold(hold)));
        all.extend(seen.entries.iter().filter_map(|seen| view.of_file(seen)));
        all.extend(view.of_target());
    }
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    all
}

/// The severity that decides: the worst.
pub fn worst<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> Severity {
    findings.into_iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}

/// Why there is nothing new to tell; `done` is what was to be done with the target.
fn not_seen(target: &TargetStatus, now: Timestamp, hold: Duration, done: &str) -> Option<Finding> {
    let mut next = None;
    let evidence = match &target.phase {
        Phase::Pending => format!("not {done} yet"),
        Phase::Failing { error, since, .. } => {
            next = Some(error.advice.trim_end_matches('.').to_string());
            let (class, doing, cause) = (error.class.as_str(), &error.doing, &error.cause);
            match now.duration_since(*since) {
                // A single look has no history to tell.
                failing if failing < SignedDuration::from_secs(1) => {
                    format!("cannot be {done} ({class}): {doing}: {cause}")
                }
                failing => {
                    let failing = in_words(failing);
                    format!("cannot be {done} for {failing} ({class}): {doing}: {cause}")
                }
            }
        }
        Phase::Seen(seen) if target.seen_at(now, hold).is_none() => {
            format!("last {done} {}", ago(now.duration_since(seen.at)))
        }
        Phase::Seen(_) => return None,
    };
    let finding = Finding::new(Severity::Unknown, Topic::NotSeen, evidence);
    Some(finding.then(Step { note: next, line: None }))
}

impl Evidence<'_> {
    /// One holder: stuck, gone, held over its limit, or none of these.
    fn of_hold(&self, hold: &Hold) -> Vec<Finding> {
        let Some(newest) = self.newest(hold) else { return Vec::new() };
        let spec = &self.target.spec;
        let mut sentence = self.sentence(newest);
        if hold.files.len() > 1 {
            let leftovers = hold.files.len() - 1;
            sentence.push_str(&format!("; {leftovers} older files of its refreshes are there"));
        }
        let finding = |severity, topic, evidence| {
            let finding = Finding::new(severity, topic, evidence).about(newest);
            Finding { lock_of: Some(self.lock_of(hold)), ..finding.then(self.step(newest)) }
        };
        let mut findings = Vec::new();
        if self.is_of_file() {
            let (severity, topic) = self.file_severity(hold);
            findings.push(finding(severity, topic, sentence));
        } else if self.over(hold.refreshed_at, of_mode(&spec.stuck_limit, hold.mode)) {
            let severity = match hold.mode {
                LockMode::Exclusive => Severity::Critical,
                LockMode::Shared => Severity::Warning,
            };
            findings.push(finding(severity, Topic::Stuck, sentence));
        } else if hold.gone.is_some() {
            findings.push(finding(Severity::Warning, Topic::OwnerGone, sentence));
        } else {
            findings.push(finding(Severity::Ok, Topic::Alive, sentence));
        }
        let limit = of_mode(&spec.hold_limit, hold.mode);
        if let Some(limit) = limit.filter(|limit| self.over(hold.held_since, Some(*limit))) {
            let evidence = format!(
                "held over its limit: {} for {}, the limit is {}",
                hold.mode.as_str(),
                self.held(hold),
                in_words(signed(limit))
            );
            findings.push(finding(Severity::Warning, Topic::HeldTooLong, evidence));
        }
        findings
    }

    /// Whose, of what mode, for how long.
    fn lock_of(&self, hold: &Hold) -> String {
        let Holder { hostname, username, command, pid, .. } = &hold.holder;
        let name = |text: &str| if text.is_empty() { "unknown".into() } else { plain(text) };
        let pid = pid.map_or(String::new(), |pid| format!(" (pid {pid})"));
        let held = match self.is_current() {
            true => format!("held for {}", self.held(hold)),
            false => format!("taken {} ago", self.held(hold)),
        };
        let mode = hold.mode.as_str();
        match self.target.spec.proof() {
            Proof::Lease => {
                format!("{mode} lock of {}@{}{pid}, {held}", name(username), name(hostname))
            }
            Proof::Kernel => format!("{mode} lock of {}{pid}, {held}", name(command)),
            // It has one mode, and often tells nothing of who made it.
            Proof::Presence if command.is_empty() => {
                format!("lock of an unknown process{pid}, {held}")
            }
            Proof::Presence => format!("lock of {}{pid}, {held}", plain(command)),
        }
    }

    /// For how long it is held.
    fn held(&self, hold: &Hold) -> String {
        let at_least = if hold.since_is_exact { "" } else { "at least " };
        lasting(at_least, self.until_now(hold.held_since), self.until_now(hold.surely_since))
    }

    /// One file that belongs to no known holder.
    fn of_file(&self, seen: &SeenEntry) -> Option<Finding> {
        let (severity, topic) = match &seen.entry {
            LockEntry::Readable(_) => return None,
            LockEntry::Sealed(..) => {
                let limits = &self.target.spec.stuck_limit;
                let limit = limits.exclusive.into_iter().chain(limits.shared).min();
                if self.over(seen.refreshed_at(), limit) {
                    (Severity::Warning, Topic::Stuck)
                } else {
                    (Severity::Ok, Topic::Sealed)
                }
            }
            LockEntry::Empty(_) => (Severity::Ok, Topic::Empty),
            LockEntry::Unreadable(..) => (Severity::Critical, Topic::Unreadable),
        };
        let finding = Finding::new(severity, topic, self.sentence(seen));
        Some(finding.about(seen).then(self.step(seen)))
    }

    /// What no single file shows.
    fn of_target(&self) -> Vec<Finding> {
        let mut findings = self.file().map_or(Vec::new(), |file| self.of_file_target(file));
        findings.extend(self.stepped());
        // The kernel grants no two locks that exclude each other: ranges, flock beside fcntl.
        findings.extend(self.conflict().filter(|_| !self.is_of_file()));
        findings.extend(LockMode::ALL.into_iter().filter_map(|mode| self.blocked(mode)));
        if let Some(skew) = self.seen.clock_skew
            && skew.unsigned_abs() > SKEW_MAX
        {
            let side = if skew.is_negative() { "behind" } else { "ahead of" };
            let skewed = self.seen.entries.iter().find(|seen| seen.clock_skew() == Some(skew));
            let stored = skewed.is_some_and(|seen| seen.entry.stub().stored_at.is_some());
            let reference = if stored { "the storage's" } else { "what the exporter saw" };
            let evidence = format!(
                "clock skew: a lock's own time is {} {side} {reference}; ages by the holder's \
                 clock are not reliable",
                in_words(skew)
            );
            let finding = Finding::new(Severity::Warning, Topic::ClockSkew, evidence);
            findings.push(match skewed {
                Some(seen) => finding.about(seen).then(self.ask_the_time(seen)),
                None => finding,
            });
        }
        findings
    }

    /// This machine's own clock was stepped.
    fn stepped(&self) -> Option<Finding> {
        let step = self.recent_step().filter(|step| step.by.unsigned_abs() > SKEW_MAX)?;
        let evidence = format!(
            "this machine's clock {}; ages by other clocks are not reliable until the next \
             refresh",
            self.jumped(step)
        );
        let step = Step { note: None, line: Some("date -u   # on this machine".to_string()) };
        Some(Finding::new(Severity::Warning, Topic::ClockSkew, evidence).then(step))
    }

    /// An exclusive holder beside another one, both alive, neither just trying.
    fn conflict(&self) -> Option<Finding> {
        let alive = |hold: &&Hold| {
            self.newest(hold).is_some_and(|newest| {
                !self.verdict(newest).is_stale()
                    && self.since(hold.surely_since) > signed(CREATION_RACE)
            })
        };
        let alive: Vec<_> = self.seen.holds.iter().filter(alive).collect();
        let exclusive = alive.iter().find(|hold| hold.mode == LockMode::Exclusive)?;
        let newest = self.newest(exclusive)?;
        (alive.len() > 1).then(|| {
            let evidence = format!(
                "conflict: {} holders are alive at once and one of them is exclusive; somebody \
                 removed a living lock, or the storage lists late",
                alive.len()
            );
            let finding = Finding::new(Severity::Critical, Topic::Conflict, evidence);
            finding.about(newest).then(self.ask(newest))
        })
    }

    /// New work of one mode is refused for longer than the work of the other mode may take.
    fn blocked(&self, mode: LockMode) -> Option<Finding> {
        let limits = &self.target.spec.hold_limit;
        let since = of_mode(&self.seen.blocked_since, mode)?;
        let surely = of_mode(&self.seen.blocked_surely_since, mode).unwrap_or(since);
        let limit = match mode {
            LockMode::Exclusive => limits.shared?,
            LockMode::Shared => limits.exclusive?,
        };
        self.over(since, Some(limit)).then(|| {
            let evidence = format!(
                "blocked over its limit: as far as was seen, new {} locks are refused for {}, \
                 the limit is {}",
                mode.as_str(),
                lasting("", self.until_now(since), self.until_now(surely)),
                in_words(signed(limit))
            );
            let finding = Finding::new(Severity::Warning, Topic::BlockedTooLong, evidence);
            match self.is_of_file() {
                true => finding,
                false => finding.then(self.list()),
            }
        })
    }

    fn over(&self, since: Timestamp, limit: Option<Duration>) -> bool {
        limit.is_some_and(|limit| self.since(since) > signed(limit))
    }
}

fn of_mode<T: Copy>(pair: &PerMode<Option<T>>, mode: LockMode) -> Option<T> {
    match mode {
        LockMode::Exclusive => pair.exclusive,
        LockMode::Shared => pair.shared,
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests;
