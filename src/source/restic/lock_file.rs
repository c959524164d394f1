//! The plaintext of a lock file → what it says, or why nobody can read it.
//!
//! The order of the steps is restic's own (`internal/repository/repository.go` LoadUnpacked,
//! `internal/repository/lock_file.go`). Nothing here judges: no clock, no other lock. Pure, and
//! bounded whatever the bytes are.

use std::cell::RefCell;
use std::sync::Arc;

use jiff::Timestamp;
use serde::de::{Error as _, MapAccess};
use sha2::{Digest as _, Sha256};
use zstd::bulk::Decompressor;

use super::go_json::{self, Text};
use super::go_time;
use crate::lock::{HoldKey, Holder, LockMode, UnreadableWhy};

/// A decompressed lock has at most so many bytes. Real ones have about 200.
pub const PLAIN_BYTES_MAX: usize = 64 * 1024;
/// A host or user name is kept up to so many bytes; a longer one is cut and marked by a digest.
pub const NAME_BYTES_MAX: usize = 1024;

/// First byte of a compressed file in a version 2 repository.
const COMPRESSED: u8 = 2;

/// How the plaintext may be encoded, which depends on the version of the repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// Version 1: JSON as it is.
    Plain,
    /// Version 2: JSON, or a byte 2 and a zstd frame.
    Compressible,
    /// The version is not known, because `config` may not be read: by the first byte.
    Unknown,
}

/// What a lock says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// What stays equal across refreshes.
    pub key: HoldKey,
    /// Exclusive or shared.
    pub mode: LockMode,
    /// Who has it.
    pub holder: Holder,
    /// Its time, unless it is missing, `null` or zero.
    pub refreshed_at: Option<Timestamp>,
    /// Why it is perhaps no lock at all.
    pub doubt: Option<&'static str>,
}

/// Whether the plaintext claims to be compressed.
pub fn is_compressed(plain: &[u8]) -> bool {
    plain.first() == Some(&COMPRESSED)
}

/// Reads the plaintext of a lock file.
///
/// # Errors
/// [`UnreadableWhy::Encoding`] or [`UnreadableWhy::Json`], where restic fails as well.
pub fn decode(plain: &[u8], encoding: Encoding) -> Result<Content, UnreadableWhy> {
    match (encoding, plain.first()) {
        (Encoding::Compressible | Encoding::Unknown, Some(&COMPRESSED)) => {
            decompressed(&plain[1..], parse).ok_or(UnreadableWhy::Encoding)?
        }
        (Encoding::Compressible, Some(first)) if !matches!(first, b'{' | b'[') => {
            Err(UnreadableWhy::Encoding)
        }
        (Encoding::Plain | Encoding::Compressible | Encoding::Unknown, _) => parse(plain),
    }
}

/// What every thread reuses: setting up a zstd context costs more than decoding a lock.
struct Scratch {
    decompressor: Decompressor<'static>,
    plain: Vec<u8>,
}

/// Hands the decompressed bytes to `read`. None when they are no zstd frames or more than
/// [`PLAIN_BYTES_MAX`]: the output buffer is all the memory that decompression can use, since it
/// is its window too.
fn decompressed<T>(frame: &[u8], read: impl FnOnce(&[u8]) -> T) -> Option<T> {
    thread_local! {
        static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.is_none() {
            let decompressor = Decompressor::new().ok()?;
            *scratch = Some(Scratch { decompressor, plain: Vec::with_capacity(PLAIN_BYTES_MAX) });
        }
        let Scratch { decompressor, plain } = scratch.as_mut()?;
        plain.clear();
        decompressor.decompress_to_buffer(frame, plain).ok()?;
        Some(read(plain))
    })
}

/// restic's `Lock` (`internal/repository/lock_file.go`) with Go's zero values.
#[derive(Default)]
struct LockJson {
    time: Option<Timestamp>,
    exclusive: bool,
    has_exclusive: bool,
    hostname: Text,
    username: Text,
    pid: Option<i64>,
    uid: Option<u32>,
    gid: Option<u32>,
}

impl go_json::Fields for LockJson {
    fn field<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "time" => {
                if let Some(Text { text, escaped }) = map.next_value::<Option<Text>>()? {
                    // Go parses the raw bytes between the quotes, backslashes included.
                    let time = if escaped { None } else { go_time::parse(&text) };
                    self.time = time.ok_or_else(|| A::Error::custom("not a time"))?;
                }
            }
            "exclusive" => {
                if let Some(value) = map.next_value::<Option<bool>>()? {
                    self.exclusive = value;
                    self.has_exclusive = true;
                }
            }
            "hostname" => go_json::set(&mut self.hostname, map)?,
            "username" => go_json::set(&mut self.username, map)?,
            "pid" => set_some(&mut self.pid, map)?,
            "uid" => set_some(&mut self.uid, map)?,
            "gid" => set_some(&mut self.gid, map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn set_some<'de, A, T>(field: &mut Option<T>, map: &mut A) -> Result<(), A::Error>
where
    A: MapAccess<'de>,
    T: serde::Deserialize<'de>,
{
    if let Some(value) = map.next_value::<Option<T>>()? {
        *field = Some(value);
    }
    Ok(())
}

fn parse(json: &[u8]) -> Result<Content, UnreadableWhy> {
    let lock: LockJson = go_json::parse(json).map_err(|_| UnreadableWhy::Json)?;
    let mode = if lock.exclusive { LockMode::Exclusive } else { LockMode::Shared };
    // Every file of a repository decrypts with the same key, and Go is happy with any object, so a
    // snapshot or an index copied into `locks/` passes for a lock.
    let doubt = match lock.pid {
        None => Some("it names no process, like a snapshot or an index"),
        Some(..=0) => Some("its process id is not a positive number, which no restic writes"),
        Some(_) if !lock.has_exclusive => Some("it does not say whether it is exclusive"),
        Some(_) => None,
    };
    Ok(Content {
        key: hold_key(&lock),
        mode,
        holder: Holder {
            hostname: bounded(&lock.hostname.text),
            username: bounded(&lock.username.text),
            command: Arc::default(),
            pid: lock.pid,
            uid: lock.uid,
            gid: lock.gid,
        },
        refreshed_at: lock.time,
        doubt,
    })
}

/// A digest of everything that one holder repeats at each refresh. A missing number counts as
/// Go's zero.
fn hold_key(lock: &LockJson) -> HoldKey {
    let mut digest = Sha256::new();
    for text in [&lock.hostname.text, &lock.username.text] {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    digest.update(lock.uid.unwrap_or(0).to_le_bytes());
    digest.update(lock.gid.unwrap_or(0).to_le_bytes());
    digest.update(lock.pid.unwrap_or(0).to_le_bytes());
    digest.update([u8::from(lock.exclusive)]);
    HoldKey::new(hex::encode(&digest.finalize()[..12]))
}

/// Cuts an overlong name, and marks it so that two different ones stay different.
fn bounded(name: &str) -> Arc<str> {
    if name.len() <= NAME_BYTES_MAX {
        return name.into();
    }
    let mut end = NAME_BYTES_MAX;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let mark = hex::encode(&Sha256::digest(name)[..4]);
    format!("{}~{mark}", &name[..end]).into()
}

#[cfg(test)]
mod tests;
