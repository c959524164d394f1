//! Which files match a pattern: folders are listed, names compared, and nothing is opened but the
//! folders themselves. What the files hold is not looked at.
#![allow(clippy::disallowed_methods, reason = "folders are listed here, on a thread of their own")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::apart::Apart;
use super::place::Root;
use crate::pattern::{Glob, Part};
use crate::proc::machine::Machine;
use crate::scan::{ErrorClass, ScanError};
use crate::source::Context;

/// Folders of one search.
const FOLDERS_MAX: usize = 20_000;
/// Names in one folder.
const NAMES_MAX: usize = 200_000;

/// Looks for the files of one pattern.
pub struct Matches {
    machine: Arc<Machine>,
    apart: Apart,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Matched {
    /// Absolute paths, in order.
    pub paths: Vec<PathBuf>,
    /// Folders that could not be listed.
    pub closed: Vec<PathBuf>,
    /// Why the first of those could not.
    pub error: Option<ScanError>,
}

impl Matches {
    /// Makes it, for scans that may take so long; no I/O.
    pub fn new(timeout: Duration, context: &Context) -> Self {
        Self { machine: Arc::clone(&context.machine), apart: Apart::new(timeout) }
    }

    /// Looks once.
    ///
    /// # Errors
    /// When there are more than `max`, or more folders or names than the limits, or a file system
    /// does not answer.
    pub async fn find(&self, glob: &Glob, max: usize) -> Result<Matched, ScanError> {
        let doing = format!("look for files in {}", glob.folder.display());
        let (root, glob) = (Root(self.machine.spec.rootfs.clone()), glob.clone());
        self.apart.look(&doing, move || matched(&root, &glob, max)).await
    }
}

fn matched(root: &Root, glob: &Glob, max: usize) -> Result<Matched, ScanError> {
    let mut found = Matched::default();
    let mut level = vec![glob.folder.clone()];
    for (index, part) in glob.parts.iter().enumerate() {
        let is_last = index + 1 == glob.parts.len();
        if level.len() > FOLDERS_MAX {
            let cause = format!("more than {FOLDERS_MAX} folders match");
            return Err(too_many(&glob.folder, &cause));
        }
        let mut next = Vec::new();
        for folder in level {
            if let Part::Plain(name) = part {
                // Whether it is a folder shows when its names are asked for.
                let path = folder.join(name);
                match is_last.then(|| root.is_there(&path)) {
                    None | Some(Ok(true)) => next.push(path),
                    Some(Ok(false)) => {}
                    Some(Err(error)) => found.close(folder, error),
                }
                continue;
            }
            match root.names(&folder, NAMES_MAX) {
                Ok(names) => {
                    let wanted = names.iter().filter(|name| part.matches(name));
                    next.extend(wanted.map(|name| folder.join(OsStr::from_bytes(name))));
                }
                Err(error) if error.class == ErrorClass::Incomplete => return Err(error),
                Err(error) => found.close(folder, error),
            }
            if is_last && next.len() > max {
                let cause = format!("more than {max} files match");
                return Err(too_many(&glob.folder, &cause));
            }
        }
        level = next;
    }
    level.sort();
    found.paths = level;
    Ok(found)
}

impl Matched {
    fn close(&mut self, folder: PathBuf, error: ScanError) {
        self.closed.push(folder);
        self.error.get_or_insert(error);
    }
}

fn too_many(folder: &Path, cause: &str) -> ScanError {
    let doing = format!("look for files in {}", folder.display());
    let advice = "Raise max, or use a pattern that means fewer.";
    ScanError::new(ErrorClass::Incomplete, &doing, cause, advice)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn look(root: &Path, pattern: &str, max: usize) -> Result<Vec<String>, ErrorClass> {
        let glob = Glob::new(pattern).unwrap();
        let found = matched(&Root(Some(root.to_owned())), &glob, max).map_err(|e| e.class)?;
        assert!(found.closed.is_empty(), "{found:?}");
        Ok(found.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn files_match_inside_the_root_that_is_given_and_no_link_leads_out() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        for folder in ["run/lock/a", "run/lock/b", "var"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for file in ["run/lock/x.lock", "run/lock/.y.lock", "run/lock/a/job", "run/lock/z.pid"] {
            fs::write(at(file), "").unwrap();
        }
        fs::write(at("run/lock").join(OsStr::from_bytes(b"\xff.lock")), "").unwrap();
        // Absolute links of the watched machine stay in it; one in a circle ends with the pattern.
        symlink("/run/lock", at("var/lock")).unwrap();
        symlink("/run/lock", at("run/lock/loop")).unwrap();
        symlink("/nowhere", at("run/lock/dangling.lock")).unwrap();
        for (pattern, want) in [
            ("/run/lock/*.lock", &["/run/lock/dangling.lock", "/run/lock/x.lock"][..]),
            ("/var/lock/[xyz].*", &["/var/lock/x.lock", "/var/lock/z.pid"]),
            ("/run/lock/.*.lock", &["/run/lock/.y.lock"]),
            ("/run/lock/*/job", &["/run/lock/a/job"]),
            ("/run/lock/*/*/*/*/job", &["/run/lock/loop/loop/loop/a/job"]),
            ("/nowhere/*/job", &[]),
            ("/run/lock/x.lock/*", &[]),
        ] {
            let mut found = look(root.path(), pattern, 9).unwrap();
            found.retain(|path| !path.contains('\u{FFFD}'));
            assert_eq!(found, want, "{pattern}");
        }
        assert_eq!(look(root.path(), "/run/lock/*.lock", 9).unwrap().len(), 3, "whatever bytes");
        assert_eq!(look(root.path(), "/run/lock/*.lock", 2), Err(ErrorClass::Incomplete));
    }
}
