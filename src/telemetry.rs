//! What the exporter tells about itself: its counters, and one function for each event that
//! counts and logs it.
//!
//! Label sets are closed, so every value is there from the start, as 0.

use std::fmt;
use std::time::Duration;

use prometheus::{
    Gauge, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};

mod keys;

pub use keys::KeyWanted;

use crate::scan::{ErrorClass, Scan, ScanError};
use crate::target::TargetSpec;
use keys::Keys;

/// What was asked of a backend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// One page of a listing.
    List,
    /// Size and time of one file.
    Stat,
    /// The content of one file.
    Get,
    /// Credentials from a metadata or token service.
    Credentials,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 4] =
        [Operation::List, Operation::Stat, Operation::Get, Operation::Credentials];

    /// The `operation` label.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::List => "list",
            Operation::Stat => "stat",
            Operation::Get => "get",
            Operation::Credentials => "credentials",
        }
    }
}

/// The names of handlers in HTTP metrics; everything else is `other`.
pub const HANDLERS: [&str; 10] = [
    "/",
    "/metrics",
    "/targets",
    "/api/v1",
    "/config",
    "/-/page",
    "/-/healthy",
    "/-/ready",
    "/-/reload",
    "other",
];

const STATUS_CODES: [&str; 9] = ["200", "400", "401", "403", "404", "405", "429", "500", "503"];

/// The exporter's own counters.
pub struct Telemetry {
    registry: Registry,
    store_requests: IntCounterVec,
    store_failures: IntCounterVec,
    store_seconds: HistogramVec,
    cache_lookups: IntCounter,
    cache_hits: IntCounter,
    scan_errors: IntCounterVec,
    scans_skipped: IntCounterVec,
    scans_in_flight: IntGauge,
    scan_lag: Gauge,
    tasks: IntGauge,
    keys: Keys,
    http_requests: IntCounterVec,
    http_seconds: HistogramVec,
    http_in_flight: IntGauge,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Telemetry")
    }
}

/// `Opts` are literals below, so a failure is a fault of this file that every test would meet.
macro_rules! metric {
    ($registry:expr, $make:expr) => {{
        let metric = $make.expect("a metric's name and labels are literals");
        $registry
            .register(Box::new(metric.clone()))
            .expect("each metric of this file has a name of its own");
        metric
    }};
}

impl Telemetry {
    /// Counters at zero, with every label value of the closed sets.
    pub fn new(sources: &[&str], backends: &[&str]) -> Self {
        let registry = Registry::new();
        let this = Self {
            store_requests: metric!(
                registry,
                IntCounterVec::new(
                    Opts::new(
                        "lock_exporter_store_requests_total",
                        "Requests sent to backends, retries and paging included.",
                    ),
                    &["backend", "operation"],
                )
            ),
            store_failures: metric!(
                registry,
                IntCounterVec::new(
                    Opts::new(
                        "lock_exporter_store_request_failures_total",
                        "Requests to backends that failed or were answered with an error.",
                    ),
                    &["backend", "operation"],
                )
            ),
            store_seconds: metric!(
                registry,
                HistogramVec::new(
                    HistogramOpts::new(
                        "lock_exporter_store_request_duration_seconds",
                        "Duration of requests to backends.",
                    )
                    .buckets(vec![0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]),
                    &["backend", "operation"],
                )
            ),
            cache_lookups: metric!(
                registry,
                IntCounter::new(
                    "lock_exporter_lock_cache_lookups_total",
                    "Lock files listed whose content was wanted.",
                )
            ),
            cache_hits: metric!(
                registry,
                IntCounter::new(
                    "lock_exporter_lock_cache_hits_total",
                    "Lock files listed whose content was known already; it never changes under a name.",
                )
            ),
            scan_errors: metric!(
                registry,
                IntCounterVec::new(
                    Opts::new("lock_exporter_scan_errors_total", "Failed scans by reason."),
                    &["source", "reason"],
                )
            ),
            scans_skipped: metric!(
                registry,
                IntCounterVec::new(
                    Opts::new(
                        "lock_exporter_scans_skipped_total",
                        "Scans that were due while the previous one of the target still ran.",
                    ),
                    &["source"],
                )
            ),
            scans_in_flight: metric!(
                registry,
                IntGauge::new("lock_exporter_scans_in_flight", "Scans running now.",)
            ),
            scan_lag: metric!(
                registry,
                Gauge::new(
                    "lock_exporter_scan_lag_seconds",
                    "Largest current delay of a scan that is due and has not started.",
                )
            ),
            tasks: metric!(
                registry,
                IntGauge::new(
                    "lock_exporter_tasks",
                    "Tasks that are alive: one for each target, and some for requests.",
                )
            ),
            keys: Keys::new(metric!(
                registry,
                IntGauge::new(
                    "lock_exporter_keys_pending",
                    "Repositories whose key is not derived yet; their locks are sealed.",
                )
            )),
            http_requests: metric!(
                registry,
                IntCounterVec::new(
                    Opts::new("lock_exporter_http_requests_total", "HTTP requests answered."),
                    &["handler", "code"],
                )
            ),
            http_seconds: metric!(
                registry,
                HistogramVec::new(
                    HistogramOpts::new(
                        "lock_exporter_http_request_duration_seconds",
                        "Time from a request's head to its answer.",
                    )
                    .buckets(vec![0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0]),
                    &["handler"],
                )
            ),
            http_in_flight: metric!(
                registry,
                IntGauge::new(
                    "lock_exporter_http_requests_in_flight",
                    "HTTP requests being answered now.",
                )
            ),
            registry,
        };
        for source in sources {
            for class in ErrorClass::ALL {
                this.scan_errors.with_label_values(&[*source, class.as_str()]);
            }
            this.scans_skipped.with_label_values(&[*source]);
        }
        for backend in backends {
            for operation in Operation::ALL {
                this.store_requests.with_label_values(&[*backend, operation.as_str()]);
                this.store_failures.with_label_values(&[*backend, operation.as_str()]);
            }
        }
        for handler in HANDLERS {
            for code in STATUS_CODES {
                this.http_requests.with_label_values(&[handler, code]);
            }
            this.http_seconds.with_label_values(&[handler]);
        }
        this
    }

    /// Where the counters are registered.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// One request to a backend has ended.
    pub fn store_request(&self, backend: &str, operation: Operation, took: Duration, failed: bool) {
        let labels = [backend, operation.as_str()];
        self.store_requests.with_label_values(&labels).inc();
        if failed {
            self.store_failures.with_label_values(&labels).inc();
        }
        self.store_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// The content of a listed lock file was wanted; `hit` when it was known already.
    pub fn cache_lookup(&self, hit: bool) {
        self.cache_lookups.inc();
        if hit {
            self.cache_hits.inc();
        }
    }

    /// A scan of this source begins; hold the guard until it ends.
    pub fn scan_starts(&self) -> InFlight {
        self.scans_in_flight.inc();
        InFlight(self.scans_in_flight.clone())
    }

    /// A scan was due while the previous one still ran.
    pub fn scan_skipped(&self, spec: &TargetSpec) {
        self.scans_skipped.with_label_values(&[spec.source_name()]).inc();
        tracing::debug!(target_name = %spec.name, source = spec.source_name(), "scan skipped");
    }

    /// The largest current delay of a due scan, as of now.
    pub fn scan_lag(&self, lag: Duration) {
        self.scan_lag.set(lag.as_secs_f64());
    }

    /// A repository waits for its key; hold the guard until it is there or cannot be had.
    pub fn key_wanted(&self) -> KeyWanted {
        self.keys.want()
    }

    /// How many tasks are alive, as of now.
    pub fn tasks(&self, alive: usize) {
        self.tasks.set(i64::try_from(alive).unwrap_or(i64::MAX));
    }

    /// A scan ended. Counts its error; logs it at debug level only, since state changes have
    /// functions of their own.
    pub fn scan_ended(&self, spec: &TargetSpec, scan: &Scan) {
        match &scan.outcome {
            Ok(look) => tracing::debug!(
                target_name = %spec.name,
                source = spec.source_name(),
                locks = look.entries.len(),
                took_seconds = scan.took.as_secs_f64(),
                "scan ended"
            ),
            Err(error) => {
                self.scan_errors
                    .with_label_values(&[spec.source_name(), error.class.as_str()])
                    .inc();
                tracing::debug!(
                    target_name = %spec.name,
                    source = spec.source_name(),
                    reason = error.class.as_str(),
                    error = %error,
                    took_seconds = scan.took.as_secs_f64(),
                    "scan failed"
                );
            }
        }
    }

    /// A target began to fail, fails with another reason, or still fails after a long while.
    pub fn target_failing(&self, spec: &TargetSpec, error: &ScanError) {
        tracing::warn!(
            target_name = %spec.name,
            source = spec.source_name(),
            backend = spec.backend(),
            reason = error.class.as_str(),
            error = %error,
            "target cannot be scanned"
        );
    }

    /// A failing target can be scanned again.
    pub fn target_recovered(&self, spec: &TargetSpec) {
        tracing::warn!(
            target_name = %spec.name,
            source = spec.source_name(),
            backend = spec.backend(),
            "target can be scanned again"
        );
    }

    /// An HTTP request is being answered; hold the guard until it is.
    pub fn http_starts(&self) -> InFlight {
        self.http_in_flight.inc();
        InFlight(self.http_in_flight.clone())
    }

    /// An HTTP request was answered. `handler` is one of [`HANDLERS`].
    pub fn http_ended(&self, handler: &str, code: u16, took: Duration) {
        self.http_requests.with_label_values(&[handler, code.to_string().as_str()]).inc();
        self.http_seconds.with_label_values(&[handler]).observe(took.as_secs_f64());
    }
}

/// Counts something as running until it is dropped.
#[derive(Debug)]
pub struct InFlight(IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
