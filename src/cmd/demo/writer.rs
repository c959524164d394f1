//! Makes restic repositories and lock files, for `demo`, tests and benches.
//!
//! It writes nowhere but into folders that it made itself, and real restic accepts what it
//! writes. The exporter proper has no way to get here: sources read through
//! [`crate::store::ReadStore`], which has no verb for it. It makes no snapshots and no data.
#![allow(clippy::disallowed_methods, reason = "writes repositories of its own")]

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::source::restic::crypto::{DERIVED_BYTES, IV_BYTES, MasterKey};

/// An irreducible polynomial for restic's chunker, which checks it when it opens a repository.
const POLYNOMIAL: &str = "3da3358b4dc173";

/// Format version of a repository.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// Nothing is compressed.
    V1,
    /// Locks are compressed, unless written as [`Form::Plain`].
    V2,
}

/// Names of folders.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// `keys/`, `locks/`.
    #[default]
    Default,
    /// `key/`, `lock/`, as restic up to 0.7.0 wrote on S3.
    S3Legacy,
}

/// How the text of a lock is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// JSON as it is; legal in both versions.
    Plain,
    /// Byte 2 and a zstd frame, as restic writes into version 2 repositories.
    Compressed,
}

/// The fields of a lock. `uid` and `gid` are left out when 0, as restic does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fields {
    /// The last refresh.
    pub time: Timestamp,
    /// Exclusive or shared.
    pub exclusive: bool,
    /// Host name.
    pub hostname: String,
    /// User name.
    pub username: String,
    /// Process id.
    pub pid: i64,
    /// Numeric user.
    #[serde(skip_serializing_if = "is_zero")]
    pub uid: u32,
    /// Numeric group.
    #[serde(skip_serializing_if = "is_zero")]
    pub gid: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(id: &u32) -> bool {
    *id == 0
}

/// A repository in a folder of its own.
#[derive(Debug)]
pub struct Repository {
    root: PathBuf,
    version: Version,
    layout: Layout,
    master: MasterKey,
}

impl Repository {
    /// scrypt's N for keys that need no strength: opened in 3 ms, with 1 MiB.
    pub const CHEAP: u64 = 1024;
    /// scrypt's N as restic itself usually chooses it.
    pub const USUAL: u64 = 32_768;

    /// Makes the folder, which must not exist yet, and a repository with one key in it.
    ///
    /// # Errors
    /// When the folder exists or something cannot be written.
    pub fn init(root: &Path, version: Version, password: &[u8], cost: u64) -> io::Result<Self> {
        Self::init_with(root, version, Layout::Default, password, cost)
    }

    /// [`Repository::init`] with a choice of layout.
    ///
    /// # Errors
    /// When the folder exists or something cannot be written.
    pub fn init_with(
        root: &Path,
        version: Version,
        layout: Layout,
        password: &[u8],
        cost: u64,
    ) -> io::Result<Self> {
        make_folder(root)?;
        let master = MasterKey::from_derived(&random()?);
        let repository = Self { root: root.to_owned(), version, layout, master };
        for folder in [repository.key_folder(), repository.lock_folder()] {
            make_folder(&folder)?;
        }
        for folder in ["snapshots", "index", "data"] {
            make_folder(&root.join(folder))?;
        }
        repository.add_key(password, cost)?;
        let number = match version {
            Version::V1 => 1,
            Version::V2 => 2,
        };
        let id = hex::encode(random::<32>()?);
        let config =
            format!(r#"{{"version":{number},"id":"{id}","chunker_polynomial":"{POLYNOMIAL}"}}"#);
        let sealed = repository.master.seal(random()?, config.as_bytes());
        put(root, "config", &sealed)?;
        Ok(repository)
    }

    /// The folder of the repository.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the locks.
    pub fn lock_folder(&self) -> PathBuf {
        self.root.join(match self.layout {
            Layout::Default => "locks",
            Layout::S3Legacy => "lock",
        })
    }

    fn key_folder(&self) -> PathBuf {
        self.root.join(match self.layout {
            Layout::Default => "keys",
            Layout::S3Legacy => "key",
        })
    }

    /// The master key as JSON, as `restic cat masterkey` prints it.
    pub fn master_key_json(&self) -> String {
        self.master.to_json().to_string()
    }

    /// Adds a key file for one more password and returns its name.
    ///
    /// # Errors
    /// When scrypt refuses the cost, or the file cannot be written.
    pub fn add_key(&self, password: &[u8], cost: u64) -> io::Result<String> {
        let salt: [u8; 64] = random()?;
        let log_n = u8::try_from(cost.ilog2()).map_err(io::Error::other)?;
        let params = scrypt::Params::new(log_n, 8, 1).map_err(io::Error::other)?;
        let mut derived = [0; DERIVED_BYTES];
        scrypt::scrypt(password, &salt, &params, &mut derived).map_err(io::Error::other)?;
        let data =
            MasterKey::from_derived(&derived).seal(random()?, self.master.to_json().as_bytes());
        let text = serde_json::json!({
            "created": "2026-01-02T03:04:05Z",
            "username": "demo",
            "hostname": "demo",
            "kdf": "scrypt",
            "N": 1_u64 << log_n,
            "r": 8,
            "p": 1,
            "salt": STANDARD.encode(salt),
            "data": STANDARD.encode(data),
        });
        put_named(&self.key_folder(), text.to_string().as_bytes())
    }

    /// Writes a lock as restic would for this version, and returns its file name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn lock(&self, fields: &Fields) -> io::Result<String> {
        self.lock_as(
            fields,
            match self.version {
                Version::V1 => Form::Plain,
                Version::V2 => Form::Compressed,
            },
        )
    }

    /// Writes a lock in a chosen form, and returns its file name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn lock_as(&self, fields: &Fields, form: Form) -> io::Result<String> {
        let text = serde_json::to_vec(fields).map_err(io::Error::other)?;
        let plain = match form {
            Form::Plain => text,
            Form::Compressed => [&[2][..], &zstd::bulk::compress(&text, 3)?].concat(),
        };
        self.sealed(&plain)
    }

    /// Refreshes a lock as restic does: writes the new one, then removes the old. Returns the new
    /// name.
    ///
    /// # Errors
    /// When the new file cannot be written or the old one not removed.
    pub fn refresh(&self, old: &str, fields: &Fields) -> io::Result<String> {
        let new = self.lock(fields)?;
        self.remove(old)?;
        Ok(new)
    }

    /// Removes a lock file.
    ///
    /// # Errors
    /// When it is not there or cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        fs::remove_file(self.lock_folder().join(name))
    }

    /// Seals any text with the repository's key and stores it among the locks under its right
    /// name, which is returned.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn sealed(&self, plain: &[u8]) -> io::Result<String> {
        put_named(&self.lock_folder(), &self.master.seal(random()?, plain))
    }

    /// Stores a file that nobody can decode among the locks: its name fits its content, which the
    /// key does not open. Blocks every restic from 0.15 on.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn unreadable(&self) -> io::Result<String> {
        put_named(&self.lock_folder(), &random::<150>()?)
    }

    /// Stores a file of 0 bytes among the locks, as a failed upload leaves it. Blocks nobody.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn empty(&self) -> io::Result<String> {
        let name = hex::encode(random::<32>()?);
        self.raw(&name, &[])?;
        Ok(name)
    }

    /// Stores any bytes under any name among the locks.
    ///
    /// # Errors
    /// When the name is a path or the file cannot be written.
    pub fn raw(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        check_name(name)?;
        put(&self.lock_folder(), name, bytes)
    }
}

fn check_name(name: &str) -> io::Result<()> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a name, not a path"));
    }
    Ok(())
}

/// As restic: folders for their owner only. Fails when it exists, so nothing foreign is written to.
fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

fn put_named(folder: &Path, bytes: &[u8]) -> io::Result<String> {
    let name = hex::encode(Sha256::digest(bytes));
    put(folder, &name, bytes)?;
    Ok(name)
}

/// As restic's local backend: a temporary name first, so that nobody reads half a file.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = folder.join(format!("{name}-tmp-{}", fastrand::u32(..)));
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(&temporary)?;
    io::Write::write_all(&mut &file, bytes)?;
    drop(file);
    fs::rename(temporary, folder.join(name))
}

/// Unpredictable bytes: two locks with one IV would leak their difference.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    const { assert!(N >= IV_BYTES) };
    let mut bytes = [0; N];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
