//! One hold as it is remembered: what it is known of, and how it takes in files.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::memory::{Change, LookTime, Name, signed};
use crate::lock::{GoneReason, HoldKey, Holder, LeasePolicy, Lock, LockId, LockMode};
use crate::status::{EventKind, Hold, SeenEntry};

/// One hold as it is remembered.
pub(super) struct Held {
    pub no: u64,
    /// The look that saw it last.
    pub turn: u64,
    pub mode: LockMode,
    pub holder: Holder,
    pub held_since: Timestamp,
    pub surely_since: Timestamp,
    pub since_is_exact: bool,
    pub refreshes: u64,
    /// The newest first.
    pub files: Vec<LockId>,
    pub gone: Option<GoneReason>,
    /// When its newest file was written.
    pub newest: Written,
    /// The same of its newest file that is accounted for; that file may be gone.
    pub settled: Option<Written>,
    /// Its first file is accounted for.
    pub begun: bool,
    /// What lies above its newest gap, until the next look says whether it is a hold of its own.
    pub pending: Option<Origin>,
    pub keeps_old_time: bool,
    /// One look without it may be a refresh on its way; else it ends with that look.
    pub leased: bool,
    pub stale: bool,
    /// End of the first look that saw it.
    pub first_look: Timestamp,
    /// End of the last look that saw it.
    pub last_look: Timestamp,
    /// Begin of the first look that missed it.
    pub missed: Option<Timestamp>,
}

/// When a file was written: on our clock, at the latest, and by its own time.
#[derive(Clone, Copy)]
pub(super) struct Written {
    pub at: Timestamp,
    pub by: Timestamp,
    pub own: Option<Timestamp>,
}

/// Where a hold that splits off comes from.
#[derive(Clone)]
pub(super) struct Origin {
    /// Its first file, which may be gone.
    pub first: LockId,
    pub since: Timestamp,
    pub surely_since: Timestamp,
    pub since_is_exact: bool,
    /// It is seen to start by splitting off.
    pub starts: bool,
    /// When its newest file was written that is gone.
    pub tip: Option<Written>,
}

/// One readable file of the look being taken in.
pub(super) struct File<'a> {
    pub seen: &'a SeenEntry,
    pub lock: &'a Lock,
    pub written: Written,
    pub hold: Option<u64>,
}

impl File<'_> {
    pub fn id(&self) -> &LockId {
        &self.lock.stub.id
    }
}

impl Origin {
    /// What is known of a hold whose first file is this one.
    pub fn of(file: &File<'_>, names: &BTreeMap<LockId, Name>) -> Self {
        names.get(file.id()).map_or_else(|| Self::unknown(file), |name| Self::new(file, name))
    }

    /// The same of one that lies above a gap.
    pub fn apart(file: &File<'_>, names: &BTreeMap<LockId, Name>, time: &LookTime) -> Self {
        let above = |name: &Name| Self::new(file, name).above(&time.policy, name);
        names.get(file.id()).map_or_else(|| Self::unknown(file), above)
    }

    /// Above a gap nothing is seen to start when nobody looked for so long that the gap may be
    /// full of refreshes.
    fn above(self, policy: &LeasePolicy, name: &Name) -> Self {
        let unseen = name.not_before.map(|before| name.first_seen.duration_since(before));
        let starts =
            self.starts && unseen.is_some_and(|unseen| unseen <= signed(policy.stale_limit));
        Self { starts, ..self }
    }

    fn unknown(file: &File<'_>) -> Self {
        Self {
            first: file.id().clone(),
            since: file.written.at,
            surely_since: file.written.by,
            since_is_exact: false,
            starts: false,
            tip: None,
        }
    }

    fn new(file: &File<'_>, name: &Name) -> Self {
        Self {
            first: file.id().clone(),
            since: file.written.at,
            surely_since: file.written.by,
            since_is_exact: name.begins,
            starts: name.watched,
            tip: None,
        }
    }
}

impl Held {
    /// Its newest file is gone, as a refresh leaves it, however late it came. Nothing is known
    /// of that while it has two parts that wait to be told apart.
    pub fn is_replaced(&self, names: &BTreeMap<LockId, Name>, turn: u64) -> bool {
        let newest = self.files.first().and_then(|id| names.get(id));
        self.pending.is_none() && newest.is_some_and(|name| name.turn != turn)
    }

    /// What is known of the part of this hold that is left behind.
    pub fn left_behind(&self) -> Origin {
        Origin {
            first: LockId::new(""),
            since: self.held_since,
            surely_since: self.surely_since,
            since_is_exact: self.since_is_exact,
            starts: false,
            tip: None,
        }
    }

    /// A hold that begins with these files, of which nothing is taken in yet.
    pub fn new(
        no: u64,
        oldest: &File<'_>,
        newest: &File<'_>,
        origin: &Origin,
        time: LookTime,
    ) -> Self {
        Self {
            no,
            turn: 0,
            mode: newest.lock.mode,
            holder: newest.lock.holder.clone(),
            held_since: origin.since,
            surely_since: origin.surely_since,
            since_is_exact: origin.since_is_exact,
            refreshes: 0,
            files: Vec::new(),
            gone: None,
            newest: newest.written,
            settled: origin.tip,
            begun: origin.first != *oldest.id(),
            pending: None,
            keeps_old_time: false,
            leased: newest.seen.entry.is_leased(),
            stale: false,
            first_look: time.ended,
            last_look: time.ended,
            missed: None,
        }
    }

    /// Looks at the files, oldest first, and accounts for the new ones among them: the first file
    /// of a hold is its start, every other one a refresh, unless it was there at the first look.
    /// A file above a gap waits until the next look says what the gap is, unless it follows upon
    /// a file that is accounted for and gone. Returns the number of refreshes.
    pub fn settle(
        &mut self,
        names: &mut BTreeMap<LockId, Name>,
        files: &[File<'_>],
        turn: u64,
        policy: &LeasePolicy,
    ) -> u64 {
        let replaced = self.is_replaced(names, turn);
        let mut refreshes = 0;
        let mut below_gap = false;
        let mut pending: Option<Origin> = None;
        for file in files {
            let written = &file.written;
            let Some(name) = names.get_mut(file.id()) else { continue };
            name.hold = Some(self.no);
            let follows = replaced || self.settled.is_none_or(|tip| !is_gap(tip, *written, policy));
            if !name.settled && (follows || !below_gap) {
                name.settled = true;
                if name.not_before.is_some() && self.begun {
                    refreshes += 1;
                }
                self.begun = true;
            }
            if name.settled && self.settled.is_none_or(|tip| tip.at <= written.at) {
                self.settled = Some(*written);
            }
            if !name.settled {
                let first =
                    pending.take().unwrap_or_else(|| Origin::new(file, name).above(policy, name));
                pending = Some(Origin { tip: Some(*written), ..first });
            }
            if name.behind == Some(turn) {
                (below_gap, pending) = (true, None);
            }
        }
        self.pending = pending;
        self.refreshes += refreshes;
        refreshes
    }

    /// The file whose place another one takes as the newest.
    pub fn replaced_by(&self, newest: &File<'_>) -> Option<&LockId> {
        let later = newest.written.at >= self.newest.at;
        self.files.first().filter(|before| later && *before != newest.id())
    }

    /// Takes the files of one look, oldest first.
    pub fn take(&mut self, files: &[File<'_>], stale: bool, turn: u64, time: LookTime) {
        let Some(newest) = files.last() else { return };
        if self.replaced_by(newest).is_some() {
            let own = self.newest.own;
            self.keeps_old_time = own.is_some() && own == newest.written.own;
        }
        self.stale = stale;
        self.turn = turn;
        self.newest = newest.written;
        // The same lock may show another process: a child that outlives the one that took it.
        self.holder = newest.lock.holder.clone();
        self.gone = newest.lock.liveness.gone();
        self.files = files.iter().rev().map(|file| file.id().clone()).collect();
        self.last_look = time.ended;
        self.missed = None;
    }

    /// Something that happened to it.
    pub fn change(&self, kind: EventKind, id: &LockId) -> Change {
        Change { kind, id: id.clone(), hold: Some((self.mode, self.holder.clone())) }
    }

    /// The hold as others see it.
    pub fn show(&self, key: &HoldKey) -> Hold {
        Hold {
            key: key.clone(),
            mode: self.mode,
            holder: self.holder.clone(),
            refreshed_at: self.newest.at,
            held_since: self.held_since,
            surely_since: self.surely_since,
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
pub(super) fn is_gap(older: Written, newer: Written, policy: &LeasePolicy) -> bool {
    let limit = signed(policy.stale_limit);
    !is_near_by_own(older, newer, policy) && newer.at.duration_since(older.at) > limit
}

/// Whether they follow one another by their own clock.
pub(super) fn is_near_by_own(older: Written, newer: Written, policy: &LeasePolicy) -> bool {
    let limit = signed(policy.stale_limit);
    match (older.own, newer.own) {
        (Some(older), Some(newer)) => newer.duration_since(older).abs() <= limit,
        (None, _) | (_, None) => false,
    }
}
