//! The list of targets: counts, filter, the wanted part of the targets, the last events.

use super::html::Html;
use super::parts::{badge, events, finding, key_pending, nothing, refuses, says_more, state};
use super::{Ask, Frame, href};
use crate::evidence::{self, Severity};
use crate::exposition::overview::{Counts, Kind, PAGE, Selection, Standing};
use crate::judge::State;
use crate::status::{Status, TargetStatus};

/// Findings of one target that the list shows; its own page shows more.
const FINDINGS_MAX: usize = 3;
/// Events below the list.
const EVENTS_MAX: usize = 20;

pub(super) fn body(
    html: &mut Html,
    frame: &Frame<'_>,
    status: &Status,
    selection: &Selection<'_>,
    ask: &Ask,
) {
    html.raw("<h1>Locks</h1>\n");
    counts(html, frame, &selection.counts, ask);
    form(html, ask);
    if selection.matched == 0 {
        html.raw("<p class=\"none\">");
        match selection.counts.total {
            0 => html.raw("No target is configured."),
            _ => html.raw("No target matches."),
        };
        html.raw("</p>\n");
    }
    html.raw("<ol class=\"targets\">\n");
    for (target, standing, severity) in &selection.targets {
        row(html, frame, target, *standing, *severity, selection.counts.keys_pending);
    }
    html.raw("</ol>\n");
    pager(html, frame, selection, ask);
    if !status.events.is_empty() {
        html.raw("<details id=\"events\"><summary>Last events</summary>\n");
        let newest = status.events.iter().rev().take(EVENTS_MAX);
        events(html, frame, newest.map(|event| &**event), Some(status));
        html.raw("</details>\n");
    }
    if !ask.refresh {
        // Shown only where no script renews the page.
        html.raw("<p class=\"note scriptless\">This page is as of when it was made. <a href=\"")
            .text(&with(ask, frame, |query| {
                query.push(("refresh", super::REFRESH.into()));
            }))
            .raw("\">Make it anew every minute</a>.</p>\n");
    }
}

/// `3 failing · 2 stuck · 1,995 fine`, each a link to its targets.
fn counts(html: &mut Html, frame: &Frame<'_>, counts: &Counts, ask: &Ask) {
    html.raw("<p class=\"counts\">");
    for (index, (standing, count)) in counts.standings.iter().enumerate() {
        if index > 0 {
            html.raw(" · ");
        }
        let mut of = Ask { page: 0, ..ask.clone() };
        of.filter.kind = Some(Kind::Standing(*standing));
        html.raw("<a class=\"")
            .raw(tone(*standing))
            .raw("\" href=\"")
            .text(&with(&of, frame, |_| {}))
            .raw("\"><b>")
            .number(*count)
            .raw("</b> ")
            .raw(standing.words())
            .raw("</a>");
    }
    html.raw("</p>\n");
    if counts.keys_pending > 0 {
        html.raw("<p class=\"note\">")
            .number(counts.keys_pending)
            .raw(" of ")
            .number(counts.total)
            .raw(
                " targets wait for their key to be derived; until then count, size and age of \
                 their locks are known, mode and holder are not.</p>\n",
            );
    }
}

/// The colour of one kind of targets: how bad they are at least.
fn tone(standing: Standing) -> &'static str {
    match standing {
        Standing::Conflict | Standing::Unreadable | Standing::Stuck => Severity::Critical.as_str(),
        Standing::OwnerGone => "gone",
        Standing::Attention => Severity::Warning.as_str(),
        Standing::Failing | Standing::Untold | Standing::Pending => Severity::Unknown.as_str(),
        Standing::Fine => Severity::Ok.as_str(),
    }
}

fn form(html: &mut Html, ask: &Ask) {
    html.raw(
        "<form class=\"filter\" role=\"search\" method=\"get\">\n<label for=\"q\">Words</label>\n\
         <input id=\"q\" name=\"q\" type=\"search\" maxlength=\"200\" placeholder=\"name, place, \
         host, user\" value=\"",
    )
    .text(&ask.filter.text)
    .raw(
        "\">\n<label for=\"state\">State</label>\n<select id=\"state\" name=\"state\">\n<option \
         value=\"\">all</option>\n",
    );
    let option = |html: &mut Html, kind: Kind, word: &'static str| {
        html.raw("<option value=\"").raw(kind.as_str()).raw("\"");
        if ask.filter.kind == Some(kind) {
            html.raw(" selected");
        }
        html.raw(">").raw(word).raw("</option>\n");
    };
    html.raw("<optgroup label=\"How it is\">\n");
    for standing in Standing::ALL {
        option(html, Kind::Standing(standing), standing.words());
    }
    html.raw("</optgroup>\n<optgroup label=\"Its lock\">\n");
    for state in State::ALL {
        option(html, Kind::State(state), state.as_str());
    }
    html.raw("</optgroup>\n</select>\n<button>Show</button>\n</form>\n");
}

fn row(
    html: &mut Html,
    frame: &Frame<'_>,
    target: &TargetStatus,
    standing: Standing,
    severity: Severity,
    keys_pending: usize,
) {
    let spec = &target.spec;
    let name = spec.name.as_str();
    html.raw("<li class=\"target ").raw(severity.as_str()).raw("\" data-key=\"").text(name);
    html.raw("\">\n<div class=\"what\"><h2><a href=\"").text(frame.root).text(&href(name));
    html.raw("\">").name(name).raw("</a></h2><p class=\"place\">").name(&spec.location());
    if !spec.host.is_empty() {
        html.raw(" on ").name(&spec.host);
    }
    html.raw("</p></div>\n<div class=\"how\">");
    badge(html, standing, severity);
    html.raw(" ");
    state(html, frame, target);
    refuses(html, frame, target);
    html.raw("</div>\n<div class=\"known\">");
    let seen = target.seen_at(frame.now, frame.hold);
    if seen.is_some_and(|seen| seen.facts.key_pending) {
        key_pending(html, keys_pending);
    }
    let findings = evidence::findings(target, frame.now, frame.hold);
    for (index, found) in findings.iter().enumerate().take(FINDINGS_MAX) {
        // What to ask the host of a living lock is on the target's own page.
        let with_step = found.severity != Severity::Ok && says_more(&findings, index);
        finding(html, frame, target, found, with_step);
    }
    if findings.is_empty() {
        html.raw("<p class=\"quiet\">").raw(nothing(target)).raw("</p>");
    }
    if findings.len() > FINDINGS_MAX {
        html.raw("<p><a href=\"").text(frame.root).text(&href(name)).raw("\">");
        html.number(findings.len() - FINDINGS_MAX).raw(" more, none worse</a></p>");
    }
    html.raw("</div>\n</li>\n");
}

fn pager(html: &mut Html, frame: &Frame<'_>, selection: &Selection<'_>, ask: &Ask) {
    let pages = selection.matched.div_ceil(PAGE).max(1);
    if pages == 1 && ask.page == 0 {
        return;
    }
    html.raw("<nav class=\"pager\" aria-label=\"Pages\">");
    let link = |html: &mut Html, page: usize, rel: &'static str, word: &'static str| {
        html.raw("<a rel=\"").raw(rel).raw("\" href=\"");
        html.text(&with(&Ask { page, ..ask.clone() }, frame, |_| {}));
        html.raw("\">").raw(word).raw("</a> ");
    };
    if ask.page > 0 {
        link(html, ask.page.min(pages) - 1, "prev", "‹ Previous");
    }
    html.raw("<span>page ").number(ask.page + 1).raw(" of ").number(pages).raw(", ");
    html.number(selection.matched).raw(" targets</span> ");
    if ask.page + 1 < pages {
        link(html, ask.page + 1, "next", "Next ›");
    }
    html.raw("</nav>\n");
}

/// The address of the list with this query, as far as it asks for something.
fn with(
    ask: &Ask,
    frame: &Frame<'_>,
    more: impl FnOnce(&mut Vec<(&'static str, String)>),
) -> String {
    let mut query = Vec::new();
    if !ask.filter.text.is_empty() {
        query.push(("q", ask.filter.text.clone()));
    }
    if let Some(kind) = ask.filter.kind {
        query.push(("state", kind.as_str().to_owned()));
    }
    if ask.page > 0 {
        query.push(("page", (ask.page + 1).to_string()));
    }
    if ask.refresh {
        query.push(("refresh", super::REFRESH.to_owned()));
    }
    more(&mut query);
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(query).finish();
    format!("{}targets?{query}", frame.root)
}
