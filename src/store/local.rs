//! A folder of this machine, listed and read without trusting what lies in it.
//!
//! It reads by itself instead of through `object_store`, whose `LocalFileSystem` opens whatever
//! has the name: a lock file replaced by a pipe would hold a thread for ever, a device might act
//! on being opened, and one odd name ends its whole listing. What the files mean is not known
//! here.

#![allow(clippy::disallowed_methods, reason = "this module reads folders and files")]

use std::fs::{File, FileType, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use rustix::fs::OFlags;
use tokio::sync::Semaphore;

use super::{
    ENTRIES_MAX, Entry, EntryKind, Listing, ReadStore, StoreError, StoreErrorKind, doing, is_inside,
};
use crate::scan::ErrorClass;
use crate::telemetry::{Operation, Telemetry};

/// Blocking calls of all local stores together. A file system that hangs keeps the thread of a
/// call; tokio has 512 of them, and the rest must stay free for key derivations and others.
static CALLS: Semaphore = Semaphore::const_new(384);

/// The store.
#[derive(Debug)]
pub(super) struct Local {
    root: PathBuf,
    timeout: Duration,
    telemetry: Arc<Telemetry>,
    /// One call at a time: a hung mount keeps one thread for each store, not one for each scan.
    turn: Arc<Semaphore>,
}

impl Local {
    pub(super) fn new(root: PathBuf, timeout: Duration, telemetry: Arc<Telemetry>) -> Self {
        // Less than the scan's own limit, so that the file system gets the blame.
        let timeout = timeout - timeout / 8;
        Self { root, timeout, telemetry, turn: Arc::new(Semaphore::new(1)) }
    }

    /// Runs one verb on a thread for blocking work, counted, with a time limit.
    async fn call<T: Send + 'static>(
        &self,
        operation: Operation,
        verb: &str,
        path: &str,
        work: impl FnOnce(&Path, &Path) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        let doing = doing(verb, path);
        if !is_inside(path) {
            let kind = StoreErrorKind::Failed(ErrorClass::Internal);
            return Err(StoreError::new(kind, doing, "the path leads out of the repository", ""));
        }
        let begun = Instant::now();
        let (root, full) = (self.root.clone(), self.root.join(path));
        let turn = self.turn.clone();
        let answer = tokio::time::timeout(self.timeout, async move {
            // Neither semaphore is ever closed; without a permit the call just goes unguarded.
            let turn = turn.acquire_owned().await.ok();
            let call = CALLS.acquire().await.ok();
            tokio::task::spawn_blocking(move || {
                let _held_until_it_returns = (turn, call);
                work(&root, &full)
            })
            .await
        })
        .await;
        let result = match answer {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(failure))) => Err(failure),
            Ok(Err(_)) => Err(Failure::new(ErrorClass::Internal, "the call was given up")),
            Err(_) => Err(Failure {
                kind: StoreErrorKind::Failed(ErrorClass::Timeout),
                cause: format!("no answer from the file system in {:?}", self.timeout),
                advice: "Check whether the file system hangs (a network mount?).",
            }),
        };
        self.telemetry.store_request("local", operation, begun.elapsed(), result.is_err());
        result.map_err(|failure| {
            let cause = format!("{} ({})", failure.cause, self.root.display());
            StoreError::new(failure.kind, doing, cause, failure.advice)
        })
    }
}

#[async_trait]
impl ReadStore for Local {
    async fn list(&self, folder: &str) -> Result<Listing, StoreError> {
        self.call(Operation::List, "list", folder, list).await
    }

    async fn stat(&self, path: &str) -> Result<Entry, StoreError> {
        self.call(Operation::Stat, "stat", path, |_, path| {
            let own = path.symlink_metadata()?;
            let mut entry = entry(path, &own);
            if own.is_symlink() && entry.kind == EntryKind::File {
                entry.size = path.metadata()?.len();
            }
            Ok(entry)
        })
        .await
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, StoreError> {
        self.call(Operation::Get, "read", path, move |_, path| read(path, bytes_max)).await
    }

    async fn folders(&self, folder: &str) -> Result<Option<Vec<String>>, StoreError> {
        let listing = self.call(Operation::List, "list folders of", folder, list).await?;
        Ok(Some(listing.folders()))
    }
}

struct Failure {
    kind: StoreErrorKind,
    cause: String,
    advice: &'static str,
}

impl Failure {
    fn new(class: ErrorClass, cause: impl Into<String>) -> Self {
        Self { kind: StoreErrorKind::Failed(class), cause: cause.into(), advice: "" }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let (kind, advice) = match error.kind() {
            ErrorKind::NotFound => (StoreErrorKind::NotFound, ""),
            ErrorKind::PermissionDenied => (
                StoreErrorKind::Failed(ErrorClass::Permission),
                "Run the exporter as the user that owns the repository, or give it \
                 CAP_DAC_READ_SEARCH; restic makes files that only their owner may read.",
            ),
            ErrorKind::NotADirectory => (
                StoreErrorKind::Failed(ErrorClass::Damaged),
                "A part of the path is a file where a folder should be.",
            ),
            ErrorKind::TimedOut | ErrorKind::StaleNetworkFileHandle => {
                (StoreErrorKind::Failed(ErrorClass::Network), "Check the network mount.")
            }
            _ => (StoreErrorKind::Failed(ErrorClass::Other), ""),
        };
        Self { kind, cause: error.to_string(), advice }
    }
}

fn list(root: &Path, folder: &Path) -> Result<Listing, Failure> {
    let names = match std::fs::read_dir(folder) {
        Ok(names) => names,
        // restic makes folders when it needs them, so one may be missing; the repository may not.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return missing_folder(root, folder);
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory && !root.is_dir() => {
            return Err(no_repository("the path of the repository leads to a file"));
        }
        Err(error) => return Err(error.into()),
    };
    let mut listing = Listing::default();
    for found in names {
        let found = found?;
        if listing.entries.len() >= ENTRIES_MAX {
            let cause = format!("more than {ENTRIES_MAX} names in the folder");
            return Err(Failure::new(ErrorClass::Incomplete, cause));
        }
        match found.metadata() {
            Ok(own) => listing.entries.push(entry(&found.path(), &own)),
            // Removed since the folder was read.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(listing)
}

fn missing_folder(root: &Path, folder: &Path) -> Result<Listing, Failure> {
    if folder != root && folder.symlink_metadata().is_ok() {
        // The locks may well be there, behind a file system that is not mounted.
        return Err(Failure::new(ErrorClass::Damaged, "it is a link that leads nowhere"));
    }
    match root.metadata() {
        Ok(_) => Ok(Listing::default()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(no_repository("the folder of the repository does not exist"))
        }
        Err(error) => Err(error.into()),
    }
}

fn no_repository(cause: &str) -> Failure {
    Failure {
        kind: StoreErrorKind::NotFound,
        cause: cause.into(),
        advice: "Check the path, and that its file system is mounted.",
    }
}

fn entry(path: &Path, own: &Metadata) -> Entry {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (kind, modified) = if own.is_symlink() {
        match path.metadata() {
            Ok(target) if target.is_file() => (EntryKind::File, target.modified()),
            // Whether it is readable shows when it is read.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                (EntryKind::File, own.modified())
            }
            Ok(_) | Err(_) => (EntryKind::BadLink, own.modified()),
        }
    } else {
        (kind(own.file_type()), own.modified())
    };
    let modified_at = modified.ok().and_then(|time| Timestamp::try_from(time).ok());
    Entry { name, kind, size: own.len(), modified_at }
}

fn kind(file_type: FileType) -> EntryKind {
    if file_type.is_file() {
        EntryKind::File
    } else if file_type.is_dir() {
        EntryKind::Folder
    } else {
        EntryKind::Special
    }
}

/// Reads a regular file, or what a link to one leads to. The name may mean something else at
/// every step, so the file that was opened must be the one that was looked at.
fn read(path: &Path, bytes_max: u64) -> Result<Bytes, Failure> {
    let own = path.symlink_metadata()?;
    let mut flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    if !own.is_symlink() {
        flags |= OFlags::NOFOLLOW;
    }
    let seen = if own.is_symlink() { path.metadata()? } else { own };
    regular(&seen)?;
    let file = File::options().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let opened = file.metadata()?;
    regular(&opened)?;
    if (opened.dev(), opened.ino()) != (seen.dev(), seen.ino()) {
        // Replaced in between: gone, as far as the listing is concerned.
        return Err(io::Error::from(ErrorKind::NotFound).into());
    }
    let mut bytes = Vec::with_capacity(opened.len().min(bytes_max) as usize + 1);
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Failure {
            kind: StoreErrorKind::TooLarge,
            cause: format!("more than {bytes_max} bytes"),
            advice: "",
        });
    }
    Ok(bytes.into())
}

fn regular(metadata: &Metadata) -> Result<(), Failure> {
    let kind = metadata.file_type();
    let what = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(Failure::new(ErrorClass::Damaged, format!("it is {what}, not a file")))
}

#[cfg(test)]
mod tests;
