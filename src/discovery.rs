//! Finds repositories below a folder or prefix: where they are, and what their targets are called.
//!
//! One listing of folders for each level and place, none inside a repository, so `data/` is never
//! walked. When to search, and what becomes of what was found, is not decided here.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use regex::Regex;
use sha2::{Digest, Sha256};

use crate::scan::{ErrorClass, ScanError};
use crate::store::ReadStore;
use crate::target::TargetName;

/// Folders that one search looks into.
const FOLDERS_MAX: usize = 50_000;
/// Listings at the same time.
const LISTINGS_AT_ONCE: usize = 8;
/// Digits of the hash that tells cut names apart.
const HASH_DIGITS: usize = 8;

/// What is searched for.
#[derive(Clone, Debug)]
pub struct Search {
    /// How many levels below the start are looked into; 0 is the start alone.
    pub depth: u32,
    /// Places that are passed over, with everything below them.
    pub exclude: Vec<Pattern>,
    /// More repositories than this are an error: a search that went astray.
    pub max: usize,
}

/// A pattern for relative paths: `*` and `?` stay within one part, `**` does not.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Reads a pattern; none when it is too long to be one.
    pub fn new(text: &str) -> Option<Self> {
        let mut expression = String::from("(?s)\\A");
        let mut rest = text.trim_matches('/');
        while let Some(next) = rest.chars().next() {
            let (part, length) = match rest {
                _ if rest.starts_with("**") => (".*".to_owned(), 2),
                _ if next == '*' => ("[^/]*".to_owned(), 1),
                _ if next == '?' => ("[^/]".to_owned(), 1),
                _ => (regex::escape(&next.to_string()), next.len_utf8()),
            };
            expression += &part;
            rest = &rest[length..];
        }
        Regex::new(&(expression + "\\z")).ok().map(Self)
    }

    /// Whether a relative path is meant.
    pub fn matches(&self, path: &str) -> bool {
        self.0.is_match(path)
    }
}

/// Relative paths of all repositories, in order; `""` is the start itself.
///
/// # Errors
/// When a place cannot be listed, or there are more places or repositories than the limits: a
/// part of them would look like all.
pub async fn find(store: &dyn ReadStore, search: &Search) -> Result<Vec<String>, ScanError> {
    let (mut found, mut looked_into) = (Vec::new(), 0);
    let mut level = vec![String::new()];
    for depth in 0..=search.depth {
        looked_into += level.len();
        if looked_into > FOLDERS_MAX {
            let cause = format!("more than {FOLDERS_MAX} folders");
            return Err(too_many(&cause, "Search with less depth, or exclude some."));
        }
        let mut listings = stream::iter(level)
            .map(|path| async {
                let folders = store.folders(&path).await;
                (path, folders)
            })
            .buffer_unordered(LISTINGS_AT_ONCE);
        let mut next = Vec::new();
        while let Some((path, folders)) = listings.next().await {
            let folders = folders
                .map_err(|error| {
                    let class = error.kind.class();
                    ScanError::new(class, &error.doing, &error.cause, &error.advice)
                })?
                .ok_or_else(unsearchable)?;
            if is_repository(&folders) {
                found.push(path);
            } else if depth < search.depth {
                let below = folders.into_iter().map(|name| match path.as_str() {
                    "" => name,
                    path => format!("{path}/{name}"),
                });
                let wanted = |path: &String| !search.exclude.iter().any(|p| p.matches(path));
                next.extend(below.filter(wanted));
            }
        }
        if found.len() > search.max {
            let cause = format!("more than {} repositories", search.max);
            return Err(too_many(&cause, "Raise max, or search with less depth."));
        }
        level = next;
        if level.is_empty() {
            break;
        }
    }
    found.sort();
    Ok(found)
}

fn too_many(cause: &str, advice: &str) -> ScanError {
    ScanError::new(ErrorClass::Incomplete, "find repositories", cause, advice)
}

fn unsearchable() -> ScanError {
    let cause = "this backend cannot tell which folders there are";
    let advice = "Name each repository, or search the folder or bucket behind the server.";
    ScanError::new(ErrorClass::Unsupported, "find repositories", cause, advice)
}

/// Whether these are the folders of a repository, in either layout (restic
/// `internal/backend/layout`). In a bucket those that are empty are missing.
fn is_repository(folders: &[String]) -> bool {
    let has = |name: &str| folders.iter().any(|folder| folder == name);
    let with = |names: &[&str]| names.iter().any(|name| has(name));
    has("keys") && with(&["data", "index", "locks", "snapshots"])
        || has("key") && with(&["data", "index", "lock", "snapshot"])
}

/// The names of found targets: `entry/relative path`, `entry/.` for the start itself. Whoever may
/// make folders chooses them, so a name that had to be cleaned or cut, or is taken, gets a hash of
/// the path, and none is ever given twice.
pub fn names(
    entry: &TargetName,
    found: &[String],
    is_taken: impl Fn(&TargetName) -> bool,
) -> BTreeMap<TargetName, String> {
    let mut named = BTreeMap::new();
    for path in found {
        let shown = if path.is_empty() { "." } else { path.as_str() };
        let plain = TargetName::new(&format!("{entry}/{shown}")).ok();
        let free = plain.filter(|name| !is_taken(name) && !named.contains_key(name));
        let name = match free {
            Some(name) => name,
            None => {
                let mut digits = hex::encode(Sha256::digest(path.as_bytes()));
                digits.truncate(HASH_DIGITS);
                match TargetName::new(&cut(&format!("{entry}/{shown}"), &digits)) {
                    Ok(name) if !is_taken(&name) && !named.contains_key(&name) => name,
                    // Two paths with one hash, on purpose: neither is worth a third try.
                    Ok(_) | Err(_) => continue,
                }
            }
        };
        named.insert(name, path.clone());
    }
    named
}

/// A text cleaned, and cut so that `~` and the digits fit behind it.
fn cut(text: &str, digits: &str) -> String {
    let room = TargetName::BYTES_MAX - 1 - digits.len();
    let mut cut = String::new();
    for c in text.chars().map(|c| if c.is_control() || c == '\u{FFFD}' { '_' } else { c }) {
        if cut.len() + c.len_utf8() > room {
            break;
        }
        cut.push(c);
    }
    format!("{cut}~{digits}")
}

#[cfg(test)]
mod tests;
