//! Sorts the names of one listing: which are locks, which restic takes for locks and cannot load,
//! and which mean nothing.
//!
//! restic takes 64 hex digits of any case for an id and skips every other name (restic
//! `internal/restic/id.go` ParseID, `internal/backend/*` List). Pure; knows no content.

use std::collections::HashSet;

use crate::lock::{LockEntry, LockId, Stub, UnreadableWhy};
use crate::scan::Ignored;
use crate::store::{Entry, EntryKind, Listing};

/// Digits of an id: a SHA-256 in hex.
pub const ID_DIGITS: usize = 64;
/// A folder with more names is not looked at: the scan is incomplete.
pub const NAMES_MAX: usize = 100_000;
/// A larger file is no lock and is not downloaded. Real ones have less than 300 bytes.
pub const LOCK_BYTES_MAX: u64 = 64 * 1024;

/// Whether a name is the id of a file as restic writes it: 64 lower-case hex digits.
pub fn is_id(name: &str) -> bool {
    name.len() == ID_DIGITS && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether restic takes a name for an id, which it does in any case of letters.
fn is_parsed_as_id(name: &str) -> bool {
    name.len() == ID_DIGITS && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// One listing of the folder of locks, sorted.
#[derive(Debug, Default)]
pub struct Partition {
    /// What the listing alone decides: empty files, names that restic cannot load, files over
    /// the limit.
    pub decided: Vec<LockEntry>,
    /// Files to be read.
    pub files: Vec<Stub>,
    /// Names that are no locks.
    pub ignored: Ignored,
}

impl Partition {
    /// How many names restic would take for locks.
    pub fn locks(&self) -> usize {
        self.decided.len() + self.files.len()
    }
}

/// Sorts a listing; a name that is listed twice counts once. `None` when it is over
/// [`NAMES_MAX`].
pub fn partition(listing: Listing) -> Option<Partition> {
    if listing.entries.len().saturating_add(listing.odd.len()) > NAMES_MAX {
        return None;
    }
    let mut seen = HashSet::with_capacity(listing.entries.len());
    let mut sorted = Partition::default();
    for entry in &listing.entries {
        if seen.insert(entry.name.as_str()) {
            sort(entry, &mut sorted);
        }
    }
    for name in &listing.odd {
        sorted.ignored.add(name);
    }
    Some(sorted)
}

fn sort(entry: &Entry, sorted: &mut Partition) {
    let Entry { name, kind, size, modified_at } = entry;
    if !is_parsed_as_id(name) {
        sorted.ignored.add(name);
        return;
    }
    let stub = Stub { id: LockId::new(name.as_str()), size: *size, stored_at: *modified_at };
    match kind {
        // restic's local backend lists whatever has the name, fails to load it, and retries for
        // minutes.
        EntryKind::Deeper if *size == 0 => sorted.decided.push(LockEntry::Empty(stub)),
        EntryKind::Folder | EntryKind::BadLink | EntryKind::Deeper => {
            sorted.decided.push(LockEntry::Unreadable(stub, UnreadableWhy::Name));
        }
        // Their size is 0, and restic skips files of size 0.
        EntryKind::Special => sorted.ignored.add(name),
        EntryKind::File if *size == 0 => sorted.decided.push(LockEntry::Empty(stub)),
        // restic loads the lower-case name, which is not there.
        EntryKind::File if !is_id(name) => {
            sorted.decided.push(LockEntry::Unreadable(stub, UnreadableWhy::Name));
        }
        EntryKind::File if *size > LOCK_BYTES_MAX => {
            sorted.decided.push(LockEntry::Unreadable(stub, UnreadableWhy::TooLarge));
        }
        EntryKind::File => sorted.files.push(stub),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, kind: EntryKind, size: u64) -> Entry {
        Entry { name: name.into(), kind, size, modified_at: None }
    }

    fn sorted(name: &str, kind: EntryKind, size: u64) -> String {
        let entries = vec![entry(name, kind, size)];
        let sorted = partition(Listing { entries, odd: vec![] }).unwrap();
        assert_eq!(sorted.locks() as u64 + sorted.ignored.count, 1);
        match sorted.decided.first() {
            Some(LockEntry::Unreadable(_, why)) => why.as_str().into(),
            Some(LockEntry::Empty(_)) => "empty".into(),
            Some(other) => format!("{other:?}"),
            None if sorted.files.len() == 1 => "read".into(),
            None => "ignored".into(),
        }
    }

    #[test]
    fn every_kind_of_name() {
        use EntryKind::{BadLink, Deeper, File, Folder, Special};
        let id = "0123456789abcdef".repeat(4);
        let upper = id.to_uppercase();
        for (name, kind, size, expected) in [
            (id.as_str(), File, 137, "read"),
            (&id, File, 1, "read"),
            (&id, File, LOCK_BYTES_MAX, "read"),
            (&id, File, LOCK_BYTES_MAX + 1, "too_large"),
            (&id, File, 0, "empty"),
            (&id, Folder, 0, "name"),
            (&id, BadLink, 7, "name"),
            (&id, Special, 0, "ignored"),
            (&id, Deeper, 137, "name"),
            (&id, Deeper, 0, "empty"),
            ("old", Deeper, 137, "ignored"),
            (&upper, File, 137, "name"),
            (&upper, File, 0, "empty"),
            (&id[1..], File, 137, "ignored"),
            (&format!("{id}-tmp-123"), File, 137, "ignored"),
            (&format!("{id}-restic-temp-0123456789abcdef"), File, 137, "ignored"),
            (&format!("{id}.rest-server-temp9"), File, 137, "ignored"),
            (&format!("{}g", &id[1..]), File, 137, "ignored"),
            ("README", File, 5, "ignored"),
            (".nfs00012", File, 5, "ignored"),
            (".DAV", Folder, 0, "ignored"),
            ("sub", Folder, 0, "ignored"),
            ("", File, 0, "ignored"),
        ] {
            assert_eq!(sorted(name, kind, size), expected, "{name} {kind:?} {size}");
        }
    }

    #[test]
    fn a_name_listed_twice_counts_once() {
        let id = "ab".repeat(32);
        let entries = vec![entry(&id, EntryKind::File, 5), entry(&id, EntryKind::File, 5)];
        assert_eq!(partition(Listing { entries, odd: vec![] }).unwrap().locks(), 1);
    }

    #[test]
    fn a_listing_over_the_bound_is_refused() {
        let names = |count| Listing {
            entries: (0..count)
                .map(|index| entry(&format!("{index:064x}"), EntryKind::File, 150))
                .collect(),
            odd: vec![],
        };
        assert_eq!(partition(names(NAMES_MAX)).unwrap().files.len(), NAMES_MAX);
        assert!(partition(names(NAMES_MAX + 1)).is_none());
    }
}
