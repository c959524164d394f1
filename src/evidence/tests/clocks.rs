//! Which words and which next step remain when a clock is wrong: this machine's or another one.

use super::*;

fn of(topic: Topic, findings: &[Finding]) -> &Finding {
    findings.iter().find(|finding| finding.topic == topic).expect("it is found")
}

fn no_unlock(findings: &[Finding]) {
    let lines = findings.iter().filter_map(|finding| finding.next_step.as_deref());
    let unlocks: Vec<_> = lines.filter(|line| line.contains("unlock")).collect();
    assert!(unlocks.is_empty(), "{unlocks:?}");
}

fn readable(lock: Lock) -> LockEntry {
    LockEntry::Readable(Arc::new(lock))
}

#[test]
fn a_step_forward_of_this_machine_makes_no_living_lock_dead() {
    for stored in [None, Some(-MIN)] {
        let file = || Ok(vec![readable(lock("h", LockMode::Exclusive, Some(-MIN), stored))]);
        let off = 31 * MIN;
        let findings = safe(after_steps(&[(0, 0, file()), (60, 0, file()), (120, off, file())]));
        no_unlock(&findings);
        let skew = of(Topic::ClockSkew, &findings);
        assert_eq!(skew.severity, Severity::Warning);
        assert_eq!(
            skew.evidence,
            "this machine's clock jumped 31 min forward 0 s ago; ages by other clocks are not \
             reliable until the next refresh"
        );
        let alive = of(Topic::Alive, &findings);
        assert_eq!(
            alive.evidence,
            "restic's rule says stale on this machine, but its clock jumped 31 min forward 0 s \
             ago: ages are not reliable until the next refresh; do not unlock"
        );
        assert_eq!(
            alive.lock_of.as_deref(),
            Some("exclusive lock of unknown@h (pid 802602), held for at least 3 min")
        );
    }
}

#[test]
fn a_lock_first_met_after_the_step_is_not_dead_by_what_the_step_explains() {
    let off = 31 * MIN;
    let at_age = |age: i64| {
        let file = readable(lock("h", LockMode::Exclusive, Some(60 - age), Some(60 - age)));
        safe(after_steps(&[
            (0, 0, Ok(vec![])),
            (30, off, Err(ErrorClass::Network)),
            (60, off, Ok(vec![file])),
        ]))
    };
    no_unlock(&at_age(29 * MIN));
    // A copy of it in another target has no look before it.
    let first = |age: i64| {
        let mut tracker = Tracker::new(source::policy, HOLD);
        tracker.retarget(&TargetSet::new([spec()]));
        let boot = |seconds: i64| Duration::from_secs(at(seconds).as_second().unsigned_abs());
        tracker.clock(at(0), boot(0));
        tracker.clock(at(30 + off), boot(30));
        let file = readable(lock("h", LockMode::Exclusive, Some(60 - age), Some(60 - age)));
        let (spec, now) = (Arc::new(spec()), at(60 + off));
        let outcome = Ok(Look { entries: vec![file], ..Look::default() });
        let (started_at, took) = (now, Duration::ZERO);
        tracker.apply(Scan { spec, started_at, ended_at: now, boot: boot(60), took, outcome });
        let target = Arc::clone(tracker.status().targets.values().next().unwrap());
        safe((target, now))
    };
    no_unlock(&first(29 * MIN));
    // What is older than limit and step together is dead by any clock.
    assert_eq!(of(Topic::Stuck, &first(9 * H)).next_step.as_deref(), Some(UNLOCK));
}

#[test]
fn a_sealed_lock_is_not_dead_by_what_a_step_explains() {
    let file = || Ok(vec![LockEntry::Sealed(stub(137, Some(-MIN)), SealedWhy::NoKey)]);
    let findings = safe(after_steps(&[(0, 0, file()), (60, 31 * MIN, file())]));
    no_unlock(&findings);
    assert_eq!(
        of(Topic::Sealed, &findings).evidence,
        "sealed: no password given; listed size 137, stored 33 min ago; stale by the storage's \
         time, but this machine's clock jumped 31 min forward 0 s ago"
    );
}

#[test]
fn what_is_proven_by_this_machines_clock_waits_after_a_step() {
    let file = |reason| {
        let mut lock = lock("h", LockMode::Exclusive, Some(-MIN), None);
        lock.liveness = Liveness::Gone(reason);
        Ok(vec![readable(lock)])
    };
    for reason in [GoneReason::Rebooted, GoneReason::Reused] {
        let findings = safe(after_steps(&[(0, 0, Ok(vec![])), (60, 2 * H, file(reason))]));
        no_unlock(&findings);
        let gone = of(Topic::OwnerGone, &findings);
        assert!(gone.evidence.ends_with(
            ", or so it seems: this machine's clock jumped 2 h forward 0 s ago; look again before \
             unlocking"
        ));
    }
    // Whether a process is there is no question of time.
    let gone = file(GoneReason::Gone);
    let findings = safe(after_steps(&[(0, 0, Ok(vec![])), (60, 2 * H, gone)]));
    assert_eq!(of(Topic::OwnerGone, &findings).next_step.as_deref(), Some(UNLOCK));
}

#[test]
fn a_name_seen_for_long_is_dead_whatever_the_clock_did() {
    let file = || Ok(vec![exclusive("h", -MIN)]);
    let findings =
        safe(after_steps(&[(0, 0, file()), (20 * MIN, -5 * H, file()), (31 * MIN, 0, file())]));
    let stuck = of(Topic::Stuck, &findings);
    assert_eq!(stuck.evidence, "stale: same file name for 31 min; restic's own rule agrees");
    assert_eq!(stuck.next_step.as_deref(), Some(UNLOCK));
}

#[test]
fn a_step_back_says_nothing_of_times_ahead() {
    let file = || Ok(vec![exclusive("h", -34)]);
    let findings = safe(after_steps(&[(0, 0, file()), (60, -2 * H, file())]));
    let alive = of(Topic::Alive, &findings);
    assert_eq!(
        alive.line(),
        "exclusive lock of unknown@h (pid 802602), held for at least 1 min: exclusive and alive: \
         refreshed 1 min ago; a healthy prune looks like this"
    );
    assert_eq!(
        of(Topic::ClockSkew, &findings).evidence,
        "this machine's clock jumped 2 h back 0 s ago; ages by other clocks are not reliable until \
         the next refresh"
    );
}

#[test]
fn a_step_is_told_for_half_an_hour_and_a_small_one_not_at_all() {
    let told = |seconds: i64, off: i64| {
        let looks = [(0, 0, Ok(vec![])), (60, off, Ok(vec![])), (seconds, off, Ok(vec![]))];
        !safe(after_steps(&looks)).is_empty()
    };
    assert!(told(31 * MIN, H));
    assert!(!told(31 * MIN + 1, H));
    assert!(!told(120, 299));
}

#[test]
fn what_the_storage_contradicts_is_said_of_the_locks_own_time_alone() {
    let own = 60 - 5 * H;
    let file = || Ok(vec![readable(lock("h", LockMode::Exclusive, Some(own), Some(0)))]);
    let findings = found(&[(60, file())]);
    let stuck = of(Topic::Stuck, &findings);
    assert_eq!(
        stuck.lock_of.as_deref(),
        Some(
            "exclusive lock of unknown@h (pid 802602), held for at least 1 min (5 h by the lock's \
             own time)"
        )
    );
    let file = || Ok(vec![readable(lock("h", LockMode::Exclusive, Some(own - 1), Some(0)))]);
    let findings = found(&[(60, file())]);
    assert_eq!(
        of(Topic::HeldTooLong, &findings).evidence,
        "held over its limit: exclusive for at least 1 min (5 h by the lock's own time), the limit \
         is 4 h"
    );
    assert_eq!(
        of(Topic::BlockedTooLong, &findings).evidence,
        "blocked over its limit: as far as was seen, new shared locks are refused for at least 1 \
         min (5 h by the lock's own time), the limit is 4 h"
    );
}

#[test]
fn a_lock_that_is_late_by_its_own_clock_alone_is_not_likely_lost() {
    for (own, ago) in [(-8 * MIN, "9 min"), (-25 * MIN, "26 min")] {
        let file = || Ok(vec![readable(lock("h", LockMode::Exclusive, Some(own), Some(0)))]);
        let findings = found(&[(60, file())]);
        assert_eq!(
            of(Topic::Alive, &findings).evidence,
            format!(
                "exclusive and alive: refreshed 1 min ago; late by the lock's own time alone, \
                 which is {ago} ago"
            )
        );
    }
}
