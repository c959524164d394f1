//! One look at one repository: the listing, what is known of each name, and reading the rest.
//!
//! What a failed look means for the next one is not decided here.
#![allow(clippy::disallowed_methods, reason = "names are followed by the time")]

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use super::connect::store_failed;
use super::listing::{self, Partition};
use super::read::{self, Outcome, Reader};
use super::repository::{self, Repository};
use super::state::Opened;
use super::{Inner, crypto};
use crate::lock::{LockEntry, LockId, SealedWhy, Stub, UnreadableWhy};
use crate::scan::{Facts, Look, ScanError};
use crate::secret::Opener;

/// Lock files of one repository that are read at the same time.
const READS_AT_ONCE: usize = 8;

/// Why a look has no result.
pub enum Trouble {
    /// Something failed now.
    Failed(ScanError),
    /// An older error stands; nothing new was learned about the backend.
    Standing(ScanError),
    /// Another repository has taken the place of the one that was opened, or the same one in
    /// another layout.
    MadeAnew,
}

impl From<ScanError> for Trouble {
    fn from(error: ScanError) -> Self {
        Trouble::Failed(error)
    }
}

impl Inner {
    /// One scan, without what its failure means for the next.
    pub(super) async fn look(self: &Arc<Self>) -> Result<Look, Trouble> {
        if let Some(error) = self.state().standing_error(Instant::now()) {
            return Err(Trouble::Standing(error));
        }
        let (repository, cold) = self.repository().await?;
        let sealed = match self.access(&repository) {
            Ok(Some(opened)) => {
                let found = self.list(&repository, cold).await?;
                return self.open_all(&opened, found).await;
            }
            Ok(None) if matches!(repository.session.opener, Opener::Sealed) => SealedWhy::NoKey,
            Ok(None) => SealedWhy::KeyPending,
            Err(last) => {
                let opened = self.retried(last).await.map_err(Trouble::Standing)?;
                let found = self.list(&repository, cold).await?;
                return self.open_all(&opened, found).await;
            }
        };
        let found = self.list(&repository, cold).await?;
        Ok(self.sealed(&repository, found, &sealed))
    }

    /// The listing, sorted. One without locks is believed only beside a `config`, which a cold
    /// scan has just seen.
    pub(super) async fn list(
        &self,
        repository: &Repository,
        cold: bool,
    ) -> Result<Partition, Trouble> {
        let folder = repository.layout.locks();
        let listing =
            repository.store().list(folder).await.map_err(|error| store_failed(&error))?;
        let found = listing::partition(listing).ok_or_else(|| repository::too_many(folder))?;
        if found.locks() == 0 && !cold && !repository.confirm().await? {
            return Err(Trouble::MadeAnew);
        }
        self.urgency.follow(found.files.iter().map(|stub| stub.stored_at));
        self.state().cache.follow(&found.files, Instant::now());
        Ok(found)
    }

    /// What the listing alone tells.
    fn sealed(&self, repository: &Repository, found: Partition, why: &SealedWhy) -> Look {
        let now = Instant::now();
        let state = self.state();
        let mut entries = found.decided;
        entries.extend(found.files.into_iter().map(|stub| {
            let young = || read::is_young(&stub, state.cache.known_for(&stub.id, now));
            // Nobody can open so few bytes, and nobody adds to them any more.
            if stub.size < crypto::OVERHEAD as u64 && !young() {
                LockEntry::Unreadable(stub, UnreadableWhy::Short)
            } else {
                LockEntry::Sealed(stub, why.clone())
            }
        }));
        sort(&mut entries);
        let key_pending = matches!(why, SealedWhy::KeyPending);
        let details = details(repository, None);
        let facts = Facts { sealed: true, key_pending, details, ..Facts::default() };
        Look { entries, ignored: found.ignored, facts, vanished: 0 }
    }

    /// Opens what is new. Files that were not found are looked for in a second listing, which also
    /// shows what has replaced them; that one is the truth then.
    async fn open_all(&self, opened: &Arc<Opened>, found: Partition) -> Result<Look, Trouble> {
        let repository = &*opened.repository;
        let reader = Reader::new(repository, &opened.unlocked, &self.machine);
        let mut found = found;
        let (mut entries, mut gone) = self.open_new(&reader, &found.files).await?;
        let mut vanished = 0;
        if !gone.is_empty() {
            found = self.list(repository, false).await?;
            let listed: HashSet<&LockId> = found.files.iter().map(|stub| &stub.id).collect();
            vanished = gone.iter().filter(|stub| !listed.contains(&stub.id)).count();
            (entries, gone) = self.open_new(&reader, &found.files).await?;
        }
        {
            let mut state = self.state();
            let now = Instant::now();
            entries.extend(gone.iter().map(|stub| state.cache.missed(stub, now)));
            if let Some(config) = reader.changed_config() {
                state.reconfigure(opened, config.clone());
            }
        }
        entries.append(&mut found.decided);
        vanished += self.ask_owners(repository, &mut entries).await?;
        sort(&mut entries);
        let details = details(repository, Some((opened, &reader)));
        let facts = Facts { details, ..Facts::default() };
        let vanished = u32::try_from(vanished).unwrap_or(u32::MAX);
        Ok(Look { entries, ignored: found.ignored, facts, vanished })
    }

    /// Entries of listed files, and those files that were not found. What is read is remembered
    /// at once: a scan that fails or is dropped later has not read it for nothing.
    async fn open_new(
        &self,
        reader: &Reader<'_>,
        files: &[Stub],
    ) -> Result<(Vec<LockEntry>, Vec<Stub>), Trouble> {
        let mut entries = Vec::with_capacity(files.len());
        let mut wanted = Vec::new();
        {
            let now = Instant::now();
            let mut state = self.state();
            for stub in files {
                let entry = state.cache.entry(stub, now);
                self.telemetry.cache_lookup(entry.is_some());
                match entry {
                    Some(entry) => entries.push(entry),
                    None => wanted.push((stub.clone(), state.cache.known_for(&stub.id, now))),
                }
            }
        }
        let mut gone = Vec::new();
        let mut reads = stream::iter(wanted)
            .map(|(stub, known_for)| async move {
                let outcome = reader.read(stub.clone(), known_for).await;
                (stub, outcome)
            })
            .buffer_unordered(READS_AT_ONCE);
        while let Some((stub, outcome)) = reads.next().await {
            match outcome? {
                Outcome::Entry(entry, known) => {
                    self.state().cache.learn(&stub.id, known);
                    entries.push(entry);
                }
                Outcome::Gone => gone.push(stub),
                Outcome::MadeAnew => return Err(Trouble::MadeAnew),
            }
        }
        Ok((entries, gone))
    }
}

/// In the order of the names, as the answers came in none.
fn sort(entries: &mut [LockEntry]) {
    entries.sort_unstable_by(|one, two| one.stub().id.cmp(&two.stub().id));
}

/// What is worth saying about a repository.
fn details(
    repository: &Repository,
    opened: Option<(&Arc<Opened>, &Reader<'_>)>,
) -> BTreeMap<&'static str, Arc<str>> {
    let mut details = BTreeMap::new();
    details.insert("layout", repository.layout.as_str().into());
    let Some((opened, reader)) = opened else { return details };
    let unlocked = &opened.unlocked;
    if let Some(config) = reader.changed_config().or(unlocked.config.as_ref()) {
        details.insert("repository_version", config.version.as_str().into());
        if !config.id.is_empty() {
            details.insert("repository_id", Arc::clone(&config.id));
        }
    }
    if let Some(id) = &unlocked.key_id {
        details.insert("key_id", id.chars().take(10).collect::<String>().into());
    }
    if unlocked.skipped > 0 {
        details.insert("skipped_keys", unlocked.skipped.to_string().into());
    }
    details
}
