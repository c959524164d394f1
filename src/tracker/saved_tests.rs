//! A tracker that takes up what another one remembered goes on as if it had been there.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::Tracker;
use super::tests::{HOLD, MIN, at, spec};
use crate::lock::*;
use crate::scan::{Look, Scan};
use crate::source;
use crate::status::*;
use crate::target::*;

fn fresh() -> Tracker {
    Tracker::new(source::policy, HOLD)
}

fn targets() -> TargetSet {
    TargetSet::new([spec("t", "/srv/t")])
}

/// Another process: everything goes through text.
fn restarted(tracker: &Tracker) -> Tracker {
    let text = serde_json::to_string(&tracker.save()).unwrap();
    let mut next = fresh();
    next.restore(serde_json::from_str(&text).unwrap());
    next.retarget(&targets());
    next
}

/// One lock of a few holders, under one of a few names.
fn lock(name: u8, who: u8, age: i64, now: i64, leased: bool) -> LockEntry {
    let mode = if who == 0 { LockMode::Exclusive } else { LockMode::Shared };
    let tenure = match leased {
        true => Tenure::Leased { refreshed_at: Some(at(now - age)) },
        false => Tenure::Kernel(Origin::Untold),
    };
    LockEntry::Readable(Arc::new(Lock {
        stub: Stub { id: LockId::new(format!("{name}{leased}")), size: 137, stored_at: None },
        key: HoldKey::new(format!("{who}{leased}")),
        mode,
        holder: Holder { pid: Some(who.into()), ..Holder::default() },
        tenure,
        liveness: Liveness::Unknown,
        doubt: None,
    }))
}

fn look(tracker: &mut Tracker, now: i64, entries: Vec<LockEntry>) -> Arc<Seen> {
    let spec = Arc::new(spec("t", "/srv/t"));
    let outcome = Ok(Look { entries, ..Look::default() });
    let (started_at, ended_at) = (at(now - 1), at(now));
    tracker.apply(Scan {
        spec,
        started_at,
        ended_at,
        boot: Duration::from_secs(1_000_000 + now.unsigned_abs()),
        took: Duration::ZERO,
        outcome,
    });
    let status = tracker.status();
    Arc::clone(status.targets.values().next().and_then(|target| target.seen()).unwrap())
}

#[test]
fn a_restart_in_the_middle_of_a_hold_keeps_its_start() {
    let mut tracker = fresh();
    tracker.retarget(&targets());
    look(&mut tracker, 0, vec![]);
    let held = |now| vec![lock(1, 0, 0, now, false)];
    look(&mut tracker, MIN, held(MIN));
    look(&mut tracker, 20 * MIN, held(20 * MIN));
    let mut next = restarted(&tracker);
    let seen = look(&mut next, 40 * MIN, held(40 * MIN));
    assert_eq!(seen.holds[0].held_since, at(MIN));
    assert!(seen.holds[0].since_is_exact);
    assert_eq!(seen.blocked_since.exclusive, Some(at(MIN)));
    // It was taken while nobody looked: a hold that ended is not continued.
    let mut next = restarted(&tracker);
    assert!(look(&mut next, 40 * MIN, vec![]).holds.is_empty());
}

#[test]
fn a_clock_that_was_set_while_nobody_ran_is_followed() {
    let mut tracker = fresh();
    tracker.retarget(&targets());
    look(&mut tracker, 0, vec![]);
    look(&mut tracker, MIN, vec![lock(1, 0, 0, MIN, false)]);
    // Forty minutes pass, and the clock is set an hour forward in them.
    let mut next = restarted(&tracker);
    let by = next.clock(at(100 * MIN), Duration::from_secs(1_000_000 + 40 * 60)).unwrap();
    assert_eq!(by, SignedDuration::from_hours(1));
    let outcome = Ok(Look { entries: vec![lock(1, 0, 0, 0, false)], ..Look::default() });
    let spec = Arc::new(spec("t", "/srv/t"));
    let (started_at, ended_at) = (at(100 * MIN), at(100 * MIN));
    let boot = Duration::from_secs(1_000_000 + 40 * 60);
    next.apply(Scan { spec, started_at, ended_at, boot, took: Duration::ZERO, outcome });
    let status = next.status();
    let seen = status.targets.values().next().and_then(|target| target.seen()).unwrap();
    // It was held for 39 minutes, as it was.
    assert_eq!(seen.holds[0].held_since, at(61 * MIN));
    assert_eq!(seen.blocked_since.exclusive, Some(at(61 * MIN)));
}

#[test]
fn another_boot_forgets_who_had_a_kernel_lock_and_not_that_somebody_had() {
    let file = || {
        let path = "/run/job.lock".into();
        let (role, format) = (Role::Job, FileFormat::Kernel);
        let source = SourceSpec::File(FileSpec { path, role, format });
        TargetSet::new([TargetSpec { source, ..spec("t", "/srv/t") }])
    };
    let mut tracker = fresh();
    tracker.retarget(&file());
    let scan = |tracker: &mut Tracker, now: i64, entries| {
        let outcome = Ok(Look { entries, ..Look::default() });
        let spec = Arc::clone(file().iter().next().unwrap());
        let boot = Duration::from_secs(now.unsigned_abs());
        let (started_at, ended_at, took) = (at(now), at(now), Duration::ZERO);
        tracker.apply(Scan { spec, started_at, ended_at, boot, took, outcome });
        let status = tracker.status();
        Arc::clone(status.targets.values().next().and_then(|target| target.seen()).unwrap())
    };
    assert!(!scan(&mut tracker, 1000, vec![]).ever_held);
    assert!(scan(&mut tracker, 2000, vec![lock(1, 0, 0, 0, false)]).ever_held);
    let mut saved = tracker.save();
    saved.forget_boot();
    let mut next = fresh();
    next.restore(saved);
    next.retarget(&file());
    // The clocks have nothing to do with those of the boot before.
    let seen = scan(&mut next, 9000, vec![lock(1, 0, 0, 0, false)]);
    assert!(seen.ever_held);
    assert_eq!((seen.holds[0].held_since, seen.holds[0].since_is_exact), (at(9000), false));
}

#[test]
fn what_was_remembered_of_another_place_is_not_taken_up() {
    let mut tracker = fresh();
    tracker.retarget(&targets());
    look(&mut tracker, 0, vec![lock(1, 0, 0, 0, true)]);
    let saved = tracker.save();
    let mut moved = fresh();
    moved.restore(saved.clone());
    moved.retarget(&TargetSet::new([spec("t", "/srv/elsewhere")]));
    assert_eq!(moved.save().targets["t"], {
        let mut fresh = fresh();
        fresh.retarget(&TargetSet::new([spec("t", "/srv/elsewhere")]));
        fresh.save().targets["t"].clone()
    });
    let mut newer = fresh();
    let mut unknown = saved;
    unknown.version += 1;
    newer.restore(unknown);
    newer.retarget(&targets());
    assert_ne!(newer.save(), tracker.save());
}

/// Name, holder, age, and whether it is refreshed.
type AnyLock = (u8, u8, i64, bool);

/// Looks: minutes since the one before, and which locks are there.
fn history() -> impl Strategy<Value = Vec<(i64, Vec<AnyLock>)>> {
    let lock = (0_u8..4, 0_u8..3, prop_oneof![0_i64..300, 0_i64..8000], any::<bool>());
    prop::collection::vec((1_i64..50, prop::collection::vec(lock, 0..4)), 1..12)
}

proptest! {
    #[test]
    fn nobody_can_tell_that_the_process_was_restarted(history in history()) {
        let mut whole = fresh();
        whole.retarget(&targets());
        let mut broken = fresh();
        broken.retarget(&targets());
        let mut now = 0;
        for (minutes, locks) in history {
            now += minutes * MIN;
            let entries: Vec<_> = locks
                .iter()
                .map(|&(name, who, age, leased)| lock(name, who, age, now, leased))
                .collect();
            let one = look(&mut whole, now, entries.clone());
            let two = look(&mut broken, now, entries);
            prop_assert_eq!(&one.holds, &two.holds);
            prop_assert_eq!(&one.entries, &two.entries);
            prop_assert_eq!(one.blocked_since, two.blocked_since);
            prop_assert_eq!(whole.save(), broken.save());
            broken = restarted(&broken);
        }
    }

    #[test]
    fn numbers_of_a_damaged_file_do_no_harm(turn: u64, no: u64, refreshes: u64) {
        let mut tracker = fresh();
        tracker.retarget(&targets());
        look(&mut tracker, 0, vec![lock(1, 0, 0, 0, true)]);
        let mut text = serde_json::to_value(tracker.save()).unwrap();
        let target = &mut text["targets"]["t"];
        target["turn"] = turn.into();
        for (field, value) in [("no", no), ("turn", turn), ("refreshes", refreshes)] {
            target["holds"][0][field] = value.into();
        }
        let mut next = fresh();
        next.restore(serde_json::from_value(text).unwrap());
        next.retarget(&targets());
        look(&mut next, MIN, vec![lock(2, 0, 0, MIN, true)]);
        look(&mut next, 2 * MIN, vec![lock(3, 0, 0, 2 * MIN, true), lock(1, 0, 99, MIN, true)]);
    }
}

fn search() -> TargetSpec {
    let mut search = spec("fleet", "/srv");
    let SourceSpec::Restic(each) = search.source else { panic!("is a repository") };
    let (exclude, include) = (Vec::new(), Vec::new());
    let sought = Sought::Repositories(Repositories { each, depth: 1, exclude, include });
    search.source = SourceSpec::Search(SearchSpec { sought, max: 9, is_shown: false });
    search
}

/// Its first search may fail for as long as its backend is away.
#[test]
fn what_a_search_has_yet_to_find_again_is_remembered_over_several_restarts() {
    let apply = |tracker: &mut Tracker, spec: &TargetSpec, now: i64, look: Look| {
        tracker.apply(Scan {
            spec: Arc::new(spec.clone()),
            started_at: at(now - 1),
            ended_at: at(now),
            boot: Duration::from_secs(1_000_000 + now.unsigned_abs()),
            took: Duration::ZERO,
            outcome: Ok(look),
        });
    };
    let only_search = || TargetSet::new([search()]);
    let restarted = |tracker: &Tracker| {
        let mut next = fresh();
        next.restore(tracker.save());
        next.retarget(&only_search());
        next
    };
    let names = |tracker: &Tracker| tracker.save().targets.into_keys().collect::<Vec<_>>();
    let found = |name: &str| search().find(&TargetName::new(name).unwrap(), name[6..].as_ref());
    let (a, b) = (found("fleet/a").unwrap(), found("fleet/b").unwrap());
    let all = || TargetSet::new([search(), a.clone(), b.clone(), spec("fleeting", "/srv/x")]);

    let mut tracker = fresh();
    tracker.retarget(&all());
    for target in [&a, &b] {
        let entries = vec![lock(1, 1, 0, 0, true)];
        apply(&mut tracker, target, 0, Look { entries, ..Look::default() });
    }
    let mut twice = restarted(&restarted(&tracker));
    // What no search will find again is not kept.
    assert_eq!(names(&twice), ["fleet/a", "fleet/b"]);
    twice.retarget(&TargetSet::new([search(), a.clone()]));
    apply(&mut twice, &search(), MIN, Look::default());
    assert_eq!(names(&twice), ["fleet/a"], "the search ended without the other");
    let entries = vec![lock(1, 1, MIN, MIN, true)];
    apply(&mut twice, &a, MIN, Look { entries, ..Look::default() });
    let status = twice.status();
    assert_eq!(status.targets[&a.name].seen().unwrap().entries[0].first_seen, at(0));
    assert_eq!(status.targets.len(), 1, "a search that another shard shows is not shown");
}
