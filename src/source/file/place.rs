//! From a path to what the kernel locks by, without touching the file: it is opened with `O_PATH`
//! alone, which breaks no lease, waits for no FIFO and needs no right to read it.
//!
//! The device that `stat` reports is not the one that locks stand under on btrfs and on some
//! overlays, so that is looked up by the mount.
#![allow(clippy::disallowed_methods, reason = "descriptors and mounts of our own are read here")]

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::proc::kernel::Numbers;
use crate::proc::locks::{self, FileKey};
use crate::proc::mountinfo::{self, Mount};
use crate::scan::{ErrorClass, ScanError};

/// Most bytes of our own `mountinfo`: over a hundred thousand mounts.
const MOUNTS_BYTES_MAX: u64 = 16 << 20;
/// Most bytes of our own `fdinfo`.
const FDINFO_BYTES_MAX: u64 = 64 << 10;
/// Names in a folder beyond which it is not listed to save work.
const NUMBERS_MAX: usize = 20_000;
/// Most bytes of a file that names a process.
pub const PID_BYTES_MAX: u64 = 4096;

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// What the kernel locks by.
    pub key: FileKey,
    /// The file system it is on.
    pub mount: Mount,
    /// Device and inode as `stat` shows them.
    pub stat: (u64, u64),
    /// When the file was made, where the file system knows; tells it from one that got its inode.
    pub born_at: Option<Timestamp>,
    /// When it was last written to, as it says: whoever may write to it can set that.
    pub modified_at: Timestamp,
    /// Nobody has written to it, or given it this name, after that.
    pub untouched_since: Timestamp,
    /// A regular file.
    pub is_regular: bool,
}

/// A path, and what is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The path without symbolic links, as other processes see it.
    pub path: Vec<u8>,
    /// None when there is no such file.
    pub found: Option<Found>,
}

/// Where paths begin.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Root(pub Option<PathBuf>);

impl Root {
    /// Looks at a path.
    ///
    /// # Errors
    /// When it cannot be told whether there is a file.
    pub fn find(&self, path: &Path, follow: bool) -> Result<Place, ScanError> {
        let fd = match self.open(path, OFlags::PATH, follow) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => {
                return Ok(Place { path: self.missing(path), found: None });
            }
            Err(errno) => return Err(refused(path, errno)),
        };
        self.describe(&fd).map_err(|error| {
            ScanError::new(ErrorClass::Other, &doing(path), &error.to_string(), "")
        })
    }

    /// The first bytes of a regular file, and since when they are there at the latest; none of
    /// anything else.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, path: &Path) -> Result<Option<(Vec<u8>, Timestamp)>, ScanError> {
        // Whatever may have taken the file's place meanwhile must not make us wait.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let failed = |errno| refused(path, errno);
        let fd = match self.open(path, flags, false) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let stat = |fd: &File| {
            rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).map_err(failed)
        };
        let mut file = File::from(fd);
        if FileType::from_raw_mode(stat(&file)?.stx_mode.into()) != FileType::RegularFile {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        match (&mut file).take(PID_BYTES_MAX + 1).read_to_end(&mut bytes) {
            // Asked for afterwards: what was written meanwhile is not taken for older.
            Ok(_) => Ok(Some((bytes, untouched_since(&stat(&file)?)))),
            Err(error) => {
                Err(ScanError::new(ErrorClass::Other, &doing(path), &error.to_string(), ""))
            }
        }
    }

    /// The names in a folder, no more than `max`; none when it is no folder, or gone.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn names(&self, folder: &Path, max: usize) -> Result<Vec<Vec<u8>>, ScanError> {
        // `DIRECTORY` refuses everything that could act on being opened.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let fd = match self.open(folder, flags, true) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
            Err(errno) => return Err(refused(folder, errno)),
        };
        let failed = |errno| refused(folder, errno);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if names.len() >= max {
                let cause = format!("more than {max} names in the folder");
                return Err(ScanError::new(ErrorClass::Incomplete, &doing(folder), &cause, ""));
            }
            names.push(name.to_vec());
        }
        Ok(names)
    }

    /// Whether a path is there, whatever it is; a link that leads nowhere is.
    ///
    /// # Errors
    /// When that cannot be told.
    pub fn is_there(&self, path: &Path) -> Result<bool, ScanError> {
        match self.open(path, OFlags::PATH, false) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(refused(path, errno)),
        }
    }

    /// Numbers of all files that have names in a folder, of file systems that tell files apart by
    /// them; none when it is too large or cannot be listed.
    pub fn numbers(&self, folder: &Path) -> Option<Numbers> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let fd = self.open(folder, flags, true).ok()?;
        let Found { key, mount, .. } = self.describe(&fd).ok()?.found?;
        if !mount.has_plain_numbers() {
            return None;
        }
        let mut numbers = Numbers { major: key.major, minor: key.minor, inodes: HashSet::new() };
        for entry in rustix::fs::Dir::new(fd).ok()? {
            if numbers.inodes.len() >= NUMBERS_MAX {
                return None;
            }
            numbers.inodes.insert(entry.ok()?.ino());
        }
        Some(numbers)
    }

    fn open(&self, path: &Path, flags: OFlags, follow: bool) -> rustix::io::Result<OwnedFd> {
        let mut flags = flags | OFlags::CLOEXEC;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        let Some(root) = &self.0 else {
            return rustix::fs::openat(CWD, path, flags, Mode::empty());
        };
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, root, folder, Mode::empty())?;
        // Absolute links inside, such as /var/lock → /run/lock, stay inside.
        rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    fn describe(&self, fd: &OwnedFd) -> io::Result<Place> {
        let flags = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let stat = rustix::fs::statx(fd.as_fd(), "", AtFlags::EMPTY_PATH, flags)?;
        let number = fd.as_raw_fd();
        let info = read(&format!("/proc/self/fdinfo/{number}"), FDINFO_BYTES_MAX)?;
        let info = locks::parse_fdinfo(&info);
        let unknown = || io::Error::other("the kernel does not tell its mount");
        let mounts = read("/proc/self/mountinfo", MOUNTS_BYTES_MAX)?;
        let mount = info.mount.and_then(|id| mountinfo::find(&mounts, id)).ok_or_else(unknown)?;
        let inode = info.inode.unwrap_or(stat.stx_ino);
        let key = FileKey { major: mount.major, minor: mount.minor, inode };
        let born = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        Ok(Place {
            path: self.outside(std::fs::read_link(format!("/proc/self/fd/{number}"))?),
            found: Some(Found {
                key,
                mount,
                stat: (device, stat.stx_ino),
                born_at: born.then(|| timestamp(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)),
                modified_at: timestamp(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
                untouched_since: untouched_since(&stat),
                is_regular: kind == FileType::RegularFile,
            }),
        })
    }

    /// The path of a file that is not there, as far as its folder is.
    fn missing(&self, path: &Path) -> Vec<u8> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let fd = self.open(folder, OFlags::PATH | OFlags::DIRECTORY, true);
        let link = |fd: OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let mut whole = match fd.ok().and_then(|fd| link(fd).ok()) {
            Some(folder) => self.outside(folder),
            None => folder.as_os_str().as_bytes().to_vec(),
        };
        if whole.last() != Some(&b'/') {
            whole.push(b'/');
        }
        whole.extend(path.file_name().map(OsStr::as_bytes).unwrap_or_default());
        whole
    }

    /// A path as processes outside of our container have it.
    fn outside(&self, path: PathBuf) -> Vec<u8> {
        let inner = self.0.as_ref().and_then(|root| path.strip_prefix(root).ok());
        match inner {
            Some(inner) => Path::new("/").join(inner).as_os_str().as_bytes().to_vec(),
            None => path.as_os_str().as_bytes().to_vec(),
        }
    }
}

fn read(path: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The later of two: a file that was copied with its time, linked or moved here says that it was
/// written long before it was here, and only the kernel sets the other one.
fn untouched_since(stat: &Statx) -> Timestamp {
    let written = timestamp(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec);
    written.max(timestamp(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec))
}

fn timestamp(seconds: i64, nanos: u32) -> Timestamp {
    let nanos = i32::try_from(nanos).unwrap_or(0);
    Timestamp::new(seconds, nanos).unwrap_or(Timestamp::MIN)
}

fn doing(path: &Path) -> String {
    format!("look at {}", path.display())
}

fn refused(path: &Path, errno: Errno) -> ScanError {
    let (class, advice) = match errno {
        Errno::ACCESS | Errno::PERM => (
            ErrorClass::Permission,
            "The exporter may not enter the folder; it needs CAP_DAC_READ_SEARCH or a group.",
        ),
        Errno::LOOP => (ErrorClass::Config, "Name a path without such symbolic links."),
        Errno::NOSYS => (ErrorClass::Unsupported, "--path.rootfs needs Linux 5.6 or newer."),
        _ => (ErrorClass::Other, ""),
    };
    ScanError::new(class, &doing(path), &io::Error::from(errno).to_string(), advice)
}
