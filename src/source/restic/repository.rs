//! Is there a repository, in which layout, and with which keys? The cold part of a scan.
//!
//! A place without a readable `config` is never taken for a repository without locks: it is an
//! error, and a different one when keys or snapshots are still there. Nothing here needs a key.

use std::sync::Arc;

use bytes::Bytes;

use super::config_file::{BadConfig, Config};
use super::connect::{Session, store_failed};
use super::crypto::{MasterKey, OVERHEAD};
use super::listing;
use crate::scan::{ErrorClass, ScanError};
use crate::secret::Opener;
use crate::store::{EntryKind, ReadStore, StoreError, StoreErrorKind};

/// Larger ones are no `config`; real ones have about 150 bytes.
const CONFIG_BYTES_MAX: u64 = 64 * 1024;
const CONFIG: &str = "config";

/// Names of the folders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// `keys/`, `locks/`, `snapshots/`.
    Default,
    /// `key/`, `lock/`, `snapshot/`: restic up to 0.7.0 on S3; restic 0.17 was the last to read
    /// it (restic `internal/backend/layout/layout_s3legacy.go`).
    S3Legacy,
}

impl Layout {
    /// The word on pages and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Layout::Default => "default",
            Layout::S3Legacy => "s3legacy",
        }
    }

    /// The folder of locks.
    pub fn locks(self) -> &'static str {
        match self {
            Layout::Default => "locks",
            Layout::S3Legacy => "lock",
        }
    }

    /// The folder of key files.
    pub fn keys(self) -> &'static str {
        match self {
            Layout::Default => "keys",
            Layout::S3Legacy => "key",
        }
    }

    fn snapshots(self) -> &'static str {
        match self {
            Layout::Default => "snapshots",
            Layout::S3Legacy => "snapshot",
        }
    }
}

/// What was seen of `config`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigSeen {
    /// Its bytes.
    Read(Bytes),
    /// It is there; nothing more was asked, since there is no key.
    Listed,
    /// It may not be read.
    Refused,
}

/// A repository that was recognised.
#[derive(Debug)]
pub struct Repository {
    /// Where it is and what opens it.
    pub session: Arc<Session>,
    /// Its layout.
    pub layout: Layout,
    /// The ids of its key files.
    pub keys: Vec<String>,
    /// Its `config`.
    pub config: ConfigSeen,
}

impl Repository {
    /// Looks at `keys/`, also at `key/` when that holds no key, and at `config`.
    ///
    /// # Errors
    /// `not_found` when there is no repository, `damaged` when a part of it is missing that
    /// nothing works without, else as the backend fails.
    pub async fn recognise(session: Arc<Session>) -> Result<Self, ScanError> {
        let store = &*session.store;
        let mut layout = Layout::Default;
        let mut keys = key_ids(store, layout).await?;
        if keys.is_empty() {
            let legacy = key_ids(store, Layout::S3Legacy).await?;
            if !legacy.is_empty() {
                (layout, keys) = (Layout::S3Legacy, legacy);
            }
        }
        let seen = match &session.opener {
            Opener::Sealed => {
                store.stat(CONFIG).await.map(|entry| (entry.size, ConfigSeen::Listed))
            }
            Opener::Password(_) | Opener::MasterKey(_) => store
                .read(CONFIG, CONFIG_BYTES_MAX)
                .await
                .map(|bytes| (bytes.len() as u64, ConfigSeen::Read(bytes))),
        };
        let config = match seen {
            Ok((size, config)) => {
                check_size(size)?;
                config
            }
            // The keys prove that there is a repository.
            Err(error) if is_refused(&error) && !keys.is_empty() => ConfigSeen::Refused,
            Err(error) => return Err(no_config(store, &error, !keys.is_empty()).await),
        };
        if keys.is_empty() && !matches!(session.opener, Opener::MasterKey(_)) {
            return Err(ScanError::new(
                ErrorClass::Damaged,
                "list keys/",
                "there is a config but no key file, so no password opens this repository",
                "Restore the files in keys/ from a copy.",
            ));
        }
        Ok(Self { session, layout, keys, config })
    }

    /// The backend.
    pub fn store(&self) -> &dyn ReadStore {
        &*self.session.store
    }

    /// Opens the `config` that was read; `None` where it could not be.
    ///
    /// # Errors
    /// [`BadConfig`].
    pub fn open_config(&self, key: &MasterKey) -> Result<Option<Config>, BadConfig> {
        match &self.config {
            ConfigSeen::Read(bytes) => Config::open(bytes, key).map(Some),
            ConfigSeen::Listed | ConfigSeen::Refused => Ok(None),
        }
    }

    /// Reads `config` again; `None` where it may not be read.
    ///
    /// # Errors
    /// As [`Repository::recognise`].
    pub async fn read_config(&self) -> Result<Option<Bytes>, ScanError> {
        match self.store().read(CONFIG, CONFIG_BYTES_MAX).await {
            Ok(bytes) => {
                check_size(bytes.len() as u64)?;
                Ok(Some(bytes))
            }
            Err(error) if is_refused(&error) => Ok(None),
            Err(error) => Err(no_config(self.store(), &error, !self.keys.is_empty()).await),
        }
    }

    /// Makes sure that a repository without locks is still a repository. False when it has left
    /// its old layout: `restic migrate s3_layout` empties the folder that we look at.
    ///
    /// # Errors
    /// As [`Repository::recognise`].
    pub async fn confirm(&self) -> Result<bool, ScanError> {
        match self.store().stat(CONFIG).await {
            Ok(entry) => {
                check_size(entry.size)?;
                Ok(self.layout == Layout::Default || !self.current_keys().await?.is_empty())
            }
            Err(error) => {
                let keys = self.current_keys().await?;
                if is_refused(&error) && !keys.is_empty() {
                    return Ok(true);
                }
                Err(no_config(self.store(), &error, !keys.is_empty()).await)
            }
        }
    }

    /// The ids of the key files that are there now.
    ///
    /// # Errors
    /// As the backend fails.
    pub async fn current_keys(&self) -> Result<Vec<String>, ScanError> {
        key_ids(self.store(), self.layout).await
    }
}

async fn key_ids(store: &dyn ReadStore, layout: Layout) -> Result<Vec<String>, ScanError> {
    let listing = store.list(layout.keys()).await.map_err(|error| match error.kind {
        StoreErrorKind::Failed(ErrorClass::Permission) => ScanError::new(
            ErrorClass::Permission,
            &error.doing,
            &format!("cannot read key files: {}", error.cause),
            &error.advice,
        ),
        _ => store_failed(&error),
    })?;
    if listing.entries.len() > listing::NAMES_MAX {
        return Err(too_many(layout.keys()));
    }
    let files = listing.entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
    Ok(files.map(|entry| entry.name).filter(|name| listing::is_id(name)).collect())
}

/// The folder has more names than are looked at.
pub fn too_many(folder: &str) -> ScanError {
    ScanError::new(
        ErrorClass::Incomplete,
        &format!("list {folder}/"),
        &format!("more than {} names", listing::NAMES_MAX),
        "Find out what writes them; restic keeps a few files there.",
    )
}

fn is_refused(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::Archived | StoreErrorKind::Failed(ErrorClass::Permission))
}

fn check_size(size: u64) -> Result<(), ScanError> {
    let cause = match size {
        0 => "it has 0 bytes",
        _ if size < OVERHEAD as u64 => "it is too short to be a config",
        _ if size > CONFIG_BYTES_MAX => "it is too large to be a config",
        _ => return Ok(()),
    };
    Err(damaged("read config", cause))
}

fn damaged(doing: &str, cause: &str) -> ScanError {
    ScanError::new(
        ErrorClass::Damaged,
        doing,
        cause,
        "Restore config from a copy of the repository; restic cannot open it either.",
    )
}

/// What it means that `config` could not be had.
async fn no_config(store: &dyn ReadStore, error: &StoreError, has_keys: bool) -> ScanError {
    match error.kind {
        StoreErrorKind::NotFound => {}
        StoreErrorKind::TooLarge => return damaged(&error.doing, "it is too large to be a config"),
        StoreErrorKind::Archived | StoreErrorKind::Failed(_) => return store_failed(error),
    }
    if has_keys {
        return damaged(&error.doing, "config is gone, but key files are there");
    }
    for layout in [Layout::Default, Layout::S3Legacy] {
        // A failure changes nothing: without config and keys nothing can be read here.
        let listing = store.list(layout.snapshots()).await.unwrap_or_default();
        if listing.entries.iter().any(|entry| listing::is_id(&entry.name)) {
            return damaged(&error.doing, "config and keys are gone, but snapshots are there");
        }
    }
    ScanError::new(
        ErrorClass::NotFound,
        &error.doing,
        "there is no repository at this place",
        "Check the location: `restic cat config` must work with it.",
    )
}
