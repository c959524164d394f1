//! The safe next step for each file, as one line to copy.

use jiff::SignedDuration;

use super::signed;
use super::view::Evidence;
use super::words::{in_words, plain};
use crate::lock::{Lock, LockEntry, Stub, UnreadableWhy};
use crate::status::SeenEntry;

/// A damaged file this young may still be uploading.
const UPLOAD: SignedDuration = SignedDuration::from_secs(60);

impl Evidence<'_> {
    /// What to do about one file; `None` when there is nothing to do.
    pub fn step(&self, entry: &SeenEntry) -> Option<String> {
        match &entry.entry {
            LockEntry::Readable(lock) if self.is_of_file() => self.file_step(lock),
            LockEntry::Readable(_) if !self.is_dead(entry) => self.ask(entry),
            LockEntry::Readable(lock) => match self.endangered {
                None => Some(self.unlock(lock, entry)),
                Some(other) => self.ask(other).map(|line| {
                    format!("{line}; first: unlock would delete this one's living lock too")
                }),
            },
            LockEntry::Sealed(..) if self.is_dead(entry) && self.endangered.is_none() => {
                Some(format!("restic -r {} unlock", self.location))
            }
            LockEntry::Sealed(..) => Some(self.list()),
            LockEntry::Empty(_) => None,
            LockEntry::Unreadable(stub, why) => Some(self.remove(stub, *why)),
        }
    }

    /// Shows the ids of the locks; this command takes none itself.
    pub(super) fn list(&self) -> String {
        format!("restic -r {} list locks", self.location)
    }

    /// Asks the holder's host about its process.
    pub(super) fn ask(&self, entry: &SeenEntry) -> Option<String> {
        let LockEntry::Readable(lock) = &entry.entry else { return None };
        let host = host(lock);
        Some(match lock.holder.pid {
            Some(pid) if pid > 0 => format!("ps -o lstart,cmd -p {pid}   # on {host}"),
            Some(_) | None => format!("pgrep -a restic   # on {host}"),
        })
    }

    /// Asks the holder's host for its time.
    pub(super) fn ask_the_time(&self, entry: &SeenEntry) -> Option<String> {
        let LockEntry::Readable(lock) = &entry.entry else { return None };
        Some(format!("date -u   # on {}", host(lock)))
    }

    /// Removes a dead lock. Plain `unlock` follows restic's own rule, so it says when that agrees.
    fn unlock(&self, lock: &Lock, entry: &SeenEntry) -> String {
        let line = format!("restic -r {} unlock", self.location);
        let limit = signed(self.policy.stale_limit);
        let Some(own) = entry.entry.refreshed_at() else { return line };
        let age = self.since(own);
        if age > limit {
            return line;
        }
        let wait = in_words(limit.saturating_sub(age));
        match lock.liveness.gone() {
            Some(_) => format!("{line}   # on {}; elsewhere it works only in {wait}", host(lock)),
            None => format!("{line}   # works only in {wait}: the lock's time is ahead"),
        }
    }

    /// Removes what plain `unlock` leaves in place, with the reason and the danger in the line.
    fn remove(&self, stub: &Stub, why: UnreadableWhy) -> String {
        let name = plain(stub.id.as_str());
        let unlock = || {
            format!(
                "restic -r {} unlock --remove-all   # plain unlock keeps unreadable files; only \
                 when no restic runs on this repository, for it removes living locks too",
                self.location
            )
        };
        match why {
            UnreadableWhy::Hash | UnreadableWhy::Short
                if stub.stored_at.is_some_and(|at| self.since(at) < UPLOAD) =>
            {
                "# look again in a minute: the file may still be uploading".to_string()
            }
            UnreadableWhy::Hash
            | UnreadableWhy::Short
            | UnreadableWhy::Mac
            | UnreadableWhy::Encoding
            | UnreadableWhy::Json
            | UnreadableWhy::TooLarge => unlock(),
            UnreadableWhy::Name => format!(
                "# no restic command removes locks/{name}: delete it in the storage when no \
                 restic runs on this repository"
            ),
            UnreadableWhy::Missing => format!(
                "# ask whoever runs the storage why it lists locks/{name} and does not serve it"
            ),
        }
    }
}

/// The holder's host as a comment may hold it.
fn host(lock: &Lock) -> String {
    if lock.holder.hostname.is_empty() {
        "the holder's host".to_string()
    } else {
        plain(&lock.holder.hostname)
    }
}
