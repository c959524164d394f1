//! Locks on files that lost their names: deleted, or replaced by another file.
//!
//! The kernel lists such a lock by a number that no folder has any more; which path it was can only
//! be read at a descriptor that has it. So descriptors are looked for only where a lock may be on
//! such a file.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::super::locks::FileKey;
use super::super::procfs::{Budget, Proof};
use super::search::Place;
use super::{FDS_MAX, LockRow, Picture, WALK_MAX};

/// What the kernel adds to the name of a file that has it no more.
const DELETED: &[u8] = b" (deleted)";

/// The numbers of all files that have names in one folder, by which the kernel locks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// Major number of the folder's device.
    pub major: u32,
    /// Minor number of the folder's device.
    pub minor: u32,
    /// The numbers; each is of one file of that device.
    pub inodes: HashSet<u64>,
}

/// Locks on files that lost their names in one folder.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// Path and lock.
    found: Vec<(Vec<u8>, LockRow)>,
    /// There may be more.
    unfinished: bool,
}

/// Descriptors whose files have lost their names, with the paths they had.
#[derive(Debug, Default)]
pub(super) struct Nameless {
    files: Vec<(i32, u32, Vec<u8>)>,
    unfinished: bool,
}

impl Picture {
    /// Locks on files that had this path and have no name any more, and whether these are all.
    ///
    /// `numbers` says which files have names in a folder. It is asked once for each folder, and may
    /// hang without harm to others.
    pub fn orphans(
        &self,
        path: &Path,
        numbers: impl FnOnce(&Path) -> Option<Numbers>,
    ) -> (Vec<LockRow>, bool) {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let found = {
            let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(folders.entry(folder.to_owned()).or_default())
        };
        let all = found.get_or_init(|| self.find_orphans(folder, numbers(folder).as_ref()));
        let path = path.as_os_str().as_bytes();
        let its = all.found.iter().filter(|(lost, _)| lost == path);
        (its.map(|(_, lock)| *lock).collect(), !all.unfinished)
    }

    /// Locks that may be on files without a name that were in a folder. A file whose number the
    /// folder lists has one: it was moved, not removed.
    fn suspects(&self, named: Option<&Numbers>) -> Vec<LockRow> {
        let may_be_lost = |file: &FileKey| {
            named.is_none_or(|named| {
                let is_there = (file.major, file.minor) == (named.major, named.minor);
                is_there && !named.inodes.contains(&file.inode)
            })
        };
        let rows = self.rows.iter().flatten().filter(|(file, _)| may_be_lost(file));
        let granted = rows.flat_map(|(_, rows)| rows).filter(|row| !row.waits);
        let mut locks: Vec<LockRow> =
            granted.filter(|row| row.class.is_lock()).map(LockRow::from).collect();
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    fn find_orphans(&self, folder: &Path, named: Option<&Numbers>) -> Orphans {
        let was_here = |path: &[u8]| Path::new(OsStr::from_bytes(path)).parent() == Some(folder);
        let mut orphans = Orphans::default();
        if !self.shows_all || self.cut {
            // A lock that is not listed has a descriptor all the same.
            let all = self.all_nameless();
            orphans.unfinished = all.unfinished || (self.has_rows() && !self.shows_all);
            for (pid, fd, path) in all.files.iter().filter(|(_, _, path)| was_here(path)) {
                let locks = self.procfs.proofs_of(*pid, *fd).into_iter();
                for Proof { row, .. } in locks.filter(|proof| proof.row.class.is_lock()) {
                    orphans.found.push((path.clone(), LockRow::from(&row)));
                }
            }
        } else {
            for lock in self.suspects(named) {
                match self.place_of(lock) {
                    Place::At(pid, fd) => match self.procfs.descriptor_path(pid, fd) {
                        Some(path) => {
                            let lost = path.strip_suffix(DELETED).filter(|path| was_here(path));
                            orphans.found.extend(lost.map(|path| (path.to_vec(), lock)));
                        }
                        None => orphans.unfinished = true,
                    },
                    // Handed on or mapped, if all descriptors may be looked at.
                    Place::Nowhere => orphans.unfinished |= !self.procfs.shows_descriptors(),
                    Place::Unfinished => orphans.unfinished = true,
                }
            }
        }
        orphans.found.sort_unstable();
        orphans.found.dedup();
        orphans
    }

    fn all_nameless(&self) -> &Nameless {
        self.all_nameless.get_or_init(|| {
            let mut budget = Budget::new(FDS_MAX, WALK_MAX);
            let mut all = Nameless::default();
            for pid in self.procfs.pids().unwrap_or_default() {
                let files = self.procfs.nameless(pid, DELETED, &mut budget);
                all.files.extend(files.into_iter().map(|(fd, path)| (pid, fd, path)));
            }
            all.unfinished = budget.is_spent() || !self.procfs.shows_descriptors();
            all
        })
    }
}
