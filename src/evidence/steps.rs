//! The safe next step for each file: one line to copy, and what to know before.
//!
//! A line is one command that stays harmless in any shell, also in one to which `#` begins no
//! comment: nothing in it is a shell's syntax but the quotes around the repository.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::signed;
use super::view::Evidence;
use super::words::{in_words, plain};
use crate::lock::{GoneReason, Lock, LockEntry, Stub, UnreadableWhy};
use crate::status::SeenEntry;

/// A damaged file this young may still be uploading.
const UPLOAD: SignedDuration = SignedDuration::from_secs(60);

/// Before an `unlock` that may ask the process of a lock that cannot be read.
const UNSEEN_HOLDER: &str = "run it where no restic runs: its holder cannot be read, and unlock \
                             sends a real SIGHUP to the process that a lock of its own host names";

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
                Step::run(format!("restic -r {} unlock", self.location)).but(UNSEEN_HOLDER)
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

    /// Removes a dead lock. Plain `unlock` follows restic's own rule, so it says when that agrees,
    /// and where it is dangerous: of a lock under the limit it asks the process by a real signal,
    /// on the host that the lock names (restic `internal/repository/lock_file.go`, `stale`).
    fn unlock(&self, lock: &Lock, entry: &SeenEntry) -> Step {
        let step = Step::run(format!("restic -r {} unlock", self.location));
        let Some(wait) = self.asked_for(entry) else {
            return match self.also_asked() {
                Some(note) => step.but(note),
                None => step,
            };
        };
        let limit = in_words(signed(self.policy.stale_limit));
        let (wait, host, pid) = (in_words(wait), host(lock), pid(lock));
        step.but(match lock.liveness.gone() {
            Some(GoneReason::Gone) => format!(
                "run it on {host}, where restic asks {pid} by a real SIGHUP and finds nobody; \
                 elsewhere it removes only what is over {limit} old, this one in {wait}"
            ),
            Some(GoneReason::Rebooted | GoneReason::Reused) => format!(
                "not on {host}, where restic sends a real SIGHUP to {pid}, another program's by \
                 now; elsewhere it removes only what is over {limit} old, this one in {wait}"
            ),
            None => format!(
                "restic removes it only in {wait}, because the lock's time is ahead; until then \
                 it sends a real SIGHUP to {pid} when run on {host}"
            ),
        })
    }

    /// For how much longer `unlock` asks the process of a lock instead of going by its age; `None`
    /// when it does not.
    fn asked_for(&self, entry: &SeenEntry) -> Option<SignedDuration> {
        let limit = signed(self.policy.stale_limit);
        let age = self.until_now(entry.entry.refreshed_at()?);
        (age <= limit).then(|| limit.saturating_sub(age))
    }

    /// Whom `unlock` signals in passing: the holders of the locks that are not old, each on its
    /// own host. A living restic ignores that.
    fn also_asked(&self) -> Option<String> {
        let mut hosts = BTreeMap::new();
        for seen in &self.seen.entries {
            match &seen.entry {
                LockEntry::Readable(lock) if self.asked_for(seen).is_some() => {
                    hosts.insert(host(lock), pid(lock));
                }
                LockEntry::Sealed(..) if !self.verdict(seen).is_stale() => {
                    return Some(UNSEEN_HOLDER.to_string());
                }
                LockEntry::Readable(_)
                | LockEntry::Sealed(..)
                | LockEntry::Empty(_)
                | LockEntry::Unreadable(..) => {}
            }
        }
        let (host, pid) = hosts.first_key_value()?;
        Some(match hosts.len() - 1 {
            0 => format!(
                "run on {host} it also sends a real SIGHUP to {pid}: restic ignores it, another \
                 program ends"
            ),
            more => format!(
                "run on {host} it also sends a real SIGHUP to {pid}, and likewise on {more} other \
                 hosts: restic ignores it, another program ends"
            ),
        })
    }

    /// A lock that nothing proves dead.
    fn living(&self) -> Option<&SeenEntry> {
        self.seen.entries.iter().find(|other| match &other.entry {
            LockEntry::Readable(_) | LockEntry::Sealed(..) => !self.is_dead(other),
            LockEntry::Empty(_) | LockEntry::Unreadable(..) => false,
        })
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
            | UnreadableWhy::TooLarge => match self.living() {
                Some(other) => match &other.entry {
                    LockEntry::Readable(_) => self.ask(other),
                    _ => self.list(),
                }
                .but(
                    "wait until this one has ended: what removes the unreadable file, unlock \
                     --remove-all, removes its living lock too",
                ),
                None => Step::run(format!("restic -r {} unlock --remove-all", self.location)).but(
                    "only when no restic runs on this repository, for it removes living locks \
                     too; plain unlock keeps unreadable files",
                ),
            },
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

/// The holder's host in a sentence.
fn host(lock: &Lock) -> String {
    match lock.holder.hostname.is_empty() {
        true => "the holder's host".to_string(),
        false => plain(&lock.holder.hostname),
    }
}

/// The holder's process in a sentence.
fn pid(lock: &Lock) -> String {
    lock.holder.pid.map_or("its process".to_string(), |pid| format!("pid {pid}"))
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
