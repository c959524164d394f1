//! This machine's clock is stepped while the exporter runs.

use super::*;

/// What `seen_at`, `seen for` and `held for` are counted from, as seconds before `now`.
fn ages(watch: &Watch, now: i64) -> [i64; 5] {
    let seen = watch.seen();
    let hold = &seen.holds[0];
    let times = [
        seen.at,
        seen.entries[0].first_seen,
        hold.refreshed_at,
        hold.held_since,
        seen.blocked_since.exclusive.expect("it is blocked"),
    ];
    times.map(|time| at(now + watch.off).duration_since(time).as_secs())
}

#[test]
fn no_step_forward_makes_a_name_seem_unrefreshed_or_a_hold_stuck() {
    for step in [3, 31 * MIN, 40 * 24 * H] {
        let mut watch = Watch::new();
        watch.look(0, &[exclusive("a", "p", -30)]);
        watch.look(60, &[exclusive("a", "p", -30)]);
        watch.off = step;
        let seen = watch.look(120, &[exclusive("a", "p", -30)]);
        assert_eq!(ages(&watch, 120), [0, 120, 150, 150, 150], "a step of {step} s");
        let verdict = judge::judge_entry(
            &seen.entries[0].entry,
            seen.entries[0].first_seen,
            &watch.target().policy,
            seen.at,
        );
        assert_ne!(verdict, judge::Verdict::Stale(judge::StaleReason::Unrefreshed));
        // A refresh by a holder whose clock did not step.
        watch.look(330, &[exclusive("b", "p", 300)]);
        assert_eq!(ages(&watch, 330)[1..], [0, if step == 3 { 33 } else { 211 }, 360, 360]);
        assert_eq!(watch.counters().holds_ended.exclusive, 0);
    }
}

#[test]
fn no_step_back_keeps_old_values_or_makes_ages_negative() {
    let mut watch = Watch::new();
    watch.look(0, &[exclusive("a", "p", -34)]);
    watch.fail(60, ErrorClass::Network);
    watch.off = -2 * H;
    watch.fail(120, ErrorClass::Network);
    assert_eq!(ages(&watch, 120), [120, 120, 154, 154, 154]);
    let shown = |seconds: i64| watch.target().seen_at(at(seconds - 2 * H), HOLD).is_some();
    assert!(shown(15 * MIN));
    assert!(!shown(15 * MIN + 1));
    let Phase::Failing { since, .. } = watch.target().phase else { panic!("it fails") };
    assert_eq!(since, at(60 - 2 * H));
}

#[test]
fn a_step_is_noticed_without_a_scan() {
    let mut watch = Watch::new();
    watch.look(0, &[exclusive("a", "p", -30)]);
    assert_eq!(watch.tracker.clock(at(5), boot(5)), None);
    let before = watch.tracker.status().revision;
    watch.off = -H;
    let by = SignedDuration::from_secs(-H);
    assert_eq!(watch.tracker.clock(at(10 - H), boot(10)), Some(by));
    assert_eq!(ages(&watch, 10)[..2], [10, 10]);
    let step = ClockStep { at: at(10 - H), by, together: by.unsigned_abs() };
    assert_eq!(watch.target().clock_step, Some(step));
    assert!(watch.tracker.status().revision > before);
    // A target that comes later has the same machine.
    watch.tracker.retarget(&TargetSet::new([spec("new", "/srv/new")]));
    let name = TargetName::new("new").unwrap();
    assert_eq!(watch.tracker.status().targets[&name].clock_step, Some(step));
}

#[test]
fn a_scan_that_ended_before_the_step_and_comes_late_is_no_step_back() {
    let mut watch = Watch::new();
    watch.look(0, &[exclusive("a", "p", -30)]);
    assert!(watch.tracker.clock(at(70 + H), boot(70)).is_some());
    let seen = watch.look(60, &[exclusive("a", "p", -30)]);
    assert_eq!((seen.at, seen.entries[0].first_seen), (at(60 + H), at(H)));
    let step = watch.target().clock_step.expect("it stepped");
    assert_eq!((step.by, step.together), (SignedDuration::from_hours(1), Duration::from_hours(1)));
}

#[test]
fn a_step_there_and_back_changes_no_time() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.look(60, &[exclusive("a", "p", 30)]);
    let before = watch.seen();
    for (seconds, off) in [(61, H), (62, 0), (63, -H), (64, 0)] {
        watch.tracker.clock(at(seconds + off), boot(seconds)).expect("a step");
    }
    let after = watch.seen();
    assert_eq!(
        (after.at, &after.entries, &after.holds),
        (before.at, &before.entries, &before.holds)
    );
    assert_eq!(after.blocked_since, before.blocked_since);
    let step = watch.target().clock_step.expect("it stepped");
    assert_eq!(step.together, Duration::from_hours(4));
}

#[test]
fn a_clock_that_is_put_right_slowly_makes_no_step() {
    let mut watch = Watch::new();
    for second in 0..3600 {
        assert_eq!(watch.tracker.clock(at(second), boot(second)), None);
    }
    // A slewed clock moves both; reading the two takes a moment.
    let late = Duration::from_millis(1_999);
    assert_eq!(watch.tracker.clock(at(3600), boot(3600) - late), None);
    assert_eq!(watch.target().clock_step, None);
}

#[test]
fn a_small_step_does_not_hide_a_large_one_and_an_old_one_is_forgotten() {
    let mut watch = Watch::new();
    let mut step = |seconds: i64, off: i64| {
        watch.tracker.clock(at(seconds + off), boot(seconds));
        watch.target().clock_step.map(|step| (step.by.as_secs(), step.together.as_secs()))
    };
    assert_eq!(step(0, 0), None);
    assert_eq!(step(60, H), Some((H, 3600)));
    assert_eq!(step(120, H + 3), Some((H, 3603)));
    assert_eq!(step(120 + 30 * MIN + 10, H), Some((-3, 3)));
}

#[test]
fn clocks_at_the_ends_of_time_break_nothing() {
    let mut watch = Watch::new();
    watch.look(0, &[exclusive("a", "p", -30)]);
    for (wall, boot) in [
        (Timestamp::MAX, Duration::ZERO),
        (Timestamp::MIN, Duration::MAX),
        (Timestamp::MAX, Duration::MAX),
        (Timestamp::MIN, Duration::MAX),
    ] {
        watch.tracker.clock(wall, boot);
    }
    watch.look(60, &[exclusive("a", "p", -30)]);
}
