//! Reads one lock file and says what it is.
//!
//! The order of the steps is restic's (`internal/repository/raw.go` LoadRaw, `repository.go`
//! LoadUnpacked). Before a file is called damaged for a reason that another explanation fits (an
//! upload under way, a repository made anew, or migrated to version 2), that explanation is
//! checked, once for all files of a scan.
#![allow(clippy::disallowed_methods, reason = "compares the backend's times with now")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::cache::{Known, RETRY_AFTER};
use super::config_file::{BadConfig, Config, Version};
use super::connect::store_failed;
use super::crypto::OpenError;
use super::listing::LOCK_BYTES_MAX;
use super::lock_file::{self, Content, Encoding};
use super::repository::Repository;
use super::unlock::{Unlocked, bad_config};
use crate::lock::{Liveness, Lock, LockEntry, SealedWhy, Stub, Tenure, UnreadableWhy};
use crate::proc::machine::Machine;
use crate::scan::{ErrorClass, ScanError};
use crate::store::StoreErrorKind;

/// A file younger than this may still be on its way: old restic and rest-server write under the
/// final name from the first byte on.
const YOUNG: Duration = Duration::from_secs(60);
/// How long to wait for the rest of such a file.
const PAUSE: Duration = Duration::from_secs(1);

/// What reading one file led to.
#[derive(Debug)]
pub enum Outcome {
    /// What it is now, and what may be remembered of it.
    Entry(LockEntry, Known),
    /// It was not found.
    Gone,
    /// Another repository is at this place now.
    MadeAnew,
}

/// Reads the files of one scan.
#[derive(Debug)]
pub struct Reader<'a> {
    repository: &'a Repository,
    unlocked: &'a Unlocked,
    machine: &'a Machine,
    key_is_there: OnceCell<bool>,
    config_now: OnceCell<ConfigNow>,
    paused: OnceCell<()>,
}

#[derive(Clone, Debug)]
enum ConfigNow {
    Read(Config),
    Refused,
    Unfit,
}

enum Fetched {
    Bytes(Bytes),
    Mismatch,
    Gone,
    Known(UnreadableWhy),
    Closed(SealedWhy),
}

impl<'a> Reader<'a> {
    /// A reader for one scan of an opened repository.
    pub fn new(repository: &'a Repository, unlocked: &'a Unlocked, machine: &'a Machine) -> Self {
        Self {
            repository,
            unlocked,
            machine,
            key_is_there: OnceCell::new(),
            config_now: OnceCell::new(),
            paused: OnceCell::new(),
        }
    }

    /// The `config` that was found to have changed during this scan.
    pub fn changed_config(&self) -> Option<&Config> {
        match self.config_now.get() {
            Some(ConfigNow::Read(config)) if self.unlocked.config.as_ref() != Some(config) => {
                Some(config)
            }
            _ => None,
        }
    }

    /// Reads one file; `known_for` is how long its name has been known.
    ///
    /// # Errors
    /// When the backend fails, as opposed to refusing this file.
    pub async fn read(&self, stub: Stub, known_for: Duration) -> Result<Outcome, ScanError> {
        let young = is_young(&stub, known_for);
        let bytes = match self.fetch(&stub, young).await? {
            Fetched::Bytes(bytes) => bytes,
            Fetched::Gone => return Ok(Outcome::Gone),
            Fetched::Known(why) => return Ok(unreadable(stub, why)),
            Fetched::Closed(why) => {
                let known = Known::Sealed(why.clone(), Instant::now() + RETRY_AFTER);
                return Ok(Outcome::Entry(LockEntry::Sealed(stub, why), known));
            }
            Fetched::Mismatch => {
                let why = UnreadableWhy::Hash;
                let known = if young {
                    Known::New
                } else {
                    // Perhaps it was the way here that damaged it.
                    Known::Unreadable(why, stub.clone(), Some(Instant::now() + RETRY_AFTER))
                };
                return Ok(Outcome::Entry(LockEntry::Unreadable(stub, why), known));
            }
        };
        let plain = match self.unlocked.master.open(&bytes) {
            Ok(plain) => plain,
            Err(OpenError::Short) => return Ok(unreadable(stub, UnreadableWhy::Short)),
            Err(OpenError::Nonce) => return Ok(unreadable(stub, UnreadableWhy::Mac)),
            Err(OpenError::Mac) if self.key_is_there().await? => {
                return Ok(unreadable(stub, UnreadableWhy::Mac));
            }
            Err(OpenError::Mac) => return Ok(Outcome::MadeAnew),
        };
        self.decode(stub, &plain).await
    }

    async fn decode(&self, stub: Stub, plain: &[u8]) -> Result<Outcome, ScanError> {
        let version = self.unlocked.config.as_ref().map(|config| config.version);
        let mut encoding = version.map_or(Encoding::Unknown, Version::encoding);
        if version == Some(Version::V1) && lock_file::is_compressed(plain) {
            encoding = match self.config_now().await? {
                ConfigNow::Read(config) => config.version.encoding(),
                ConfigNow::Refused => Encoding::Unknown,
                ConfigNow::Unfit if self.key_is_there().await? => {
                    let error = BadConfig::Sealed(OpenError::Mac);
                    return Err(bad_config(&error, ErrorClass::Damaged));
                }
                ConfigNow::Unfit => return Ok(Outcome::MadeAnew),
            };
        }
        Ok(match lock_file::decode(plain, encoding) {
            Ok(content) => {
                let lock = Arc::new(lock(stub, content, self.machine));
                Outcome::Entry(LockEntry::Readable(Arc::clone(&lock)), Known::Lock(lock))
            }
            Err(why) => unreadable(stub, why),
        })
    }

    /// The bytes, if they are what the name says. Asks once more at once, as restic does, and for
    /// a young file once more after a pause.
    async fn fetch(&self, stub: &Stub, young: bool) -> Result<Fetched, ScanError> {
        let mut fetched = self.fetch_once(stub).await?;
        if matches!(fetched, Fetched::Mismatch) {
            fetched = self.fetch_once(stub).await?;
        }
        if young && matches!(fetched, Fetched::Mismatch) {
            // One pause for all files of a scan, however many there are.
            self.paused.get_or_init(|| tokio::time::sleep(PAUSE)).await;
            fetched = self.fetch_once(stub).await?;
        }
        Ok(fetched)
    }

    async fn fetch_once(&self, stub: &Stub) -> Result<Fetched, ScanError> {
        let id = stub.id.as_str();
        let place = format!("{}/{id}", self.repository.layout.locks());
        match self.repository.store().read(&place, LOCK_BYTES_MAX).await {
            Ok(bytes) if hex::encode(Sha256::digest(&bytes)) == id => Ok(Fetched::Bytes(bytes)),
            Ok(_) => Ok(Fetched::Mismatch),
            Err(error) => match error.kind {
                StoreErrorKind::NotFound => Ok(Fetched::Gone),
                StoreErrorKind::TooLarge => Ok(Fetched::Known(UnreadableWhy::TooLarge)),
                StoreErrorKind::Archived => Ok(Fetched::Closed(SealedWhy::Archived)),
                StoreErrorKind::Failed(ErrorClass::Permission) => {
                    let text = store_failed(&error).to_string();
                    Ok(Fetched::Closed(SealedWhy::Permission(text.into())))
                }
                StoreErrorKind::Failed(_) => Err(store_failed(&error)),
            },
        }
    }

    /// Whether the repository is still the one that the master key belongs to.
    async fn key_is_there(&self) -> Result<bool, ScanError> {
        let check = async || match &self.unlocked.key_id {
            Some(id) => {
                let keys = self.repository.current_keys().await?;
                Ok::<bool, ScanError>(keys.iter().any(|key| **key == **id))
            }
            // A master key has no file; `config` must open with it.
            None => match self.config_now().await? {
                ConfigNow::Read(_) | ConfigNow::Refused => Ok(true),
                ConfigNow::Unfit => {
                    let error = BadConfig::Sealed(OpenError::Mac);
                    Err(bad_config(&error, ErrorClass::WrongPassword))
                }
            },
        };
        self.key_is_there.get_or_try_init(check).await.copied()
    }

    async fn config_now(&self) -> Result<&ConfigNow, ScanError> {
        let read = async || {
            let Some(bytes) = self.repository.read_config().await? else {
                return Ok(ConfigNow::Refused);
            };
            match Config::open(&bytes, &self.unlocked.master) {
                Ok(config) => Ok(ConfigNow::Read(config)),
                Err(BadConfig::Sealed(_)) => Ok(ConfigNow::Unfit),
                Err(error) => Err(bad_config(&error, ErrorClass::Damaged)),
            }
        };
        self.config_now.get_or_try_init(read).await
    }
}

/// Whether a file may still be on its way: written less than a minute ago by the backend's clock,
/// or, where that has none, seen first less than a minute ago.
pub fn is_young(stub: &Stub, known_for: Duration) -> bool {
    match stub.stored_at {
        Some(at) => {
            let age = Timestamp::now().duration_since(at);
            age < SignedDuration::try_from(YOUNG).unwrap_or(SignedDuration::ZERO)
        }
        None => known_for < YOUNG,
    }
}

fn unreadable(stub: Stub, why: UnreadableWhy) -> Outcome {
    let known = Known::Unreadable(why, stub.clone(), None);
    Outcome::Entry(LockEntry::Unreadable(stub, why), known)
}

fn lock(stub: Stub, content: Content, machine: &Machine) -> Lock {
    let Content { key, mode, holder, refreshed_at, doubt } = content;
    let tenure = Tenure::Leased { refreshed_at };
    let liveness = match machine.is_named(&holder.hostname) {
        true => Liveness::Unknown,
        false => Liveness::Foreign,
    };
    Lock { stub, key, mode, holder, tenure, liveness, doubt }
}
