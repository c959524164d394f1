//! Searches in the running exporter: targets come and go without a restart.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lock_exporter::cmd::demo::writer::{Fields, Repository, Version};

use crate::binary::{Serving, run, text};

const PASSWORD: &str = "hunter2-of-all";

fn make(root: &Path) -> Repository {
    std::fs::create_dir_all(root.parent().unwrap()).unwrap();
    let made = Repository::init(root, Version::V2, PASSWORD.as_bytes(), Repository::CHEAP);
    made.unwrap()
}

fn held(host: &str) -> Fields {
    Fields {
        time: jiff::Timestamp::now(),
        exclusive: false,
        hostname: host.into(),
        username: "backup".into(),
        pid: 7,
        uid: 0,
        gid: 0,
    }
}

/// A configuration file, and the flag that names it.
struct Configured {
    path: PathBuf,
    flag: String,
}

impl Configured {
    fn with(folder: &Path, targets: &str) -> Self {
        let path = folder.join("lock_exporter.yml");
        let this = Self { flag: format!("--config.file={}", path.display()), path };
        this.write(targets);
        this
    }

    fn write(&self, targets: &str) {
        let text = format!("scan: {{interval: 1s, timeout: 20s}}\ntargets:\n{targets}");
        std::fs::write(&self.path, text).unwrap();
    }
}

fn names(metrics: &str) -> BTreeSet<String> {
    let infos = metrics.lines().filter_map(|line| line.strip_prefix("lock_target_info{target=\""));
    infos.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

/// Asks until these and no others are watched; a time-out is the test runner's business.
fn wait_for(serving: &Serving, wanted: &[&str]) -> String {
    let wanted: BTreeSet<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
    loop {
        let (_, metrics) = serving.ask("GET /metrics");
        if names(&metrics) == wanted {
            return metrics;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

fn counter(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find(|line| line.starts_with(series)).expect(series);
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn repositories_come_and_go_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("repos");
    let a = make(&root.join("a"));
    a.lock(&held("db-a")).unwrap();
    make(&root.join("b"));
    // A password file for each name, below a folder.
    let secrets = folder.path().join("secrets");
    std::fs::create_dir(&secrets).unwrap();
    for name in ["a", "b", "c"] {
        std::fs::write(secrets.join(format!("{name}.pass")), PASSWORD).unwrap();
    }
    let pass = secrets.join("{name}.pass");
    let entry = |interval: &str| {
        format!(
            "  - name: fleet\n    interval: {interval}\n    restic: {{discover: {root:?}, \
             password_file: {pass:?}}}\n"
        )
    };
    let config = Configured::with(folder.path(), &entry("1s"));
    let serving = Serving::start(&[&config.flag, "--web.enable-lifecycle"]);
    serving.metrics_with("hostname=\"db-a\"");
    let metrics = wait_for(&serving, &["fleet", "fleet/a", "fleet/b"]);
    assert!(metrics.contains("lock_scan_success{target=\"fleet\",host=\""), "of its own");
    for family in ["lock_target_state", "lock_target_locks", "lock_target_stuck_limit_seconds"] {
        assert!(!metrics.contains(&format!("{family}{{target=\"fleet\",")), "{family}: no lock");
    }
    assert!(metrics.contains("lock_exporter_targets{source=\"restic\"} 3"));
    // As soon as each find was looked at, not before.
    while !serving.ask("GET /-/ready").0.starts_with("HTTP/1.1 200") {}
    let (_, metrics) = serving.ask("GET /metrics");
    for target in ["fleet", "fleet/a", "fleet/b"] {
        assert!(metrics.contains(&format!("lock_scan_success{{target=\"{target}\"")), "{target}");
    }
    let page = serving.ask("GET /").1;
    assert!(page.contains("a search: found 2 repositories"), "{page}");

    make(&root.join("c")).lock(&held("db-c")).unwrap();
    serving.metrics_with("hostname=\"db-c\"");
    std::fs::remove_dir_all(root.join("b")).unwrap();
    let before = wait_for(&serving, &["fleet", "fleet/a", "fleet/c"]);

    // A reload that changes nothing of a find keeps its counters; one of the interval its history.
    let scans = "lock_scans_total{target=\"fleet/a\"";
    config.write(&entry("2s"));
    let (head, _) = serving.ask("POST /-/reload");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let after = wait_for(&serving, &["fleet", "fleet/a", "fleet/c"]);
    assert!(counter(&after, scans) >= counter(&before, scans));
    assert!(after.contains("hostname=\"db-a\"") && after.contains("hostname=\"db-c\""));

    // The place is gone: that is said, and nothing else changes.
    std::fs::rename(&root, folder.path().join("away")).unwrap();
    serving.metrics_with("lock_scan_error_info{target=\"fleet\"");
    let metrics = serving.metrics_with("lock_scan_error_info{target=\"fleet/a\"");
    assert_eq!(names(&metrics).len(), 3, "{:?}", names(&metrics));
    let (code, log) = serving.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("1 place is searched"), "{log}");
}

#[test]
fn what_is_not_mounted_is_not_gone() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("repos");
    make(&root.join("here"));
    // One file system with repositories, and one that is a repository.
    make(&root.join("disk/a"));
    make(&root.join("own")).lock(&held("db-own")).unwrap();
    let pass = folder.path().join("pass");
    std::fs::write(&pass, PASSWORD).unwrap();
    let entry = format!(
        "  - {{name: fleet, restic: {{discover: {root:?}, depth: 2, password_file: {pass:?}}}}}\n"
    );
    let config = Configured::with(folder.path(), &entry);
    let serving = Serving::start(&[&config.flag]);
    let all = ["fleet", "fleet/disk/a", "fleet/here", "fleet/own"];
    serving.metrics_with("hostname=\"db-own\"");
    wait_for(&serving, &all);
    for (mount, aside) in [("disk", "aside1"), ("own", "aside2")] {
        std::fs::rename(root.join(mount), folder.path().join(aside)).unwrap();
        std::fs::create_dir(root.join(mount)).unwrap();
    }
    // More than as many searches as it takes to look into each folder again and forget it.
    let searches = |metrics: &str| counter(metrics, "lock_scans_total{target=\"fleet\",");
    let begin = searches(&serving.ask("GET /metrics").1);
    let metrics = loop {
        let metrics = serving.ask("GET /metrics").1;
        if searches(&metrics) >= begin + 14.0 {
            break metrics;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert_eq!(names(&metrics), all.map(str::to_owned).into());
    for target in ["fleet/disk/a", "fleet/own"] {
        let error = format!("lock_scan_error_info{{target=\"{target}\"");
        let line = metrics.lines().find(|line| line.starts_with(&error)).expect(target);
        assert!(line.contains("not_found"), "{line}");
    }
    // Mounted again, everything is as it was; removed with their folders, they are forgotten.
    for (mount, aside) in [("disk", "aside1"), ("own", "aside2")] {
        std::fs::remove_dir(root.join(mount)).unwrap();
        std::fs::rename(folder.path().join(aside), root.join(mount)).unwrap();
    }
    wait_for(&serving, &all);
    std::fs::remove_dir_all(root.join("disk")).unwrap();
    std::fs::remove_dir_all(root.join("own")).unwrap();
    wait_for(&serving, &["fleet", "fleet/here"]);
}

#[test]
fn one_round_searches_first() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("repos");
    make(&root.join("a"));
    make(&root.join("b")).unreadable().unwrap();
    let pass = folder.path().join("pass");
    std::fs::write(&pass, PASSWORD).unwrap();
    let entry =
        format!("  - {{name: fleet, restic: {{discover: {root:?}, password_file: {pass:?}}}}}\n");
    let config = Configured::with(folder.path(), &entry);
    let look = |names: &[&str]| run(&[&["check", &config.flag], names].concat());
    let all = look(&[]);
    assert_eq!(all.status.code(), Some(2), "{}", text(&all.stderr));
    let table = text(&all.stdout);
    for row in ["fleet/a", "fleet/b", "a search: found 2 repositories"] {
        assert!(table.contains(row), "{row}: {table}");
    }
    assert_eq!(look(&["fleet"]).status.code(), Some(2));
    let one = look(&["fleet/a"]);
    assert_eq!(one.status.code(), Some(0), "{}", text(&one.stderr));
    assert!(!text(&one.stdout).contains("fleet/b"));
    let none = look(&["fleet/x"]);
    assert_eq!(none.status.code(), Some(3));
    assert!(text(&none.stderr).contains("fleet/x"), "{}", text(&none.stderr));
    let told = run(&[&config.flag, "--config.check"]);
    let told = text(&told.stdout);
    assert!(told.starts_with("0 targets, nothing wrong; 1 place is searched for more: "), "{told}");
}

#[test]
fn lock_files_that_match_come_and_go_and_are_never_opened() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    for job in ["a", "b", ".hidden"] {
        std::fs::create_dir_all(run.join(job)).unwrap();
        std::fs::write(run.join(job).join("job.lock"), "").unwrap();
    }
    // A pipe would make whoever opens it wait, a link in a circle would never end.
    let made = std::process::Command::new("mkfifo").arg(run.join("b/pipe.lock")).status();
    assert!(made.unwrap().success());
    std::os::unix::fs::symlink(&run, run.join("loop")).unwrap();
    let pattern = run.join("*/*.lock");
    let entry =
        format!("  - {{name: jobs, file: {{path: {pattern:?}, format: exists, max: 5}}}}\n");
    let config = Configured::with(folder.path(), &entry);
    let serving = Serving::start(&[&config.flag]);
    wait_for(&serving, &["jobs", "jobs/a/job.lock", "jobs/b/job.lock", "jobs/b/pipe.lock"]);
    std::fs::remove_file(run.join("b/pipe.lock")).unwrap();
    std::fs::remove_dir_all(run.join("a")).unwrap();
    wait_for(&serving, &["jobs", "jobs/b/job.lock"]);
    for number in 0..6 {
        std::fs::write(run.join(format!("b/{number}.lock")), "").unwrap();
    }
    let metrics = serving.metrics_with("lock_scan_error_info{target=\"jobs\"");
    assert!(metrics.contains("reason=\"incomplete\""), "more than max is no silent cut");
    assert!(names(&metrics).contains("jobs/b/job.lock"));
}

#[test]
fn shards_share_the_targets_and_contradictions_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("repos");
    let all: Vec<String> = (0..12).map(|number| format!("r{number}")).collect();
    for name in &all {
        make(&root.join(name));
    }
    let entry = format!("  - {{name: fleet, restic: {{discover: {root:?}}}}}\n");
    let config = Configured::with(folder.path(), &entry);
    let flags =
        |shard: &str| [config.flag.clone(), format!("--shard={shard}"), "--total-shards=2".into()];
    let start = |shard: &str| {
        let flags = flags(shard);
        Serving::start(&flags.each_ref().map(String::as_str))
    };
    let shards = [start("0"), start("1")];
    let mut found = BTreeSet::new();
    // Each find in one of them, the search itself too.
    while found.len() < 13 {
        found.clear();
        let mut count = 0;
        for (ordinal, shard) in shards.iter().enumerate() {
            let metrics = shard.ask("GET /metrics").1;
            let sample =
                format!("lock_exporter_shard_ordinal{{shard_ordinal=\"{ordinal}\"}} {ordinal}");
            assert!(metrics.contains(&sample), "{metrics}");
            assert!(metrics.contains("lock_exporter_total_shards 2"));
            let names = names(&metrics);
            count += names.len();
            found.extend(names);
        }
        assert_eq!(count, found.len(), "none in both");
    }
    for (arguments, words) in [
        (&["--shard=2", "--total-shards=2"][..], "the last one is 1"),
        (&["--shard=1"], "the last one is 0"),
        (&["--total-shards=0"], "at least 1"),
        (&["--shard=first"], "auto"),
        (&["--shard=auto"], "POD_NAME"),
    ] {
        let refused = run(&[&[config.flag.as_str()], arguments].concat());
        assert_eq!(refused.status.code(), Some(64), "{arguments:?}");
        assert!(text(&refused.stderr).contains(words), "{}", text(&refused.stderr));
    }
}
