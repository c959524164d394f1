//! The file in the state folder: whatever is in it, a tracker that takes it up goes on.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lock_exporter::config::{self, Overrides};
use lock_exporter::lock::{
    HoldKey, Holder, Liveness, Lock, LockEntry, LockId, LockMode, Stub, Tenure,
};
use lock_exporter::proc::traces::Traces;
use lock_exporter::scan::{Look, Scan};
use lock_exporter::source;
use lock_exporter::state::Remembered;
use lock_exporter::target::TargetSet;
use lock_exporter::tracker::Tracker;

use crate::parsers::{Parser, kind, kind_of_many};

pub const STATE: Parser = Parser {
    name: "state",
    words: &[
        "null",
        "[]",
        "{}",
        "\"version\":1",
        "\"lead\":",
        "\"holds\":",
        "\"names\":",
        "\"blocked\":",
        "\"last\":",
        "\"2026-01-02T03:04:05Z\"",
        "\"-009999-01-02T01:59:59Z\"",
        "\"9999-12-30T22:00:00.999999999Z\"",
        "\"PT9223372036854775807S\"",
        "\"-PT1S\"",
        "true",
        "false",
    ],
    samples,
    base: 1 << 20,
    each: 400,
    run,
};

const HOLD: Duration = Duration::from_secs(900);

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_767_323_045 + 60 * minute).expect("is a time")
}

fn targets() -> TargetSet {
    let text =
        "targets: [{name: t, restic: {repository: /srv/t}}, {name: f, file: {path: /run/f}}]";
    TargetSet::new(config::parse(text, &Overrides::default(), "here").expect("is right").targets)
}

fn entry(name: &str, mode: LockMode, minute: i64) -> LockEntry {
    LockEntry::Readable(Arc::new(Lock {
        stub: Stub { id: LockId::new(name), size: 200, stored_at: Some(at(minute)) },
        key: HoldKey::new("host user 7"),
        mode,
        holder: Holder { hostname: "host".into(), pid: Some(7), ..Holder::default() },
        tenure: Tenure::Leased { refreshed_at: Some(at(minute)) },
        liveness: Liveness::Unknown,
        doubt: None,
    }))
}

fn look(tracker: &mut Tracker, minute: i64, entries: Vec<LockEntry>) {
    for spec in targets().iter() {
        tracker.apply(Scan {
            spec: Arc::clone(spec),
            started_at: at(minute),
            ended_at: at(minute),
            boot: Duration::from_secs(60 * (1_000 + minute.unsigned_abs())),
            took: Duration::ZERO,
            outcome: Ok(Look { entries: entries.clone(), ..Look::default() }),
        });
    }
}

fn tracker() -> Tracker {
    Tracker::new(source::policy, HOLD)
}

fn samples() -> Vec<Vec<u8>> {
    let mut tracker = tracker();
    tracker.retarget(&targets());
    tracker.clock(at(0), Duration::from_secs(60_000));
    let mut samples = Vec::new();
    for minute in 0..4 {
        let names = [entry(&format!("{minute}"), LockMode::Exclusive, minute)];
        look(&mut tracker, minute, names[..usize::from(minute < 3)].to_vec());
        let remembered = Remembered { saved: tracker.save(), traces: Default::default() };
        samples.push(serde_json::to_vec(&remembered).expect("can be written"));
    }
    samples
}

fn run(input: &[u8]) -> u64 {
    let mut remembered: Remembered = match serde_json::from_slice(input) {
        Ok(remembered) => remembered,
        Err(error) => return kind(&error.to_string()),
    };
    if input.len().is_multiple_of(2) {
        remembered.saved.forget_boot();
    }
    let traces = Traces::default();
    traces.restore(remembered.traces);
    let mut tracker = tracker();
    tracker.restore(remembered.saved);
    tracker.retarget(&targets());
    tracker.clock(at(5), Duration::from_secs(60_300));
    look(&mut tracker, 5, vec![entry("5", LockMode::Exclusive, 5)]);
    look(&mut tracker, 6, vec![]);
    let status = tracker.status();
    let written = Remembered { saved: tracker.save(), traces: traces.save() };
    let text = serde_json::to_vec(&written).expect("can be written");
    let again: Remembered = serde_json::from_slice(&text).expect("can be read again");
    assert!(again == written, "not what was written");
    kind_of_many("ok", status.targets.len() + text.len())
}
