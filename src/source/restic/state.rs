//! What one target's reader keeps between scans, and the life of its key.
//!
//! All of it changes in steps without an await, so a scan that is dropped half way leaves nothing
//! half done. Nothing here does I/O; starting a derivation is the caller's work.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;

use super::cache::Cache;
use super::config_file::{BadConfig, Config};
use super::connect::Session;
use super::repository::Repository;
use super::unlock::Unlocked;
use crate::lock::LockId;
use crate::scan::{ErrorClass, ScanError};

/// First and longest pause before a password that was wrong is tried again: each try derives a key
/// for every key file. What else fails is tried again by the next scan.
const RETRY_FIRST: Duration = Duration::from_secs(60);
const RETRY_LONGEST: Duration = Duration::from_secs(10 * 60);

/// A repository and what opens it.
#[derive(Debug)]
pub struct Opened {
    /// The repository as it was recognised.
    pub repository: Arc<Repository>,
    /// Master key and `config`.
    pub unlocked: Unlocked,
}

/// Where the key is.
#[derive(Debug, Default)]
pub enum KeyState {
    /// Not asked for yet.
    #[default]
    Idle,
    /// Being derived.
    Pending(Pending),
    /// There.
    Open(Arc<Opened>),
    /// Could not be had.
    Failed(Failed),
}

/// A derivation under way.
#[derive(Debug)]
pub struct Pending {
    /// Closes when the derivation ends, however it ends.
    pub finished: watch::Receiver<()>,
    ticket: Ticket,
    failures: u32,
    last: Option<ScanError>,
}

/// A derivation that failed.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: ScanError,
    failures: u32,
    retry_at: Instant,
}

/// Tells one derivation from the next.
#[derive(Clone, Debug)]
pub struct Ticket(Arc<()>);

/// What a scan may do.
#[derive(Debug)]
pub enum Access {
    /// Open lock files.
    Open(Arc<Opened>),
    /// Nothing but the listing; a derivation runs. Holds the error that stays until it ends.
    Pending(Option<ScanError>),
    /// Start a derivation: it is the first, the repository is another, or the last one failed.
    Start,
}

/// Everything kept between scans.
#[derive(Debug, Default)]
pub struct State {
    /// The open backend.
    pub session: Option<Arc<Session>>,
    /// The recognised repository; an empty cell means that the next scan is a cold one.
    pub repository: Arc<OnceCell<Arc<Repository>>>,
    /// The key.
    pub key: KeyState,
    /// What the names are.
    pub cache: Cache,
    /// Locks of this machine whose processes are gone and that were still there after that.
    pub orphans: HashSet<LockId>,
}

impl State {
    /// The error that stands without a look at the backend: the key could not be had and it is
    /// too early to try again, or it is being tried again. A retry that is due begins cold, with
    /// secrets read anew.
    pub fn standing_error(&mut self, now: Instant) -> Option<ScanError> {
        match &self.key {
            KeyState::Failed(failed) if now < failed.retry_at => Some(failed.error.clone()),
            KeyState::Failed(failed) => {
                if waits_for_a_person(failed.error.class) {
                    self.reopen();
                }
                None
            }
            KeyState::Pending(pending) if !pending.is_lost() => pending.last.clone(),
            KeyState::Idle | KeyState::Pending(_) | KeyState::Open(_) => None,
        }
    }

    /// What a scan of this repository may do.
    pub fn access(&mut self, repository: &Arc<Repository>) -> Access {
        match &self.key {
            KeyState::Open(opened) => match adopt(opened, repository) {
                Some(opened) => {
                    self.key = KeyState::Open(Arc::clone(&opened));
                    Access::Open(opened)
                }
                None => Access::Start,
            },
            KeyState::Pending(pending) if !pending.is_lost() => {
                Access::Pending(pending.last.clone())
            }
            KeyState::Idle | KeyState::Pending(_) | KeyState::Failed(_) => Access::Start,
        }
    }

    /// A derivation begins. Returns its ticket, and the error that stays until it ends.
    pub fn begin(&mut self, finished: watch::Receiver<()>) -> (Ticket, Option<ScanError>) {
        let ticket = Ticket(Arc::new(()));
        let (failures, last) = match std::mem::take(&mut self.key) {
            KeyState::Failed(failed) => (failed.failures, Some(failed.error)),
            KeyState::Pending(lost) => (lost.failures, Some(lost.last.unwrap_or_else(interrupted))),
            KeyState::Idle | KeyState::Open(_) => (0, None),
        };
        let pending = Pending { finished, ticket: ticket.clone(), failures, last: last.clone() };
        self.key = KeyState::Pending(pending);
        (ticket, last)
    }

    /// A derivation has ended. Without effect when another one has begun since.
    pub fn end(
        &mut self,
        ticket: &Ticket,
        repository: Arc<Repository>,
        result: Result<Unlocked, ScanError>,
        now: Instant,
    ) {
        let KeyState::Pending(pending) = &self.key else { return };
        if !Arc::ptr_eq(&pending.ticket.0, &ticket.0) {
            return;
        }
        let failures = pending.failures;
        self.key = match result {
            Ok(unlocked) => KeyState::Open(Arc::new(Opened { repository, unlocked })),
            Err(error) => {
                let pause = if error.class == ErrorClass::WrongPassword {
                    (RETRY_FIRST * 2_u32.saturating_pow(failures.min(8))).min(RETRY_LONGEST)
                } else {
                    Duration::ZERO
                };
                KeyState::Failed(Failed {
                    error,
                    failures: failures.saturating_add(1),
                    retry_at: now + pause,
                })
            }
        };
    }

    /// The `config` has changed: the repository was migrated.
    pub fn reconfigure(&mut self, opened: &Arc<Opened>, config: Config) {
        let KeyState::Open(current) = &self.key else { return };
        if Arc::ptr_eq(current, opened) {
            let unlocked = Unlocked { config: Some(config), ..opened.unlocked.clone() };
            let repository = Arc::clone(&opened.repository);
            self.key = KeyState::Open(Arc::new(Opened { repository, unlocked }));
            self.cache.doubt_unreadable();
        }
    }

    /// The next scan begins cold. The key is kept as long as it fits what is found then.
    pub fn begin_cold(&mut self) {
        self.repository = Arc::default();
    }

    /// The next scan begins cold with a new session: credentials may have been changed.
    pub fn reopen(&mut self) {
        self.session = None;
        self.begin_cold();
    }

    /// Another repository is at this place, or the same one in another layout. Whether the key
    /// still fits shows when it is recognised.
    pub fn start_over(&mut self) {
        self.reopen();
        self.cache.clear();
        self.orphans.clear();
    }

    /// The key that was there fits no more. The error stays until another attempt has ended.
    pub fn lose_key(&mut self, error: &ScanError, now: Instant) {
        if let KeyState::Open(_) = &self.key {
            let failed = Failed { error: error.clone(), failures: 0, retry_at: now };
            self.key = KeyState::Failed(failed);
        }
    }
}

impl Pending {
    /// The derivation ended without a result: it panicked, or the runtime is going down.
    fn is_lost(&self) -> bool {
        self.finished.has_changed().is_err()
    }
}

fn interrupted() -> ScanError {
    ScanError::new(
        ErrorClass::Internal,
        "open the repository",
        "the key derivation ended without a result",
        "It is tried again; report it if it stays.",
    )
}

/// Whether trying again soon is useless, as somebody has to change something first.
fn waits_for_a_person(class: ErrorClass) -> bool {
    match class {
        ErrorClass::Config
        | ErrorClass::Auth
        | ErrorClass::Permission
        | ErrorClass::NotFound
        | ErrorClass::Damaged
        | ErrorClass::WrongPassword
        | ErrorClass::Unsupported => true,
        ErrorClass::Timeout
        | ErrorClass::Network
        | ErrorClass::Tls
        | ErrorClass::Throttled
        | ErrorClass::Protocol
        | ErrorClass::Incomplete
        | ErrorClass::Internal
        | ErrorClass::Other => false,
    }
}

/// The opened repository as recognised anew, if it is still the same one: its key file is there
/// and its `config` opens.
fn adopt(opened: &Arc<Opened>, repository: &Arc<Repository>) -> Option<Arc<Opened>> {
    if Arc::ptr_eq(&opened.repository, repository) {
        return Some(Arc::clone(opened));
    }
    let Unlocked { key_id, master, .. } = &opened.unlocked;
    if key_id.as_deref().is_some_and(|id| !repository.keys.iter().any(|key| key == id)) {
        return None;
    }
    let config = match repository.open_config(master) {
        Ok(config) => config,
        Err(BadConfig::Sealed(_) | BadConfig::Json | BadConfig::Version(_)) => return None,
    };
    let unlocked = Unlocked { config, ..opened.unlocked.clone() };
    Some(Arc::new(Opened { repository: Arc::clone(repository), unlocked }))
}
