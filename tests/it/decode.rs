//! What we make of a lock's text against what real restic makes of it.
//!
//! `restic cat lock` decodes a lock exactly as restic does before it judges it. The texts are
//! made of pieces that are each near an edge of Go's JSON, of its times, or of restic's encoding.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]
#![allow(clippy::disallowed_methods, reason = "runs restic")]

use std::process::Command;
use std::thread;

use lock_exporter::cmd::demo::writer::{Repository, Version};
use lock_exporter::lock::LockMode;
use lock_exporter::source::restic::lock_file::{self, Encoding};
use serde_json::Value;

/// restic runs once for each, in 20 ms or so.
const CASES: usize = 600;

const TIMES: &[&str] = &[
    r#""2026-01-02T03:04:05Z""#,
    r#""2026-01-02T03:04:05.123456789+08:00""#,
    r#""2026-01-02T03:04:05.1-03:30""#,
    r#""2026-01-02T03:04:05.12345678901Z""#,
    r#""2026-01-02T3:04:05Z""#,
    r#""2026-01-02T03:04:05,5Z""#,
    r#""0001-01-01T00:00:00Z""#,
    r#""2026-01-02T03:04:05""#,
    r#""2026-01-02T03:04:60Z""#,
    r#""2026-02-30T03:04:05Z""#,
    r#""2026-01-02 03:04:05Z""#,
    r#""2026-01-02t03:04:05z""#,
    r#""2026-01-02T03:04:05\u005a""#,
    r#""""#,
    "5",
    "null",
];
const NUMBERS: &[&str] =
    &["1", "0", "4294967295", "4294967296", "-1", "1.5", "1e3", "01", r#""1""#, "null", "true"];
const FLAGS: &[&str] = &["true", "false", "null", "0", r#""true""#];
const TEXTS: &[&str] = &[
    r#""host""#,
    r#""""#,
    r#""bäck\u00fcp \ud83d\udc64""#,
    r#""lone \ud800 surrogate""#,
    r#""quote\" slash\/ \\ \n\t""#,
    "\"raw\ttab\"",
    r#""bad \x escape""#,
    "5",
    "null",
    "[]",
];
const NAMES: &[(&str, &[&str])] = &[
    ("time", TIMES),
    ("Time", TIMES),
    ("exclusive", FLAGS),
    ("EXCLUſIVE", FLAGS),
    ("hostname", TEXTS),
    ("username", TEXTS),
    ("pid", NUMBERS),
    ("PID", NUMBERS),
    ("uid", NUMBERS),
    ("gid", NUMBERS),
    ("more", &["{\"a\":[1,null]}", "null", "[", "1"]),
];
const AFTER: &[&str] =
    &["", "", "", "", "", "", "", "", "", "", " \n", "x", "{}", "\u{FEFF}", "\0"];
const BEFORE: &[&str] = &["", "", "", "", "", "", "", "", "", "", " ", "\u{FEFF}", "[", "\u{3}"];
const WHOLE: &[&str] = &["", "null", "{}", "[]", "\"\"", "0", "{", "[{}]"];

fn text(random: &mut fastrand::Rng) -> Vec<u8> {
    let pick = |random: &mut fastrand::Rng, from: &[&'static str]| from[random.usize(..from.len())];
    if random.u8(..20) == 0 {
        return pick(random, WHOLE).into();
    }
    let fields: Vec<String> = (0..random.usize(..8))
        .map(|_| {
            let (name, values) = NAMES[random.usize(..NAMES.len())];
            // Mostly good ones, or nearly nothing would decode.
            let most = if random.u8(..8) == 0 { values.len() } else { 1 };
            format!("\"{name}\":{}", values[random.usize(..most)])
        })
        .collect();
    let (before, after) = (pick(random, BEFORE), pick(random, AFTER));
    let mut text = format!("{before}{{{}}}{after}", fields.join(",")).into_bytes();
    if random.u8(..30) == 0 && !text.is_empty() {
        let at = random.usize(..text.len());
        text[at] = random.u8(..);
    }
    text
}

fn encoded(text: Vec<u8>, encoding: Encoding, random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u8(..16) {
        0..=7 => text,
        8..=14 if encoding == Encoding::Plain => text,
        8..=14 => [&[2][..], &zstd::bulk::compress(&text, 3).unwrap()].concat(),
        _ => [&[2][..], &text].concat(),
    }
}

/// What restic prints for this lock, or `None` when it fails.
fn restic_says(program: &str, repository: &Repository, name: &str) -> Option<Value> {
    let output = Command::new(program)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("RESTIC_PASSWORD", "p")
        .arg("-r")
        .arg(repository.root())
        .args(["--no-cache", "--no-lock", "cat", "lock", name])
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// What we make of it, in restic's form.
fn we_say(plain: &[u8], encoding: Encoding) -> Option<Value> {
    let content = lock_file::decode(plain, encoding).ok()?;
    Some(serde_json::json!({
        "time": content.refreshed_at,
        "exclusive": content.mode == LockMode::Exclusive,
        "hostname": &*content.holder.hostname,
        "username": &*content.holder.username,
        "pid": content.holder.pid.unwrap_or(0),
        "uid": content.holder.uid.unwrap_or(0),
        "gid": content.holder.gid.unwrap_or(0),
    }))
}

/// restic leaves out zeros and shows the lock's own offset.
fn normal(mut lock: Value) -> Value {
    for name in ["uid", "gid"] {
        if lock.get(name).is_none() {
            lock[name] = 0.into();
        }
    }
    let time: jiff::Timestamp = lock["time"].as_str().unwrap().parse().unwrap();
    let zero = "0001-01-01T00:00:00Z".parse().unwrap();
    lock["time"] = if time == zero { Value::Null } else { time.to_string().into() };
    lock
}

#[test]
fn restic_0_14_decodes_the_same_locks_to_the_same_content() {
    compare("RESTIC_014");
}

#[test]
fn restic_0_18_decodes_the_same_locks_to_the_same_content() {
    compare("RESTIC_018");
}

fn compare(variable: &str) {
    let program = std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} must name a restic program; tests/run installs it and sets it")
    });
    let program = program.as_str();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let temp = tempfile::tempdir().unwrap();
    let make = |folder: &str, version| {
        Repository::init(&temp.path().join(folder), version, b"p", 2).unwrap()
    };
    let repositories = [
        (make("v1", Version::V1), Encoding::Plain),
        (make("v2", Version::V2), Encoding::Compressible),
    ];
    let part = |number: u64| {
        let mut random = fastrand::Rng::with_seed(seed.wrapping_add(number));
        let mut decoded = 0;
        for _ in 0..CASES / 4 {
            let (repository, encoding) = &repositories[random.usize(..2)];
            let plain = encoded(text(&mut random), *encoding, &mut random);
            let name = repository.sealed(&plain).unwrap();
            let restic = restic_says(program, repository, &name).map(normal);
            let shown = String::from_utf8_lossy(&plain);
            assert_eq!(we_say(&plain, *encoding), restic, "{encoding:?} {shown} (seed {seed})");
            decoded += usize::from(restic.is_some());
            repository.remove(&name).unwrap();
        }
        decoded
    };
    let decoded: usize = thread::scope(|scope| {
        let parts: Vec<_> = (0..4).map(|number| scope.spawn(move || part(number))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    });
    // Neither all nor none: the pieces are mixed well.
    println!("{decoded} of {CASES} decoded");
    assert!((CASES / 5..CASES * 9 / 10).contains(&decoded), "{decoded} of {CASES} decoded");
}
