//! The web configuration in use: read again whenever a file that it is made of changes, before
//! the next handshake or request. While a file system hangs, what was good before stays in use.
//! What is then done with a connection is not known here.
#![allow(clippy::disallowed_methods, reason = "the web configuration and its files are read here")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::anyhow;
use hyper::header::{HeaderName, HeaderValue};
use rustls::ServerConfig;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::auth::{Login, Logins};
use super::look::{Look, Looks};
use super::rate::Bucket;
use super::tls;
use crate::config::web::{self, Pems, RateLimit, TlsConfig, WebConfig};
use crate::secret::Secret;

/// Largest file of the web configuration, certificates included.
const BYTES_MAX: u64 = 4 << 20;
/// A file that changed less than this ago may be half written, and its pair (a key beside its
/// certificate) may follow; what was good before stays in use for so long.
const SETTLES: Duration = Duration::from_secs(2);

/// What is asked of whoever connects.
#[derive(Debug, Default)]
pub struct Protection {
    /// TLS is spoken; none = plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    /// Headers of every answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// bcrypt hashes by user; none = nobody is asked.
    pub users: BTreeMap<String, Secret>,
    /// Whether nobody gets in without a certificate of their own.
    pub client_certificate: bool,
}

/// The web configuration cannot be used as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Whether TLS was spoken when it was last good.
    pub tls: bool,
}

/// Owns the web configuration in use, and what it remembers of visitors.
#[derive(Debug)]
pub struct Guard {
    current: Arc<Mutex<Current>>,
    /// How it is looked at; none when there is no file.
    reader: Option<(Looks, Arc<Mutex<Reader>>)>,
    logins: Logins,
    bucket: Option<Mutex<Bucket>>,
}

/// What everybody is told; held for moments only.
#[derive(Debug, Default)]
struct Current {
    good: Arc<Protection>,
    /// The newest cannot be used.
    broken: bool,
    /// What it was read from.
    files: Vec<PathBuf>,
}

/// Reads it again; held by the look that is going on, which may hang.
#[derive(Debug)]
struct Reader {
    file: PathBuf,
    current: Arc<Mutex<Current>>,
    rate_limit: Option<RateLimit>,
    /// What is wrong with the newest; logged once.
    wrong: Option<String>,
    /// What it was read from, as seen just before.
    seen: Vec<(PathBuf, Option<Stamp>)>,
    /// Of all their contents.
    digest: [u8; 32],
    /// No file of it was changed so shortly before that another change could look the same.
    settled: bool,
    /// How long ago "shortly before" is.
    settles: Duration,
}

/// What differs when a file is another one or was written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    place: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A web configuration and the files that it is made of.
struct Loaded {
    seen: Vec<(PathBuf, Option<Stamp>)>,
    digest: [u8; 32],
    /// Also when it is broken: whether the file says nothing at all.
    empty: bool,
    result: Result<(Protection, WebConfig), String>,
}

impl Guard {
    /// Reads the web configuration for the first time; without one, everybody may come in.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn new(file: Option<&Path>) -> anyhow::Result<Self> {
        Self::with(file, SETTLES)
    }

    fn with(file: Option<&Path>, settles: Duration) -> anyhow::Result<Self> {
        let logins = Logins::new()?;
        let current: Arc<Mutex<Current>> = Arc::default();
        let (mut reader, mut bucket) = (None, None);
        if let Some(file) = file {
            let loaded = load(file);
            let (protection, config) = loaded.result.map_err(|error| anyhow!(error))?;
            if config.http2 {
                tracing::info!("http2: true has no effect; HTTP/1.1 is spoken");
            }
            let rate_limit = config.rate_limit;
            bucket = rate_limit.map(|limit| Mutex::new(Bucket::new(limit, Instant::now())));
            let good = Arc::new(protection);
            *lock(&current) = Current { good, broken: false, files: paths(&loaded.seen) };
            let own = Reader {
                file: file.to_owned(),
                current: current.clone(),
                rate_limit,
                wrong: None,
                settled: is_settled(&loaded.seen, settles),
                seen: loaded.seen,
                digest: loaded.digest,
                settles,
            };
            reader = Some((Looks::new(), Arc::new(Mutex::new(own))));
        }
        Ok(Self { current, reader, logins, bucket })
    }

    /// What is asked of whoever connects now. While its files cannot be looked at because their
    /// file system hangs, that is what was asked before.
    ///
    /// # Errors
    /// [`Broken`] while a file cannot be read or is wrong; why is logged once.
    pub async fn now(&self) -> Result<Arc<Protection>, Broken> {
        if let Some((looks, reader)) = &self.reader {
            let reader = reader.clone();
            match looks.look(move || lock(&reader).look()).await {
                Look::Done { again: false } | Look::Hangs { newly: false } => {}
                Look::Done { again: true } => tracing::info!("web configuration looked at again"),
                Look::Hangs { newly: true } => tracing::warn!(
                    "web configuration not looked at: its file system hangs (a network mount?); \
                     what was in use stays"
                ),
            }
        }
        self.last()
    }

    /// What was asked when it was looked at last.
    ///
    /// # Errors
    /// As [`Guard::now`].
    pub fn last(&self) -> Result<Arc<Protection>, Broken> {
        let current = lock(&self.current);
        if current.broken {
            return Err(Broken { tls: current.good.tls.is_some() });
        }
        Ok(current.good.clone())
    }

    /// Files that the web configuration is made of, as of the last reading.
    pub fn files(&self) -> Vec<PathBuf> {
        lock(&self.current).files.clone()
    }

    /// Whether one more request may be answered now; else after how long to come back.
    pub fn admit(&self) -> Result<(), Duration> {
        let Some(bucket) = &self.bucket else { return Ok(()) };
        let mut bucket = lock(bucket);
        if bucket.take(Instant::now()) { Ok(()) } else { Err(bucket.interval()) }
    }

    /// Whether a request's `Authorization` is good enough.
    pub async fn login(&self, protection: &Protection, header: Option<&HeaderValue>) -> Login {
        if protection.users.is_empty() {
            return Login::Right;
        }
        self.logins.check(&protection.users, header).await
    }
}

/// Nothing that can panic leaves a half of something.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn paths(seen: &[(PathBuf, Option<Stamp>)]) -> Vec<PathBuf> {
    seen.iter().map(|(path, _)| path.clone()).collect()
}

impl Reader {
    fn look(&mut self) {
        if !self.settled || self.seen.iter().any(|(path, stamp)| *stamp != look(path)) {
            self.read_again();
        }
    }

    /// Whether what is in use keeps anybody out.
    fn protects(&self) -> bool {
        let good = lock(&self.current).good.clone();
        good.tls.is_some() || !good.users.is_empty()
    }

    fn read_again(&mut self) {
        let loaded = load(&self.file);
        let settled = is_settled(&loaded.seen, self.settles);
        // A file that is written in place is empty for a moment, and nothing would be asked then.
        if !settled && self.wrong.is_none() && (loaded.empty || loaded.result.is_err()) {
            self.settled = false;
            return;
        }
        let same = self.digest == loaded.digest && self.wrong.is_none() == loaded.result.is_ok();
        (self.seen, self.settled, self.digest) = (loaded.seen, settled, loaded.digest);
        lock(&self.current).files = paths(&self.seen);
        // Whoever is connected need not agree on the same certificate anew.
        if same {
            return;
        }
        let result = match loaded.result {
            // Cut off by a full disk or a slip; whoever means it says so at the next start.
            Ok(_) if loaded.empty && self.protects() => {
                Err("the file is empty now, and TLS or passwords were asked for before; restart \
                     the exporter to serve without them"
                    .to_owned())
            }
            result => result,
        };
        match result {
            Ok((protection, config)) => {
                let (tls, users) = (protection.tls.is_some(), protection.users.len());
                tracing::info!(tls, users, "web configuration read again");
                if config.rate_limit != self.rate_limit {
                    tracing::warn!("rate_limit takes effect at the next start");
                    self.rate_limit = config.rate_limit;
                }
                self.wrong = None;
                let mut current = lock(&self.current);
                (current.good, current.broken) = (Arc::new(protection), false);
            }
            Err(error) => {
                if self.wrong.as_ref() != Some(&error) {
                    tracing::error!(
                        %error,
                        "web configuration broken; requests get 500 and handshakes fail until it \
                         is mended"
                    );
                }
                self.wrong = Some(error);
                lock(&self.current).broken = true;
            }
        }
    }
}

/// Checks a web configuration and the files that it names.
///
/// # Errors
/// Everything that is wrong, in words.
pub fn check(file: &Path) -> anyhow::Result<Protection> {
    load(file).result.map(|(protection, _)| protection).map_err(|error| anyhow!(error))
}

fn load(file: &Path) -> Loaded {
    let mut read = Read::default();
    let mut empty = false;
    let result = load_into(file, &mut read, &mut empty);
    Loaded { seen: read.seen, digest: read.hash.finalize().into(), empty, result }
}

fn load_into(
    file: &Path,
    files: &mut Read,
    empty: &mut bool,
) -> Result<(Protection, WebConfig), String> {
    let problem = |error: String| format!("cannot read the web configuration {error}");
    let text = files.bytes(file).map_err(problem)?;
    let shown = file.display();
    let text = std::str::from_utf8(&text).map_err(|_| format!("{shown} is no UTF-8 text"))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let config = web::parse(text, folder, files).map_err(|error| error.of_file(file))?;
    *empty = config.empty;
    let mut protection = Protection { users: config.users.clone(), ..Protection::default() };
    for (name, value) in &config.headers {
        // Both were checked when the text was read.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(*name), HeaderValue::from_str(value)) {
            protection.headers.push((name, value));
        }
    }
    protection.client_certificate =
        config.tls.as_ref().is_some_and(|tls| tls.client_auth.requires());
    protection.tls = files.server.take();
    Ok((protection, config))
}

/// Reads files, and remembers which and what was in them.
#[derive(Default)]
struct Read {
    seen: Vec<(PathBuf, Option<Stamp>)>,
    hash: Sha256,
    server: Option<Arc<ServerConfig>>,
}

impl Read {
    /// One file, after noting what it looks like, so that a change during the reading is seen. The
    /// error is its path and what is wrong with it.
    fn bytes(&mut self, path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
        let problem = |error: io::Error| format!("{}: {error}", path.display());
        self.seen.push((path.to_owned(), look(path)));
        // Pipes and devices would be waited for, or never end.
        if !std::fs::metadata(path).map_err(problem)?.is_file() {
            return Err(format!("{}: not a file", path.display()));
        }
        let mut bytes = Zeroizing::new(Vec::new());
        let file = File::open(path).map_err(problem)?;
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(problem)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(format!("{}: larger than {BYTES_MAX} bytes", path.display()));
        }
        self.hash.update((bytes.len() as u64).to_be_bytes());
        self.hash.update(&*bytes);
        Ok(bytes)
    }
}

impl Pems for Read {
    fn read(&mut self, path: &Path) -> Result<Secret, String> {
        let bytes = self.bytes(path).map_err(|error| {
            format!("cannot read {error}; name a PEM file that the exporter's user can read")
        })?;
        Ok(Secret::new(bytes.to_vec()))
    }

    fn take(&mut self, tls: &TlsConfig) -> Result<(), String> {
        self.server = Some(Arc::new(tls::server(tls)?));
        Ok(())
    }
}

fn look(path: &Path) -> Option<Stamp> {
    let meta = std::fs::metadata(path).ok()?;
    Some(Stamp {
        place: (meta.dev(), meta.ino()),
        size: meta.size(),
        modified: (meta.mtime(), meta.mtime_nsec()),
        changed: (meta.ctime(), meta.ctime_nsec()),
    })
}

/// Whether every file was last changed long enough ago. One from the future counts as old: it
/// would never settle.
fn is_settled(seen: &[(PathBuf, Option<Stamp>)], settles: Duration) -> bool {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX);
    let limit = i128::try_from(settles.as_nanos()).unwrap_or(i128::MAX);
    seen.iter().filter_map(|(_, stamp)| *stamp).all(|stamp| {
        let (seconds, nanos) = stamp.changed;
        let age = now - (i128::from(seconds) * 1_000_000_000 + i128::from(nanos));
        age < 0 || age > limit
    })
}

#[cfg(test)]
mod tests;
