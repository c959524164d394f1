//! The table of the metric families that speak of targets: name, meaning, labels, values. How they
//! are ordered, merged and written is not known here.

use super::{Family, Kind, both, flag};
use crate::judge::{Blocked, State};
use crate::lock::LockMode;
use crate::target::{PerMode, Proof, Role, SourceSpec};

const HOLDER: &[&str] = &["mode", "hostname", "username", "command"];
const HOLDER_PID: &[&str] = &["mode", "hostname", "username", "command", "pid"];

/// The families that speak of searches too, which hold no locks.
pub(super) const OF_SEARCHES: [&str; 8] = [
    "lock_target_info",
    "lock_scan_success",
    "lock_scan_error_info",
    "lock_scan_timestamp_seconds",
    "lock_scan_last_success_timestamp_seconds",
    "lock_scan_duration_seconds",
    "lock_scans_total",
    "lock_scan_failures_total",
];

/// The one family whose values move with the clock while the status stays the same.
pub const MOVING: &str = "lock_target_oldest_lock_age_seconds";

/// Every family that speaks of targets, in the order of the documentation.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "lock_target_info",
        help: "Configured or found target. sealed=\"true\": no key (yet), holders unknown. location is without credentials.",
        kind: Kind::Gauge,
        labels: &["source", "backend", "sealed", "location"],
        values: |view, out| {
            let spec = &view.target.spec;
            let sealed = if view.sealed { "true" } else { "false" };
            out.add(&[spec.source_name(), spec.backend(), sealed, &view.location], 1.0);
        },
    },
    Family {
        name: "lock_target_locks",
        help: "Lock files as of the last successful scan, leftovers included; of a watched file the locks granted on it, one per holder. Unreadable and empty files are counted elsewhere. mode=\"unknown\": files that cannot be opened. Absent when not known.",
        kind: Kind::Gauge,
        labels: &["mode", "state"],
        values: |view, out| {
            for (mode, counts) in view.counts() {
                out.add(&[mode, "active"], counts.active as f64);
                out.add(&[mode, "stale"], counts.stale as f64);
            }
        },
    },
    Family {
        name: "lock_target_state",
        help: "What a new lock would meet, as of the last successful scan; exactly one state is 1. A stale lock counts like a live one, because restic treats it so. unknown: no scan yet, values too old, or a lock file that cannot be opened.",
        kind: Kind::Gauge,
        labels: &["state"],
        values: |view, out| {
            for state in State::ALL {
                out.add(&[state.as_str()], flag(view.state() == state));
            }
        },
    },
    Family {
        name: "lock_target_unreadable_locks",
        help: "Lock files that nobody can decode: restic 0.15 and newer refuses everything beside one. Absent when not known.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if let Some(seen) = view.seen().filter(|_| view.proof == Proof::Lease) {
                out.add(&[], seen.unreadable as f64);
            }
        },
    },
    Family {
        name: "lock_target_empty_locks",
        help: "Lock files of 0 bytes: no locks, they block nobody. Absent when not known.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if let Some(seen) = view.seen().filter(|_| view.proof == Proof::Lease) {
                out.add(&[], seen.empty as f64);
            }
        },
    },
    Family {
        name: MOVING,
        help: "Scrape time minus the own time of the oldest lock file, as restic prints it; for files that cannot be opened by the storage's time or first sight, for lock files that hold by existing by their modification time. Absent without locks and for kernel locks.",
        kind: Kind::Gauge,
        labels: &["mode"],
        values: |view, out| {
            if view.proof == Proof::Kernel {
                return;
            }
            for (mode, age) in view.oldest_ages() {
                out.add(&[mode], age.as_millis() as f64 / 1000.0);
            }
        },
    },
    Family {
        name: "lock_target_holds",
        help: "Distinct holders behind the lock files, as of the last successful scan. Absent when sealed or not known.",
        kind: Kind::Gauge,
        labels: &["mode"],
        values: |view, out| {
            if let Some(seen) = view.seen().filter(|_| !view.sealed) {
                for mode in LockMode::ALL {
                    let holds = seen.holds.iter().filter(|hold| hold.mode == mode).count();
                    out.add(&[mode.as_str()], holds as f64);
                }
            }
        },
    },
    Family {
        name: "lock_target_blocked",
        help: "1 = a new lock of this mode would be refused now, as of the last successful scan. Absent when not known.",
        kind: Kind::Gauge,
        labels: &["mode"],
        values: |view, out| {
            let Blocked { exclusive, shared } = view.blocked();
            for (mode, blocked) in both(PerMode { exclusive, shared }) {
                if let Some(blocked) = blocked {
                    out.add(&[mode.as_str()], flag(blocked));
                }
            }
        },
    },
    Family {
        name: "lock_target_blocked_since_timestamp_seconds",
        help: "Start of the unbroken run of looks at which a new lock of this mode would have been refused. Absent while it would be granted or that is not known.",
        kind: Kind::Gauge,
        labels: &["mode"],
        values: |view, out| {
            if let Some(seen) = view.seen() {
                for (mode, since) in both(seen.seen.blocked_since) {
                    if let Some(since) = since {
                        out.add_time(&[mode.as_str()], since);
                    }
                }
            }
        },
    },
    Family {
        name: "lock_target_orphaned_locks",
        help: "Locks that are still held on a deleted or replaced file of this path, at least: two jobs may run at once. Only for lock files; absent when not known.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if let Some(orphaned) = view.seen().and_then(|seen| seen.seen.facts.orphaned) {
                out.add(&[], orphaned as f64);
            }
        },
    },
    Family {
        name: "lock_target_waiters",
        help: "Requests that wait for a lock of this file; programs that only try again and again do not wait. Absent when not known.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if let Some(waiters) = view.seen().and_then(|seen| seen.seen.facts.waiters) {
                out.add(&[], waiters as f64);
            }
        },
    },
    Family {
        name: "lock_target_expected_held",
        help: "1 = this lock file should always be held, by the one instance of a service. Only for lock files.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| match &view.target.spec.source {
            SourceSpec::File(file) => out.add(&[], flag(file.role == Role::Daemon)),
            SourceSpec::Restic(_) | SourceSpec::Search(_) => {}
        },
    },
    Family {
        name: "lock_target_hold_limit_seconds",
        help: "Configured limit of a hold's duration, whatever its refreshes. Absent = never.",
        kind: Kind::Gauge,
        labels: &["mode"],
        values: |view, out| {
            for (mode, limit) in both(view.target.spec.hold_limit) {
                if let Some(limit) = limit {
                    out.add(&[mode.as_str()], limit.as_secs_f64());
                }
            }
        },
    },
    Family {
        name: "lock_target_stuck_limit_seconds",
        help: "A hold not refreshed for longer is stuck; a lock file's when it is held for longer while others wait. mode=\"unknown\" is for files that cannot be opened. Absent = never.",
        kind: Kind::Gauge,
        labels: &["mode"],
        values: |view, out| {
            let limits = view.target.spec.stuck_limit;
            for (mode, limit) in both(limits) {
                if let Some(limit) = limit {
                    out.add(&[mode.as_str()], limit.as_secs_f64());
                }
            }
            if view.proof != Proof::Lease {
                return;
            }
            let shorter = [limits.exclusive, limits.shared].into_iter().flatten().min();
            if let Some(limit) = shorter {
                out.add(&["unknown"], limit.as_secs_f64());
            }
        },
    },
    Family {
        name: "lock_target_clock_skew_seconds",
        help: "A lock's own time minus its storage time, of the lock with the largest difference among those known for less than 30 minutes. Absent without such a lock.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if let Some(skew) = view.seen().and_then(|seen| seen.seen.clock_skew) {
                out.add(&[], skew.as_millis() as f64 / 1000.0);
            }
        },
    },
    Family {
        name: "lock_target_hidden_holds",
        help: "Holds that are counted but have no series of their own because of the series limit. Absent when not known.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if view.seen().is_some() {
                out.add(&[], view.hidden as f64);
            }
        },
    },
    Family {
        name: "lock_hold_refreshed_timestamp_seconds",
        help: "Last refresh of the hold, i.e. of its newest lock file, on the exporter's clock; of several holders with equal labels the oldest. One series with mode=\"unknown\" stands for all files that cannot be opened.",
        kind: Kind::Gauge,
        labels: HOLDER,
        values: |view, out| {
            if view.proof != Proof::Lease {
                return;
            }
            for hold in &view.holds {
                out.add_time(&hold.labels(), hold.refreshed_at);
            }
            if let Some(oldest) = view.oldest_sealed() {
                out.add_time(&["unknown", "", "", ""], oldest);
            }
        },
    },
    Family {
        name: "lock_hold_since_timestamp_seconds",
        help: "Start of the unbroken hold as far as known (the duration is a lower bound); the earliest of equal labels.",
        kind: Kind::Gauge,
        labels: HOLDER,
        values: |view, out| {
            for hold in &view.holds {
                out.add_time(&hold.labels(), hold.held_since);
            }
        },
    },
    Family {
        name: "lock_hold_owner_gone",
        help: "1 = the process of at least one hold with these labels is certainly dead, 0 = not known to be dead.",
        kind: Kind::Gauge,
        labels: HOLDER,
        values: |view, out| {
            if view.proof == Proof::Kernel {
                return;
            }
            for hold in &view.holds {
                out.add(&hold.labels(), flag(hold.gone));
            }
        },
    },
    Family {
        name: "lock_hold_info",
        help: "The process id of the hold with the oldest refresh among those with these labels, in the holder's own PID namespace.",
        kind: Kind::Gauge,
        labels: HOLDER_PID,
        values: |view, out| {
            for hold in &view.holds {
                let [mode, hostname, username, command] = hold.labels();
                let pid = hold.pid.map(|pid| pid.to_string()).unwrap_or_default();
                out.add(&[mode, hostname, username, command, &pid], 1.0);
            }
        },
    },
    Family {
        name: "lock_holds_started_total",
        help: "Holds seen to start since the target is watched; shorter than the scan interval means unseen.",
        kind: Kind::Counter,
        labels: &["mode"],
        values: |view, out| {
            for (mode, count) in both(view.target.counters.holds_started) {
                out.add(&[mode.as_str()], count as f64);
            }
        },
    },
    Family {
        name: "lock_holds_ended_total",
        help: "Holds seen to end since the target is watched.",
        kind: Kind::Counter,
        labels: &["mode"],
        values: |view, out| {
            for (mode, count) in both(view.target.counters.holds_ended) {
                out.add(&[mode.as_str()], count as f64);
            }
        },
    },
    Family {
        name: "lock_refreshes_total",
        help: "Refreshes of holds seen; about one per live restic lock and 5 minutes.",
        kind: Kind::Counter,
        labels: &[],
        values: |view, out| out.add(&[], view.target.counters.refreshes as f64),
    },
    Family {
        name: "lock_stale_removals_total",
        help: "Lock files that vanished while stale: somebody ran unlock.",
        kind: Kind::Counter,
        labels: &[],
        values: |view, out| out.add(&[], view.target.counters.stale_removals as f64),
    },
    Family {
        name: "lock_scan_success",
        help: "1 = the last scan of the target succeeded, 0 = it failed. Absent before the first attempt.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if view.target.last_attempt.is_some() {
                out.add(&[], flag(view.target.error().is_none()));
            }
        },
    },
    Family {
        name: "lock_scan_error_info",
        help: "Why the last scan failed; only while lock_scan_success is 0.",
        kind: Kind::Gauge,
        labels: &["reason"],
        values: |view, out| {
            if let Some(error) = view.target.error() {
                out.add(&[error.class.as_str()], 1.0);
            }
        },
    },
    Family {
        name: "lock_scan_timestamp_seconds",
        help: "End of the last scan, successful or not. Scans run on the exporter's own timer; all values are of the last scan.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if let Some(attempt) = view.target.last_attempt {
                out.add_time(&[], attempt.ended_at);
            }
        },
    },
    Family {
        name: "lock_scan_last_success_timestamp_seconds",
        help: "End of the last successful scan. Absent before the first one.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if let Some(seen) = view.target.seen() {
                out.add_time(&[], seen.at);
            }
        },
    },
    Family {
        name: "lock_scan_duration_seconds",
        help: "Duration of the last scan, successful or not.",
        kind: Kind::Gauge,
        labels: &[],
        values: |view, out| {
            if let Some(attempt) = view.target.last_attempt {
                out.add(&[], attempt.took.as_secs_f64());
            }
        },
    },
    Family {
        name: "lock_scans_total",
        help: "Scans of the target that have ended.",
        kind: Kind::Counter,
        labels: &[],
        values: |view, out| out.add(&[], view.target.counters.scans as f64),
    },
    Family {
        name: "lock_scan_failures_total",
        help: "Scans of the target that have failed.",
        kind: Kind::Counter,
        labels: &[],
        values: |view, out| out.add(&[], view.target.counters.scan_failures as f64),
    },
];
