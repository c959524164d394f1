//! The answers of the HTTP API, `/api/v1/…`, and what can be asked of it.
//!
//! A part of everything is rendered: `offset` says from where on, `limit` how much, `matched`
//! how much there is.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::{HolderObject, LOCKS_MAX, Lock, Target, lock, object};
use crate::evidence::{Evidence, happened};
use crate::exposition::overview::{Filter, LIMIT, LIMIT_MAX, Overview};
use crate::judge::{StaleReason, Verdict};
use crate::lock::{Holder, LockEntry, LockMode};
use crate::status::{Event, Happening, Status, TargetStatus};

/// Locks, holds and findings of one target in a list of targets; its own address has more.
const LISTED_MAX: usize = 20;
/// Longest name of a target to ask for, in bytes.
const NAME_BYTES_MAX: usize = 1_000;

/// What an answer is made from.
pub struct Answer<'a> {
    /// The picture.
    pub status: &'a Status,
    /// As of when.
    pub now: Timestamp,
    /// How long values stay shown without a successful scan.
    pub hold: Duration,
}

/// Which part of the matching objects is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    offset: usize,
    limit: usize,
}

impl Default for Part {
    fn default() -> Self {
        Self { offset: 0, limit: LIMIT }
    }
}

impl Part {
    /// Whether the parameter was one of a part.
    fn take(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "offset" => {
                self.offset = value.parse().map_err(|_| "offset is a number from 0 on")?;
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                self.limit = limit.ok_or(format!("limit is a number from 1 to {LIMIT_MAX}"))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What `/api/v1/targets` is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TargetsAsk {
    filter: Filter,
    part: Part,
}

/// What `/api/v1/locks` is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocksAsk {
    target: Option<String>,
    mode: Option<LockMode>,
    kind: Option<&'static str>,
    verdict: Option<&'static str>,
    part: Part,
}

/// What `/api/v1/events` is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EventsAsk {
    target: Option<String>,
    kind: Option<&'static str>,
    part: Part,
}

const KINDS: [&str; 4] = ["readable", "sealed", "empty", "unreadable"];
const VERDICTS: [&str; 4] = [
    Verdict::Fresh.as_str(),
    Verdict::Overdue.as_str(),
    Verdict::Doomed.as_str(),
    Verdict::Stale(StaleReason::Age).as_str(),
];

impl TargetsAsk {
    /// Reads a query.
    ///
    /// # Errors
    /// In words, when something in it cannot be asked for.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut ask = Self::default();
        each(query, |key, value| {
            match key {
                "q" => ask.filter.search(value)?,
                "state" => ask.filter.ask(value)?,
                _ => return ask.part.take(key, value),
            }
            Ok(true)
        })?;
        Ok(ask)
    }
}

impl LocksAsk {
    /// Reads a query.
    ///
    /// # Errors
    /// In words, when something in it cannot be asked for.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut ask = Self::default();
        each(query, |key, value| {
            match key {
                "target" => ask.target = Some(name(value)?),
                "mode" => {
                    let mode = LockMode::ALL.into_iter().find(|mode| mode.as_str() == value);
                    ask.mode = Some(mode.ok_or("mode is exclusive or shared")?);
                }
                "kind" => ask.kind = Some(one_of("kind", value, &KINDS)?),
                "verdict" => ask.verdict = Some(one_of("verdict", value, &VERDICTS)?),
                _ => return ask.part.take(key, value),
            }
            Ok(true)
        })?;
        Ok(ask)
    }
}

impl EventsAsk {
    /// Reads a query.
    ///
    /// # Errors
    /// In words, when something in it cannot be asked for.
    pub fn parse(query: &str) -> Result<Self, String> {
        let mut ask = Self::default();
        each(query, |key, value| {
            match key {
                "target" => ask.target = Some(name(value)?),
                "kind" => ask.kind = Some(one_of("kind", value, &Happening::WORDS)?),
                _ => return ask.part.take(key, value),
            }
            Ok(true)
        })?;
        Ok(ask)
    }
}

/// Hands each parameter over; one that nobody takes is an error.
fn each(
    query: &str,
    mut take: impl FnMut(&str, &str) -> Result<bool, String>,
) -> Result<(), String> {
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if !take(&key, &value)? {
            let key: String = key.escape_debug().take(40).collect();
            return Err(format!("there is no parameter {key}; see docs/api.md"));
        }
    }
    Ok(())
}

fn one_of(key: &str, word: &str, words: &[&'static str]) -> Result<&'static str, String> {
    let known = words.iter().find(|known| **known == word);
    known.copied().ok_or_else(|| format!("{key} is one of {}", words.join(", ")))
}

fn name(text: &str) -> Result<String, String> {
    match text.len() {
        0..=NAME_BYTES_MAX => Ok(text.to_owned()),
        _ => Err("target is the name of a target".into()),
    }
}

#[derive(Serialize)]
struct Targets<'a> {
    as_of: Timestamp,
    total: usize,
    counts: BTreeMap<&'static str, usize>,
    matched: usize,
    offset: usize,
    targets: Vec<Target<'a>>,
}

#[derive(Serialize)]
struct One<'a> {
    as_of: Timestamp,
    target: Target<'a>,
    events: Vec<EventObject<'a>>,
}

#[derive(Serialize)]
struct Locks<'a> {
    as_of: Timestamp,
    matched: usize,
    offset: usize,
    locks: Vec<LockOf<'a>>,
}

#[derive(Serialize)]
struct LockOf<'a> {
    target: &'a str,
    host: &'a str,
    #[serde(flatten)]
    lock: Lock<'a>,
}

#[derive(Serialize)]
struct Events<'a> {
    as_of: Timestamp,
    matched: usize,
    offset: usize,
    events: Vec<EventObject<'a>>,
}

#[derive(Serialize)]
struct EventObject<'a> {
    at: Timestamp,
    target: Option<&'a str>,
    kind: &'static str,
    mode: Option<&'static str>,
    holder: Option<HolderObject<'a>>,
    lock: Option<&'a str>,
    since: Option<Timestamp>,
    reason: Option<&'static str>,
    text: String,
}

impl Answer<'_> {
    /// `/api/v1/targets`: the targets that match, the worst first.
    ///
    /// # Errors
    /// Never for a status of the tracker; the type is the serializer's.
    pub fn targets(&self, overview: &Overview, ask: &TargetsAsk) -> serde_json::Result<String> {
        let Part { offset, limit } = ask.part;
        let selection = overview.select(self.status, &ask.filter, offset, limit);
        let targets = selection.targets.iter();
        let targets =
            targets.map(|(target, ..)| object(target, self.now, self.hold, LISTED_MAX)).collect();
        let standings = selection.counts.standings.iter();
        pretty(&Targets {
            as_of: self.now,
            total: selection.counts.total,
            counts: standings.map(|(standing, count)| (standing.as_str(), *count)).collect(),
            matched: selection.matched,
            offset,
            targets,
        })
    }

    /// `/api/v1/targets/NAME`: one target and its own last events, the newest first.
    ///
    /// # Errors
    /// As [`Answer::targets`].
    pub fn target(&self, target: &TargetStatus) -> serde_json::Result<String> {
        pretty(&One {
            as_of: self.now,
            target: object(target, self.now, self.hold, LOCKS_MAX),
            events: target.events.iter().rev().map(|event| event_object(event)).collect(),
        })
    }

    /// `/api/v1/locks`: every lock file that matches, by target and name.
    ///
    /// # Errors
    /// As [`Answer::targets`].
    pub fn locks(&self, ask: &LocksAsk) -> serde_json::Result<String> {
        let Part { offset, limit } = ask.part;
        let (mut matched, mut locks) = (0, Vec::new());
        let wanted = |target: &&TargetStatus| match &ask.target {
            Some(name) => target.spec.name.as_str() == name,
            None => true,
        };
        for target in self.status.targets.values().map(|target| &**target).filter(wanted) {
            let Some(seen) = target.seen_at(self.now, self.hold) else { continue };
            // Weighing a target's locks costs something; most often none of them is wanted.
            let mut evidence = None;
            for entry in &seen.entries {
                let (kind, mode) = match &entry.entry {
                    LockEntry::Readable(lock) => ("readable", Some(lock.mode)),
                    LockEntry::Sealed(..) => ("sealed", None),
                    LockEntry::Empty(_) => ("empty", None),
                    LockEntry::Unreadable(..) => ("unreadable", None),
                };
                if ask.kind.is_some_and(|wanted| wanted != kind)
                    || (ask.mode.is_some() && ask.mode != mode)
                {
                    continue;
                }
                let evidence =
                    evidence.get_or_insert_with(|| Evidence::new(target, seen, self.now));
                let verdict = evidence.verdict(entry).as_str();
                if ask.verdict.is_some_and(|wanted| wanted != verdict) {
                    continue;
                }
                if matched >= offset && locks.len() < limit {
                    locks.push(LockOf {
                        target: target.spec.name.as_str(),
                        host: &target.spec.host,
                        lock: lock(evidence, entry, self.now),
                    });
                }
                matched += 1;
            }
        }
        pretty(&Locks { as_of: self.now, matched, offset, locks })
    }

    /// `/api/v1/events`: what happened, the newest first.
    ///
    /// # Errors
    /// As [`Answer::targets`].
    pub fn events(&self, ask: &EventsAsk) -> serde_json::Result<String> {
        let Part { offset, limit } = ask.part;
        // Of one target its own record, which reaches further back.
        let record = match &ask.target {
            None => Some(&self.status.events),
            Some(name) => {
                let mut targets = self.status.targets.values();
                targets.find(|target| target.spec.name.as_str() == name).map(|it| &it.events)
            }
        };
        let of_kind = |event: &&Event| ask.kind.is_none_or(|wanted| wanted == event.what.as_str());
        let matching: Vec<_> = record
            .into_iter()
            .flat_map(|record| record.iter().rev())
            .map(|event| &**event)
            .filter(of_kind)
            .collect();
        let matched = matching.len();
        let events = matching.into_iter().skip(offset).take(limit).map(event_object).collect();
        pretty(&Events { as_of: self.now, matched, offset, events })
    }
}

fn event_object(event: &Event) -> EventObject<'_> {
    let (mut mode, mut holder, mut lock, mut since, mut reason) = (None, None, None, None, None);
    match &event.what {
        Happening::Lock { id, hold, .. } => {
            lock = Some(id.as_str());
            let hold: Option<&(LockMode, Holder)> = hold.as_ref();
            mode = hold.map(|(mode, _)| mode.as_str());
            holder = hold.map(|(_, holder)| HolderObject::from(holder));
        }
        Happening::Blocked { mode: of, since: began } => {
            mode = Some(of.as_str());
            since = Some(*began);
        }
        Happening::Unblocked { mode: of, since: began } => {
            mode = Some(of.as_str());
            since = *began;
        }
        Happening::Untold { mode: of } => mode = Some(of.as_str()),
        Happening::ScanFailing { error } => reason = Some(error.class.as_str()),
        Happening::ScanRecovered { since: began } => since = Some(*began),
        Happening::RemovedStale { .. }
        | Happening::Reloaded { .. }
        | Happening::ReloadRefused { .. }
        | Happening::ClockStepped { .. } => {}
    }
    let target = event.target.as_ref().map(|name| name.as_str());
    let (kind, text) = (event.what.as_str(), happened(event));
    EventObject { at: event.at, target, kind, mode, holder, lock, since, reason, text }
}

fn pretty(answer: &impl Serialize) -> serde_json::Result<String> {
    let mut text = serde_json::to_string_pretty(answer)?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_asked_for_is_refused_in_words() {
        for (result, word) in [
            (TargetsAsk::parse("limit=0").err(), "1000"),
            (TargetsAsk::parse("offset=-1").err(), "from 0"),
            (TargetsAsk::parse("state=bad").err(), "stuck"),
            (TargetsAsk::parse("mode=shared").err(), "no parameter mode"),
            (LocksAsk::parse("mode=both").err(), "exclusive or shared"),
            (LocksAsk::parse("verdict=dead").err(), "doomed"),
            (EventsAsk::parse("kind=hold_refreshed").err(), "hold_started"),
        ] {
            let said = result.unwrap_or_default();
            assert!(said.contains(word), "{said:?}");
        }
        assert_eq!(LocksAsk::parse("limit=1000&offset=5").map(|ask| ask.part.limit), Ok(1000));
    }
}
