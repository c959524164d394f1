//! Joins the files of one holder into holds, and holds over time.
//!
//! A refresh writes a new file and then deletes the old one (restic `internal/repository/lock.go`),
//! so one holder has one file, two for a moment, or many when deletes fail. Nothing but the key
//! survives a refresh, and two processes can share one: containers with one host name, both
//! pid 1. So files of one key are one hold only while their times form a chain without a gap of
//! more than the stale limit. One look may fall between a late refresh and its delete; what lies
//! behind such a gap in two looks running is a hold of its own.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::held::{File, Held, Origin, Written, is_gap, is_near_by_own};
use super::memory::{Found, LookTime, Memory, is_sealed, per_mode, signed};
use crate::judge;
use crate::lock::{HoldKey, LeasePolicy, LockEntry, LockId};
use crate::status::{EventKind, Hold, SeenEntry};

impl Memory {
    /// Joins the readable files of a look into holds.
    pub fn join(&mut self, time: LookTime, found: &mut Found) {
        let entries = std::mem::take(&mut found.entries);
        let mut by_key: BTreeMap<&HoldKey, Vec<File<'_>>> = BTreeMap::new();
        for seen in &entries {
            if let LockEntry::Readable(lock) = &seen.entry {
                let hold = self.names.get(&lock.stub.id).and_then(|name| name.hold);
                let written = Written {
                    at: seen.refreshed_at(),
                    by: seen.written_by(),
                    own: seen.entry.refreshed_at(),
                };
                let file = File { seen, lock, written, hold };
                by_key.entry(&lock.key).or_default().push(file);
            }
        }
        for (key, files) in by_key {
            self.join_key(key, files, time, found);
        }
        self.end_missing(time, &entries, found);
        found.holds = self.shown();
        found.entries = entries;
    }

    fn join_key(
        &mut self,
        key: &HoldKey,
        mut files: Vec<File<'_>>,
        time: LookTime,
        found: &mut Found,
    ) {
        // A later look found what was written later; what came with one look is in the order of
        // the storage's times, else of its own.
        files.sort_by(|a, b| {
            let order = |file: &File<'_>| {
                let stored_at = file.lock.stub.stored_at;
                (file.seen.first_seen, file.written.at, stored_at, file.written.own)
            };
            order(a).cmp(&order(b)).then_with(|| a.id().cmp(b.id()))
        });
        in_order(&mut files);
        self.attach(key, &mut files, &time.policy);
        let mut by_hold: BTreeMap<u64, Vec<File<'_>>> = BTreeMap::new();
        for file in files {
            by_hold.entry(file.hold.unwrap_or_default()).or_default().push(file);
        }
        for (no, files) in by_hold {
            let parts = self.cut(files, &time.policy);
            let whole = self.holds.get(key).and_then(|holds| holds.get(&no));
            let left_behind = whole.map(|held| held.left_behind());
            let pending = whole.and_then(|held| held.pending.clone());
            let tip = whole.and_then(|held| held.settled);
            let replaced = whole.is_some_and(|held| held.is_replaced(&self.names, self.turn));
            let newest = parts.len() - 1;
            // The part that is accounted for, or follows upon what is, goes on; what is older was
            // left behind, what is newer began by itself.
            let goes_on = |part: &Vec<File<'_>>| {
                let settled =
                    |file: &File<'_>| self.names.get(file.id()).is_some_and(|name| name.settled);
                let follows =
                    |tip| part.first().is_some_and(|file| !is_gap(tip, file.written, &time.policy));
                part.iter().any(settled) || tip.is_some_and(follows)
            };
            let keeper = match replaced {
                true => newest,
                false => parts.iter().rposition(goes_on).unwrap_or(0),
            };
            for (index, part) in parts.into_iter().enumerate() {
                let continues = |origin: &Origin| {
                    let follows = |file: &File<'_>| {
                        origin.tip.is_some_and(|tip| !is_gap(tip, file.written, &time.policy))
                    };
                    part.first().is_some_and(|file| *file.id() == origin.first || follows(file))
                };
                let (no, origin) = match index.cmp(&keeper) {
                    Ordering::Less => (None, left_behind.clone()),
                    Ordering::Equal => (Some(no), None),
                    Ordering::Greater => {
                        let known = pending.clone().filter(|_| index == newest).filter(continues);
                        let first = part.first();
                        let apart = || first.map(|file| Origin::apart(file, &self.names, &time));
                        (None, known.or_else(apart))
                    }
                };
                let no = no.unwrap_or_else(|| {
                    self.holds_made += 1;
                    self.holds_made
                });
                self.extend(key, no, origin, &part, time, found);
            }
        }
    }

    /// Gives files of new names to a hold of this key, or to a new one when there is none. Of
    /// several holds it is one that they follow without a gap, rather by their own clock, rather
    /// one whose newest file is gone, as a refresh leaves it, and rather one that was refreshed
    /// later.
    fn attach(&mut self, key: &HoldKey, files: &mut [File<'_>], policy: &LeasePolicy) {
        let Some(new) = files.iter().find(|file| file.hold.is_none()) else { return };
        let holds = self.holds.get(key).into_iter().flat_map(BTreeMap::values);
        let is_there = |held: &Held| {
            let newest = held.files.first().and_then(|id| self.names.get(id));
            newest.is_some_and(|name| name.turn == self.turn)
        };
        let last = holds.max_by_key(|held| {
            let follows = !is_gap(held.newest, new.written, policy);
            let by_own = follows && is_near_by_own(held.newest, new.written, policy);
            (follows, by_own, !is_there(held), held.newest.at, held.no)
        });
        let last = last.map(|held| held.no);
        let no = last.unwrap_or_else(|| {
            self.holds_made += 1;
            self.holds_made
        });
        for file in files.iter_mut().filter(|file| file.hold.is_none()) {
            file.hold = Some(no);
        }
    }

    /// Cuts the files of one hold, oldest first, at every gap that the look before met too, and
    /// remembers the other gaps for the next one.
    fn cut<'a>(&mut self, files: Vec<File<'a>>, policy: &LeasePolicy) -> Vec<Vec<File<'a>>> {
        let turn = self.turn;
        let mut parts: Vec<Vec<File<'a>>> = Vec::new();
        let mut part: Vec<File<'a>> = Vec::new();
        for file in files {
            if let Some(older) = part.last()
                && is_gap(older.written, file.written, policy)
                && let Some(name) = self.names.get_mut(older.id())
            {
                if name.behind.is_some_and(|behind| behind + 1 == turn) {
                    parts.push(std::mem::take(&mut part));
                } else {
                    name.behind = Some(turn);
                }
            }
            part.push(file);
        }
        parts.push(part);
        parts
    }

    /// Takes in the files of one hold, oldest first.
    fn extend(
        &mut self,
        key: &HoldKey,
        no: u64,
        origin: Option<Origin>,
        files: &[File<'_>],
        time: LookTime,
        found: &mut Found,
    ) {
        let (Some(oldest), Some(newest)) = (files.first(), files.last()) else { return };
        let stale = judge::judge(newest.lock, newest.seen.first_seen, &time.policy, time.ended);
        let stale = stale.is_stale();
        let turn = self.turn;
        let of_key = self.holds.entry(key.clone()).or_default();
        let is_new = !of_key.contains_key(&no);
        let origin = origin.unwrap_or_else(|| Origin::of(oldest, &self.names));
        let held = of_key
            .entry(no)
            .or_insert_with(|| Box::new(Held::new(no, oldest, newest, &origin, time)));
        let news = held.settle(&mut self.names, files, turn, &time.policy);
        found.refreshes += news;
        if let Some(before) = held.replaced_by(newest)
            && let Some(name) = self.names.get_mut(before)
        {
            name.replaced = Some(turn);
        }
        if is_new && origin.starts {
            *per_mode(&mut found.started, held.mode) += 1;
            found.changes.push(held.change(EventKind::Acquired, newest.id()));
        } else if news > 0 {
            found.changes.push(held.change(EventKind::Refreshed, newest.id()));
        }
        if held.stale != stale && !is_new {
            found.changes.push(held.change(EventKind::VerdictChanged { stale }, newest.id()));
        }
        held.take(files, stale, turn, time);
    }

    /// Ends the holds that two looks running missed, of those that nobody refreshes at the first.
    /// One that may have been refreshed into a file
    /// that is sealed is not missed until it would be stale.
    fn end_missing(&mut self, time: LookTime, entries: &[SeenEntry], found: &mut Found) {
        let turn = self.turn;
        let sealed_last =
            entries.iter().filter(|seen| is_sealed(&seen.entry)).map(|seen| seen.first_seen).max();
        let is_listed_sealed = |id: &LockId| {
            let at = entries.binary_search_by(|seen| seen.entry.stub().id.cmp(id));
            at.is_ok_and(|at| is_sealed(&entries[at].entry))
        };
        let patience = signed(time.policy.stale_limit);
        self.holds.retain(|_, holds| {
            holds.retain(|_, held| {
                let hidden = sealed_last.is_some_and(|first_seen| first_seen > held.last_look)
                    && time.ended.duration_since(held.last_look) <= patience;
                if held.turn == turn || hidden || held.files.iter().any(is_listed_sealed) {
                    return true;
                }
                let missed = match held.missed {
                    Some(missed) => missed,
                    None if held.leased => {
                        held.missed = Some(time.began);
                        return true;
                    }
                    None => time.began,
                };
                found.ended.push((held.mode, elapsed(held.held_since, missed)));
                if let Some(id) = held.files.first() {
                    found.changes.push(held.change(EventKind::Released, id));
                }
                false
            });
            !holds.is_empty()
        });
    }

    /// The holds of this look, in the order of their keys, of equal keys the older first.
    fn shown(&self) -> Vec<Hold> {
        let mut shown = Vec::new();
        for (key, holds) in &self.holds {
            let from = shown.len();
            let now = holds.values().filter(|held| held.turn == self.turn);
            shown.extend(now.map(|held| held.show(key)));
            shown[from..].sort_by_key(|hold| (hold.held_since, hold.refreshed_at));
        }
        shown
    }
}

/// A file can have been written while the look before was under way, which says of its own
/// files only that they were there at its end: no file is older than one that was found before it.
fn in_order(files: &mut [File<'_>]) {
    let mut last: Option<Written> = None;
    for file in files {
        if let Some(last) = last {
            file.written.at = file.written.at.max(last.at);
            file.written.by = file.written.by.max(file.written.at);
        }
        last = Some(file.written);
    }
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}
