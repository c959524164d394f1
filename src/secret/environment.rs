//! The variables a target sees: its own over those of the exporter's process.

#![allow(clippy::disallowed_methods, reason = "this module reads the environment and files")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use zeroize::Zeroizing;

use super::file::off_worker;
use super::{EnvSpec, Secret, SecretError, file, text};

/// No folder of variables has more files.
const DIR_FILES_MAX: usize = 1000;

/// The variables of one target. Shows names only in `Debug`.
#[derive(Clone, Default)]
pub struct Environment {
    own: BTreeMap<String, Secret>,
    inherits: bool,
}

impl Environment {
    /// Reads the files that a specification names. Blocking work is done off the async workers.
    ///
    /// # Errors
    /// [`SecretError`] with the file, and the line where there is one.
    pub async fn load(spec: &EnvSpec) -> Result<Self, SecretError> {
        let mut own = BTreeMap::new();
        if let Some(dir) = spec.env_dir.clone() {
            own.extend(off_worker("env dir", dir, read_dir).await?);
        }
        if let Some(path) = spec.env_file.clone() {
            own.extend(off_worker("env file", path, read_file).await?);
        }
        own.extend(spec.env.clone());
        Ok(Self { own, inherits: true })
    }

    /// The target's own variables alone, read at once on this thread: for what must be known
    /// before anything is opened.
    ///
    /// # Errors
    /// As [`Environment::load`].
    pub fn load_own(spec: &EnvSpec) -> Result<Self, SecretError> {
        Ok(Self { inherits: false, ..Self::load_now(spec)? })
    }

    /// As [`Environment::load`], at once on this thread.
    ///
    /// # Errors
    /// As [`Environment::load`].
    pub fn load_now(spec: &EnvSpec) -> Result<Self, SecretError> {
        let mut own = BTreeMap::new();
        if let Some(dir) = &spec.env_dir {
            own.extend(read_dir(dir)?);
        }
        if let Some(path) = &spec.env_file {
            own.extend(read_file(path)?);
        }
        own.extend(spec.env.clone());
        Ok(Self { own, inherits: true })
    }

    /// Only these variables, and nothing of the process's own: for tests and tools.
    pub fn only(variables: impl IntoIterator<Item = (String, Secret)>) -> Self {
        Self { own: variables.into_iter().collect(), inherits: false }
    }

    /// One variable. An empty one counts as none, as in Go's `os.Getenv`, so that a target can
    /// take an inherited one away.
    pub fn get(&self, name: &str) -> Option<Secret> {
        let value = match self.own.get(name) {
            Some(own) => own.clone(),
            None if self.inherits => Secret::new(std::env::var_os(name)?.into_vec()),
            None => return None,
        };
        (!value.expose().is_empty()).then_some(value)
    }

    /// One variable that is a text.
    ///
    /// # Errors
    /// [`SecretError`] when it is not UTF-8 or holds control characters.
    pub fn text(&self, name: &str) -> Result<Option<Zeroizing<String>>, SecretError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let fail =
            |cause: &str, advice: &str| SecretError::new(format!("read {name}"), cause, advice);
        let text =
            std::str::from_utf8(value.expose()).map_err(|_| fail("its value is not UTF-8", ""))?;
        if text.chars().any(char::is_control) {
            return Err(fail(
                "its value holds a line break or another control character",
                "Write the value without a final line break, e.g. with printf instead of echo.",
            ));
        }
        Ok(Some(Zeroizing::new(text.to_owned())))
    }

    /// Those of the target's own variables that a program needs, for its environment.
    pub(crate) fn for_program(&self, wanted: impl Fn(&str) -> bool) -> Vec<(String, OsString)> {
        let own = self.own().filter(|(name, _)| wanted(name));
        own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// The target's own variables, for a program that runs on its behalf.
    pub(super) fn own(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        self.own.iter().map(|(name, value)| (name.as_str(), OsStr::from_bytes(value.expose())))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.own.keys()).finish()
    }
}

fn read_file(path: &Path) -> Result<Vec<(String, Secret)>, SecretError> {
    const WHAT: &str = "env file";
    let bytes = file::read(WHAT, path)?;
    text::assignments(&bytes).map_err(|bad| {
        SecretError::new(
            format!("read {WHAT} {} line {}", path.display(), bad.line),
            bad.cause,
            "Write KEY=value lines, and put values with special characters in single quotes.",
        )
    })
}

/// Each file with the name of a variable is one. The others are left alone: Kubernetes adds
/// `..data` and its like, and a Secret may hold certificates beside the variables.
fn read_dir(dir: &Path) -> Result<Vec<(String, Secret)>, SecretError> {
    const WHAT: &str = "env dir";
    let fail = |error: std::io::Error| {
        SecretError::file(WHAT, dir, error.to_string(), file::advice(error.kind()))
    };
    let mut found = Vec::new();
    for (count, entry) in std::fs::read_dir(dir).map_err(fail)?.enumerate() {
        if count >= DIR_FILES_MAX {
            return Err(SecretError::file(WHAT, dir, "more than 1000 files", ""));
        }
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| is_name(name)) else { continue };
        if entry.path().is_dir() {
            continue;
        }
        let mut bytes = file::read("env dir file", &entry.path())?;
        if bytes.contains(&0) {
            return Err(SecretError::file(
                "env dir file",
                &entry.path(),
                "it holds a zero byte, which no variable can",
                "",
            ));
        }
        found.push((name.to_owned(), Secret::new(std::mem::take(&mut *bytes))));
    }
    Ok(found)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}
