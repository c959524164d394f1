//! Tables of facts and what follows from them.

use std::sync::Arc;

use super::*;
use crate::lock::Liveness;
use crate::lock::{HoldKey, Holder, LockId, Origin, SealedWhy, UnreadableWhy};
use crate::source::restic::KIND;

const MIN: i64 = 60;
const H: i64 = 3600;

fn now() -> Timestamp {
    "2024-05-01T12:00:00Z".parse().unwrap()
}

/// A moment so many seconds before now.
fn ago(seconds: i64) -> Timestamp {
    now().checked_sub(SignedDuration::from_secs(seconds)).unwrap()
}

fn stub(size: u64, stored_at: Option<Timestamp>) -> Stub {
    Stub { id: LockId::new("ab12"), size, stored_at }
}

fn lock(mode: LockMode, refreshed_at: Option<Timestamp>) -> Lock {
    Lock {
        stub: stub(137, None),
        key: HoldKey::new("k"),
        mode,
        holder: Holder { hostname: "h2".into(), pid: Some(4242), ..Holder::default() },
        tenure: Tenure::Leased { refreshed_at },
        liveness: Liveness::Unknown,
        doubt: None,
    }
}

fn verdict(refreshed_at: Option<Timestamp>, first_seen: Timestamp) -> Verdict {
    judge(&lock(LockMode::Shared, refreshed_at), first_seen, &KIND.policy, now())
}

const AGED: Verdict = Verdict::Stale(StaleReason::Age);
const UNREFRESHED: Verdict = Verdict::Stale(StaleReason::Unrefreshed);

#[test]
fn a_lock_is_stale_when_strictly_older_than_thirty_minutes() {
    let exactly = ago(30 * MIN);
    let a_nanosecond_more = exactly.checked_sub(SignedDuration::from_nanos(1)).unwrap();
    for (own, expected) in [
        (ago(0), Verdict::Fresh),
        (ago(5 * MIN + 30), Verdict::Fresh),
        (ago(6 * MIN + 1), Verdict::Overdue),
        (ago(22 * MIN + 30), Verdict::Overdue),
        (ago(22 * MIN + 31), Verdict::Doomed),
        (ago(29 * MIN + 59), Verdict::Doomed),
        (exactly, Verdict::Doomed),
        (a_nanosecond_more, AGED),
        (ago(30 * MIN + 1), AGED),
        (ago(9 * H), AGED),
        (ago(787 * H), AGED),
        (ago(2545 * H + 3 * MIN + 23), AGED),
    ] {
        assert_eq!(verdict(Some(own), now()), expected, "own time {own}");
    }
}

#[test]
fn times_with_another_offset_are_the_same_instant() {
    for text in [
        "2024-05-01T19:08:27.999999999+08:00",
        "2024-05-01T11:08:27.999999999Z",
        "2024-05-01T06:08:27.999999999-05:00",
        "2024-05-01T07:38:27.999999999-03:30",
    ] {
        let own: Timestamp = text.parse().unwrap();
        assert_eq!(verdict(Some(own), now()), AGED, "{text}");
        let entry = LockEntry::Readable(Arc::new(lock(LockMode::Shared, Some(own))));
        assert_eq!(age(&entry, now(), now()).age.as_secs(), 51 * 60 + 32, "{text}");
    }
}

#[test]
fn a_lock_from_the_future_is_stale_only_by_its_name() {
    let own = ago(-24 * H);
    assert_eq!(verdict(Some(own), now()), Verdict::Fresh);
    assert_eq!(verdict(Some(own), ago(7 * MIN)), Verdict::Overdue);
    assert_eq!(verdict(Some(own), ago(23 * MIN)), Verdict::Doomed);
    assert_eq!(verdict(Some(own), ago(30 * MIN)), Verdict::Doomed);
    assert_eq!(verdict(Some(own), ago(30 * MIN + 1)), UNREFRESHED);
    let entry = LockEntry::Readable(Arc::new(lock(LockMode::Shared, Some(own))));
    let expected = Age { age: Duration::ZERO, ahead: Duration::from_secs(24 * 3600) };
    assert_eq!(age(&entry, now(), now()), expected);
}

#[test]
fn a_lock_without_a_time_is_stale_but_never_two_thousand_years_old() {
    assert_eq!(verdict(None, now()), AGED);
    let mut timeless = lock(LockMode::Shared, None);
    let entry = LockEntry::Readable(Arc::new(timeless.clone()));
    assert_eq!(age(&entry, ago(90), now()).age, Duration::from_secs(90));
    timeless.stub.stored_at = Some(ago(4000));
    let entry = LockEntry::Readable(Arc::new(timeless));
    assert_eq!(age(&entry, ago(90), now()).age, Duration::from_secs(4000));
}

#[test]
fn a_proven_dead_owner_makes_a_fresh_or_future_lock_stale() {
    for reason in [GoneReason::Rebooted, GoneReason::Gone, GoneReason::Reused] {
        for own in [ago(10), ago(-24 * H), ago(9 * H)] {
            let mut dead = lock(LockMode::Exclusive, Some(own));
            dead.liveness = Liveness::Gone(reason);
            let expected = Verdict::Stale(StaleReason::Owner(reason));
            assert_eq!(judge(&dead, now(), &KIND.policy, now()), expected);
        }
    }
}

#[test]
fn a_living_or_unprovable_owner_is_judged_by_age_alone() {
    for liveness in [
        Liveness::Alive,
        Liveness::AliveNotRefreshing,
        Liveness::AliveStopped,
        Liveness::OtherProgram,
        Liveness::Suspect(GoneReason::Gone),
        Liveness::Foreign,
        Liveness::Unknown,
    ] {
        for (own, expected) in [(ago(240), Verdict::Fresh), (ago(31 * MIN), AGED)] {
            let mut alive = lock(LockMode::Exclusive, Some(own));
            alive.liveness = liveness;
            assert_eq!(judge(&alive, now(), &KIND.policy, now()), expected);
        }
    }
}

#[test]
fn what_the_kernel_vouches_for_is_never_stale() {
    let mut held = lock(LockMode::Exclusive, None);
    held.tenure = Tenure::Kernel(Origin::Untold);
    for liveness in [Liveness::Unknown, Liveness::Gone(GoneReason::Gone)] {
        held.liveness = liveness;
        assert_eq!(judge(&held, ago(40 * 24 * H), &KIND.policy, now()), Verdict::Fresh);
    }
}

#[test]
fn a_file_that_holds_by_existing_is_stale_only_when_its_owner_is_gone() {
    let since = ago(40 * 24 * H);
    let mut there = lock(LockMode::Exclusive, None);
    there.tenure = Tenure::Present { since };
    assert_eq!(judge(&there, since, &KIND.policy, now()), Verdict::Fresh);
    there.liveness = Liveness::Gone(GoneReason::Rebooted);
    let stale = Verdict::Stale(StaleReason::Owner(GoneReason::Rebooted));
    assert_eq!(judge(&there, now(), &KIND.policy, now()), stale);
}

#[test]
fn a_sealed_lock_is_judged_by_storage_time_or_first_sight() {
    for (stored, first_seen, expected) in [
        (None, ago(0), Verdict::Fresh),
        (None, ago(30 * MIN), Verdict::Doomed),
        (None, ago(31 * MIN), UNREFRESHED),
        (Some(ago(MIN)), ago(0), Verdict::Fresh),
        (Some(ago(10 * MIN)), ago(0), Verdict::Overdue),
        (Some(ago(31 * MIN)), ago(0), AGED),
        (Some(ago(-3 * H)), ago(31 * MIN), UNREFRESHED),
        (Some(ago(-3 * H)), ago(0), Verdict::Fresh),
    ] {
        let seen = judge_sealed(&stub(137, stored), first_seen, &KIND.policy, now());
        assert_eq!(seen, expected, "stored {stored:?}, first seen {first_seen}");
    }
}

#[test]
fn what_nobody_can_decode_has_no_verdict() {
    let policy = KIND.policy;
    for entry in [
        LockEntry::Unreadable(stub(60, Some(ago(9 * H))), UnreadableWhy::Hash),
        LockEntry::Empty(stub(0, Some(ago(9 * H)))),
    ] {
        assert_eq!(judge_entry(&entry, ago(9 * H), &policy, now()), Verdict::Unjudged);
    }
}

#[test]
fn extreme_times_neither_overflow_nor_panic() {
    for own in [Timestamp::MIN, Timestamp::MAX] {
        for first_seen in [Timestamp::MIN, Timestamp::MAX] {
            for now in [Timestamp::MIN, now(), Timestamp::MAX] {
                let lock = lock(LockMode::Shared, Some(own));
                judge(&lock, first_seen, &KIND.policy, now);
                age(&LockEntry::Readable(Arc::new(lock)), first_seen, now);
                judge_sealed(&stub(1, Some(own)), first_seen, &KIND.policy, now);
            }
        }
    }
}

/// Files as letters: `s`/`S` shared fresh/stale, `x`/`X` exclusive fresh/stale, `?` sealed, `0`
/// sealed of 0 bytes, `e` empty, `u` unreadable.
fn entries(letters: &str) -> Vec<LockEntry> {
    let of = |mode, own| LockEntry::Readable(Arc::new(lock(mode, Some(own))));
    let entry = |letter| match letter {
        's' => of(LockMode::Shared, ago(0)),
        'S' => of(LockMode::Shared, ago(9 * H)),
        'x' => of(LockMode::Exclusive, ago(0)),
        'X' => of(LockMode::Exclusive, ago(9 * H)),
        '?' => LockEntry::Sealed(stub(137, None), SealedWhy::NoKey),
        '0' => LockEntry::Sealed(stub(0, None), SealedWhy::NoKey),
        'e' => LockEntry::Empty(stub(0, None)),
        'u' => LockEntry::Unreadable(stub(60, None), UnreadableWhy::Mac),
        other => panic!("no such file: {other}"),
    };
    letters.chars().map(entry).collect()
}

#[test]
fn a_new_lock_meets_what_restic_would_meet() {
    let (yes, no, unknown) = (Some(true), Some(false), None);
    for (files, exclusive, shared, expected) in [
        ("", no, no, State::Free),
        ("e", no, no, State::Free),
        ("ee0", no, no, State::Free),
        ("s", yes, no, State::Shared),
        ("S", yes, no, State::Shared),
        ("sse", yes, no, State::Shared),
        ("x", yes, yes, State::Exclusive),
        ("X", yes, yes, State::Exclusive),
        ("Xs", yes, yes, State::Exclusive),
        ("u", yes, yes, State::Exclusive),
        ("su", yes, yes, State::Exclusive),
        ("?", yes, unknown, State::Unknown),
        ("?s", yes, unknown, State::Unknown),
        ("?e", yes, unknown, State::Unknown),
        ("?x", yes, yes, State::Exclusive),
        ("u?", yes, yes, State::Exclusive),
        ("?0u", yes, yes, State::Exclusive),
    ] {
        for files in [files.to_string(), files.chars().rev().collect()] {
            let entries = entries(&files);
            assert_eq!(blocked(&entries), Blocked { exclusive, shared }, "files {files:?}");
            assert_eq!(state(&entries), expected, "files {files:?}");
        }
    }
}
