//! One timed loop for each target of the current set: it scans, bounded in time and number, and
//! sends what it found. It judges nothing and keeps no results.
//!
//! A target in which no lock file was seen can wait longer for its next scan than one that has any.
//!
//! A target that fails waits in a lane of its own, and a scan that takes long gives up its place
//! in the lane. So targets that hang, known for it or not, never take the places of healthy ones.
//! One whose backend wants to be asked less is left alone for longer, up to five minutes.
#![allow(clippy::disallowed_methods, reason = "this module is where scans get their time from")]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::scan::{ErrorClass, Look, Scan, ScanError};
use crate::source::{Context, LockSource};
use crate::target::{TargetName, TargetSet, TargetSpec};
use crate::telemetry::Telemetry;

/// A target that is left alone is tried again after at most this time (or its interval, if that is
/// longer) and a tenth, whatever its backend asks for.
pub const BACK_OFF_MAX: Duration = Duration::from_secs(300);
/// A target that goes on failing is logged again this often.
const LOG_AGAIN: Duration = Duration::from_secs(600);
/// A scan may keep its place in a lane for this long, then it makes room for others.
const QUICK: Duration = Duration::from_secs(1);
/// Scans that made room and still run; with more of them, lanes are what they are.
const SLOW_MAX: usize = 512;
/// First scans are spread by this much for each target, so that thousands do not start at once.
const SPREAD: Duration = Duration::from_millis(20);

/// Clocks that are read within this are read together.
const TOGETHER: Duration = Duration::from_millis(500);
/// How often that is tried.
const TRIES: u32 = 10;

/// Makes the reader of a target; a value, so that tests can put in their own.
pub type Open = Arc<dyn Fn(&TargetSpec, &Context) -> Box<dyn LockSource> + Send + Sync>;

/// What all loops share.
#[derive(Clone)]
pub struct Scanner {
    context: Context,
    open: Open,
    scans: mpsc::Sender<Scan>,
    lanes: Arc<Lanes>,
    waiting: Waiting,
}

/// How many scans run at once.
struct Lanes {
    healthy: Semaphore,
    failing: Semaphore,
    /// Scans of either lane that take long.
    slow: Semaphore,
}

impl Scanner {
    /// A scanner that runs `concurrency` scans of healthy targets at once, and a quarter as many
    /// of failing ones beside them.
    pub fn new(
        context: Context,
        open: Open,
        concurrency: usize,
        scans: mpsc::Sender<Scan>,
    ) -> Self {
        let concurrency = concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let lanes = Lanes {
            healthy: Semaphore::new(concurrency),
            failing: Semaphore::new((concurrency / 4).max(1)),
            slow: Semaphore::new(SLOW_MAX),
        };
        Self { context, open, scans, lanes: Arc::new(lanes), waiting: Waiting::default() }
    }

    /// Who waits for a place; for the lag metric.
    pub fn waiting(&self) -> Waiting {
        self.waiting.clone()
    }

    /// Follows the set of targets until its sender is gone or the future is dropped: one loop for
    /// each, started, ended and started anew as specifications come, go and change. Loops end
    /// with this future.
    pub async fn run(self, mut targets: watch::Receiver<TargetSet>) {
        let mut loops = Loops::default();
        loop {
            let set = targets.borrow_and_update().clone();
            loops.0.retain(|name, running| set.get(name) == Some(&running.spec));
            let fresh: Vec<_> =
                set.iter().filter(|spec| !loops.0.contains_key(&spec.name)).cloned().collect();
            let spread = SPREAD * u32::try_from(fresh.len()).unwrap_or(u32::MAX);
            for spec in fresh {
                let first = Instant::now() + random_part(spread.min(spec.interval));
                let task = tokio::spawn(self.clone().watch(spec.clone(), first));
                let running = Running { spec: spec.clone(), abort: task.abort_handle() };
                loops.0.insert(spec.name.clone(), running);
            }
            if targets.changed().await.is_err() {
                return;
            }
        }
    }

    /// The loop of one target.
    async fn watch(self, spec: Arc<TargetSpec>, first: Instant) {
        let mut source = (self.open)(&spec, &self.context);
        let mut rhythm = Rhythm { due: first, failures: 0, is_idle: false };
        let mut voice = Voice::default();
        loop {
            sleep_until(rhythm.due).await;
            let scan = self.scan_once(&spec, &*source, &rhythm).await;
            self.context.telemetry.scan_ended(&spec, &scan);
            voice.tell(&self.context.telemetry, &spec, &scan.outcome);
            let skipped = rhythm.next(&spec, &scan.outcome, Instant::now());
            for _ in 0..skipped {
                self.context.telemetry.scan_skipped(&spec);
            }
            if matches!(&scan.outcome, Err(error) if error.class == ErrorClass::Internal) {
                // After a panic nothing of its memory is trusted.
                source = (self.open)(&spec, &self.context);
            }
            let pending = matches!(&scan.outcome, Ok(look) if look.facts.key_pending);
            if self.scans.send(scan).await.is_err() {
                return;
            }
            // Keys can be long in coming; until then its sealed locks are looked at as ever.
            if pending && timeout_at(rhythm.due, source.ready()).await.is_ok() {
                rhythm.due = Instant::now();
            }
        }
    }

    async fn scan_once(
        &self,
        spec: &Arc<TargetSpec>,
        source: &dyn LockSource,
        rhythm: &Rhythm,
    ) -> Scan {
        let lane = if rhythm.failures == 0 { &self.lanes.healthy } else { &self.lanes.failing };
        let place = self.waiting.enter(rhythm.due);
        // The lanes are never closed; were they, the scan would run without a place.
        let permit = lane.acquire().await.ok();
        drop(place);
        let _running = self.context.telemetry.scan_starts();
        let mut scan = std::pin::pin!(scan(spec, source));
        if let Ok(scan) = timeout(QUICK, &mut scan).await {
            return scan;
        }
        // Little but a connection is at stake from here on; the place is for those who need it.
        let slow = self.lanes.slow.try_acquire();
        if slow.is_ok() {
            drop(permit);
        }
        scan.await
    }
}

/// Scans a target once, with its time limit, and catches what goes wrong.
pub async fn scan(spec: &Arc<TargetSpec>, source: &dyn LockSource) -> Scan {
    let (_, boot_before) = moment();
    let clock = std::time::Instant::now();
    let outcome = match timeout(spec.timeout, AssertUnwindSafe(source.scan()).catch_unwind()).await
    {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_panic)) => Err(ScanError::new(
            ErrorClass::Internal,
            "scan",
            "the exporter met a fault of its own (a panic; see its log)",
            "Please report it with the log.",
        )),
        Err(_elapsed) => Err(ScanError::new(
            ErrorClass::Timeout,
            "scan",
            &format!("no complete answer within {:?}", spec.timeout),
            "Look at the backend; if it is just slow, raise the target's timeout.",
        )),
    };
    let took = clock.elapsed();
    let (ended_at, boot) = moment();
    // Counted back, so that a step of the clock meanwhile is in both times.
    let lasted = boot.saturating_sub(boot_before);
    let started_at = ended_at.checked_sub(lasted).unwrap_or(ended_at);
    Scan { spec: Arc::clone(spec), started_at, ended_at, boot, took, outcome }
}

/// The wall clock and the boot-time clock, read together.
pub fn moment() -> (Timestamp, Duration) {
    let mut before = boot_time();
    let mut tries = 0;
    loop {
        let (wall, boot) = (Timestamp::now(), boot_time());
        tries += 1;
        // Whatever holds this thread up between the two would look like a step.
        if boot.saturating_sub(before) < TOGETHER || tries == TRIES {
            return (wall, boot);
        }
        before = boot;
    }
}

fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::try_from(time).unwrap_or_default()
}

/// Loops that end when they are forgotten.
#[derive(Default)]
struct Loops(BTreeMap<TargetName, Running>);

struct Running {
    spec: Arc<TargetSpec>,
    abort: AbortHandle,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// Whether there is no lock file, not even an empty one, nor one that was gone when it was read and
/// may be on its way to be another.
fn has_no_lock(outcome: &Result<Look, ScanError>) -> bool {
    outcome.as_ref().is_ok_and(|look| {
        look.entries.is_empty() && look.vanished == 0 && look.facts.unknown.is_none()
    })
}

/// When the next scan is due.
struct Rhythm {
    due: Instant,
    failures: u32,
    /// The last scan found no lock.
    is_idle: bool,
}

impl Rhythm {
    /// Plans the next scan; returns how many were due while this one ran.
    fn next(&mut self, spec: &TargetSpec, outcome: &Result<Look, ScanError>, now: Instant) -> u32 {
        let failed = outcome.as_ref().err();
        self.failures = if failed.is_some() { self.failures.saturating_add(1) } else { 0 };
        let was_idle = std::mem::replace(&mut self.is_idle, has_no_lock(outcome));
        let interval = spec.interval.max(Duration::from_millis(1));
        let longest = BACK_OFF_MAX.max(interval);
        if let Some(asked) = failed.and_then(|error| error.wait).filter(|wait| *wait > interval) {
            let wait = asked.min(longest);
            // Many targets of one backend must not come back in one moment.
            self.due = now + wait + random_part(wait / 10);
            return 0;
        }
        // Who said when to come back is asked then.
        let worse = |error: &ScanError| error.wait.is_none() && is_made_worse(error.class);
        if self.failures > 1 && failed.is_some_and(worse) {
            let factor = 1 << (self.failures - 1).min(16);
            let wait = interval.saturating_mul(factor).min(longest);
            self.due = now + wait - random_part(wait / 10);
            return 0;
        }
        let mut skipped = 0;
        self.due += match (was_idle, self.is_idle) {
            (_, false) => interval,
            (true, true) => spec.idle_interval.max(interval),
            // Targets that are found without locks together must not be scanned together for ever.
            (false, true) => interval + random_part(spec.idle_interval.saturating_sub(interval)),
        };
        while self.due <= now {
            self.due += interval;
            skipped += 1;
            if skipped == 1_000 {
                // The machine slept; there is no use in counting on.
                self.due = now + interval;
            }
        }
        skipped
    }
}

/// Whether asking at each interval makes a failure worse: a backend that is asked too much already,
/// an account that too many wrong passwords lock, a fault of our own that fills the log. All else
/// is seen to be over within one interval.
fn is_made_worse(class: ErrorClass) -> bool {
    match class {
        ErrorClass::Auth | ErrorClass::Throttled | ErrorClass::Internal => true,
        ErrorClass::Config
        | ErrorClass::Permission
        | ErrorClass::NotFound
        | ErrorClass::Damaged
        | ErrorClass::WrongPassword
        | ErrorClass::Unsupported
        | ErrorClass::Timeout
        | ErrorClass::Network
        | ErrorClass::Tls
        | ErrorClass::Protocol
        | ErrorClass::Incomplete
        | ErrorClass::Other => false,
    }
}

fn random_part(longest: Duration) -> Duration {
    longest.mul_f64(fastrand::f64())
}

/// Logs when a target starts to fail, fails for another reason, still fails, recovers.
#[derive(Default)]
struct Voice {
    failing: Option<(ErrorClass, Instant)>,
}

impl Voice {
    fn tell(
        &mut self,
        telemetry: &Telemetry,
        spec: &TargetSpec,
        outcome: &Result<Look, ScanError>,
    ) {
        match (outcome, &self.failing) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => {
                telemetry.target_recovered(spec);
                self.failing = None;
            }
            (Err(error), Some((class, logged)))
                if *class == error.class && logged.elapsed() < LOG_AGAIN => {}
            (Err(error), _) => {
                telemetry.target_failing(spec, error);
                self.failing = Some((error.class, Instant::now()));
            }
        }
    }
}

/// Scans that are due and have no place yet.
#[derive(Clone, Default)]
pub struct Waiting(Arc<Mutex<BTreeSet<(Instant, u64)>>>);

impl Waiting {
    /// The largest delay of a due scan that has not started, now.
    pub fn lag(&self) -> Duration {
        self.lock().first().map_or(Duration::ZERO, |(due, _)| due.elapsed())
    }

    fn enter(&self, due: Instant) -> Place<'_> {
        // Two scans can be due at one instant; the number keeps them apart.
        let entry = (due, fastrand::u64(..));
        self.lock().insert(entry);
        Place(self, entry)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<(Instant, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Place<'a>(&'a Waiting, (Instant, u64));

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

#[cfg(test)]
mod tests;
