//! What the tracker makes of locks that nobody refreshes: of the kernel, and by existence.

use std::sync::Arc;
use std::time::Duration;

use super::Tracker;
use super::tests::{HOLD, MIN, at, spec};
use crate::judge::State;
use crate::lock::*;
use crate::scan::{Facts, Look, Scan, UnknownWhy};
use crate::source;
use crate::status::*;
use crate::target::*;

fn held(key: &str, tenure: Tenure, command: &str) -> LockEntry {
    LockEntry::Readable(Arc::new(Lock {
        stub: Stub { id: LockId::new(key), size: 0, stored_at: None },
        key: HoldKey::new(key),
        mode: LockMode::Exclusive,
        holder: Holder { command: command.into(), ..Holder::default() },
        tenure,
        liveness: Liveness::Unknown,
        doubt: None,
    }))
}

fn look(tracker: &mut Tracker, seconds: i64, entries: Vec<LockEntry>, facts: Facts) -> Arc<Seen> {
    let spec = Arc::new(spec("t", "/srv/t"));
    let (started_at, ended_at) = (at(seconds - 1), at(seconds));
    let outcome = Ok(Look { entries, facts, ..Look::default() });
    tracker.apply(Scan {
        spec,
        started_at,
        ended_at,
        boot: Duration::from_secs(1_000_000 + seconds.unsigned_abs()),
        took: Duration::ZERO,
        outcome,
    });
    let status = tracker.status();
    Arc::clone(status.targets.values().next().and_then(|target| target.seen()).unwrap())
}

fn tracker() -> Tracker {
    let mut tracker = Tracker::new(source::policy, HOLD);
    tracker.retarget(&TargetSet::new([spec("t", "/srv/t")]));
    tracker
}

#[test]
fn one_look_without_a_kernel_lock_ends_its_hold() {
    let mut tracker = tracker();
    let lock = || vec![held("a", Tenure::Kernel(Origin::Untold), "job")];
    look(&mut tracker, 0, vec![], Facts::default());
    look(&mut tracker, 60, lock(), Facts::default());
    let seen = look(&mut tracker, 120, vec![], Facts::default());
    assert!(seen.holds.is_empty());
    let counters = tracker.status().targets.values().next().unwrap().counters;
    assert_eq!((counters.holds_started.exclusive, counters.holds_ended.exclusive), (1, 1));
    // The same process took it again: another hold, from this look on.
    let seen = look(&mut tracker, 180, lock(), Facts::default());
    assert_eq!(seen.holds[0].held_since, at(180));
}

#[test]
fn a_hold_goes_on_when_a_child_has_it_in_place_of_the_taker() {
    let mut tracker = tracker();
    look(
        &mut tracker,
        60,
        vec![held("a", Tenure::Kernel(Origin::Untold), "bash")],
        Facts::default(),
    );
    let seen = look(
        &mut tracker,
        120,
        vec![held("a", Tenure::Kernel(Origin::Untold), "sleep")],
        Facts::default(),
    );
    assert_eq!(seen.holds[0].held_since, at(60));
    assert_eq!(&*seen.holds[0].holder.command, "sleep");
    assert_eq!(seen.clock_skew, None);
}

#[test]
fn a_file_that_holds_by_existing_is_held_since_it_was_written() {
    let mut tracker = tracker();
    let since = at(-50 * MIN);
    let file = held("a", Tenure::Present { since }, "");
    let seen = look(&mut tracker, 0, vec![file], Facts::default());
    assert_eq!(seen.holds[0].held_since, since);
    assert_eq!(seen.clock_skew, None);
}

#[test]
fn a_look_that_cannot_tell_is_neither_free_nor_the_end_of_a_hold() {
    let mut tracker = tracker();
    let lock = || vec![held("a", Tenure::Kernel(Origin::Untold), "job")];
    look(&mut tracker, 60, lock(), Facts::default());
    let blind = Facts { unknown: Some(UnknownWhy::Namespace), ..Facts::default() };
    for seconds in [120, 180, 240] {
        let seen = look(&mut tracker, seconds, vec![], blind.clone());
        assert_eq!(seen.state(), State::Unknown);
        assert_eq!(seen.blocked().exclusive, None);
        assert!(seen.holds.is_empty());
    }
    let seen = look(&mut tracker, 300, lock(), Facts::default());
    assert_eq!(seen.holds[0].held_since, at(60));
    assert_eq!(seen.blocked_since.exclusive, Some(at(60)));
    assert_eq!(seen.state(), State::Exclusive);
}
