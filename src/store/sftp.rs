//! A folder on an ssh server, as an `ObjectStore` that only reads: `ssh … -s sftp` as restic
//! calls it, with the protocol on its pipes.
//!
//! Whatever makes `ssh` reach the host makes this reach it. Nothing is ever made on the server,
//! neither folder nor file; the writing verbs refuse.

#![allow(clippy::disallowed_methods, reason = "this module looks for ssh's files")]

use std::fmt;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use russh_sftp::client::error::Error as SftpError;
use russh_sftp::protocol::{FileAttributes, OpenFlags, Status, StatusCode};

use super::advice;
use super::fault::{Fault, clean};
use super::http::{Count, Limits};
use super::list_page::Page;
use super::object::{Objects, Pages, Reach};
use super::program::ProgramSpec;
use super::{ENTRIES_MAX, StoreError, StoreErrorKind};
use crate::location::{Location, SftpLocation};
use crate::scan::ErrorClass;
use crate::secret::Environment;
use crate::target::ResticSpec;
use crate::telemetry::{Operation, Telemetry};

mod link;
pub mod words;

use link::{Failure, Link, Live, Open};
use words::SystemFiles;

/// Files of ssh for a service that has no home folder of its own.
const SYSTEM_FOLDER: &str = "/etc/lock-exporter/ssh";
/// Every server answers reads of this size whole.
const READ_BYTES: u32 = 32 * 1024;

/// Opens the store; nothing is started yet.
pub(super) fn open(
    at: &SftpLocation,
    spec: &ResticSpec,
    environment: &Environment,
    timeout: Duration,
    telemetry: &Arc<Telemetry>,
) -> std::result::Result<Objects, StoreError> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let files = system_files(home.as_deref(), FilePath::new(SYSTEM_FOLDER));
    let mut command = words::command_line(at, spec, &files)?;
    // Of the target's own variables those that concern ssh; with all of them no two targets
    // could share a connection.
    command.variables = environment.for_program(|name| name.starts_with("SSH"));
    let pages = Arc::<Pages>::default();
    let shown = Location::Sftp(at.clone()).to_string();
    let (at, telemetry) = (at.clone(), telemetry.clone());
    let store = Sftp { at, command, link: OnceLock::new(), pages: pages.clone(), telemetry };
    let limits = Limits::within(timeout);
    let reach = Reach::Files;
    Ok(Objects::new(Arc::new(store), "", shown, limits.verb, pages, &advice::NONE).reaching(reach))
}

fn system_files(home: Option<&FilePath>, folder: &FilePath) -> SystemFiles {
    if home.is_some_and(|home| home.join(".ssh").is_dir()) {
        return SystemFiles::default();
    }
    let found = |name: &str| Some(folder.join(name)).filter(|path| path.is_file());
    SystemFiles { config: found("config"), known_hosts: found("known_hosts") }
}

/// The store.
struct Sftp {
    at: SftpLocation,
    command: ProgramSpec,
    /// Found by the first verb, since it belongs to the runtime; kept, or it would be closed.
    link: OnceLock<Arc<Link>>,
    pages: Arc<Pages>,
    telemetry: Arc<Telemetry>,
}

impl fmt::Debug for Sftp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sftp({:?})", self.at)
    }
}

impl fmt::Display for Sftp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Sftp {
    fn link(&self) -> &Arc<Link> {
        self.link.get_or_init(|| link::link(&self.command))
    }

    fn full(&self, key: &str) -> String {
        match key {
            "" => self.at.path.clone(),
            key if self.at.path.ends_with('/') => format!("{}{key}", self.at.path),
            key => format!("{}/{key}", self.at.path),
        }
    }

    async fn entries(&self, live: &Arc<Live>, key: &str) -> std::result::Result<Found, Failure> {
        let path = self.full(key);
        let folder = path.as_str();
        let opening = |live: Arc<Live>| async move { live.session.opendir(folder).await };
        let opened = match Open::with(live, opening).await {
            Ok(opened) => opened,
            // restic makes folders when it needs them; the repository's own must be there.
            Err(error) if is_missing(&error) => {
                return self.missing_folder(live, &path).await.map(|()| Found::default());
            }
            Err(error) => return Err(refused(&path, error)),
        };
        let mut found = Found::default();
        loop {
            let names = match opened.session().readdir(opened.handle.as_str()).await {
                Ok(names) => names.files,
                Err(SftpError::Status(Status { status_code: StatusCode::Eof, .. })) => break,
                Err(error) => return Err(refused(&path, error)),
            };
            for file in names {
                found.add(key, file.filename, &file.attrs);
            }
            if found.names > ENTRIES_MAX {
                let cause = format!("more than {ENTRIES_MAX} names in the folder");
                return Err(Fault::new(ErrorClass::Incomplete, cause, "").into());
            }
        }
        Ok(found)
    }

    /// Fails when it is the repository that is missing, and not only one of its folders.
    async fn missing_folder(
        &self,
        live: &Arc<Live>,
        path: &str,
    ) -> std::result::Result<(), Failure> {
        match live.session.stat(self.at.path.as_str()).await {
            Ok(_) if path != self.at.path => return nothing_there(live, path).await,
            Ok(_) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(refused(&self.at.path, error)),
        }
        // Where a relative path leads is the thing one cannot see.
        let resolved = match live.session.realpath(".").await {
            Ok(names) if !self.at.path.starts_with('/') => {
                names.files.first().map(|home| format!("{}/{}", home.filename, self.at.path))
            }
            _ => None,
        };
        let shown = clean(resolved.as_deref().unwrap_or(&self.at.path));
        let advice = if self.at.looks_like_a_port() {
            "The number was taken for a part of the path; a port is written \
             sftp://USER@HOST:PORT//PATH."
        } else if resolved.is_some() {
            "The path begins in the login's home folder; an absolute one is written \
             sftp:HOST:/PATH or sftp://HOST//PATH."
        } else {
            "Check the path; for an account with a root folder of its own it begins there."
        };
        let cause = format!("the folder of the repository does not exist: {shown}");
        Err(Fault::of(StoreErrorKind::NotFound, cause, advice).into())
    }
}

/// Fails when there is something that is no folder. To OpenSSH that, and a link that leads nowhere,
/// are no such file; the locks may well be there, behind a file system that is not mounted.
async fn nothing_there(live: &Arc<Live>, path: &str) -> std::result::Result<(), Failure> {
    match live.session.lstat(path).await {
        Err(error) if is_missing(&error) => Ok(()),
        Err(error) => Err(refused(path, error)),
        // Made meanwhile: the next look will see it.
        Ok(found) if found.attrs.is_dir() => Ok(()),
        Ok(found) => {
            let what =
                if found.attrs.is_symlink() { "a link that leads nowhere" } else { "no folder" };
            let cause = format!("{}: it is {what}", clean(path));
            let advice = "Look at the repository with `restic check`.";
            Err(Fault::new(ErrorClass::Damaged, cause, advice).into())
        }
    }
}

/// What a folder holds.
#[derive(Default)]
struct Found {
    objects: Vec<ObjectMeta>,
    folders: Vec<Path>,
    odd: Vec<String>,
    names: usize,
}

impl Found {
    fn add(&mut self, key: &str, name: String, attributes: &FileAttributes) {
        if matches!(name.as_str(), "." | "..") {
            return;
        }
        self.names += 1;
        let full = if key.is_empty() { name.clone() } else { format!("{key}/{name}") };
        match Path::parse(&full) {
            Ok(path) if !name.contains('/') && path.as_ref() == full => {
                if attributes.is_dir() {
                    self.folders.push(path);
                } else if is_regular(attributes) {
                    self.objects.push(meta(path, attributes));
                } else {
                    // As restic, which takes regular files only (`backend/sftp/sftp.go`, List).
                    self.odd.push(full);
                }
            }
            _ => self.odd.push(full),
        }
    }
}

/// A server need not say what a thing is.
fn is_regular(attributes: &FileAttributes) -> bool {
    const TYPE: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    attributes.permissions.is_none_or(|mode| matches!(mode & TYPE, 0 | REGULAR))
}

fn meta(location: Path, attributes: &FileAttributes) -> ObjectMeta {
    // What has no time says 1970.
    let seconds = Duration::from_secs(attributes.mtime.unwrap_or(0).into());
    let last_modified = (SystemTime::UNIX_EPOCH + seconds).into();
    let size = attributes.size.unwrap_or(0);
    ObjectMeta { location, last_modified, size, e_tag: None, version: None }
}

fn is_missing(error: &SftpError) -> bool {
    matches!(error, SftpError::Status(Status { status_code: StatusCode::NoSuchFile, .. }))
}

/// A server's refusal; the end of the session is none.
fn refused(path: &str, error: SftpError) -> Failure {
    let SftpError::Status(status) = error else { return Failure::Session(error) };
    let cause = format!("{}: {}", clean(path), status.status_code);
    let fault = match status.status_code {
        StatusCode::NoSuchFile => Fault::of(StoreErrorKind::NotFound, cause, ""),
        StatusCode::PermissionDenied => Fault::new(
            ErrorClass::Permission,
            cause,
            "Log in as the user that owns the repository; restic makes files that only their \
             owner may read, unless config is readable for the group.",
        ),
        StatusCode::OpUnsupported | StatusCode::BadMessage => {
            Fault::new(ErrorClass::Protocol, cause, "")
        }
        _ => {
            Fault::new(ErrorClass::Other, format!("{cause}: {}", clean(&status.error_message)), "")
        }
    };
    fault.into()
}

fn wrap(failure: Failure) -> Error {
    let fault = match failure {
        Failure::Fault(fault) => fault,
        Failure::Session(error) => Fault::new(ErrorClass::Network, clean(&error.to_string()), ""),
    };
    Error::Generic { store: "sftp", source: Box::new(fault) }
}

fn never<T>() -> Result<T> {
    let source = "this store only reads".into();
    Err(Error::NotSupported { source })
}

#[async_trait]
impl ObjectStore for Sftp {
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut count = Count::begin(&self.telemetry, "sftp", Operation::List);
        let key = prefix.map_or("", |prefix| prefix.as_ref());
        let found = self.link().run(|live| async move { self.entries(&live, key).await }).await;
        let Found { objects, folders, odd, names } = found.map_err(wrap)?;
        let mut page = Page { body: Bytes::new(), odd, names, token: None };
        self.pages.add(&mut page).map_err(|fault| wrap(fault.into()))?;
        count.failed = false;
        Ok(ListResult { common_prefixes: folders, objects, extensions: Default::default() })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let operation = if options.head { Operation::Stat } else { Operation::Get };
        let mut count = Count::begin(&self.telemetry, "sftp", operation);
        let (link, path) = (self.link(), self.full(location.as_ref()));
        let path = path.as_str();
        let head = options.head;
        let found = link.run(|live| async move {
            if head {
                let found = live.session.stat(path).await.map_err(|error| refused(path, error))?;
                return Ok((found.attrs, None));
            }
            let opening = |live: Arc<Live>| async move {
                live.session.open(path, OpenFlags::READ, FileAttributes::empty()).await
            };
            let opened = Open::with(&live, opening).await.map_err(|error| refused(path, error))?;
            let found = opened.session().fstat(opened.handle.as_str()).await;
            Ok((found.map_err(|error| refused(path, error))?.attrs, Some(opened)))
        });
        let (attributes, opened) = found.await.map_err(wrap)?;
        if !is_regular(&attributes) {
            let cause = format!("{}: it is no file", clean(path));
            return Err(wrap(Fault::new(ErrorClass::Damaged, cause, "").into()));
        }
        let meta = meta(location.clone(), &attributes);
        let range: Range<u64> = 0..meta.size;
        let content = match opened {
            None => stream::empty().boxed(),
            Some(opened) => parts(opened, path.to_owned(), meta.size),
        };
        count.failed = false;
        let payload = GetResultPayload::Stream(content);
        let (attributes, extensions) = Default::default();
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn list(&self, _prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        // It would walk `data/`.
        stream::once(async { never() }).boxed()
    }

    async fn put_opts(
        &self,
        _location: &Path,
        _payload: PutPayload,
        _options: PutOptions,
    ) -> Result<PutResult> {
        never()
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        never()
    }

    fn delete_stream(
        &self,
        _locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        stream::once(async { never() }).boxed()
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        never()
    }
}

/// The content of an open file, which is as long as it said.
fn parts(opened: Open, path: String, size: u64) -> BoxStream<'static, Result<Bytes>> {
    stream::try_unfold(0_u64, move |at| {
        let wanted = u32::try_from(size - at.min(size)).unwrap_or(u32::MAX).min(READ_BYTES);
        let (handle, path) = (opened.handle.clone(), path.clone());
        let read = (wanted > 0).then(|| opened.live());
        async move {
            let Some(live) = read else { return Ok(None) };
            match live.session.read(handle, at, wanted).await {
                Ok(data) if data.data.is_empty() || data.data.len() > wanted as usize => {
                    let cause = format!("{}: a part that was not asked for", clean(&path));
                    Err(wrap(Fault::new(ErrorClass::Protocol, cause, "").into()))
                }
                Ok(data) => {
                    let next = at + data.data.len() as u64;
                    Ok(Some((Bytes::from(data.data), next)))
                }
                Err(SftpError::Status(Status { status_code: StatusCode::Eof, .. })) => Ok(None),
                Err(error) => Err(wrap(refused(&path, error))),
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_without_a_home_uses_the_files_of_the_system() {
        let dir = tempfile::tempdir().expect("a folder");
        let (home, system) = (dir.path().join("home"), dir.path().join("system"));
        std::fs::create_dir_all(&system).expect("makes");
        let found = system_files(Some(&home), &system);
        assert!(found.config.is_none() && found.known_hosts.is_none());
        std::fs::write(system.join("known_hosts"), "").expect("writes");
        assert_eq!(system_files(None, &system).known_hosts, Some(system.join("known_hosts")));
        assert!(system_files(Some(&home), &system).config.is_none());
        std::fs::create_dir_all(home.join(".ssh")).expect("makes");
        assert!(system_files(Some(&home), &system).known_hosts.is_none(), "its own are enough");
    }

    #[tokio::test]
    async fn nothing_can_be_written() {
        use object_store::ObjectStoreExt;
        let Ok(Location::Sftp(at)) = Location::parse("sftp:host:/srv") else { panic!("is one") };
        let command = ProgramSpec {
            program: "/nonexistent".into(),
            arguments: vec![],
            variables: vec![],
            hidden: vec![],
            missing: "",
        };
        let telemetry = Arc::new(Telemetry::new(&["restic"], &["sftp"]));
        let (link, pages) = Default::default();
        let store = Sftp { at, command, link, pages, telemetry };
        let path = Path::parse("locks/x").expect("is a path");
        let refused = |result: Result<()>| matches!(result, Err(Error::NotSupported { .. }));
        assert!(refused(store.put(&path, "x".into()).await.map(drop)));
        assert!(refused(store.put_multipart(&path).await.map(drop)));
        assert!(refused(store.delete(&path).await));
        assert!(refused(store.copy(&path, &path).await));
        assert!(refused(store.rename(&path, &path).await));
    }
}
