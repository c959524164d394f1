//! The source as a whole, over a backend in memory: which requests it sends, and what it makes of
//! the answers. Time is paused, so whatever waits is over at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use self::memory::{Effect, Memory, ago, put};
use super::crypto::tests::{self as known, LOCK_A_NAME, LOCK_B_NAME};
use super::crypto::{DERIVED_BYTES, MasterKey};
use super::key::tests::{KEY_NAME, KEY_TEXT, PASSWORD};
use super::*;
use crate::lock::{LockEntry, LockMode, SealedWhy, UnreadableWhy};
use crate::proc::machine::MachineSpec;
use crate::secret::Secret;
use crate::store::{EntryKind, StoreErrorKind};

mod chaos;
mod keys;
mod locks;
mod memory;
mod owners;
mod requests;

const TIMEOUT: Duration = Duration::from_secs(30);
const NETWORK: StoreErrorKind = StoreErrorKind::Failed(ErrorClass::Network);
const PERMISSION: StoreErrorKind = StoreErrorKind::Failed(ErrorClass::Permission);

/// One repository and its reader.
struct Fixture {
    fake: Fake,
    context: Context,
    source: Restic,
}

impl std::ops::Deref for Fixture {
    type Target = Fake;

    fn deref(&self) -> &Fake {
        &self.fake
    }
}

#[derive(Clone)]
struct Fake {
    store: Arc<Memory>,
    opener: Arc<Mutex<Opener>>,
    hint: Arc<Mutex<Option<String>>>,
    connects: Arc<AtomicUsize>,
}

#[async_trait]
impl Connect for Fake {
    async fn connect(&self) -> Result<Session, ScanError> {
        self.connects.fetch_add(1, Ordering::Relaxed);
        let store: Arc<Memory> = Arc::clone(&self.store);
        let opener = self.opener.lock().unwrap().clone();
        Ok(Session { store, opener, hint: self.hint.lock().unwrap().clone() })
    }
}

impl Fixture {
    /// The repository of the known answers, in version 2, without locks.
    fn new(opener: Opener) -> Self {
        let store = Arc::new(Memory::default());
        store.put("config", known::bytes(known::CONFIG_V2));
        store.put(&format!("keys/{KEY_NAME}"), KEY_TEXT);
        let opener = Arc::new(Mutex::new(opener));
        let hint = Arc::default();
        let fake = Fake { store, opener, hint, connects: Arc::default() };
        let context = Context {
            telemetry: Arc::new(Telemetry::new(&["restic"], &["local"])),
            derivations: Arc::new(DerivationBudget::new(16 << 20)),
            machine: Arc::new(Machine::new(MachineSpec::unknown())),
        };
        let source = Restic::with(Box::new(fake.clone()), TIMEOUT, &context);
        Self { fake, context, source }
    }

    fn with_password() -> Self {
        Self::new(Opener::Password(Secret::new(PASSWORD)))
    }

    fn sealed() -> Self {
        Self::new(Opener::Sealed)
    }

    /// A reader that knows nothing, as after a reload.
    fn reload(&mut self) {
        self.source = Restic::with(Box::new(self.fake.clone()), TIMEOUT, &self.context);
    }

    /// Puts both known answers among the locks.
    fn put_known_locks(&self) {
        self.store.put(&format!("locks/{LOCK_A_NAME}"), known::bytes(known::LOCK_A));
        self.store.put(&format!("locks/{LOCK_B_NAME}"), known::bytes(known::LOCK_B));
    }

    /// Looks once, with the key there.
    async fn scan(&self) -> Result<Look, ScanError> {
        self.source.ready().await;
        self.source.scan().await
    }

    async fn look(&self) -> Look {
        self.scan().await.unwrap()
    }

    async fn error(&self) -> ScanError {
        self.scan().await.unwrap_err()
    }

    /// Looks once and says what each entry is, sorted.
    async fn words(&self) -> Vec<String> {
        words(&self.look().await)
    }
}

/// Each entry by the first four digits of its name and one word.
fn words(look: &Look) -> Vec<String> {
    let word = |entry: &LockEntry| match entry {
        LockEntry::Readable(lock) => lock.mode.as_str(),
        LockEntry::Sealed(_, why) => why.as_str(),
        LockEntry::Empty(_) => "empty",
        LockEntry::Unreadable(_, why) => why.as_str(),
    };
    let mut words: Vec<String> = look
        .entries
        .iter()
        .map(|entry| format!("{} {}", &entry.stub().id.as_str()[..4], word(entry)))
        .collect();
    words.sort();
    words
}

fn name_of(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A lock of another holder each time, sealed with this key. Returns its path and bytes.
fn lock_with(master: &MasterKey, pid: u8) -> (String, Vec<u8>) {
    let text = json!({
        "time": "2026-01-02T03:04:05Z", "exclusive": false, "hostname": "h", "username": "u",
        "pid": pid,
    });
    let bytes = master.seal([pid; 16], text.to_string().as_bytes());
    (format!("locks/{}", name_of(&bytes)), bytes)
}

fn another_master() -> MasterKey {
    MasterKey::from_derived(&[7; DERIVED_BYTES])
}

/// A key file for this password at the least cost, and its path.
fn key_file(password: &[u8], n: u64, master: &MasterKey) -> (String, Vec<u8>) {
    let salt = Sha256::digest(password).repeat(2);
    let mut derived = [0; DERIVED_BYTES];
    let log_n = u8::try_from(n.ilog2()).unwrap();
    let params = scrypt::Params::new(log_n, 1, 1).unwrap();
    scrypt::scrypt(password, &salt, &params, &mut derived).unwrap();
    let data = MasterKey::from_derived(&derived).seal([3; 16], master.to_json().as_bytes());
    let text = json!({
        "kdf": "scrypt", "N": n, "r": 1, "p": 1,
        "salt": STANDARD.encode(salt), "data": STANDARD.encode(data),
    });
    let bytes = text.to_string().into_bytes();
    (format!("keys/{}", name_of(&bytes)), bytes)
}

fn config(version: u8, master: &MasterKey) -> Vec<u8> {
    let text = json!({ "version": version, "id": "ab".repeat(32) });
    master.seal([5; 16], text.to_string().as_bytes())
}
