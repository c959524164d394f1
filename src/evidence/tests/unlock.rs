//! When `unlock` is advised, and what is said of its signals before: restic asks the process of a
//! lock under 30 min by a real SIGHUP, on the host that the lock names.

use super::*;

fn readable(lock: Lock) -> LockEntry {
    LockEntry::Readable(Arc::new(lock))
}

/// The first finding that advises to unlock: what is to be known before.
fn note(entries: &[LockEntry]) -> Option<String> {
    let findings = found(&[(0, Ok(entries.to_vec()))]);
    let unlock = findings.into_iter().find(|found| found.next_step.as_deref() == Some(UNLOCK));
    unlock.expect("it is advised").note
}

#[test]
fn a_dead_lock_of_a_clock_ahead_cannot_be_unlocked_before_its_time() {
    let files = vec![exclusive("h", 3 * H)];
    check(
        &[(0, Ok(files.clone())), (47 * MIN, Ok(files.clone()))],
        (
            Severity::Critical,
            Topic::Stuck,
            "stale: same file name for 47 min; restic's own rule does not see it, because the \
             lock's time is 2 h 13 min ahead",
            Some(UNLOCK),
        ),
    );
    let findings = found(&[(0, Ok(files.clone())), (47 * MIN, Ok(files))]);
    assert_eq!(
        findings[0].note.as_deref(),
        Some(
            "restic removes it only in 2 h 43 min, because the lock's time is ahead; until then it sends \
             a real SIGHUP to pid 802602 when run on h"
        )
    );
}

#[test]
fn of_an_owner_that_is_gone_the_note_says_where_to_run_it_and_whom_it_signals() {
    for (reason, said) in [
        (
            GoneReason::Gone,
            "run it on web03, where restic asks pid 802602 by a real SIGHUP and finds nobody; \
             elsewhere it removes only what is over 30 min old, this one in 20 min",
        ),
        (
            GoneReason::Reused,
            "not on web03, where restic sends a real SIGHUP to pid 802602, another program's by \
             now; elsewhere it removes only what is over 30 min old, this one in 20 min",
        ),
    ] {
        let mut lock = lock("web03", LockMode::Exclusive, Some(-10 * MIN), None);
        lock.liveness = Liveness::Gone(reason);
        let looks = [(0, Ok(vec![readable(lock)]))];
        let first = &found(&looks)[0];
        assert_eq!((first.severity, first.topic), (Severity::Warning, Topic::OwnerGone));
        assert!(first.evidence.starts_with("owner gone: "), "{}", first.evidence);
        assert_eq!(note(looks[0].1.as_ref().unwrap()).as_deref(), Some(said));
    }
}

#[test]
fn a_lock_that_is_old_is_removed_anywhere_and_nobody_is_signalled_for_it() {
    assert_eq!(note(&[exclusive("db01", -31 * MIN)]), None);
    // A pid that was given to another program is of no interest any more.
    let mut old = lock("db01", LockMode::Exclusive, Some(-31 * MIN), None);
    old.liveness = Liveness::Gone(GoneReason::Reused);
    assert_eq!(note(&[readable(old)]), None);
}

#[test]
fn living_locks_beside_the_dead_one_are_asked_too_and_that_is_said() {
    let dead = shared("db01", -9 * H);
    assert_eq!(
        note(&[dead.clone(), shared("web04", -MIN)]).as_deref(),
        Some(
            "run on web04 it also sends a real SIGHUP to pid 802602: restic ignores it, another \
             program ends"
        )
    );
    let many: Vec<_> = (0..300).map(|n| shared(&format!("host{n:03}"), -MIN)).collect();
    let said = note(&[std::slice::from_ref(&dead), many.as_slice()].concat()).unwrap();
    assert!(said.contains("run on host000 ") && said.contains(" on 299 other hosts"), "{said}");
    let sealed = LockEntry::Sealed(stub(137, Some(-MIN)), SealedWhy::Permission("no".into()));
    assert!(note(&[dead, sealed]).unwrap().starts_with("run it where no restic runs"));
}

#[test]
fn a_command_that_unlocks_what_nobody_can_read_says_what_it_does_to_others() {
    let sealed = vec![LockEntry::Sealed(stub(137, Some(-45 * MIN)), SealedWhy::NoKey)];
    let findings = found(&[(0, Ok(sealed))]);
    assert!(findings[0].next_step.as_deref().unwrap().ends_with(" unlock"));
    assert!(findings[0].note.as_deref().unwrap().contains("SIGHUP"), "{:?}", findings[0].note);
}
