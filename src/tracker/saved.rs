//! What the tracker remembers as plain values, to be written down and taken up by another process.
//!
//! Facts only: names and when they were first seen, holds, since when something is blocked. What
//! is counted begins anew, as counters of a restarted process do. Pure; where it is kept is not
//! known here. The values may come from a damaged file, so nothing is taken for granted.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Tracker;
use super::blocked::{Run, Runs};
use super::held::{Held, Origin, Written};
use super::memory::{LastLook, Memory, Name};
use crate::lock::{GoneReason, HoldKey, Holder, LockId, LockMode};
use crate::target::{PerMode, TargetName, TargetSpec};

/// The form of what is written; another one is not understood.
pub const VERSION: u32 = 1;
/// No number that only goes up is larger.
const COUNT_MAX: u64 = u64::MAX / 2;

/// Everything that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// [`VERSION`].
    pub version: u32,
    /// The wall clock's lead over the boot-time clock; true in the same boot only.
    #[serde(default)]
    lead: Option<SignedDuration>,
    /// By name.
    pub targets: BTreeMap<String, SavedTarget>,
}

/// What is remembered of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedTarget {
    /// Source, backend and place: at another one nothing of it is true.
    place: Place,
    turn: u64,
    holds_made: u64,
    /// Begin of the last look, and whether it left holders unknown.
    last: Option<(Timestamp, bool)>,
    names: BTreeMap<String, SavedName>,
    holds: Vec<SavedHold>,
    blocked: [Option<SavedRun>; 2],
}

pub(super) type Place = (String, String, String);

impl Saved {
    /// Nothing is remembered.
    pub fn empty() -> Self {
        Self { version: VERSION, lead: None, targets: BTreeMap::new() }
    }

    /// Forgets what another boot makes untrue: the clocks' difference, and who had the kernel's
    /// locks. That they were held once is still so.
    pub fn forget_boot(&mut self) {
        self.lead = None;
        for target in self.targets.values_mut().filter(|target| target.place.0 == "file") {
            target.names.clear();
            target.holds.clear();
            target.last = None;
            target.blocked = [None, None];
        }
    }
}

/// On our clock, at the latest, and by its own time.
type SavedWritten = (Timestamp, Timestamp, Option<Timestamp>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedName {
    first_seen: Timestamp,
    not_before: Option<Timestamp>,
    clock_moved: SignedDuration,
    turn: u64,
    watched: bool,
    begins: bool,
    hold: Option<u64>,
    settled: bool,
    behind: Option<u64>,
    replaced: Option<u64>,
    stale: bool,
    leased: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedHold {
    key: String,
    no: u64,
    turn: u64,
    exclusive: bool,
    holder: SavedHolder,
    held_since: Timestamp,
    surely_since: Timestamp,
    since_is_exact: bool,
    refreshes: u64,
    files: Vec<String>,
    gone: Option<String>,
    newest: SavedWritten,
    settled: Option<SavedWritten>,
    begun: bool,
    pending: Option<SavedOrigin>,
    keeps_old_time: bool,
    leased: bool,
    stale: bool,
    first_look: Timestamp,
    last_look: Timestamp,
    missed: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedHolder {
    hostname: String,
    username: String,
    command: String,
    pid: Option<i64>,
    uid: Option<u32>,
    gid: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedOrigin {
    first: String,
    since: Timestamp,
    surely_since: Timestamp,
    since_is_exact: bool,
    starts: bool,
    tip: Option<SavedWritten>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedRun {
    since: Timestamp,
    surely_since: Timestamp,
    undated: Option<Timestamp>,
    last: Timestamp,
}

impl Tracker {
    /// What is remembered now. What was restored of targets that a search has yet to find again is
    /// part of it: the backend may be away for long.
    pub fn save(&self) -> Saved {
        let saved = |(name, memory): (&TargetName, &Memory)| {
            let spec = &self.status.targets.get(name)?.spec;
            Some((name.as_str().to_owned(), SavedTarget::of(place(spec), memory)))
        };
        let awaited = |name: &&String| self.searches.iter().any(|search| search.is_above(name));
        let restored = self.restored.iter().filter(|(name, _)| awaited(name));
        let restored = restored
            .map(|(name, (place, memory))| (name.clone(), SavedTarget::of(place.clone(), memory)));
        let targets = self.memories.iter().filter_map(saved).chain(restored).collect();
        Saved { version: VERSION, lead: self.clock.lead(), targets }
    }

    /// Takes up what another tracker remembered; before the first [`Tracker::retarget`]. A target
    /// that is not in the set by then, or at another place, begins anew.
    pub fn restore(&mut self, saved: Saved) {
        if saved.version != VERSION {
            return;
        }
        if let Some(lead) = saved.lead {
            self.clock.resume(lead);
        }
        let memory = |target: SavedTarget| (target.place.clone(), target.into_memory());
        self.restored =
            saved.targets.into_iter().map(|(name, target)| (name, memory(target))).collect();
    }

    /// What is to be remembered of a target that is new to this tracker.
    pub(super) fn remembered(&mut self, spec: &TargetSpec) -> Memory {
        let restored = self.restored.remove(spec.name.as_str());
        let restored = restored.filter(|(known, _)| *known == place(spec));
        restored.map(|(_, memory)| memory).unwrap_or_default()
    }
}

fn place(spec: &TargetSpec) -> Place {
    (spec.source_name().to_owned(), spec.backend().to_owned(), spec.location())
}

impl SavedTarget {
    fn of(place: Place, memory: &Memory) -> Self {
        let name = |(id, name): (&LockId, &Name)| (id.as_str().to_owned(), SavedName::from(name));
        let holds = memory
            .holds
            .iter()
            .flat_map(|(key, holds)| holds.values().map(move |held| SavedHold::of(key, held)));
        let PerMode { exclusive, shared } = &memory.runs.0;
        Self {
            place,
            turn: memory.turn,
            holds_made: memory.holds_made,
            last: memory.last.as_ref().map(|last| (last.began, last.sealed)),
            names: memory.names.iter().map(name).collect(),
            holds: holds.collect(),
            blocked: [exclusive, shared].map(|run| run.as_ref().map(SavedRun::from)),
        }
    }

    fn into_memory(self) -> Memory {
        // Numbers of a damaged file must not run over; nobody looks so often.
        let turn = self.turn.min(COUNT_MAX);
        let [exclusive, shared] = self.blocked.map(|run| run.map(Run::from));
        let mut holds: BTreeMap<HoldKey, BTreeMap<u64, Box<Held>>> = BTreeMap::new();
        let mut holds_made = self.holds_made;
        for saved in self.holds {
            let saved = saved.within(turn);
            holds_made = holds_made.max(saved.no).min(COUNT_MAX);
            let key = HoldKey::new(saved.key.as_str());
            holds.entry(key).or_default().insert(saved.no, Box::new(saved.into()));
        }
        let names = self.names.into_iter();
        Memory {
            turn,
            names: names.map(|(id, name)| (LockId::new(id), name.within(turn).into())).collect(),
            holds,
            holds_made,
            last: self.last.map(|(began, sealed)| LastLook { began, sealed }),
            runs: Runs(PerMode { exclusive, shared }),
            // The record itself is not kept over a restart.
            told: PerMode::default(),
        }
    }
}

impl From<&Name> for SavedName {
    fn from(name: &Name) -> Self {
        Self {
            first_seen: name.first_seen,
            not_before: name.not_before,
            clock_moved: name.clock_moved,
            turn: name.turn,
            watched: name.watched,
            begins: name.begins,
            hold: name.hold,
            settled: name.settled,
            behind: name.behind,
            replaced: name.replaced,
            stale: name.stale,
            leased: name.leased,
        }
    }
}

impl SavedName {
    fn within(self, turn: u64) -> Self {
        let behind = self.behind.map(|behind| behind.min(turn));
        let replaced = self.replaced.map(|replaced| replaced.min(turn));
        Self { turn: self.turn.min(turn), behind, replaced, ..self }
    }
}

impl From<SavedName> for Name {
    fn from(name: SavedName) -> Self {
        Self {
            first_seen: name.first_seen,
            not_before: name.not_before,
            clock_moved: name.clock_moved,
            turn: name.turn,
            watched: name.watched,
            begins: name.begins,
            hold: name.hold,
            settled: name.settled,
            behind: name.behind,
            replaced: name.replaced,
            stale: name.stale,
            leased: name.leased,
        }
    }
}

impl SavedHold {
    fn within(self, turn: u64) -> Self {
        let (no, refreshes) = (self.no.min(COUNT_MAX), self.refreshes.min(COUNT_MAX));
        Self { turn: self.turn.min(turn), no, refreshes, ..self }
    }

    fn of(key: &HoldKey, held: &Held) -> Self {
        let pair = |written: Written| (written.at, written.by, written.own);
        Self {
            key: key.as_str().to_owned(),
            no: held.no,
            turn: held.turn,
            exclusive: held.mode == LockMode::Exclusive,
            holder: SavedHolder::from(&held.holder),
            held_since: held.held_since,
            surely_since: held.surely_since,
            since_is_exact: held.since_is_exact,
            refreshes: held.refreshes,
            files: held.files.iter().map(|id| id.as_str().to_owned()).collect(),
            gone: held.gone.map(|reason| reason.as_str().to_owned()),
            newest: pair(held.newest),
            settled: held.settled.map(pair),
            begun: held.begun,
            pending: held.pending.as_ref().map(|origin| SavedOrigin {
                first: origin.first.as_str().to_owned(),
                since: origin.since,
                surely_since: origin.surely_since,
                since_is_exact: origin.since_is_exact,
                starts: origin.starts,
                tip: origin.tip.map(pair),
            }),
            keeps_old_time: held.keeps_old_time,
            leased: held.leased,
            stale: held.stale,
            first_look: held.first_look,
            last_look: held.last_look,
            missed: held.missed,
        }
    }
}

impl From<SavedHold> for Held {
    fn from(saved: SavedHold) -> Self {
        let written = |(at, by, own)| Written { at, by, own };
        let reasons = [GoneReason::Rebooted, GoneReason::Gone, GoneReason::Reused];
        let gone = saved.gone.and_then(|word| reasons.into_iter().find(|one| one.as_str() == word));
        Self {
            no: saved.no,
            turn: saved.turn,
            mode: if saved.exclusive { LockMode::Exclusive } else { LockMode::Shared },
            holder: saved.holder.into(),
            held_since: saved.held_since,
            surely_since: saved.surely_since,
            since_is_exact: saved.since_is_exact,
            refreshes: saved.refreshes,
            files: saved.files.into_iter().map(LockId::new).collect(),
            gone,
            newest: written(saved.newest),
            settled: saved.settled.map(written),
            begun: saved.begun,
            pending: saved.pending.map(|origin| Origin {
                first: LockId::new(origin.first),
                since: origin.since,
                surely_since: origin.surely_since,
                since_is_exact: origin.since_is_exact,
                starts: origin.starts,
                tip: origin.tip.map(written),
            }),
            keeps_old_time: saved.keeps_old_time,
            leased: saved.leased,
            stale: saved.stale,
            first_look: saved.first_look,
            last_look: saved.last_look,
            missed: saved.missed,
        }
    }
}

impl From<&Holder> for SavedHolder {
    fn from(holder: &Holder) -> Self {
        Self {
            hostname: holder.hostname.to_string(),
            username: holder.username.to_string(),
            command: holder.command.to_string(),
            pid: holder.pid,
            uid: holder.uid,
            gid: holder.gid,
        }
    }
}

impl From<SavedHolder> for Holder {
    fn from(holder: SavedHolder) -> Self {
        Self {
            hostname: holder.hostname.into(),
            username: holder.username.into(),
            command: holder.command.into(),
            pid: holder.pid,
            uid: holder.uid,
            gid: holder.gid,
        }
    }
}

impl From<&Run> for SavedRun {
    fn from(run: &Run) -> Self {
        Self {
            since: run.since,
            surely_since: run.surely_since,
            undated: run.undated,
            last: run.last,
        }
    }
}

impl From<SavedRun> for Run {
    fn from(run: SavedRun) -> Self {
        Self {
            since: run.since,
            surely_since: run.surely_since,
            undated: run.undated,
            last: run.last,
        }
    }
}
