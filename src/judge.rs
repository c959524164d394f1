//! What follows from facts: is a lock fresh or stale, what would a new lock meet, and why.
//!
//! Pure; the time is a parameter. Verdicts are computed when asked for and never stored. This
//! module refuses to guess: a file that nobody can decode has no verdict, and where a sealed file
//! leaves open what a new lock would meet, the answer is "not known".

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::lock::{GoneReason, LeasePolicy, Lock, LockEntry, LockMode, Stub, Tenure};

/// What a lock's facts amount to at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// In the rhythm of its refreshes.
    Fresh,
    /// A refresh is late.
    Overdue,
    /// Past the refresh deadline: very likely lost, not certainly. Old clients never give up, and
    /// newer ones make one last attempt after a suspend.
    Doomed,
    /// `restic unlock` would delete it.
    Stale(StaleReason),
    /// Nothing can be said: nobody can decode it, or it is no lock.
    Unjudged,
}

impl Verdict {
    /// Whether it is stale, for whatever reason.
    pub fn is_stale(self) -> bool {
        match self {
            Verdict::Stale(_) => true,
            Verdict::Fresh | Verdict::Overdue | Verdict::Doomed | Verdict::Unjudged => false,
        }
    }

    /// The verdict as one word, for pages and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Fresh => "fresh",
            Verdict::Overdue => "overdue",
            Verdict::Doomed => "doomed",
            Verdict::Stale(_) => "stale",
            Verdict::Unjudged => "unjudged",
        }
    }
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

impl StaleReason {
    /// The reason as one word, for pages and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            StaleReason::Age => "age",
            StaleReason::Unrefreshed => "unrefreshed",
            StaleReason::Owner(reason) => reason.as_str(),
        }
    }
}

/// What a new lock would meet; `None` = not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocked {
    /// A new exclusive lock would be refused.
    pub exclusive: Option<bool>,
    /// A new shared lock would be refused.
    pub shared: Option<bool>,
}

impl Blocked {
    /// What a new lock of one mode would meet.
    pub fn of(self, mode: LockMode) -> Option<bool> {
        match mode {
            LockMode::Exclusive => self.exclusive,
            LockMode::Shared => self.shared,
        }
    }
}

/// What the lock files of one target amount to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum State {
    /// Any new lock would be granted.
    Free,
    /// Only a shared one would be granted.
    Shared,
    /// No new lock would be granted.
    Exclusive,
    /// Not known: a sealed file decides, and its mode cannot be told.
    Unknown,
}

impl State {
    /// Every state, in the order in which they are shown.
    pub const ALL: [State; 4] = [State::Free, State::Shared, State::Exclusive, State::Unknown];

    /// The word used in labels, pages and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Free => "free",
            State::Shared => "shared",
            State::Exclusive => "exclusive",
            State::Unknown => "unknown",
        }
    }
}

/// How old a lock file is, by the best clock that dates it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Age {
    /// Never negative: a time in the future is an age of zero.
    pub age: Duration,
    /// How far its time lies in the future; zero when it does not.
    pub ahead: Duration,
}

/// The time that dates a lock file: its own, else the storage's, else first sight of its name.
///
/// A lock without a time of its own is thus never two thousand years old.
pub fn dated(entry: &LockEntry, first_seen: Timestamp) -> Timestamp {
    entry.refreshed_at().or(entry.stub().stored_at).unwrap_or(first_seen)
}

/// Age of a lock file at `now` by the time that dates it ([`dated`]).
pub fn age(entry: &LockEntry, first_seen: Timestamp, now: Timestamp) -> Age {
    let signed = now.duration_since(dated(entry, first_seen));
    if signed.is_negative() {
        Age { age: Duration::ZERO, ahead: signed.unsigned_abs() }
    } else {
        Age { age: signed.unsigned_abs(), ahead: Duration::ZERO }
    }
}

/// Judges one readable lock at `now`; `first_seen` is when its file name was first seen.
///
/// The rule is restic's (`internal/repository/lock_file.go`, `stale`) without its faults: a lock
/// is stale when it is *strictly* older than the limit by its own time, when that time is
/// missing, or when its process is proven gone. Added is what no clock can spoil: every refresh
/// writes a new file under a new name, so one name seen for longer than the limit was not
/// refreshed. A time in the future never makes a lock stale. What the kernel vouches for is never
/// stale, and a file that holds by existing is stale only when its owner is proven gone.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use jiff::Timestamp;
/// use lock_exporter::judge::{StaleReason, Verdict, judge};
/// use lock_exporter::lock::*;
///
/// let policy = LeasePolicy {
///     refresh_every: Duration::from_secs(300),
///     refresh_deadline: Duration::from_secs(1350),
///     stale_limit: Duration::from_secs(1800),
/// };
/// let refreshed_at: Timestamp = "2024-05-01T10:00:00Z".parse()?;
/// let lock = Lock {
///     stub: Stub { id: LockId::new("3f0f6bfd"), size: 137, stored_at: None },
///     key: HoldKey::new("db01 root 4242 exclusive"),
///     mode: LockMode::Exclusive,
///     holder: Holder::default(),
///     tenure: Tenure::Leased { refreshed_at: Some(refreshed_at) },
///     liveness: Liveness::Unknown,
///     doubt: None,
/// };
/// let now: Timestamp = "2024-05-01T10:30:00Z".parse()?;
/// // Exactly 30 minutes are not over 30 minutes.
/// assert_eq!(judge(&lock, now, &policy, now), Verdict::Doomed);
/// let later: Timestamp = "2024-05-01T10:30:01Z".parse()?;
/// assert_eq!(judge(&lock, now, &policy, later), Verdict::Stale(StaleReason::Age));
/// # Ok::<(), jiff::Error>(())
/// ```
pub fn judge(lock: &Lock, first_seen: Timestamp, policy: &LeasePolicy, now: Timestamp) -> Verdict {
    let gone = lock.liveness.gone().map(|reason| Verdict::Stale(StaleReason::Owner(reason)));
    match lock.tenure {
        // The kernel drops a lock with its last descriptor: somebody has it.
        Tenure::Kernel(_) => Verdict::Fresh,
        Tenure::Present { .. } => gone.unwrap_or(Verdict::Fresh),
        Tenure::Leased { refreshed_at } => gone.unwrap_or_else(|| match refreshed_at {
            // restic reads a missing time as the year 1, which is over any limit.
            None => Verdict::Stale(StaleReason::Age),
            Some(own) => by_silence(since(own, now), since(first_seen, now), policy),
        }),
    }
}

/// Judges a lock file of which only the listing is known: by the storage's time where there is
/// one, and by how long its name has been seen.
pub fn judge_sealed(
    stub: &Stub,
    first_seen: Timestamp,
    policy: &LeasePolicy,
    now: Timestamp,
) -> Verdict {
    let seen_for = since(first_seen, now);
    let stored_for = stub.stored_at.map_or(SignedDuration::MIN, |at| since(at, now));
    by_silence(stored_for, seen_for, policy)
}

/// Judges any lock file. One that is empty or that nobody can decode is unjudged.
pub fn judge_entry(
    entry: &LockEntry,
    first_seen: Timestamp,
    policy: &LeasePolicy,
    now: Timestamp,
) -> Verdict {
    match entry {
        LockEntry::Readable(lock) => judge(lock, first_seen, policy, now),
        LockEntry::Sealed(stub, _) => judge_sealed(stub, first_seen, policy, now),
        LockEntry::Empty(_) | LockEntry::Unreadable(..) => Verdict::Unjudged,
    }
}

/// What a lock's silence amounts to: `age` is by another's clock, which may be wrong, `seen_for`
/// by our own.
pub fn by_silence(age: SignedDuration, seen_for: SignedDuration, policy: &LeasePolicy) -> Verdict {
    let stale = signed(policy.stale_limit);
    let silence = age.max(seen_for);
    if age > stale {
        Verdict::Stale(StaleReason::Age)
    } else if seen_for > stale {
        Verdict::Stale(StaleReason::Unrefreshed)
    } else if silence > signed(policy.refresh_deadline) {
        Verdict::Doomed
    } else if silence > signed(overdue_after(policy)) {
        Verdict::Overdue
    } else {
        Verdict::Fresh
    }
}

/// A refresh takes its time to be written, so a healthy holder is a little over its rhythm at
/// the end of each round; a fifth more is late.
fn overdue_after(policy: &LeasePolicy) -> Duration {
    policy.refresh_every.saturating_add(policy.refresh_every / 5)
}

fn since(then: Timestamp, now: Timestamp) -> SignedDuration {
    now.duration_since(then)
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

/// Whether one lock file refuses a new lock of this mode; `None` = not known.
///
/// restic never asks whether a lock is stale before it refuses (`checkForOtherLocks`), so stale
/// ones count like live ones. What nobody can decode makes every command fail since restic 0.15;
/// files of 0 bytes are skipped.
pub fn blocks(entry: &LockEntry, mode: LockMode) -> Option<bool> {
    match (entry, mode) {
        (LockEntry::Empty(_), _) => Some(false),
        (LockEntry::Sealed(stub, _), _) if stub.size == 0 => Some(false),
        (LockEntry::Unreadable(..), _) => Some(true),
        (LockEntry::Readable(_) | LockEntry::Sealed(..), LockMode::Exclusive) => Some(true),
        (LockEntry::Readable(lock), LockMode::Shared) => Some(lock.mode == LockMode::Exclusive),
        (LockEntry::Sealed(..), LockMode::Shared) => None,
    }
}

/// What a new lock would meet beside these lock files.
pub fn blocked<'a>(entries: impl IntoIterator<Item = &'a LockEntry>) -> Blocked {
    let mut sum = Blocked { exclusive: Some(false), shared: Some(false) };
    for entry in entries {
        sum.exclusive = either(sum.exclusive, blocks(entry, LockMode::Exclusive));
        sum.shared = either(sum.shared, blocks(entry, LockMode::Shared));
    }
    sum
}

/// One refusal is enough; without one, one unknown leaves it unknown.
fn either(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (None, _) | (_, None) => None,
        (Some(false), Some(false)) => Some(false),
    }
}

/// What these lock files amount to. It follows from what a new lock would meet.
pub fn state<'a>(entries: impl IntoIterator<Item = &'a LockEntry>) -> State {
    match blocked(entries) {
        Blocked { shared: Some(true), .. } => State::Exclusive,
        Blocked { shared: None, .. } | Blocked { exclusive: None, .. } => State::Unknown,
        Blocked { exclusive: Some(true), .. } => State::Shared,
        Blocked { exclusive: Some(false), .. } => State::Free,
    }
}

#[cfg(test)]
mod tests;
