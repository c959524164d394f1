//! What follows from facts: is a lock fresh or stale, what would a new lock meet, and why.
//!
//! Pure; the time is a parameter. Verdicts are computed when asked for and never stored.

use jiff::Timestamp;

use crate::lock::{GoneReason, LeasePolicy, Lock, LockEntry, Stub};

/// What a lock's facts amount to at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// In the rhythm of its refreshes.
    Fresh,
    /// A refresh is late.
    Overdue,
    /// Past the refresh deadline: very likely lost, not certainly.
    Doomed,
    /// `restic unlock` would delete it.
    Stale(StaleReason),
    /// Nothing can be said.
    Unjudged,
}

/// Why a lock is stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StaleReason {
    /// Older than the stale limit by its own time: restic's rule.
    Age,
    /// One file name was seen for longer than the stale limit, whatever the clocks say.
    Unrefreshed,
    /// Its process is proven gone.
    Owner(GoneReason),
}

/// What a new lock would meet; `None` = not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// A new exclusive lock would be refused.
    pub exclusive: Option<bool>,
    /// A new shared lock would be refused.
    pub shared: Option<bool>,
}

/// Judges one readable lock at `now`; `first_seen` is when its file name was first seen.
pub fn judge(
    _lock: &Lock,
    _first_seen: Timestamp,
    _policy: &LeasePolicy,
    _now: Timestamp,
) -> Verdict {
    Verdict::Unjudged
}

/// Judges a lock file of which only the listing is known.
pub fn judge_sealed(
    _stub: &Stub,
    _first_seen: Timestamp,
    _policy: &LeasePolicy,
    _now: Timestamp,
) -> Verdict {
    Verdict::Unjudged
}

/// What a new lock would meet beside these lock files.
pub fn blocked<'a>(_entries: impl IntoIterator<Item = &'a LockEntry>) -> Blocked {
    Blocked { exclusive: None, shared: None }
}
