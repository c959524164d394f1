//! The `restic` source: lists `locks/`, opens what is new, and says what each file is.
//!
//! A warm scan is one listing. The first look at a repository recognises it and starts to derive
//! its key; until that is done its locks are sealed. Nothing here judges a lock, and a scan that
//! could not see everything has no result.
#![allow(clippy::disallowed_methods, reason = "retries and first sights are timed here")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;

use self::connect::{Connect, Session, Specified};
use self::derivation::DerivationBudget;
use self::look::Trouble;
use self::repository::Repository;
use self::state::{Access, KeyState, Opened, State, Ticket};
use self::turns::Urgency;
use self::unlock::Search;
use super::{Context, LockSource, SourceKind};
use crate::lock::LeasePolicy;
use crate::proc::machine::Machine;
use crate::scan::{ErrorClass, Look, ScanError};
use crate::secret::Opener;
use crate::target::ResticSpec;
use crate::telemetry::Telemetry;

mod cache;
pub mod config_file;
mod connect;
pub mod crypto;
pub mod derivation;
mod go_json;
mod go_time;
pub mod key;
pub mod listing;
pub mod lock_file;
mod look;
mod owner;
mod read;
mod repository;
mod state;
mod turns;
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

/// The reader of one restic repository.
pub struct Restic {
    inner: Arc<Inner>,
}

struct Inner {
    connect: Box<dyn Connect>,
    timeout: Duration,
    telemetry: Arc<Telemetry>,
    budget: Arc<DerivationBudget>,
    urgency: Urgency,
    machine: Arc<Machine>,
    state: Mutex<State>,
}

impl Restic {
    /// Makes a reader; no I/O.
    pub fn new(spec: ResticSpec, timeout: Duration, context: &Context) -> Self {
        let telemetry = Arc::clone(&context.telemetry);
        Self::with(Box::new(Specified { spec, timeout, telemetry }), timeout, context)
    }

    fn with(connect: Box<dyn Connect>, timeout: Duration, context: &Context) -> Self {
        let inner = Inner {
            connect,
            timeout,
            telemetry: Arc::clone(&context.telemetry),
            budget: Arc::clone(&context.derivations),
            urgency: Urgency::default(),
            machine: Arc::clone(&context.machine),
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

    /// What a failure means for the next scan.
    fn learn_from(&self, error: &ScanError) {
        let mut state = self.state();
        match error.class {
            ErrorClass::Auth | ErrorClass::Config | ErrorClass::Permission => state.reopen(),
            ErrorClass::WrongPassword | ErrorClass::Unsupported => {
                state.lose_key(error, Instant::now());
                state.reopen();
            }
            ErrorClass::NotFound | ErrorClass::Damaged => state.begin_cold(),
            ErrorClass::Timeout
            | ErrorClass::Network
            | ErrorClass::Tls
            | ErrorClass::Throttled
            | ErrorClass::Protocol
            | ErrorClass::Incomplete
            | ErrorClass::Internal
            | ErrorClass::Other => {}
        }
    }

    /// The open backend, and the secret that was read when it was opened.
    async fn session(&self) -> Result<Arc<Session>, ScanError> {
        if let Some(session) = &self.state().session {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.connect.connect().await?);
        self.state().session = Some(Arc::clone(&session));
        Ok(session)
    }

    /// The recognised repository; true when it was recognised just now.
    async fn repository(&self) -> Result<(Arc<Repository>, bool), ScanError> {
        let cell = Arc::clone(&self.state().repository);
        if let Some(repository) = cell.get() {
            return Ok((Arc::clone(repository), false));
        }
        let recognise = async || Repository::recognise(self.session().await?).await.map(Arc::new);
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

    /// What came of the attempt to derive the key that runs while an older error stands, if it
    /// ends while there is time to list the locks. The attempt outlives the scan if not.
    ///
    /// # Errors
    /// Why there is no key: the older error, or that of the attempt.
    async fn retried(&self, last: ScanError) -> Result<Arc<Opened>, ScanError> {
        let finished = match &self.state().key {
            KeyState::Pending(pending) => Some(pending.finished.clone()),
            KeyState::Idle | KeyState::Open(_) | KeyState::Failed(_) => None,
        };
        if let Some(mut finished) = finished {
            // An error means that the sender is gone, and the derivation with it.
            let _ = tokio::time::timeout(self.timeout / 2, finished.changed()).await;
        }
        match &self.state().key {
            KeyState::Open(opened) => Ok(Arc::clone(opened)),
            KeyState::Failed(failed) => Err(failed.error.clone()),
            KeyState::Idle | KeyState::Pending(_) => Err(last),
        }
    }

    /// `done` is dropped at the end, whatever happens, and that is what waiters wait for.
    async fn derive(
        self: Arc<Self>,
        repository: Arc<Repository>,
        ticket: Ticket,
        done: watch::Sender<()>,
    ) {
        let wanted = self.telemetry.key_wanted();
        let Self { timeout, budget, urgency, .. } = &*self;
        let search = Search { timeout: *timeout, budget, urgency };
        let result = unlock::unlock(&repository, search).await;
        drop(wanted);
        self.state().end(&ticket, repository, result, Instant::now());
        drop(done);
    }

    /// What to wait for until the key is there; `None` when it is, or when there is none to wait
    /// for. What fails on the way fails in the next scan too, which will say so.
    async fn pending_key(self: &Arc<Self>) -> Option<watch::Receiver<()>> {
        {
            let mut state = self.state();
            match &state.key {
                KeyState::Pending(pending) => return Some(pending.finished.clone()),
                KeyState::Open(_) => return None,
                KeyState::Idle | KeyState::Failed(_) => {}
            }
            if state.standing_error(Instant::now()).is_some() {
                return None;
            }
        }
        let recognise = async {
            let session = self.session().await.ok()?;
            match session.opener {
                Opener::Sealed => None,
                Opener::Password(_) | Opener::MasterKey(_) => self.repository().await.ok(),
            }
        };
        let (repository, _) = tokio::time::timeout(self.timeout, recognise).await.ok()??;
        let _ = self.access(&repository);
        match &self.state().key {
            KeyState::Pending(pending) => Some(pending.finished.clone()),
            KeyState::Idle | KeyState::Open(_) | KeyState::Failed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
