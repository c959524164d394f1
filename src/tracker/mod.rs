//! Joins scans over time: holds across refreshes, names and when they were first seen, since when
//! something is blocked. One task owns a [`Tracker`]; it is handed scans and the time in them.
//!
//! Pure: no clock, no I/O, no logging.

use crate::lock::LeasePolicy;
use crate::scan::Scan;
use crate::status::{LockEvent, Status};
use crate::target::{TargetSet, TargetSpec};

/// Everything known so far.
pub struct Tracker {
    status: Status,
}

impl Tracker {
    /// A tracker that knows nothing. `policy_of` gives the rhythm of a target's holders;
    /// `hold` is how long values of a failing target stay valid.
    pub fn new(_policy_of: fn(&TargetSpec) -> LeasePolicy, _hold: std::time::Duration) -> Self {
        Self { status: Status::default() }
    }

    /// Follows a new set of targets: new ones appear as pending, gone ones are forgotten, a target
    /// whose specification changed in anything but its reader keeps what is known.
    pub fn retarget(&mut self, _targets: &TargetSet) {}

    /// Takes one scan in. A scan of a target that is not in the set is dropped.
    pub fn apply(&mut self, _scan: Scan) -> Vec<LockEvent> {
        Vec::new()
    }

    /// The current picture; cheap.
    pub fn status(&self) -> Status {
        self.status.clone()
    }
}
