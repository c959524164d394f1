//! The table that `check` prints, and its one line for Nagios.

use std::fmt::Write;
use std::time::Duration;

use jiff::Timestamp;

use super::refused::{refused, state};
use crate::evidence::{self, Evidence, Finding, Severity};
use crate::judge;
use crate::label::clean;
use crate::lock::LockEntry;
use crate::status::{Status, TargetStatus};

/// Findings of one target that are printed; the worst come first.
const FINDINGS_MAX: usize = 20;
/// Names longer than this make their own line wider, not the table.
const NAME_WIDTH_MAX: usize = 40;
/// Longest line for Nagios, which cuts output at 4 KiB or less.
const NAGIOS_BYTES_MAX: usize = 1_000;

/// One target with everything that is to be said about it.
struct Row<'a> {
    target: &'a TargetStatus,
    findings: Vec<Finding>,
    severity: Severity,
}

fn rows(status: &Status, now: Timestamp, hold: Duration) -> Vec<Row<'_>> {
    let mut rows: Vec<_> = status
        .targets
        .values()
        .map(|target| {
            let findings = evidence::findings(target, now, hold);
            let severity = evidence::worst(&findings);
            Row { target, findings, severity }
        })
        .collect();
    // The worst first; of equals the order of their names stays.
    rows.sort_by_key(|row| std::cmp::Reverse(row.severity));
    rows
}

/// How bad the whole is. No target at all cannot be told.
pub fn severity(status: &Status, now: Timestamp, hold: Duration) -> Severity {
    let worst = rows(status, now, hold).iter().map(|row| row.severity).max();
    worst.unwrap_or(Severity::Unknown)
}

/// A table for people, the worst first, with the evidence and the next step below each target.
pub fn table(status: &Status, now: Timestamp, hold: Duration, colour: bool) -> String {
    let rows = rows(status, now, hold);
    let width = rows
        .iter()
        .map(|row| row.target.spec.name.as_str().chars().count())
        .max()
        .unwrap_or(0)
        .clamp("TARGET".len(), NAME_WIDTH_MAX);
    let mut out = String::new();
    line(&mut out, format_args!("{:8}  {:width$}  {:9}  REFUSED NOW", "", "TARGET", "STATE"));
    for row in &rows {
        let word = painted(row.severity, colour);
        let name = row.target.spec.name.as_str();
        let state = state(row.target, now, hold);
        let refused = refused(row.target, now, hold);
        line(&mut out, format_args!("{word}  {name:width$}  {state:9}  {refused}"));
        for finding in row.findings.iter().take(FINDINGS_MAX) {
            line(&mut out, format_args!("{:10}{}", "", finding.line()));
            if let Some(note) = &finding.note {
                line(&mut out, format_args!("{:10}{note}", ""));
            }
            if let Some(step) = &finding.next_step {
                line(&mut out, format_args!("{:10}$ {step}", ""));
            }
        }
        if row.findings.len() > FINDINGS_MAX {
            let more = row.findings.len() - FINDINGS_MAX;
            line(&mut out, format_args!("{:10}and {more} more of the kind, none worse", ""));
        }
        if let Some(seen) = row.target.seen()
            && seen.ignored.count > 0
            && row.target.spec.search().is_none()
        {
            let examples = seen.ignored.examples.join(", ");
            let count = seen.ignored.count;
            let what = "names that are no locks";
            line(&mut out, format_args!("{:10}{count} {what}: {examples}", ""));
        }
    }
    let sealed = |row: &&Row<'_>| row.target.seen().is_some_and(|seen| seen.facts.sealed);
    match rows.iter().filter(sealed).count() {
        0 => {}
        count => line(
            &mut out,
            format_args!(
                "\n{count} of {} {} read without a password: count, size and age of \
                 locks are known, mode and holder are not.",
                rows.len(),
                if rows.len() == 1 { "target was" } else { "targets were" },
            ),
        ),
    }
    out
}

/// `String` never refuses to be written to.
fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let start = out.len();
    let _ = out.write_fmt(text);
    out.truncate(start + out[start..].trim_end().len());
    out.push('\n');
}

fn painted(severity: Severity, colour: bool) -> String {
    let word = format!("{:8}", severity.as_str());
    let code = match severity {
        Severity::Ok => 32,
        Severity::Warning => 33,
        Severity::Critical => 31,
        Severity::Unknown => 35,
    };
    if colour { format!("\u{1b}[{code}m{word}\u{1b}[0m") } else { word }
}

/// Figures over all targets that could be seen.
#[derive(Default)]
struct Totals {
    locks: usize,
    stale: usize,
    unreadable: usize,
    /// Seconds since the last refresh of the lock that had it longest ago.
    oldest: Option<u64>,
}

impl Totals {
    fn of(rows: &[Row<'_>], now: Timestamp, hold: Duration) -> Self {
        let mut totals = Self::default();
        for target in rows.iter().map(|row| row.target) {
            let Some(seen) = target.seen_at(now, hold) else { continue };
            let evidence = Evidence::new(target, seen, now);
            for entry in &seen.entries {
                match &entry.entry {
                    LockEntry::Readable(_) | LockEntry::Sealed(..) => {
                        let age = judge::age(&entry.entry, entry.first_seen, now).age.as_secs();
                        let age = entry.entry.is_leased().then_some(age);
                        totals.oldest = totals.oldest.max(age);
                    }
                    LockEntry::Empty(_) => continue,
                    LockEntry::Unreadable(..) => totals.unreadable += 1,
                }
                totals.locks += 1;
                totals.stale += usize::from(evidence.verdict(entry).is_stale());
            }
        }
        totals
    }
}

/// The same line when there was nothing to look at.
pub fn nagios_refusal(why: &str) -> String {
    let why: Vec<_> = why.split_whitespace().collect();
    format!("LOCKS UNKNOWN - {}\n", clean(&why.join(" "), NAGIOS_BYTES_MAX).replace('|', "/"))
}

/// What is wrong, the worst first, as far as there is room: of each target what it refuses, its
/// worst finding, and what to do.
fn troubles(rows: &[Row<'_>], now: Timestamp, hold: Duration) -> String {
    let wrong: Vec<_> = rows.iter().filter(|row| row.severity != Severity::Ok).collect();
    let mut text = String::new();
    for (index, row) in wrong.iter().enumerate() {
        let mut said = trouble(row, now, hold, true);
        if said.len() > NAGIOS_BYTES_MAX {
            said = trouble(row, now, hold, false);
        }
        let more = format!("; and {} more", wrong.len() - index);
        if index > 0 && text.len() + said.len() + more.len() > NAGIOS_BYTES_MAX {
            return text + &more;
        }
        text = if index > 0 { text + "; " + &said } else { said };
    }
    text
}

/// The same of one target. A command is whole or left out: half of one is another one.
fn trouble(row: &Row<'_>, now: Timestamp, hold: Duration, with_step: bool) -> String {
    let mut said = row.target.spec.name.to_string();
    let refused = refused(row.target, now, hold);
    if !matches!(&*refused, "" | "nothing" | "not known") {
        let verb = if row.target.error().is_some() { "refused" } else { "refuses" };
        said.push_str(&format!(" {verb} {refused}"));
    }
    let Some(worst) = row.findings.iter().find(|found| found.severity == row.severity) else {
        return said;
    };
    said.push_str(&format!(": {}", worst.line()));
    if !with_step {
        return said;
    }
    if let Some(note) = &worst.note {
        said.push_str(&format!("; next: {note}"));
    }
    // The bar would be changed.
    if let Some(step) = worst.next_step.as_ref().filter(|step| !step.contains('|')) {
        said.push_str(&format!("; run: {step}"));
    }
    said
}

/// One line as the guidelines for Nagios plugins ask for: the worst in words, then figures.
pub fn nagios(status: &Status, now: Timestamp, hold: Duration) -> String {
    let rows = rows(status, now, hold);
    let count = |severity| rows.iter().filter(|row| row.severity == severity).count();
    let worst = rows.first().map_or(Severity::Unknown, |row| row.severity);
    let mut text = troubles(&rows, now, hold);
    if text.is_empty() {
        text = match rows.len() {
            0 => "nothing to watch".into(),
            1 => "1 target, nothing stuck, unreadable or failing".into(),
            count => format!("{count} targets, nothing stuck, unreadable or failing"),
        };
    }
    // The bar separates the text from the figures.
    let text = clean(&text, NAGIOS_BYTES_MAX).replace('|', "/");
    let mut figures = String::new();
    for (label, value) in [
        ("targets", rows.len()),
        ("critical", count(Severity::Critical)),
        ("warning", count(Severity::Warning)),
        ("unknown", count(Severity::Unknown)),
    ] {
        let _ = write!(figures, " {label}={value};;;0");
    }
    let totals = Totals::of(&rows, now, hold);
    let Totals { locks, stale, unreadable, oldest } = totals;
    let _ = write!(figures, " locks={locks};;;0 stale={stale};;;0 unreadable={unreadable};;;0");
    // A figure that is not known is left out, never 0.
    if let Some(oldest) = oldest {
        let _ = write!(figures, " oldest_lock_age={oldest}s;;;0");
    }
    format!("LOCKS {} - {text} |{figures}\n", worst.as_str().to_uppercase())
}
