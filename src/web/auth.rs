//! Basic authentication against bcrypt hashes. Where the hashes come from is not known here.
//!
//! A comparison is slow on purpose, so it runs on a blocking thread, one at a time, and its result
//! is kept under a keyed hash of what was compared: no password stays in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use hyper::header::HeaderValue;
use rustls::crypto::SecureRandom;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::wanted::claim;
use crate::secret::Secret;

/// Results that are kept, of each kind: wrong passwords must not push out right ones.
const RESULTS_MAX: usize = 128;
/// Comparisons that wait for their turn; whoever comes beyond is turned away.
const WAITING_MAX: usize = 32;
/// What an unknown user's password is compared with, behind version and cost: nobody's hash.
const NOBODY: &str = "$ahe1PoFWfRA0hg87aWW76.wwmjcPrWbHnNpb2cG76EdIN5GG0Yo/O";
/// The cost when no user has one.
const COST: u32 = 10;

/// How a request's claim to be somebody ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Login {
    /// User and password are right.
    Right,
    /// They are missing or wrong.
    Wrong,
    /// Too many comparisons wait already.
    Busy,
}

/// What is remembered of logins.
pub struct Logins {
    key: [u8; 32],
    results: Mutex<Results>,
    one_at_a_time: Semaphore,
    places: Semaphore,
}

#[derive(Default)]
struct Results {
    right: VecDeque<[u8; 32]>,
    wrong: VecDeque<[u8; 32]>,
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Logins(…)")
    }
}

impl Logins {
    /// Nothing remembered, under a new key.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new() -> anyhow::Result<Self> {
        let mut key = [0; 32];
        let random: &dyn SecureRandom = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut key).map_err(|_| anyhow::anyhow!("the system gives no random numbers"))?;
        Ok(Self {
            key,
            results: Mutex::default(),
            one_at_a_time: Semaphore::new(1),
            places: Semaphore::new(WAITING_MAX),
        })
    }

    /// Whether an `Authorization` header names one of these users with the right password.
    pub async fn check(
        &self,
        users: &BTreeMap<String, Secret>,
        header: Option<&HeaderValue>,
    ) -> Login {
        let claimed = header.and_then(|header| claim(header.to_str().ok()?));
        let Some((user, password)) = claimed else { return Login::Wrong };
        let known = users.get(&*user);
        // An unknown user takes as long as a known one, so that time does not tell who is known.
        let hash = match known.and_then(|hash| std::str::from_utf8(hash.expose()).ok()) {
            Some(hash) => hash.to_owned(),
            None => nobody(users),
        };
        let digest = self.digest(&user, &hash, &password);
        if let Some(result) = self.remembered(&digest) {
            return result;
        }
        let Ok(_place) = self.places.try_acquire() else { return Login::Busy };
        let Ok(_turn) = self.one_at_a_time.acquire().await else { return Login::Busy };
        // Whoever was before us may have asked the same.
        if let Some(result) = self.remembered(&digest) {
            return result;
        }
        let compare = move || bcrypt::verify(password.as_slice(), &hash).unwrap_or(false);
        let same = tokio::task::spawn_blocking(compare).await.unwrap_or(false);
        let result = if same && known.is_some() { Login::Right } else { Login::Wrong };
        self.remember(digest, result);
        result
    }

    fn digest(&self, user: &str, hash: &str, password: &[u8]) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(self.key);
        for part in [user.as_bytes(), hash.as_bytes(), password] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    fn remembered(&self, digest: &[u8; 32]) -> Option<Login> {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if results.right.contains(digest) {
            Some(Login::Right)
        } else {
            results.wrong.contains(digest).then_some(Login::Wrong)
        }
    }

    fn remember(&self, digest: [u8; 32], result: Login) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let results = match result {
            Login::Right => &mut results.right,
            Login::Wrong | Login::Busy => &mut results.wrong,
        };
        if results.len() == RESULTS_MAX {
            results.pop_front();
        }
        results.push_back(digest);
    }
}

/// A hash that is as dear as the dearest of the users.
fn nobody(users: &BTreeMap<String, Secret>) -> String {
    let cost = |hash: &Secret| -> Option<u32> {
        std::str::from_utf8(hash.expose()).ok()?.get(4..6)?.parse().ok()
    };
    let cost = users.values().filter_map(cost).max().unwrap_or(COST);
    format!("$2b${cost:02}{NOBODY}")
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn users() -> BTreeMap<String, Secret> {
        let hash = bcrypt::hash("s3cret:with colon", 4).unwrap();
        BTreeMap::from([("prom".to_owned(), Secret::new(hash))])
    }

    fn basic(text: &str) -> HeaderValue {
        HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(text))).unwrap()
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_right() {
        let logins = Logins::new().unwrap();
        let users = users();
        for _ in 0..2 {
            for (header, expected) in [
                (Some(basic("prom:s3cret:with colon")), Login::Right),
                (Some(basic("prom:s3cret")), Login::Wrong),
                (Some(basic("prom:")), Login::Wrong),
                (Some(basic("prom")), Login::Wrong),
                (Some(basic("nobody:s3cret:with colon")), Login::Wrong),
                (Some(HeaderValue::from_static("Basic !")), Login::Wrong),
                (Some(HeaderValue::from_static("Bearer x")), Login::Wrong),
                (None, Login::Wrong),
            ] {
                assert_eq!(logins.check(&users, header.as_ref()).await, expected, "{header:?}");
            }
        }
        let other =
            BTreeMap::from([("prom".to_owned(), Secret::new(bcrypt::hash("x", 4).unwrap()))]);
        let header = basic("prom:s3cret:with colon");
        assert_eq!(logins.check(&other, Some(&header)).await, Login::Wrong, "a changed hash");
    }

    #[tokio::test]
    async fn wrong_passwords_do_not_push_out_a_right_one_and_memory_is_bounded() {
        let logins = Logins::new().unwrap();
        let digest = logins.digest("a", "b", b"c");
        logins.remember(digest, Login::Right);
        for number in 0..10 * RESULTS_MAX {
            logins.remember(logins.digest("a", "b", &number.to_be_bytes()), Login::Wrong);
        }
        assert_eq!(logins.remembered(&digest), Some(Login::Right));
        assert_eq!(logins.results.lock().unwrap().wrong.len(), RESULTS_MAX);
    }

    #[tokio::test]
    async fn who_comes_when_too_many_wait_is_turned_away() {
        let logins = Logins::new().unwrap();
        let users = users();
        let _all = logins.places.acquire_many(u32::try_from(WAITING_MAX).unwrap()).await.unwrap();
        assert_eq!(logins.check(&users, Some(&basic("prom:x"))).await, Login::Busy);
    }

    #[test]
    fn nobody_is_as_dear_as_the_dearest_user() {
        let hash = nobody(&users());
        assert!(hash.starts_with("$2b$04$"), "{hash}");
        assert!(hash.parse::<bcrypt::HashParts>().is_ok());
        assert!(nobody(&BTreeMap::new()).starts_with("$2b$10$"));
    }

    #[test]
    fn what_is_remembered_does_not_depend_on_where_user_and_password_meet() {
        let logins = Logins::new().unwrap();
        assert_ne!(logins.digest("a", "bc", b"d"), logins.digest("ab", "c", b"d"));
        assert_ne!(logins.digest("a", "b", b"c"), Logins::new().unwrap().digest("a", "b", b"c"));
    }
}
