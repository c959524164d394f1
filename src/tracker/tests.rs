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
        let target = TargetName::new("t").unwrap();
        let took = Duration::from_secs(1);
        let (started_at, ended_at) = (at(seconds - 1), at(seconds));
        self.0.apply(Scan { target, started_at, ended_at, took, outcome })
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
