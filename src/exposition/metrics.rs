//! The metric families, rendered from the current status by the `prometheus` crate. What each
//! speaks of is in one table, `families`.
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
use crate::label::LabelRules;
use crate::lock::LockMode;
use crate::status::{DurationHistogram, Seen, Status, TargetStatus};
use crate::target::PerMode;

mod families;

use families::OF_SEARCHES;
pub use families::{FAMILIES, MOVING};

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

/// The families that speak of all targets together.
const DURATIONS: &str = "lock_hold_duration_seconds";
const TARGETS: &str = "lock_exporter_targets";

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
