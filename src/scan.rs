//! One pass over one target, as a value: what was found, or why nothing could be found.
//!
//! A failed scan carries no entries at all, so it can never look like "no locks". This module
//! does no I/O and judges nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::lock::LockEntry;
use crate::target::TargetSpec;

/// The result of one scan of one target.
#[derive(Clone, Debug)]
pub struct Scan {
    /// Which target was looked at, as it was specified then.
    pub spec: Arc<TargetSpec>,
    /// When the scan began, by the exporter's clock as it was when the scan ended.
    pub started_at: Timestamp,
    /// When it ended, by the exporter's clock.
    pub ended_at: Timestamp,
    /// The boot-time clock when it ended: it counts seconds, also while the machine sleeps, and
    /// never steps. With `ended_at` it tells a step of the exporter's clock from time that passed.
    pub boot: Duration,
    /// How long it took, by a monotonic clock.
    pub took: Duration,
    /// What was found, or why it failed.
    pub outcome: Result<Look, ScanError>,
}

/// Everything one successful scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Every lock file that the listing named, each once.
    pub entries: Vec<LockEntry>,
    /// Names that are no locks.
    pub ignored: Ignored,
    /// What became known about the target itself.
    pub facts: Facts,
    /// Files that the source's listing named and that were gone when read, and gone from a second
    /// listing too: refreshes and releases in progress. A count, for the page.
    pub vanished: u32,
}

/// Names in the folder of locks that are no locks: temporary files, strays of other programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// How many.
    pub count: u64,
    /// The first few names, made printable.
    pub examples: Vec<Arc<str>>,
}

impl Ignored {
    /// No more names than this are kept.
    pub const EXAMPLES_MAX: usize = 5;

    /// Counts one more name.
    pub fn add(&mut self, name: &str) {
        self.count += 1;
        if self.examples.len() < Self::EXAMPLES_MAX {
            let shown: String = name.escape_default().take(80).collect();
            self.examples.push(shown.into());
        }
    }
}

/// What a scan knows about the target apart from its locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// True when no lock file can be opened because there is no key (yet): holders unknown.
    pub sealed: bool,
    /// True when that is only until a key derivation ends, see
    /// [`crate::source::LockSource::ready`].
    pub key_pending: bool,
    /// Why the scan could not tell whether a lock is held, although nothing failed; then there are
    /// no entries, and they say nothing.
    pub unknown: Option<UnknownWhy>,
    /// Requests that wait for a lock of this target; absent where that cannot be known.
    pub waiters: Option<u64>,
    /// Locks still held on a deleted or replaced file of this path; absent for repositories.
    pub orphaned: Option<u64>,
    /// More about the target for the page and JSON, e.g. `repository_version` → `2`. Few, short.
    pub details: BTreeMap<&'static str, Arc<str>>,
}

/// Why nobody can tell from here whether a lock is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum UnknownWhy {
    /// Locks of processes outside the exporter's PID namespace are hidden from it.
    Namespace,
    /// A file system whose other clients' locks this kernel does not know.
    RemoteFs,
    /// Files of two subvolumes share one number, and whose the lock is cannot be read.
    Ambiguous,
    /// The path is of a kind that cannot be such a lock file.
    NotAFile,
    /// It is no lock but a search: what it finds are targets of their own.
    Search,
}

impl UnknownWhy {
    /// The reason as one word, for pages and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            UnknownWhy::Namespace => "namespace",
            UnknownWhy::RemoteFs => "remote_fs",
            UnknownWhy::Ambiguous => "ambiguous",
            UnknownWhy::NotAFile => "not_a_file",
            UnknownWhy::Search => "search",
        }
    }
}

/// Why a scan failed. The words are the `reason` label of the metrics and the log field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ErrorClass {
    /// The target's own configuration: a secret file, a secret command, a program that is missing.
    Config,
    /// The backend does not accept the credentials.
    Auth,
    /// The credentials are accepted but may not do this.
    Permission,
    /// There is no repository at this place.
    NotFound,
    /// A repository is or was there, but a part without which nothing can be read is gone or empty.
    Damaged,
    /// No key of the repository opens with the password.
    WrongPassword,
    /// A format version or a key derivation that is not supported or over the bounds.
    Unsupported,
    /// The time limit passed.
    Timeout,
    /// The backend could not be reached.
    Network,
    /// The backend's certificate or the TLS handshake.
    Tls,
    /// The backend asks for fewer requests.
    Throttled,
    /// An answer that the backend should never give.
    Protocol,
    /// The listing was cut short or is larger than the bound.
    Incomplete,
    /// A fault of the exporter itself.
    Internal,
    /// None of the others.
    Other,
}

impl ErrorClass {
    /// Every class, in the order of the documentation.
    pub const ALL: [ErrorClass; 15] = [
        ErrorClass::Config,
        ErrorClass::Auth,
        ErrorClass::Permission,
        ErrorClass::NotFound,
        ErrorClass::Damaged,
        ErrorClass::WrongPassword,
        ErrorClass::Unsupported,
        ErrorClass::Timeout,
        ErrorClass::Network,
        ErrorClass::Tls,
        ErrorClass::Throttled,
        ErrorClass::Protocol,
        ErrorClass::Incomplete,
        ErrorClass::Internal,
        ErrorClass::Other,
    ];

    /// What helps in most cases, for errors that know no better.
    pub fn advice(self) -> &'static str {
        match self {
            ErrorClass::Config => "Correct the target's configuration.",
            ErrorClass::Auth => "Check the credentials: `restic cat config` must work with them.",
            ErrorClass::Permission => {
                "Grant the right to list `locks/` and `keys/` and to read what is in them."
            }
            ErrorClass::NotFound => "Check the location: `restic cat config` must work with it.",
            ErrorClass::Damaged => "Look at the repository with `restic check`.",
            ErrorClass::WrongPassword => {
                "Check the password: `restic cat config` must work with it."
            }
            ErrorClass::Unsupported => "This exporter cannot watch it; see the limits in README.",
            ErrorClass::Timeout => {
                "Look at the backend; if it is just slow, raise the target's timeout."
            }
            ErrorClass::Network => "Check the address, and that the backend runs.",
            ErrorClass::Tls => "Check the certificate, or name its authority with `cacert`.",
            ErrorClass::Throttled => "Scan less often: raise the target's interval.",
            ErrorClass::Protocol => "Ask the address with curl: something else may answer there.",
            ErrorClass::Incomplete => "Look at what else lies in the folder of locks.",
            ErrorClass::Internal => "Please report it with the log.",
            ErrorClass::Other => "Try the same with restic; its words may tell more.",
        }
    }

    /// The word used as label value and log field.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorClass::Config => "config",
            ErrorClass::Auth => "auth",
            ErrorClass::Permission => "permission",
            ErrorClass::NotFound => "not_found",
            ErrorClass::Damaged => "damaged",
            ErrorClass::WrongPassword => "wrong_password",
            ErrorClass::Unsupported => "unsupported",
            ErrorClass::Timeout => "timeout",
            ErrorClass::Network => "network",
            ErrorClass::Tls => "tls",
            ErrorClass::Throttled => "throttled",
            ErrorClass::Protocol => "protocol",
            ErrorClass::Incomplete => "incomplete",
            ErrorClass::Internal => "internal",
            ErrorClass::Other => "other",
        }
    }
}

/// A failed scan in words. None of the texts holds a secret, a line break or more than a few
/// hundred bytes: they go to logs, pages and JSON as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanError {
    /// The kind of failure.
    pub class: ErrorClass,
    /// What was tried, with the place relative to the target: `read locks/3f0f6bfd…`.
    pub doing: Arc<str>,
    /// What went wrong, in the words of the system that said so.
    pub cause: Arc<str>,
    /// What a person can do next; a full sentence.
    pub advice: Arc<str>,
    /// How long the backend asks to be left alone, where it says so.
    pub wait: Option<Duration>,
}

impl ScanError {
    /// Longer texts are cut.
    pub const TEXT_MAX: usize = 400;

    /// Makes an error from its parts; texts are cleaned of line breaks and cut. Without advice of
    /// its own it gets that of its class.
    pub fn new(class: ErrorClass, doing: &str, cause: &str, advice: &str) -> Self {
        let advice = if advice.is_empty() { class.advice() } else { advice };
        let (doing, cause, advice) = (clean(doing), clean(cause), clean(advice));
        Self { class, doing, cause, advice, wait: None }
    }

    /// The same, from a backend that asks to be left alone for so long.
    pub fn asked_to_wait(self, wait: Option<Duration>) -> Self {
        Self { wait, ..self }
    }
}

fn clean(text: &str) -> Arc<str> {
    let mut out = String::with_capacity(text.len().min(ScanError::TEXT_MAX));
    for word in text.split(|c: char| c.is_control() || c.is_whitespace()) {
        if word.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
        if out.len() > ScanError::TEXT_MAX {
            let mut end = ScanError::TEXT_MAX;
            while !out.is_char_boundary(end) {
                end -= 1;
            }
            out.truncate(end);
            out.push('…');
            break;
        }
    }
    out.into()
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.doing, self.cause, self.advice)
    }
}

impl std::error::Error for ScanError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_are_one_short_line() {
        let long = format!("<xml>\n\t{}</xml>\u{1b}[31m", "é".repeat(1000));
        let error = ScanError::new(ErrorClass::Other, "list locks/", &long, "");
        assert!(error.cause.len() <= ScanError::TEXT_MAX + '…'.len_utf8());
        assert!(!error.cause.chars().any(char::is_control));
        assert_eq!(error.to_string().lines().count(), 1);
    }

    #[test]
    fn class_words_are_unique() {
        let words: std::collections::BTreeSet<_> =
            ErrorClass::ALL.iter().map(|class| class.as_str()).collect();
        assert_eq!(words.len(), ErrorClass::ALL.len());
    }
}
