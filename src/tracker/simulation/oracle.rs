//! What must hold of every picture, told by somebody who knows the truth and what each look
//! returned.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{Returned, World};
use super::*;
use crate::evidence;
use crate::judge::{self, StaleReason, Verdict};
use crate::status::{EventKind, Hold, SeenEntry};
use crate::target::PerMode;

/// What the oracle remembers of one life of the exporter.
#[derive(Default)]
pub struct Oracle {
    /// The looks that succeeded, without their files' content.
    last: Option<Returned>,
    names: BTreeMap<String, NameSeen>,
    keys: BTreeMap<String, KeySeen>,
    runs: PerMode<Option<RunSeen>>,
    counters: TargetCounters,
    starts_before: Option<(u64, u64)>,
    looks: u64,
    /// The last look with a sealed file. It may have hidden a holder, so that nobody knows for a
    /// while whether that one came or went.
    sealed: Option<u64>,
    /// How often a look did not return a file that was there.
    hidden: u64,
}

struct NameSeen {
    first: i64,
    look: u64,
}

#[derive(Default)]
struct KeySeen {
    /// The look that returned it last.
    look: u64,
    /// Begin of the look that missed it before it came.
    clear: Option<i64>,
    since: BTreeSet<Timestamp>,
    /// The same one look before: of two holds one may be missed once.
    since_before: BTreeSet<Timestamp>,
    first: i64,
    /// Whether it had more than one hold in each of the last three looks that returned it.
    parts: [bool; 3],
}

#[derive(Clone, Copy)]
struct RunSeen {
    since: Timestamp,
    /// Files of its first look are still sealed.
    undated: bool,
    last: i64,
}

type Checked = Result<(), String>;

macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+));
        }
    };
}

const HALF_HOUR: i64 = 30 * MINUTE;

impl Oracle {
    pub fn check(
        &mut self,
        world: &World,
        found: Option<Returned>,
        status: &TargetStatus,
        events: &[LockEvent],
        memory: usize,
    ) -> Checked {
        self.counters(world, found.as_ref(), status)?;
        let Some(found) = found else {
            ensure!(events.is_empty(), "a failed scan caused events");
            ensure!(status.error().is_some(), "a failed scan does not show at once");
            return Ok(());
        };
        self.looks += 1;
        if found.files.values().any(|(_, sealed)| *sealed) {
            self.sealed = Some(self.looks);
        }
        let Phase::Seen(shown) = &status.phase else {
            return Err("a successful look is not shown".into());
        };
        let seen = &at_true_time(shown, found.off);
        self.blocking(world, &found, seen)?;
        self.first_sights(&found, seen)?;
        self.verdicts(world, &found, seen, status)?;
        self.holds(world, &found, seen, events)?;
        self.runs(&found, seen)?;
        advice(world, &found, shown, status)?;
        let listed = found.files.len() + self.last.as_ref().map_or(0, |last| last.files.len());
        let bounded = self.hidden_lately() || memory <= 2 * listed;
        ensure!(bounded, "{memory} things remembered of {listed} names");
        self.last = Some(found);
        Ok(())
    }

    fn hidden_lately(&self) -> bool {
        self.sealed.is_some_and(|look| look + 3 >= self.looks)
    }

    /// Counters never go back, and count nothing that did not happen.
    fn counters(
        &mut self,
        world: &World,
        found: Option<&Returned>,
        status: &TargetStatus,
    ) -> Checked {
        let (old, new) = (&self.counters, &status.counters);
        let total = |pair: PerMode<u64>| pair.exclusive + pair.shared;
        let grew = old.scans < new.scans
            && old.scan_failures <= new.scan_failures
            && old.holds_started.exclusive <= new.holds_started.exclusive
            && old.holds_started.shared <= new.holds_started.shared
            && old.holds_ended.exclusive <= new.holds_ended.exclusive
            && old.holds_ended.shared <= new.holds_ended.shared
            && old.refreshes <= new.refreshes
            && old.stale_removals <= new.stale_removals;
        ensure!(grew, "counters went back: {old:?} then {new:?}");
        self.counters = *new;
        let Some(found) = found else { return Ok(()) };
        // The first look cannot have listed what was written after it began.
        let young = world.files.iter().filter(|file| file.written >= found.began).count() as u64;
        let now = (world.starts, world.refreshes);
        let before = *self
            .starts_before
            .get_or_insert((now.0.saturating_sub(young), now.1.saturating_sub(young)));
        // A lock taken away before this life may come back in it.
        let happened = (now.0 - before.0, now.1 - before.1, world.ambiguous);
        let there = world.there(found.listed);
        let hidden = |file: &&usize| !found.files.contains_key(&world.files[**file].name);
        self.hidden += there.iter().filter(hidden).count() as u64;
        // What began just before the first look of this life is not counted by it.
        let (starts, refreshes) = (total(new.holds_started), new.refreshes);
        // Two look-alikes with different clocks cannot be told apart.
        let strange = (0..world.processes.len()).any(|process| {
            let offset = world.processes[process].offset;
            let key = world.key(process);
            let same = (0..process).filter(|other| world.key(*other) == key);
            same.into_iter().any(|other| world.processes[other].offset != offset)
        });
        ensure!(
            strange
                || starts <= happened.0 + happened.2 + self.hidden
                    && refreshes <= happened.1 + happened.0 + self.hidden,
            "{starts} starts and {refreshes} refreshes counted, {happened:?} happened"
        );
        Ok(())
    }

    /// Never a false free, never a false blocked, as of what the look returned.
    fn blocking(&self, world: &World, found: &Returned, seen: &Seen) -> Checked {
        let entries = || seen.entries.iter().map(|seen| &seen.entry);
        let blocked = judge::blocked(entries());
        let files: BTreeSet<_> = found.files.values().map(|(file, _)| *file).collect();
        let exclusive = |files: &BTreeSet<usize>| {
            files
                .iter()
                .any(|f| world.processes[world.files[*f].process].mode == LockMode::Exclusive)
        };
        ensure!(blocked.exclusive == Some(!files.is_empty()), "exclusive work: {blocked:?}");
        match blocked.shared {
            Some(blocked) => ensure!(blocked == exclusive(&files), "shared work: {blocked:?}"),
            None => {
                let sealed = found.files.values().any(|(_, sealed)| *sealed);
                ensure!(sealed, "nothing is sealed, yet nothing is known");
            }
        }
        if found.honest {
            let truth: BTreeSet<_> = world.there(found.listed).into_iter().collect();
            ensure!(
                truth.is_empty() == (judge::state(entries()) == judge::State::Free),
                "false free"
            );
            let free = blocked.shared == Some(false);
            ensure!(!free || !exclusive(&truth), "false free for shared work");
        }
        let since = &seen.blocked_since;
        ensure!(since.exclusive.is_some() == (blocked.exclusive == Some(true)), "blocked_since");
        ensure!(since.shared.is_some() == (blocked.shared == Some(true)), "blocked_since");
        Ok(())
    }

    /// The first sight of a name stays while the name does, over one look without it.
    fn first_sights(&mut self, found: &Returned, seen: &Seen) -> Checked {
        let look = self.looks;
        self.names.retain(|_, name| name.look + 2 >= look);
        ensure!(found.files.len() == seen.entries.len(), "files lost or made up");
        for SeenEntry { entry, first_seen, not_before, .. } in &seen.entries {
            let name = self.names.entry(entry.stub().id.as_str().to_string());
            let name = name.or_insert(NameSeen { first: found.ended, look });
            name.look = look;
            ensure!(*first_seen == moment(name.first), "first sight of {entry:?}");
            ensure!(not_before.is_none_or(|before| before < *first_seen), "{entry:?}");
        }
        Ok(())
    }

    /// Never a false stale, never a stuck hold that was seen to be refreshed, and no dead lock
    /// that goes unnoticed for longer than half an hour after first sight.
    fn verdicts(
        &self,
        world: &World,
        found: &Returned,
        seen: &Seen,
        status: &TargetStatus,
    ) -> Checked {
        let now = found.ended;
        for seen in &seen.entries {
            let id = seen.entry.stub().id.as_str();
            let file = &world.files[found.files[id].0];
            let (mut shown, clock) = (seen.clone(), now + found.off);
            shown.shift(SignedDuration::from_millis(found.off));
            let verdict =
                judge::judge_entry(&seen.entry, shown.first_seen, &status.policy, moment(clock));
            let age = now - file.written;
            let by_own = match &seen.entry {
                LockEntry::Readable(_) => clock - file.own,
                _ => file.stored.map_or(0, |stored| clock - stored),
            };
            if verdict.is_stale() {
                ensure!(age > HALF_HOUR || by_own > HALF_HOUR, "{id} is falsely {verdict:?}");
            }
            let unrefreshed = verdict == Verdict::Stale(StaleReason::Unrefreshed);
            ensure!(!unrefreshed || age > HALF_HOUR, "{id} is falsely {verdict:?}");
            let known_for = now - self.names[id].first;
            ensure!(
                verdict.is_stale() || known_for.max(by_own) <= HALF_HOUR,
                "{id} is {verdict:?}"
            );
        }
        for hold in &seen.holds {
            let newest = newest(hold, seen)?;
            let file = &world.files[found.files[newest.entry.stub().id.as_str()].0];
            let stuck = moment(now).duration_since(hold.refreshed_at).as_millis();
            let stuck = stuck > i128::from(HALF_HOUR);
            let unseen = newest.not_before.is_none_or(|before| {
                moment(now).duration_since(before).as_millis() > i128::from(HALF_HOUR)
            });
            ensure!(!stuck || unseen || now - file.written > HALF_HOUR, "falsely stuck: {hold:?}");
            let known_for = now - self.names[newest.entry.stub().id.as_str()].first;
            ensure!(stuck || known_for <= HALF_HOUR, "not stuck though dead: {hold:?}");
        }
        Ok(())
    }

    fn holds(
        &mut self,
        world: &World,
        found: &Returned,
        seen: &Seen,
        events: &[LockEvent],
    ) -> Checked {
        let look = self.looks;
        let mut files: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (file, _) in found.files.values().filter(|(_, sealed)| !sealed) {
            files.entry(world.key(world.files[*file].process)).or_default().push(*file);
        }
        let shown: BTreeSet<_> = seen.holds.iter().map(|hold| hold.key.as_str()).collect();
        let expected: BTreeSet<_> = files.keys().map(String::as_str).collect();
        ensure!(shown == expected, "holders {expected:?}, shown {shown:?}");
        let count: usize = seen.holds.iter().map(|hold| hold.files.len()).sum();
        ensure!(count == files.values().map(Vec::len).sum::<usize>(), "a file in no or two holds");
        let last = self.last.as_ref();
        let clear = last.map(|last| last.began).filter(|_| !self.hidden_lately());
        // A sealed file may hide a holder, so it neither came nor went as far as is known.
        for (file, _) in found.files.values().filter(|(_, sealed)| *sealed) {
            let known = self.keys.entry(world.key(world.files[*file].process));
            let first = KeySeen { look, clear, first: found.ended, ..KeySeen::default() };
            known.or_insert(first).look = look;
        }
        for event in events.iter().filter(|event| event.kind == EventKind::Released) {
            let (mode, holder) = event.hold.as_ref().ok_or("a release of nobody")?;
            let pid = holder.pid.unwrap_or_default();
            let key = format!("{} {pid} {}", holder.hostname, mode.as_str());
            let gone = self.keys.get(&key).is_none_or(|known| known.look + 2 <= look);
            // One of two holds of a key may end while the other lasts.
            let parts = self.keys.get(&key).is_some_and(|known| known.parts.contains(&true));
            let hidden = self.hidden_lately();
            ensure!(
                gone || parts || hidden || world.sharing(&key) > 1,
                "{key} is falsely released"
            );
        }
        self.keys.retain(|_, known| known.look + 2 >= look);
        for (key, files) in &files {
            let holds: Vec<_> = seen.holds.iter().filter(|hold| hold.key.as_str() == key).collect();
            self.hold_of_key(world, found, key, &holds, clear)?;
            gaps(world, key, files, &holds)?;
        }
        Ok(())
    }

    /// `held_since` stays while the holder does, and is never before it could have begun.
    fn hold_of_key(
        &mut self,
        world: &World,
        found: &Returned,
        key: &str,
        holds: &[&Hold],
        clear: Option<i64>,
    ) -> Checked {
        let since: BTreeSet<_> = holds.iter().map(|hold| hold.held_since).collect();
        let earliest = *since.first().ok_or("no hold")?;
        // Behind a sealed file nobody knows which of the holds of a key was refreshed.
        let mixed = self.hidden_lately();
        match self.keys.get_mut(key) {
            Some(known) => {
                ensure!(
                    mixed
                        || known.since.is_empty()
                        || known.since.contains(&earliest)
                        || known.since_before.contains(&earliest),
                    "{key} is held since {earliest}, before it was {:?}",
                    known.since
                );
                if known.since.is_empty() || known.parts[0] || mixed {
                    // While it was sealed nobody could follow it over its refreshes; of two holds
                    // the older may have ended.
                    known.first = found.ended;
                }
                known.since_before = std::mem::replace(&mut known.since, since);
                known.parts = [holds.len() > 1, known.parts[0], known.parts[1]];
                known.look = self.looks;
                ensure!(
                    mixed || earliest <= moment(known.first),
                    "{key} is held from after first sight"
                );
                let clear = known.clear.is_none_or(|clear| earliest >= moment(clear));
                ensure!(clear, "{key} is held from before it came");
            }
            None => {
                let twins = world.sharing(key) > 1;
                let first_file = |hold: &&&Hold| hold.files.len() == 1;
                if let (Some(clear), false) = (clear, twins) {
                    ensure!(earliest >= moment(clear), "{key} is held from before it came");
                    let exact = holds.iter().filter(first_file).any(|hold| hold.since_is_exact);
                    let gap = found.ended - clear;
                    ensure!(!exact || gap <= 5 * MINUTE, "{key}: nobody looked for {gap} ms");
                }
                let (look, first) = (self.looks, found.ended);
                let known = KeySeen { look, clear, since, first, ..KeySeen::default() };
                self.keys.insert(key.to_string(), known);
            }
        }
        Ok(())
    }

    /// A run goes on from look to look until the mode is free.
    fn runs(&mut self, found: &Returned, seen: &Seen) -> Checked {
        let blocked = judge::blocked(seen.entries.iter().map(|seen| &seen.entry));
        let sealed = seen.entries.iter().any(|seen| matches!(seen.entry, LockEntry::Sealed(..)));
        for mode in LockMode::ALL {
            let since = *memory::per_mode(&mut seen.blocked_since.clone(), mode);
            let run = memory::per_mode(&mut self.runs, mode);
            match (blocked.of(mode), since) {
                (Some(false), _) => *run = None,
                (None, _) => {}
                (Some(true), None) => return Err("blocked since never".into()),
                (Some(true), Some(since)) => {
                    let mut undated = sealed;
                    if let Some(run) = run
                        && found.ended - run.last <= 15 * MINUTE
                    {
                        // What was sealed when the run began may show an earlier time later.
                        let dated = run.since == since || run.undated && since < run.since;
                        ensure!(dated, "{mode:?}: {} then {since}", run.since);
                        undated = run.undated && sealed;
                    }
                    ensure!(since <= moment(found.ended), "blocked from the future on");
                    *run = Some(RunSeen { since, undated, last: found.ended });
                }
            }
        }
        Ok(())
    }
}

/// What is shown, without the exporter's own error of the clock.
fn at_true_time(shown: &Seen, off: i64) -> Seen {
    let mut seen = shown.clone();
    seen.shift(SignedDuration::from_millis(-off));
    seen
}

fn newest<'a>(hold: &Hold, seen: &'a Seen) -> Result<&'a SeenEntry, String> {
    let id = hold.files.first().ok_or("a hold without a file")?;
    seen.entries.iter().find(|seen| seen.entry.stub().id == *id).ok_or("a file unknown".into())
}

/// Files of one process are apart only where its refreshes were.
fn gaps(world: &World, key: &str, files: &[usize], holds: &[&Hold]) -> Checked {
    let mut times: Vec<_> = files.iter().map(|file| world.files[*file].own).collect();
    times.sort_unstable();
    let gaps = times.windows(2).filter(|pair| pair[1] - pair[0] > HALF_HOUR).count();
    let few = holds.len() <= 1 + gaps || world.sharing(key) > 1;
    ensure!(few, "{} holds of {key} with {gaps} gaps", holds.len());
    Ok(())
}

/// `unlock` is never advised where it would delete a lock that could be known to be alive.
fn advice(world: &World, found: &Returned, seen: &Seen, status: &TargetStatus) -> Checked {
    let now = moment(found.ended + found.off);
    let findings = evidence::findings(status, now, HOLD);
    let Some(advised) = findings.iter().find(|finding| {
        let step = finding.next_step.as_deref().unwrap_or_default();
        step.starts_with("restic") && step.contains(" unlock") && !step.contains("--remove-all")
    }) else {
        return Ok(());
    };
    // Whoever follows the advice may do it on this machine.
    let here = world.unlocked(found.ended, found.off);
    for file in world.unlocked(found.ended, 0).into_iter().chain(here) {
        let Some(shown) = seen
            .entries
            .iter()
            .find(|seen| seen.entry.stub().id.as_str() == world.files[file].name)
        else {
            continue;
        };
        let long_ago =
            |before: Timestamp| now.duration_since(before) > SignedDuration::from_mins(30);
        let unseen = shown.not_before.is_none_or(long_ago) && world.files[file].stored.is_none();
        // A clock that stays wrong for so long is right as far as anybody here knows: of its error
        // only what came of late is known.
        let recent = status.clock_step.filter(|step| !long_ago(step.at));
        let known = recent.map_or(Duration::ZERO, |step| step.together).as_millis();
        let is_known = u128::from(found.off.unsigned_abs()) <= known + 2000;
        let stored = world.files[file].stored.is_some();
        let alone = !stored || shown.not_before.is_none_or(long_ago);
        let unseen = unseen || !is_known && alone;
        let sealed = found.files.values().any(|(_, sealed)| *sealed);
        ensure!(
            !world.is_alive(file, found.ended) || unseen || sealed,
            "{advised:?} would delete the living lock {}",
            world.files[file].name
        );
    }
    Ok(())
}
