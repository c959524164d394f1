//! What is watched: names, specifications, and the set of all targets as one value.
//!
//! Everything here is plain data made by the configuration (later also by discovery); secrets
//! are only referred to. No I/O, no clock.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::location::Location;
use crate::secret::{EnvSpec, PasswordSpec};

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
    pub const BYTES_MAX: usize = 128;

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
    /// The name of the source: the `source` label.
    pub fn source_name(&self) -> &'static str {
        match self.source {
            SourceSpec::Restic(_) => "restic",
            SourceSpec::File(_) => "file",
        }
    }

    /// The scheme of the repository string: the `backend` label; empty for lock files.
    pub fn backend(&self) -> &'static str {
        match &self.source {
            SourceSpec::Restic(spec) => spec.repository.scheme(),
            SourceSpec::File(_) => "",
        }
    }

    /// Where it is, without credentials and query.
    pub fn location(&self) -> String {
        match &self.source {
            SourceSpec::Restic(spec) => spec.repository.to_string(),
            SourceSpec::File(spec) => spec.path.to_string_lossy().into_owned(),
        }
    }

    /// What proves that a lock of this target is held.
    pub fn proof(&self) -> Proof {
        match &self.source {
            SourceSpec::Restic(_) => Proof::Lease,
            SourceSpec::File(spec) => match spec.format {
                FileFormat::Kernel => Proof::Kernel,
                FileFormat::Pid | FileFormat::Exists => Proof::Presence,
            },
        }
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
        Self(Arc::new(specs.into_iter().map(|spec| (spec.name.clone(), Arc::new(spec))).collect()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_query_could_find_are_refused() {
        assert_eq!(TargetName::new(""), Err(BadName::Empty));
        assert_eq!(TargetName::new(&"x".repeat(129)), Err(BadName::TooLong));
        assert_eq!(TargetName::new("a\nb"), Err(BadName::Control));
        assert_eq!(TargetName::new("a\u{FFFD}b"), Err(BadName::Control));
        assert_eq!(
            TargetName::new("bäckup \"1\"").map(|n| n.to_string()),
            Ok("bäckup \"1\"".into())
        );
    }
}
