//! The vocabulary: every type that describes a lock as one scan found it.
//!
//! Only facts live here. What follows from them (fresh, stale, blocked) is computed by
//! [`crate::judge`], and what lasts longer than one scan (holds) by [`crate::tracker`]. This
//! module knows no clock, no backend and no file format.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

/// The name of one lock as of one scan: for `restic` the file name in `locks/`.
///
/// It changes at every refresh, so it never identifies a holder; see [`HoldKey`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId(Arc<str>);

impl LockId {
    /// Wraps a name as it was listed.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first ten characters, as people write lock ids in messages.
    pub fn short(&self) -> &str {
        self.0.char_indices().nth(10).map_or(&*self.0, |(end, _)| &self.0[..end])
    }
}

impl fmt::Debug for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockId({})", self.short())
    }
}

/// What stays equal while one holder keeps one lock, across all its refreshes.
///
/// Made by the source, opaque to everybody else. For restic it stands for host, user, uid, gid,
/// pid and mode (restic `internal/repository/lock_file.go`: nothing else in a lock survives a
/// refresh).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct HoldKey(Arc<str>);

impl HoldKey {
    /// Wraps a key made by a source.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(key.into())
    }

    /// The key as text, for ordering and for storing it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a lock tolerates others beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum LockMode {
    /// Tolerates no other lock (restic: `prune`, `forget`, `check`).
    Exclusive,
    /// Tolerates other shared locks (restic "non-exclusive": `backup` and most others).
    Shared,
}

impl LockMode {
    /// Both modes, in the order in which they are shown.
    pub const ALL: [LockMode; 2] = [LockMode::Exclusive, LockMode::Shared];

    /// The word used in labels, pages and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            LockMode::Exclusive => "exclusive",
            LockMode::Shared => "shared",
        }
    }
}

/// Who has a lock, in the lock's own words. Nothing here is trusted, escaped or bounded for
/// display: whoever may write into `locks/` chooses it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Holder {
    /// Host name as the holder wrote it; may be empty.
    pub hostname: Arc<str>,
    /// User name; may be empty, also when the holder could not look itself up.
    pub username: Arc<str>,
    /// Program name where the source knows it; restic locks do not name it.
    pub command: Arc<str>,
    /// Process id in the holder's own PID namespace; absent when the lock names none.
    pub pid: Option<i64>,
    /// Numeric user; absent in locks of root, on Windows, and when it is not known.
    pub uid: Option<u32>,
    /// Numeric group; absent as `uid` is.
    pub gid: Option<u32>,
}

/// How a lock proves that it is alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tenure {
    /// The holder renews it from time to time (restic, every 5 minutes).
    Leased {
        /// The lock's own time of the last refresh, by the holder's clock; absent when the lock
        /// states none (missing, `null` or the zero time).
        refreshed_at: Option<Timestamp>,
    },
    /// The kernel vouches for it and drops it with its last descriptor; it has no time at all.
    Kernel(Origin),
    /// The existence of a file is the lock; nothing ends it but the removal of the file.
    Present {
        /// The file's modification time.
        since: Timestamp,
    },
}

/// How the holder of a kernel lock came by it, as far as that is proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// It took the lock itself, or nothing is known.
    #[default]
    Untold,
    /// The process that took it has ended, which is no fault: so it is wherever a program takes a
    /// lock on a descriptor of the shell that started it.
    Through,
    /// A process that had it before has ended and left it to this one.
    Left,
}

/// Evidence about the holder's process, gathered by the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// The process is there and can be the holder.
    Alive,
    /// The same, in a PID namespace below that of this host.
    AliveNamespaced,
    /// It is there, stopped by a signal or a debugger: it cannot refresh.
    AliveStopped,
    /// It is there and has not refreshed for longer than a healthy holder could live with.
    AliveNotRefreshing,
    /// The process is proven gone.
    Gone(GoneReason),
    /// It would be proven gone if the host's name were its alone.
    Suspect(GoneReason),
    /// The holder is on another host.
    Foreign,
    /// Its pid is there and is another program: perhaps reused, perhaps a wrapper.
    OtherProgram,
    /// Several processes can be the holder.
    Ambiguous,
    /// Nothing is proven, because nobody looked or the processes cannot be seen.
    Unknown,
}

impl Liveness {
    /// The word used on pages and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Liveness::Alive => "alive",
            Liveness::AliveNamespaced => "alive_namespaced",
            Liveness::AliveStopped => "alive_stopped",
            Liveness::AliveNotRefreshing => "alive_not_refreshing",
            Liveness::Gone(reason) => reason.as_str(),
            Liveness::Suspect(_) => "suspect",
            Liveness::Foreign => "foreign",
            Liveness::OtherProgram => "other_program",
            Liveness::Ambiguous => "ambiguous",
            Liveness::Unknown => "unknown",
        }
    }

    /// Why the holder is certainly gone, if it is.
    pub fn gone(self) -> Option<GoneReason> {
        match self {
            Liveness::Gone(reason) => Some(reason),
            Liveness::Alive
            | Liveness::AliveNamespaced
            | Liveness::AliveStopped
            | Liveness::AliveNotRefreshing
            | Liveness::Suspect(_)
            | Liveness::Foreign
            | Liveness::OtherProgram
            | Liveness::Ambiguous
            | Liveness::Unknown => None,
        }
    }

    /// Whether a process is there that can be the holder.
    pub fn is_alive(self) -> bool {
        match self {
            Liveness::Alive
            | Liveness::AliveNamespaced
            | Liveness::AliveStopped
            | Liveness::AliveNotRefreshing => true,
            Liveness::Gone(_)
            | Liveness::Suspect(_)
            | Liveness::Foreign
            | Liveness::OtherProgram
            | Liveness::Ambiguous
            | Liveness::Unknown => false,
        }
    }
}

/// Why a holder is certainly gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum GoneReason {
    /// Its host booted after the lock's time.
    Rebooted,
    /// No process has its pid.
    Gone,
    /// Its pid belongs to a process that started after the lock's time.
    Reused,
}

impl GoneReason {
    /// The word used on pages and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            GoneReason::Rebooted => "rebooted",
            GoneReason::Gone => "gone",
            GoneReason::Reused => "reused",
        }
    }
}

/// What a listing alone tells about a lock file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stub {
    /// File name.
    pub id: LockId,
    /// Bytes, as listed.
    pub size: u64,
    /// The backend's modification time; absent where the backend has none (rest-server).
    pub stored_at: Option<Timestamp>,
}

/// One lock that could be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lock {
    /// File name, size, storage time.
    pub stub: Stub,
    /// What stays equal across refreshes.
    pub key: HoldKey,
    /// Exclusive or shared.
    pub mode: LockMode,
    /// Who has it.
    pub holder: Holder,
    /// How it proves that it is alive.
    pub tenure: Tenure,
    /// What is known about its process.
    pub liveness: Liveness,
    /// Set when the file decodes as a lock but is probably something else, such as a snapshot
    /// copied into `locks/`; says why. It blocks all the same.
    pub doubt: Option<&'static str>,
}

/// Why a lock file is sealed: it is there, and *we* may not or cannot open it (yet).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SealedWhy {
    /// The target has no password.
    NoKey,
    /// The target's key is still being derived.
    KeyPending,
    /// Reading it was refused; the text names operation and place.
    Permission(Arc<str>),
    /// It lies in an archive tier that cannot be read at once.
    Archived,
    /// It was listed but not found when read, in fewer than three scans running.
    NotServed,
}

impl SealedWhy {
    /// The reason as one word, for pages and JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            SealedWhy::NoKey => "no_key",
            SealedWhy::KeyPending => "key_pending",
            SealedWhy::Permission(_) => "permission",
            SealedWhy::Archived => "archived",
            SealedWhy::NotServed => "not_served",
        }
    }
}

/// Why nobody can decode a lock file. Since restic 0.15 such a file blocks every command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum UnreadableWhy {
    /// The name is not the SHA-256 of the bytes.
    Hash,
    /// Fewer than 32 bytes.
    Short,
    /// The message authentication code does not fit the repository's key.
    Mac,
    /// Neither JSON nor the compression that restic writes.
    Encoding,
    /// Not the JSON of a lock.
    Json,
    /// Larger than any lock; not downloaded.
    TooLarge,
    /// restic takes the name for a lock's and fails to load it: upper case, a folder.
    Name,
    /// Listed, yet not found in three scans running.
    Missing,
}

impl UnreadableWhy {
    /// The reason as one word, for pages and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            UnreadableWhy::Hash => "hash",
            UnreadableWhy::Short => "short",
            UnreadableWhy::Mac => "mac",
            UnreadableWhy::Encoding => "encoding",
            UnreadableWhy::Json => "json",
            UnreadableWhy::TooLarge => "too_large",
            UnreadableWhy::Name => "name",
            UnreadableWhy::Missing => "missing",
        }
    }
}

/// One listed lock file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LockEntry {
    /// It was opened; everything about it is known. Shared, because a lock is read once and then
    /// appears in every scan until it vanishes.
    Readable(Arc<Lock>),
    /// It is there but closed to us.
    Sealed(Stub, SealedWhy),
    /// A file of 0 bytes: no lock, blocks nobody.
    Empty(Stub),
    /// Nobody can decode it; blocks everybody.
    Unreadable(Stub, UnreadableWhy),
}

impl LockEntry {
    /// File name, size and storage time, which every entry has.
    pub fn stub(&self) -> &Stub {
        match self {
            LockEntry::Readable(lock) => &lock.stub,
            LockEntry::Sealed(stub, _)
            | LockEntry::Empty(stub)
            | LockEntry::Unreadable(stub, _) => stub,
        }
    }

    /// The lock's own time: by the holder's clock, or the modification time of a file whose
    /// existence is the lock.
    pub fn refreshed_at(&self) -> Option<Timestamp> {
        match self {
            LockEntry::Readable(lock) => match lock.tenure {
                Tenure::Leased { refreshed_at } => refreshed_at,
                Tenure::Present { since } => Some(since),
                Tenure::Kernel(_) => None,
            },
            LockEntry::Sealed(..) | LockEntry::Empty(_) | LockEntry::Unreadable(..) => None,
        }
    }
}

impl LockEntry {
    /// Whether its holder renews it: then one look without it is a refresh on its way, and its
    /// time is by the holder's clock. What is no lock that we can read counts as such.
    pub fn is_leased(&self) -> bool {
        match self {
            LockEntry::Readable(lock) => match lock.tenure {
                Tenure::Leased { .. } => true,
                Tenure::Kernel(_) | Tenure::Present { .. } => false,
            },
            LockEntry::Sealed(..) | LockEntry::Empty(_) | LockEntry::Unreadable(..) => true,
        }
    }
}

/// The rhythm that a source's holders keep, and the limits that follow from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeasePolicy {
    /// A healthy holder refreshes this often.
    pub refresh_every: Duration,
    /// Without a refresh for this long a holder makes a last attempt or gives up.
    pub refresh_deadline: Duration,
    /// Strictly older than this is stale.
    pub stale_limit: Duration,
}
