//! The landing page: plain HTML without scripts, everything from outside escaped.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;

use crate::evidence::{self, Severity};
use crate::judge;
use crate::status::{Status, TargetStatus};

/// Targets shown; the worst come first, so what is cut is the least of it.
const TARGETS_MAX: usize = 500;
/// Findings shown of one target.
const FINDINGS_MAX: usize = 20;

const HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
<meta name=\"viewport\" content=\"width=device-width\"><title>lock_exporter</title><style>\
:root{color-scheme:light dark}body{font:1rem/1.5 system-ui,sans-serif;margin:1rem auto;\
max-width:70rem;padding:0 1rem}table{border-collapse:collapse;width:100%}th,td{text-align:left;\
vertical-align:top;padding:.4rem .8rem .4rem 0;border-top:1px solid #8884}td p{margin:.2rem 0}\
code{overflow-wrap:anywhere}.critical{color:#c22}.warning{color:#a60}.unknown{color:#83b}\
.ok{color:#282}b{font-weight:600}</style></head><body>\n";

/// The page at `/` as of `now`.
pub fn landing(status: &Status, now: Timestamp, hold: Duration, telemetry_path: &str) -> String {
    let mut out = String::from(HEAD);
    push(
        &mut out,
        format_args!(
            "<h1>lock_exporter</h1><p>Who holds which lock, since when, alive or dead, and what is \
             blocked. Version {}. <a href=\"{}\">Metrics</a>, <a href=\"/-/healthy\">healthy</a>, \
             <a href=\"/-/ready\">ready</a>.</p>\n",
            env!("CARGO_PKG_VERSION"),
            escaped(telemetry_path),
        ),
    );
    let mut rows: Vec<_> = status
        .targets
        .values()
        .map(|target| {
            let findings = evidence::findings(target, now, hold);
            (evidence::worst(&findings), target, findings)
        })
        .collect();
    rows.sort_by_key(|(severity, ..)| std::cmp::Reverse(*severity));
    out.push_str("<table><thead><tr><th>Target<th>State<th>What is known</tr></thead><tbody>\n");
    for (severity, target, findings) in rows.iter().take(TARGETS_MAX) {
        row(&mut out, *severity, target, findings, now, hold);
    }
    out.push_str("</tbody></table>\n");
    if rows.len() > TARGETS_MAX {
        let more = rows.len() - TARGETS_MAX;
        push(&mut out, format_args!("<p>{more} more targets, none of them worse.</p>\n"));
    }
    out.push_str("</body></html>\n");
    out
}

fn row(
    out: &mut String,
    severity: Severity,
    target: &TargetStatus,
    findings: &[evidence::Finding],
    now: Timestamp,
    hold: Duration,
) {
    let seen = target.seen_at(now, hold);
    let state = seen.map_or(judge::State::Unknown, |seen| seen.state()).as_str();
    let state = if target.spec.search().is_some() { "search" } else { state };
    push(
        out,
        format_args!(
            "<tr><td><b>{}</b><br><small>{}</small><td><b class=\"{}\">{}</b><br>{}<td>",
            escaped(target.spec.name.as_str()),
            escaped(&target.spec.location()),
            severity.as_str(),
            severity.as_str(),
            state,
        ),
    );
    for finding in findings.iter().take(FINDINGS_MAX) {
        push(out, format_args!("<p>{}", escaped(&finding.line())));
        if let Some(note) = &finding.note {
            push(out, format_args!("<br>{}", escaped(note)));
        }
        if let Some(step) = &finding.next_step {
            push(out, format_args!("<br><code>{}</code>", escaped(step)));
        }
        out.push_str("</p>");
    }
    if findings.len() > FINDINGS_MAX {
        push(out, format_args!("<p>{} more findings.</p>", findings.len() - FINDINGS_MAX));
    }
    out.push_str("</tr>\n");
}

/// `String` never refuses to be written to.
fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

/// Text as HTML text or attribute value.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_from_outside_becomes_markup() {
        assert_eq!(
            escaped("<script>alert('1' & \"2\")</script>\u{0}"),
            "&lt;script&gt;alert(&#39;1&#39; &amp; &quot;2&quot;)&lt;/script&gt;?"
        );
    }
}
