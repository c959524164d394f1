//! Joins scans over time: holds across refreshes, names and when they were first seen, since when
//! something is blocked. One task owns a [`Tracker`]; it is handed scans and the time in them.
//!
//! Pure: no clock, no I/O, no logging. It refuses to conclude anything from a scan that failed:
//! such a scan changes what is said about scanning, never what is said about locks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::lock::{LeasePolicy, LockMode};
use crate::scan::{ErrorClass, Look, Scan, ScanError};
use crate::status::{
    Attempt, Event, Happening, LockEvent, Phase, Seen, Status, TargetCounters, TargetStatus,
};
use crate::target::{TargetName, TargetSet, TargetSpec};

mod blocked;
mod clock;
mod held;
mod holds;
mod memory;
mod record;
mod saved;

pub use saved::{Saved, SavedTarget, VERSION};

use clock::{Clock, Reading, Shift};
use memory::Memory;
use saved::Place;

/// Everything known so far.
///
/// ```
/// use std::time::Duration;
/// use jiff::Timestamp;
/// use lock_exporter::location::Location;
/// use lock_exporter::scan::{Look, Scan};
/// use lock_exporter::secret::{EnvSpec, PasswordSpec};
/// use lock_exporter::source;
/// use lock_exporter::status::Phase;
/// use lock_exporter::target::*;
/// use lock_exporter::tracker::Tracker;
///
/// let name = TargetName::new("db01")?;
/// let spec = TargetSpec {
///     name: name.clone(),
///     interval: Duration::from_secs(60),
///     idle_interval: Duration::from_secs(60),
///     timeout: Duration::from_secs(30),
///     hold_limit: PerMode { exclusive: None, shared: None },
///     stuck_limit: PerMode { exclusive: None, shared: None },
///     host: "".into(),
///     source: SourceSpec::Restic(ResticSpec {
///         repository: Location::parse("/srv/restic/db01")?,
///         password: PasswordSpec::default(),
///         env: EnvSpec::default(),
///         options: Default::default(),
///         key_hint: None,
///         cacert: Vec::new(),
///         insecure_tls: false,
///     }),
/// };
/// let mut tracker = Tracker::new(source::policy, Duration::from_secs(15 * 60));
/// let targets = TargetSet::new([spec]);
/// tracker.retarget(&targets);
/// assert!(matches!(tracker.status().targets[&name].phase, Phase::Pending));
///
/// let started_at: Timestamp = "2024-05-01T10:00:00Z".parse()?;
/// let events = tracker.apply(Scan {
///     spec: targets.get(&name).ok_or("in the set")?.clone(),
///     started_at,
///     ended_at: started_at,
///     boot: Duration::from_secs(90),
///     took: Duration::ZERO,
///     outcome: Ok(Look::default()),
/// });
/// assert!(events.is_empty());
/// let status = tracker.status();
/// assert!(status.targets[&name].seen().is_some_and(|seen| seen.holds.is_empty()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tracker {
    policy_of: fn(&TargetSpec) -> LeasePolicy,
    hold: Duration,
    memories: BTreeMap<TargetName, Memory>,
    /// What another process remembered of targets that were not asked for yet.
    restored: BTreeMap<String, (Place, Memory)>,
    /// Names of the searches in the set, shown or not: what is below them may be found yet.
    searches: Vec<TargetName>,
    clock: Clock,
    /// Published by cloning; what is shared with a reader is copied on the next write.
    status: Status,
}

impl Tracker {
    /// A tracker that knows nothing. `policy_of` gives the rhythm of a target's holders;
    /// `hold` is how long values of a failing target stay valid.
    pub fn new(policy_of: fn(&TargetSpec) -> LeasePolicy, hold: Duration) -> Self {
        Self {
            policy_of,
            hold,
            memories: BTreeMap::new(),
            restored: BTreeMap::new(),
            searches: Vec::new(),
            clock: Clock::default(),
            status: Status::default(),
        }
    }

    /// Changes for how long values of a failing target stay valid.
    pub fn hold_for(&mut self, hold: Duration) {
        self.hold = hold;
    }

    /// Follows a new set of targets: new ones appear as pending, gone ones are forgotten. One
    /// whose specification changed keeps what is known as long as it is at the same place.
    pub fn retarget(&mut self, targets: &TargetSet) {
        let mut next = BTreeMap::new();
        let mut memories = BTreeMap::new();
        let searches = targets.iter().filter(|spec| spec.search().is_some());
        self.searches = searches.map(|spec| spec.name.clone()).collect();
        for spec in targets.iter().filter(|spec| spec.is_shown()) {
            let name = &spec.name;
            let known = self.status.targets.get(name).filter(|old| old.spec.is_same_place(spec));
            let status = match known {
                Some(old) if old.spec == *spec => Arc::clone(old),
                Some(old) => {
                    let policy = (self.policy_of)(spec);
                    Arc::new(TargetStatus { spec: Arc::clone(spec), policy, ..(**old).clone() })
                }
                None => Arc::new(self.pending(spec)),
            };
            let memory = match known.is_some() {
                true => self.memories.remove(name).unwrap_or_default(),
                false => self.remembered(spec),
            };
            next.insert(name.clone(), status);
            memories.insert(name.clone(), memory);
            let durations = Arc::make_mut(&mut self.status.durations);
            for mode in LockMode::ALL {
                durations.entry((spec.source_name(), mode)).or_default();
            }
        }
        self.memories = memories;
        self.status.targets = Arc::new(next);
        self.status.revision += 1;
    }

    fn pending(&self, spec: &Arc<TargetSpec>) -> TargetStatus {
        TargetStatus {
            spec: Arc::clone(spec),
            policy: (self.policy_of)(spec),
            phase: Phase::Pending,
            last_attempt: None,
            counters: TargetCounters::default(),
            clock_step: self.clock.step,
            events: Arc::default(),
        }
    }

    /// Takes in this machine's wall clock and its boot-time clock, read together. When the wall
    /// clock was stepped since the last reading, all that is remembered and published moves with
    /// it; the step is returned.
    ///
    /// A machine whose boot-time clock stood still meanwhile, such as a virtual one that was
    /// paused, sees a step forward: nothing was seen in that time, so nothing ages by it.
    pub fn clock(&mut self, wall: Timestamp, boot: Duration) -> Option<SignedDuration> {
        match self.clock.read(wall, boot) {
            Reading::Steady | Reading::Early(_) => None,
            Reading::Stepped(by) => {
                self.shift(by);
                Some(by)
            }
        }
    }

    fn shift(&mut self, by: SignedDuration) {
        let restored = self.restored.values_mut().map(|(_, memory)| memory);
        self.memories.values_mut().chain(restored).for_each(|memory| memory.shift(by));
        Arc::make_mut(&mut self.status.events).shift(by);
        for target in Arc::make_mut(&mut self.status.targets).values_mut() {
            let target = Arc::make_mut(target);
            target.shift(by);
            target.clock_step = self.clock.step;
        }
        let at = self.clock.step.map(|step| step.at);
        if let Some(at) = at {
            self.note(at, Happening::ClockStepped { by });
        }
        self.status.revision += 1;
    }

    /// Takes one scan in and says what it shows to have happened. A scan of a target that is not
    /// in the set is dropped, and so is one that began when the target was elsewhere.
    pub fn apply(&mut self, mut scan: Scan) -> Vec<LockEvent> {
        match self.clock.read(scan.ended_at, scan.boot) {
            Reading::Steady => {}
            Reading::Stepped(by) => self.shift(by),
            Reading::Early(by) => scan.shift(by),
        }
        if scan.outcome.is_ok() && scan.spec.search().is_some() {
            // It has found what there is, so the rest will not come back.
            self.restored.retain(|name, _| !scan.spec.name.is_above(name));
        }
        let (Some(known), Some(memory)) =
            (self.status.targets.get(&scan.spec.name), self.memories.get_mut(&scan.spec.name))
        else {
            return Vec::new();
        };
        if !known.spec.is_same_place(&scan.spec) {
            return Vec::new();
        }
        let mut target = TargetStatus::clone(known);
        target.last_attempt = Some(Attempt { ended_at: scan.ended_at, took: scan.took });
        target.counters.scans += 1;
        let before = target.phase.clone();
        let (mut events, mut removed) = (Vec::new(), 0);
        match scan.outcome {
            // Such a look tells nothing of locks, so what is remembered stays as it is.
            Ok(look) if look.facts.unknown.is_some() => {
                let ever_held = memory.ever_held();
                let found = memory::Found { ever_held, ..memory::Found::default() };
                let seen = found.into_seen(scan.ended_at, look);
                target.phase = Phase::Seen(Arc::new(seen));
            }
            Ok(look) => {
                let (began, ended) = (scan.started_at, scan.ended_at);
                let time = memory::LookTime { began, ended, policy: target.policy };
                let found = memory.look(time, look.entries, self.hold);
                found.count(&mut target.counters);
                let durations = Arc::make_mut(&mut self.status.durations);
                for (mode, took) in &found.ended {
                    durations.entry((target.spec.source_name(), *mode)).or_default().observe(*took);
                }
                events = found.events(&scan.spec.name, scan.ended_at);
                removed = found.stale_removals;
                let rest = Look { entries: Vec::new(), ..look };
                target.phase = Phase::Seen(Arc::new(found.into_seen(scan.ended_at, rest)));
            }
            Err(error) => {
                target.counters.scan_failures += 1;
                target.phase = failing(target.phase, error, scan.ended_at);
            }
        }
        let mut happened = record::of_locks(&events, removed);
        happened.extend(record::of_phases(&before, &target.phase, &mut memory.told));
        let record = |what| {
            Arc::new(Event { at: scan.ended_at, target: Some(scan.spec.name.clone()), what })
        };
        let happened: Vec<_> = happened.into_iter().map(record).collect();
        record::add(&mut target.events, &happened, Status::TARGET_EVENTS_MAX);
        record::add(&mut self.status.events, &happened, Status::EVENTS_MAX);
        Arc::make_mut(&mut self.status.targets).insert(scan.spec.name.clone(), Arc::new(target));
        self.status.revision += 1;
        events
    }

    /// Records that a configuration was taken into use, or refused and why.
    /// `result` is the number of its targets, or the error in words.
    pub fn reloaded(&mut self, at: Timestamp, result: Result<usize, Arc<str>>) {
        self.note(
            at,
            match result {
                Ok(targets) => Happening::Reloaded { targets },
                Err(error) => Happening::ReloadRefused { error },
            },
        );
        self.status.revision += 1;
    }

    /// Records what is about no one target.
    fn note(&mut self, at: Timestamp, what: Happening) {
        let event = Arc::new(Event { at, target: None, what });
        record::add(&mut self.status.events, &[event], Status::EVENTS_MAX);
    }

    /// The current picture; cheap: four counters go up. The first scan applied afterwards copies
    /// the map of targets, not the targets, so apply all that is waiting before asking again.
    pub fn status(&self) -> Status {
        self.status.clone()
    }
}

/// What a failed scan makes of what was known before.
fn failing(before: Phase, error: ScanError, at: Timestamp) -> Phase {
    let (last_seen, since) = match before {
        Phase::Pending => (None, at),
        Phase::Seen(seen) => (Some(seen), at),
        Phase::Failing { last_seen, since, .. } => (last_seen, since),
    };
    // While its key was pending the target was shown as sealed. Now the password turns out to be
    // wrong, and a wrong password is an error, not a way to watch sealed.
    let wrong_password = error.class == ErrorClass::WrongPassword;
    let last_seen = last_seen.filter(|seen: &Arc<Seen>| !(wrong_password && seen.facts.sealed));
    Phase::Failing { last_seen, error, since }
}

#[cfg(test)]
mod saved_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod unrefreshed_tests;
