//! The safe next step for each file: one line to copy, and what to know before.
//!
//! A line is one command that stays harmless in any shell, also in one to which `#` begins no
//! comment: nothing in it is a shell's syntax but the quotes around the repository.

use jiff::SignedDuration;

use super::signed;
use super::view::Evidence;
use super::words::{in_words, plain};
use crate::lock::{Lock, LockEntry, Stub, UnreadableWhy};
use crate::status::SeenEntry;

/// A damaged file this young may still be uploading.
const UPLOAD: SignedDuration = SignedDuration::from_secs(60);

/// What to do next.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Step {
    /// What to know before doing it, or what to do where no command does it: one sentence
    /// without an end mark, on one line.
    pub note: Option<String>,
    /// One line to copy.
    pub line: Option<String>,
}

impl Step {
    pub(super) fn run(line: String) -> Self {
        Self { note: None, line: Some(line) }
    }

    fn note(note: String) -> Self {
        Self { note: Some(note), line: None }
    }

    pub(super) fn but(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }
}

impl Evidence<'_> {
    /// What to do about one file.
    pub fn step(&self, entry: &SeenEntry) -> Step {
        match &entry.entry {
            LockEntry::Readable(lock) if self.is_of_file() => self.file_step(lock),
            LockEntry::Readable(_) if !self.is_dead(entry) => self.ask(entry),
            LockEntry::Readable(lock) => match self.endangered {
                None => self.unlock(lock, entry),
                Some(other) => self
                    .ask(other)
                    .but("first ask for this one: unlock would delete its living lock too"),
            },
            LockEntry::Sealed(..) if self.is_dead(entry) && self.endangered.is_none() => {
                Step::run(format!("restic -r {} unlock", self.location)).but(
                    "run it where no restic runs: its holder cannot be read, and unlock sends a \
                     real SIGHUP to the process that a lock of its own host names",
                )
            }
            LockEntry::Sealed(..) => self.list(),
            LockEntry::Empty(_) => Step::default(),
            LockEntry::Unreadable(stub, why) => self.remove(stub, *why),
        }
    }

    /// Shows the ids of the locks; this command takes none itself.
    pub(super) fn list(&self) -> Step {
        Step::run(format!("restic -r {} list locks", self.location))
    }

    /// Asks the holder's host about its process.
    pub(super) fn ask(&self, entry: &SeenEntry) -> Step {
        let LockEntry::Readable(lock) = &entry.entry else { return Step::default() };
        let host = host_in_comment(lock);
        Step::run(match lock.holder.pid {
            Some(pid) if pid > 0 => format!("ps -o stat,lstart,cmd -p {pid}   # on {host}"),
            Some(_) | None => format!("pgrep -a restic   # on {host}"),
        })
    }

    /// Asks the holder's host for its time.
    pub(super) fn ask_the_time(&self, entry: &SeenEntry) -> Step {
        let LockEntry::Readable(lock) = &entry.entry else { return Step::default() };
        Step::run(format!("date -u   # on {}", host_in_comment(lock)))
    }

    /// Removes a dead lock. Plain `unlock` follows restic's own rule, so it says when that agrees.
    fn unlock(&self, lock: &Lock, entry: &SeenEntry) -> Step {
        let step = Step::run(format!("restic -r {} unlock", self.location));
        let limit = signed(self.policy.stale_limit);
        let Some(own) = entry.entry.refreshed_at() else { return step };
        let age = self.since(own);
        if age > limit {
            return step;
        }
        let wait = in_words(limit.saturating_sub(age));
        match lock.liveness.gone() {
            Some(_) => {
                let host = match lock.holder.hostname.is_empty() {
                    true => "the holder's host".to_string(),
                    false => plain(&lock.holder.hostname),
                };
                step.but(format!("run it on {host}: elsewhere it works only in {wait}"))
            }
            None => step.but(format!("it works only in {wait}, because the lock's time is ahead")),
        }
    }

    /// Removes what plain `unlock` leaves in place, with the reason and the danger.
    fn remove(&self, stub: &Stub, why: UnreadableWhy) -> Step {
        let name = plain(stub.id.as_str());
        match why {
            UnreadableWhy::Hash | UnreadableWhy::Short
                if stub.stored_at.is_some_and(|at| self.since(at) < UPLOAD) =>
            {
                Step::note("look again in a minute: the file may still be uploading".to_string())
            }
            UnreadableWhy::Hash
            | UnreadableWhy::Short
            | UnreadableWhy::Mac
            | UnreadableWhy::Encoding
            | UnreadableWhy::Json
            | UnreadableWhy::TooLarge => {
                Step::run(format!("restic -r {} unlock --remove-all", self.location)).but(
                    "only when no restic runs on this repository, for it removes living locks \
                     too; plain unlock keeps unreadable files",
                )
            }
            UnreadableWhy::Name => Step::note(format!(
                "no restic command removes locks/{name}: delete it in the storage when no restic \
                 runs on this repository"
            )),
            UnreadableWhy::Missing => Step::note(format!(
                "ask whoever runs the storage why it lists locks/{name} and does not serve it"
            )),
        }
    }
}

/// The holder's host as a line to copy may hold it: its name is foreign, and not every shell
/// takes `#` for the begin of a comment.
fn host_in_comment(lock: &Lock) -> String {
    const CHARS_MAX: usize = 120;
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    let name = lock.holder.hostname.chars().take(CHARS_MAX).enumerate();
    // A first dash would make an option of it.
    let safe = |(index, c)| if is_safe(c) && (index, c) != (0, '-') { c } else { '?' };
    let name: String = name.map(safe).collect();
    if name.is_empty() { "its host".to_string() } else { name }
}
