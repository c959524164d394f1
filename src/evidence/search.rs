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
    let what = match target.spec.source.watched() {
        Watched::Restic(_) => "repositories",
        Watched::File(_) => "lock files",
    };
    let found = seen.facts.details.get("found").map_or("0", |found| &**found);
    let mut text = format!("a search: found {found} {what}, each a target of its own");
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
