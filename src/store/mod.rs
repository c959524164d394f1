//! Reading from backends: four verbs, none of which writes or deletes.
//!
//! A store knows folders and files of a repository, nothing of locks. Everything from a backend
//! is untrusted: names, sizes, times. A store that cannot tell the whole truth fails instead of
//! showing a part of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use crate::location::Location;
use crate::scan::ErrorClass;
use crate::secret::Environment;
use crate::target::ResticSpec;
use crate::telemetry::Telemetry;

mod advice;
mod azure;
mod client;
mod cloud;
pub mod credentials;
pub mod fault;
mod gs;
mod http;
pub mod list_page;
mod local;
mod object;
mod program;
mod rclone;
pub mod rest;
pub mod retry_after;
mod s3;
pub mod sftp;

/// One kind of backend: a row of [`BACKENDS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendKind {
    /// The scheme of a repository string, and the `backend` label.
    pub name: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
}

/// Every backend that can be read.
pub const BACKENDS: &[BackendKind] = &[
    BackendKind { name: "local", help: "a folder of this machine: /srv/restic/db01" },
    BackendKind { name: "sftp", help: "a folder reached by ssh: sftp:user@host:/path" },
    BackendKind { name: "rest", help: "a REST server: rest:https://host:8000/path/" },
    BackendKind { name: "s3", help: "S3 and its like: s3:https://host/bucket/prefix" },
    BackendKind { name: "azure", help: "Azure: azure:container:/prefix" },
    BackendKind { name: "gs", help: "Google Cloud Storage: gs:bucket:/prefix" },
    BackendKind { name: "b2", help: "Backblaze B2, through rclone: b2:bucket:prefix" },
    BackendKind { name: "swift", help: "OpenStack Swift, through rclone: swift:container:/prefix" },
    BackendKind { name: "rclone", help: "a remote of rclone: rclone:remote:path" },
];

/// Opens a repository's backend for reading. It does no I/O: what is wrong with the backend, or
/// with a file of certificates, shows in the first verb.
///
/// `timeout` is the time limit of a whole scan: single requests get less, so that a scan fails
/// with what the backend did rather than with its own limit.
///
/// # Errors
/// [`StoreError`] of class `config` when the location, a credential or an option cannot work.
pub fn open(
    spec: &ResticSpec,
    environment: &Environment,
    timeout: Duration,
    telemetry: &Arc<Telemetry>,
) -> Result<Arc<dyn ReadStore>, StoreError> {
    match &spec.repository {
        Location::Local(root) => {
            Ok(Arc::new(local::Local::new(root.clone(), timeout, telemetry.clone())))
        }
        Location::S3(at) => Ok(Arc::new(s3::S3::open(at, spec, environment, timeout, telemetry)?)),
        Location::Rest(at) => {
            Ok(Arc::new(rest::Rest::open(at, spec, environment, timeout, telemetry)?))
        }
        Location::Sftp(at) => Ok(Arc::new(sftp::open(at, spec, environment, timeout, telemetry)?)),
        Location::Cloud(at) if matches!(at.scheme, "azure" | "gs") => {
            Ok(Arc::new(cloud::Cloud::open(at, spec, environment, timeout, telemetry)?))
        }
        Location::Cloud(at) => {
            Ok(Arc::new(rclone::open_cloud(at, spec, environment, timeout, telemetry)?))
        }
        Location::Rclone(at) => {
            Ok(Arc::new(rclone::open(at, spec, environment, timeout, telemetry)?))
        }
    }
}

/// What one listed name is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// Something that can be read: a file, an object, a symbolic link to a file.
    File,
    /// A folder, or a prefix of deeper objects.
    Folder,
    /// A file somewhere below the folder, on a backend where restic finds such files by the last
    /// part of their names and cannot load them (restic `internal/backend/azure` List).
    Deeper,
    /// A symbolic link to something that is no regular file; never opened.
    BadLink,
    /// A device, pipe or socket; never opened.
    Special,
}

/// One name directly in a folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The last part of the path; where it was not UTF-8 the broken parts are U+FFFD.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes, as the backend lists them. Of a symbolic link its own, as restic judges it: a link
    /// to an empty file is no empty file.
    pub size: u64,
    /// When it was written, by the backend's clock; absent where there is none. Of a symbolic link
    /// the time of what it leads to.
    pub modified_at: Option<Timestamp>,
}

/// A complete listing of one folder.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// Every name in the folder, each once, in no order.
    pub entries: Vec<Entry>,
    /// Names that the store had to leave out because they cannot be represented (a key with `//`,
    /// `..` or control characters), or are no files where restic looks at files only; none of them
    /// can be a lock's.
    pub odd: Vec<String>,
}

/// The verbs. A path is relative to the repository (`locks`, `keys/ab…`); `""` is its root.
#[async_trait]
pub trait ReadStore: Send + Sync + fmt::Debug {
    /// Lists one folder, one level deep. A folder that is not there is an empty listing: only
    /// [`ReadStore::stat`] of a file tells whether a repository is.
    ///
    /// # Errors
    /// [`StoreError`]; never a partial listing.
    async fn list(&self, folder: &str) -> Result<Listing, StoreError>;

    /// Size and time of one file.
    ///
    /// # Errors
    /// [`StoreErrorKind::NotFound`] when it is not there, else as the backend says.
    async fn stat(&self, path: &str) -> Result<Entry, StoreError>;

    /// The whole content of one file of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`StoreErrorKind::TooLarge`] when it has more, whatever the listing said; nothing more than
    /// the limit is kept in memory then.
    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, StoreError>;

    /// The names of the folders directly in a folder, for finding repositories; `None` where the
    /// backend cannot tell (rest-server). One that cannot be part of a path is among them, made
    /// printable, with a slash at its end.
    ///
    /// # Errors
    /// [`StoreError`]; never a partial answer.
    async fn folders(&self, folder: &str) -> Result<Option<Vec<String>>, StoreError>;
}

/// What kind of failure a store met.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StoreErrorKind {
    /// The file, folder or bucket is not there.
    NotFound,
    /// Over the byte limit of a read.
    TooLarge,
    /// In an archive tier.
    Archived,
    /// Any other failure, by the class that a failed scan would show.
    Failed(ErrorClass),
}

impl StoreErrorKind {
    /// The class that a scan shows when it fails by this.
    pub fn class(self) -> ErrorClass {
        match self {
            StoreErrorKind::NotFound => ErrorClass::NotFound,
            StoreErrorKind::TooLarge => ErrorClass::Protocol,
            StoreErrorKind::Archived => ErrorClass::Permission,
            StoreErrorKind::Failed(class) => class,
        }
    }
}

/// A failed verb: what was tried, where, and the backend's own words, cleaned of secrets.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{doing}: {cause}")]
pub struct StoreError {
    /// The kind.
    pub kind: StoreErrorKind,
    /// Verb and path: `list locks/`, `read keys/3f0f6bfd`.
    pub doing: String,
    /// Why, in the words of the backend or the operating system.
    pub cause: String,
    /// What a person can do next; a full sentence or empty.
    pub advice: String,
    /// How long the backend asks to be left alone, where it says so.
    pub wait: Option<Duration>,
}

impl StoreError {
    fn new(
        kind: StoreErrorKind,
        doing: impl Into<String>,
        cause: impl Into<String>,
        advice: &str,
    ) -> Self {
        let (doing, cause) = (doing.into(), cause.into());
        Self { kind, doing, cause, advice: advice.into(), wait: None }
    }
}

/// Refuses options that restic does not have: a slip of the pen would silently change nothing.
fn check_options(spec: &ResticSpec, prefix: &str, known: &[&str]) -> Result<(), StoreError> {
    let mut ours = spec.options.keys().filter(|name| name.starts_with(prefix));
    match ours.find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(StoreError::new(
            StoreErrorKind::Failed(ErrorClass::Config),
            format!("read the option {unknown}"),
            "restic has no such option",
            "",
        )),
    }
}

/// A folder with more names is not listed.
const ENTRIES_MAX: usize = 200_000;

/// What is being done, for errors.
fn doing(verb: &str, path: &str) -> String {
    format!("{verb} {}", if path.is_empty() { "the repository" } else { path })
}

impl Listing {
    fn folders(self) -> Vec<String> {
        let folders = self.entries.into_iter().filter(|entry| entry.kind == EntryKind::Folder);
        folders.map(|folder| folder.name).collect()
    }
}

/// Whether a path stays inside the repository: what callers pass is made of listed names.
fn is_inside(path: &str) -> bool {
    path.is_empty()
        || path.split('/').all(|part| !matches!(part, "" | "." | "..") && !part.contains('\0'))
}
