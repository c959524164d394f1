//! The record of events: what stands in it, and how long.

use super::*;
use crate::scan::UnknownWhy;
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
fn a_look_that_could_not_tell_stands_between_what_was_known() {
    let mut watch = Watch::new();
    watch.look(0, &[exclusive("a", "p", 0)]);
    let told = |watch: &Watch| {
        let mut words = words(watch);
        words.retain(|word| word.ends_with("blocked") || *word == "untold");
        words
    };
    for seconds in [60, 120] {
        let facts = Facts { unknown: Some(UnknownWhy::RemoteFs), ..Facts::default() };
        watch.scan(seconds, Ok(Look { facts, ..Look::default() }));
        assert_eq!(told(&watch)[2..], ["untold", "untold"], "told once for each mode");
    }
    watch.look(180, &[sealed("z", None)]);
    assert_eq!(told(&watch)[4..], ["blocked"], "whether it refuses shared locks is not known");
    watch.look(240, &[]);
    assert_eq!(told(&watch)[5..], ["unblocked", "unblocked"]);
}

/// What a reader of the record takes for true of one mode.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Belief {
    NeverRefused,
    Refused(Timestamp),
    Granted,
    Unknown,
}

/// What the events say of one mode, one after the other; no two of them the same.
fn believed(status: &Status, mode: LockMode) -> Belief {
    let mut belief = Belief::NeverRefused;
    for event in status.events.iter() {
        let next = match &event.what {
            Happening::Blocked { mode: of, since } if *of == mode => Belief::Refused(*since),
            Happening::Unblocked { mode: of, .. } if *of == mode => Belief::Granted,
            Happening::Untold { mode: of } if *of == mode => Belief::Unknown,
            _ => continue,
        };
        let kind = std::mem::discriminant::<Belief>;
        assert_ne!(kind(&next), kind(&belief), "{mode:?} is told twice: {:?}", status.events);
        belief = next;
    }
    belief
}

/// One step of a history; `round` names its locks, so that each step has its own.
fn step(watch: &mut Watch, what: u8, seconds: i64, round: usize) {
    let id = format!("f{round}");
    let untold = Facts { unknown: Some(UnknownWhy::RemoteFs), ..Facts::default() };
    match what {
        0 => drop(watch.look(seconds, &[])),
        1 => drop(watch.look(seconds, &[shared(&id, &id, seconds - 20)])),
        2 => drop(watch.look(seconds, &[exclusive(&id, &id, seconds - 20)])),
        3 => drop(watch.look(seconds, &[sealed(&id, None)])),
        4 => drop(watch.look(seconds, &[exclusive("stays", "p", 0)])),
        5 => drop(watch.scan(seconds, Ok(Look { facts: untold, ..Look::default() }))),
        _ => watch.fail(seconds, ErrorClass::Network),
    }
}

#[test]
fn whatever_happens_the_record_says_last_what_was_seen_last() {
    const STEPS: u8 = 7;
    const LENGTH: u32 = 4;
    // The first bit of a history: whether nobody looks for an hour before its last step.
    for history in 0..2 * u32::from(STEPS).pow(LENGTH) {
        let mut watch = Watch::new();
        let (mut rest, mut seconds, pause) = (history / 2, 60, history % 2 == 1);
        for round in 0..LENGTH as usize {
            let last = round + 1 == LENGTH as usize;
            seconds += if pause && last { H } else { MIN };
            step(&mut watch, u8::try_from(rest % u32::from(STEPS)).unwrap(), seconds, round);
            rest /= u32::from(STEPS);
            let status = watch.tracker.status();
            let Phase::Seen(seen) = &watch.target().phase else { continue };
            for mode in LockMode::ALL {
                let belief = believed(&status, mode);
                let is_true = match (seen.blocked().of(mode), belief) {
                    (Some(true), Belief::Refused(since)) => {
                        let shown = match mode {
                            LockMode::Exclusive => seen.blocked_since.exclusive,
                            LockMode::Shared => seen.blocked_since.shared,
                        };
                        // It may turn out to be longer than was told, never shorter.
                        shown.is_some_and(|shown| shown <= since)
                    }
                    (Some(false), Belief::Granted) | (None, Belief::Unknown) => true,
                    (Some(false) | None, Belief::NeverRefused) => true,
                    _ => false,
                };
                assert!(is_true, "{mode:?} in {history}: {belief:?}, {:?}", status.events);
            }
        }
    }
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
