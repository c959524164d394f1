//! What the list and the page of one target have in common: badges, findings, ages as bars.

use jiff::Timestamp;

use super::html::Html;
use super::{Frame, href};
use crate::evidence::{Finding, Severity, happened, in_words};
use crate::exposition::overview::Standing;
use crate::exposition::refused::{refused, state as state_of};
use crate::judge::{self, StaleReason, Verdict};
use crate::status::{Event, Hold, Phase, Seen, SeenEntry, Status, TargetStatus};
use crate::target::Proof;

/// What a target amounts to, as a word in a frame; the colour only repeats it.
pub(super) fn badge(html: &mut Html, standing: Standing, severity: Severity) {
    let word = match standing {
        Standing::Conflict => "conflict",
        Standing::Unreadable => "unreadable",
        Standing::Stuck => "stuck",
        Standing::OwnerGone => "owner gone",
        Standing::Attention => "look at it",
        Standing::Failing => "failing",
        Standing::Untold => "not to be told",
        Standing::Pending => "not looked at yet",
        Standing::Fine => "fine",
    };
    html.raw("<b class=\"badge ").raw(severity.as_str());
    if standing == Standing::OwnerGone {
        html.raw(" gone");
    }
    html.raw("\">").text(word).raw("</b>");
}

/// Free, shared, exclusive or unknown, and how current that is.
pub(super) fn state(html: &mut Html, frame: &Frame<'_>, target: &TargetStatus) {
    let seen = target.seen_at(frame.now, frame.hold);
    let state = state_of(target, frame.now, frame.hold);
    html.raw("<b class=\"state ").raw(state).raw("\">").raw(state).raw("</b>");
    if let (Phase::Failing { .. }, Some(seen)) = (&target.phase, seen) {
        let ago = frame.now.duration_since(seen.at);
        html.raw(" <span class=\"old\">").text(&in_words(ago)).raw(" ago</span>");
    }
}

/// What would be refused now, and for how long it has been.
pub(super) fn refuses(html: &mut Html, frame: &Frame<'_>, target: &TargetStatus) {
    if target.spec.search().is_some() {
        return;
    }
    html.raw("<p class=\"refused\">");
    match (&*refused(target, frame.now, frame.hold), target.error()) {
        ("not known", _) => html.raw("what it refuses is not known"),
        (what, None) => html.raw("refuses ").text(what),
        (what, Some(_)) => html.raw("refused ").text(what),
    };
    html.raw("</p>");
}

/// What there is to say of a target that was looked at and has no lock.
pub(super) fn nothing(target: &TargetStatus) -> &'static str {
    match target.spec.proof() {
        Proof::Lease => "no locks",
        Proof::Kernel => "not held",
        Proof::Presence => "not held: there is no such file",
    }
}

/// How far the derivation of keys is.
pub(super) fn key_pending(html: &mut Html, waiting: usize) {
    html.raw(
        "<p class=\"note\">Its key is still being derived, so holder and mode are not known yet",
    );
    match waiting {
        0 | 1 => html.raw("."),
        _ => html.raw("; ").number(waiting).raw(" targets wait for theirs."),
    };
    html.raw("</p>\n");
}

/// One finding: whose lock, what is known of it, its age as a bar, and what to do.
pub(super) fn finding(
    html: &mut Html,
    frame: &Frame<'_>,
    target: &TargetStatus,
    found: &Finding,
    with_step: bool,
) {
    html.raw("<div class=\"finding ").raw(found.severity.as_str()).raw("\">");
    if let Some(lock_of) = &found.lock_of {
        html.raw("<p class=\"whose\">").sentence(lock_of).raw("</p>");
    }
    html.raw("<p>").sentence(&found.evidence).raw("</p>");
    if let Some(seen) = target.seen_at(frame.now, frame.hold)
        && let Some(entry) = entry(seen, found)
        && entry.entry.is_leased()
        && found.shows_age()
    {
        bar(html, frame, target, seen, entry);
    }
    if !with_step {
        html.raw("</div>\n");
        return;
    }
    if let Some(note) = &found.note {
        html.raw("<p class=\"note\">").sentence(note).raw("</p>");
    }
    if let Some(step) = &found.next_step {
        html.command(step);
    }
    html.raw("</div>\n");
}

/// Whether the next step of a finding is not that of one before it.
pub(super) fn says_more(findings: &[Finding], index: usize) -> bool {
    let step = |found: &Finding| (found.next_step.clone(), found.note.clone());
    let this = findings.get(index).map(step);
    !findings.iter().take(index).any(|before| Some(step(before)) == this)
}

/// The file that a finding is about.
pub(super) fn entry<'a>(seen: &'a Seen, found: &Finding) -> Option<&'a SeenEntry> {
    let id = found.id.as_ref()?;
    let at = seen.entries.binary_search_by(|seen| seen.entry.stub().id.cmp(id)).ok()?;
    seen.entries.get(at)
}

/// The hold that a finding is about.
pub(super) fn hold<'a>(seen: &'a Seen, found: &Finding) -> Option<&'a Hold> {
    let id = found.id.as_ref()?;
    seen.holds.iter().find(|hold| hold.files.first() == Some(id))
}

/// The age of a lock against the rhythm of its holder: refreshed in time, late, very likely
/// lost, stale. The colour is the verdict's, so a lock whose owner is gone has one of its own.
fn bar(html: &mut Html, frame: &Frame<'_>, target: &TargetStatus, seen: &Seen, entry: &SeenEntry) {
    const WIDTH: f64 = 300.0;
    let policy = &target.policy;
    let verdict = judge::judge_entry(&entry.entry, entry.first_seen, policy, seen.at);
    // What the words beside it speak of: a living holder by every clock that dates it.
    let (class, then) = match verdict {
        Verdict::Stale(StaleReason::Owner(_)) => ("gone", entry.refreshed_at()),
        Verdict::Stale(StaleReason::Age | StaleReason::Unrefreshed) => {
            ("critical", entry.refreshed_at())
        }
        Verdict::Doomed => ("warning", entry.written_by()),
        Verdict::Overdue => ("late", entry.written_by()),
        Verdict::Fresh | Verdict::Unjudged => ("ok", entry.written_by()),
    };
    let age = frame.now.duration_since(then);
    let seconds = age.as_secs_f64().max(0.0);
    let limits = [policy.refresh_every, policy.refresh_deadline, policy.stale_limit];
    let [due, deadline, stale] = limits.map(|limit| limit.as_secs_f64());
    // A little beyond the last mark, so that one sees it passed.
    let all = stale * 7.0 / 6.0;
    let at = |seconds: f64| format!("{:.0}", (seconds / all * WIDTH).clamp(2.0, WIDTH));
    let minutes = |seconds: f64| format!("{}", (seconds / 6.0).round() / 10.0);
    html.raw("<svg class=\"bar ")
        .raw(class)
        .raw("\" viewBox=\"0 0 330 24\" role=\"img\" aria-label=\"last refresh ")
        .text(&in_words(age))
        .raw(" ago; due every ")
        .text(&minutes(due))
        .raw(" minutes, given up after ")
        .text(&minutes(deadline))
        .raw(", stale after ")
        .text(&minutes(stale))
        .raw(
            "\"><rect class=\"rail\" y=\"2\" width=\"300\" height=\"7\" rx=\"2\"/><rect \
             class=\"fill\" y=\"2\" width=\"",
        )
        .text(&at(seconds))
        .raw("\" height=\"7\" rx=\"2\"/>");
    for (mark, unit) in [(due, ""), (deadline, ""), (stale, " min")] {
        html.raw("<path class=\"mark\" d=\"M")
            .text(&at(mark))
            .raw(" 0v12\"/><text x=\"")
            .text(&at(mark))
            .raw("\" y=\"22\">")
            .text(&minutes(mark))
            .raw(unit)
            .raw("</text>");
    }
    html.raw("</svg>\n");
}

/// Events, the newest first; with the names of their targets where the status is given that knows
/// which of them are watched.
pub(super) fn events<'a>(
    html: &mut Html,
    frame: &Frame<'_>,
    events: impl Iterator<Item = &'a Event>,
    named: Option<&Status>,
) {
    html.raw("<ul class=\"events\">\n");
    for event in events {
        html.raw("<li>").time(event.at, frame.now).raw(": ");
        if let (Some(name), Some(status)) = (&event.target, named) {
            // One that was renamed or taken out has no page any more.
            if status.targets.contains_key(name) {
                html.raw("<a href=\"").text(frame.root).text(&href(name.as_str())).raw("\">");
                html.name(name.as_str()).raw("</a>: ");
            } else {
                html.name(name.as_str()).raw(" (not watched any more): ");
            }
        }
        html.sentence(&happened(event)).raw("</li>\n");
    }
    html.raw("</ul>\n");
}

/// A fact about something, for a list of terms.
pub(super) fn fact(html: &mut Html, term: &'static str, text: &str) {
    html.raw("<div><dt>").raw(term).raw("</dt><dd>").sentence(text).raw("</dd></div>\n");
}

/// The same with a moment.
pub(super) fn moment(html: &mut Html, term: &'static str, at: Timestamp, now: Timestamp) {
    html.raw("<div><dt>").raw(term).raw("</dt><dd>").time(at, now).raw("</dd></div>\n");
}
