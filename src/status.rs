//! The picture of everything known at one moment, as immutable values.
//!
//! Made by [`crate::tracker`], read by renderers. It holds facts: what was seen, when, and since
//! when. Whether a lock is stale is computed from it ([`crate::judge`]), never stored in it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::judge::{self, Blocked, State, dated};
use crate::lock::{GoneReason, HoldKey, Holder, LeasePolicy, LockEntry, LockId, LockMode};
use crate::scan::{Facts, Ignored, ScanError};
use crate::target::{PerMode, TargetName, TargetSpec};

mod event;

pub use event::{Event, EventKind, Happening, LockEvent};

/// Everything known at one moment. Cheap to clone and to share.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Every target of the current set, also those never scanned.
    pub targets: Arc<BTreeMap<TargetName, Arc<TargetStatus>>>,
    /// The last events of all targets and of the exporter, oldest first; bounded by
    /// [`Status::EVENTS_MAX`].
    pub events: Arc<VecDeque<Arc<Event>>>,
    /// Durations of ended holds, by source and mode.
    pub durations: Arc<BTreeMap<(&'static str, LockMode), DurationHistogram>>,
    /// Grows with every change.
    pub revision: u64,
}

impl Status {
    /// No more events than this are kept, over all targets.
    pub const EVENTS_MAX: usize = 500;
    /// No more events than this are kept of one target, so that a busy one drives out only its
    /// own.
    pub const TARGET_EVENTS_MAX: usize = 20;
}

/// What can be seen of this machine, and who can hold repository locks on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineStatus {
    /// What may be seen, by the words of the `name` label.
    pub capabilities: Vec<(&'static str, bool)>,
    /// The processes; absent when they are not collected.
    pub holders: Option<Holders>,
}

/// Processes of this machine that can hold repository locks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holders {
    /// Names by which locks know this machine.
    pub hostnames: Vec<Arc<str>>,
    /// All processes are visible and the names are this machine's alone, so that one that is not
    /// listed is not there.
    pub watched: bool,
    /// Each under every pid that it is known by.
    pub processes: Vec<HolderProcess>,
}

/// A process under one of its pids.
#[derive(Clone, Debug, PartialEq)]
pub struct HolderProcess {
    /// Its pid on the host or in its own PID namespace.
    pub pid: i64,
    /// Name of its program.
    pub command: Arc<str>,
    /// When it started.
    pub started_at: Timestamp,
}

/// Everything known about one target.
#[derive(Clone, Debug)]
pub struct TargetStatus {
    /// What is watched.
    pub spec: Arc<TargetSpec>,
    /// The rhythm of its holders.
    pub policy: LeasePolicy,
    /// What the scans so far amount to.
    pub phase: Phase,
    /// The last attempt; absent before the first one has ended.
    pub last_attempt: Option<Attempt>,
    /// Counters since the target is watched.
    pub counters: TargetCounters,
    /// The last step of this machine's clock, which every target shares.
    pub clock_step: Option<ClockStep>,
    /// Its own last events, oldest first; bounded by [`Status::TARGET_EVENTS_MAX`].
    pub events: Arc<VecDeque<Arc<Event>>>,
}

/// A step of this machine's wall clock, told from time that passes by the boot-time clock.
///
/// Times that the exporter stamped move with it. Those of holders and storages do not, so for a
/// while their ages may be wrong by as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// When it was noticed, by the clock as it is now.
    pub at: Timestamp,
    /// How far: positive is forward. Of several in [`ClockStep::SPOILS`] the largest.
    pub by: SignedDuration,
    /// How far all of them went together, whatever their direction.
    pub together: Duration,
}

impl ClockStep {
    /// For so long after it ages by other clocks prove nothing that the step could explain. By
    /// then every lock that lives was refreshed under a new name.
    pub const SPOILS: SignedDuration = SignedDuration::from_secs(30 * 60);
}

/// What the scans so far amount to. "Never scanned", "no locks" and "cannot be scanned" differ.
#[derive(Clone, Debug)]
pub enum Phase {
    /// No scan has ended yet.
    Pending,
    /// The last scan succeeded.
    Seen(Arc<Seen>),
    /// The last scan failed.
    Failing {
        /// What the last successful scan saw, if there was one.
        last_seen: Option<Arc<Seen>>,
        /// Why the last scan failed.
        error: ScanError,
        /// End of the first failed scan of this unbroken run.
        since: Timestamp,
    },
}

impl TargetStatus {
    /// What the last successful scan saw, also when later ones failed. Whoever shows it checks
    /// its age: [`TargetStatus::seen_at`].
    pub fn seen(&self) -> Option<&Arc<Seen>> {
        match &self.phase {
            Phase::Pending => None,
            Phase::Seen(seen) => Some(seen),
            Phase::Failing { last_seen, .. } => last_seen.as_ref(),
        }
    }

    /// What was seen, unless it is so old at `now` that it must not be shown any more: over
    /// `hold`, whether scans fail or just do not happen.
    pub fn seen_at(&self, now: Timestamp, hold: Duration) -> Option<&Arc<Seen>> {
        let hold = SignedDuration::try_from(hold).unwrap_or(SignedDuration::MAX);
        self.seen().filter(|seen| now.duration_since(seen.at) <= hold)
    }

    /// Why the last attempt failed.
    pub fn error(&self) -> Option<&ScanError> {
        match &self.phase {
            Phase::Pending | Phase::Seen(_) => None,
            Phase::Failing { error, .. } => Some(error),
        }
    }
}

/// The end of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// When it ended, by the exporter's clock.
    pub ended_at: Timestamp,
    /// How long it took.
    pub took: Duration,
}

/// What the last successful scan saw, joined with what earlier ones knew.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When that scan ended: verdicts are as of this moment.
    pub at: Timestamp,
    /// Every lock file, in the order of their names.
    pub entries: Vec<SeenEntry>,
    /// The holders behind the readable ones, in the order of their keys.
    pub holds: Vec<Hold>,
    /// Since when a new lock of each mode would have been refused at every look; absent while it
    /// would be granted, and while that is not known.
    pub blocked_since: PerMode<Option<Timestamp>>,
    /// The same by what every clock agrees upon, as [`Hold::surely_since`].
    pub blocked_surely_since: PerMode<Option<Timestamp>>,
    /// [`SeenEntry::clock_skew`] of the lock with the largest one among those whose name is known
    /// for less than the stale limit.
    pub clock_skew: Option<SignedDuration>,
    /// Names that are no locks.
    pub ignored: Ignored,
    /// What is known about the target itself.
    pub facts: Facts,
    /// Files that vanished between listing and reading in that scan.
    pub vanished: u32,
    /// A lock was ever seen at this place, as far as is remembered. A file whose presence means
    /// nothing and that was never seen held may be no lock of the kernel's.
    pub ever_held: bool,
}

impl Seen {
    /// What a new lock would meet.
    pub fn blocked(&self) -> Blocked {
        match self.facts.unknown {
            Some(_) => Blocked { exclusive: None, shared: None },
            None => judge::blocked(self.entries.iter().map(|seen| &seen.entry)),
        }
    }

    /// What the locks amount to.
    pub fn state(&self) -> State {
        match self.facts.unknown {
            Some(_) => State::Unknown,
            None => judge::state(self.entries.iter().map(|seen| &seen.entry)),
        }
    }
}

/// A lock file and when its name was first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenEntry {
    /// What the scan found.
    pub entry: LockEntry,
    /// End of the first scan that saw this name. It survives one look without the name.
    pub first_seen: Timestamp,
    /// Start of the last successful scan that did not see it; absent when it was there at the
    /// first look. A lock's own time is moved into `[not_before, first_seen]` for holds.
    pub not_before: Option<Timestamp>,
    /// How far the exporter's clock was stepped since the name was first seen.
    pub clock_moved: SignedDuration,
}

impl SeenEntry {
    /// When it was written or last refreshed, on the exporter's clock: its own time (else the
    /// storage's, else first sight) moved between the last look that did not see its name and
    /// the first that did. So a holder's wrong clock neither hides a dead lock nor condemns a
    /// live one from the first refresh on that was seen.
    ///
    /// When the exporter's clock steps forward, such a time goes with it; when it steps back, the
    /// time stays. Whichever of the clocks is right, no lock ages by a step.
    pub fn refreshed_at(&self) -> Timestamp {
        self.seen_to_be(dated(&self.entry, self.first_seen))
    }

    /// By when it was written at the latest: what every clock that dates it agrees upon, on the
    /// exporter's clock.
    pub fn written_by(&self) -> Timestamp {
        let stored = self.entry.stub().stored_at.map(|at| self.seen_to_be(at));
        stored.map_or(self.refreshed_at(), |stored| stored.max(self.refreshed_at()))
    }

    /// A time of another clock, moved to where it can have been.
    fn seen_to_be(&self, at: Timestamp) -> Timestamp {
        let at = at.checked_add(self.clock_moved.max(SignedDuration::ZERO)).unwrap_or(at);
        self.not_before.map_or(at, |not_before| at.max(not_before)).min(self.first_seen)
    }

    /// How far the clock that dates a lock is from the storage's, or, where the storage has no
    /// times, how far outside of what the exporter saw. `None` when nothing is there to compare.
    pub fn clock_skew(&self) -> Option<SignedDuration> {
        let own = self.entry.refreshed_at().filter(|_| self.entry.is_leased())?;
        if let Some(stored_at) = self.entry.stub().stored_at {
            return Some(own.duration_since(stored_at));
        }
        let own = own.checked_add(self.clock_moved).unwrap_or(own);
        match self.not_before {
            _ if own > self.first_seen => Some(own.duration_since(self.first_seen)),
            Some(not_before) if own < not_before => Some(own.duration_since(not_before)),
            Some(_) => Some(SignedDuration::ZERO),
            None => None,
        }
    }
}

/// One holder's unbroken possession across refreshes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What joins its files.
    pub key: HoldKey,
    /// Exclusive or shared.
    pub mode: LockMode,
    /// Who has it.
    pub holder: Holder,
    /// The last refresh, on the exporter's clock: of its newest file.
    pub refreshed_at: Timestamp,
    /// Start as far as known.
    pub held_since: Timestamp,
    /// When its first file known was written at the latest, by every clock that dates it. It is
    /// later than `held_since` where that is by a clock that another one contradicts.
    pub surely_since: Timestamp,
    /// False when it may have begun earlier: it was there at our first look, or the look before
    /// was so long ago, or so sealed, that its first file may have been a refresh.
    pub since_is_exact: bool,
    /// Refreshes seen.
    pub refreshes: u64,
    /// Its files now, leftovers of failed deletes included; the newest first.
    pub files: Vec<LockId>,
    /// Set when its process is proven gone.
    pub gone: Option<GoneReason>,
    /// Its last refresh gave a new file the same time as before: restic up to 0.9.6 does so (its
    /// changelog 0.10.0, #2390), and its live locks look stale to every other restic.
    pub keeps_old_time: bool,
}

/// Counters of one target since it is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetCounters {
    /// Scans ended.
    pub scans: u64,
    /// Of those, failed.
    pub scan_failures: u64,
    /// Holds seen to start; those there at the first look are not.
    pub holds_started: PerMode<u64>,
    /// Holds seen to end.
    pub holds_ended: PerMode<u64>,
    /// Refreshes seen.
    pub refreshes: u64,
    /// Lock files that vanished while stale and were not refreshed: somebody ran `unlock`.
    pub stale_removals: u64,
}

/// Durations of ended holds.
#[derive(Clone, Debug, PartialEq)]
pub struct DurationHistogram {
    /// Ended holds at most as long as the bound of the same index, not cumulative; the last one
    /// counts what is longer than every bound.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// Sum of all durations, in seconds.
    pub sum_seconds: f64,
}

impl DurationHistogram {
    /// Upper bounds in seconds: 30 s, 2 m, 5 m, 15 m, 30 m, 1 h, 2 h, 4 h, 8 h, 24 h.
    pub const BOUNDS: [f64; 10] =
        [30.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0];

    /// Counts one ended hold.
    pub fn observe(&mut self, took: Duration) {
        let seconds = took.as_secs_f64();
        let index = Self::BOUNDS.iter().position(|bound| seconds <= *bound);
        self.counts[index.unwrap_or(Self::BOUNDS.len())] += 1;
        self.sum_seconds += seconds;
    }
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self { counts: [0; Self::BOUNDS.len() + 1], sum_seconds: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_under_the_first_bound_that_it_does_not_exceed() {
        let mut histogram = DurationHistogram::default();
        for seconds in [0.0, 30.0, 30.001, 86_400.0, 86_400.5, 1e9] {
            histogram.observe(Duration::from_secs_f64(seconds));
        }
        assert_eq!(histogram.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(histogram.sum_seconds, 1_000_172_860.501);
    }
}
