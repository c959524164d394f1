//! Since when something is refused.

use super::*;

#[test]
fn blocked_since_is_the_start_of_the_oldest_hold_right_after_a_start() {
    let mut watch = Watch::new();
    let seen = watch.look(0, &[exclusive("a", "p", -33 * 24 * H), shared("b", "q", -60)]);
    let since = Some(at(-33 * 24 * H));
    assert_eq!(seen.blocked_since, PerMode { exclusive: since, shared: since });
}

#[test]
fn what_was_sealed_at_the_first_look_dates_the_run_once_its_key_is_there() {
    let mut watch = Watch::new();
    watch.look(0, &[sealed("a", None)]);
    let seen = watch.look(3, &[exclusive("a", "p", -33 * 24 * H), shared("b", "q", -3 * H)]);
    // The run for exclusive locks began at the sealed look; a file that came after it dates it not.
    let since = Some(at(-33 * 24 * H));
    assert_eq!(seen.blocked_since, PerMode { exclusive: since, shared: since });
    let seen = watch.look(60, &[exclusive("c", "r", -99 * 24 * H)]);
    assert_eq!(seen.blocked_since.exclusive, since);
}

#[test]
fn blocked_since_outlives_the_locks_that_follow_one_another() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    let mut seen = watch.seen();
    for round in 0..100 {
        let (id, who) = (format!("f{round}"), format!("pod{round}"));
        seen = watch.look((round + 1) * 60, &[shared(&id, &who, round * 60 + 30)]);
    }
    assert_eq!(seen.blocked_since.exclusive, Some(at(30)));
    assert_eq!(seen.blocked_since.shared, None);
    let seen = watch.look(101 * 60, &[]);
    assert_eq!(seen.blocked_since.exclusive, None);
}

#[test]
fn short_shared_locks_do_not_reset_what_a_dead_one_blocks() {
    let mut watch = Watch::new();
    let dead = shared("dead", "volsync", -26 * H);
    for round in 0..30 {
        watch.look(round * 28 * 60, std::slice::from_ref(&dead));
        let short = shared(&format!("s{round}"), "job", round * 28 * 60 + 30);
        let seen = watch.look(round * 28 * 60 + 60, &[dead.clone(), short]);
        assert_eq!(seen.blocked_since.exclusive, Some(at(-26 * H)));
        assert_eq!(seen.blocked_since.shared, None);
        assert_eq!(seen.holds.len(), 2);
    }
}

#[test]
fn unreadable_files_block_since_they_were_stored_or_first_seen() {
    for (stored, since) in [(Some(-9 * H), -9 * H), (None, 0)] {
        let mut watch = Watch::new();
        let seen = watch.look(0, &[unreadable("u", stored)]);
        assert_eq!(seen.blocked_since.shared, Some(at(since)));
    }
    // One that appears between two looks cannot have blocked before the first of them.
    let mut watch = Watch::new();
    watch.look(0, &[]);
    let seen = watch.look(60, &[unreadable("u", Some(-9 * H))]);
    assert_eq!(seen.blocked_since.shared, Some(at(-1)));
}

#[test]
fn failed_scans_do_not_end_a_run_but_a_long_pause_does() {
    let mut watch = Watch::new();
    watch.look(0, &[shared("a", "p", -60)]);
    watch.fail(60, ErrorClass::Timeout);
    let seen = watch.look(14 * MIN, &[shared("b", "q", 13 * MIN)]);
    assert_eq!(seen.blocked_since.exclusive, Some(at(-60)));
    // Nobody knows whether it was free within the next 20 minutes.
    let seen = watch.look(34 * MIN, &[shared("c", "r", 33 * MIN)]);
    assert_eq!(seen.blocked_since.exclusive, Some(at(33 * MIN)));
    // A name from before is still there: it was blocked all the time.
    let seen = watch.look(90 * MIN, &[shared("c", "r", 33 * MIN), shared("d", "s", 89 * MIN)]);
    assert_eq!(seen.blocked_since.exclusive, Some(at(33 * MIN)));
    // So does a hold, whatever its file is called by now.
    let seen = watch.look(150 * MIN, &[shared("e", "s", 149 * MIN)]);
    assert_eq!(seen.blocked_since.exclusive, Some(at(33 * MIN)));
}

#[test]
fn a_look_that_cannot_tell_neither_ends_nor_starts_a_run() {
    let mut watch = Watch::new();
    let seen = watch.look(0, &[sealed("z", Some(-60))]);
    assert_eq!(seen.blocked_since, PerMode { exclusive: Some(at(-60)), shared: None });
    watch.look(60, &[exclusive("x", "p", 30)]);
    let seen = watch.look(120, &[sealed("z", Some(90))]);
    assert_eq!(seen.blocked_since, PerMode { exclusive: Some(at(-60)), shared: None });
    let seen = watch.look(180, &[exclusive("y", "q", 170)]);
    assert_eq!(seen.blocked_since.shared, Some(at(30)));
}
