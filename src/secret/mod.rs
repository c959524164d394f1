//! Secrets and where they come from: environment, files, commands, with restic's own rules.
//!
//! A specification names a place; the value is read when a target is opened, so a rotated secret
//! is seen without a restart. Values never show in `Debug`, logs or errors. What a secret opens
//! is not known here.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

mod environment;
mod file;
mod password;
pub mod text;

pub use environment::Environment;
pub(crate) use file::{read, read_file};
pub use password::{Opener, look, read_location, resolve};
pub(crate) use text::split_command;

/// A secret value: bytes, wiped when dropped, shown as dots.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// The value; keep the borrow short.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The variables a target sees beside the exporter's own, which it inherits as restic would.
/// On one name `env` wins over `env_file`, that over `env_dir`, that over the inherited one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EnvSpec {
    /// Given in the configuration.
    pub env: BTreeMap<String, Secret>,
    /// A file of `KEY=value` lines, as people already have for restic.
    pub env_file: Option<PathBuf>,
    /// A folder in which each file is one variable: a mounted Kubernetes Secret.
    pub env_dir: Option<PathBuf>,
}

/// How a repository is opened. Of a command only the program shows in `Debug`: people do write
/// passwords into its arguments.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum PasswordSpec {
    /// As restic: `RESTIC_PASSWORD_COMMAND`, `RESTIC_PASSWORD_FILE`, `RESTIC_PASSWORD` of the
    /// target's environment; none of them = sealed mode.
    #[default]
    Inherit,
    /// The first rows of this file.
    File(PathBuf),
    /// What this command prints.
    Command(String),
    /// The variable of this name in the target's environment.
    Variable(String),
    /// A file with the output of `restic cat masterkey`.
    MasterKeyFile(PathBuf),
    /// The empty password, asked for explicitly (restic's `--insecure-no-password`).
    Empty,
}

impl fmt::Debug for PasswordSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PasswordSpec::Inherit => f.write_str("Inherit"),
            PasswordSpec::File(path) => write!(f, "File({})", path.display()),
            PasswordSpec::Command(line) => {
                write!(f, "Command({} …)", line.split_whitespace().next().unwrap_or_default())
            }
            PasswordSpec::Variable(name) => write!(f, "Variable({name})"),
            PasswordSpec::MasterKeyFile(path) => write!(f, "MasterKeyFile({})", path.display()),
            PasswordSpec::Empty => f.write_str("Empty"),
        }
    }
}

/// A secret, or the place it should come from, that could not be read. Always a fault of the
/// target's own configuration. No text holds a value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{doing}: {cause}")]
pub struct SecretError {
    /// What was tried, with the place: `read password file /etc/restic/db01.pass`.
    pub doing: String,
    /// Why it failed.
    pub cause: String,
    /// What a person can do next; a full sentence or empty.
    pub advice: String,
}

impl SecretError {
    fn new(doing: impl Into<String>, cause: impl Into<String>, advice: &str) -> Self {
        Self { doing: doing.into(), cause: cause.into(), advice: advice.into() }
    }

    /// About one file.
    fn file(what: &str, path: &Path, cause: impl Into<String>, advice: &str) -> Self {
        Self::new(format!("read {what} {}", path.display()), cause, advice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_debug_output_shows_a_value() {
        let spec = EnvSpec {
            env: BTreeMap::from([("AWS_SECRET_ACCESS_KEY".into(), Secret::new("pl4nted"))]),
            ..EnvSpec::default()
        };
        let command = PasswordSpec::Command("echo pl4nted".into());
        let shown = format!("{spec:?} {command:?} {:?}", Opener::Password(Secret::new("pl4nted")));
        assert!(shown.contains("AWS_SECRET_ACCESS_KEY") && shown.contains("echo"), "{shown}");
        assert!(!shown.contains("pl4nted"), "{shown}");
    }
}
