//! Steps of this machine's wall clock, and how what is remembered follows them.
//!
//! Times that the exporter stamped are kept on the clock as it is now: when it steps, they move
//! with it, so that "seen for" and "held for" count time that passed. What other clocks stamped,
//! a holder's or a storage's, stays as it is. Nobody here knows which of the clocks is right.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::blocked::Runs;
use super::held::{Held, Origin, Written};
use super::memory::{Memory, Name, signed};
use crate::scan::Scan;
use crate::status::{ClockStep, Event, Happening, Phase, Seen, SeenEntry, TargetStatus};

/// Less than this is no step: reading two clocks takes its time, and a slewed clock moves both.
const STEP_MIN: Duration = Duration::from_secs(2);

/// The wall clock against the boot-time clock, which counts seconds and never steps.
#[derive(Default)]
pub(super) struct Clock {
    /// The boot-time clock at the latest reading.
    boot: Duration,
    /// The wall clock's lead over it since the last step; absent before the first reading.
    lead: Option<SignedDuration>,
    /// The last step that spoils ages.
    pub step: Option<ClockStep>,
}

/// What a reading of both clocks shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// Nothing stepped.
    Steady,
    /// The clock stepped by this: what is remembered has to move.
    Stepped(SignedDuration),
    /// It was taken before a step that is known already: what it stamped has to move.
    Early(SignedDuration),
}

impl Clock {
    /// Takes up the lead that another process saw in the same boot, so that a step in between
    /// shows.
    pub fn resume(&mut self, lead: SignedDuration) {
        self.lead.get_or_insert(lead);
    }

    /// The wall clock's lead over the boot-time clock.
    pub fn lead(&self) -> Option<SignedDuration> {
        self.lead
    }

    /// Takes in the wall clock and the boot-time clock of one moment.
    pub fn read(&mut self, wall: Timestamp, boot: Duration) -> Reading {
        let lead = wall.as_duration().saturating_sub(signed(boot));
        let is_early = boot < self.boot;
        self.boot = self.boot.max(boot);
        let known = *self.lead.get_or_insert(lead);
        let by = lead.saturating_sub(known);
        if by.unsigned_abs() <= STEP_MIN {
            return Reading::Steady;
        }
        if is_early {
            return Reading::Early(SignedDuration::ZERO.saturating_sub(by));
        }
        self.lead = Some(lead);
        self.step.shift(by);
        let recent = self.step.filter(|step| wall.duration_since(step.at) <= ClockStep::SPOILS);
        let size = by.unsigned_abs();
        let (largest, together) = recent.map_or((by, size), |step| {
            let larger = if step.by.unsigned_abs() > size { step.by } else { by };
            (larger, step.together.saturating_add(size))
        });
        self.step = Some(ClockStep { at: wall, by: largest, together });
        Reading::Stepped(by)
    }
}

/// What holds times of the exporter's clock.
pub(super) trait Shift {
    /// Follows a step of the clock.
    fn shift(&mut self, by: SignedDuration);
}

impl Shift for Timestamp {
    fn shift(&mut self, by: SignedDuration) {
        // A time at the end of all times stays there.
        *self = self.checked_add(by).unwrap_or(*self);
    }
}

impl<T: Shift> Shift for Option<T> {
    fn shift(&mut self, by: SignedDuration) {
        if let Some(inner) = self {
            inner.shift(by);
        }
    }
}

impl Shift for ClockStep {
    fn shift(&mut self, by: SignedDuration) {
        self.at.shift(by);
    }
}

impl Shift for Scan {
    fn shift(&mut self, by: SignedDuration) {
        self.started_at.shift(by);
        self.ended_at.shift(by);
    }
}

impl Shift for Memory {
    fn shift(&mut self, by: SignedDuration) {
        if let Some(last) = &mut self.last {
            last.began.shift(by);
        }
        self.runs.shift(by);
        self.names.values_mut().for_each(|name| name.shift(by));
        self.holds
            .values_mut()
            .flat_map(|holds| holds.values_mut())
            .for_each(|held| held.shift(by));
    }
}

impl Shift for Name {
    fn shift(&mut self, by: SignedDuration) {
        self.first_seen.shift(by);
        self.not_before.shift(by);
        self.clock_moved = self.clock_moved.saturating_add(by);
    }
}

impl Shift for Held {
    fn shift(&mut self, by: SignedDuration) {
        self.held_since.shift(by);
        self.surely_since.shift(by);
        self.newest.shift(by);
        self.settled.shift(by);
        self.pending.shift(by);
        self.first_look.shift(by);
        self.last_look.shift(by);
        self.missed.shift(by);
    }
}

impl Shift for Written {
    fn shift(&mut self, by: SignedDuration) {
        self.at.shift(by);
        self.by.shift(by);
    }
}

impl Shift for Origin {
    fn shift(&mut self, by: SignedDuration) {
        self.since.shift(by);
        self.surely_since.shift(by);
        self.tip.shift(by);
    }
}

impl Shift for Runs {
    fn shift(&mut self, by: SignedDuration) {
        for run in [&mut self.0.exclusive, &mut self.0.shared].into_iter().flatten() {
            run.since.shift(by);
            run.surely_since.shift(by);
            run.undated.shift(by);
            run.last.shift(by);
        }
    }
}

impl Shift for TargetStatus {
    fn shift(&mut self, by: SignedDuration) {
        if let Some(attempt) = &mut self.last_attempt {
            attempt.ended_at.shift(by);
        }
        if !self.events.is_empty() {
            Arc::make_mut(&mut self.events).shift(by);
        }
        match &mut self.phase {
            Phase::Pending => {}
            Phase::Seen(seen) => Arc::make_mut(seen).shift(by),
            Phase::Failing { last_seen, since, .. } => {
                since.shift(by);
                if let Some(seen) = last_seen {
                    Arc::make_mut(seen).shift(by);
                }
            }
        }
    }
}

impl Shift for Seen {
    fn shift(&mut self, by: SignedDuration) {
        self.at.shift(by);
        for pair in [&mut self.blocked_since, &mut self.blocked_surely_since] {
            pair.exclusive.shift(by);
            pair.shared.shift(by);
        }
        self.entries.iter_mut().for_each(|entry| entry.shift(by));
        for hold in &mut self.holds {
            hold.refreshed_at.shift(by);
            hold.held_since.shift(by);
            hold.surely_since.shift(by);
        }
    }
}

impl Shift for SeenEntry {
    fn shift(&mut self, by: SignedDuration) {
        self.first_seen.shift(by);
        self.not_before.shift(by);
        self.clock_moved = self.clock_moved.saturating_add(by);
    }
}

impl Shift for VecDeque<Arc<Event>> {
    fn shift(&mut self, by: SignedDuration) {
        self.iter_mut().for_each(|event| Arc::make_mut(event).shift(by));
    }
}

impl Shift for Event {
    fn shift(&mut self, by: SignedDuration) {
        self.at.shift(by);
        match &mut self.what {
            Happening::Blocked { since, .. } | Happening::ScanRecovered { since } => {
                since.shift(by);
            }
            Happening::Unblocked { since, .. } => since.shift(by),
            Happening::Untold { .. }
            | Happening::Lock { .. }
            | Happening::RemovedStale { .. }
            | Happening::ScanFailing { .. }
            | Happening::Reloaded { .. }
            | Happening::ReloadRefused { .. }
            | Happening::ClockStepped { .. } => {}
        }
    }
}
