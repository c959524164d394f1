//! What is known about each lock file by its name, so that no lock is read twice.
//!
//! A name is the hash of the content, so what a name decodes to never changes. What could not be
//! read is remembered more carefully: until its size or time changes, or for a while. The cache
//! holds the names of the last listing and nothing else. No I/O, and the time is a parameter.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::{Lock, LockEntry, LockId, SealedWhy, Stub, UnreadableWhy};

/// How long a file is left alone that could not be had: refused, archived, never served, or with
/// bytes that are not what its name says.
pub const RETRY_AFTER: Duration = Duration::from_secs(10 * 60);
/// In so many scans running a listed file must not be found before it counts as missing.
pub const MISSING_SCANS: u32 = 3;

/// What one name turned out to be.
#[derive(Clone, Debug)]
pub enum Known {
    /// Nothing yet.
    New,
    /// A lock. For ever.
    Lock(Arc<Lock>),
    /// Nobody can decode it; until the listing shows another file, or until the instant.
    Unreadable(UnreadableWhy, Stub, Option<Instant>),
    /// We may not read it; until the instant.
    Sealed(SealedWhy, Instant),
    /// It was listed and not found in so many scans running; asked for again at the instant.
    Missing(u32, Instant),
}

#[derive(Debug)]
struct Name {
    first_seen: Instant,
    known: Known,
}

/// Names of one target.
#[derive(Debug, Default)]
pub struct Cache {
    names: HashMap<LockId, Name>,
}

impl Cache {
    /// Follows a listing: forgets the names that are gone, notes the new ones.
    pub fn follow(&mut self, files: &[Stub], now: Instant) {
        if self.names.len() > files.len() || files.iter().any(|f| !self.names.contains_key(&f.id)) {
            let listed: HashSet<&LockId> = files.iter().map(|stub| &stub.id).collect();
            self.names.retain(|id, _| listed.contains(id));
        }
        for stub in files {
            if !self.names.contains_key(&stub.id) {
                let name = Name { first_seen: now, known: Known::New };
                self.names.insert(stub.id.clone(), name);
            }
        }
        self.names.shrink_to(files.len().saturating_mul(4));
    }

    /// The entry of a listed file, if it need not be read.
    pub fn entry(&mut self, stub: &Stub, now: Instant) -> Option<LockEntry> {
        match &mut self.names.get_mut(&stub.id)?.known {
            Known::New => None,
            Known::Lock(lock) => {
                if lock.stub != *stub {
                    // Touched or copied: same content, another time.
                    *lock = Arc::new(Lock { stub: stub.clone(), ..Lock::clone(lock) });
                }
                Some(LockEntry::Readable(Arc::clone(lock)))
            }
            Known::Unreadable(why, seen, until) => (seen == stub
                && until.is_none_or(|until| now < until))
            .then(|| LockEntry::Unreadable(stub.clone(), *why)),
            Known::Sealed(why, until) => {
                (now < *until).then(|| LockEntry::Sealed(stub.clone(), why.clone()))
            }
            Known::Missing(scans, until) => (*scans >= MISSING_SCANS && now < *until)
                .then(|| LockEntry::Unreadable(stub.clone(), UnreadableWhy::Missing)),
        }
    }

    /// Remembers what a name is. A name that is not listed any more is not remembered.
    pub fn learn(&mut self, id: &LockId, known: Known) {
        if let Some(name) = self.names.get_mut(id) {
            name.known = known;
        }
    }

    /// Counts one more scan that listed a file and did not find it.
    pub fn missed(&mut self, stub: &Stub, now: Instant) -> LockEntry {
        let scans = match self.names.get(&stub.id).map(|name| &name.known) {
            Some(Known::Missing(scans, _)) => scans.saturating_add(1),
            _ => 1,
        };
        self.learn(&stub.id, Known::Missing(scans, now + RETRY_AFTER));
        if scans >= MISSING_SCANS {
            LockEntry::Unreadable(stub.clone(), UnreadableWhy::Missing)
        } else {
            LockEntry::Sealed(stub.clone(), SealedWhy::NotServed)
        }
    }

    /// How long a name has been known.
    pub fn known_for(&self, id: &LockId, now: Instant) -> Duration {
        self.names.get(id).map_or(Duration::ZERO, |name| now - name.first_seen)
    }

    /// Forgets which files cannot be decoded, as the rules have changed.
    pub fn doubt_unreadable(&mut self) {
        for name in self.names.values_mut() {
            if let Known::Unreadable(..) = name.known {
                name.known = Known::New;
            }
        }
    }

    /// Forgets what the names are, as another repository has taken the place.
    pub fn clear(&mut self) {
        self.names.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stub(name: &str, size: u64) -> Stub {
        Stub { id: LockId::new(name), size, stored_at: None }
    }

    #[test]
    fn a_damaged_file_is_read_again_only_when_it_changes_or_in_time() {
        let now = Instant::now();
        let mut cache = Cache::default();
        let file = stub("a", 5);
        cache.follow(std::slice::from_ref(&file), now);
        assert_eq!(cache.entry(&file, now), None);
        let until = Some(now + RETRY_AFTER);
        cache.learn(&file.id, Known::Unreadable(UnreadableWhy::Hash, file.clone(), until));
        assert!(cache.entry(&file, now).is_some());
        assert_eq!(cache.entry(&stub("a", 6), now), None);
        assert_eq!(cache.entry(&file, now + RETRY_AFTER), None);
        cache.learn(&file.id, Known::Unreadable(UnreadableWhy::Mac, file.clone(), None));
        assert!(cache.entry(&file, now + RETRY_AFTER * 1000).is_some());
    }

    #[test]
    fn a_file_is_missing_from_the_third_scan_on() {
        let now = Instant::now();
        let mut cache = Cache::default();
        let file = stub("a", 5);
        cache.follow(std::slice::from_ref(&file), now);
        for expected in ["not_served", "not_served", "missing", "missing"] {
            let word = match cache.missed(&file, now) {
                LockEntry::Sealed(_, why) => why.as_str(),
                LockEntry::Unreadable(_, why) => why.as_str(),
                other => panic!("{other:?}"),
            };
            assert_eq!(word, expected);
        }
        assert!(cache.entry(&file, now).is_some());
        assert_eq!(cache.entry(&file, now + RETRY_AFTER), None);
        // It was gone from one listing: the count starts again.
        cache.follow(&[], now);
        cache.follow(std::slice::from_ref(&file), now);
        assert!(matches!(cache.missed(&file, now), LockEntry::Sealed(..)));
    }

    #[test]
    fn only_listed_names_are_kept() {
        let now = Instant::now();
        let mut cache = Cache::default();
        let many: Vec<Stub> = (0..1000).map(|index| stub(&index.to_string(), 1)).collect();
        cache.follow(&many, now);
        assert_eq!(cache.names.len(), 1000);
        cache.follow(&many[..10], now);
        assert_eq!(cache.names.len(), 10);
        assert!(cache.names.capacity() < 100);
        cache.learn(&LockId::new("other"), Known::Missing(1, now));
        assert_eq!(cache.names.len(), 10);
        let later = now + Duration::from_secs(60);
        assert_eq!(cache.known_for(&many[0].id, later), Duration::from_secs(60));
    }
}
