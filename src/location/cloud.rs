//! The strings of clouds that name a container and a prefix, and those of rclone.

use std::fmt;

use zeroize::Zeroizing;

use super::cut::{clean, option_values, without_remote_options};
use super::{BadLocation, bad};

/// A bucket or container and a prefix: `azure:`, `gs:`, `b2:`, `swift:`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloudLocation {
    /// restic's word for the backend.
    pub scheme: &'static str,
    /// Bucket or container.
    pub container: String,
    /// Cleaned prefix without leading or trailing slash; may be empty.
    pub prefix: String,
}

impl CloudLocation {
    pub(super) fn name(&self) -> String {
        format!("{}:/{}", self.container, self.prefix)
    }
}

impl fmt::Display for CloudLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scheme, self.name())
    }
}

/// A remote of rclone, `remote:path`; options may follow its name and hold secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct RcloneLocation {
    /// What rclone is given.
    pub remote: Zeroizing<String>,
}

impl RcloneLocation {
    pub(super) fn name(&self) -> String {
        without_remote_options(&self.remote)
    }

    /// What is not to be shown of it: the options, together with the name as rclone says them, and
    /// the value of each. None when there are no options.
    pub(crate) fn secrets(&self) -> Vec<String> {
        if self.name() == *self.remote {
            return Vec::new();
        }
        let (_, options) = self.remote.split_once(',').unwrap_or_default();
        let mut secrets = vec![self.remote.to_string(), options.to_owned()];
        secrets.extend(option_values(options));
        secrets
    }
}

impl fmt::Display for RcloneLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rclone:{}", self.name())
    }
}

impl fmt::Debug for RcloneLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RcloneLocation({self})")
    }
}

/// restic `internal/backend/{azure,gs,b2,swift}/config.go`, which differ in what may be left out.
pub(super) fn parse(scheme: &'static str, rest: &str) -> Result<CloudLocation, BadLocation> {
    let (container, prefix) = match (scheme, rest.split_once(':')) {
        (_, Some((container, prefix))) => (container, prefix),
        ("b2", None) => (rest, ""),
        (_, None) => {
            return Err(BadLocation(format!("write {scheme}:CONTAINER:/PREFIX")));
        }
    };
    if scheme == "swift" && !prefix.starts_with('/') {
        return bad("write swift:CONTAINER:/PREFIX, with the slash");
    }
    if container.is_empty() || container.contains(['/', '@', '?', '#', ' ']) {
        return Err(BadLocation(format!(
            "no container or bucket has such a name; write {scheme}:CONTAINER:/PREFIX"
        )));
    }
    if prefix.contains("?") && prefix.contains("sig=") {
        return bad("a signature does not belong into the string; give it as AZURE_ACCOUNT_SAS");
    }
    let prefix = clean(prefix);
    let prefix = prefix.strip_prefix('/').unwrap_or(&prefix);
    let prefix = if prefix == "." { "" } else { prefix };
    if prefix.split('/').any(|part| part == "..") {
        return bad("the prefix leads out of the container");
    }
    Ok(CloudLocation { scheme, container: container.into(), prefix: prefix.into() })
}

pub(super) fn rclone(rest: &str) -> Result<RcloneLocation, BadLocation> {
    // A flag would be one of rclone's own.
    if rest.starts_with('-') {
        return bad("write rclone:REMOTE:PATH");
    }
    Ok(RcloneLocation { remote: Zeroizing::new(rest.into()) })
}
