//! Situations from the field: what is said, how bad it is, what to do.

use std::sync::Arc;

use super::*;
use crate::location::Location;
use crate::lock::*;
use crate::scan::{ErrorClass, Facts, Look, Scan, ScanError};
use crate::secret::{EnvSpec, PasswordSpec};
use crate::source;
use crate::target::*;
use crate::tracker::Tracker;

mod clocks;
mod unlock;

const MIN: i64 = 60;
const H: i64 = 3600;
const HOLD: Duration = Duration::from_secs(900);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

fn hours(hours: u64) -> Option<Duration> {
    Some(Duration::from_secs(hours * 3600))
}

fn spec() -> TargetSpec {
    let half = Some(Duration::from_secs(1800));
    TargetSpec {
        name: TargetName::new("t").unwrap(),
        interval: Duration::from_secs(60),
        idle_interval: Duration::from_secs(60),
        timeout: Duration::from_secs(30),
        hold_limit: PerMode { exclusive: hours(4), shared: hours(24) },
        stuck_limit: PerMode { exclusive: half, shared: half },
        host: "".into(),
        source: SourceSpec::Restic(ResticSpec {
            repository: Location::Local("/srv/my backups".into()),
            password: PasswordSpec::default(),
            env: EnvSpec::default(),
            options: Default::default(),
            key_hint: None,
            cacert: Vec::new(),
            insecure_tls: false,
        }),
    }
}

/// A lock of host `host`; `own` and `stored` in seconds after the start of the test.
fn lock(host: &str, mode: LockMode, own: Option<i64>, stored: Option<i64>) -> Lock {
    let id = format!("{host}-{}-{own:?}", mode.as_str());
    Lock {
        stub: Stub { id: LockId::new(id), size: 137, stored_at: stored.map(at) },
        key: HoldKey::new(format!("{host} {}", mode.as_str())),
        mode,
        holder: Holder { hostname: host.into(), pid: Some(802602), ..Holder::default() },
        tenure: Tenure::Leased { refreshed_at: own.map(at) },
        liveness: Liveness::Unknown,
        doubt: None,
    }
}

fn exclusive(host: &str, own: i64) -> LockEntry {
    LockEntry::Readable(Arc::new(lock(host, LockMode::Exclusive, Some(own), None)))
}

fn shared(host: &str, own: i64) -> LockEntry {
    LockEntry::Readable(Arc::new(lock(host, LockMode::Shared, Some(own), None)))
}

fn stub(size: u64, stored: Option<i64>) -> Stub {
    Stub { id: LockId::new("f00d"), size, stored_at: stored.map(at) }
}

type Outcome = Result<Vec<LockEntry>, ErrorClass>;

/// The target after some looks, and when the last one ended.
fn after(looks: &[(i64, Outcome)]) -> (Arc<TargetStatus>, Timestamp) {
    let looks: Vec<_> = looks.iter().map(|(at, outcome)| (*at, 0, outcome.clone())).collect();
    after_steps(&looks)
}

/// The same when the exporter's clock is off by so many seconds at each look.
fn after_steps(looks: &[(i64, i64, Outcome)]) -> (Arc<TargetStatus>, Timestamp) {
    let mut tracker = Tracker::new(source::policy, HOLD);
    tracker.retarget(&TargetSet::new([spec()]));
    let mut now = at(0);
    for (seconds, off, outcome) in looks {
        now = at(*seconds + *off);
        let outcome = match outcome {
            Ok(entries) => {
                let entries = entries.clone();
                Ok(Look { entries, facts: Facts::default(), ..Look::default() })
            }
            Err(class) => Err(ScanError::new(*class, "list locks/", "no route to host", "")),
        };
        let spec = Arc::new(spec());
        let took = Duration::from_secs(1);
        let boot = Duration::from_secs(at(*seconds).as_second().unsigned_abs());
        tracker.apply(Scan { spec, started_at: now, ended_at: now, boot, took, outcome });
    }
    (Arc::clone(&tracker.status().targets[&spec().name]), now)
}

fn found(looks: &[(i64, Outcome)]) -> Vec<Finding> {
    safe(after(looks))
}

/// The findings, none of which can do harm where it is shown or copied to.
fn safe((target, now): (Arc<TargetStatus>, Timestamp)) -> Vec<Finding> {
    let findings = findings(&target, now, HOLD);
    for Finding { evidence, note, next_step, .. } in &findings {
        for text in [Some(evidence), note.as_ref(), next_step.as_ref()].into_iter().flatten() {
            assert_eq!(text.lines().count(), 1, "{text}");
        }
        let line = next_step.as_deref().unwrap_or_default().replace("'/srv/my backups'", "");
        let syntax = line.contains(|c| ";&|<>()$`'\"\\{}*!~".contains(c));
        assert!(!syntax && !line.starts_with('#'), "no line to copy: {line}");
    }
    findings
}

/// The worst finding after some looks: severity, topic, evidence and next step.
#[track_caller]
fn check(looks: &[(i64, Outcome)], expected: (Severity, Topic, &str, Option<&str>)) {
    let findings = found(looks);
    let first = &findings[0];
    let is = (first.severity, first.topic, first.evidence.as_str(), first.next_step.as_deref());
    assert_eq!(is, expected, "\nall: {findings:#?}");
}

const UNLOCK: &str = "restic -r '/srv/my backups' unlock";
const LIST: &str = "restic -r '/srv/my backups' list locks";

fn ps(host: &str) -> String {
    format!("ps -o stat,lstart,cmd -p 802602   # on {host}")
}

#[test]
fn an_exclusive_lock_left_for_787_hours_is_critical_and_may_be_unlocked() {
    let own = -(787 * H + 16 * MIN);
    check(
        &[(0, Ok(vec![exclusive("db01.example.org", own)]))],
        (
            Severity::Critical,
            Topic::Stuck,
            "stale by age: last refresh 33 days ago by the holder's clock",
            Some(UNLOCK),
        ),
    );
}

#[test]
fn a_shared_lock_left_for_2545_hours_is_a_warning() {
    check(
        &[(0, Ok(vec![shared("srv-02", -(2545 * H + 203))]))],
        (
            Severity::Warning,
            Topic::Stuck,
            "stale by age: last refresh 106 days ago by the holder's clock",
            Some(UNLOCK),
        ),
    );
}

#[test]
fn one_name_seen_for_long_needs_no_clock() {
    let files = vec![exclusive("h", -60)];
    check(
        &[(0, Ok(files.clone())), (47 * MIN, Ok(files))],
        (
            Severity::Critical,
            Topic::Stuck,
            "stale: same file name for 47 min; restic's own rule agrees",
            Some(UNLOCK),
        ),
    );
}

#[test]
fn a_clock_behind_is_a_warning_and_never_ends_in_unlock() {
    let looks = [
        (0, Ok(vec![])),
        (120, Ok(vec![exclusive("h", 60 - 45 * MIN)])),
        (240, Ok(vec![exclusive("h", 60 - 45 * MIN)])),
    ];
    let findings = found(&looks);
    assert_eq!(findings[0].topic, Topic::ClockSkew);
    assert_eq!(findings[0].severity, Severity::Warning);
    assert_eq!(findings[0].next_step.as_deref(), Some("date -u   # on h"));
    assert_eq!(
        findings[0].evidence,
        "clock skew: a lock's own time is 44 min behind what the exporter saw; ages by the \
         holder's clock are not reliable"
    );
    assert_eq!(findings[1].severity, Severity::Ok);
    assert_eq!(
        findings[1].evidence,
        "restic's rule says stale, but this name appeared 2 min ago: the holder's clock is about \
         44 min behind; do not unlock"
    );
    assert_eq!(findings[1].next_step, Some(ps("h")));
}

#[test]
fn a_clock_behind_stays_in_doubt_however_long_nobody_looked() {
    let file = vec![exclusive("h", 28 * MIN - 50 * MIN)];
    let findings = found(&[(0, Ok(vec![])), (29 * MIN, Ok(file.clone())), (31 * MIN, Ok(file))]);
    let steps: Vec<_> = findings.iter().filter_map(|f| f.next_step.as_deref()).collect();
    assert!(steps.iter().all(|step| !step.contains("unlock")), "{steps:?}");
}

#[test]
fn a_clock_behind_is_told_by_the_storage_at_the_first_look() {
    let lock = lock("h", LockMode::Exclusive, Some(-45 * MIN), Some(0));
    let findings = found(&[(10, Ok(vec![LockEntry::Readable(Arc::new(lock))]))]);
    let stuck = &findings[0];
    assert_eq!((stuck.severity, stuck.topic), (Severity::Critical, Topic::Stuck));
    assert!(findings.iter().any(|finding| {
        finding.evidence.starts_with("clock skew: a lock's own time is 45 min behind the storage's")
    }));
    assert_eq!(
        stuck.evidence,
        "restic's rule says stale, but the file was stored 10 s ago: the holder's clock is about \
         45 min behind; do not unlock"
    );
    assert_eq!(stuck.next_step, Some(ps("h")));
}

#[test]
fn an_old_file_that_appears_late_is_not_blamed_on_a_clock() {
    let lock = lock("h", LockMode::Exclusive, Some(-9 * H), Some(-9 * H));
    let file = LockEntry::Readable(Arc::new(lock));
    let findings = found(&[(0, Ok(vec![])), (60, Ok(vec![file.clone()]))]);
    let alive = findings.iter().find(|finding| finding.topic == Topic::Alive).unwrap();
    assert_eq!(
        alive.evidence,
        "restic's rule says stale and the storage's time agrees, but this name appeared 0 s ago: \
         a copied file or a listing that came late; look again before unlocking"
    );
    assert_eq!(alive.next_step, Some(ps("h")));
    assert!(findings.iter().all(|finding| finding.topic != Topic::ClockSkew));
    let findings = found(&[(0, Ok(vec![])), (60, Ok(vec![file.clone()])), (H, Ok(vec![file]))]);
    assert_eq!(findings[0].next_step.as_deref(), Some(UNLOCK));
}

#[test]
fn a_dead_lock_beside_a_living_one_of_a_clock_behind_is_not_to_be_unlocked() {
    let dead = shared("dead", -9 * H);
    let looks =
        [(0, Ok(vec![dead.clone()])), (60, Ok(vec![dead.clone(), shared("slow", 30 - 45 * MIN)]))];
    let findings = found(&looks);
    let stuck = findings.iter().find(|finding| finding.topic == Topic::Stuck).unwrap();
    assert_eq!(stuck.next_step, Some(ps("slow")));
    assert_eq!(
        stuck.note.as_deref(),
        Some("first ask for this one: unlock would delete its living lock too")
    );
}

#[test]
fn an_old_client_that_keeps_its_time_is_named() {
    let file = |n: i64| {
        let mut lock = lock("h", LockMode::Exclusive, Some(-41 * H), None);
        lock.stub.id = LockId::new(format!("f{n}"));
        Ok(vec![LockEntry::Readable(Arc::new(lock))])
    };
    let findings = found(&[(0, file(0)), (300, file(1)), (360, file(1))]);
    let alive = findings.iter().find(|finding| finding.topic == Topic::Alive).unwrap();
    assert_eq!(
        alive.evidence,
        "restic's rule says stale, but this name appeared 1 min ago with the same old time as \
         the one before: a client of restic 0.9.6 or older refreshes like this; do not unlock"
    );
    assert_eq!(alive.next_step, Some(ps("h")));
}

#[test]
fn a_healthy_prune_is_ok_however_long_until_its_limit() {
    let rounds = |hours: i64| -> Vec<(i64, Outcome)> {
        (0..hours * 12).map(|n| (n * 300 + 120, Ok(vec![exclusive("p", n * 300)]))).collect()
    };
    check(
        &rounds(2),
        (
            Severity::Ok,
            Topic::Alive,
            "exclusive and alive: refreshed 2 min ago; a healthy prune looks like this",
            Some(&ps("p")),
        ),
    );
    let findings = found(&rounds(5));
    assert_eq!(findings[0].topic, Topic::HeldTooLong);
    assert_eq!(
        findings[0].evidence,
        "held over its limit: exclusive for at least 4 h 57 min, the limit is 4 h"
    );
    assert_eq!(findings[1].topic, Topic::BlockedTooLong);
    assert_eq!(worst(&findings), Severity::Warning);
}

#[test]
fn an_unreadable_file_is_critical_and_remove_all_comes_with_its_reason() {
    let file = LockEntry::Unreadable(stub(60, Some(-9 * H)), UnreadableWhy::Hash);
    let looks = [(0, Ok(vec![file]))];
    check(
        &looks,
        (
            Severity::Critical,
            Topic::Unreadable,
            "unreadable (hash): name is not the SHA-256 of the bytes; size 60, stored 9 h ago; \
             blocks every command of restic 0.15 and later",
            Some("restic -r '/srv/my backups' unlock --remove-all"),
        ),
    );
    assert_eq!(
        found(&looks)[0].note.as_deref(),
        Some(
            "only when no restic runs on this repository, for it removes living locks too; plain \
             unlock keeps unreadable files"
        )
    );
}

#[test]
fn what_removes_every_lock_is_not_advised_beside_one_that_may_live() {
    const REMOVE_ALL: &str = "restic -r '/srv/my backups' unlock --remove-all";
    const LIST: &str = "restic -r '/srv/my backups' list locks";
    let file = || LockEntry::Unreadable(stub(60, Some(-9 * H)), UnreadableWhy::Mac);
    let other = Stub { id: LockId::new("cafe"), ..stub(160, Some(-60)) };
    let sealed = LockEntry::Sealed(other, SealedWhy::Archived);
    for (beside, line) in [
        (shared("h", -60), ps("h")),
        (sealed, LIST.to_owned()),
        (exclusive("h", -9 * H), REMOVE_ALL.to_owned()),
    ] {
        let findings = found(&[(0, Ok(vec![file(), beside]))]);
        let unreadable = findings.into_iter().find(|found| found.topic == Topic::Unreadable);
        assert_eq!(unreadable.and_then(|found| found.next_step), Some(line));
    }
}

#[test]
fn files_that_restic_cannot_remove_are_not_advised_to_be_unlocked() {
    for (why, stored) in [
        (UnreadableWhy::Name, None),
        (UnreadableWhy::Missing, None),
        (UnreadableWhy::Hash, Some(-30)),
    ] {
        let findings = found(&[(0, Ok(vec![LockEntry::Unreadable(stub(60, stored), why)]))]);
        assert_eq!(findings[0].severity, Severity::Critical);
        assert_eq!(findings[0].next_step, None);
        let note = findings[0].note.as_deref().unwrap();
        assert!(!note.contains("unlock"), "{note}");
    }
}

#[test]
fn a_sealed_file_tells_size_and_time_and_becomes_stuck() {
    let sealed = |stored| vec![LockEntry::Sealed(stub(137, stored), SealedWhy::NoKey)];
    check(
        &[(0, Ok(sealed(Some(-12 * MIN))))],
        (
            Severity::Ok,
            Topic::Sealed,
            "sealed: no password given; listed size 137, stored 12 min ago",
            Some(LIST),
        ),
    );
    check(
        &[(0, Ok(sealed(Some(-45 * MIN))))],
        (
            Severity::Warning,
            Topic::Stuck,
            "sealed: no password given; listed size 137, stored 45 min ago; stale: no refresh \
             since",
            Some(UNLOCK),
        ),
    );
    check(
        &[(0, Ok(sealed(None))), (31 * MIN, Ok(sealed(None)))],
        (
            Severity::Warning,
            Topic::Stuck,
            "sealed: no password given; listed size 137, first seen 31 min ago; stale: same file \
             name for 31 min",
            Some(UNLOCK),
        ),
    );
}

#[test]
fn empty_files_are_ok() {
    check(
        &[(0, Ok(vec![LockEntry::Empty(stub(0, Some(-9 * H)))]))],
        (Severity::Ok, Topic::Empty, "empty: a file of 0 bytes is no lock and blocks nobody", None),
    );
}

#[test]
fn leftovers_of_a_living_holder_are_no_stuck_lock() {
    let files: Vec<_> = (0..1860).map(|n| shared("gdrive", n * 300)).collect();
    check(
        &[(1859 * 300 + 120, Ok(files))],
        (
            Severity::Warning,
            Topic::HeldTooLong,
            "held over its limit: shared for at least 6 days 10 h, the limit is 24 h",
            Some(&ps("gdrive")),
        ),
    );
}

#[test]
fn two_living_holders_one_exclusive_are_a_conflict_unless_one_is_just_trying() {
    let files = vec![exclusive("a", -60), shared("b", -30)];
    let findings = found(&[(0, Ok(files))]);
    assert_eq!((findings[0].severity, findings[0].topic), (Severity::Critical, Topic::Conflict));
    let trying = vec![exclusive("a", 0), shared("b", -30)];
    assert_eq!(worst(&found(&[(0, Ok(trying))])), Severity::Ok);
    // A dead exclusive lock beside a living one is stuck, no conflict.
    let findings = found(&[(0, Ok(vec![exclusive("a", -9 * H), exclusive("b", -60)]))]);
    assert!(findings.iter().all(|finding| finding.topic != Topic::Conflict));
}

#[test]
fn two_exclusive_locks_of_two_hosts_are_a_conflict() {
    let both = vec![exclusive("a", -60), exclusive("b", -30)];
    check(
        &[(0, Ok(both.clone())), (60, Ok(both))],
        (
            Severity::Critical,
            Topic::Conflict,
            "conflict: 2 holders are alive at once and one of them is exclusive; somebody removed \
             a living lock, or the storage lists late",
            Some(&ps("a")),
        ),
    );
}

#[test]
fn a_holder_past_its_deadline_is_likely_lost_and_not_yet_to_be_unlocked() {
    for (age, said) in [
        (7 * MIN, "shared, overdue: last refresh 7 min ago"),
        (
            25 * MIN,
            "shared, very likely lost: last refresh 25 min ago; its host sleeps, it hangs, or it \
             died",
        ),
        // Stuck and stale are what is over the limit, not what is at it.
        (
            30 * MIN,
            "shared, very likely lost: last refresh 30 min ago; its host sleeps, it hangs, or it \
             died",
        ),
    ] {
        check(
            &[(0, Ok(vec![shared("h", -age)]))],
            (Severity::Ok, Topic::Alive, said, Some(&ps("h"))),
        );
    }
}

#[test]
fn a_file_that_is_no_lock_says_so() {
    let mut lock = lock("h", LockMode::Shared, Some(-9 * H), None);
    lock.doubt = Some("a snapshot, for it names no process");
    let findings = found(&[(0, Ok(vec![LockEntry::Readable(Arc::new(lock))]))]);
    assert!(
        findings[0]
            .evidence
            .ends_with("; probably not a lock at all: a snapshot, for it names no process")
    );
}

#[test]
fn what_cannot_be_seen_is_unknown_and_never_ok() {
    check(&[], (Severity::Unknown, Topic::NotSeen, "not scanned yet", None));
    let failed = "cannot be scanned (network): list locks/: no route to host";
    check(&[(0, Err(ErrorClass::Network))], (Severity::Unknown, Topic::NotSeen, failed, None));
    // What was seen before counts beside it, for as long as it is valid.
    let dead = vec![exclusive("h", -H)];
    let looks = [(0, Ok(dead)), (60, Err(ErrorClass::Network))];
    let findings = found(&looks);
    let severities: Vec<_> = findings.iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Critical, Severity::Unknown]);
    let (target, _) = after(&looks);
    let later = super::findings(&target, at(16 * MIN), HOLD);
    assert_eq!(later.len(), 1);
    assert_eq!(later[0].severity, Severity::Unknown);
    // So is a look that is too old, though no scan failed since.
    let (target, _) = after(&looks[..1]);
    let later = super::findings(&target, at(16 * MIN), HOLD);
    assert_eq!((later.len(), later[0].evidence.as_str()), (1, "last scanned 16 min ago"));
}

#[test]
fn the_worst_severity_decides_in_the_order_of_the_exit_codes() {
    let order = [Severity::Critical, Severity::Warning, Severity::Unknown, Severity::Ok];
    assert_eq!(order.map(Severity::exit_code), [2, 1, 3, 0]);
    assert!(order.is_sorted_by(|a, b| a > b));
}

#[test]
fn a_hostile_host_name_is_no_command_even_where_comments_are_none() {
    for (host, shown) in [
        ("web01; touch X; $(id)", "web01??touch?X????id?"),
        ("x\nrm -rf ~ #`id`", "x?rm?-rf?????id?"),
        ("-s12:00", "?s12:00"),
        ("a' | \"b\\", "a?????b?"),
        ("db-01.example.org:8000_b", "db-01.example.org:8000_b"),
        ("büro", "b?ro"),
        ("", "its host"),
    ] {
        for (pid, asks) in [(802602, "ps -o stat,lstart,cmd -p 802602"), (-1, "pgrep -a restic")] {
            let mut lock = lock("h", LockMode::Shared, Some(-H), Some(0));
            lock.holder.hostname = host.into();
            lock.holder.pid = Some(pid);
            let findings = found(&[(60, Ok(vec![LockEntry::Readable(Arc::new(lock))]))]);
            let steps: Vec<_> = findings.iter().filter_map(|f| f.next_step.as_deref()).collect();
            assert!(steps.contains(&format!("{asks}   # on {shown}").as_str()), "{steps:?}");
            assert!(steps.contains(&format!("date -u   # on {shown}").as_str()), "{steps:?}");
        }
    }
}

#[test]
fn a_long_host_name_makes_no_long_line() {
    let mut lock = lock("h", LockMode::Shared, Some(0), None);
    lock.holder.hostname = "y".repeat(5000).into();
    let findings = found(&[(60, Ok(vec![LockEntry::Readable(Arc::new(lock))]))]);
    assert!(findings[0].next_step.as_deref().unwrap().len() < 200);
}

#[test]
fn a_lock_whose_process_is_here_is_never_to_be_unlocked() {
    for (liveness, said) in [
        (Liveness::AliveNotRefreshing, "is here and does not refresh"),
        (Liveness::AliveStopped, "is here and stopped"),
    ] {
        let mut lock = lock("web03", LockMode::Exclusive, Some(-50 * MIN), None);
        lock.liveness = liveness;
        let findings = found(&[(0, Ok(vec![LockEntry::Readable(Arc::new(lock))]))]);
        assert_eq!(findings[0].topic, Topic::Stuck);
        assert!(findings[0].evidence.contains(said), "{}", findings[0].evidence);
        assert_eq!(findings[0].next_step, Some(ps("web03")));
    }
}

#[test]
fn a_stopped_holder_is_not_called_alive_and_well() {
    let mut lock = lock("web03", LockMode::Exclusive, Some(-2 * MIN), None);
    lock.liveness = Liveness::AliveStopped;
    let findings = found(&[(0, Ok(vec![LockEntry::Readable(Arc::new(lock))]))]);
    assert_eq!(
        findings[0].evidence,
        "exclusive, stopped: last refresh 2 min ago; its process 802602 is here and stopped: it \
         cannot refresh until it is continued; do not unlock"
    );
    assert_eq!(findings[0].next_step, Some(ps("web03")));
}
