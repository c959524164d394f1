//! Reads one small file that a person named, bounded and without ever waiting for a pipe.

#![allow(clippy::disallowed_methods, reason = "this module reads files")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use super::SecretError;

/// No file of variables, password or key is longer.
pub(super) const BYTES_MAX: u64 = 256 * 1024;

/// A file system that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One read at a time of each path. A hung file system keeps the thread of a read, and with one
/// more for every try there would soon be none left.
static TURNS: Mutex<BTreeMap<PathBuf, Arc<Semaphore>>> = Mutex::new(BTreeMap::new());

fn turn(path: &Path) -> Arc<Semaphore> {
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    turns.entry(path.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
}

/// Runs a blocking read of a path on a thread for such work, with a time limit.
pub(super) async fn off_worker<T: Send + 'static>(
    what: &'static str,
    path: PathBuf,
    read: impl FnOnce(&Path) -> Result<T, SecretError> + Send + 'static,
) -> Result<T, SecretError> {
    within(TIMEOUT, what, path, read).await
}

async fn within<T: Send + 'static>(
    limit: Duration,
    what: &'static str,
    path: PathBuf,
    read: impl FnOnce(&Path) -> Result<T, SecretError> + Send + 'static,
) -> Result<T, SecretError> {
    let (turn, named) = (turn(&path), path.clone());
    let done = tokio::time::timeout(limit, async move {
        // It is never closed; without a permit the read just goes unguarded.
        let turn = turn.acquire_owned().await.ok();
        tokio::task::spawn_blocking(move || {
            let _held_until_it_returns = turn;
            read(&path)
        })
        .await
    });
    match done.await {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(SecretError::file(what, &named, "the read was given up", "")),
        Err(_) => Err(SecretError::file(
            what,
            &named,
            format!("no answer from the file system in {} s", limit.as_secs()),
            "Check whether the file system hangs (a network mount?).",
        )),
    }
}

/// The whole content of a regular file, for code that must not block; `what` names it in errors.
///
/// # Errors
/// [`SecretError`] when it cannot be read, is too large or does not come in time.
pub(crate) async fn read_file(
    what: &'static str,
    path: &Path,
) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    off_worker(what, path.to_owned(), move |path| read(what, path)).await
}

/// The whole content of a regular file, on this thread.
///
/// # Errors
/// As [`read_file`].
pub(crate) fn read(what: &str, path: &Path) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let fail = |error: std::io::Error| {
        SecretError::file(what, path, error.to_string(), advice(error.kind()))
    };
    // Without O_NONBLOCK the open of a pipe would wait for its writer.
    let file = File::options()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY).bits() as i32)
        .open(path)
        .map_err(fail)?;
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(SecretError::file(
            what,
            path,
            "not a regular file",
            "Name a regular file; it is read again whenever the target is opened.",
        ));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(SecretError::file(
            what,
            path,
            format!("more than {BYTES_MAX} bytes"),
            "Check that this is the right file.",
        ));
    }
    Ok(bytes)
}

pub(super) fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "Check the path, and that it is mounted where the exporter runs.",
        ErrorKind::PermissionDenied => "Make it readable for the user that the exporter runs as.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_hanging_read_keeps_one_thread_and_holds_up_no_other_path() {
        let dir = tempfile::tempdir().expect("a folder");
        let (hung, other) = (dir.path().join("hung"), dir.path().join("other"));
        let limit = Duration::from_millis(40);
        let (release, hang) = mpsc::channel::<()>();
        let wait = move |_: &Path| {
            let _ = hang.recv();
            Ok(())
        };
        let error = within(limit, "file", hung.clone(), wait).await.expect_err("hangs");
        assert!(error.to_string().contains("hung") && error.cause.contains("no answer"), "{error}");
        let (started, starts) = mpsc::channel::<()>();
        let next = move |_: &Path| {
            let _ = started.send(());
            Ok(())
        };
        assert!(within(limit, "file", hung.clone(), next).await.is_err());
        assert!(starts.recv().is_err(), "the second read never started");
        assert_eq!(off_worker("file", other, |_| Ok(1)).await, Ok(1));
        drop(release);
        assert_eq!(off_worker("file", hung, |_| Ok(2)).await, Ok(2));
    }
}
