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

use super::memory::{Change, Found, LookTime, Memory, Name, is_sealed, per_mode, signed};
use crate::judge;
use crate::lock::{
    GoneReason, HoldKey, Holder, LeasePolicy, Liveness, Lock, LockEntry, LockId, LockMode,
};
use crate::status::{EventKind, Hold, SeenEntry};

/// One hold as it is remembered.
pub(super) struct Held {
    no: u64,
    /// The look that saw it last.
    pub turn: u64,
    pub mode: LockMode,
    holder: Holder,
    pub held_since: Timestamp,
    since_is_exact: bool,
    refreshes: u64,
    /// The newest first.
    files: Vec<LockId>,
    gone: Option<GoneReason>,
    /// When its newest file was written.
    newest: Written,
    /// The same of its newest file that is accounted for; that file may be gone.
    settled: Option<Written>,
    /// What lies above its newest gap, until the next look says whether it is a hold of its own.
    pending: Option<Origin>,
    keeps_old_time: bool,
    stale: bool,
    /// End of the first look that saw it.
    pub first_look: Timestamp,
    /// End of the last look that saw it.
    last_look: Timestamp,
    /// Begin of the first look that missed it.
    missed: Option<Timestamp>,
}

/// When a file was written: on our clock, and by its own time.
#[derive(Clone, Copy)]
struct Written {
    at: Timestamp,
    own: Option<Timestamp>,
}

/// Where a hold that splits off comes from.
#[derive(Clone)]
struct Origin {
    /// Its first file, which may be gone.
    first: LockId,
    since: Timestamp,
    since_is_exact: bool,
    /// It is seen to start by splitting off.
    starts: bool,
    /// When its newest file was written that is gone.
    tip: Option<Written>,
}

/// One readable file of the look being taken in.
struct File<'a> {
    seen: &'a SeenEntry,
    lock: &'a Lock,
    written: Written,
    hold: Option<u64>,
}

impl File<'_> {
    fn id(&self) -> &LockId {
        &self.lock.stub.id
    }
}

impl Memory {
    /// Joins the readable files of a look into holds.
    pub fn join(&mut self, time: LookTime, found: &mut Found) {
        let entries = std::mem::take(&mut found.entries);
        let mut by_key: BTreeMap<&HoldKey, Vec<File<'_>>> = BTreeMap::new();
        for seen in &entries {
            if let LockEntry::Readable(lock) = &seen.entry {
                let hold = self.names.get(&lock.stub.id).and_then(|name| name.hold);
                let written = Written { at: seen.refreshed_at(), own: seen.entry.refreshed_at() };
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
        // The storage's times order what was there at the first look with equal own times.
        let order = |file: &File<'_>| (file.written.at, file.lock.stub.stored_at);
        files.sort_by(|a, b| order(a).cmp(&order(b)).then_with(|| a.id().cmp(b.id())));
        self.attach(key, &mut files);
        let mut by_hold: BTreeMap<u64, Vec<File<'_>>> = BTreeMap::new();
        for file in files {
            by_hold.entry(file.hold.unwrap_or_default()).or_default().push(file);
        }
        for (no, files) in by_hold {
            let parts = self.cut(files, &time.policy);
            let whole = self.holds.get(key).into_iter().flatten().find(|held| held.no == no);
            let left_behind = whole.map(Held::left_behind);
            let pending = whole.and_then(|held| held.pending.clone());
            let tip = whole.and_then(|held| held.settled);
            // The part that is accounted for, or follows upon what is, goes on; what is older was
            // left behind, what is newer began by itself.
            let goes_on = |part: &Vec<File<'_>>| {
                let settled =
                    |file: &File<'_>| self.names.get(file.id()).is_some_and(|name| name.settled);
                let follows =
                    |tip| part.first().is_some_and(|file| !is_gap(tip, file.written, &time.policy));
                part.iter().any(settled) || tip.is_some_and(follows)
            };
            let keeper = parts.iter().rposition(goes_on).unwrap_or(0);
            let newest = parts.len() - 1;
            for (index, part) in parts.into_iter().enumerate() {
                let continues = |origin: &Origin| {
                    part.first().is_some_and(|file| {
                        let tip = origin.tip;
                        *file.id() != origin.first
                            && tip.is_some_and(|tip| !is_gap(tip, file.written, &time.policy))
                    })
                };
                let (no, origin) = match index.cmp(&keeper) {
                    Ordering::Less => (None, left_behind.clone()),
                    Ordering::Equal => (Some(no), None),
                    Ordering::Greater if index == newest => {
                        (None, pending.clone().filter(continues))
                    }
                    Ordering::Greater => (None, None),
                };
                let no = no.unwrap_or_else(|| {
                    self.holds_made += 1;
                    self.holds_made
                });
                self.extend(key, no, origin, &part, time, found);
            }
        }
    }

    /// Gives files of new names to the hold of this key that was refreshed last, whether its files
    /// are still there or not: no look needs to see both files of a refresh. Without any hold
    /// they begin one.
    fn attach(&mut self, key: &HoldKey, files: &mut [File<'_>]) {
        let holds = self.holds.get(key).into_iter().flatten();
        let last = holds.max_by_key(|held| (held.newest.at, held.no)).map(|held| held.no);
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
        let held = self.holds.entry(key.clone()).or_default();
        let index = held.iter().position(|held| held.no == no);
        let is_new = index.is_none();
        let index = index.unwrap_or_else(|| {
            let origin = origin.clone().unwrap_or_else(|| Origin::of(oldest, &self.names));
            held.push(Held::new(no, newest, &origin, time));
            held.len() - 1
        });
        let held = &mut held[index];
        let news = held.settle(&mut self.names, files, turn, &time.policy);
        held.refreshes += news;
        found.refreshes += news;
        if let Some(before) = held.files.first()
            && before != newest.id()
            && newest.written.at >= held.newest.at
        {
            if let Some(name) = self.names.get_mut(before) {
                name.replaced = Some(turn);
            }
            held.keeps_old_time =
                held.newest.own.is_some() && held.newest.own == newest.written.own;
        }
        let origin = origin.unwrap_or_else(|| Origin::of(oldest, &self.names));
        if is_new && origin.starts {
            *per_mode(&mut found.started, held.mode) += 1;
            found.changes.push(held.change(EventKind::Acquired, newest.id()));
        } else if news > 0 {
            found.changes.push(held.change(EventKind::Refreshed, newest.id()));
        }
        if held.stale != stale && !is_new {
            found.changes.push(held.change(EventKind::VerdictChanged { stale }, newest.id()));
        }
        held.stale = stale;
        held.turn = turn;
        held.newest = newest.written;
        held.gone = gone(newest.lock);
        held.files = files.iter().rev().map(|file| file.id().clone()).collect();
        held.last_look = time.ended;
        held.missed = None;
    }

    /// Ends the holds that two looks running missed. One that may have been refreshed into a file
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
            holds.retain_mut(|held| {
                let hidden = sealed_last.is_some_and(|first_seen| first_seen > held.last_look)
                    && time.ended.duration_since(held.last_look) <= patience;
                if held.turn == turn || hidden || held.files.iter().any(is_listed_sealed) {
                    return true;
                }
                let Some(missed) = held.missed else {
                    held.missed = Some(time.began);
                    return true;
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
            let now = holds.iter().filter(|held| held.turn == self.turn);
            shown.extend(now.map(|held| held.show(key)));
            shown[from..].sort_by_key(|hold| (hold.held_since, hold.refreshed_at));
        }
        shown
    }
}

impl Origin {
    /// What a hold is known of whose first file is this one.
    fn of(file: &File<'_>, names: &BTreeMap<LockId, Name>) -> Self {
        let (since, first) = (file.written.at, file.id().clone());
        names.get(file.id()).map_or(
            Self { first, since, since_is_exact: false, starts: false, tip: None },
            |name| Self::new(file, name),
        )
    }

    fn new(file: &File<'_>, name: &Name) -> Self {
        Self {
            first: file.id().clone(),
            since: file.written.at,
            since_is_exact: name.begins,
            starts: name.watched,
            tip: None,
        }
    }
}

impl Held {
    /// What is known of the part of this hold that is left behind.
    fn left_behind(&self) -> Origin {
        Origin {
            first: LockId::new(""),
            since: self.held_since,
            since_is_exact: self.since_is_exact,
            starts: false,
            tip: None,
        }
    }

    fn new(no: u64, newest: &File<'_>, origin: &Origin, time: LookTime) -> Self {
        Self {
            no,
            turn: 0,
            mode: newest.lock.mode,
            holder: newest.lock.holder.clone(),
            held_since: origin.since,
            since_is_exact: origin.since_is_exact,
            refreshes: 0,
            files: Vec::new(),
            gone: None,
            newest: newest.written,
            settled: origin.tip,
            pending: None,
            keeps_old_time: false,
            stale: false,
            first_look: time.ended,
            last_look: time.ended,
            missed: None,
        }
    }

    /// Takes the files, oldest first, and accounts for the new ones among them: the first file
    /// of a hold is its start, every other one a refresh, unless it was there at the first look.
    /// A file above a gap waits until the next look says what the gap is, unless it follows upon
    /// a file that is accounted for and gone. Returns the number of refreshes.
    fn settle(
        &mut self,
        names: &mut BTreeMap<LockId, Name>,
        files: &[File<'_>],
        turn: u64,
        policy: &LeasePolicy,
    ) -> u64 {
        let mut refreshes = 0;
        let mut below_gap = false;
        let mut pending: Option<Origin> = None;
        for file in files {
            let written = &file.written;
            let Some(name) = names.get_mut(file.id()) else { continue };
            name.hold = Some(self.no);
            let follows = self.settled.is_none_or(|tip| !is_gap(tip, *written, policy));
            if !name.settled && (follows || !below_gap) {
                name.settled = true;
                if name.not_before.is_some() && self.settled.is_some() {
                    refreshes += 1;
                }
            }
            if name.settled && self.settled.is_none_or(|tip| tip.at <= written.at) {
                self.settled = Some(*written);
            }
            if !name.settled {
                let first = pending.take().unwrap_or_else(|| Origin::new(file, name));
                pending = Some(Origin { tip: Some(*written), ..first });
            }
            if name.behind == Some(turn) {
                (below_gap, pending) = (true, None);
            }
        }
        self.pending = pending;
        refreshes
    }

    fn change(&self, kind: EventKind, id: &LockId) -> Change {
        Change { kind, id: id.clone(), hold: Some((self.mode, self.holder.clone())) }
    }

    fn show(&self, key: &HoldKey) -> Hold {
        Hold {
            key: key.clone(),
            mode: self.mode,
            holder: self.holder.clone(),
            refreshed_at: self.newest.at,
            held_since: self.held_since,
            since_is_exact: self.since_is_exact,
            refreshes: self.refreshes,
            files: self.files.clone(),
            gone: self.gone,
            keeps_old_time: self.keeps_old_time,
        }
    }
}

/// Two files of one key that are too far apart to follow one another by refreshes: by their own
/// clock, which counts alike on both, and by ours. A jump of one of the clocks is no gap.
fn is_gap(older: Written, newer: Written, policy: &LeasePolicy) -> bool {
    let limit = signed(policy.stale_limit);
    let own = match (older.own, newer.own) {
        (Some(older), Some(newer)) => newer.duration_since(older).abs() > limit,
        (None, _) | (_, None) => true,
    };
    own && newer.at.duration_since(older.at) > limit
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

fn gone(lock: &Lock) -> Option<GoneReason> {
    match lock.liveness {
        Liveness::Gone(reason) => Some(reason),
        Liveness::Alive | Liveness::Unknown => None,
    }
}
