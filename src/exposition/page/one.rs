//! The page of one target: everything that is known of it.

use std::time::Duration;

use jiff::Timestamp;

use super::Frame;
use super::html::{Html, grouped};
use super::parts::{
    badge, events, fact, finding, hold, key_pending, moment, nothing, refuses, says_more, state,
};
use crate::evidence::{self, Evidence, Topic, in_words};
use crate::exposition::overview::{Counts, Standing};
use crate::lock::{LockEntry, LockMode};
use crate::status::{Hold, Phase, Seen, SeenEntry, TargetCounters, TargetStatus};
use crate::target::{FileSpec, PerMode, Proof, Role, SourceSpec};

/// Findings that are shown; the API has more.
const FINDINGS_MAX: usize = 100;
/// Lock files in the table; the API has more.
const FILES_MAX: usize = 200;

pub(super) fn body(
    html: &mut Html,
    frame: &Frame<'_>,
    target: &TargetStatus,
    standing: Option<Standing>,
    counts: &Counts,
) {
    let spec = &target.spec;
    let mut findings = evidence::findings(target, frame.now, frame.hold);
    let severity = evidence::worst(&findings);
    if target.error().is_some() {
        // It has a section of its own.
        findings.retain(|found| found.topic != Topic::NotSeen);
    }
    html.raw("<p class=\"up\"><a href=\"").text(frame.root);
    html.raw("targets\">‹ All targets</a></p>\n<h1>")
        .name(spec.name.as_str())
        .raw("</h1>\n<p class=\"place\">");
    html.name(&spec.location());
    if !spec.host.is_empty() {
        html.raw(" on ").name(&spec.host);
    }
    html.raw("</p>\n<div class=\"how\">");
    badge(html, standing.unwrap_or(Standing::Pending), severity);
    html.raw(" ");
    state(html, frame, target);
    refuses(html, frame, target);
    html.raw("</div>\n");
    let seen = target.seen_at(frame.now, frame.hold).map(|seen| &**seen);
    if seen.is_some_and(|seen| seen.facts.key_pending) {
        key_pending(html, counts.keys_pending);
    }
    error(html, frame, target);
    html.raw("<section aria-labelledby=\"known\">\n<h2 id=\"known\">What is known</h2>\n");
    for (index, found) in findings.iter().enumerate().take(FINDINGS_MAX) {
        finding(html, frame, target, found, says_more(&findings, index));
        if let Some(hold) = seen.and_then(|seen| hold(seen, found))
            && found.lock_of.is_some()
        {
            since(html, frame, hold, spec.proof());
        }
    }
    if findings.is_empty() {
        let said = if seen.is_some() { nothing(target) } else { "nothing" };
        html.raw("<p>").raw(said).raw("</p>\n");
    }
    if findings.len() > FINDINGS_MAX {
        html.raw("<p>").number(findings.len() - FINDINGS_MAX).raw(" more, none worse.</p>\n");
    }
    html.raw("</section>\n");
    facts(html, frame, target, seen);
    if !target.events.is_empty() {
        html.raw("<section aria-labelledby=\"events\">\n<h2 id=\"events\">Last events</h2>\n");
        events(html, frame, target.events.iter().rev().map(|event| &**event), None);
        html.raw("</section>\n");
    }
    if let Some(seen) = seen.filter(|seen| !seen.entries.is_empty()) {
        files(html, frame, target, seen);
    }
}

/// Since when somebody holds it, and what keeps it alive where something does.
fn since(html: &mut Html, frame: &Frame<'_>, hold: &Hold, proof: Proof) {
    html.raw("<p class=\"since\">");
    html.raw(if hold.since_is_exact { "since " } else { "since before " });
    html.time(hold.held_since, frame.now);
    match (proof, usize::try_from(hold.refreshes).unwrap_or(usize::MAX)) {
        (Proof::Kernel | Proof::Presence, _) => {}
        (Proof::Lease, 0) => {
            html.raw("; no refresh seen yet");
        }
        (Proof::Lease, refreshes) => {
            html.raw("; ").number(refreshes);
            html.raw(if refreshes == 1 { " refresh" } else { " refreshes" });
            html.raw(" seen, the last at ").moment(hold.refreshed_at, frame.now);
        }
    }
    html.raw("</p>\n");
}

fn error(html: &mut Html, frame: &Frame<'_>, target: &TargetStatus) {
    let Phase::Failing { error, since, .. } = &target.phase else { return };
    html.raw(
        "<section aria-labelledby=\"error\">\n<h2 id=\"error\">Why it cannot be scanned</h2>\n",
    );
    html.raw("<dl class=\"facts\">\n");
    fact(html, "Kind", error.class.as_str());
    fact(html, "Tried", &error.doing);
    fact(html, "Answer", &error.cause);
    fact(html, "Next step", &error.advice);
    moment(html, "Failing since", *since, frame.now);
    html.raw("</dl>\n</section>\n");
}

fn facts(html: &mut Html, frame: &Frame<'_>, target: &TargetStatus, seen: Option<&Seen>) {
    let spec = &target.spec;
    html.raw(
        "<section aria-labelledby=\"facts\">\n<h2 id=\"facts\">Facts</h2>\n<dl class=\"facts\">\n",
    );
    refusals(html, frame, target, seen);
    fact(html, "Held over its limit after", &limits(&spec.hold_limit));
    match spec.proof() {
        Proof::Lease => fact(html, "Stuck without a refresh for", &limits(&spec.stuck_limit)),
        Proof::Kernel => fact(html, "Stuck while others wait after", &limits(&spec.stuck_limit)),
        // Nobody is seen to wait for a file to vanish.
        Proof::Presence => {}
    }
    if let SourceSpec::File(FileSpec { role: Role::Daemon, .. }) = spec.source {
        fact(html, "Should be held", "always, by one daemon");
    }
    let (every, limit) = (words(spec.interval), words(spec.timeout));
    let idle = spec.idle().map(|idle| format!(" (every {} while it has no lock)", words(idle)));
    let idle = idle.unwrap_or_default();
    fact(html, "Scanned", &format!("every {every}{idle}, for at most {limit}"));
    if let Some(last) = target.last_attempt {
        moment(html, "Last scan", last.ended_at, frame.now);
        fact(html, "It took", &format!("{:.1} s", last.took.as_secs_f64()));
    }
    if let (Some(seen), Phase::Failing { .. }) = (target.seen(), &target.phase) {
        moment(html, "Last good scan", seen.at, frame.now);
    }
    let number = |number: u64| grouped(usize::try_from(number).unwrap_or(usize::MAX));
    let counters = &target.counters;
    let scans = format!("{}, {} failed", number(counters.scans), number(counters.scan_failures));
    fact(html, "Scans so far", &scans);
    fact(html, "Seen meanwhile", &meanwhile(counters, spec.proof()));
    fact(html, "Source", &format!("{} {}", spec.source_name(), spec.backend()));
    let Some(seen) = seen else {
        html.raw("</dl>\n</section>\n");
        return;
    };
    if seen.facts.sealed && !seen.facts.key_pending {
        fact(html, "Password", "none given: count, size and age are known, mode and holder not");
    }
    if let Some(waiters) = seen.facts.waiters {
        fact(html, "Waiting for it", &number(waiters));
    }
    if let Some(orphaned @ 1..) = seen.facts.orphaned {
        fact(html, "On a replaced file", &format!("{} held", locks(orphaned)));
    }
    if let Some(skew) = seen.clock_skew.filter(|skew| skew.unsigned_abs() >= Duration::from_secs(1))
    {
        let side = if skew.is_negative() { "behind" } else { "ahead" };
        fact(html, "A holder's clock", &format!("{} {side}", in_words(skew)));
    }
    if seen.ignored.count > 0 {
        let examples = seen.ignored.examples.join(", ");
        let count = number(seen.ignored.count);
        fact(html, "Names that are no locks", &format!("{count}: {examples}"));
    }
    for (key, value) in &seen.facts.details {
        html.raw("<div><dt>").text(&term(key)).raw("</dt><dd>");
        match value.parse::<Timestamp>() {
            Ok(time) => html.time(time, frame.now),
            Err(_) => html.name(value),
        };
        html.raw("</dd></div>\n");
    }
    html.raw("</dl>\n</section>\n");
}

/// Whether new locks are refused, and since when.
fn refusals(html: &mut Html, frame: &Frame<'_>, target: &TargetStatus, seen: Option<&Seen>) {
    let proof = target.spec.proof();
    let when = if target.error().is_some() { " when last seen" } else { "" };
    for mode in LockMode::ALL {
        let (term, since) = match (proof, mode) {
            (Proof::Presence, LockMode::Exclusive) => {
                ("Whoever asks now", seen.and_then(|seen| seen.blocked_since.exclusive))
            }
            // It has one mode.
            (Proof::Presence, LockMode::Shared) => continue,
            (Proof::Lease | Proof::Kernel, LockMode::Exclusive) => {
                ("New exclusive locks", seen.and_then(|seen| seen.blocked_since.exclusive))
            }
            (Proof::Lease | Proof::Kernel, LockMode::Shared) => {
                ("New shared locks", seen.and_then(|seen| seen.blocked_since.shared))
            }
        };
        match (seen.and_then(|seen| seen.blocked().of(mode)), since) {
            (Some(true), Some(since)) => {
                html.raw("<div><dt>").raw(term).raw("</dt><dd>refused").raw(when);
                html.raw(" since ").time(since, frame.now).raw("</dd></div>\n");
            }
            (Some(true), None) => fact(html, term, &format!("refused{when}")),
            (Some(false), _) => fact(html, term, &format!("granted{when}")),
            (None, _) => fact(html, term, "not known"),
        }
    }
}

/// What was counted since the target is watched.
fn meanwhile(counters: &TargetCounters, proof: Proof) -> String {
    let number = |number: u64| grouped(usize::try_from(number).unwrap_or(usize::MAX));
    let sum = |counts: &PerMode<u64>| counts.exclusive + counts.shared;
    let (started, ended) = (sum(&counters.holds_started), sum(&counters.holds_ended));
    let holds = format!("taken {} and given back {}", times(started), times(ended));
    match proof {
        Proof::Kernel | Proof::Presence => holds,
        Proof::Lease => format!(
            "{holds}, refreshed {}; stale files removed by somebody: {}",
            times(counters.refreshes),
            number(counters.stale_removals)
        ),
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_string(),
        _ => format!("{} times", grouped(usize::try_from(count).unwrap_or(usize::MAX))),
    }
}

fn locks(count: u64) -> String {
    match count {
        1 => "1 lock".to_string(),
        _ => format!("{} locks", grouped(usize::try_from(count).unwrap_or(usize::MAX))),
    }
}

/// The word for a detail that a source found out.
fn term(key: &str) -> String {
    match key {
        "class" => "Kind of lock".into(),
        "holders" => "Processes that have it".into(),
        "holders_search" => "Search for them".into(),
        "inherited" => "Inherited by the holder".into(),
        "present" => "The file is there".into(),
        "taken_after" => "Taken after".into(),
        key => {
            let key = key.replace('_', " ");
            let mut letters = key.chars();
            let first = letters.next().map(|first| first.to_uppercase());
            first.into_iter().flatten().chain(letters).collect()
        }
    }
}

fn limits(limits: &PerMode<Option<Duration>>) -> String {
    let of = |limit: Option<Duration>| limit.map_or("never".to_string(), words);
    match limits.exclusive == limits.shared {
        true => of(limits.exclusive),
        false => format!("{} exclusive, {} shared", of(limits.exclusive), of(limits.shared)),
    }
}

fn words(duration: Duration) -> String {
    in_words(duration.try_into().unwrap_or(jiff::SignedDuration::MAX))
}

/// Every lock by the name of its file, or as the kernel lists it.
fn files(html: &mut Html, frame: &Frame<'_>, target: &TargetStatus, seen: &Seen) {
    let evidence = Evidence::new(target, seen, frame.now);
    let proof = target.spec.proof();
    let (one, many, columns): (_, _, &[&str]) = match proof {
        Proof::Lease => (
            " lock file",
            " lock files",
            &["Name", "What", "Holder", "Its own time", "Stored", "First seen"],
        ),
        Proof::Kernel => (" lock", " locks", &["Lock", "What", "Holder", "First seen"]),
        Proof::Presence => {
            (" lock file", " lock files", &["Lock", "What", "Holder", "Written", "First seen"])
        }
    };
    html.raw("<details id=\"files\"><summary>").number(seen.entries.len());
    html.raw(if seen.entries.len() == 1 { one } else { many });
    html.raw(
        "</summary>\n<div class=\"scroll\" role=\"region\" aria-label=\"The locks one by one\" \
         tabindex=\"0\"><table>\n<thead><tr>",
    );
    for column in columns {
        html.raw("<th scope=\"col\">").text(column).raw("</th>");
    }
    html.raw("</tr></thead>\n<tbody>\n");
    for entry in seen.entries.iter().take(FILES_MAX) {
        file(html, frame, &evidence, proof, entry);
    }
    html.raw("</tbody></table></div>\n");
    if seen.entries.len() > FILES_MAX {
        html.raw("<p>").number(seen.entries.len() - FILES_MAX).raw(" more.</p>\n");
    }
    html.raw("</details>\n");
}

fn file(
    html: &mut Html,
    frame: &Frame<'_>,
    evidence: &Evidence<'_>,
    proof: Proof,
    entry: &SeenEntry,
) {
    let stub = entry.entry.stub();
    html.raw("<tr data-key=\"").text(stub.id.as_str()).raw("\"><td><code>");
    html.text(stub.id.as_str()).raw("</code>");
    if proof == Proof::Lease {
        html.raw("<br>").text(&format!("{} bytes", stub.size));
    }
    html.raw("</td><td>");
    let verdict = evidence.verdict(entry);
    match (&entry.entry, proof) {
        (LockEntry::Readable(lock), Proof::Lease) => {
            html.raw(lock.mode.as_str()).raw(", ").raw(verdict.as_str());
        }
        (LockEntry::Readable(lock), Proof::Kernel) => {
            html.raw(lock.mode.as_str());
        }
        (LockEntry::Readable(_), Proof::Presence) => {
            html.raw(if verdict.is_stale() { "owner gone" } else { "held" });
        }
        (LockEntry::Sealed(_, why), _) => {
            html.raw("sealed (").text(why.as_str()).raw(")");
        }
        (LockEntry::Empty(_), _) => {
            html.raw("empty");
        }
        (LockEntry::Unreadable(_, why), _) => {
            html.raw("unreadable (").text(why.as_str()).raw(")");
        }
    }
    html.raw("</td><td>");
    if let LockEntry::Readable(lock) = &entry.entry {
        html.raw("<bdi>").text(&evidence::who(&lock.holder)).raw("</bdi>");
        if let Some(uid) = lock.holder.uid {
            html.text(&format!(", uid {uid}"));
        }
        if let Some(gid) = lock.holder.gid {
            html.text(&format!(", gid {gid}"));
        }
    }
    let first_seen = Some(entry.first_seen);
    let times = match proof {
        Proof::Lease => vec![entry.entry.refreshed_at(), stub.stored_at, first_seen],
        Proof::Kernel => vec![first_seen],
        Proof::Presence => vec![entry.entry.refreshed_at(), first_seen],
    };
    for time in times {
        html.raw("</td><td>");
        if let Some(time) = time {
            html.time(time, frame.now);
        }
    }
    html.raw("</td></tr>\n");
}
