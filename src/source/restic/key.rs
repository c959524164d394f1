//! Key files: what `keys/` holds, in which order its files are tried, and what opening one costs.
//!
//! A key file is plain JSON around the master key, which is sealed with a key that scrypt derives
//! from the password (restic `internal/repository/key.go`). Anybody who may write to the backend
//! chooses the parameters, so they are checked before a byte of memory is used. Pure: reading the
//! files and finding the time and memory to derive is done elsewhere.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use scrypt::Params;
use serde::de::MapAccess;
use zeroize::Zeroizing;

use super::crypto::{DERIVED_BYTES, MasterKey, OVERHEAD};
use super::go_json::{self, Text};
use super::listing;
use crate::label;

/// Larger files are no key files; real ones have about 450 bytes.
pub const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;
/// So many keys are tried beside a hinted one (restic `internal/global/global.go` maxKeys): each
/// costs half a second.
pub const KEYS_TRIED_MAX: usize = 20;
/// So many key files are read to find them: bad ones cost a request only.
pub const KEYS_READ_MAX: usize = 100;

/// restic refuses salts of any other length (`internal/repository/crypto/kdf.go`).
const SALT_BYTES: usize = 64;

/// Why bytes are no key file that anybody could open.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadKeyFile {
    /// Not the JSON of a key file.
    #[error("not the JSON of a key file: {0}")]
    Json(String),
    /// Another derivation than scrypt.
    #[error("its key derivation is not scrypt")]
    Kdf,
    /// Numbers that scrypt or restic refuse.
    #[error("scrypt parameters N={n} r={r} p={p} are not valid")]
    Parameters {
        /// CPU and memory cost.
        n: i64,
        /// Block size.
        r: i64,
        /// Parallelism.
        p: i64,
    },
    /// A salt of the wrong length.
    #[error("its salt does not have {SALT_BYTES} bytes")]
    Salt,
    /// Too short to be a sealed master key.
    #[error("it holds no sealed key")]
    Data,
    /// It opens, but to something that is no master key.
    #[error("it opens, but holds no master key")]
    Content,
}

/// A key file that can be tried.
#[derive(Clone)]
pub struct KeyFile {
    params: Params,
    memory: u64,
    salt: Vec<u8>,
    data: Vec<u8>,
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFile").field("memory", &self.memory).finish_non_exhaustive()
    }
}

/// The fields that matter; `created`, `hostname` and `username` are for people, and rustic may
/// leave them out.
#[derive(Default)]
struct KeyJson {
    kdf: Text,
    n: i64,
    r: i64,
    p: i64,
    salt: Text,
    data: Text,
}

impl go_json::Fields for KeyJson {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "kdf" => go_json::set(&mut self.kdf, map)?,
            "n" => go_json::set(&mut self.n, map)?,
            "r" => go_json::set(&mut self.r, map)?,
            "p" => go_json::set(&mut self.p, map)?,
            "salt" => go_json::set(&mut self.salt, map)?,
            "data" => go_json::set(&mut self.data, map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl KeyFile {
    /// Reads a key file and checks its parameters.
    ///
    /// # Errors
    /// [`BadKeyFile`] when restic could not use it either.
    pub fn parse(text: &[u8]) -> Result<Self, BadKeyFile> {
        let json: KeyJson =
            go_json::parse(text).map_err(|error| BadKeyFile::Json(shown(&error.to_string())))?;
        if json.kdf.text != "scrypt" {
            return Err(BadKeyFile::Kdf);
        }
        let KeyJson { n, r, p, .. } = json;
        let (params, memory) = parameters(n, r, p).ok_or(BadKeyFile::Parameters { n, r, p })?;
        let salt = STANDARD.decode(&json.salt.text).map_err(|_| BadKeyFile::Salt)?;
        if salt.len() != SALT_BYTES {
            return Err(BadKeyFile::Salt);
        }
        let data = STANDARD.decode(&json.data.text).map_err(|_| BadKeyFile::Data)?;
        if data.len() <= OVERHEAD {
            return Err(BadKeyFile::Data);
        }
        Ok(Self { params, memory, salt, data })
    }

    /// Bytes of memory that a derivation needs.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Derives the user key and opens the master key with it; `None` when the password does not
    /// fit. Takes [`KeyFile::memory`] bytes and a second of CPU or so: never on an async thread.
    ///
    /// # Errors
    /// [`BadKeyFile::Content`] when the password fits and what it opens is no key.
    pub fn open(&self, password: &[u8]) -> Result<Option<MasterKey>, BadKeyFile> {
        let mut derived = Zeroizing::new([0; DERIVED_BYTES]);
        scrypt::scrypt(password, &self.salt, &self.params, &mut *derived)
            .map_err(|_| BadKeyFile::Content)?;
        match MasterKey::from_derived(&derived).open(&self.data) {
            Ok(plain) => {
                let plain = Zeroizing::new(plain);
                MasterKey::from_json(&plain).map(Some).map_err(|_| BadKeyFile::Content)
            }
            Err(_) => Ok(None),
        }
    }
}

/// What is wrong with a text, which may itself be in it, in a line.
fn shown(error: &str) -> String {
    label::clean(error, label::BYTES_MAX).into_owned()
}

/// The limits of restic's scrypt (`elithrar/simple-scrypt` Params.Check, `x/crypto/scrypt`), and
/// the memory that the derivation takes.
fn parameters(n: i64, r: i64, p: i64) -> Option<(Params, u64)> {
    let (n, r, p) = (u64::try_from(n).ok()?, u64::try_from(r).ok()?, u64::try_from(p).ok()?);
    let max = (1 << 31) - 1;
    if n < 2 || !n.is_power_of_two() || r == 0 || p == 0 || r.checked_mul(p)? >= 1 << 30 {
        return None;
    }
    let table = r.checked_mul(128)?.checked_mul(n)?;
    let blocks = r.checked_mul(128)?.checked_mul(p)?;
    if table > max || blocks > max {
        return None;
    }
    let log_n = u8::try_from(n.ilog2()).ok()?;
    let params = Params::new(log_n, u32::try_from(r).ok()?, u32::try_from(p).ok()?).ok()?;
    Some((params, table + blocks + 256 * r))
}

/// The names of key files in the order in which they are tried: those that begin with the hint
/// first, then by name. Also says how many are hinted at.
pub fn order<'a>(names: &'a [String], hint: Option<&str>) -> (Vec<&'a str>, usize) {
    let mut names: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| listing::is_id(name)).collect();
    names.sort_unstable();
    names.dedup();
    let hint = hint.filter(|hint| !hint.is_empty()).map(str::to_ascii_lowercase);
    let hinted = |name: &&str| hint.as_deref().is_some_and(|hint| name.starts_with(hint));
    names.sort_by_key(|name| !hinted(name));
    let count = names.iter().take_while(|name| hinted(name)).count();
    (names, count)
}

#[cfg(test)]
pub(super) mod tests {
    use sha2::{Digest as _, Sha256};

    use proptest::prelude::*;

    use super::super::crypto::tests as known;
    use super::*;

    pub const KEY_NAME: &str = "18d395ebf490d0e41191450113315a048ac9cc9996c301def9f605afed3eb1ab";
    pub const KEY_TEXT: &str = r#"{"created":"2026-01-02T03:04:05.000000006+08:00","username":"u","hostname":"h","kdf":"scrypt","N":1024,"r":8,"p":1,"salt":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw==","data":"AQIDBAUGBwgJCgsMDQ4PEBzsN9/Qu7bhA6cfc3+R5Eqr6F/P6dgrjsax0sXL1Yhj8TJTg+KzKfWK5vaqEtu8yEhbi1SMZ4zgbEszqd3kFg83SQnw1T1Z2d5MONmOXOY5QqW7Dc+sLqILGTY0pvbdiSSJtTkpUb/Bb5fISl/Dfv0LywPZKOjlpX4o4GBBOQLivbvwzj9s32kYc3bqYJb0LA=="}"#;
    pub const PASSWORD: &[u8] = b"kat-password";

    fn with(from: &str, to: &str) -> Result<KeyFile, BadKeyFile> {
        let text = KEY_TEXT.replace(from, to);
        assert_ne!(text, KEY_TEXT, "{from}");
        KeyFile::parse(text.as_bytes())
    }

    #[test]
    fn known_answer() {
        assert_eq!(hex::encode(Sha256::digest(KEY_TEXT)), KEY_NAME);
        let file = KeyFile::parse(KEY_TEXT.as_bytes()).unwrap();
        assert_eq!(file.open(PASSWORD).unwrap(), Some(known::master()));
        assert_eq!(file.open(b"kat-password\n").unwrap(), None);
        assert_eq!(file.open(b"").unwrap(), None);
    }

    #[test]
    fn fields_for_people_are_optional() {
        let text = KEY_TEXT.replace(
            r#""created":"2026-01-02T03:04:05.000000006+08:00","username":"u","hostname":"h","#,
            "",
        );
        let file = KeyFile::parse(text.as_bytes()).unwrap();
        assert_eq!(file.open(PASSWORD).unwrap(), Some(known::master()));
    }

    #[test]
    fn the_cost_of_real_parameters() {
        for (n, bytes) in [("32768", 32 << 20), ("65536", 64 << 20), ("131072", 128 << 20)] {
            let memory = with("1024", n).unwrap().memory();
            assert!((bytes..bytes + 100_000).contains(&memory), "{memory}");
        }
    }

    #[test]
    fn hostile_parameters_are_refused() {
        for (from, to) in [
            (r#""N":1024"#, r#""N":0"#),
            (r#""N":1024"#, r#""N":1"#),
            (r#""N":1024"#, r#""N":3"#),
            (r#""N":1024"#, r#""N":-1024"#),
            (r#""N":1024"#, r#""N":1073741824"#),
            (r#""N":1024"#, r#""N":9223372036854775807"#),
            (r#""r":8"#, r#""r":0"#),
            (r#""r":8"#, r#""r":-8"#),
            (r#""r":8"#, r#""r":9223372036854775807"#),
            (r#""p":1"#, r#""p":0"#),
            (r#""p":1"#, r#""p":134217728"#),
        ] {
            assert!(matches!(with(from, to), Err(BadKeyFile::Parameters { .. })), "{to}");
        }
        // Valid for restic and over any sane budget: its memory is known before it is used.
        assert!(with(r#""N":1024"#, r#""N":1048576"#).unwrap().memory() >= 1 << 30);
    }

    #[test]
    fn what_is_no_key_file() {
        assert!(matches!(KeyFile::parse(b"garbage"), Err(BadKeyFile::Json(_))));
        assert!(matches!(KeyFile::parse(b"[]"), Err(BadKeyFile::Json(_))));
        assert_eq!(KeyFile::parse(b"{}").err(), Some(BadKeyFile::Kdf));
        assert_eq!(with("scrypt", "argon2").err(), Some(BadKeyFile::Kdf));
        assert_eq!(with("AAECAwQF", "").err(), Some(BadKeyFile::Salt));
        assert_eq!(with("AAECAwQF", "!").err(), Some(BadKeyFile::Salt));
        assert_eq!(with(r#""data":"AQ"#, r#""data":"!"#).err(), Some(BadKeyFile::Data));
        assert!(KeyFile::parse(&KEY_TEXT.as_bytes()[..200]).is_err());
    }

    #[test]
    fn hinted_keys_come_first_then_names() {
        let name = |index: usize| format!("{index:064x}");
        let names: Vec<String> = (0..25).rev().map(name).chain(["garbage".into()]).collect();
        let (tried, hinted) = order(&names, None);
        assert_eq!((tried.len(), hinted), (25, 0));
        assert!(tried.is_sorted());
        let (tried, hinted) = order(&names, Some(&name(24).to_uppercase()));
        assert_eq!((tried.len(), hinted), (25, 1));
        assert_eq!((tried[0], tried[1]), (&*name(24), &*name(0)));
        assert_eq!(order(&names, Some("ffff")).0, order(&names, None).0);
        assert_eq!(order(&names, Some("")).0, order(&names, None).0);
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_file_or_a_reason(
            at in 0_usize..400, byte in any::<u8>(), cut in 0_usize..439,
            n in any::<i64>(), r in any::<i64>(), p in any::<i64>(),
        ) {
            let mut text = KEY_TEXT.as_bytes().to_vec();
            text[at] = byte;
            let _ = KeyFile::parse(&text);
            let _ = KeyFile::parse(&text[..cut]);
            let costs = format!(r#""N":{n},"r":{r},"p":{p},"#);
            let text = KEY_TEXT.replace(r#""N":1024,"r":8,"p":1,"#, &costs);
            let _ = KeyFile::parse(text.as_bytes());
        }

        #[test]
        fn accepted_costs_are_those_that_restic_accepts(
            log_n in 0_u32..40, n_more in 0_i64..2, r in -1_i64..2000, p in -1_i64..2000,
        ) {
            let n = (1_i64 << log_n) + n_more;
            let power = n > 1 && n & (n - 1) == 0;
            let fits = |product: i128| product < 1 << 31;
            let (wide_n, wide_r, wide_p) = (i128::from(n), i128::from(r), i128::from(p));
            let valid = power && r >= 1 && p >= 1
                && fits(128 * wide_n * wide_r) && fits(128 * wide_r * wide_p);
            let found = parameters(n, r, p);
            prop_assert_eq!(found.is_some(), valid);
            if let Some((_, memory)) = found {
                prop_assert!(i128::from(memory) >= 128 * wide_n * wide_r);
            }
        }
    }
}
