//! What the tracker makes of a few looks, one situation per test.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Tracker;
use crate::judge::{self, State};
use crate::location::Location;
use crate::lock::*;
use crate::scan::{ErrorClass, Facts, Look, Scan, ScanError};
use crate::secret::{EnvSpec, PasswordSpec};
use crate::source;
use crate::status::*;
use crate::target::*;

pub(super) const HOLD: Duration = Duration::from_secs(15 * 60);

/// Seconds after the start of a test.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// The boot-time clock so many seconds after the start of a test.
pub(super) fn boot(seconds: i64) -> Duration {
    Duration::from_secs((1_000_000 + seconds).unsigned_abs())
}

pub(super) const MIN: i64 = 60;
pub(super) const H: i64 = 3600;

pub(super) fn spec(name: &str, path: &str) -> TargetSpec {
    TargetSpec {
        name: TargetName::new(name).unwrap(),
        interval: Duration::from_secs(60),
        idle_interval: Duration::from_secs(60),
        timeout: Duration::from_secs(30),
        hold_limit: PerMode { exclusive: None, shared: None },
        stuck_limit: PerMode { exclusive: None, shared: None },
        host: "".into(),
        source: SourceSpec::Restic(ResticSpec {
            repository: Location::parse(path).unwrap(),
            password: PasswordSpec::default(),
            env: EnvSpec::default(),
            options: Default::default(),
            key_hint: None,
            cacert: Vec::new(),
            insecure_tls: false,
        }),
    }
}

/// A file of a holder `who`, with its own time in seconds after the start of the test.
fn lock(id: &str, who: &str, mode: LockMode, own: Option<i64>) -> LockEntry {
    LockEntry::Readable(Arc::new(Lock {
        stub: Stub { id: LockId::new(id), size: 137, stored_at: None },
        key: HoldKey::new(format!("{who} {}", mode.as_str())),
        mode,
        holder: Holder { hostname: who.into(), pid: Some(7), ..Holder::default() },
        tenure: Tenure::Leased { refreshed_at: own.map(at) },
        liveness: Liveness::Unknown,
        doubt: None,
    }))
}

fn shared(id: &str, who: &str, own: i64) -> LockEntry {
    lock(id, who, LockMode::Shared, Some(own))
}

fn exclusive(id: &str, who: &str, own: i64) -> LockEntry {
    lock(id, who, LockMode::Exclusive, Some(own))
}

fn stub(id: &str, stored: Option<i64>) -> Stub {
    Stub { id: LockId::new(id), size: 137, stored_at: stored.map(at) }
}

fn sealed(id: &str, stored: Option<i64>) -> LockEntry {
    LockEntry::Sealed(stub(id, stored), SealedWhy::KeyPending)
}

fn unreadable(id: &str, stored: Option<i64>) -> LockEntry {
    LockEntry::Unreadable(stub(id, stored), UnreadableWhy::Hash)
}

/// A tracker of one target, looked at by hand.
struct Watch {
    tracker: Tracker,
    /// How far the exporter's clock is from true time, in seconds.
    off: i64,
}

impl Watch {
    fn new() -> Self {
        let mut tracker = Tracker::new(source::policy, HOLD);
        tracker.retarget(&TargetSet::new([spec("t", "/srv/t")]));
        Self { tracker, off: 0 }
    }

    fn scan(&mut self, seconds: i64, outcome: Result<Look, ScanError>) -> Vec<LockEvent> {
        let spec = Arc::new(spec("t", "/srv/t"));
        let took = Duration::from_secs(1);
        let ended_at = at(seconds + self.off);
        let started_at = ended_at - SignedDuration::from_secs(1);
        let boot = boot(seconds);
        self.tracker.apply(Scan { spec, started_at, ended_at, boot, took, outcome })
    }

    /// A look that ends at `seconds` of true time and began one second before.
    fn look(&mut self, seconds: i64, entries: &[LockEntry]) -> Arc<Seen> {
        self.events(seconds, entries);
        self.seen()
    }

    fn events(&mut self, seconds: i64, entries: &[LockEntry]) -> Vec<LockEvent> {
        self.scan(seconds, Ok(Look { entries: entries.to_vec(), ..Look::default() }))
    }

    fn fail(&mut self, seconds: i64, class: ErrorClass) {
        self.scan(seconds, Err(ScanError::new(class, "list locks/", "no", "")));
    }

    fn target(&self) -> Arc<TargetStatus> {
        Arc::clone(&self.tracker.status().targets[&TargetName::new("t").unwrap()])
    }

    fn seen(&self) -> Arc<Seen> {
        Arc::clone(self.target().seen().expect("a look was taken"))
    }

    fn counters(&self) -> TargetCounters {
        self.target().counters
    }
}

mod blocking;
mod clock;
mod holds;
mod record;

#[test]
fn a_scan_that_fails_says_so_at_once_and_keeps_what_was_seen() {
    let mut watch = Watch::new();
    watch.look(0, &[exclusive("a", "p", 0)]);
    watch.fail(60, ErrorClass::Network);
    watch.fail(120, ErrorClass::Timeout);
    let target = watch.target();
    let Phase::Failing { last_seen: Some(seen), error, since } = &target.phase else {
        panic!("not failing with values: {:?}", target.phase)
    };
    assert_eq!((error.class, *since, seen.at), (ErrorClass::Timeout, at(60), at(0)));
    assert!(target.seen_at(at(15 * MIN), HOLD).is_some());
    assert!(target.seen_at(at(15 * MIN + 1), HOLD).is_none());
    watch.look(180, &[]);
    assert!(matches!(watch.target().phase, Phase::Seen(_)));
}

#[test]
fn a_target_never_seen_fails_without_values() {
    let mut watch = Watch::new();
    assert!(matches!(watch.target().phase, Phase::Pending));
    watch.fail(60, ErrorClass::NotFound);
    assert!(matches!(watch.target().phase, Phase::Failing { last_seen: None, .. }));
}

#[test]
fn a_wrong_password_never_shows_sealed_values() {
    let mut watch = Watch::new();
    let facts = Facts { sealed: true, ..Facts::default() };
    let entries = vec![sealed("z", None)];
    watch.scan(0, Ok(Look { entries, facts, ..Look::default() })).clear();
    watch.fail(60, ErrorClass::Network);
    assert!(watch.target().seen().is_some());
    watch.fail(120, ErrorClass::WrongPassword);
    assert!(watch.target().seen().is_none());
}

#[test]
fn first_sight_survives_the_arrival_of_the_key() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.look(60, &[sealed("a", None)]);
    assert!(watch.seen().holds.is_empty());
    let seen = watch.look(31 * MIN + 61, &[exclusive("a", "ahead", 3 * H)]);
    assert_eq!(seen.entries[0].first_seen, at(60));
    assert_eq!(seen.holds[0].held_since, at(60));
    assert!(seen.holds[0].since_is_exact);
    assert_eq!(watch.counters().holds_started.exclusive, 1);
}

#[test]
fn a_new_name_beside_sealed_ones_may_be_a_refresh() {
    let mut watch = Watch::new();
    watch.look(0, &[sealed("a", None)]);
    let seen = watch.look(60, &[exclusive("b", "p", 50)]);
    assert!(!seen.holds[0].since_is_exact);
    assert_eq!(watch.counters().holds_started.exclusive, 0);
}

#[test]
fn a_file_that_stays_closed_to_us_hides_no_start() {
    let mut watch = Watch::new();
    let closed = LockEntry::Sealed(stub("z", None), SealedWhy::Permission("read locks/z".into()));
    watch.look(0, std::slice::from_ref(&closed));
    let seen = watch.look(60, &[closed, exclusive("b", "p", 50)]);
    assert!(seen.holds[0].since_is_exact);
    assert_eq!(watch.counters().holds_started.exclusive, 1);
}

#[test]
fn a_hold_whose_refresh_cannot_be_opened_yet_goes_on() {
    let mut watch = Watch::new();
    watch.look(0, &[]);
    watch.look(60, &[exclusive("a", "p", 30)]);
    for round in 0..5 {
        let seen = watch.look(360 + round * 60, &[sealed("b", None)]);
        assert!(seen.holds.is_empty());
    }
    let seen = watch.look(900, &[exclusive("b", "p", 330)]);
    assert_eq!(seen.holds[0].held_since, at(30));
    let counters = watch.counters();
    assert_eq!((counters.holds_ended.exclusive, counters.refreshes), (0, 1));
}

#[test]
fn a_look_that_hides_a_hold_behind_a_sealed_file_does_not_count_as_missing_it() {
    let mut watch = Watch::new();
    watch.look(0, &[exclusive("a", "p", 0)]);
    watch.look(60, &[sealed("b", None)]);
    watch.look(120, &[]);
    assert_eq!(watch.counters().holds_ended.exclusive, 0);
    let seen = watch.look(180, &[exclusive("b", "p", 50)]);
    assert_eq!(seen.holds[0].held_since, at(0));
}

#[test]
fn a_sealed_name_that_was_there_before_keeps_no_hold_alive() {
    let mut watch = Watch::new();
    watch.look(0, &[sealed("z", None)]);
    watch.look(60, &[sealed("z", None), exclusive("a", "p", 30)]);
    watch.look(120, &[sealed("z", None)]);
    watch.look(180, &[sealed("z", None)]);
    assert_eq!(watch.counters().holds_ended.exclusive, 1);
}

#[test]
fn sealed_files_that_come_and_go_do_not_keep_old_holds_for_ever() {
    let mut watch = Watch::new();
    for round in 0..500 {
        let files = [
            sealed(&format!("z{round}"), None),
            shared(&format!("f{round}"), &format!("p{round}"), round * 60),
        ];
        watch.look(round * 60, &files);
        assert!(watch.tracker.memories.values().all(|memory| memory.size() < 50));
    }
    assert!(watch.counters().holds_ended.shared > 450);
}

#[test]
fn sealed_files_that_become_stale_are_events_without_a_holder() {
    let mut watch = Watch::new();
    watch.look(0, &[sealed("z", None)]);
    assert_eq!(watch.events(30 * MIN, &[sealed("z", None)]), []);
    let events = watch.events(30 * MIN + 1, &[sealed("z", None)]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, EventKind::VerdictChanged { stale: true });
    assert_eq!(events[0].hold, None);
}

#[test]
fn files_that_vanish_while_stale_were_unlocked() {
    let mut watch = Watch::new();
    let stale = shared("a", "p", -H);
    watch.look(0, &[stale.clone(), shared("b", "q", -60)]);
    // An unlock that removes nothing changes nothing.
    watch.look(60, std::slice::from_ref(&stale));
    assert_eq!(watch.counters().stale_removals, 0);
    watch.look(120, &[]);
    watch.look(180, &[]);
    assert_eq!(watch.counters().stale_removals, 1, "`b` was alive");
}

#[test]
fn unlocked_leftovers_of_a_living_holder_count_its_refreshes_do_not() {
    let mut watch = Watch::new();
    let files: Vec<_> = (0..10).map(|n| shared(&format!("f{n}"), "p", n * 300)).collect();
    watch.look(2760, &files);
    watch.look(2820, &files[3..]);
    watch.look(2880, &files[3..]);
    // f0, f1 and f2 were stale: 46, 41 and 36 minutes old.
    assert_eq!(watch.counters().stale_removals, 3);
}

#[test]
fn a_released_lock_of_a_target_made_anew_is_no_refresh() {
    let mut watch = Watch::new();
    watch.look(0, &[exclusive("a", "p", -60)]);
    watch.look(60, &[]);
    watch.look(120, &[shared("n", "q", 100)]);
    let seen = watch.look(180, &[shared("n", "q", 100)]);
    assert_eq!(seen.holds.len(), 1);
    assert_eq!(seen.holds[0].held_since, at(100));
    assert_eq!(seen.blocked_since.exclusive, Some(at(100)));
    assert_eq!(watch.counters().refreshes, 0);
}

#[test]
fn a_lock_in_one_of_ten_looks_is_never_stale_or_long() {
    let mut watch = Watch::new();
    for round in 0..100 {
        let files = match round % 10 {
            9 => vec![shared(&format!("f{round}"), &format!("p{round}"), round * 60 - 3)],
            _ => vec![],
        };
        let seen = watch.look(round * 60, &files);
        assert!(seen.holds.iter().all(|hold| hold.held_since >= at(round * 60 - 3)));
    }
    assert_eq!(watch.counters().holds_started.shared, 10);
    assert_eq!(watch.counters().stale_removals, 0);
}

#[test]
fn a_crash_loop_is_many_holds_with_gaps() {
    let mut watch = Watch::new();
    let mut blocked = 0;
    for minute in 0..60 {
        let (cycle, phase) = (minute / 5, minute % 5);
        let files = match phase {
            4 => vec![],
            _ => vec![exclusive(&format!("f{cycle}"), &format!("p{cycle}"), cycle * 300)],
        };
        let seen = watch.look(minute * 60 + 30, &files);
        blocked += u32::from(seen.blocked_since.shared.is_some());
        let state = judge::state(seen.entries.iter().map(|seen| &seen.entry));
        assert_eq!(state, if phase == 4 { State::Free } else { State::Exclusive });
    }
    assert_eq!(blocked, 48);
    assert_eq!(watch.counters().holds_started.exclusive, 11);
}

#[test]
fn a_name_listed_twice_counts_once() {
    let mut watch = Watch::new();
    let seen = watch.look(0, &[shared("a", "p", 0), shared("a", "p", 0)]);
    assert_eq!((seen.entries.len(), seen.holds.len()), (1, 1));
}

#[test]
fn a_thousand_names_come_and_go_without_a_trace() {
    let mut watch = Watch::new();
    for round in 0..1000 {
        watch.look(round * 60, &[shared(&format!("f{round}"), &format!("p{round}"), round * 60)]);
        assert!(watch.tracker.memories.values().all(|memory| memory.size() <= 6));
    }
    assert_eq!(watch.tracker.status().events.len(), Status::EVENTS_MAX);
}

#[test]
fn targets_come_change_and_go() {
    let mut tracker = Tracker::new(source::policy, HOLD);
    tracker.retarget(&TargetSet::new([
        spec("a", "/srv/a"),
        spec("b", "/srv/b"),
        spec("c", "/srv/c"),
    ]));
    for name in ["a", "b", "c", "elsewhere"] {
        let entries = vec![exclusive("f", "p", 0)];
        tracker.apply(Scan {
            spec: Arc::new(spec(name, &format!("/srv/{name}"))),
            started_at: at(0),
            ended_at: at(1),
            boot: boot(1),
            took: Duration::from_secs(1),
            outcome: Ok(Look { entries, ..Look::default() }),
        });
    }
    let before = tracker.status();
    assert_eq!(before.targets.len(), 3);
    // `a` is scanned less often, `b` moved, `c` is gone, `d` is new.
    let slower = TargetSpec { interval: Duration::from_secs(600), ..spec("a", "/srv/a") };
    tracker.retarget(&TargetSet::new([slower, spec("b", "/srv/b2"), spec("d", "/d")]));
    let status = tracker.status();
    let names: Vec<_> = status.targets.keys().map(TargetName::as_str).collect();
    assert_eq!(names, ["a", "b", "d"]);
    let [a, b, d] = ["a", "b", "d"].map(|name| &status.targets[&TargetName::new(name).unwrap()]);
    assert_eq!((a.counters.scans, a.spec.interval), (1, Duration::from_secs(600)));
    assert!(matches!(a.phase, Phase::Seen(_)));
    assert_eq!(b.counters.scans, 0);
    assert!(matches!((&b.phase, &d.phase), (Phase::Pending, Phase::Pending)));
    assert!(status.revision > before.revision);
    // A scan that was on its way when `b` moved tells nothing of where it is now.
    let events = tracker.apply(Scan {
        spec: Arc::new(spec("b", "/srv/b")),
        started_at: at(0),
        ended_at: at(1),
        boot: boot(1),
        took: Duration::from_secs(1),
        outcome: Ok(Look::default()),
    });
    assert!(events.is_empty());
    let b = &tracker.status().targets[&TargetName::new("b").unwrap()];
    assert!(matches!(b.phase, Phase::Pending));
    assert_eq!(before.targets.len(), 3, "a picture handed out never changes");
}
