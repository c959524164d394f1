//! What is said of a search: how much it found, what it passed over, why it cannot look.

use std::time::Duration;

use jiff::Timestamp;

use super::words::plain;
use super::{Finding, Severity, Topic, not_seen};
use crate::status::TargetStatus;
use crate::target::Watched;

/// Everything that is to be said about a search.
pub(super) fn of_search(target: &TargetStatus, now: Timestamp, hold: Duration) -> Vec<Finding> {
    let mut findings: Vec<Finding> = not_seen(target, now, hold, "searched").into_iter().collect();
    if let Some(failed) = findings.first_mut().filter(|_| target.error().is_some()) {
        let stays = "what was found before is watched on";
        failed.note = Some(match failed.note.take() {
            Some(advice) => format!("{advice}; {stays}"),
            None => stays.to_string(),
        });
    }
    let Some(seen) = target.seen_at(now, hold).filter(|_| target.error().is_none()) else {
        return findings;
    };
    let count = |name| seen.facts.details.get(name).and_then(|count| count.parse().ok());
    let found: usize = count("found").unwrap_or_default();
    let what = match (target.spec.source.watched(), found) {
        (Watched::Restic(_), 1) => "repository",
        (Watched::Restic(_), _) => "repositories",
        (Watched::File(_), 1) => "lock file",
        (Watched::File(_), _) => "lock files",
    };
    let of_them = match (count("targets").unwrap_or(found), found) {
        (1, 1) => "a target of its own".to_owned(),
        (targets, found) if targets >= found => "each a target of its own".to_owned(),
        (0, 1) => "configured already, or another exporter's".to_owned(),
        (targets, _) => format!(
            "{targets} as targets of their own; the others are configured already, or another \
             exporter's"
        ),
    };
    let mut text = format!("a search: found {found} {what}, {of_them}");
    if seen.ignored.count > 0 {
        let examples: Vec<_> = seen.ignored.examples.iter().map(|name| plain(name)).collect();
        text.push_str(&format!(
            "; passed over what has names that cannot be part of a location ({}): {}",
            seen.ignored.count,
            examples.join(", ")
        ));
    }
    findings.push(Finding::new(Severity::Ok, Topic::Search, text));
    findings
}
