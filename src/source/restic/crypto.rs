//! restic's cipher: AES-256 in counter mode, authenticated by Poly1305-AES over the ciphertext.
//!
//! A sealed file is `IV (16) ‖ ciphertext ‖ tag (16)`, with no associated data, so this module
//! does not know whether it holds a lock, a key or a `config` (restic
//! `internal/repository/crypto/crypto.go`). Pure: it is handed bytes and returns bytes.

use std::fmt;

use aes::cipher::{BlockCipherEncrypt, KeyInit, KeyIvInit, StreamCipher};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use poly1305::Poly1305;
use serde::Deserialize;
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

/// The counter is the whole IV as one big-endian number of 128 bits: it must wrap as such.
type Aes256Ctr = ctr::Ctr128BE<aes::Aes256>;

/// Bytes that sealing adds: IV and tag.
pub const OVERHEAD: usize = IV_BYTES + TAG_BYTES;
/// Bytes of key material that a key derivation yields.
pub const DERIVED_BYTES: usize = 64;

/// Bytes of an initialisation vector.
pub const IV_BYTES: usize = 16;
const TAG_BYTES: usize = 16;

/// Why sealed bytes cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// Fewer bytes than the overhead.
    #[error("shorter than {OVERHEAD} bytes")]
    Short,
    /// The IV is all zero, which restic refuses.
    #[error("the nonce is invalid")]
    Nonce,
    /// The tag does not fit: another key, or changed bytes.
    #[error("the message authentication code does not fit")]
    Mac,
}

/// Why a text is no master key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadMasterKey {
    /// Not the JSON object that `restic cat masterkey` prints.
    #[error("not the JSON of a master key")]
    Json,
    /// A part that is not base64 or has the wrong length.
    #[error("a part of the key has the wrong length")]
    Length,
    /// A part that is all zero, which restic refuses.
    #[error("a part of the key is all zero")]
    Zero,
}

/// The keys that open files of one repository; also the user key that opens a key file.
///
/// Wiped when dropped; never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey {
    encrypt: Zeroizing<[u8; 32]>,
    mac_k: Zeroizing<[u8; 16]>,
    mac_r: Zeroizing<[u8; 16]>,
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

/// The JSON of a master key.
#[derive(Deserialize)]
struct KeyJson {
    mac: MacJson,
    encrypt: String,
}

#[derive(Deserialize)]
struct MacJson {
    k: String,
    r: String,
}

impl MasterKey {
    /// Splits derived bytes as restic does (`internal/repository/crypto/kdf.go`).
    pub fn from_derived(bytes: &[u8; DERIVED_BYTES]) -> Self {
        let mut key = Self {
            encrypt: Zeroizing::new([0; 32]),
            mac_k: Zeroizing::new([0; 16]),
            mac_r: Zeroizing::new([0; 16]),
        };
        key.encrypt.copy_from_slice(&bytes[..32]);
        key.mac_k.copy_from_slice(&bytes[32..48]);
        key.mac_r.copy_from_slice(&bytes[48..]);
        key
    }

    /// Reads the JSON of a master key: the content of a key file, or what `restic cat masterkey`
    /// prints.
    ///
    /// # Errors
    /// [`BadMasterKey`] when it is something else, or a key that restic refuses.
    pub fn from_json(text: &[u8]) -> Result<Self, BadMasterKey> {
        let json: KeyJson = serde_json::from_slice(text).map_err(|_| BadMasterKey::Json)?;
        let key = Self {
            encrypt: part(json.encrypt)?,
            mac_k: part(json.mac.k)?,
            mac_r: part(json.mac.r)?,
        };
        let zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        if zero(&*key.encrypt) || zero(&*key.mac_k) || zero(&*key.mac_r) {
            return Err(BadMasterKey::Zero);
        }
        Ok(key)
    }

    /// The JSON that [`MasterKey::from_json`] reads. Only the writer of demo and test repositories
    /// has a use for it.
    pub fn to_json(&self) -> Zeroizing<String> {
        Zeroizing::new(format!(
            r#"{{"mac":{{"k":"{}","r":"{}"}},"encrypt":"{}"}}"#,
            STANDARD.encode(*self.mac_k),
            STANDARD.encode(*self.mac_r),
            STANDARD.encode(*self.encrypt),
        ))
    }

    /// Authenticates and decrypts.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is decrypted then.
    pub fn open(&self, sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        let text_end = sealed.len().checked_sub(TAG_BYTES).ok_or(OpenError::Short)?;
        if text_end < IV_BYTES {
            return Err(OpenError::Short);
        }
        let (head, tag) = sealed.split_at(text_end);
        let (iv, text) = head.split_at(IV_BYTES);
        let mut nonce = [0; IV_BYTES];
        nonce.copy_from_slice(iv);
        if nonce == [0; IV_BYTES] {
            return Err(OpenError::Nonce);
        }
        if !bool::from(self.tag(&nonce, text).ct_eq(tag)) {
            return Err(OpenError::Mac);
        }
        let mut plain = text.to_vec();
        Aes256Ctr::new((&*self.encrypt).into(), (&nonce).into()).apply_keystream(&mut plain);
        Ok(plain)
    }

    /// Encrypts and authenticates. The exporter itself never does; this is for the repositories
    /// that `demo` and the tests make.
    pub fn seal(&self, iv: [u8; IV_BYTES], plain: &[u8]) -> Vec<u8> {
        let mut text = plain.to_vec();
        Aes256Ctr::new((&*self.encrypt).into(), (&iv).into()).apply_keystream(&mut text);
        let tag = self.tag(&iv, &text);
        [&iv[..], &text, &tag].concat()
    }

    /// Poly1305-AES of the ciphertext: the one-time key is `r ‖ AES-128(k, IV)`. `r` may be stored
    /// unclamped; Poly1305 clamps it.
    fn tag(&self, iv: &[u8; IV_BYTES], text: &[u8]) -> [u8; TAG_BYTES] {
        let mut one_time = [0; poly1305::KEY_SIZE];
        one_time[..16].copy_from_slice(&*self.mac_r);
        let mut nonce = (*iv).into();
        aes::Aes128::new((&*self.mac_k).into()).encrypt_block(&mut nonce);
        one_time[16..].copy_from_slice(&nonce);
        let tag = Poly1305::new((&one_time).into()).compute_unpadded(text);
        one_time.zeroize();
        tag.into()
    }
}

fn part<const N: usize>(text: String) -> Result<Zeroizing<[u8; N]>, BadMasterKey> {
    let text = Zeroizing::new(text);
    let bytes = Zeroizing::new(STANDARD.decode(&*text).map_err(|_| BadMasterKey::Length)?);
    let mut out = Zeroizing::new([0; N]);
    if bytes.len() != N {
        return Err(BadMasterKey::Length);
    }
    out.copy_from_slice(&bytes);
    Ok(out)
}

#[cfg(test)]
pub(super) mod tests;
