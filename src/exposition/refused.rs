//! What a new lock of a target would meet now, in the words of those who wait for it.

use std::time::Duration;

use jiff::Timestamp;

use crate::evidence::lasting;
use crate::judge::State;
use crate::lock::LockMode;
use crate::status::{Phase, Seen, TargetStatus};
use crate::target::Proof;

/// The state of a target's locks as one word; a search has none.
pub(super) fn state(target: &TargetStatus, now: Timestamp, hold: Duration) -> &'static str {
    match target.spec.search() {
        Some(_) => "search",
        None => target.seen_at(now, hold).map_or(State::Unknown, |seen| seen.state()).as_str(),
    }
}

/// What would be refused now, and for how long it has been; nothing of a search.
pub(super) fn refused(target: &TargetStatus, now: Timestamp, hold: Duration) -> String {
    if target.spec.search().is_some() {
        return String::new();
    }
    let Some(seen) = target.seen_at(now, hold) else { return "not known".into() };
    let blocked = seen.blocked();
    let (what, since_of) = match (blocked.shared, blocked.exclusive) {
        (Some(true), _) => ("everything, backups included", Some(LockMode::Shared)),
        (None, _) => ("prune, forget, check; perhaps backups", Some(LockMode::Exclusive)),
        (Some(false), Some(true)) => ("prune, forget, check", Some(LockMode::Exclusive)),
        (Some(false), Some(false)) => ("nothing", None),
        (Some(false), None) => ("not known", None),
    };
    let what = match (target.spec.proof(), blocked.shared, blocked.exclusive) {
        (Proof::Lease, ..) => what,
        (Proof::Kernel | Proof::Presence, Some(true), _) => "every other lock",
        (Proof::Kernel | Proof::Presence, _, Some(true)) => "exclusive locks",
        (Proof::Kernel | Proof::Presence, _, Some(false)) => "nothing",
        (Proof::Kernel | Proof::Presence, _, None) => "not known",
    };
    match (since_of.and_then(|mode| for_how_long(seen, mode, now)), &target.phase) {
        (Some(lasts), Phase::Seen(_)) => format!("{what}, for {lasts}"),
        // Nobody knows whether it still does.
        (Some(lasts), Phase::Failing { .. } | Phase::Pending) => {
            format!("{what}, begun {lasts} ago")
        }
        (None, _) => what.to_owned(),
    }
}

/// For how long new locks of a mode have been refused: at least, unless the one that refuses them
/// was seen to begin.
fn for_how_long(seen: &Seen, mode: LockMode, now: Timestamp) -> Option<String> {
    let (since, surely) = match mode {
        LockMode::Exclusive => (seen.blocked_since.exclusive, seen.blocked_surely_since.exclusive),
        LockMode::Shared => (seen.blocked_since.shared, seen.blocked_surely_since.shared),
    };
    let since = since?;
    let begun = seen.holds.iter().any(|hold| hold.since_is_exact && hold.held_since == since);
    let at_least = if begun { "" } else { "at least " };
    let ago = |then| now.duration_since(then);
    Some(lasting(at_least, ago(since), ago(surely.unwrap_or(since))))
}
