//! What is remembered of one target between two looks, and what one more look adds to it.
//!
//! Names are remembered while they are listed and over one look without them; so are holds. Both
//! are bounded by twice what the largest listing may hold.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::blocked::Runs;
use super::held::Held;
use super::record::Told;
use crate::judge;
use crate::lock::{HoldKey, Holder, LeasePolicy, LockEntry, LockId, LockMode, SealedWhy};
use crate::scan::Look;
use crate::status::{EventKind, Hold, LockEvent, Seen, SeenEntry, TargetCounters};
use crate::target::{PerMode, TargetName};

/// Begin and end of one successful look, by the exporter's clock, and the rhythm it is judged by.
#[derive(Clone, Copy)]
pub(super) struct LookTime {
    pub began: Timestamp,
    pub ended: Timestamp,
    pub policy: LeasePolicy,
}

/// What is remembered of one target.
#[derive(Default)]
pub(super) struct Memory {
    /// Number of the look being taken in, from 1.
    pub(super) turn: u64,
    pub(super) names: BTreeMap<LockId, Name>,
    /// Holds by key and number; under one key more than one when a part was left behind. Boxed,
    /// since a map has room for eleven from its first one on.
    pub(super) holds: BTreeMap<HoldKey, BTreeMap<u64, Box<Held>>>,
    pub(super) holds_made: u64,
    pub(super) last: Option<LastLook>,
    pub(super) runs: Runs,
    /// What the record of events says last of each mode.
    pub(super) told: PerMode<Told>,
}

pub(super) struct LastLook {
    pub began: Timestamp,
    /// It had files whose holders were not known, and whose refreshes may be read.
    pub sealed: bool,
}

/// What is remembered of one file name.
pub(super) struct Name {
    pub first_seen: Timestamp,
    pub not_before: Option<Timestamp>,
    /// How far our clock was stepped since the first sight.
    pub clock_moved: SignedDuration,
    /// The look that listed it last.
    pub turn: u64,
    /// It came into a folder whose holders were all known, so it is no refresh of somebody
    /// sealed.
    pub watched: bool,
    /// Moreover so soon after the look before that it is no refresh of somebody never seen.
    pub begins: bool,
    /// The hold it belongs to.
    pub hold: Option<u64>,
    /// It is accounted for: as the start of a hold or as a refresh.
    pub settled: bool,
    /// The last look in which it lay behind a gap in its hold.
    pub behind: Option<u64>,
    /// The last look in which a newer file of the same hold took its place.
    pub replaced: Option<u64>,
    /// The verdict at the last look that listed it.
    pub stale: bool,
    /// Somebody refreshes it, so one look without it means little.
    pub leased: bool,
}

/// One thing that happened, before it has a target's name.
pub(super) struct Change {
    pub kind: EventKind,
    pub id: LockId,
    pub hold: Option<(LockMode, Holder)>,
}

/// What one look amounts to.
#[derive(Default)]
pub(super) struct Found {
    pub entries: Vec<SeenEntry>,
    pub holds: Vec<Hold>,
    pub blocked_since: PerMode<Option<Timestamp>>,
    pub blocked_surely_since: PerMode<Option<Timestamp>>,
    pub clock_skew: Option<SignedDuration>,
    pub changes: Vec<Change>,
    /// Durations of the holds that ended.
    pub ended: Vec<(LockMode, Duration)>,
    pub started: PerMode<u64>,
    pub refreshes: u64,
    pub stale_removals: u64,
    pub ever_held: bool,
}

impl Memory {
    /// Takes in one successful look.
    pub fn look(&mut self, time: LookTime, entries: Vec<LockEntry>, hold: Duration) -> Found {
        self.turn += 1;
        let entries = self.name(time, entries);
        let mut found = Found { entries, ..Found::default() };
        self.join(time, &mut found);
        self.verdicts(time, &mut found);
        self.forget(&mut found);
        let turn = self.turn;
        let holds = self.holds.values().flat_map(BTreeMap::values).map(Box::as_ref);
        let shown = holds.filter(|held| held.turn == turn);
        (found.blocked_since, found.blocked_surely_since) =
            self.runs.look(time, &found.entries, shown, hold);
        found.clock_skew = clock_skew(&found.entries, time.ended, &time.policy);
        found.ever_held = self.ever_held();
        let sealed = found.entries.iter().any(|seen| may_open(&seen.entry));
        self.last = Some(LastLook { began: time.began, sealed });
        found
    }

    /// Gives each listed name its history, in the order of the names; a name listed twice counts
    /// once.
    fn name(&mut self, time: LookTime, mut entries: Vec<LockEntry>) -> Vec<SeenEntry> {
        entries.sort_by(|a, b| a.stub().id.cmp(&b.stub().id));
        entries.dedup_by(|a, b| a.stub().id == b.stub().id);
        let last = &self.last;
        let rhythm = signed(time.policy.refresh_every);
        let mut seen = Vec::with_capacity(entries.len());
        for entry in entries {
            let name = self.names.entry(entry.stub().id.clone()).or_insert_with(|| Name {
                first_seen: time.ended,
                not_before: last.as_ref().map(|last| last.began.min(time.ended)),
                clock_moved: SignedDuration::ZERO,
                turn: self.turn,
                watched: last.as_ref().is_some_and(|last| !last.sealed),
                begins: last.as_ref().is_some_and(|last| {
                    !last.sealed && time.ended.duration_since(last.began) <= rhythm
                }),
                hold: None,
                settled: false,
                behind: None,
                replaced: None,
                stale: false,
                leased: entry.is_leased(),
            });
            name.turn = self.turn;
            let Name { first_seen, not_before, clock_moved, .. } = *name;
            seen.push(SeenEntry { entry, first_seen, not_before, clock_moved });
        }
        seen
    }

    /// Notes which files are stale now, for the look in which they will be gone, and reports
    /// sealed ones that became so; readable ones are reported as holds.
    fn verdicts(&mut self, time: LookTime, found: &mut Found) {
        for SeenEntry { entry, first_seen, .. } in &found.entries {
            let stale = judge::judge_entry(entry, *first_seen, &time.policy, time.ended).is_stale();
            let id = &entry.stub().id;
            let Some(name) = self.names.get_mut(id) else { continue };
            if stale && !name.stale && is_sealed(entry) && *first_seen < time.ended {
                let kind = EventKind::VerdictChanged { stale };
                found.changes.push(Change { kind, id: id.clone(), hold: None });
            }
            name.stale = stale;
        }
    }

    /// Forgets names that two looks running did not list, of those that nobody refreshes at once.
    fn forget(&mut self, found: &mut Found) {
        let turn = self.turn;
        self.names.retain(|_, name| {
            let gone = name.turn + u64::from(name.leased) < turn;
            let refreshed = name.replaced.is_some_and(|replaced| replaced >= name.turn);
            if gone && name.stale && !refreshed {
                found.stale_removals += 1;
            }
            !gone
        });
    }

    /// Whether anybody was ever seen to hold it.
    pub fn ever_held(&self) -> bool {
        self.holds_made > 0
    }

    /// How many names and holds are remembered.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.names.len() + self.holds.values().map(BTreeMap::len).sum::<usize>()
    }
}

impl Found {
    /// Adds what happened to a target's counters.
    pub fn count(&self, counters: &mut TargetCounters) {
        counters.refreshes += self.refreshes;
        counters.stale_removals += self.stale_removals;
        counters.holds_started.exclusive += self.started.exclusive;
        counters.holds_started.shared += self.started.shared;
        for (mode, _) in &self.ended {
            *per_mode(&mut counters.holds_ended, *mode) += 1;
        }
    }

    /// What happened, as events.
    pub fn events(&self, target: &TargetName, at: Timestamp) -> Vec<LockEvent> {
        let event = |change: &Change| LockEvent {
            at,
            target: target.clone(),
            id: change.id.clone(),
            kind: change.kind,
            hold: change.hold.clone(),
        };
        self.changes.iter().map(event).collect()
    }

    /// The picture to publish; `rest` brings what needs no memory.
    pub fn into_seen(self, at: Timestamp, rest: Look) -> Seen {
        Seen {
            at,
            entries: self.entries,
            holds: self.holds,
            blocked_since: self.blocked_since,
            blocked_surely_since: self.blocked_surely_since,
            clock_skew: self.clock_skew,
            ignored: rest.ignored,
            facts: rest.facts,
            vanished: rest.vanished,
            ever_held: self.ever_held,
        }
    }
}

/// The largest difference of clocks among names that are new enough to tell of today's clocks.
fn clock_skew(
    entries: &[SeenEntry],
    now: Timestamp,
    policy: &LeasePolicy,
) -> Option<SignedDuration> {
    entries
        .iter()
        .filter(|seen| now.duration_since(seen.first_seen) < signed(policy.stale_limit))
        .filter_map(SeenEntry::clock_skew)
        .max_by_key(|skew| skew.unsigned_abs())
}

/// A sealed file that may be somebody's lock.
pub(super) fn is_sealed(entry: &LockEntry) -> bool {
    match entry {
        LockEntry::Sealed(stub, _) => stub.size > 0,
        LockEntry::Readable(_) | LockEntry::Empty(_) | LockEntry::Unreadable(..) => false,
    }
}

/// A sealed file whose holder's next file may be readable. Where reading is refused it is
/// refused for the next file too.
fn may_open(entry: &LockEntry) -> bool {
    is_sealed(entry)
        && match entry {
            LockEntry::Sealed(_, why) => match why {
                SealedWhy::NoKey | SealedWhy::KeyPending | SealedWhy::NotServed => true,
                SealedWhy::Permission(_) | SealedWhy::Archived => false,
            },
            LockEntry::Readable(_) | LockEntry::Empty(_) | LockEntry::Unreadable(..) => false,
        }
}

pub(super) fn per_mode<T>(pair: &mut PerMode<T>, mode: LockMode) -> &mut T {
    match mode {
        LockMode::Exclusive => &mut pair.exclusive,
        LockMode::Shared => &mut pair.shared,
    }
}

pub(super) fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
