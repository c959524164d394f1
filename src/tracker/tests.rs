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

pub(super) const MIN: i64 = 60;
pub(super) const H: i64 = 3600;

pub(super) fn spec(name: &str, path: &str) -> TargetSpec {
    TargetSpec {
        name: TargetName::new(name).unwrap(),
        interval: Duration::from_secs(60),
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
struct Watch(Tracker);

impl Watch {
    fn new() -> Self {
        let mut tracker = Tracker::new(source::policy, HOLD);
        tracker.retarget(&TargetSet::new([spec("t", "/srv/t")]));
        Self(tracker)
    }

    fn scan(&mut self, seconds: i64, outcome: Result<Look, ScanError>) -> Vec<LockEvent> {
        let spec = Arc::new(spec("t", "/srv/t"));
        let took = Duration::from_secs(1);
        let (started_at, ended_at) = (at(seconds - 1), at(seconds));
        self.0.apply(Scan { spec, started_at, ended_at, took, outcome })
    }

    /// A look that ends at `seconds` and began one second before.
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
        Arc::clone(&self.0.status().targets[&TargetName::new("t").unwrap()])
    }

    fn seen(&self) -> Arc<Seen> {
        Arc::clone(self.target().seen().expect("a look was taken"))
    }

    fn counters(&self) -> TargetCounters {
        self.target().counters
    }
}

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
    let durations = &watch.0.status().durations[&("restic", LockMode::Exclusive)];
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
        assert!(watch.0.memories.values().all(|memory| memory.size() < 50));
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
fn a_clock_that_steps_back_breaks_nothing() {
    let mut watch = Watch::new();
    watch.look(2 * H, &[exclusive("a", "p", 2 * H - 60)]);
    let seen = watch.look(60, &[exclusive("a", "p", 2 * H - 60), shared("b", "q", 30)]);
    assert_eq!(seen.entries[1].first_seen, at(60));
    assert!(seen.entries[1].refreshed_at() <= at(60));
    watch.look(120, &[]);
    watch.look(180, &[]);
    let durations = &watch.0.status().durations[&("restic", LockMode::Exclusive)];
    assert_eq!(durations.sum_seconds, 0.0);
}

#[test]
fn a_thousand_names_come_and_go_without_a_trace() {
    let mut watch = Watch::new();
    for round in 0..1000 {
        watch.look(round * 60, &[shared(&format!("f{round}"), &format!("p{round}"), round * 60)]);
        assert!(watch.0.memories.values().all(|memory| memory.size() <= 6));
    }
    assert_eq!(watch.0.status().events.len(), Status::EVENTS_MAX);
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
        took: Duration::from_secs(1),
        outcome: Ok(Look::default()),
    });
    assert!(events.is_empty());
    let b = &tracker.status().targets[&TargetName::new("b").unwrap()];
    assert!(matches!(b.phase, Phase::Pending));
    assert_eq!(before.targets.len(), 3, "a picture handed out never changes");
}
