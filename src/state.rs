//! The state folder: what is remembered survives a restart, and one exporter at a time has it.
//!
//! The folder is held by a lock of the kernel on a file in it, for the whole life of the process:
//! exclusive, without waiting, closed on exec, and the file stays where it is, because one that is
//! removed lets two processes in. Its content tells people who has it; it is never the state.
//! What is written is whole or not there at all, and a damaged file is set aside, never fatal.
#![allow(
    clippy::disallowed_methods,
    reason = "this is the only module, beside the demo, that writes files"
)]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::proc::procfs::Procfs;
use crate::proc::traces::SavedTraces;
use crate::tracker::{Saved, VERSION};

/// The file that is locked.
const LOCK: &str = "exporter.lock";
/// The file that is remembered in.
const MEMORY: &str = "memory.json";
/// Where a file goes that cannot be understood; of several the last one.
const DAMAGED: &str = "memory.json.damaged";
/// Most bytes that are read back or written.
const BYTES_MAX: u64 = 64 << 20;
/// How the names of files begin that are not written to their end yet.
const UNFINISHED: &str = ".memory";
/// Attempts to lock a file that somebody else keeps replacing.
const ATTEMPTS: usize = 3;

/// A state folder that is ours.
#[derive(Debug)]
pub struct State {
    folder: PathBuf,
    boot_id: Option<String>,
    procfs: Procfs,
    /// The lock ends with it, so it lives as long as the process.
    lock: Mutex<File>,
}

/// Why a folder is not ours.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Somebody else has it.
    #[error(
        "another instance{} has the state folder {}; give this one a --state.dir of its own",
        by(.pid), folder.display()
    )]
    Taken {
        /// The folder.
        folder: PathBuf,
        /// The process, as it wrote down itself.
        pid: Option<String>,
    },
    /// Nobody could have it.
    #[error("the state folder {} {what}: {error}", folder.display())]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// What is wrong, in words.
        what: &'static str,
        /// In the words of the system.
        error: io::Error,
    },
}

fn by(pid: &Option<String>) -> String {
    pid.as_ref().map_or(String::new(), |pid| format!(" (pid {pid}, as it wrote)"))
}

/// What is remembered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remembered {
    /// Of all targets.
    #[serde(flatten)]
    pub saved: Saved,
    /// Of kernel locks on files that may lose their paths.
    #[serde(default)]
    pub traces: SavedTraces,
}

/// What stands in the file.
#[derive(Serialize, Deserialize)]
struct Written {
    boot_id: Option<String>,
    #[serde(flatten)]
    remembered: Remembered,
}

impl State {
    /// Takes a folder, at once or not at all. One that is missing is made, for us alone, when the
    /// folder above it is there.
    ///
    /// # Errors
    /// [`StateError::Taken`] when another process has it; anything else is no sign of one.
    pub fn take(folder: &Path, procfs: &Procfs) -> Result<Self, StateError> {
        // Usually it is there; of anything else that is wrong the opening of the lock file tells.
        if fs::DirBuilder::new().mode(0o700).create(folder).is_ok() {
            tracing::info!(folder = %folder.display(), "state folder made");
        }
        let lock = Self::claim(folder, procfs)?;
        clear(folder);
        let (folder, procfs) = (folder.to_owned(), procfs.clone());
        Ok(Self { folder, boot_id: procfs.boot_id(), procfs, lock: Mutex::new(lock) })
    }

    fn claim(folder: &Path, procfs: &Procfs) -> Result<File, StateError> {
        let path = folder.join(LOCK);
        let unusable = |what, error| StateError::Unusable { folder: folder.into(), what, error };
        for _ in 0..ATTEMPTS {
            // Not truncated: it may be another one's.
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
                .open(&path)
                .map_err(|error| unusable(what(&error), error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let pid = written_pid(&mut file);
                    return Err(StateError::Taken { folder: folder.into(), pid });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(unusable("cannot be locked", error));
                }
            }
            if !is_at(&file, &path) {
                // Somebody removed it between open and lock; ours would exclude nobody.
                continue;
            }
            let boot_id = procfs.boot_id();
            let id = std::process::id();
            let start = i32::try_from(id).ok().and_then(|pid| procfs.stat(pid)).map(|s| s.start);
            let text = format!(
                "{id}\n{}\n{}\n",
                start.unwrap_or_default(),
                boot_id.as_deref().unwrap_or_default()
            );
            // Only people read it, so a full disk is no reason to watch nothing.
            if let Err(error) = file.set_len(0).and_then(|()| file.write_all(text.as_bytes())) {
                tracing::warn!(%error, folder = %folder.display(), "it does not say who has it");
            }
            return Ok(file);
        }
        let error = io::Error::other("its lock file is replaced again and again");
        Err(unusable("cannot be locked", error))
    }

    /// What was remembered; nothing when there is nothing that can be understood, which is then
    /// set aside and told of in words. Who had kernel locks in another boot is forgotten.
    pub fn load(&self) -> (Option<Remembered>, Option<String>) {
        let path = self.folder.join(MEMORY);
        let shown = path.display();
        let why = match understood(&path, self.boot_id.as_deref()) {
            Ok(remembered) => return (remembered, None),
            Err(Unread::Closed(error)) => {
                return (None, Some(format!("cannot read {shown}: {error}")));
            }
            Err(Unread::Damaged(why)) => why,
        };
        let aside = self.folder.join(DAMAGED);
        let moved = match fs::rename(&path, &aside) {
            Ok(()) => format!("set aside as {}", aside.display()),
            Err(error) => format!("cannot be set aside: {error}"),
        };
        (None, Some(format!("{shown} {why}; {moved}; holds are remembered anew")))
    }

    /// Writes down what is remembered, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written; what was written before stays.
    pub fn store(&self, remembered: Remembered) -> io::Result<()> {
        let written = Written { boot_id: self.boot_id.clone(), remembered };
        let text = serde_json::to_vec(&written)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(io::Error::other(format!("more than {BYTES_MAX} bytes to remember")));
        }
        let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(&self.folder)?;
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        self.keep()?;
        file.persist(self.folder.join(MEMORY)).map_err(|error| error.error)?;
        File::open(&self.folder)?.sync_all()
    }
}

impl State {
    /// Takes the folder again if it, or our lock file, was removed or replaced: what we have then
    /// excludes nobody, and the folder at this path may be another one's.
    fn keep(&self) -> io::Result<()> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if is_at(&lock, &self.folder.join(LOCK)) {
            return Ok(());
        }
        *lock = Self::claim(&self.folder, &self.procfs).map_err(io::Error::other)?;
        tracing::warn!(
            folder = %self.folder.display(),
            "the state folder or its lock file was replaced under us; it is taken anew"
        );
        Ok(())
    }
}

/// Whether this is the file at a path.
fn is_at(file: &File, path: &Path) -> bool {
    let number = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let named = fs::symlink_metadata(path).ok().map(number);
    named.is_some() && named == file.metadata().ok().map(number)
}

/// Removes what processes left behind that were killed while they wrote. The folder is ours, so
/// nobody writes now.
fn clear(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes());
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            // It may stay: only room is lost.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// What an exporter remembers in a folder that it may have now: nothing is taken, moved or
/// written. `None` when there is nothing that can be understood.
pub fn peek(folder: &Path, procfs: &Procfs) -> Option<Remembered> {
    understood(&folder.join(MEMORY), procfs.boot_id().as_deref()).ok().flatten()
}

/// Why a file was not read.
enum Unread {
    Closed(io::Error),
    /// In words.
    Damaged(String),
}

fn understood(path: &Path, boot_id: Option<&str>) -> Result<Option<Remembered>, Unread> {
    let text = match read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Unread::Closed(error)),
    };
    match serde_json::from_slice::<Written>(&text) {
        Ok(Written { boot_id: written_in, mut remembered })
            if remembered.saved.version == VERSION =>
        {
            if written_in.is_none() || written_in.as_deref() != boot_id {
                remembered.saved.forget_boot();
                remembered.traces.clear();
            }
            Ok(Some(remembered))
        }
        Ok(written) => {
            Err(Unread::Damaged(format!("is of version {}", written.remembered.saved.version)))
        }
        Err(error) => Err(Unread::Damaged(format!("cannot be understood ({error})"))),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // A FIFO in its place must not make us wait.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut text)?;
    Ok(text)
}

/// The first line, if it is a number: somebody wrote it, perhaps anything.
fn written_pid(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(64).read_to_string(&mut text).ok()?;
    let first = text.lines().next()?;
    let is_number = !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| first.to_owned())
}

fn what(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR) => "is missing",
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => "is not writable",
        Some(Errno::LOOP) => "has a symbolic link where its lock file should be",
        _ => "cannot be used",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(folder: &Path) -> Result<State, StateError> {
        State::take(folder, &Procfs::new("/proc"))
    }

    fn empty() -> Remembered {
        Remembered { saved: Saved::empty(), traces: SavedTraces::new() }
    }

    #[test]
    fn a_second_one_is_told_who_was_first() {
        let folder = tempfile::tempdir().unwrap();
        let first = take(folder.path()).unwrap();
        let refused = take(folder.path()).unwrap_err();
        let StateError::Taken { pid, .. } = &refused else { panic!("{refused}") };
        assert_eq!(pid.as_deref(), Some(&*std::process::id().to_string()));
        drop(first);
        // The file stays, and is no obstacle.
        assert!(folder.path().join(LOCK).exists());
        take(folder.path()).unwrap();
    }

    #[test]
    fn a_missing_folder_is_made_for_us_alone() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("state");
        let state = take(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o7777, 0o700);
        drop(state);
        take(&own).unwrap();
    }

    #[test]
    fn what_cannot_be_opened_is_not_called_taken() {
        let folder = tempfile::tempdir().unwrap();
        let missing = take(&folder.path().join("missing/too")).unwrap_err();
        assert!(missing.to_string().contains("is missing"), "{missing}");
        std::os::unix::fs::symlink("/tmp/x", folder.path().join(LOCK)).unwrap();
        let link = take(folder.path()).unwrap_err();
        assert!(link.to_string().contains("symbolic link"), "{link}");
    }

    #[test]
    fn whatever_stands_in_the_lock_file_is_no_state() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK), "1\n").unwrap();
        let state = take(folder.path()).unwrap();
        let text = fs::read_to_string(folder.path().join(LOCK)).unwrap();
        assert!(text.starts_with(&format!("{}\n", std::process::id())), "{text}");
        drop(state);
    }

    #[test]
    fn what_is_stored_is_loaded_and_what_is_damaged_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let state = take(folder.path()).unwrap();
        assert_eq!(state.load(), (None, None));
        state.store(empty()).unwrap();
        assert_eq!(state.load(), (Some(empty()), None));
        assert_eq!(peek(folder.path(), &Procfs::new("/proc")), Some(empty()));
        for text in ["", "{", "null", "{\"version\": 1}", "\u{0}"] {
            fs::write(folder.path().join(MEMORY), text).unwrap();
            // Who only looks leaves it where it is.
            assert_eq!(peek(folder.path(), &Procfs::new("/proc")), None);
            let (saved, told) = state.load();
            assert_eq!(saved, None);
            assert!(told.unwrap().contains("set aside"), "{text}");
            assert_eq!(fs::read_to_string(folder.path().join(DAMAGED)).unwrap(), text);
            assert_eq!(state.load(), (None, None));
        }
        let mut newer = empty();
        newer.saved.version += 1;
        state.store(newer).unwrap();
        assert!(state.load().1.unwrap().contains("version 2"));
        // Nothing is left behind beside the three files.
        state.store(empty()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn what_was_left_unfinished_is_cleared_away() {
        let folder = tempfile::tempdir().unwrap();
        for left in [".memoryAb12Cd", ".memoryzzzzzz"] {
            fs::write(folder.path().join(left), "{").unwrap();
        }
        fs::write(folder.path().join("another"), "").unwrap();
        let first = take(folder.path()).unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().file_name());
        let mut left: Vec<_> = names().collect();
        left.sort();
        assert_eq!(left, ["another", LOCK]);
        // Who is refused touches nothing: the first one may be writing.
        fs::write(folder.path().join(".memoryAb12Cd"), "{").unwrap();
        take(folder.path()).unwrap_err();
        assert_eq!(names().count(), 3);
        drop(first);
    }

    #[test]
    fn a_folder_that_was_replaced_is_taken_anew_or_left_to_another() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("state");
        fs::create_dir(&folder).unwrap();
        let first = take(&folder).unwrap();
        first.store(empty()).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        first.store(empty()).unwrap_err();
        fs::create_dir(&folder).unwrap();
        first.store(empty()).unwrap();
        assert!(matches!(take(&folder).unwrap_err(), StateError::Taken { .. }));
        // Only the lock file; then another one was faster.
        fs::remove_file(folder.join(LOCK)).unwrap();
        first.store(empty()).unwrap();
        take(&folder).unwrap_err();
        fs::rename(&folder, outer.path().join("old")).unwrap();
        fs::create_dir(&folder).unwrap();
        let second = take(&folder).unwrap();
        let refused = first.store(empty()).unwrap_err();
        assert!(refused.to_string().contains("another instance"), "{refused}");
        assert!(!folder.join(MEMORY).exists());
        second.store(empty()).unwrap();
    }

    #[test]
    fn whatever_is_in_the_place_of_the_memory_makes_nobody_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(MEMORY);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let state = take(folder.path()).unwrap();
        assert!(state.load().1.unwrap().contains("no regular file"));
        assert_eq!(peek(folder.path(), &Procfs::new("/proc")), None);
        state.store(empty()).unwrap();
        assert_eq!(state.load().0, Some(empty()));
    }
}
