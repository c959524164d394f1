//! Status as JSON objects, for `check --output json` and the HTTP API.
//!
//! Times are RFC 3339 in UTC, durations seconds. A field that is `null` is not known.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::evidence::{self, Evidence, Finding};
use crate::judge;
use crate::lock::{Holder, LockEntry, LockMode};
use crate::scan::ScanError;
use crate::status::{Hold, Phase, Seen, SeenEntry, Status, TargetStatus};
use crate::target::PerMode;

mod api;

pub use api::{Answer, EventsAsk, LocksAsk, TargetsAsk};

/// Lock files, holds and findings of one target that are listed one by one; the rest is only
/// counted.
const LOCKS_MAX: usize = 1_000;

/// Everything.
#[derive(Serialize)]
struct Document<'a> {
    severity: &'static str,
    targets: Vec<Target<'a>>,
}

#[derive(Serialize)]
struct Target<'a> {
    name: &'a str,
    source: &'static str,
    backend: &'static str,
    host: &'a str,
    location: String,
    severity: &'static str,
    state: &'static str,
    sealed: Option<bool>,
    key_pending: Option<bool>,
    blocked: Modes<Option<bool>>,
    blocked_since: Modes<Option<Timestamp>>,
    hold_limit_seconds: Modes<Option<f64>>,
    stuck_limit_seconds: Modes<Option<f64>>,
    interval_seconds: f64,
    idle_interval_seconds: f64,
    last_scan_at: Option<Timestamp>,
    last_scan_seconds: Option<f64>,
    last_success_at: Option<Timestamp>,
    failing_since: Option<Timestamp>,
    error: Option<Error<'a>>,
    clock_skew_seconds: Option<f64>,
    lock_count: usize,
    locks: Vec<Lock<'a>>,
    holds: Vec<HoldObject<'a>>,
    ignored_names: u64,
    ignored_examples: Vec<&'a str>,
    vanished: u32,
    details: BTreeMap<&'static str, &'a str>,
    finding_count: usize,
    findings: Vec<FindingObject>,
}

#[derive(Serialize)]
struct Modes<T> {
    exclusive: T,
    shared: T,
}

impl<T> From<PerMode<T>> for Modes<T> {
    fn from(PerMode { exclusive, shared }: PerMode<T>) -> Self {
        Self { exclusive, shared }
    }
}

#[derive(Serialize)]
struct Error<'a> {
    reason: &'static str,
    doing: &'a str,
    cause: &'a str,
    advice: &'a str,
}

#[derive(Serialize)]
struct Lock<'a> {
    id: &'a str,
    kind: &'static str,
    reason: Option<String>,
    mode: Option<&'static str>,
    holder: Option<HolderObject<'a>>,
    verdict: Option<&'static str>,
    stale_reason: Option<&'static str>,
    size: u64,
    own_time: Option<Timestamp>,
    stored_at: Option<Timestamp>,
    first_seen: Timestamp,
    age_seconds: f64,
    evidence: String,
    note: Option<String>,
    next_step: Option<String>,
}

#[derive(Serialize)]
struct HolderObject<'a> {
    hostname: &'a str,
    username: &'a str,
    command: &'a str,
    pid: Option<i64>,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl<'a> From<&'a Holder> for HolderObject<'a> {
    fn from(holder: &'a Holder) -> Self {
        let Holder { hostname, username, command, pid, uid, gid } = holder;
        Self { hostname, username, command, pid: *pid, uid: *uid, gid: *gid }
    }
}

#[derive(Serialize)]
struct HoldObject<'a> {
    mode: &'static str,
    holder: HolderObject<'a>,
    refreshed_at: Timestamp,
    held_since: Timestamp,
    since_is_exact: bool,
    refreshes: u64,
    files: Vec<&'a str>,
    gone: Option<&'static str>,
}

#[derive(Serialize)]
struct FindingObject {
    severity: &'static str,
    topic: &'static str,
    id: Option<String>,
    lock_of: Option<String>,
    evidence: String,
    note: Option<String>,
    next_step: Option<String>,
}

impl From<Finding> for FindingObject {
    fn from(finding: Finding) -> Self {
        Self {
            severity: finding.severity.as_str(),
            topic: finding.topic.as_str(),
            id: finding.id.map(|id| id.as_str().to_owned()),
            lock_of: finding.lock_of,
            evidence: finding.evidence,
            note: finding.note,
            next_step: finding.next_step,
        }
    }
}

/// The whole status as of `now`, as pretty JSON with a final line break.
///
/// # Errors
/// Never for a status of the tracker; the type is the serializer's.
pub fn document(status: &Status, now: Timestamp, hold: Duration) -> serde_json::Result<String> {
    let severity = super::table::severity(status, now, hold).as_str();
    let targets =
        status.targets.values().map(|target| object(target, now, hold, LOCKS_MAX)).collect();
    let mut text = serde_json::to_string_pretty(&Document { severity, targets })?;
    text.push('\n');
    Ok(text)
}

/// One target; of each list in it at most `max` items.
fn object(target: &TargetStatus, now: Timestamp, hold: Duration, max: usize) -> Target<'_> {
    let spec = &target.spec;
    let findings = evidence::findings(target, now, hold);
    let seen = target.seen_at(now, hold).map(|seen| &**seen);
    let blocked = seen.map(Seen::blocked);
    Target {
        name: spec.name.as_str(),
        source: spec.source_name(),
        backend: spec.backend(),
        host: &spec.host,
        location: spec.location(),
        severity: evidence::worst(&findings).as_str(),
        state: match spec.search() {
            Some(_) => "search",
            None => seen.map_or(judge::State::Unknown, Seen::state).as_str(),
        },
        sealed: seen.map(|seen| seen.facts.sealed),
        key_pending: seen.map(|seen| seen.facts.key_pending),
        blocked: Modes {
            exclusive: blocked.and_then(|blocked| blocked.exclusive),
            shared: blocked.and_then(|blocked| blocked.shared),
        },
        blocked_since: seen.map(|seen| seen.blocked_since).unwrap_or_default().into(),
        hold_limit_seconds: seconds(&spec.hold_limit),
        stuck_limit_seconds: seconds(&spec.stuck_limit),
        interval_seconds: spec.interval.as_secs_f64(),
        idle_interval_seconds: spec.idle_interval.as_secs_f64(),
        last_scan_at: target.last_attempt.map(|attempt| attempt.ended_at),
        last_scan_seconds: target.last_attempt.map(|attempt| attempt.took.as_secs_f64()),
        last_success_at: target.seen().map(|seen| seen.at),
        failing_since: match &target.phase {
            Phase::Failing { since, .. } => Some(*since),
            Phase::Pending | Phase::Seen(_) => None,
        },
        error: target.error().map(|ScanError { class, doing, cause, advice, wait: _ }| Error {
            reason: class.as_str(),
            doing,
            cause,
            advice,
        }),
        clock_skew_seconds: seen
            .and_then(|seen| seen.clock_skew)
            .map(|skew| skew.as_millis() as f64 / 1000.0),
        lock_count: seen.map_or(0, |seen| seen.entries.len()),
        locks: seen
            .into_iter()
            .flat_map(|seen| {
                let evidence = Evidence::new(target, seen, now);
                let entries = seen.entries.iter().take(max);
                entries.map(move |entry| lock(&evidence, entry, now))
            })
            .collect(),
        holds: seen.into_iter().flat_map(|seen| &seen.holds).take(max).map(held).collect(),
        ignored_names: seen.map_or(0, |seen| seen.ignored.count),
        ignored_examples: seen
            .into_iter()
            .flat_map(|seen| seen.ignored.examples.iter().map(|name| &**name))
            .collect(),
        vanished: seen.map_or(0, |seen| seen.vanished),
        details: seen
            .into_iter()
            .flat_map(|seen| seen.facts.details.iter().map(|(key, value)| (*key, &**value)))
            .collect(),
        finding_count: findings.len(),
        findings: findings.into_iter().take(max).map(FindingObject::from).collect(),
    }
}

fn seconds(limits: &PerMode<Option<Duration>>) -> Modes<Option<f64>> {
    let of = |limit: Option<Duration>| limit.map(|limit| limit.as_secs_f64());
    Modes { exclusive: of(limits.exclusive), shared: of(limits.shared) }
}

fn lock<'a>(evidence: &Evidence<'_>, entry: &'a SeenEntry, now: Timestamp) -> Lock<'a> {
    let stub = entry.entry.stub();
    let (kind, reason) = match &entry.entry {
        LockEntry::Readable(lock) => ("readable", lock.doubt.map(str::to_owned)),
        LockEntry::Sealed(_, why) => ("sealed", Some(why.as_str().to_owned())),
        LockEntry::Empty(_) => ("empty", None),
        LockEntry::Unreadable(_, why) => ("unreadable", Some(why.as_str().to_owned())),
    };
    let readable = match &entry.entry {
        LockEntry::Readable(lock) => Some(lock),
        LockEntry::Sealed(..) | LockEntry::Empty(_) | LockEntry::Unreadable(..) => None,
    };
    let verdict = evidence.verdict(entry);
    let stale_reason = match verdict {
        judge::Verdict::Stale(reason) => Some(reason.as_str()),
        judge::Verdict::Fresh
        | judge::Verdict::Overdue
        | judge::Verdict::Doomed
        | judge::Verdict::Unjudged => None,
    };
    let step = evidence.step(entry);
    let judged = !matches!(verdict, judge::Verdict::Unjudged);
    Lock {
        id: stub.id.as_str(),
        kind,
        reason,
        mode: readable.map(|lock| lock.mode).map(LockMode::as_str),
        holder: readable.map(|lock| HolderObject::from(&lock.holder)),
        verdict: judged.then(|| verdict.as_str()),
        stale_reason,
        size: stub.size,
        own_time: entry.entry.refreshed_at(),
        stored_at: stub.stored_at,
        first_seen: entry.first_seen,
        age_seconds: judge::age(&entry.entry, entry.first_seen, now).age.as_secs_f64(),
        evidence: evidence.sentence(entry),
        note: step.note,
        next_step: step.line,
    }
}

fn held(hold: &Hold) -> HoldObject<'_> {
    HoldObject {
        mode: hold.mode.as_str(),
        holder: HolderObject::from(&hold.holder),
        refreshed_at: hold.refreshed_at,
        held_since: hold.held_since,
        since_is_exact: hold.since_is_exact,
        refreshes: hold.refreshes,
        files: hold.files.iter().take(LOCKS_MAX).map(|id| id.as_str()).collect(),
        gone: hold.gone.map(|reason| reason.as_str()),
    }
}
