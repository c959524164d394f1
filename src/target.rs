//! What is watched: names, specifications, and the set of all targets as one value.
//!
//! Everything here is plain data made by the configuration and from what a search finds; secrets
//! are only referred to. No I/O, no clock.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::location::Location;
use crate::pattern::{Glob, Pattern};
use crate::secret::{EnvSpec, PasswordSpec};

mod found;

pub use found::{NAME, names_each};

/// The name of a target: the `target` label. Unique in the fleet.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TargetName(Arc<str>);

/// Why a text cannot name a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadName {
    /// Nothing at all.
    #[error("a target name must not be empty")]
    Empty,
    /// Over the limit.
    #[error("a target name may have at most {} bytes", TargetName::BYTES_MAX)]
    TooLong,
    /// A control character, or the replacement character that PromQL refuses.
    #[error("a target name must not hold control characters or U+FFFD")]
    Control,
}

impl TargetName {
    /// Longest name, in bytes.
    pub const BYTES_MAX: usize = 256;
    /// Longest name that is configured, so that what is found below it has room for more.
    pub const CONFIGURED_BYTES_MAX: usize = 128;

    /// Checks a name.
    ///
    /// # Errors
    /// [`BadName`] when it is empty, too long or cannot be queried.
    pub fn new(name: &str) -> Result<Self, BadName> {
        if name.is_empty() {
            Err(BadName::Empty)
        } else if name.len() > Self::BYTES_MAX {
            Err(BadName::TooLong)
        } else if name.chars().any(|c| c.is_control() || c == '\u{FFFD}') {
            Err(BadName::Control)
        } else {
            Ok(Self(name.into()))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a name is that of a find, when this is the name of a search.
    pub fn is_above(&self, name: &str) -> bool {
        name.strip_prefix(self.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TargetName({:?})", &*self.0)
    }
}

/// One value for each mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PerMode<T> {
    /// For exclusive locks.
    pub exclusive: T,
    /// For shared locks.
    pub shared: T,
}

/// Everything about one target that does not change while it is watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetSpec {
    /// Its name.
    pub name: TargetName,
    /// How often it is scanned.
    pub interval: Duration,
    /// How often while the last scan saw no lock file; never less than `interval`.
    pub idle_interval: Duration,
    /// How long one scan may take; waiting for a key derivation does not count.
    pub timeout: Duration,
    /// A hold longer than this is *held over its limit*; none = never.
    pub hold_limit: PerMode<Option<Duration>>,
    /// A hold not refreshed for this long is *stuck*; none = never.
    pub stuck_limit: PerMode<Option<Duration>>,
    /// The watched machine's name where the locks belong to one machine (`local` repositories,
    /// lock files); empty otherwise. The `host` label.
    pub host: Arc<str>,
    /// What is watched, and how.
    pub source: SourceSpec,
}

impl TargetSpec {
    /// The name of the source: the `source` label. Of a search that of what it finds.
    pub fn source_name(&self) -> &'static str {
        match self.source.watched() {
            Watched::Restic(_) => "restic",
            Watched::File(_) => "file",
        }
    }

    /// The scheme of the repository string: the `backend` label; empty for lock files.
    pub fn backend(&self) -> &'static str {
        match self.source.watched() {
            Watched::Restic(spec) => spec.repository.scheme(),
            Watched::File(_) => "",
        }
    }

    /// How often it is scanned while it has no lock, where that makes a difference. A search is
    /// always repeated each interval.
    pub fn idle(&self) -> Option<Duration> {
        (self.idle_interval > self.interval && self.search().is_none())
            .then_some(self.idle_interval)
    }

    /// Where it is, or where it is searched, without credentials and query.
    pub fn location(&self) -> String {
        match self.source.watched() {
            Watched::Restic(spec) => spec.repository.to_string(),
            Watched::File(spec) => spec.path.to_string_lossy().into_owned(),
        }
    }

    /// Where it is, for comparing: one form for all strings that surely mean one place.
    pub fn place(&self) -> String {
        match self.source.watched() {
            Watched::Restic(spec) => spec.repository.place(),
            Watched::File(spec) => {
                spec.path.components().collect::<PathBuf>().to_string_lossy().into_owned()
            }
        }
    }

    /// What proves that a lock of this target is held.
    pub fn proof(&self) -> Proof {
        match self.source.watched() {
            Watched::Restic(_) => Proof::Lease,
            Watched::File(spec) => match spec.format {
                FileFormat::Kernel => Proof::Kernel,
                FileFormat::Pid | FileFormat::Exists => Proof::Presence,
            },
        }
    }

    /// Whether both speak of the same thing in the same place, however it is watched.
    pub fn is_same_place(&self, other: &TargetSpec) -> bool {
        self.source_name() == other.source_name()
            && self.backend() == other.backend()
            && self.place() == other.place()
            && self.search().is_some() == other.search().is_some()
    }

    /// The search that this is, if it is no target but finds them.
    pub fn search(&self) -> Option<&SearchSpec> {
        match &self.source {
            SourceSpec::Search(search) => Some(search),
            SourceSpec::Restic(_) | SourceSpec::File(_) => None,
        }
    }

    /// Whether it has series and a row of its own here. A search runs in every shard and has them
    /// in one.
    pub fn is_shown(&self) -> bool {
        self.search().is_none_or(|search| search.is_shown)
    }
}

/// What proves that a lock is held; it decides which metrics make sense.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Proof {
    /// The holder renews it.
    Lease,
    /// The kernel says so.
    Kernel,
    /// A file is there.
    Presence,
}

/// What is watched, by the source that can read it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are few of them, and each is shared")]
pub enum SourceSpec {
    /// A restic repository.
    Restic(ResticSpec),
    /// A lock file of this machine.
    File(FileSpec),
    /// A place below which targets are found.
    Search(SearchSpec),
}

/// The specification of what is watched: a target's own, or the one that every find of a search
/// begins as.
#[derive(Clone, Copy, Debug)]
pub enum Watched<'a> {
    /// Of a repository; of a search its repository is where the search begins.
    Restic(&'a ResticSpec),
    /// Of a lock file; of a search its path is the pattern.
    File(&'a FileSpec),
}

impl SourceSpec {
    /// What is watched, directly or by a search.
    pub fn watched(&self) -> Watched<'_> {
        match self {
            SourceSpec::Restic(spec) => Watched::Restic(spec),
            SourceSpec::File(spec) => Watched::File(spec),
            SourceSpec::Search(search) => match &search.sought {
                Sought::Repositories(sought) => Watched::Restic(&sought.each),
                Sought::Files(sought) => Watched::File(&sought.each),
            },
        }
    }
}

/// A place that is searched from time to time, and what is made of each find.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SearchSpec {
    /// What is searched for.
    pub sought: Sought,
    /// More finds than this are an error: a search that went astray.
    pub max: usize,
    /// See [`TargetSpec::is_shown`].
    pub is_shown: bool,
}

/// What is searched for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are few of them, and each is shared")]
pub enum Sought {
    /// restic repositories.
    Repositories(Repositories),
    /// Lock files whose path matches.
    Files(Files),
}

/// restic repositories below a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repositories {
    /// Each of them, with the place where the search begins for its own. [`NAME`] in the paths of
    /// its secrets stands for the path below that place.
    pub each: ResticSpec,
    /// How many levels below the start are looked into; 0 is the start alone.
    pub depth: u32,
    /// Places that are passed over, with everything below them.
    pub exclude: Vec<Pattern>,
    /// Repositories that are meant; all when there is no pattern.
    pub include: Vec<Pattern>,
}

/// Lock files whose path matches a pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// Each of them, with the pattern for its own path.
    pub each: FileSpec,
    /// The pattern.
    pub glob: Glob,
}

/// A lock file, and how it is used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileSpec {
    /// Where it is; absolute, below `--path.rootfs`.
    pub path: PathBuf,
    /// Whether holding it is the rule or the exception.
    pub role: Role,
    /// What of the file is the lock.
    pub format: FileFormat,
}

/// How a lock file is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Role {
    /// Held while a job runs.
    #[default]
    Job,
    /// Held always, by the one instance of a service.
    Daemon,
}

/// What of a lock file is the lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FileFormat {
    /// A lock of the kernel on it: flock, fcntl. Its presence means nothing.
    #[default]
    Kernel,
    /// Its presence; it names the holder's process.
    Pid,
    /// Its presence.
    Exists,
}

impl FileFormat {
    /// The word used in the configuration, on pages and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            FileFormat::Kernel => "kernel",
            FileFormat::Pid => "pid",
            FileFormat::Exists => "exists",
        }
    }
}

/// How to reach and open one restic repository. Names follow restic's own options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResticSpec {
    /// Where the repository is.
    pub repository: Location,
    /// How to open it.
    pub password: PasswordSpec,
    /// The variables that restic would see.
    pub env: EnvSpec,
    /// restic's `-o`: `s3.bucket-lookup` → `path`.
    pub options: BTreeMap<String, String>,
    /// The start of the id of the key to try first.
    pub key_hint: Option<String>,
    /// Certificate authorities to trust beside the system's; PEM files.
    pub cacert: Vec<PathBuf>,
    /// Trust any certificate.
    pub insecure_tls: bool,
}

/// All targets, as a value: start-up, reload and discovery make a new one, scanner and tracker
/// follow it on a watch channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetSet(Arc<BTreeMap<TargetName, Arc<TargetSpec>>>);

impl TargetSet {
    /// Makes a set; of specifications with one name the last one stays, so whoever makes it from
    /// input checks for duplicates first.
    pub fn new(specs: impl IntoIterator<Item = TargetSpec>) -> Self {
        specs.into_iter().map(Arc::new).collect()
    }

    /// The specification of one target.
    pub fn get(&self, name: &TargetName) -> Option<&Arc<TargetSpec>> {
        self.0.get(name)
    }

    /// All specifications in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TargetSpec>> {
        self.0.values()
    }

    /// How many targets there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no target.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Arc<TargetSpec>> for TargetSet {
    fn from_iter<I: IntoIterator<Item = Arc<TargetSpec>>>(specs: I) -> Self {
        Self(Arc::new(specs.into_iter().map(|spec| (spec.name.clone(), spec)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_query_could_find_are_refused() {
        assert_eq!(TargetName::new(""), Err(BadName::Empty));
        assert_eq!(TargetName::new(&"x".repeat(257)), Err(BadName::TooLong));
        assert_eq!(TargetName::new("a\nb"), Err(BadName::Control));
        assert_eq!(TargetName::new("a\u{FFFD}b"), Err(BadName::Control));
        assert_eq!(
            TargetName::new("bäckup \"1\"").map(|n| n.to_string()),
            Ok("bäckup \"1\"".into())
        );
    }
}
