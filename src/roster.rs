//! Who is watched now: what is configured and what searches found, named, merged, and divided among
//! shards, as one value on a watch channel.
//!
//! It searches nothing itself. A search that failed changes nothing here, so its finds stay.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::shard::Shard;
use crate::target::{SourceSpec, TargetName, TargetSet, TargetSpec};

/// A find is forgotten when so many searches in a row saw everything but it.
const MISSES: u32 = 2;
/// Digits of the hash that marks a name. More of them only where so many do not tell two apart.
const DIGITS: [usize; 3] = [8, 16, 64];

/// What is configured and what was found.
#[derive(Debug)]
pub struct Roster {
    shard: Shard,
    state: Mutex<State>,
    targets: watch::Sender<TargetSet>,
}

#[derive(Debug, Default)]
struct State {
    configured: BTreeMap<TargetName, Arc<TargetSpec>>,
    /// By the name of the search.
    finds: BTreeMap<TargetName, Finds>,
}

/// What one search found.
#[derive(Clone, Debug, Default)]
struct Finds {
    /// How often each path was missed since it was last seen.
    missed: BTreeMap<PathBuf, u32>,
    /// A search has ended, successful or not.
    searched: bool,
}

/// What a search saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Paths below its place; the empty one is the place itself.
    pub found: BTreeSet<PathBuf>,
    /// Paths at and below which whatever was found stays: it may not look there, or the folder is
    /// there and what was in it is not, as when a file system is not mounted.
    pub kept: BTreeSet<PathBuf>,
}

/// What a search changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Finds that are new.
    pub new: usize,
    /// Finds that are forgotten.
    pub gone: usize,
}

impl Roster {
    /// A roster of these targets and searches, nothing found yet.
    pub fn new(configured: impl IntoIterator<Item = TargetSpec>, shard: Shard) -> Self {
        let (targets, _) = watch::channel(TargetSet::default());
        let this = Self { shard, state: Mutex::default(), targets };
        this.configure(configured);
        this
    }

    /// Where the set of targets is followed.
    pub fn follow(&self) -> watch::Receiver<TargetSet> {
        self.targets.subscribe()
    }

    /// The set of targets now.
    pub fn targets(&self) -> TargetSet {
        self.targets.borrow().clone()
    }

    /// Takes a new configuration into use. Finds of searches that are still there, at the same
    /// place, stay until the next search.
    pub fn configure(&self, configured: impl IntoIterator<Item = TargetSpec>) {
        let mut state = self.state();
        let before = std::mem::take(&mut state.configured);
        for mut spec in configured {
            if let SourceSpec::Search(search) = &mut spec.source {
                search.is_shown = self.shard.owns(&spec.name);
            }
            state.configured.insert(spec.name.clone(), Arc::new(spec));
        }
        let State { configured, finds } = &mut *state;
        finds.retain(|name, _| match (before.get(name), configured.get(name)) {
            (Some(old), Some(new)) => new.search().is_some() && old.is_same_place(new),
            (None, _) | (_, None) => false,
        });
        self.publish(&state);
    }

    /// Takes in what a search of this entry saw. Nothing happens when the configuration has moved
    /// on meanwhile.
    pub fn saw(&self, entry: &TargetSpec, sight: &Sight) -> Change {
        let mut state = self.state();
        if state.configured.get(&entry.name).is_none_or(|now| **now != *entry) {
            return Change::default();
        }
        let finds = state.finds.entry(entry.name.clone()).or_default();
        let mut change = Change::default();
        finds.missed.retain(|path, missed| {
            let is_seen = sight.found.contains(path);
            let is_kept = path.ancestors().any(|above| sight.kept.contains(above));
            *missed = if is_seen { 0 } else { *missed + u32::from(!is_kept) };
            let stays = *missed < MISSES;
            change.gone += usize::from(!stays);
            stays
        });
        for path in &sight.found {
            if let Entry::Vacant(vacant) = finds.missed.entry(path.clone()) {
                vacant.insert(0);
                change.new += 1;
            }
        }
        if change != Change::default() {
            self.publish(&state);
        }
        change
    }

    /// A search of this entry has ended, whatever came of it.
    pub fn searched(&self, entry: &TargetName) {
        let mut state = self.state();
        if state.configured.get(entry).is_some_and(|spec| spec.search().is_some()) {
            state.finds.entry(entry.clone()).or_default().searched = true;
        }
    }

    /// How many searches have not ended once: what they find is not known yet.
    pub fn unsearched(&self) -> usize {
        let state = self.state();
        let searches = state.configured.values().filter(|spec| spec.search().is_some());
        searches
            .filter(|spec| state.finds.get(&spec.name).is_none_or(|finds| !finds.searched))
            .count()
    }

    fn publish(&self, state: &State) {
        let set = self.merged(state, &self.targets.borrow());
        self.targets.send_if_modified(|targets| {
            let changed = *targets != set;
            *targets = set;
            changed
        });
    }

    /// Configured names win over found ones, and a configured target over a find at its place.
    fn merged(&self, state: &State, before: &TargetSet) -> TargetSet {
        let configured = &state.configured;
        let mut taken: BTreeSet<TargetName> = configured.keys().cloned().collect();
        let place = |spec: &TargetSpec| (spec.source_name(), spec.place());
        let own: BTreeSet<_> = configured
            .values()
            .filter(|spec| spec.search().is_none())
            .map(|spec| place(spec))
            .collect();
        let is_here =
            |spec: &&Arc<TargetSpec>| spec.search().is_some() || self.shard.owns(&spec.name);
        let mut all: Vec<Arc<TargetSpec>> = configured.values().filter(is_here).cloned().collect();
        for (entry, finds) in &state.finds {
            let Some(search) = configured.get(entry) else { continue };
            let named = names(entry, finds.missed.keys(), |name| taken.contains(name));
            for (name, path) in &named {
                let Some(spec) = search.find(name, path) else { continue };
                if !self.shard.owns(name) || own.contains(&place(&spec)) {
                    continue;
                }
                // One that did not change is the one that others hold already.
                let same = before.get(name).filter(|known| ***known == spec);
                all.push(same.cloned().unwrap_or_else(|| Arc::new(spec)));
            }
            taken.extend(named.into_keys());
        }
        all.into_iter().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every step under the lock leaves whole values behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names of found targets: `entry/relative path`, `entry/.` for the place itself. Whoever may
/// make folders chooses the paths. So a name that had to be cleaned or cut, that is taken, or that
/// looks like one of these, gets `~` and a hash of the raw path: which name a path has depends on
/// no other path.
fn names<'a>(
    entry: &TargetName,
    found: impl IntoIterator<Item = &'a PathBuf>,
    is_taken: impl Fn(&TargetName) -> bool,
) -> BTreeMap<TargetName, PathBuf> {
    let mut named: BTreeMap<TargetName, PathBuf> = BTreeMap::new();
    for path in found {
        let digest = hex::encode(Sha256::digest(path.as_os_str().as_bytes()));
        let plain = plain(entry, path);
        let marked = DIGITS.iter().map(|digits| cut(&shown(entry, path), &digest[..*digits]));
        let free = |name: &TargetName| !is_taken(name) && !named.contains_key(name);
        let mut names = plain.into_iter().chain(marked.filter_map(|n| TargetName::new(&n).ok()));
        if let Some(name) = names.find(free) {
            named.insert(name, path.clone());
        }
    }
    named
}

fn shown(entry: &TargetName, path: &Path) -> String {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    format!("{entry}/{}", path.to_string_lossy())
}

/// The name as it stands, if that can be one and looks like no marked one.
fn plain(entry: &TargetName, path: &Path) -> Option<TargetName> {
    let text = shown(entry, path);
    let is_text = path.to_str().is_some();
    let is_marked = text.rsplit_once('~').is_some_and(|(_, mark)| {
        DIGITS.contains(&mark.len()) && mark.bytes().all(|b| b.is_ascii_hexdigit())
    });
    TargetName::new(&text).ok().filter(|_| is_text && !is_marked)
}

/// A text cleaned, and cut so that `~` and the digits fit behind it.
fn cut(text: &str, digits: &str) -> String {
    let room = TargetName::BYTES_MAX - 1 - digits.len();
    let mut cut = String::new();
    for c in text.chars().map(|c| if c.is_control() || c == '\u{FFFD}' { '?' } else { c }) {
        if cut.len() + c.len_utf8() > room {
            break;
        }
        cut.push(c);
    }
    format!("{cut}~{digits}")
}

#[cfg(test)]
mod tests;
