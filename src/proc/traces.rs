//! Which locks were seen on the file of a path, so that they are known once the file has lost it.
//!
//! A lock stays on a file that is moved away or replaced, and no name leads there. Kept in memory,
//! and as plain values for another process in the same boot. Whether a lock is still there is not
//! known here; what is read back may come from a damaged file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::kernel::LockRow;
use super::locks::{Class, FileKey};

/// Locks that are followed for one path.
pub const LOCKS_MAX: usize = 16;
/// Paths that are written down.
const PATHS_MAX: usize = 10_000;

/// A lock that was seen on the file of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Trace {
    /// The lock.
    pub lock: LockRow,
    /// When its file was made, which tells it from one that got its number later.
    pub born_at: Option<Timestamp>,
    /// Pid and start of the process that was first seen to have it.
    pub first: Option<(i32, u64)>,
}

/// The locks of one path, for the look that has the turn.
pub type OfPath = Arc<Mutex<Vec<Trace>>>;

/// The locks of all paths.
#[derive(Debug, Default)]
pub struct Traces(Mutex<BTreeMap<PathBuf, OfPath>>);

/// The same as plain values, by path.
pub type SavedTraces = BTreeMap<String, Vec<SavedTrace>>;

/// [`Trace`] as it is written down.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SavedTrace {
    device: (u32, u32),
    inode: u64,
    class: String,
    taker: i64,
    born_at: Option<Timestamp>,
    #[serde(default)]
    first: Option<(i32, u64)>,
}

impl Traces {
    /// What is known of a path; whoever asks shares it.
    pub fn of(&self, path: &Path) -> OfPath {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(paths.entry(path.to_owned()).or_default())
    }

    /// What is known now, without waiting for anybody. Paths that are no text are left out, and of
    /// too many the last.
    pub fn save(&self) -> SavedTraces {
        let paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = |(path, traces): (&PathBuf, &OfPath)| {
            // A look may have the turn, and hang.
            let traces = traces.try_lock().ok()?;
            let saved: Vec<_> = traces.iter().map(SavedTrace::from).collect();
            Some((path.to_str()?.to_owned(), saved)).filter(|(_, saved)| !saved.is_empty())
        };
        paths.iter().filter_map(saved).take(PATHS_MAX).collect()
    }

    /// Takes up what another process of the same boot knew, before the first look.
    pub fn restore(&self, saved: SavedTraces) {
        let mut paths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (path, saved) in saved.into_iter().take(PATHS_MAX) {
            let traces = saved.into_iter().filter_map(SavedTrace::into_trace).take(LOCKS_MAX);
            paths.insert(path.into(), Arc::new(Mutex::new(traces.collect())));
        }
    }
}

impl From<&Trace> for SavedTrace {
    fn from(&Trace { lock, born_at, first }: &Trace) -> Self {
        let FileKey { major, minor, inode } = lock.file;
        let class = lock.class.as_str().to_owned();
        Self { device: (major, minor), inode, class, taker: lock.taker, born_at, first }
    }
}

impl SavedTrace {
    fn into_trace(self) -> Option<Trace> {
        let classes = [Class::Flock, Class::Posix, Class::Ofd];
        let class = classes.into_iter().find(|class| class.as_str() == self.class)?;
        let file = FileKey { major: self.device.0, minor: self.device.1, inode: self.inode };
        let lock = LockRow { file, class, taker: self.taker };
        Some(Trace { lock, born_at: self.born_at, first: self.first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_knows_what_this_one_knew() {
        let (traces, path) = (Traces::default(), Path::new("/run/job.lock"));
        let file = FileKey { major: 0xfe, minor: 1, inode: u64::MAX };
        let lock = LockRow { file, class: Class::Ofd, taker: -1 };
        let trace = Trace { lock, born_at: Some(Timestamp::UNIX_EPOCH), first: Some((7, 8)) };
        traces.of(path).lock().unwrap().push(trace);
        traces.of(Path::new("/run/free.lock"));
        let text = serde_json::to_string(&traces.save()).unwrap();
        let next = Traces::default();
        next.restore(serde_json::from_str(&text).unwrap());
        assert_eq!(*next.of(path).lock().unwrap(), [trace]);
        assert_eq!(next.save(), traces.save());
        assert_eq!(traces.save().len(), 1);
    }

    #[test]
    fn what_nobody_wrote_is_left_out() {
        let text = r#"{"/a": [{"device": [1, 2], "inode": 3, "class": "x", "taker": 4, "born_at": null}]}"#;
        let traces = Traces::default();
        traces.restore(serde_json::from_str(text).unwrap());
        assert!(traces.of(Path::new("/a")).lock().unwrap().is_empty());
    }
}
