//! A repository behind any `ObjectStore`, read one folder level at a time.
//!
//! Keys are taken with `Path::parse` only: `Path::from` and `Path::join` encode names, and would
//! ask for other keys than restic wrote. Which cloud it is, is not known here.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};

use super::advice::Advice;
use super::fault::{Fault, explain};
use super::list_page::Page;
use super::{
    ENTRIES_MAX, Entry, EntryKind, Listing, ReadStore, StoreError, StoreErrorKind, doing, is_inside,
};
use crate::scan::ErrorClass;

/// The store.
#[derive(Debug)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    /// Without slashes at its ends; may be empty.
    prefix: String,
    /// The repository's location, for errors.
    shown: String,
    /// Of one verb, retries and pages included.
    timeout: Duration,
    pages: Arc<Pages>,
    reach: Reach,
    advice: &'static Advice,
}

/// What restic takes for a file of a folder, which differs between backends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reach {
    /// Every name in it, those of folders too.
    Names,
    /// Files in it.
    Files,
    /// Files in it and in everything below, by the last part of their names.
    Below,
}

/// The listing under way, page by page, as seen below `object_store`.
#[derive(Debug, Default)]
pub(super) struct Pages {
    /// One listing at a time.
    turn: tokio::sync::Mutex<()>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    odd: Vec<String>,
    names: usize,
    token: Option<String>,
}

impl Pages {
    fn take(&self) -> Seen {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes notice of the next page.
    pub(super) fn add(&self, page: &mut Page) -> Result<(), Fault> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.names += page.names;
        if seen.names > ENTRIES_MAX {
            let cause = format!("more than {ENTRIES_MAX} names in the folder");
            return Err(Fault::new(ErrorClass::Incomplete, cause, ""));
        }
        if page.token.is_some() && seen.token == page.token {
            let cause = "the server goes round in circles: it gave the same token twice";
            return Err(Fault::new(ErrorClass::Incomplete, cause, ""));
        }
        seen.token = page.token.take();
        seen.odd.append(&mut page.odd);
        Ok(())
    }
}

impl Objects {
    pub(super) fn new(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        shown: String,
        timeout: Duration,
        pages: Arc<Pages>,
        advice: &'static Advice,
    ) -> Self {
        Self { store, prefix: prefix.into(), shown, timeout, pages, reach: Reach::Names, advice }
    }

    /// Lists as restic does on this backend.
    pub(super) fn reaching(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    fn key(&self, path: &str) -> Result<String, Fault> {
        if !is_inside(path) {
            let cause = "the path leads out of the repository";
            return Err(Fault::new(ErrorClass::Internal, cause, ""));
        }
        Ok(match (self.prefix.as_str(), path) {
            ("", path) => path.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, path) => format!("{prefix}/{path}"),
        })
    }

    /// Runs one verb with its time limit; a failure gets its words.
    async fn call<T>(
        &self,
        verb: &str,
        path: &str,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, StoreError> {
        let fault = match tokio::time::timeout(self.timeout, work).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(fault)) => fault,
            Err(_) => Fault::new(
                ErrorClass::Timeout,
                format!("not done in {:?}", self.timeout),
                "Check whether the server is overloaded, or raise the scan's time limit.",
            ),
        };
        let fault = self.advice.complete(fault);
        let cause = format!("{} ({})", fault.cause, self.shown);
        let error = StoreError::new(fault.kind, doing(verb, path), cause, &fault.advice);
        Err(StoreError { wait: fault.wait, ..error })
    }

    async fn entries(&self, folder: &str, deep: bool) -> Result<Listing, Fault> {
        let key = self.key(folder)?;
        let start = if key.is_empty() { String::new() } else { format!("{key}/") };
        let prefix = if key.is_empty() { None } else { Some(parse(&key)?) };
        let _turn = self.pages.turn.lock().await;
        self.pages.take();
        let found = self.store.list_with_delimiter(prefix.as_ref()).await.map_err(fault)?;
        let seen = self.pages.take();
        let mut entries = BTreeMap::new();
        let mut folder = |name: &str| {
            let kind = EntryKind::Folder;
            let entry = Entry { name: name.to_owned(), kind, size: 0, modified_at: None };
            entries.entry(name.to_owned()).or_insert(entry);
        };
        for prefix in &found.common_prefixes {
            folder(below(prefix, &start)?);
        }
        let mut files = Vec::new();
        for object in found.objects {
            let name = below(&object.location, &start)?;
            match name.split_once('/') {
                // From a server that does not know delimiters.
                Some((name, _)) => folder(name),
                None if object.location.as_ref() == key => {}
                None => files.push(entry(name.to_owned(), &object)),
            }
        }
        // An object next to deeper ones of its name is what a reader gets by that name.
        entries.extend(files.into_iter().map(|file| (file.name.clone(), file)));
        let mut odd = seen.odd;
        if deep {
            for prefix in &found.common_prefixes {
                self.deeper(prefix, &mut entries, &mut odd).await?;
            }
        }
        let odd = odd.into_iter().filter_map(|odd| match odd.strip_prefix(&start) {
            // The marker of the folder itself.
            Some("") => None,
            Some(name) => Some(name.to_owned()),
            None => Some(odd),
        });
        Ok(Listing { odd: odd.collect(), entries: entries.into_values().collect() })
    }

    /// Adds what lies below a folder. Repositories have no such folders, so this costs nothing
    /// but where somebody made one.
    async fn deeper(
        &self,
        prefix: &Path,
        entries: &mut BTreeMap<String, Entry>,
        odd: &mut Vec<String>,
    ) -> Result<(), Fault> {
        let mut objects = self.store.list(Some(prefix));
        while let Some(object) = objects.next().await {
            let object = object.map_err(fault)?;
            let name = object.location.filename().unwrap_or_default().to_owned();
            let deeper = Entry { kind: EntryKind::Deeper, ..entry(name.clone(), &object) };
            // A file of this name right in the folder is what a reader gets.
            entries.entry(name).or_insert(deeper);
        }
        odd.extend(self.pages.take().odd);
        Ok(())
    }

    async fn content(&self, path: &str, bytes_max: u64) -> Result<Bytes, Fault> {
        let too_large =
            || Fault::of(StoreErrorKind::TooLarge, format!("more than {bytes_max} bytes"), "");
        let found = self.store.get(&parse(&self.key(path)?)?).await.map_err(fault)?;
        if found.meta.size > bytes_max {
            return Err(too_large());
        }
        let mut parts = found.into_stream();
        let mut content = BytesMut::new();
        while let Some(part) = parts.next().await {
            let part = part.map_err(fault)?;
            if (content.len() + part.len()) as u64 > bytes_max {
                return Err(too_large());
            }
            content.extend_from_slice(&part);
        }
        Ok(content.freeze())
    }
}

#[async_trait]
impl ReadStore for Objects {
    async fn list(&self, folder: &str) -> Result<Listing, StoreError> {
        // Never below the repository itself: that would walk `data/`.
        let deep = self.reach == Reach::Below && !folder.is_empty();
        let mut listing = self.call("list", folder, self.entries(folder, deep)).await?;
        if self.reach != Reach::Names {
            let (folders, files) =
                listing.entries.into_iter().partition(|entry| entry.kind == EntryKind::Folder);
            listing.entries = files;
            let folders: Vec<Entry> = folders;
            listing.odd.extend(folders.into_iter().map(|folder| folder.name));
        }
        Ok(listing)
    }

    async fn stat(&self, path: &str) -> Result<Entry, StoreError> {
        self.call("stat", path, async {
            let meta = self.store.head(&parse(&self.key(path)?)?).await.map_err(fault)?;
            let name = path.rsplit('/').next().unwrap_or_default();
            Ok(entry(name.to_owned(), &meta))
        })
        .await
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, StoreError> {
        self.call("read", path, self.content(path, bytes_max)).await
    }

    async fn folders(&self, folder: &str) -> Result<Option<Vec<String>>, StoreError> {
        let listing = self.call("list folders of", folder, self.entries(folder, false)).await?;
        let odd = listing.odd.iter().filter(|name| name.ends_with('/')).cloned();
        let odd: Vec<String> = odd.collect();
        Ok(Some(listing.folders().into_iter().chain(odd).collect()))
    }
}

fn parse(key: &str) -> Result<Path, Fault> {
    Path::parse(key).map_err(|error| {
        Fault::new(ErrorClass::Internal, format!("this key cannot be asked for: {error}"), "")
    })
}

/// The part of a listed key behind the folder that was asked for.
fn below<'a>(key: &'a Path, start: &str) -> Result<&'a str, Fault> {
    let key = key.as_ref();
    match key.strip_prefix(start) {
        Some(name) => Ok(name),
        // The folder's own marker, whose slash `Path` drops.
        None if start.strip_suffix('/') == Some(key) => Ok(""),
        None => Err(Fault::no_service("the server listed a key that was not asked for")),
    }
}

fn entry(name: String, meta: &ObjectMeta) -> Entry {
    let (seconds, nanos) =
        (meta.last_modified.timestamp(), meta.last_modified.timestamp_subsec_nanos());
    // A store without times says 1970.
    let modified_at = (seconds != 0)
        .then(|| Timestamp::new(seconds, i32::try_from(nanos).unwrap_or(0)).ok())
        .flatten();
    Entry { name, kind: EntryKind::File, size: meta.size, modified_at }
}

fn fault(error: object_store::Error) -> Fault {
    let mut fault = explain(&error);
    // What a store says in `object_store`'s own words counts when nothing else was said.
    if fault.kind == StoreErrorKind::Failed(ErrorClass::Protocol) {
        match error {
            object_store::Error::NotFound { .. } => fault.kind = StoreErrorKind::NotFound,
            object_store::Error::PermissionDenied { .. } => {
                fault.kind = StoreErrorKind::Failed(ErrorClass::Permission);
            }
            object_store::Error::Unauthenticated { .. } => {
                fault.kind = StoreErrorKind::Failed(ErrorClass::Auth);
            }
            _ => {}
        }
    }
    fault
}
