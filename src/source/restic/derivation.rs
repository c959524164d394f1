//! Key derivations: how much memory they may use together, and what they found.
//!
//! One derivation takes 32 MiB and half a second, one for each key file tried; so each pair of
//! key file and password is derived once in the life of the process, whatever happens to the
//! target that asked, and only as many run at a time as fit into the budget. This module does not
//! know which key files there are.
#![allow(clippy::disallowed_methods, reason = "reads the memory limit of the control group")]

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use super::crypto::MasterKey;
use super::key::{BadKeyFile, KeyFile};
use super::turns::{Turns, Urgency};
use crate::secret::Secret;

/// The budget where the machine sets no tighter limit.
pub const BUDGET_BYTES_MAX: u64 = 256 << 20;
/// Results kept. Each is a digest and a key; a target needs one for each of its key files.
const RESULTS_MAX: usize = 65_536;

/// Why a key file could not be tried.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DeriveError {
    /// It alone needs more memory than all derivations together may use.
    #[error(
        "its key derivation needs {} MiB of memory, over the limit of {} MiB",
        .needs.div_ceil(1 << 20), .budget >> 20
    )]
    OverBudget {
        /// Bytes the key file asks for.
        needs: u64,
        /// Bytes all derivations may use together.
        budget: u64,
    },
    /// Its content is not what it should be.
    #[error(transparent)]
    Bad(#[from] BadKeyFile),
    /// The system gives no memory for it, or not now.
    #[error("the system gives no {} MiB of memory for the key derivation", .0.div_ceil(1 << 20))]
    NoMemory(u64),
    /// The process is ending, or the derivation panicked.
    #[error("the key derivation was interrupted")]
    Interrupted,
}

/// What a key file and a password gave: the master key, or that they do not fit together.
type Found = Option<Arc<MasterKey>>;
/// Key file and password as one digest, so that the password itself is not kept.
type Pair = [u8; 32];

/// Memory that all concurrent key derivations may use together, and their results.
pub struct DerivationBudget {
    bytes: u64,
    turns: Arc<Turns>,
    results: Mutex<HashMap<Pair, Arc<OnceCell<Found>>>>,
}

impl fmt::Debug for DerivationBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DerivationBudget").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl DerivationBudget {
    /// A budget of this many bytes. However many there are, no more derivations run at a time than
    /// there are cores: more would not end sooner, only take memory and time from everybody else.
    pub fn new(bytes: u64) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { bytes, turns: Turns::new(bytes, cores), results: Mutex::default() }
    }

    /// 256 MiB, or half of what the process's control group allows if that is less.
    pub fn of_this_machine() -> Self {
        let half = memory_limit().map_or(u64::MAX, |limit| limit / 2);
        Self::new(half.min(BUDGET_BYTES_MAX))
    }

    /// Opens the key file `id` with a password; `None` when they do not fit. Waits for its turn,
    /// and works on a thread of its own. Dropping the future wastes the work only if nobody else
    /// waits for the same pair.
    ///
    /// # Errors
    /// [`DeriveError`]; a failure is not remembered.
    pub async fn open(
        &self,
        id: &str,
        file: KeyFile,
        password: &Secret,
        urgency: &Urgency,
    ) -> Result<Found, DeriveError> {
        if file.memory() > self.bytes {
            return Err(DeriveError::OverBudget { needs: file.memory(), budget: self.bytes });
        }
        let cell = self.cell(pair(id, password));
        cell.get_or_try_init(|| self.derive(file, password.clone(), urgency)).await.cloned()
    }

    async fn derive(
        &self,
        file: KeyFile,
        password: Secret,
        urgency: &Urgency,
    ) -> Result<Found, DeriveError> {
        let turn = self.turns.take(file.memory(), urgency).await;
        let turn = turn.ok_or(DeriveError::Interrupted)?;
        let opened = tokio::task::spawn_blocking(move || {
            // Held by the thread: the memory is in use even when nobody waits any more.
            let _held = turn;
            if !is_to_be_had(file.memory()) {
                return Err(DeriveError::NoMemory(file.memory()));
            }
            Ok(file.open(password.expose())?)
        });
        Ok(opened.await.map_err(|_| DeriveError::Interrupted)??.map(Arc::new))
    }

    fn cell(&self, pair: Pair) -> Arc<OnceCell<Found>> {
        let mut results = self.lock();
        if results.len() >= RESULTS_MAX && !results.contains_key(&pair) {
            // Forgotten passwords that did not fit cost a derivation each when they come back.
            results.retain(|_, cell| matches!(cell.get(), Some(Some(_)) | None));
            if results.len() >= RESULTS_MAX {
                results.clear();
            }
        }
        Arc::clone(results.entry(pair).or_default())
    }

    /// How many pairs of key file and password are known.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Pair, Arc<OnceCell<Found>>>> {
        // Nothing that can panic runs under the lock, and a map is whole at any moment anyway.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for so many bytes and gives them back untouched. scrypt would end the process where there
/// are none: below a limit of addresses, or where a system promises no more than it has.
///
/// glibc learns from every piece up to 32 MiB that is given back: from then on it keeps pieces of
/// that size for their thread (mallopt(3), M_MMAP_THRESHOLD), and what scrypt took would stay
/// ours. So more than that is asked for first.
fn is_to_be_had(bytes: u64) -> bool {
    const NOTHING_IS_LEARNED: usize = 33 << 20;
    let there = |bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
    usize::try_from(bytes).is_ok_and(|bytes| there(bytes.max(NOTHING_IS_LEARNED)) || there(bytes))
}

fn pair(id: &str, password: &Secret) -> Pair {
    let mut digest = Sha256::new();
    digest.update((id.len() as u64).to_le_bytes());
    digest.update(id);
    digest.update(password.expose());
    digest.finalize().into()
}

/// The memory limit of the control group this process is in, or of one above it; `None` without.
pub fn memory_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_of(&groups, Path::new("/sys/fs/cgroup"), |path| std::fs::read_to_string(path).ok())
}

/// `groups` is the text of `/proc/self/cgroup`: `0::/path` in version 2, lines like
/// `7:memory:/path` in version 1. In a container the path is often that of the host and is not
/// there, so the root, which is the container's own group then, is always looked at.
fn limit_of(groups: &str, root: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut limits = Vec::new();
    for line in groups.lines().chain(["0::/", "0:memory:/"]) {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (top, file): (PathBuf, _) = match controllers {
            "" => (root.into(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut folder = top.join(path.trim_start_matches('/'));
        while folder.starts_with(&top) {
            limits
                .extend(read(&folder.join(file)).and_then(|text| text.trim().parse::<u64>().ok()));
            if !folder.pop() {
                break;
            }
        }
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::super::crypto::tests as known;
    use super::super::key::tests::{KEY_NAME, KEY_TEXT, PASSWORD};
    use super::*;

    fn key_file() -> KeyFile {
        KeyFile::parse(KEY_TEXT.as_bytes()).unwrap()
    }

    fn costly() -> KeyFile {
        KeyFile::parse(KEY_TEXT.replace(r#""N":1024"#, r#""N":131072"#).as_bytes()).unwrap()
    }

    #[tokio::test]
    async fn one_pair_is_derived_once() {
        let budget = DerivationBudget::new(4 << 20);
        let password = Secret::new(PASSWORD);
        let first = budget
            .open(KEY_NAME, key_file(), &password, &Urgency::default())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(*first, known::master());
        // A file that would give another key under the same name is not even opened.
        let second = budget
            .open(KEY_NAME, costly_but_fitting(), &password, &Urgency::default())
            .await
            .unwrap();
        assert!(Arc::ptr_eq(&first, &second.unwrap()));
    }

    /// As costly as the budget of the test above allows.
    fn costly_but_fitting() -> KeyFile {
        KeyFile::parse(KEY_TEXT.replace(r#""N":1024"#, r#""N":2048"#).as_bytes()).unwrap()
    }

    #[tokio::test]
    async fn a_wrong_password_is_remembered_too() {
        let budget = DerivationBudget::new(4 << 20);
        let wrong = Secret::new("wrong");
        assert_eq!(budget.open(KEY_NAME, key_file(), &wrong, &Urgency::default()).await, Ok(None));
        assert_eq!(budget.lock().len(), 1);
        assert_eq!(budget.open(KEY_NAME, key_file(), &wrong, &Urgency::default()).await, Ok(None));
        // Another key file under the same password is another pair.
        assert!(
            budget
                .open("other", key_file(), &Secret::new(PASSWORD), &Urgency::default())
                .await
                .unwrap()
                .is_some()
        );
        assert_eq!(budget.lock().len(), 2);
    }

    #[tokio::test]
    async fn a_derivation_over_the_whole_budget_is_refused_at_once() {
        let budget = DerivationBudget::new(64 << 20);
        let error = budget
            .open(KEY_NAME, costly(), &Secret::new(PASSWORD), &Urgency::default())
            .await
            .unwrap_err();
        assert!(matches!(error, DeriveError::OverBudget { budget: 67_108_864, .. }), "{error}");
        assert_eq!(
            error.to_string(),
            "its key derivation needs 129 MiB of memory, over the limit of 64 MiB"
        );
    }

    #[test]
    fn memory_that_nobody_has_is_not_to_be_had() {
        assert!(is_to_be_had(1 << 20));
        assert!(!is_to_be_had(u64::MAX));
        assert!(!is_to_be_had(i64::MAX.unsigned_abs()));
    }

    #[tokio::test]
    async fn derivations_wait_for_memory() {
        let budget = Arc::new(DerivationBudget::new(2 << 20));
        let all = budget.turns.take(2 << 20, &Urgency::default()).await.unwrap();
        let waiting = {
            let budget = Arc::clone(&budget);
            tokio::spawn(async move {
                budget.open(KEY_NAME, key_file(), &Secret::new(PASSWORD), &Urgency::default()).await
            })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(all);
        assert!(waiting.await.unwrap().unwrap().is_some());
        // And they give it back.
        budget.turns.take(2 << 20, &Urgency::default()).await.unwrap();
    }

    #[test]
    fn neither_password_nor_key_shows() {
        let budget = DerivationBudget::new(1 << 20);
        assert_eq!(format!("{budget:?}"), "DerivationBudget { bytes: 1048576, .. }");
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        let files = HashMap::from([
            ("/cg/memory.max", "max\n"),
            ("/cg/system.slice/memory.max", "1000\n"),
            ("/cg/system.slice/x.service/memory.max", "2000\n"),
        ]);
        let read = |path: &Path| files.get(path.to_str()?).map(ToString::to_string);
        let root = Path::new("/cg");
        assert_eq!(limit_of("0::/system.slice/x.service\n", root, read), Some(1000));
        assert_eq!(limit_of("0::/gone/in/the/container\n", root, read), None);
        assert_eq!(limit_of("", root, read), None);
    }

    #[test]
    fn version_1_control_groups() {
        let files = HashMap::from([
            ("/cg/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/cg/memory/docker/abc/memory.limit_in_bytes", "3000\n"),
        ]);
        let read = |path: &Path| files.get(path.to_str()?).map(ToString::to_string);
        let groups = "11:cpu,cpuacct:/docker/abc\n7:memory:/docker/abc\n0::/\n";
        assert_eq!(limit_of(groups, Path::new("/cg"), read), Some(3000));
    }
}
