//! What a scan adds to the record of events, and the bounds of that record.

use std::collections::VecDeque;
use std::sync::Arc;

use super::memory::per_mode;
use crate::lock::LockMode;
use crate::status::{Event, EventKind, Happening, LockEvent, Phase, Seen};
use crate::target::PerMode;

/// What happened to locks; refreshes are left to the counters.
pub(super) fn of_locks(events: &[LockEvent], removed: u64) -> Vec<Happening> {
    let told = events.iter().filter(|event| event.kind != EventKind::Refreshed);
    // What the rings would drop at once is not made.
    let mut told: Vec<_> = told.rev().take(super::Status::EVENTS_MAX).collect();
    told.reverse();
    let lock = |event: &LockEvent| {
        let LockEvent { kind, id, hold, .. } = event.clone();
        Happening::Lock { kind, id, hold }
    };
    let mut all: Vec<_> = told.into_iter().map(lock).collect();
    if removed > 0 {
        all.push(Happening::RemovedStale { files: removed });
    }
    all
}

/// What the record says last of new locks of one mode. Of one that was never refused it says
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Told {
    #[default]
    Nothing,
    Refused,
    Granted,
    /// That it is not known.
    Unknown,
}

/// What happened to the target: scans that begin to fail or recover, modes that become blocked
/// or free, or of which that is not known any more.
pub(super) fn of_phases(before: &Phase, after: &Phase, told: &mut PerMode<Told>) -> Vec<Happening> {
    let mut all = Vec::new();
    match (before, after) {
        (Phase::Pending | Phase::Seen(_), Phase::Failing { error, .. }) => {
            all.push(Happening::ScanFailing { error: error.clone() });
        }
        (Phase::Failing { since, .. }, Phase::Seen(_)) => {
            all.push(Happening::ScanRecovered { since: *since });
        }
        (_, Phase::Pending)
        | (Phase::Pending | Phase::Seen(_), Phase::Seen(_))
        | (Phase::Failing { .. }, Phase::Failing { .. }) => {}
    }
    if let Phase::Seen(now) = after {
        for mode in LockMode::ALL {
            of_mode(seen(before), now, mode, per_mode(told, mode), &mut all);
        }
    }
    all
}

/// What one look adds for one mode: only what differs from what was told last.
fn of_mode(
    before: Option<&Seen>,
    now: &Seen,
    mode: LockMode,
    told: &mut Told,
    all: &mut Vec<Happening>,
) {
    let since = of(&now.blocked_since, mode);
    let knows = match now.blocked().of(mode) {
        Some(true) => Told::Refused,
        Some(false) => Told::Granted,
        None => Told::Unknown,
    };
    let was_since = before.and_then(|before| of(&before.blocked_since, mode));
    // A run begins later than the one before only after a pause in which nobody looked.
    let paused = since > was_since;
    match (*told, knows) {
        (Told::Nothing | Told::Granted | Told::Unknown, Told::Refused) => {}
        (Told::Refused, Told::Refused) if paused => all.push(Happening::Untold { mode }),
        (Told::Refused, Told::Granted) => {
            all.push(Happening::Unblocked { mode, since: was_since });
        }
        (Told::Unknown, Told::Granted) => all.push(Happening::Unblocked { mode, since: None }),
        (Told::Refused | Told::Granted, Told::Unknown) => all.push(Happening::Untold { mode }),
        (Told::Nothing, _)
        | (_, Told::Nothing)
        | (Told::Refused, Told::Refused)
        | (Told::Granted, Told::Granted)
        | (Told::Unknown, Told::Unknown) => return,
    }
    if let Some(since) = since {
        all.push(Happening::Blocked { mode, since });
    }
    *told = knows;
}

fn seen(phase: &Phase) -> Option<&Seen> {
    match phase {
        Phase::Pending => None,
        Phase::Seen(seen) => Some(seen),
        Phase::Failing { last_seen, .. } => last_seen.as_deref(),
    }
}

fn of<T: Copy>(pair: &PerMode<T>, mode: LockMode) -> T {
    match mode {
        LockMode::Exclusive => pair.exclusive,
        LockMode::Shared => pair.shared,
    }
}

/// Adds events at the end and forgets the oldest ones over the bound.
pub(super) fn add(ring: &mut Arc<VecDeque<Arc<Event>>>, events: &[Arc<Event>], max: usize) {
    if events.is_empty() {
        return;
    }
    let ring = Arc::make_mut(ring);
    ring.extend(events.iter().cloned());
    let excess = ring.len().saturating_sub(max);
    ring.drain(..excess);
}
