//! One target as the metric families see it: what may be shown now, merged and bounded.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::metrics::Rules;
use crate::judge::{self, Blocked, State};
use crate::label::{BYTES_MAX, HolderLabel, LabelRules, clean, shortened};
use crate::lock::{LockEntry, LockMode};
use crate::status::{Hold, Seen, SeenEntry, Status, TargetStatus};
use crate::target::Proof;

/// Most hold series of one target; the rest is only counted.
const SERIES_PER_TARGET_MAX: usize = 20;
/// Most hold series of the whole process.
const SERIES_MAX: usize = 10_000;

/// Holds with equal labels, as one series.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HoldSeries {
    pub mode: LockMode,
    pub hostname: String,
    pub username: String,
    pub command: String,
    /// Of the hold with the oldest refresh; of several the lowest.
    pub pid: Option<i64>,
    pub refreshed_at: Timestamp,
    pub held_since: Timestamp,
    pub gone: bool,
    /// How many holds it stands for.
    pub holds: u64,
}

impl HoldSeries {
    pub fn labels(&self) -> [&str; 4] {
        [self.mode.as_str(), &self.hostname, &self.username, &self.command]
    }
}

/// Lock files of one mode by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub active: u64,
    pub stale: u64,
}

/// What may be shown of the last successful scan.
pub(super) struct Shown<'a> {
    pub seen: &'a Seen,
    pub holds: &'a [Hold],
    pub unreadable: u64,
    pub empty: u64,
}

/// One target at one moment.
pub(super) struct View<'a> {
    pub target: &'a TargetStatus,
    pub sealed: bool,
    pub proof: Proof,
    pub location: String,
    pub host: String,
    pub holds: Vec<HoldSeries>,
    pub hidden: u64,
    now: Timestamp,
    shown: Option<Shown<'a>>,
}

impl<'a> View<'a> {
    pub fn new(
        target: &'a TargetStatus,
        now: Timestamp,
        rules: &Rules,
        holds: Vec<HoldSeries>,
    ) -> Self {
        let known = |seen: &&Arc<Seen>| seen.facts.unknown.is_none();
        let shown = target.seen_at(now, rules.hold).filter(known).map(|seen| Shown {
            seen,
            holds: &seen.holds,
            unreadable: count(seen, |e| matches!(e, LockEntry::Unreadable(..))),
            empty: count(seen, |e| matches!(e, LockEntry::Empty(_))),
        });
        let all = shown.as_ref().map_or(0, |shown| shown.holds.len() as u64);
        Self {
            target,
            sealed: target.seen().is_some_and(|seen| seen.facts.sealed),
            proof: target.spec.proof(),
            location: shortened(&target.spec.location(), BYTES_MAX),
            host: clean(&target.spec.host, BYTES_MAX).into_owned(),
            hidden: all.saturating_sub(holds.iter().map(|series| series.holds).sum()),
            holds,
            now,
            shown,
        }
    }

    pub fn seen(&self) -> Option<&Shown<'a>> {
        self.shown.as_ref()
    }

    /// Lock files by mode and state; empty when not known. A sealed target has only `unknown`.
    pub fn counts(&self) -> Vec<(&'static str, Counts)> {
        let Some(shown) = &self.shown else { return Vec::new() };
        let mut exclusive = Counts::default();
        let mut shared = Counts::default();
        let mut unknown = Counts::default();
        for entry in &shown.seen.entries {
            let of_mode = match &entry.entry {
                LockEntry::Readable(lock) if lock.mode == LockMode::Exclusive => &mut exclusive,
                LockEntry::Readable(_) => &mut shared,
                LockEntry::Sealed(..) => &mut unknown,
                LockEntry::Empty(_) | LockEntry::Unreadable(..) => continue,
            };
            let SeenEntry { entry, first_seen, .. } = entry;
            // As of that scan: no lock becomes stale by time in which nobody looked.
            let at = shown.seen.at;
            if judge::judge_entry(entry, *first_seen, &self.target.policy, at).is_stale() {
                of_mode.stale += 1;
            } else {
                of_mode.active += 1;
            }
        }
        if self.sealed {
            vec![("unknown", unknown)]
        } else if self.proof != Proof::Lease {
            vec![("exclusive", exclusive), ("shared", shared)]
        } else {
            vec![("exclusive", exclusive), ("shared", shared), ("unknown", unknown)]
        }
    }

    pub fn state(&self) -> State {
        self.shown.as_ref().map_or(State::Unknown, |shown| shown.seen.state())
    }

    pub fn blocked(&self) -> Blocked {
        let unknown = Blocked { exclusive: None, shared: None };
        self.shown.as_ref().map_or(unknown, |shown| shown.seen.blocked())
    }

    /// Age of the oldest lock file of each mode that has one.
    pub fn oldest_ages(&self) -> Vec<(&'static str, SignedDuration)> {
        let Some(shown) = &self.shown else { return Vec::new() };
        let mut oldest: BTreeMap<&'static str, Timestamp> = BTreeMap::new();
        for entry in &shown.seen.entries {
            let mode = match &entry.entry {
                LockEntry::Readable(lock) => lock.mode.as_str(),
                LockEntry::Sealed(..) => "unknown",
                LockEntry::Empty(_) | LockEntry::Unreadable(..) => continue,
            };
            let time = judge::dated(&entry.entry, entry.first_seen);
            oldest.entry(mode).and_modify(|known| *known = time.min(*known)).or_insert(time);
        }
        oldest
            .into_iter()
            .map(|(mode, time)| (mode, self.now.duration_since(time).max(SignedDuration::ZERO)))
            .collect()
    }

    /// Time of the oldest lock file that cannot be opened, on the exporter's clock.
    pub fn oldest_sealed(&self) -> Option<Timestamp> {
        let sealed = |entry: &&SeenEntry| matches!(entry.entry, LockEntry::Sealed(..));
        let entries = &self.shown.as_ref()?.seen.entries;
        entries.iter().filter(sealed).map(SeenEntry::refreshed_at).min()
    }
}

fn count(seen: &Seen, wanted: impl Fn(&LockEntry) -> bool) -> u64 {
    seen.entries.iter().filter(|entry| wanted(&entry.entry)).count() as u64
}

/// The series of every target, in the order of the targets, within the limits. Where the process
/// has too many, every target gives up its least bad ones, so the worst lock is never hidden.
pub(super) fn holds_shown(status: &Status, now: Timestamp, rules: &Rules) -> Vec<Vec<HoldSeries>> {
    let mut all: Vec<Vec<HoldSeries>> = status
        .targets
        .values()
        .map(|target| match target.seen_at(now, rules.hold) {
            Some(seen) => merged(&seen.holds, &rules.labels),
            None => Vec::new(),
        })
        .collect();
    let mut each = SERIES_PER_TARGET_MAX;
    while each > 1 && all.iter().map(|series| series.len().min(each)).sum::<usize>() > SERIES_MAX {
        each -= 1;
    }
    for series in &mut all {
        series.truncate(each);
    }
    all
}

/// One series for each set of labels, the worst first: exclusive before shared, then the oldest.
fn merged(holds: &[Hold], rules: &LabelRules) -> Vec<HoldSeries> {
    let mut series: BTreeMap<(LockMode, String, String, String), HoldSeries> = BTreeMap::new();
    for hold in holds {
        let hostname = rules.apply(HolderLabel::Hostname, &hold.holder.hostname);
        let username = rules.apply(HolderLabel::Username, &hold.holder.username);
        let command = rules.apply(HolderLabel::Command, &hold.holder.command);
        let one = HoldSeries {
            mode: hold.mode,
            hostname: hostname.clone(),
            username: username.clone(),
            command: command.clone(),
            pid: hold.holder.pid,
            refreshed_at: hold.refreshed_at,
            held_since: hold.held_since,
            gone: hold.gone.is_some(),
            holds: 1,
        };
        match series.entry((hold.mode, hostname, username, command)) {
            Entry::Vacant(entry) => {
                entry.insert(one);
            }
            Entry::Occupied(mut entry) => {
                let known = entry.get_mut();
                if (one.refreshed_at, one.pid) < (known.refreshed_at, known.pid) {
                    known.refreshed_at = one.refreshed_at;
                    known.pid = one.pid;
                }
                known.held_since = known.held_since.min(one.held_since);
                known.gone |= one.gone;
                known.holds += 1;
            }
        }
    }
    let mut series: Vec<_> = series.into_values().collect();
    series.sort_by_key(|hold| (hold.mode, hold.refreshed_at, hold.held_since));
    series
}
