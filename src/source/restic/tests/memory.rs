//! A backend in memory that writes down every request and misbehaves on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use crate::store::{Entry, EntryKind, Listing, ReadStore, StoreError, StoreErrorKind};

#[derive(Clone)]
pub struct File {
    pub bytes: Bytes,
    pub kind: EntryKind,
    /// What the listing says instead of the truth.
    pub listed_size: Option<u64>,
    pub modified_at: Option<Timestamp>,
}

pub type Files = BTreeMap<String, File>;

/// What happens to a request.
pub enum Effect {
    Fail(StoreErrorKind),
    /// The files change just before it is answered.
    Change(Box<dyn Fn(&mut Files) + Send + Sync>),
    /// A read is answered with these bytes.
    Serve(Bytes),
    /// It is never answered.
    Hang,
}

struct Rule {
    prefix: String,
    left: usize,
    effect: Arc<Effect>,
}

#[derive(Default)]
pub struct Memory {
    files: Mutex<Files>,
    log: Mutex<Vec<String>>,
    rules: Mutex<Vec<Rule>>,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    /// A file written an hour ago.
    pub fn put(&self, path: &str, bytes: impl Into<Bytes>) {
        self.change(|files| put(files, path, bytes.into()));
    }

    pub fn remove(&self, path: &str) {
        self.change(|files| {
            files.remove(path);
        });
    }

    pub fn change(&self, change: impl FnOnce(&mut Files)) {
        change(&mut self.files.lock().unwrap());
    }

    /// The next `times` requests that begin with `prefix` (`read locks/ab`) meet this effect.
    pub fn rule(&self, prefix: &str, times: usize, effect: Effect) {
        let rule = Rule { prefix: prefix.into(), left: times, effect: Arc::new(effect) };
        self.rules.lock().unwrap().push(rule);
    }

    pub fn behave(&self) {
        self.rules.lock().unwrap().clear();
    }

    /// The requests since the last call, ids cut to four digits, in order.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    async fn request(&self, verb: &str, path: &str) -> Result<Option<Bytes>, StoreError> {
        let request = format!("{verb} {path}");
        let shown = match path.split_once('/') {
            Some((folder, id)) => format!("{verb} {folder}/{}", id.get(..4).unwrap_or(id)),
            None => request.clone(),
        };
        self.log.lock().unwrap().push(shown);
        let effect = {
            let mut rules = self.rules.lock().unwrap();
            let found = rules.iter_mut().find(|r| r.left > 0 && request.starts_with(&r.prefix));
            found.map(|rule| {
                rule.left -= 1;
                Arc::clone(&rule.effect)
            })
        };
        match effect.as_deref() {
            None => Ok(None),
            Some(Effect::Fail(kind)) => Err(error(*kind, &request)),
            Some(Effect::Change(change)) => {
                change(&mut self.files.lock().unwrap());
                Ok(None)
            }
            Some(Effect::Serve(bytes)) => Ok(Some(bytes.clone())),
            Some(Effect::Hang) => std::future::pending().await,
        }
    }

    fn entry(path: &str, file: &File) -> Entry {
        Entry {
            name: path.rsplit('/').next().unwrap().into(),
            kind: file.kind,
            size: file.listed_size.unwrap_or(file.bytes.len() as u64),
            modified_at: file.modified_at,
        }
    }
}

pub fn put(files: &mut Files, path: &str, bytes: Bytes) {
    let file =
        File { bytes, kind: EntryKind::File, listed_size: None, modified_at: Some(ago(3600)) };
    files.insert(path.into(), file);
}

#[expect(clippy::disallowed_methods, reason = "the source compares with the real time")]
pub fn ago(seconds: i64) -> Timestamp {
    Timestamp::now() - jiff::SignedDuration::from_secs(seconds)
}

fn error(kind: StoreErrorKind, doing: &str) -> StoreError {
    StoreError {
        kind,
        doing: doing.into(),
        cause: format!("{kind:?} in the words of the backend"),
        advice: String::new(),
        wait: None,
    }
}

#[async_trait]
impl ReadStore for Memory {
    async fn list(&self, folder: &str) -> Result<Listing, StoreError> {
        self.request("list", folder).await?;
        let prefix = format!("{folder}/");
        let files = self.files.lock().unwrap();
        let entries = files
            .iter()
            .filter(|(path, _)| path.strip_prefix(&prefix).is_some_and(|name| !name.contains('/')))
            .map(|(path, file)| Self::entry(path, file))
            .collect();
        Ok(Listing { entries, odd: vec![] })
    }

    async fn stat(&self, path: &str) -> Result<Entry, StoreError> {
        self.request("stat", path).await?;
        let files = self.files.lock().unwrap();
        let file = files.get(path).ok_or_else(|| error(StoreErrorKind::NotFound, path))?;
        Ok(Self::entry(path, file))
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, StoreError> {
        if let Some(bytes) = self.request("read", path).await? {
            return Ok(bytes);
        }
        let files = self.files.lock().unwrap();
        let file = files.get(path).ok_or_else(|| error(StoreErrorKind::NotFound, path))?;
        if file.bytes.len() as u64 > bytes_max {
            return Err(error(StoreErrorKind::TooLarge, path));
        }
        Ok(file.bytes.clone())
    }

    async fn folders(&self, _folder: &str) -> Result<Option<Vec<String>>, StoreError> {
        Ok(None)
    }
}
