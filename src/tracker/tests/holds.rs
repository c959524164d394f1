//! What becomes of holds: refreshes, leftovers, gaps, look-alikes, wrong clocks.

use super::*;

#[test]
fn a_hold_lasts_across_refreshes_with_and_without_overlap() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    let seen = watch.look(60, &[exclusive("a", "p", 30)]);
    assert_eq!(seen.holds[0].held_since, at(30));
    assert!(seen.holds[0].since_is_exact);
    // Old and new file of one refresh.
    let seen = watch.look(331, &[exclusive("a", "p", 30), exclusive("b", "p", 330)]);
    assert_eq!(seen.holds.len(), 1);
    assert_eq!(seen.holds[0].files, [LockId::new("b"), LockId::new("a")]);
    assert_eq!(seen.holds[0].refreshed_at, at(330));
    assert_eq!(seen.holds[0].refreshes, 1);
    watch.look(391, &[exclusive("b", "p", 330)]);
    // No look fell between save and delete.
    let seen = watch.look(691, &[exclusive("c", "p", 630)]);
    assert_eq!(seen.holds[0].held_since, at(30));
    assert_eq!(seen.holds[0].refreshes, 2);
    let counters = watch.counters();
    assert_eq!((counters.refreshes, counters.holds_started.exclusive), (2, 1));
    assert_eq!(counters.holds_ended.exclusive, 0);
}

#[test]
fn a_suspended_holder_that_comes_back_is_the_same_hold() {
    let mut watch = Watch::new();
    let seen = watch.look(2 * H, &[shared("a", "h", 0)]);
    assert_eq!(seen.holds[0].held_since, at(0));
    let events = watch.events(2 * H + 60, &[shared("b", "h", 2 * H + 50)]);
    let seen = watch.seen();
    assert_eq!(seen.holds[0].held_since, at(0));
    assert_eq!(seen.holds[0].refreshed_at, at(2 * H + 50));
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Refreshed, EventKind::VerdictChanged { stale: false }]);
    // The stale file was replaced by a refresh, nobody ran unlock.
    watch.look(2 * H + 120, &[shared("b", "h", 2 * H + 50)]);
    watch.look(2 * H + 180, &[shared("b", "h", 2 * H + 50)]);
    assert_eq!(watch.counters().stale_removals, 0);
}

#[test]
fn a_hold_survives_one_look_without_it_and_is_not_shown_then() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.look(60, &[exclusive("a", "p", 30)]);
    let seen = watch.look(120, &[]);
    assert!(seen.holds.is_empty());
    assert_eq!(seen.blocked_since.exclusive, None);
    assert_eq!(watch.counters().holds_ended.exclusive, 0);
    let seen = watch.look(180, &[exclusive("a", "p", 30)]);
    assert_eq!(seen.holds[0].held_since, at(30));
    assert_eq!(seen.entries[0].first_seen, at(60));
    assert_eq!(seen.blocked_since.exclusive, Some(at(30)));
    // A refresh behind the bad listing continues it too.
    watch.look(240, &[]);
    let seen = watch.look(300, &[exclusive("b", "p", 290)]);
    assert_eq!(seen.holds[0].held_since, at(30));
    assert_eq!(seen.holds[0].refreshes, 1);
    assert_eq!(watch.counters().holds_started.exclusive, 1);
}

#[test]
fn a_hold_that_two_looks_miss_has_ended() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.look(60, &[exclusive("a", "p", 30)]);
    assert_eq!(watch.events(120, &[]), []);
    let events = watch.events(180, &[]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, EventKind::Released);
    assert_eq!(watch.counters().holds_ended.exclusive, 1);
    let durations = &watch.tracker.status().durations[&("restic", LockMode::Exclusive)];
    // From 30 s to the begin of the first look without it at 119 s.
    assert_eq!(durations.counts.iter().sum::<u64>(), 1);
    assert_eq!(durations.sum_seconds, 89.0);
    let seen = watch.look(240, &[exclusive("b", "p", 230)]);
    assert_eq!(seen.holds[0].held_since, at(230));
    assert_eq!(watch.counters().holds_started.exclusive, 2);
}

#[test]
fn failed_scans_do_not_count_as_looks_without_a_hold() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.look(60, &[exclusive("a", "p", 30)]);
    for round in 2..40 {
        watch.fail(round * 60, ErrorClass::Network);
    }
    let seen = watch.look(40 * 60, &[exclusive("b", "p", 39 * 60)]);
    assert_eq!(seen.holds[0].held_since, at(30));
    let counters = watch.counters();
    assert_eq!((counters.scans, counters.scan_failures), (41, 38));
}

#[test]
fn leftovers_of_refreshes_are_one_hold() {
    let mut watch = Watch::new();
    let files: Vec<_> = (0..7).map(|n| shared(&format!("f{n}"), "p", n * 300)).collect();
    for seconds in [1801, 1861, 1921] {
        let seen = watch.look(seconds, &files);
        assert_eq!(seen.holds.len(), 1);
        assert_eq!(seen.holds[0].files.len(), 7);
        assert_eq!(seen.holds[0].files[0], LockId::new("f6"));
        assert_eq!(seen.holds[0].refreshed_at, at(1800));
        assert_eq!(seen.holds[0].held_since, at(0));
        assert!(!seen.holds[0].since_is_exact);
    }
    assert_eq!(watch.counters().refreshes, 0);
}

#[test]
fn leftovers_of_155_hours_are_one_hold_that_is_alive() {
    let mut watch = Watch::new();
    let files: Vec<_> = (0..1860).map(|n| shared(&format!("f{n:04}"), "p", n * 300)).collect();
    let now = 1859 * 300 + 120;
    watch.look(now, &files);
    let seen = watch.look(now + 1, &files);
    assert_eq!(seen.holds.len(), 1);
    assert_eq!(seen.holds[0].refreshed_at, at(now - 120));
    let stale = |seen: &&SeenEntry| {
        judge::judge_entry(&seen.entry, seen.first_seen, &watch.target().policy, at(now)).is_stale()
    };
    assert_eq!(seen.entries.iter().filter(stale).count(), 1854);
}

#[test]
fn thirty_runs_that_may_not_delete_are_thirty_holds() {
    let mut watch = Watch::new();
    let files: Vec<_> =
        (0..30).map(|n| shared(&format!("f{n:02}"), &format!("vm1 {n}"), n * 24 * H)).collect();
    let seen = watch.look(30 * 24 * H, &files);
    assert_eq!(seen.holds.len(), 30);
    assert_eq!(seen.blocked_since.exclusive, Some(at(0)));
}

#[test]
fn what_lies_behind_a_gap_in_two_looks_running_is_a_hold_of_its_own() {
    let mut watch = Watch::new();
    watch.look(0, &[shared("dead", "pod", 0)]);
    watch.look(H - 60, &[shared("dead", "pod", 0)]);
    // A look-alike starts an hour later: same host name, pid 1 as well.
    let old = shared("dead", "pod", 0);
    let seen = watch.look(H + 60, &[old.clone(), shared("a", "pod", H + 30)]);
    assert_eq!(seen.holds.len(), 1, "one look may fall between a late refresh and its delete");
    assert_eq!(watch.counters().refreshes, 0);
    let seen = watch.look(H + 120, &[old.clone(), shared("a", "pod", H + 30)]);
    assert_eq!(seen.holds.len(), 2);
    assert_eq!(seen.holds[0].held_since, at(0));
    assert_eq!(seen.holds[0].refreshed_at, at(0));
    assert_eq!(seen.holds[1].held_since, at(H + 30));
    assert!(seen.holds[1].since_is_exact);
    assert_eq!(watch.counters().holds_started.shared, 1);
    // The live one goes on and ends; the dead one stays.
    let seen = watch.look(H + 400, &[old.clone(), shared("b", "pod", H + 330)]);
    assert_eq!(seen.holds[1].refreshes, 1);
    assert_eq!(seen.holds[1].held_since, at(H + 30));
    watch.look(H + 460, std::slice::from_ref(&old));
    let seen = watch.look(H + 520, &[old]);
    assert_eq!(seen.holds.len(), 1);
    assert_eq!(seen.holds[0].files, [LockId::new("dead")]);
    assert_eq!(watch.counters().holds_ended.shared, 1);
}

#[test]
fn a_late_refresh_seen_before_its_delete_is_no_second_hold() {
    let mut watch = Watch::new();
    watch.look(0, &[shared("a", "laptop", 0)]);
    watch.look(3 * H, &[shared("a", "laptop", 0)]);
    let both = [shared("a", "laptop", 0), shared("b", "laptop", 3 * H + 50)];
    assert_eq!(watch.look(3 * H + 60, &both).holds.len(), 1);
    let seen = watch.look(3 * H + 120, &[shared("b", "laptop", 3 * H + 50)]);
    assert_eq!(seen.holds.len(), 1);
    assert_eq!(seen.holds[0].held_since, at(0));
    assert_eq!((seen.holds[0].refreshes, watch.counters().refreshes), (1, 1));
}

#[test]
fn a_leftover_that_falls_behind_leaves_the_live_hold_its_start() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.look(60, &[exclusive("a", "p", 30)]);
    // The delete of `a` failed once; later refreshes go well.
    let mut seen = watch.seen();
    for round in 1..10 {
        let own = 30 + round * 300;
        let files = [exclusive("a", "p", 30), exclusive(&format!("r{round}"), "p", own)];
        seen = watch.look(own + 20, &files);
    }
    let mut since: Vec<_> = seen.holds.iter().map(|h| (h.held_since, h.refreshed_at)).collect();
    since.sort();
    assert_eq!(since, [(at(30), at(30)), (at(30), at(30 + 2700))]);
    assert_eq!(watch.counters().holds_started.exclusive, 1);
    assert_eq!(watch.counters().refreshes, 9);
}

#[test]
fn leftovers_of_a_clock_ahead_that_come_with_one_look_are_one_hold() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.look(60, &[shared("x", "p", 3 * H + 30)]);
    // Nobody looked for 50 minutes; the names are in the opposite order of the times.
    let files: Vec<_> = (0..11)
        .map(|n| match n {
            0 => shared("x", "p", 3 * H + 30),
            n => shared(&format!("f{}", 20 - n), "p", 3 * H + 30 + n * 300),
        })
        .collect();
    for seconds in [3060, 3120, 3180] {
        let seen = watch.look(seconds, &files);
        assert_eq!(seen.holds.len(), 1);
        assert_eq!(seen.holds[0].files[0], LockId::new("f10"));
    }
}

#[test]
fn a_leftover_above_a_gap_does_not_make_its_holder_seem_to_start() {
    let mut watch = Watch::new();
    let old = [shared("old", "p", -2 * H), shared("left", "p", -25 * MIN)];
    let with = |file| old.iter().cloned().chain([file]).collect::<Vec<_>>();
    watch.look(0, &with(shared("a", "p", -60)));
    for (seconds, id) in [(600, "b"), (900, "c"), (1200, "d")] {
        watch.look(seconds, &with(shared(id, "p", seconds - 60)));
    }
    let seen = watch.seen();
    assert_eq!(seen.holds.last().unwrap().held_since, at(-25 * MIN));
    let counters = watch.counters();
    assert_eq!((counters.holds_started.shared, counters.refreshes), (0, 3));
}

#[test]
fn a_late_refresh_beside_a_leftover_is_no_start() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    let left = shared("left", "p", 30);
    watch.look(60, std::slice::from_ref(&left));
    watch.look(360, &[left.clone(), shared("a", "p", 330)]);
    watch.look(30 * MIN, &[left.clone(), shared("a", "p", 330)]);
    // It slept; one look saw `a`, the next one its refresh of 33 minutes later.
    for minute in [39, 40, 41] {
        watch.look(minute * MIN, &[left.clone(), shared("b", "p", 330 + 33 * MIN)]);
    }
    let counters = watch.counters();
    assert_eq!((counters.holds_started.shared, counters.refreshes), (1, 2));
    assert_eq!(watch.seen().holds.len(), 2);
    assert_eq!(watch.seen().holds[1].held_since, at(30));
}

#[test]
fn a_refresh_goes_on_with_the_look_alike_whose_file_is_gone() {
    let mut watch = Watch::new();
    // Both were there at the first look; the living one's clock is 3 hours behind.
    let dead = shared("dead", "pod", -MIN);
    for seconds in [60, 120] {
        watch.look(seconds, &[dead.clone(), shared("a", "pod", -3 * H)]);
    }
    let seen = watch.look(360, &[dead, shared("b", "pod", 300 - 3 * H)]);
    assert_eq!(seen.holds.len(), 2);
    assert_eq!(watch.counters().holds_started.shared, 0);
    assert_eq!(seen.holds.iter().map(|hold| hold.refreshes).sum::<u64>(), 1);
}

#[test]
fn a_clock_that_is_put_right_between_two_leftovers_makes_no_gap() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    let files = [shared("a", "p", 30 - 2 * H), shared("b", "p", 330)];
    watch.look(60, &files[..1]);
    for seconds in [360, 420, 480] {
        assert_eq!(watch.look(seconds, &files).holds.len(), 1);
    }
}

#[test]
fn a_gap_in_which_nobody_looked_shows_no_start() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    let old = shared("old", "p", 30);
    watch.look(60, std::slice::from_ref(&old));
    // Its delete was lost, and then nobody looked for an hour of refreshes.
    for round in 0..2 {
        watch.look(H + round * 60, &[old.clone(), shared("new", "p", H - 30)]);
    }
    assert_eq!(watch.seen().holds.len(), 2);
    assert_eq!(watch.counters().holds_started.shared, 1);
}

#[test]
fn a_left_behind_part_that_is_unlocked_takes_no_refresh_with_it() {
    let mut watch = Watch::new();
    let old = shared("old", "p", -H);
    watch.look(0, &[old.clone(), shared("a", "p", 0)]);
    watch.look(60, &[old, shared("a", "p", 0)]);
    assert_eq!(watch.seen().holds.len(), 2);
    // Between two looks the old file is unlocked and the delete of `a` is lost.
    let seen = watch.look(360, &[shared("a", "p", 0), shared("b", "p", 300)]);
    assert_eq!(seen.holds.len(), 1);
    assert_eq!(seen.holds[0].files, [LockId::new("b"), LockId::new("a")]);
}

#[test]
fn a_holder_found_above_a_gap_at_the_first_look_is_not_seen_to_start() {
    for older in 1..4 {
        let mut watch = Watch::new();
        let old = (0..older).map(|n| shared(&format!("old{n}"), "p", (n - older) * H));
        let old: Vec<_> = old.collect();
        let with = |file| old.iter().cloned().chain([file]).collect::<Vec<_>>();
        watch.look(0, &with(shared("a", "p", -60)));
        // The gaps are there for the second time, and above them a refresh of what was there.
        let seen = watch.look(300, &with(shared("b", "p", 240)));
        assert_eq!(seen.holds.len(), older as usize + 1);
        let live = seen.holds.last().unwrap();
        assert_eq!((live.held_since, live.since_is_exact), (at(-60), false));
        assert_eq!((live.refreshes, watch.counters().refreshes), (1, 1));
        assert_eq!(watch.counters().holds_started.shared, 0);
    }
}

#[test]
fn one_process_with_two_modes_is_two_holds() {
    let mut watch = Watch::new();
    let seen = watch.look(0, &[shared("a", "p", 0), exclusive("b", "p", 0)]);
    assert_eq!(seen.holds.len(), 2);
}

#[test]
fn two_holders_with_equal_labels_are_two_holds() {
    let mut watch = Watch::new();
    let of = |id: &str, key: &str| {
        let LockEntry::Readable(lock) = shared(id, "h", 0) else { panic!("not a lock") };
        LockEntry::Readable(Arc::new(Lock { key: HoldKey::new(key), ..(*lock).clone() }))
    };
    let seen = watch.look(0, &[of("a", "h pid 7"), of("b", "h pid 8")]);
    assert_eq!(seen.holds.len(), 2);
    assert_eq!(seen.holds[0].holder, seen.holds[1].holder);
}

#[test]
fn a_half_written_refresh_is_one_holder_and_two_files() {
    let mut watch = Watch::new();
    let empty = LockEntry::Empty(Stub { id: LockId::new("b"), size: 0, stored_at: None });
    let seen = watch.look(23 * MIN, &[shared("a", "n", 0), empty]);
    assert_eq!((seen.entries.len(), seen.holds.len()), (2, 1));
}

#[test]
fn a_dead_lock_of_a_clock_ahead_is_stuck_from_first_sight_on() {
    let mut watch = Watch::new();
    let seen = watch.look(60, &[exclusive("a", "ahead", 24 * H)]);
    assert_eq!(seen.holds[0].refreshed_at, at(60));
    assert_eq!(seen.clock_skew, Some(SignedDuration::from_secs(24 * H - 60)));
    let seen = watch.look(60 + 30 * MIN, &[exclusive("a", "ahead", 24 * H)]);
    assert_eq!(seen.holds[0].refreshed_at, at(60));
    assert_eq!(seen.clock_skew, None, "the name is known for too long to tell of clocks");
}

#[test]
fn a_live_lock_of_a_clock_behind_is_not_stuck_once_a_refresh_was_seen() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    let seen = watch.look(60, &[exclusive("a", "behind", 30 - 45 * MIN)]);
    assert_eq!(seen.holds[0].refreshed_at, at(-1), "not before the look that did not see it");
    assert_eq!(seen.clock_skew, Some(SignedDuration::from_secs(31 - 45 * MIN)));
    let seen = watch.look(360, &[exclusive("b", "behind", 330 - 45 * MIN)]);
    assert!(seen.holds[0].refreshed_at >= at(59));
    assert_eq!(seen.holds[0].held_since, at(-1));
}

#[test]
fn the_storage_tells_the_skew_where_it_has_times() {
    let mut watch = Watch::new();
    let entry = |id: &str, own: i64, stored: i64| {
        let LockEntry::Readable(lock) = shared(id, id, own) else { panic!("not a lock") };
        let stub = Stub { stored_at: Some(at(stored)), ..lock.stub.clone() };
        LockEntry::Readable(Arc::new(Lock { stub, ..(*lock).clone() }))
    };
    let seen = watch.look(45 * MIN, &[entry("a", 0, 45 * MIN), entry("b", 44 * MIN, 45 * MIN)]);
    assert_eq!(seen.clock_skew, Some(SignedDuration::from_secs(-45 * MIN)));
}

#[test]
fn an_old_client_that_keeps_its_time_is_told_by_new_names() {
    let mut watch = Watch::new();
    for round in 0..4 {
        let now = 41 * H + round * 300;
        let seen = watch.look(now, &[exclusive(&format!("r{round}"), "old", 0)]);
        assert_eq!(seen.holds[0].keeps_old_time, round > 0);
        assert_eq!(seen.holds[0].held_since, at(0));
        // From the first refresh on that was seen, new names are refreshes.
        if round > 0 {
            assert!(seen.holds[0].refreshed_at >= at(now - 301));
        }
    }
    assert_eq!(watch.counters().refreshes, 3);
}

#[test]
fn a_lock_without_a_time_is_dated_by_storage_or_first_sight() {
    let mut watch = Watch::new();
    let seen = watch.look(0, &[lock("a", "p", LockMode::Shared, None)]);
    assert_eq!((seen.holds[0].refreshed_at, seen.holds[0].held_since), (at(0), at(0)));
}
