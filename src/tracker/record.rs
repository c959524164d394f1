//! What a scan adds to the record of events, and the bounds of that record.

use std::collections::VecDeque;
use std::sync::Arc;

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

/// What happened to the target: scans that begin to fail or recover, modes that become blocked
/// or free.
pub(super) fn of_phases(before: &Phase, after: &Phase) -> Vec<Happening> {
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
        let before = seen(before);
        for mode in LockMode::ALL {
            let was = before.and_then(|seen| of(&seen.blocked_since, mode));
            match (was, of(&now.blocked_since, mode)) {
                (None, Some(since)) => all.push(Happening::Blocked { mode, since }),
                // Where it is not known, nothing is known to have ended.
                (Some(since), None) if now.blocked().of(mode) == Some(false) => {
                    all.push(Happening::Unblocked { mode, since });
                }
                (None, None) | (Some(_), _) => {}
            }
        }
    }
    all
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
