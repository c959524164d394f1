//! Asks this machine about the holders of its own locks.
//!
//! The answer changes with time and without the lock, so it is not kept with the lock's content.
//! Where nothing is proven a lock stays as it was read.
#![allow(clippy::disallowed_methods, reason = "processes are listed after the locks are seen")]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::Inner;
use super::look::Trouble;
use super::repository::Repository;
use crate::lock::{Liveness, Lock, LockEntry, LockId};

/// A lock whose process can be asked for.
struct Own {
    index: usize,
    lock: Arc<Lock>,
    liveness: Liveness,
}

impl Inner {
    /// Adds what is known of the processes behind the locks of this machine, and takes out those
    /// that were released meanwhile; their number comes back.
    ///
    /// A restic that ends takes its lock away first, so one that is found gone is looked for in
    /// the storage once more: once for each lock, and only when its process is found gone.
    pub(super) async fn ask_owners(
        &self,
        repository: &Repository,
        entries: &mut Vec<LockEntry>,
    ) -> Result<usize, Trouble> {
        let own = self.asked(entries).await;
        let gone: HashSet<LockId> = own
            .iter()
            .filter(|own| own.liveness.gone().is_some())
            .map(|own| own.lock.stub.id.clone())
            .collect();
        for Own { index, lock, liveness } in own {
            if liveness != lock.liveness {
                let lock = Arc::new(Lock { liveness, ..Lock::clone(&lock) });
                entries[index] = LockEntry::Readable(lock);
            }
        }
        let mut released = 0;
        let known = gone.is_subset(&self.state().orphans);
        if !known {
            let found = self.list(repository, false).await?;
            let listed: HashSet<&LockId> = found.files.iter().map(|stub| &stub.id).collect();
            let before = entries.len();
            entries.retain(|entry| {
                let id = &entry.stub().id;
                !gone.contains(id) || listed.contains(id)
            });
            released = before - entries.len();
        }
        self.state().orphans = gone;
        Ok(released)
    }

    /// The locks of this machine with what its processes say.
    async fn asked(&self, entries: &[LockEntry]) -> Vec<Own> {
        let mut own: Vec<Own> = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            if let LockEntry::Readable(lock) = entry
                && self.machine.is_named(&lock.holder.hostname)
            {
                own.push(Own { index, lock: Arc::clone(lock), liveness: lock.liveness });
            }
        }
        if own.is_empty() || !self.machine.spec.evidence {
            return own;
        }
        let seen = Instant::now();
        let machine = Arc::clone(&self.machine);
        let ask = move || {
            for own in &mut own {
                if let (Some(pid), Some(time)) =
                    (own.lock.holder.pid, LockEntry::Readable(Arc::clone(&own.lock)).refreshed_at())
                {
                    own.liveness = machine.liveness(pid, time, seen);
                }
            }
            own
        };
        // A panic there would be this module's fault; no lock is called dead for it.
        tokio::task::spawn_blocking(ask).await.unwrap_or_default()
    }
}
