//! The record of events: what stands in it, and how long.

use super::*;
use crate::status::Happening;

/// The words of one target's record.
fn words(watch: &Watch) -> Vec<&'static str> {
    let status = watch.tracker.status();
    let target = &status.targets[&TargetName::new("t").unwrap()];
    target.events.iter().map(|event| event.what.as_str()).collect()
}

#[test]
fn the_life_of_a_lock_is_told_without_its_refreshes() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.look(60, &[exclusive("a", "p", 50)]);
    watch.look(360, &[exclusive("b", "p", 350)]);
    assert_eq!(words(&watch), ["hold_started", "blocked", "blocked"]);
    let stale_at = 350 + 30 * MIN + 1;
    watch.look(stale_at, &[exclusive("b", "p", 350)]);
    watch.look(stale_at + 60, &[]);
    watch.look(stale_at + 120, &[]);
    let ends = ["stale", "unblocked", "unblocked", "hold_ended", "removed_stale"];
    assert_eq!(words(&watch)[3..], ends);
    let status = watch.tracker.status();
    let all: Vec<_> = status.events.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(words(&watch), all, "nothing else happened anywhere");
}

#[test]
fn scans_that_fail_are_told_once_and_so_is_their_recovery() {
    let mut watch = Watch::new();
    watch.look(0, &[exclusive("a", "p", 0)]);
    watch.fail(60, ErrorClass::Network);
    watch.fail(120, ErrorClass::Timeout);
    watch.look(180, &[exclusive("a", "p", 0)]);
    // What a failed scan could not see neither ended nor began.
    assert_eq!(words(&watch), ["blocked", "blocked", "scan_failing", "scan_recovered"]);
    let events = watch.tracker.status().events;
    let Happening::ScanRecovered { since } = events.back().unwrap().what else { panic!() };
    assert_eq!(since, at(60));
}

#[test]
fn a_busy_target_drives_out_only_its_own_events() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    for round in 1..200 {
        watch.look(round * 60, &[shared(&format!("f{round}"), &format!("p{round}"), round * 60)]);
        assert!(words(&watch).len() <= Status::TARGET_EVENTS_MAX);
    }
    assert_eq!(words(&watch).len(), Status::TARGET_EVENTS_MAX);
}

#[test]
fn reloads_and_clock_steps_are_about_no_target() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.tracker.reloaded(at(5), Ok(1));
    watch.tracker.reloaded(at(6), Err("line 3: no".into()));
    watch.off = 3600;
    watch.look(60, &[]);
    let events = watch.tracker.status().events;
    let told: Vec<_> =
        events.iter().map(|event| (event.what.as_str(), event.target.is_some())).collect();
    assert_eq!(told, [("reloaded", false), ("reload_refused", false), ("clock_stepped", false)]);
    assert_eq!(events[0].at, at(3605), "what was stamped before the step moves with it");
}
