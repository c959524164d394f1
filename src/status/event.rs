//! What happened, as facts: the record that pages and the API show beside the picture of now.
//!
//! An event says what two looks running show, never why. It is kept for people; metrics have
//! counters of their own, so nothing is lost when the record forgets.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::lock::{Holder, LockId, LockMode};
use crate::scan::ScanError;
use crate::target::TargetName;

/// Something that happened to a lock between two looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockEvent {
    /// End of the scan that noticed it.
    pub at: Timestamp,
    /// Which target.
    pub target: TargetName,
    /// Which lock file.
    pub id: LockId,
    /// What.
    pub kind: EventKind,
    /// Whose; absent for files that could not be read.
    pub hold: Option<(LockMode, Holder)>,
}

/// What can happen to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A hold began.
    Acquired,
    /// A hold was renewed.
    Refreshed,
    /// A hold ended.
    Released,
    /// A lock became stale, or a stale hold came back to life.
    VerdictChanged {
        /// Whether it is stale now.
        stale: bool,
    },
}

impl EventKind {
    /// The word in JSON.
    fn as_str(self) -> &'static str {
        match self {
            EventKind::Acquired => "hold_started",
            EventKind::Refreshed => "hold_refreshed",
            EventKind::Released => "hold_ended",
            EventKind::VerdictChanged { stale: true } => "stale",
            EventKind::VerdictChanged { stale: false } => "alive_again",
        }
    }
}

/// One line of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it was noticed, by the exporter's clock.
    pub at: Timestamp,
    /// Which target; absent when it is about the exporter itself.
    pub target: Option<TargetName>,
    /// What.
    pub what: Happening,
}

/// What can stand in the record. Refreshes do not: every lock that lives has one in five minutes,
/// and they would drive out everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Something happened to a lock.
    Lock {
        /// What.
        kind: EventKind,
        /// Which lock file.
        id: LockId,
        /// Whose; absent for files that could not be read.
        hold: Option<(LockMode, Holder)>,
    },
    /// Lock files vanished while stale and were not refreshed: somebody ran `unlock`.
    RemovedStale {
        /// How many.
        files: u64,
    },
    /// New locks of a mode are refused from now on.
    Blocked {
        /// Of which mode.
        mode: LockMode,
        /// Since when, as far as the times of the locks tell.
        since: Timestamp,
    },
    /// New locks of a mode are granted again.
    Unblocked {
        /// Of which mode.
        mode: LockMode,
        /// Since when they had been refused; absent when looks that could not tell lie between.
        since: Option<Timestamp>,
    },
    /// What was told last of new locks of a mode is not known any more.
    Untold {
        /// Of which mode.
        mode: LockMode,
    },
    /// The first scan after good ones, or after none, failed.
    ScanFailing {
        /// Why.
        error: ScanError,
    },
    /// The first scan after failed ones succeeded.
    ScanRecovered {
        /// Since when scans had failed.
        since: Timestamp,
    },
    /// The exporter took a configuration into use while running.
    Reloaded {
        /// Targets in it.
        targets: usize,
    },
    /// It refused one, and goes on with the one it has.
    ReloadRefused {
        /// Why, in words.
        error: Arc<str>,
    },
    /// The exporter's machine's clock was stepped.
    ClockStepped {
        /// How far: positive is forward.
        by: SignedDuration,
    },
}

impl Happening {
    /// Every word of [`Happening::as_str`].
    pub const WORDS: [&'static str; 13] = [
        "hold_started",
        "hold_ended",
        "stale",
        "alive_again",
        "removed_stale",
        "blocked",
        "unblocked",
        "untold",
        "scan_failing",
        "scan_recovered",
        "reloaded",
        "reload_refused",
        "clock_stepped",
    ];

    /// The kind as one word, for JSON and filters.
    pub fn as_str(&self) -> &'static str {
        match self {
            Happening::Lock { kind, .. } => kind.as_str(),
            Happening::RemovedStale { .. } => "removed_stale",
            Happening::Blocked { .. } => "blocked",
            Happening::Unblocked { .. } => "unblocked",
            Happening::Untold { .. } => "untold",
            Happening::ScanFailing { .. } => "scan_failing",
            Happening::ScanRecovered { .. } => "scan_recovered",
            Happening::Reloaded { .. } => "reloaded",
            Happening::ReloadRefused { .. } => "reload_refused",
            Happening::ClockStepped { .. } => "clock_stepped",
        }
    }
}
