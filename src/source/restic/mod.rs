//! The `restic` source: lists `locks/`, opens what is new, and says what each file is.
//!
//! A warm scan is one listing. The first look at a repository recognises it and starts to derive
//! its key; until that is done its locks are sealed. Nothing here judges a lock, and a scan that
//! could not see everything has no result.
#![allow(clippy::disallowed_methods, reason = "retries and first sights are timed here")]

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use tokio::sync::watch;
use tokio::time::Instant;

use self::connect::{Connect, Specified, store_failed};
use self::derivation::DerivationBudget;
use self::listing::Partition;
use self::read::{Outcome, Reader};
use self::repository::Repository;
use self::state::{Access, Opened, State, Ticket};
use self::unlock::Search;
use super::{Context, LockSource, SourceKind};
use crate::lock::{LeasePolicy, LockEntry, LockId, SealedWhy, Stub, UnreadableWhy};
use crate::scan::{ErrorClass, Facts, Look, ScanError};
use crate::secret::Opener;
use crate::target::ResticSpec;
use crate::telemetry::Telemetry;

mod cache;
mod config_file;
mod connect;
pub mod crypto;
pub mod derivation;
mod go_json;
mod go_time;
pub mod key;
mod listing;
pub mod lock_file;
mod read;
mod repository;
mod state;
mod unlock;

/// The row of this source.
pub const KIND: SourceKind = SourceKind {
    name: "restic",
    help: "locks of restic repositories",
    policy: LeasePolicy {
        // restic internal/repository/lock.go: defaultRefreshInterval, refreshabilityTimeout;
        // lock_file.go: StaleLockTimeout.
        refresh_every: Duration::from_secs(5 * 60),
        refresh_deadline: Duration::from_secs(22 * 60 + 30),
        stale_limit: Duration::from_secs(30 * 60),
    },
};

/// Lock files of one repository that are read at the same time.
const READS_AT_ONCE: usize = 8;

/// The reader of one restic repository.
pub struct Restic {
    inner: Arc<Inner>,
}

struct Inner {
    connect: Box<dyn Connect>,
    hint: Option<String>,
    timeout: Duration,
    telemetry: Arc<Telemetry>,
    budget: Arc<DerivationBudget>,
    state: Mutex<State>,
}

/// Why a look has no result.
enum Trouble {
    /// Something failed now.
    Failed(ScanError),
    /// An older error stands; nothing new was learned about the backend.
    Standing(ScanError),
    /// Another repository has taken the place of the one that was opened.
    MadeAnew,
}

impl From<ScanError> for Trouble {
    fn from(error: ScanError) -> Self {
        Trouble::Failed(error)
    }
}

impl Restic {
    /// Makes a reader; no I/O.
    pub fn new(spec: ResticSpec, timeout: Duration, context: &Context) -> Self {
        let hint = spec.key_hint.clone();
        let telemetry = Arc::clone(&context.telemetry);
        Self::with(Box::new(Specified { spec, timeout, telemetry }), hint, timeout, context)
    }

    fn with(
        connect: Box<dyn Connect>,
        hint: Option<String>,
        timeout: Duration,
        context: &Context,
    ) -> Self {
        let inner = Inner {
            connect,
            hint,
            timeout,
            telemetry: Arc::clone(&context.telemetry),
            budget: Arc::clone(&context.derivations),
            state: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }
}

#[async_trait]
impl LockSource for Restic {
    async fn scan(&self) -> Result<Look, ScanError> {
        let mut look = self.inner.look().await;
        if let Err(Trouble::MadeAnew) = look {
            self.inner.state().start_over();
            look = self.inner.look().await;
        }
        match look {
            Ok(look) => Ok(look),
            Err(Trouble::Standing(error)) => Err(error),
            Err(Trouble::Failed(error)) => {
                self.inner.learn_from(&error);
                Err(error)
            }
            Err(Trouble::MadeAnew) => {
                self.inner.state().start_over();
                Err(ScanError::new(
                    ErrorClass::Other,
                    "read locks",
                    "the repository was replaced twice during one scan",
                    "",
                ))
            }
        }
    }

    async fn ready(&self) {
        if let Some(mut finished) = self.inner.pending_key().await {
            // An error means that the sender is gone, and the derivation with it.
            let _ = finished.changed().await;
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // No step that is taken under the lock leaves a half-changed state behind if it panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One scan, without what its failure means for the next.
    async fn look(self: &Arc<Self>) -> Result<Look, Trouble> {
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
            Err(error) => return Err(Trouble::Standing(error)),
        };
        let found = self.list(&repository, cold).await?;
        Ok(self.sealed(&repository, found, &sealed))
    }

    /// After some failures the next scan begins anew.
    fn learn_from(&self, error: &ScanError) {
        if matches!(
            error.class,
            ErrorClass::Auth
                | ErrorClass::Config
                | ErrorClass::Permission
                | ErrorClass::NotFound
                | ErrorClass::Damaged
                | ErrorClass::WrongPassword
                | ErrorClass::Unsupported
        ) {
            self.state().reopen();
        }
    }

    /// The recognised repository; true when it was recognised just now.
    async fn repository(&self) -> Result<(Arc<Repository>, bool), ScanError> {
        let cell = Arc::clone(&self.state().repository);
        if let Some(repository) = cell.get() {
            return Ok((Arc::clone(repository), false));
        }
        let recognise = async || {
            let kept = self.state().session.clone();
            let session = match kept {
                Some(session) => session,
                None => {
                    let session = Arc::new(self.connect.connect().await?);
                    self.state().session = Some(Arc::clone(&session));
                    session
                }
            };
            Repository::recognise(session).await.map(Arc::new)
        };
        let repository = cell.get_or_try_init(recognise).await?;
        Ok((Arc::clone(repository), true))
    }

    /// The opened repository, or none when its locks are sealed; starts a derivation if need be.
    ///
    /// # Errors
    /// The error that stays until a new attempt to derive the key has ended.
    fn access(
        self: &Arc<Self>,
        repository: &Arc<Repository>,
    ) -> Result<Option<Arc<Opened>>, ScanError> {
        if matches!(repository.session.opener, Opener::Sealed) {
            return Ok(None);
        }
        let mut state = self.state();
        let last = match state.access(repository) {
            Access::Open(opened) => return Ok(Some(opened)),
            Access::Pending(last) => last,
            Access::Start => {
                let (done, finished) = watch::channel(());
                let (ticket, last) = state.begin(finished);
                let work = Arc::clone(self).derive(Arc::clone(repository), ticket, done);
                // A task of its own: it must survive a scan that runs out of time.
                tokio::spawn(work);
                last
            }
        };
        last.map_or(Ok(None), Err)
    }

    /// `done` is dropped at the end, whatever happens, and that is what waiters wait for.
    async fn derive(
        self: Arc<Self>,
        repository: Arc<Repository>,
        ticket: Ticket,
        done: watch::Sender<()>,
    ) {
        let search =
            Search { hint: self.hint.as_deref(), timeout: self.timeout, budget: &self.budget };
        let result = unlock::unlock(&repository, search).await;
        self.state().end(&ticket, repository, result, Instant::now());
        drop(done);
    }

    /// What to wait for until the key is there; `None` when nothing is or can be pending.
    async fn pending_key(self: &Arc<Self>) -> Option<watch::Receiver<()>> {
        let pending = |state: &State| match &state.key {
            state::KeyState::Pending(pending) => Some(pending.finished.clone()),
            state::KeyState::Idle | state::KeyState::Open(_) | state::KeyState::Failed(_) => None,
        };
        {
            let mut state = self.state();
            if let Some(finished) = pending(&state) {
                return Some(finished);
            }
            if state.standing_error(Instant::now()).is_some() {
                return None;
            }
        }
        // What fails here fails in the next scan too, which will say so.
        let (repository, _) =
            tokio::time::timeout(self.timeout, self.repository()).await.ok()?.ok()?;
        let _ = self.access(&repository);
        pending(&self.state())
    }

    /// The listing, sorted. One without locks is believed only beside a `config`, which a cold
    /// scan has just seen.
    async fn list(&self, repository: &Repository, cold: bool) -> Result<Partition, ScanError> {
        let folder = repository.layout.locks();
        let listing =
            repository.store().list(folder).await.map_err(|error| store_failed(&error))?;
        let found = listing::partition(listing).ok_or_else(|| repository::too_many(folder))?;
        if found.locks() == 0 && !cold {
            repository.confirm().await?;
        }
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
        let key_pending = matches!(why, SealedWhy::KeyPending);
        let facts = Facts { sealed: true, key_pending, details: details(repository, None) };
        Look { entries, ignored: found.ignored, facts, vanished: 0 }
    }

    /// Opens what is new. Files that were not found are looked for in a second listing, which also
    /// shows what has replaced them; that one is the truth then.
    async fn open_all(&self, opened: &Arc<Opened>, found: Partition) -> Result<Look, Trouble> {
        let repository = &*opened.repository;
        let reader = Reader::new(repository, &opened.unlocked);
        let mut found = found;
        let (mut entries, mut gone) = self.open_new(&reader, &found.files).await?;
        let mut vanished = 0;
        if !gone.is_empty() {
            found = self.list(repository, false).await?;
            let again;
            let first = gone;
            (entries, again) = self.open_new(&reader, &found.files).await?;
            let listed: HashSet<&LockId> = found.files.iter().map(|stub| &stub.id).collect();
            vanished = first.iter().filter(|stub| !listed.contains(&stub.id)).count();
            gone = again;
        }
        let mut state = self.state();
        let now = Instant::now();
        entries.extend(gone.iter().map(|stub| state.cache.missed(stub, now)));
        if let Some(config) = reader.changed_config() {
            state.reconfigure(opened, config.clone());
        }
        drop(state);
        entries.append(&mut found.decided);
        let details = details(repository, Some((opened, &reader)));
        let facts = Facts { sealed: false, key_pending: false, details };
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

#[cfg(test)]
mod tests;
