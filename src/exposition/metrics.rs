//! The metric families: one table, rendered from the current status by the `prometheus` crate.
//!
//! Families are built new for each render, so a vanished lock vanishes. Labels from outside are
//! cleaned, rewritten and merged here; two equal series cannot leave this module.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

use super::view::{HoldSeries, View, holds_shown};
use crate::judge::{Blocked, State};
use crate::label::LabelRules;
use crate::lock::LockMode;
use crate::status::{DurationHistogram, Seen, Status, TargetStatus};
use crate::target::{PerMode, Proof, Role, SourceSpec};

/// What renders besides the status.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How long values of a target stay shown without a successful scan.
    pub hold: Duration,
    /// The operator's rules for holder labels.
    pub labels: LabelRules,
    /// Names of all sources, so that their counts are there as 0.
    pub sources: Vec<&'static str>,
}

/// Facts about the exporter's own process and configuration.
#[derive(Clone, Debug)]
pub struct Exporter {
    /// Label pairs of `lock_exporter_build_info`.
    pub build: Vec<(&'static str, &'static str)>,
    /// Whether the configuration that was last given is the one in use.
    pub reload_successful: bool,
    /// When a configuration was last taken into use.
    pub reload_success_at: Timestamp,
    /// Which shard this is.
    pub shard: u32,
    /// Of how many.
    pub total_shards: u32,
}

/// What a family measures, and so how its samples are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A gauge; also info metrics and state sets, which text 0.0.4 does not know.
    Gauge,
    /// A counter.
    Counter,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Metric name.
    pub name: &'static str,
    /// The HELP line: source of the value, unit, and what absence means.
    pub help: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Label names after `target` and `host`, which every row has.
    pub labels: &'static [&'static str],
    /// Writes the samples of one target.
    values: fn(&View<'_>, &mut Samples<'_>),
}

/// Collects the samples of one family.
struct Samples<'a> {
    family: &'a Family,
    target: &'a str,
    host: &'a str,
    out: &'a mut Vec<Metric>,
}

impl Samples<'_> {
    fn add(&mut self, labels: &[&str], value: f64) {
        debug_assert_eq!(labels.len(), self.family.labels.len());
        let mut pairs = vec![pair("target", self.target), pair("host", self.host)];
        pairs.extend(self.family.labels.iter().zip(labels).map(|(name, value)| pair(name, value)));
        self.out.push(sample(self.family.kind, pairs, value));
    }

    fn add_time(&mut self, labels: &[&str], at: Timestamp) {
        self.add(labels, seconds(at));
    }
}

pub(super) fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.into());
    pair.set_value(value.into());
    pair
}

pub(super) fn sample(kind: Kind, labels: Vec<LabelPair>, value: f64) -> Metric {
    let mut metric = Metric::from_label(labels);
    match kind {
        Kind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        Kind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        }
    }
    metric
}

pub(super) fn seconds(at: Timestamp) -> f64 {
    // Milliseconds are finer than any clock here is right, and short to read.
    at.as_millisecond() as f64 / 1000.0
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn both<T: Copy>(values: PerMode<T>) -> [(LockMode, T); 2] {
    [(LockMode::Exclusive, values.exclusive), (LockMode::Shared, values.shared)]
}

const HOLDER: &[&str] = &["mode", "hostname", "username", "command"];
const HOLDER_PID: &[&str] = &["mode", "hostname", "username", "command", "pid"];

/// The families that speak of all targets together.
const DURATIONS: &str = "lock_hold_duration_seconds";
const TARGETS: &str = "lock_exporter_targets";

/// The families that speak of searches too, which hold no locks.
const OF_SEARCHES: [&str; 8] = [
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
        help: "Locks that are still held on a deleted or replaced file of this path: two jobs may run at once. Only for lock files; absent when not known.",
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

/// Renders one status at one moment; a `Collector` to be registered in a fresh registry.
pub struct StatusCollector {
    status: Status,
    now: Timestamp,
    rules: Arc<Rules>,
}

impl StatusCollector {
    /// Renders `status` as of `now`.
    pub fn new(status: Status, now: Timestamp, rules: Arc<Rules>) -> Self {
        Self { status, now, rules }
    }

    /// Hands on the wanted families one after the other, in the order of a registry: by name, then
    /// by the values of labels. Families without a series are left out, as a registry does.
    ///
    /// As values the families of a large page are ten times its text, so only one is held at a
    /// time.
    ///
    /// # Errors
    /// The first one of `take`, which ends it.
    pub fn each<E>(
        &self,
        wanted: impl Fn(&str) -> bool,
        mut take: impl FnMut(MetricFamily) -> Result<(), E>,
    ) -> Result<(), E> {
        let series: Vec<Vec<HoldSeries>> = holds_shown(&self.status, self.now, &self.rules);
        let views: Vec<View<'_>> = self
            .status
            .targets
            .values()
            .zip(series)
            .map(|(target, holds)| View::new(target, self.now, &self.rules, holds))
            .collect();
        let mut rows: Vec<_> = FAMILIES.iter().map(|row| (row.name, Some(row))).collect();
        rows.extend([(DURATIONS, None), (TARGETS, None)]);
        rows.sort_unstable_by_key(|(name, _)| *name);
        for (name, row) in rows.into_iter().filter(|(name, _)| wanted(name)) {
            let mut family = match row {
                Some(row) => of_targets(row, &views),
                None if name == DURATIONS => durations(&self.status, &self.rules),
                None => targets_by_source(&self.status, &self.rules),
            };
            if family.get_metric().is_empty() {
                continue;
            }
            family.mut_metric().sort_by(by_label_values);
            take(family)?;
        }
        Ok(())
    }
}

impl StatusCollector {
    /// The family that moves with the clock, if it has a series.
    pub fn moving(&self) -> Option<MetricFamily> {
        let row = FAMILIES.iter().find(|row| row.name == MOVING)?;
        // It speaks of files, not of holds.
        let view = |target| View::new(target, self.now, &self.rules, Vec::new());
        let views: Vec<_> = self.status.targets.values().map(|target| view(target)).collect();
        let mut family = of_targets(row, &views);
        family.mut_metric().sort_by(by_label_values);
        (!family.get_metric().is_empty()).then_some(family)
    }

    /// The last moment at which every other family is as it is now, unless the status changes:
    /// then the first value that is shown now is too old. `None` when no value can become so.
    pub fn true_until(&self) -> Option<Timestamp> {
        let shown = |target: &Arc<TargetStatus>| target.seen_at(self.now, self.rules.hold).cloned();
        let hold = SignedDuration::try_from(self.rules.hold).unwrap_or(SignedDuration::MAX);
        let until = |seen: Arc<Seen>| seen.at.checked_add(hold).ok();
        self.status.targets.values().filter_map(shown).filter_map(until).min()
    }
}

impl Collector for StatusCollector {
    /// Empty: families come and go with the targets, and each render has its own registry.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = Vec::with_capacity(FAMILIES.len() + 2);
        let _: Result<(), Infallible> = self.each(
            |_| true,
            |family| {
                families.push(family);
                Ok(())
            },
        );
        families
    }
}

fn of_targets(family: &Family, views: &[View<'_>]) -> MetricFamily {
    let mut metrics = Vec::with_capacity(views.len());
    let of_searches = OF_SEARCHES.contains(&family.name);
    for view in views.iter().filter(|view| of_searches || view.target.spec.search().is_none()) {
        let target = view.target.spec.name.as_str();
        let out = &mut metrics;
        (family.values)(view, &mut Samples { family, target, host: &view.host, out });
    }
    let kind = match family.kind {
        Kind::Gauge => MetricType::GAUGE,
        Kind::Counter => MetricType::COUNTER,
    };
    self::family(family.name, family.help, kind, metrics)
}

/// The order in which a registry puts the series of one family.
fn by_label_values(a: &Metric, b: &Metric) -> Ordering {
    a.get_label().iter().map(LabelPair::value).cmp(b.get_label().iter().map(LabelPair::value))
}

pub(super) fn family(
    name: &str,
    help: &str,
    kind: MetricType,
    metrics: Vec<Metric>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.into());
    family.set_help(help.into());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

/// Durations of ended holds have no target label: a histogram per target would be too much.
fn durations(status: &Status, rules: &Rules) -> MetricFamily {
    let none = DurationHistogram::default();
    let mut metrics = Vec::new();
    for source in &rules.sources {
        for mode in LockMode::ALL {
            let durations = status.durations.get(&(*source, mode)).unwrap_or(&none);
            let mut total = 0;
            let buckets = DurationHistogram::BOUNDS
                .iter()
                .zip(durations.counts)
                .map(|(bound, count)| {
                    total += count;
                    let mut bucket = Bucket::default();
                    bucket.set_upper_bound(*bound);
                    bucket.set_cumulative_count(total);
                    bucket
                })
                .collect();
            let mut histogram = Histogram::default();
            histogram.set_bucket(buckets);
            histogram.set_sample_count(durations.counts.iter().sum());
            histogram.set_sample_sum(durations.sum_seconds);
            let labels = vec![pair("source", source), pair("mode", mode.as_str())];
            let mut metric = Metric::from_label(labels);
            metric.set_histogram(histogram);
            metrics.push(metric);
        }
    }
    family(
        DURATIONS,
        "Duration of holds that were seen to end, over all targets.",
        MetricType::HISTOGRAM,
        metrics,
    )
}

fn targets_by_source(status: &Status, rules: &Rules) -> MetricFamily {
    let metrics = rules
        .sources
        .iter()
        .map(|source| {
            let count = status.targets.values().filter(|t| t.spec.source_name() == *source).count();
            sample(Kind::Gauge, vec![pair("source", source)], count as f64)
        })
        .collect();
    family(TARGETS, "Targets that this exporter watches.", MetricType::GAUGE, metrics)
}

impl Collector for Exporter {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let gauge = |name: &str, help: &str, labels: Vec<LabelPair>, value: f64| {
            family(name, help, MetricType::GAUGE, vec![sample(Kind::Gauge, labels, value)])
        };
        let build = self.build.iter().map(|(name, value)| pair(name, value)).collect();
        vec![
            gauge(
                "lock_exporter_build_info",
                "The version this exporter was built from.",
                build,
                1.0,
            ),
            gauge(
                "lock_exporter_config_last_reload_successful",
                "1 = the configuration in use is the one that was last given.",
                vec![],
                flag(self.reload_successful),
            ),
            gauge(
                "lock_exporter_config_last_reload_success_timestamp_seconds",
                "When a configuration was last taken into use.",
                vec![],
                seconds(self.reload_success_at),
            ),
            gauge(
                "lock_exporter_shard_ordinal",
                "Which shard of the targets this exporter watches.",
                vec![pair("shard_ordinal", &self.shard.to_string())],
                f64::from(self.shard),
            ),
            gauge(
                "lock_exporter_total_shards",
                "How many shards there are.",
                vec![],
                f64::from(self.total_shards),
            ),
        ]
    }
}
