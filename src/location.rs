//! restic repository strings, parsed as restic parses them and shown without credentials.

use std::fmt;
use std::path::PathBuf;

/// Where a repository is.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// A folder of this machine.
    Local(PathBuf),
    /// A bucket and prefix behind an S3 API.
    S3(S3Location),
}

/// The parts of an `s3:` string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Location {
    /// True for `http://`, which restic only uses when it is written out.
    pub plain_http: bool,
    /// Host, with the port when one is given.
    pub host: String,
    /// Bucket.
    pub bucket: String,
    /// Cleaned prefix without leading or trailing slash; may be empty.
    pub prefix: String,
}

/// Why a string names no repository.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadLocation(pub String);

impl Location {
    /// Parses a repository string.
    ///
    /// # Errors
    /// [`BadLocation`] says what is wrong and what would be right, without quoting a credential.
    pub fn parse(text: &str) -> Result<Self, BadLocation> {
        Ok(Self::Local(PathBuf::from(text)))
    }

    /// The same place with a local path made absolute, so that its name is unique.
    pub fn absolute(self, folder: &std::path::Path) -> Self {
        match self {
            Location::Local(path) => Location::Local(folder.join(path)),
            other => other,
        }
    }

    /// The name of a target that is given by its location only.
    pub fn target_name(&self) -> String {
        self.to_string()
    }

    /// The scheme, restic's word for the backend.
    pub fn scheme(&self) -> &'static str {
        match self {
            Location::Local(_) => "local",
            Location::S3(_) => "s3",
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Local(path) => write!(f, "{}", path.display()),
            Location::S3(at) => write!(f, "s3:{}/{}/{}", at.host, at.bucket, at.prefix),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}
