//! What has to be measured from inside: decoding locks, and scans of many local repositories.
//!
//!     speed decode              locks decoded in a second on one core
//!     speed fleet DIR R L       makes R repositories with L locks each below DIR
//!     speed scans DIR           looks at every repository below DIR; beside it `find` lists them
//!
//! Each prints one JSON object. `benches/run` calls it and judges; nothing is judged here.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench that cannot go on has failed")]
#![allow(clippy::disallowed_methods, reason = "measures time and makes files")]

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lock_exporter::app;
use lock_exporter::cmd::demo::writer::{Fields, Repository, Version};
use lock_exporter::location::Location;
use lock_exporter::scanner;
use lock_exporter::secret::{EnvSpec, PasswordSpec, Secret};
use lock_exporter::source::restic::crypto::MasterKey;
use lock_exporter::source::restic::lock_file::{self, Encoding};
use lock_exporter::source::{self, LockSource};
use lock_exporter::target::{PerMode, ResticSpec, SourceSpec, TargetName, TargetSet, TargetSpec};
use lock_exporter::tracker::Tracker;

const PASSWORD: &str = "bench";
/// As the exporter's own default.
const CONCURRENCY: usize = 16;
const ROUNDS: usize = 9;
const DECODED: usize = 20_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        // `cargo bench` without words.
        [] | ["decode"] => decode(),
        ["fleet", root, repositories, locks] => {
            fleet(Path::new(root), repositories.parse().unwrap(), locks.parse().unwrap());
        }
        ["scans", root] => tokio::runtime::Runtime::new().unwrap().block_on(scans(Path::new(root))),
        _ => panic!("speed decode | speed fleet DIR REPOSITORIES LOCKS | speed scans DIR"),
    }
}

fn fields(number: usize) -> Fields {
    Fields {
        time: jiff::Timestamp::now(),
        exclusive: number.is_multiple_of(10),
        hostname: format!("web{:02}.example.org", number % 25),
        username: "backup".into(),
        pid: 1000 + i64::try_from(number).unwrap(),
        uid: 1000,
        gid: 1000,
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64()
}

/// Decrypts, decompresses and parses locks of version 2, on this thread alone.
fn decode() {
    let master = MasterKey::from_derived(&std::array::from_fn(|index| index as u8));
    let sealed: Vec<Vec<u8>> = (0..DECODED)
        .map(|number| {
            let text = serde_json::to_vec(&fields(number)).unwrap();
            let plain = [&[2][..], &zstd::bulk::compress(&text, 3).unwrap()].concat();
            let iv = u128::try_from(number + 1).unwrap().to_be_bytes();
            master.seal(iv, &plain)
        })
        .collect();
    let times = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            for sealed in &sealed {
                let plain = master.open(sealed).unwrap();
                black_box(lock_file::decode(&plain, Encoding::Compressible).unwrap());
            }
            begun.elapsed()
        })
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rate = DECODED as f64 / median(times);
    println!("{}", serde_json::json!({ "locks_per_second": rate }));
}

fn fleet(root: &Path, repositories: usize, locks: usize) {
    for repository in 0..repositories {
        let path = root.join(format!("{repository:05}"));
        let cost = Repository::CHEAP;
        let made = Repository::init(&path, Version::V2, PASSWORD.as_bytes(), cost).unwrap();
        for lock in 0..locks {
            made.lock(&fields(repository * locks + lock)).unwrap();
        }
    }
    println!("{}", serde_json::json!({ "password": PASSWORD }));
}

fn target(root: &Path) -> TargetSpec {
    let variables = BTreeMap::from([("RESTIC_PASSWORD".to_owned(), Secret::new(PASSWORD))]);
    let restic = ResticSpec {
        repository: Location::parse(root.to_str().unwrap()).unwrap(),
        password: PasswordSpec::Inherit,
        env: EnvSpec { env: variables, env_file: None, env_dir: None },
        options: BTreeMap::new(),
        key_hint: None,
        cacert: vec![],
        insecure_tls: false,
    };
    TargetSpec {
        name: TargetName::new(root.file_name().unwrap().to_str().unwrap()).unwrap(),
        interval: Duration::from_secs(60),
        idle_interval: Duration::from_secs(60),
        timeout: Duration::from_secs(30),
        hold_limit: PerMode::default(),
        stuck_limit: PerMode::default(),
        host: Arc::default(),
        source: SourceSpec::Restic(restic),
    }
}

type Watched = (Arc<TargetSpec>, Box<dyn LockSource>);

/// The first round reads everything; later ones only list. `find` lists the same in turn.
async fn scans(root: &Path) {
    let mut roots: Vec<PathBuf> =
        fs::read_dir(root).unwrap().map(|found| found.unwrap().path()).collect();
    roots.sort();
    let targets = TargetSet::new(roots.iter().map(|root| target(root)));
    let context = app::context(lock_exporter::proc::machine::MachineSpec::unknown());
    let watched: Vec<Watched> =
        targets.iter().map(|spec| (Arc::clone(spec), source::open(spec, &context))).collect();
    let mut tracker = Tracker::new(source::policy, Duration::from_secs(900));
    tracker.retarget(&targets);
    let begun = Instant::now();
    futures_util::stream::iter(&watched)
        .for_each_concurrent(CONCURRENCY, |(_, source)| source.ready())
        .await;
    round(&watched, &mut tracker).await;
    let cold = begun.elapsed();
    let (mut warm, mut found) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let locks = round(&watched, &mut tracker).await;
        warm.push(begun.elapsed());
        let begun = Instant::now();
        assert_eq!(find(root), locks, "find and the exporter see the same files");
        found.push(begun.elapsed());
    }
    println!(
        "{}",
        serde_json::json!({
            "repositories": watched.len(),
            "cold_seconds": cold.as_secs_f64(),
            "warm_seconds": median(warm),
            "find_seconds": median(found),
        })
    );
}

/// One scan of every target, each taken in by the tracker; gives the number of locks.
async fn round(watched: &[Watched], tracker: &mut Tracker) -> usize {
    let mut scans = futures_util::stream::iter(watched)
        .map(|(spec, source)| scanner::scan(spec, &**source))
        .buffer_unordered(CONCURRENCY);
    let mut locks = 0;
    while let Some(scan) = scans.next().await {
        locks += scan.outcome.as_ref().expect("every repository is readable").entries.len();
        tracker.apply(scan);
    }
    locks
}

fn find(root: &Path) -> usize {
    let done = Command::new("sh")
        .args(["-c", "find \"$1\"/*/locks -type f", "sh"])
        .arg(root)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(done.status.success());
    done.stdout.iter().filter(|byte| **byte == b'\n').count()
}
