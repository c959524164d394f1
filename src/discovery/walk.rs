//! Walks folders and prefixes for repositories, one listing of folders for each.
//!
//! Folders that were looked into before are looked into again only now and then: a warm search
//! lists the folders in which new ones can appear, and few others. It decides neither when to
//! search nor what becomes of the finds.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{StreamExt, stream};

use crate::scan::{ErrorClass, Ignored, ScanError};
use crate::store::{ReadStore, StoreError, StoreErrorKind};
use crate::target::Repositories;

/// Folders of one search.
const FOLDERS_MAX: usize = 50_000;
/// Listings at the same time: a store has one at a time, so a search has as many stores. One that
/// hangs in a dead file system keeps as many threads.
pub(super) const LISTINGS_AT_ONCE: usize = 8;
/// What a folder is, repository or not, is looked at again once in so many searches.
const AGAIN: u64 = 10;

/// What a whole search saw.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Paths of repositories; `""` is the start itself.
    pub repositories: BTreeSet<String>,
    /// Paths of folders that could not be listed.
    pub closed: BTreeSet<String>,
    /// Why the first of those could not.
    pub first_closed: Option<StoreError>,
    /// Paths of folders that are there, with no repository at them or below.
    pub bare: BTreeSet<String>,
    /// Names that cannot be part of a path.
    pub odd: Ignored,
}

/// What is known of folders from earlier searches, also from those that did not end.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Which search this is.
    turn: u64,
    /// Folders from which no search goes on, and whether they are repositories.
    ends: BTreeMap<String, bool>,
}

impl Memory {
    fn known(&self) -> MutexGuard<'_, Known> {
        // A map is whole between two of its calls.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a folder is a repository; none when it must be looked into.
    fn recall(&self, path: &str) -> Option<bool> {
        let known = self.known();
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let is_due = hasher.finish().wrapping_add(known.turn).is_multiple_of(AGAIN);
        known.ends.get(path).copied().filter(|_| !is_due)
    }

    fn learn(&self, path: &str, is_repository: Option<bool>) {
        let mut known = self.known();
        match is_repository {
            Some(is_repository) => known.ends.insert(path.to_owned(), is_repository),
            None => known.ends.remove(path),
        };
    }

    /// A whole search has ended: what it did not meet is forgotten.
    fn keep(&self, met: &BTreeSet<String>) {
        let mut known = self.known();
        known.ends.retain(|path, _| met.contains(path));
        known.turn = known.turn.wrapping_add(1);
    }
}

/// Searches. A folder that may not be listed, or vanishes, hides nothing but itself; a backend that
/// does not answer ends the search.
///
/// # Errors
/// When the start cannot be listed, the backend fails, or there are more folders or repositories
/// than the limits: a part of them would look like all.
pub(super) async fn find(
    stores: &[Arc<dyn ReadStore>],
    search: &Repositories,
    max: usize,
    memory: &Memory,
) -> Result<Found, ScanError> {
    let mut found = Found::default();
    let mut met = BTreeSet::new();
    let mut with_some: BTreeSet<String> = BTreeSet::new();
    let mut level = vec![String::new()];
    let turn = AtomicUsize::new(0);
    for depth in 0..=search.depth {
        if met.len() + level.len() > FOLDERS_MAX {
            let cause = format!("more than {FOLDERS_MAX} folders");
            return Err(too_many(&cause, "Search with less depth, or exclude some."));
        }
        met.extend(level.iter().cloned());
        let mut next = Vec::new();
        let mut looks = stream::iter(level)
            .map(|path| {
                let store = stores.get(turn.fetch_add(1, Ordering::Relaxed) % stores.len().max(1));
                async move {
                    let kind = match store {
                        Some(store) => look(&**store, &path, memory).await,
                        None => Err(unsearchable()),
                    };
                    (path, kind)
                }
            })
            .buffer_unordered(stores.len().max(1));
        while let Some((path, kind)) = looks.next().await {
            match kind {
                Ok(Folder::Repository) => {
                    memory.learn(&path, Some(true));
                    with_some.extend(upwards(&path).map(str::to_owned));
                    if is_meant(&path, search) {
                        found.repositories.insert(path);
                    }
                }
                Ok(Folder::Dull) => {}
                Ok(Folder::Of(_)) if depth == search.depth => memory.learn(&path, Some(false)),
                Ok(Folder::Of(folders)) => {
                    memory.learn(&path, None);
                    next.extend(below(&path, folders, search, &mut found.odd));
                }
                Err(error) if path.is_empty() || ends_search(error.kind) => {
                    return Err(failed(&error));
                }
                Err(error) => {
                    found.closed.insert(path);
                    found.first_closed.get_or_insert(error);
                }
            }
            if found.repositories.len() > max {
                let cause = format!("more than {max} repositories");
                return Err(too_many(&cause, "Raise max, or search with less depth."));
            }
        }
        level = next;
    }
    memory.keep(&met);
    found.bare = met.into_iter().filter(|path| !with_some.contains(path)).collect();
    Ok(found)
}

/// A path and those of all folders above it, the start too.
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rsplit_once('/') {
        Some((above, _)) => Some(above),
        None => (!path.is_empty()).then_some(""),
    })
}

/// What a folder turns out to be.
enum Folder {
    /// A repository.
    Repository,
    /// Known to be none, and to be where the search ends.
    Dull,
    /// None, with these folders in it.
    Of(Vec<String>),
}

async fn look(store: &dyn ReadStore, path: &str, memory: &Memory) -> Result<Folder, StoreError> {
    match memory.recall(path) {
        Some(true) => return Ok(Folder::Repository),
        Some(false) => return Ok(Folder::Dull),
        None => {}
    }
    let folders = match store.folders(path).await {
        Ok(folders) => folders.ok_or_else(unsearchable)?,
        // Removed since its name was listed.
        Err(error) if error.kind == StoreErrorKind::NotFound && !path.is_empty() => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(if is_repository(&folders) { Folder::Repository } else { Folder::Of(folders) })
}

/// Folders that are to be looked into. Whoever may make folders chooses their names.
fn below(
    path: &str,
    folders: Vec<String>,
    search: &Repositories,
    odd: &mut Ignored,
) -> Vec<String> {
    let mut paths = Vec::new();
    for name in folders {
        let is_part = !matches!(name.as_str(), "" | "." | "..")
            // The last one stands for bytes that are no text.
            && !name.contains(['/', '\0', '\u{FFFD}']);
        if !is_part {
            odd.add(&name);
            continue;
        }
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        if !search.exclude.iter().any(|pattern| pattern.matches(path.as_bytes())) {
            paths.push(path);
        }
    }
    paths
}

fn is_meant(path: &str, search: &Repositories) -> bool {
    search.include.is_empty() || search.include.iter().any(|p| p.matches(path.as_bytes()))
}

/// Whether a failure says something of the backend, not of one folder.
fn ends_search(kind: StoreErrorKind) -> bool {
    match kind.class() {
        ErrorClass::Config
        | ErrorClass::Auth
        | ErrorClass::Unsupported
        | ErrorClass::Timeout
        | ErrorClass::Network
        | ErrorClass::Tls
        | ErrorClass::Throttled
        | ErrorClass::Protocol
        | ErrorClass::Internal => true,
        ErrorClass::Permission
        | ErrorClass::NotFound
        | ErrorClass::Damaged
        | ErrorClass::WrongPassword
        | ErrorClass::Incomplete
        | ErrorClass::Other => false,
    }
}

/// A failed verb as the failure of a search.
pub(super) fn failed(error: &StoreError) -> ScanError {
    ScanError::new(error.kind.class(), &error.doing, &error.cause, &error.advice)
        .asked_to_wait(error.wait)
}

fn too_many(cause: &str, advice: &str) -> ScanError {
    ScanError::new(ErrorClass::Incomplete, "search for repositories", cause, advice)
}

fn unsearchable() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Failed(ErrorClass::Unsupported),
        doing: "search for repositories".into(),
        cause: "this backend cannot tell which folders there are".into(),
        advice: "Name each repository, or search the folder or bucket behind the server.".into(),
        wait: None,
    }
}

/// Whether these are the folders of a repository, in either layout (restic
/// `internal/backend/layout`). In a bucket those that are empty are missing.
fn is_repository(folders: &[String]) -> bool {
    let has = |name: &str| folders.iter().any(|folder| folder == name);
    let with = |names: &[&str]| names.iter().any(|name| has(name));
    has("keys") && with(&["data", "index", "locks", "snapshots"])
        || has("key") && with(&["data", "index", "lock", "snapshot"])
}

#[cfg(test)]
mod tests;
