use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;
use crate::location::Location;
use crate::lock::{LockEntry, LockId, Stub};
use crate::scan::{Facts, UnknownWhy};
use crate::secret::{EnvSpec, PasswordSpec};
use crate::target::{PerMode, ResticSpec, SourceSpec};

/// What a target does is in its name: `ok` has no lock, `locked` one, `hang`, `fail`, `refuse`,
/// `wait` (it asks to be left alone), `panic`, `pending` (its key is there as soon as it is waited
/// for), `queued` (it never is).
struct Acting {
    act: String,
    ready: AtomicUsize,
}

#[async_trait]
impl LockSource for Acting {
    async fn scan(&self) -> Result<Look, ScanError> {
        match self.act.trim_end_matches(char::is_numeric) {
            "hang" => std::future::pending().await,
            "fail" => Err(ScanError::new(ErrorClass::Network, "list", "refused", "")),
            "refuse" => Err(ScanError::new(ErrorClass::Auth, "list", "who is this?", "")),
            "wait" => Err(ScanError::new(ErrorClass::Throttled, "list", "later", "")
                .asked_to_wait(Some(Duration::from_secs(150)))),
            "panic" => panic!("asked for"),
            "pending" if self.ready.load(Ordering::SeqCst) == 0 => Ok(pending()),
            "queued" => Ok(pending()),
            "locked" => Ok(locked()),
            _ => Ok(Look::default()),
        }
    }

    async fn ready(&self) {
        if self.act == "queued" {
            return std::future::pending().await;
        }
        self.ready.fetch_add(1, Ordering::SeqCst);
    }
}

fn pending() -> Look {
    let facts = Facts { sealed: true, key_pending: true, ..Facts::default() };
    Look { facts, ..Look::default() }
}

fn locked() -> Look {
    let stub = Stub { id: LockId::new("ab"), size: 0, stored_at: None };
    Look { entries: vec![LockEntry::Empty(stub)], ..Look::default() }
}

fn acting(spec: &TargetSpec, _: &Context) -> Box<dyn LockSource> {
    Box::new(Acting { act: spec.name.as_str().to_owned(), ready: AtomicUsize::new(0) })
}

fn spec(name: &str) -> TargetSpec {
    TargetSpec {
        name: TargetName::new(name).unwrap(),
        interval: Duration::from_secs(60),
        idle_interval: Duration::from_secs(60),
        timeout: Duration::from_secs(30),
        hold_limit: PerMode::default(),
        stuck_limit: PerMode::default(),
        host: "".into(),
        source: SourceSpec::Restic(ResticSpec {
            repository: Location::Local("/nowhere".into()),
            password: PasswordSpec::Inherit,
            env: EnvSpec::default(),
            options: BTreeMap::new(),
            key_hint: None,
            cacert: Vec::new(),
            insecure_tls: false,
        }),
    }
}

struct Bench {
    targets: watch::Sender<TargetSet>,
    scans: mpsc::Receiver<Scan>,
}

fn start(names: &[&str], concurrency: usize) -> Bench {
    start_specs(names.iter().map(|name| spec(name)).collect(), concurrency)
}

fn start_specs(specs: Vec<TargetSpec>, concurrency: usize) -> Bench {
    let (targets, following) = watch::channel(TargetSet::new(specs));
    let (sender, scans) = mpsc::channel(1024);
    let scanner = Scanner::new(
        crate::app::context(crate::proc::machine::MachineSpec::unknown()),
        Arc::new(acting),
        concurrency,
        sender,
    );
    tokio::spawn(scanner.run(following));
    Bench { targets, scans }
}

impl Bench {
    async fn next(&mut self) -> Scan {
        self.scans.recv().await.expect("the scanner runs")
    }

    /// Scans of each target that end within this much simulated time.
    async fn within(&mut self, time: Duration) -> BTreeMap<String, usize> {
        let end = Instant::now() + time;
        let mut counts = BTreeMap::new();
        while let Ok(Some(scan)) = tokio::time::timeout_at(end, self.scans.recv()).await {
            *counts.entry(scan.spec.name.to_string()).or_insert(0) += 1;
        }
        counts
    }
}

#[tokio::test(start_paused = true)]
async fn a_hanging_target_delays_no_other() {
    let hanging: Vec<String> = (0..50).map(|n| format!("hang{n}")).collect();
    let mut names: Vec<&str> = hanging.iter().map(String::as_str).collect();
    names.push("ok");
    let mut bench = start(&names, 4);
    let counts = bench.within(Duration::from_secs(600)).await;
    assert!((9..=11).contains(&counts["ok"]), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn targets_that_begin_to_hang_together_delay_no_other_even_in_the_first_round() {
    let hanging: Vec<String> = (0..120).map(|n| format!("hang{n}")).collect();
    let mut names: Vec<&str> = hanging.iter().map(String::as_str).collect();
    names.push("ok");
    let mut bench = start(&names, 16);
    let began = Instant::now();
    while bench.next().await.spec.name.as_str() != "ok" {}
    // Eight turns of sixteen quick places, and the spread of the first scans.
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_time_out_and_a_panic_are_failures_of_their_target_only() {
    let mut bench = start(&["hang", "panic", "ok"], 4);
    let mut classes = BTreeMap::new();
    while classes.len() < 3 {
        let scan = bench.next().await;
        classes.insert(scan.spec.name.to_string(), scan.outcome.err().map(|error| error.class));
    }
    assert_eq!(classes["hang"], Some(ErrorClass::Timeout));
    assert_eq!(classes["panic"], Some(ErrorClass::Internal));
    assert_eq!(classes["ok"], None);
}

#[tokio::test(start_paused = true)]
async fn a_target_that_refuses_is_tried_less_often_but_at_least_every_five_minutes() {
    let mut bench = start(&["refuse", "wait"], 4);
    bench.within(Duration::from_secs(1800)).await;
    let counts = bench.within(Duration::from_secs(3600)).await;
    assert!((12..=14).contains(&counts["refuse"]), "{counts:?}");
    // As it asked for, and a tenth more at most.
    assert!((21..=24).contains(&counts["wait"]), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_reached_is_tried_at_each_interval() {
    let mut bench = start(&["fail", "hang"], 4);
    bench.within(Duration::from_secs(1800)).await;
    let counts = bench.within(Duration::from_secs(3600)).await;
    assert!((59..=61).contains(&counts["fail"]), "{counts:?}");
    assert!((59..=61).contains(&counts["hang"]), "{counts:?}");
}

#[test]
fn nobody_is_left_alone_for_longer_than_five_minutes() {
    let start = Instant::now();
    let mut rhythm = Rhythm { due: start, failures: 0, is_idle: false };
    let spec = spec("wait");
    let throttled = |seconds| {
        ScanError::new(ErrorClass::Throttled, "list", "later", "")
            .asked_to_wait(Some(Duration::from_secs(seconds)))
    };
    rhythm.next(&spec, &Err(throttled(u64::MAX)), start);
    let wait = rhythm.due - start;
    assert!(wait >= BACK_OFF_MAX && wait <= BACK_OFF_MAX * 11 / 10, "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn a_target_is_scanned_again_as_soon_as_its_key_is_there() {
    let mut bench = start(&["pending"], 4);
    assert!(bench.next().await.outcome.unwrap().facts.key_pending);
    let asked = Instant::now();
    assert!(!bench.next().await.outcome.unwrap().facts.key_pending);
    assert!(asked.elapsed() < Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_target_whose_key_is_long_in_coming_is_scanned_in_its_rhythm() {
    let mut bench = start(&["queued"], 4);
    let counts = bench.within(Duration::from_secs(600)).await;
    assert!((9..=11).contains(&counts["queued"]), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn targets_come_and_go_with_the_set() {
    let mut bench = start(&["ok1"], 4);
    assert_eq!(bench.next().await.spec.name.as_str(), "ok1");
    bench.targets.send_replace(TargetSet::new([spec("ok2")]));
    let counts = bench.within(Duration::from_secs(300)).await;
    assert_eq!(counts.keys().map(String::as_str).collect::<Vec<_>>(), ["ok2"]);
}

#[test]
fn scans_that_were_due_meanwhile_are_counted_not_made_up_for() {
    let start = Instant::now();
    let mut rhythm = Rhythm { due: start, failures: 0, is_idle: false };
    let spec = spec("ok");
    assert_eq!(rhythm.next(&spec, &Ok(Look::default()), start + Duration::from_secs(1)), 0);
    assert_eq!(rhythm.due, start + Duration::from_secs(60));
    assert_eq!(rhythm.next(&spec, &Ok(Look::default()), start + Duration::from_secs(250)), 3);
    assert_eq!(rhythm.due, start + Duration::from_secs(300));
}

const IDLE: Duration = Duration::from_secs(300);

#[tokio::test(start_paused = true)]
async fn targets_without_locks_are_scanned_less_often_and_not_all_together() {
    let idle = |name: &str| TargetSpec { idle_interval: IDLE, ..spec(name) };
    let mut specs: Vec<_> = (0..100).map(|n| idle(&format!("ok{n}"))).collect();
    specs.extend([idle("locked"), idle("fail")]);
    let mut bench = start_specs(specs, 16);
    bench.within(IDLE * 2).await;
    let counts = bench.within(IDLE * 12).await;
    let free: Vec<_> = counts.iter().filter(|(name, _)| name.starts_with("ok")).collect();
    assert_eq!(free.len(), 100);
    assert!(free.iter().all(|(_, scans)| (11..=13).contains(*scans)), "{counts:?}");
    assert!((59..=61).contains(&counts["locked"]), "{counts:?}");
    for _ in 0..4 {
        let quarter = bench.within(IDLE / 4).await;
        let free = quarter.keys().filter(|name| name.starts_with("ok")).count();
        assert!(free <= 60, "{free} of 100 in a quarter of the time");
    }
}

#[test]
fn what_may_be_a_lock_is_looked_at_again_after_the_short_interval() {
    let (mut due, spec) = (Instant::now(), TargetSpec { idle_interval: IDLE, ..spec("ok") });
    let mut rhythm = Rhythm { due, failures: 0, is_idle: false };
    let unknown = Facts { unknown: Some(UnknownWhy::Search), ..Facts::default() };
    let looks = [
        (Ok(Look::default()), None),
        (Ok(Look::default()), Some(IDLE)),
        (Ok(locked()), Some(spec.interval)),
        (Ok(Look { vanished: 1, ..Look::default() }), Some(spec.interval)),
        (Ok(Look { facts: unknown, ..Look::default() }), Some(spec.interval)),
        (Ok(Look::default()), None),
        (Err(ScanError::new(ErrorClass::Network, "list", "refused", "")), Some(spec.interval)),
        (Ok(Look::default()), None),
        (Ok(Look::default()), Some(IDLE)),
    ];
    for (number, (outcome, wait)) in looks.into_iter().enumerate() {
        assert_eq!(rhythm.next(&spec, &outcome, due), 0);
        let waited = rhythm.due - due;
        match wait {
            Some(wait) => assert_eq!(waited, wait, "look {number}"),
            None => assert!((spec.interval..=IDLE).contains(&waited), "look {number}: {waited:?}"),
        }
        due = rhythm.due;
    }
}

#[tokio::test(start_paused = true)]
async fn lag_is_the_delay_of_the_scan_that_waits_longest() {
    let waiting = Waiting::default();
    assert_eq!(waiting.lag(), Duration::ZERO);
    let first = waiting.enter(Instant::now());
    tokio::time::advance(Duration::from_secs(5)).await;
    let _second = waiting.enter(Instant::now());
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(waiting.lag(), Duration::from_secs(10));
    drop(first);
    assert_eq!(waiting.lag(), Duration::from_secs(5));
}
