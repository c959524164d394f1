//! The page of one target: everything that is known of it.

use std::time::Duration;

use super::Frame;
use super::html::{Html, grouped};
use super::parts::{
    badge, events, fact, finding, hold, key_pending, moment, refuses, says_more, state,
};
use crate::evidence::{self, Evidence, Topic, in_words};
use crate::exposition::overview::{Counts, Standing};
use crate::lock::{LockEntry, LockMode};
use crate::status::{Phase, Seen, SeenEntry, TargetStatus};
use crate::target::PerMode;

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
            html.raw("<p class=\"since\">");
            html.raw(if hold.since_is_exact { "since " } else { "since before " });
            html.time(hold.held_since, frame.now);
            let refreshes = usize::try_from(hold.refreshes).unwrap_or(usize::MAX);
            match refreshes {
                0 => html.raw("; no refresh seen yet"),
                _ => html.raw("; ").number(refreshes).raw(" refreshes seen, the last at "),
            };
            if refreshes > 0 {
                html.moment(hold.refreshed_at, frame.now);
            }
            html.raw("</p>\n");
        }
    }
    if findings.is_empty() {
        html.raw(if seen.is_some() { "<p>No locks.</p>\n" } else { "<p>Nothing.</p>\n" });
    }
    if findings.len() > FINDINGS_MAX {
        html.raw("<p>").number(findings.len() - FINDINGS_MAX).raw(" more, none worse.</p>\n");
    }
    html.raw("</section>\n");
    facts(html, frame, target, seen);
    if !target.events.is_empty() {
        html.raw("<section aria-labelledby=\"events\">\n<h2 id=\"events\">Last events</h2>\n");
        events(html, frame, target.events.iter().rev().map(|event| &**event), false);
        html.raw("</section>\n");
    }
    if let Some(seen) = seen.filter(|seen| !seen.entries.is_empty()) {
        files(html, frame, target, seen);
    }
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
    for mode in LockMode::ALL {
        let (term, since) = match mode {
            LockMode::Exclusive => {
                ("New exclusive locks", seen.and_then(|seen| seen.blocked_since.exclusive))
            }
            LockMode::Shared => {
                ("New shared locks", seen.and_then(|seen| seen.blocked_since.shared))
            }
        };
        match (seen.and_then(|seen| seen.blocked().of(mode)), since) {
            (Some(true), Some(since)) => {
                html.raw("<div><dt>").raw(term).raw("</dt><dd>refused since ");
                html.time(since, frame.now).raw("</dd></div>\n");
            }
            (Some(true), None) => fact(html, term, "refused"),
            (Some(false), _) => fact(html, term, "granted"),
            (None, _) => fact(html, term, "not known"),
        }
    }
    fact(html, "Held over its limit after", &limits(&spec.hold_limit));
    fact(html, "Stuck without a refresh for", &limits(&spec.stuck_limit));
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
    let (started, ended) = (&counters.holds_started, &counters.holds_ended);
    let holds = format!(
        "{} begun and {} ended, {} refreshes, {} stale files removed by somebody",
        number(started.exclusive + started.shared),
        number(ended.exclusive + ended.shared),
        number(counters.refreshes),
        number(counters.stale_removals),
    );
    fact(html, "Seen meanwhile", &holds);
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
        html.raw("<div><dt>").text(&key.replace('_', " ")).raw("</dt><dd>").name(value);
        html.raw("</dd></div>\n");
    }
    html.raw("</dl>\n</section>\n");
}

fn limits(limits: &PerMode<Option<Duration>>) -> String {
    let of = |limit: Option<Duration>| limit.map_or("never".to_string(), words);
    format!("{} exclusive, {} shared", of(limits.exclusive), of(limits.shared))
}

fn words(duration: Duration) -> String {
    in_words(duration.try_into().unwrap_or(jiff::SignedDuration::MAX))
}

/// Every lock file by its name.
fn files(html: &mut Html, frame: &Frame<'_>, target: &TargetStatus, seen: &Seen) {
    let evidence = Evidence::new(target, seen);
    html.raw("<details id=\"files\"><summary>");
    html.number(seen.entries.len()).raw(if seen.entries.len() == 1 {
        " lock file"
    } else {
        " lock files"
    });
    html.raw(
        "</summary>\n<div class=\"scroll\" role=\"region\" aria-label=\"Lock files\" \
         tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">Name</th><th scope=\"col\">What</th>\
         <th scope=\"col\">Holder</th><th scope=\"col\">Its own time</th><th \
         scope=\"col\">Stored</th><th scope=\"col\">First seen</th></tr></thead>\n<tbody>\n",
    );
    for entry in seen.entries.iter().take(FILES_MAX) {
        file(html, frame, &evidence, entry);
    }
    html.raw("</tbody></table></div>\n");
    if seen.entries.len() > FILES_MAX {
        html.raw("<p>").number(seen.entries.len() - FILES_MAX).raw(" more files.</p>\n");
    }
    html.raw("</details>\n");
}

fn file(html: &mut Html, frame: &Frame<'_>, evidence: &Evidence<'_>, entry: &SeenEntry) {
    let stub = entry.entry.stub();
    html.raw("<tr data-key=\"").text(stub.id.as_str()).raw("\"><td><code>");
    html.text(stub.id.as_str()).raw("</code><br>").text(&format!("{} bytes", stub.size));
    html.raw("</td><td>");
    match &entry.entry {
        LockEntry::Readable(lock) => {
            html.raw(lock.mode.as_str()).raw(", ").raw(evidence.verdict(entry).as_str());
        }
        LockEntry::Sealed(_, why) => {
            html.raw("sealed (").text(why.as_str()).raw(")");
        }
        LockEntry::Empty(_) => {
            html.raw("empty");
        }
        LockEntry::Unreadable(_, why) => {
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
    for time in [entry.entry.refreshed_at(), stub.stored_at, Some(entry.first_seen)] {
        html.raw("</td><td>");
        if let Some(time) = time {
            html.time(time, frame.now);
        }
    }
    html.raw("</td></tr>\n");
}
