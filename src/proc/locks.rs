//! `/proc/locks` and the `lock:` lines of `/proc/<pid>/fdinfo/<fd>` → rows.
//!
//! Pure and bounded. The grammar is that of Linux `fs/locks.c` (`lock_get_status`): it is read by
//! words, never by columns, since the kernel pads some of them and indents requests that wait.
//! The pid of a row is that of the process that asked for the lock, which is not always the one
//! that has it; this module does not know who has it.

use crate::lock::LockMode;

/// Rows beyond this are not kept; a machine has a few thousand at most.
pub const ROWS_MAX: usize = 500_000;

/// The device of a superblock and the number of a file in it: what the kernel locks by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileKey {
    /// Major number of the device.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Inode number, as the kernel counts.
    pub inode: u64,
}

/// Which interface a lock was taken with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Class {
    /// `flock(2)`.
    Flock,
    /// `fcntl(F_SETLK)`, `lockf(3)`: bound to the process.
    Posix,
    /// `fcntl(F_OFD_SETLK)`: bound to the open file, without a pid.
    Ofd,
    /// `fcntl(F_SETLEASE)` and delegations: no lock-file lock.
    Lease,
    /// Anything else, or a class of the future.
    Other,
}

impl Class {
    /// The word used on pages and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Class::Flock => "flock",
            Class::Posix => "posix",
            Class::Ofd => "ofd",
            Class::Lease => "lease",
            Class::Other => "other",
        }
    }

    /// Whether it is one of the locks that programs guard their work with.
    pub fn is_lock(self) -> bool {
        match self {
            Class::Flock | Class::Posix | Class::Ofd => true,
            Class::Lease | Class::Other => false,
        }
    }
}

/// One lock, or one request that waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// It waits; else it is granted.
    pub waits: bool,
    /// How it was asked for.
    pub class: Class,
    /// A lease that somebody's opening is breaking.
    pub breaking: bool,
    /// What it allows beside it; absent for what is neither a read nor a write lock.
    pub mode: Option<LockMode>,
    /// Who asked: -1 for [`Class::Ofd`], 0 for one that waits outside the PID namespace.
    pub pid: i64,
    /// On which file.
    pub file: FileKey,
    /// First byte and last byte; no last one = the end of the file.
    pub range: (u64, Option<u64>),
}

impl Row {
    /// Whether it covers the file from its first byte to its end, however long that grows.
    pub fn is_whole(&self) -> bool {
        self.range == (0, None)
    }
}

/// Everything that one reading of `/proc/locks` said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rows {
    /// What could be understood, in the order of the file.
    pub rows: Vec<Row>,
    /// Lines that could not, and locks that are on no file.
    pub odd: u64,
    /// There are more, of which nothing is known.
    pub cut: bool,
}

/// Reads the text of `/proc/locks`.
pub fn parse(text: &[u8]) -> Rows {
    parse_some(text, ROWS_MAX)
}

fn parse_some(text: &[u8], rows_max: usize) -> Rows {
    let mut all = Rows::default();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match std::str::from_utf8(line).ok().and_then(row) {
            Some(row) if all.rows.len() < rows_max => all.rows.push(row),
            Some(_) => {
                all.cut = true;
                break;
            }
            None => all.odd += 1,
        }
    }
    all
}

/// One line without its line break: `7:  -> FLOCK  ADVISORY  WRITE 99 fe:00:12 0 EOF`.
fn row(line: &str) -> Option<Row> {
    let mut words = line.split_ascii_whitespace().peekable();
    let id = words.next()?.strip_suffix(':')?;
    id.parse::<u64>().ok()?;
    let waits = words.next_if_eq(&"->").is_some();
    let class = match words.next()? {
        "FLOCK" => Class::Flock,
        "POSIX" => Class::Posix,
        "OFDLCK" => Class::Ofd,
        "LEASE" | "DELEG" => Class::Lease,
        _ => Class::Other,
    };
    let breaking = matches!(words.next()?, "BREAKING" | "BREAKER");
    let mode = match words.next()? {
        "WRITE" => Some(LockMode::Exclusive),
        "READ" => Some(LockMode::Shared),
        _ => None,
    };
    let pid = words.next()?.parse().ok()?;
    let file = file_key(words.next()?)?;
    let start = words.next()?.parse().ok()?;
    let end = match words.next()? {
        "EOF" => None,
        end => Some(end.parse().ok()?),
    };
    let complete = words.next().is_none();
    complete.then_some(Row { waits, class, breaking, mode, pid, file, range: (start, end) })
}

/// `fe:00:10363657`: hexadecimal device, decimal inode.
fn file_key(word: &str) -> Option<FileKey> {
    let mut parts = word.split(':');
    let major = u32::from_str_radix(parts.next()?, 16).ok()?;
    let minor = u32::from_str_radix(parts.next()?, 16).ok()?;
    let inode = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(FileKey { major, minor, inode })
}

/// What one `fdinfo` file says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FdInfo {
    /// The mount that the file was opened through.
    pub mount: Option<u64>,
    /// The inode number as the kernel counts; since Linux 5.14.
    pub inode: Option<u64>,
    /// The locks that this descriptor (or, for POSIX locks, its process) has: granted, proven.
    pub locks: Vec<Row>,
}

/// Reads the text of one `fdinfo` file.
pub fn parse_fdinfo(text: &[u8]) -> FdInfo {
    let mut info = FdInfo::default();
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let Some((name, value)) = line.split_once(':') else { continue };
        match name {
            "mnt_id" => info.mount = value.trim().parse().ok(),
            "ino" => info.inode = value.trim().parse().ok(),
            "lock" => info.locks.extend(row(value.trim())),
            _ => {}
        }
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> Row {
        let rows = parse(line.as_bytes());
        assert_eq!((rows.rows.len(), rows.odd), (1, 0), "{line}");
        rows.rows[0]
    }

    #[test]
    fn a_row_is_read_by_its_words() {
        let row = one("1: FLOCK  ADVISORY  WRITE 23538 fe:00:10363657 0 EOF\n");
        let file = FileKey { major: 0xfe, minor: 0, inode: 10_363_657 };
        assert_eq!(
            (row.class, row.mode, row.pid),
            (Class::Flock, Some(LockMode::Exclusive), 23538)
        );
        assert_eq!((row.file, row.waits, row.is_whole()), (file, false, true));
        let row = one("12: POSIX  ADVISORY  READ  7 08:01:5 10 14");
        assert_eq!((row.mode, row.range), (Some(LockMode::Shared), (10, Some(14))));
        let row = one("3: OFDLCK ADVISORY  WRITE -1 fe:00:5 0 EOF");
        assert_eq!((row.class, row.pid), (Class::Ofd, -1));
    }

    #[test]
    fn device_numbers_are_hexadecimal_and_inodes_have_64_bits() {
        let row = one("1: FLOCK ADVISORY WRITE 1 103:02:9223372036865205098 0 EOF");
        let inode = 9_223_372_036_865_205_098;
        assert_eq!(row.file, FileKey { major: 0x103, minor: 2, inode });
    }

    #[test]
    fn waiters_of_every_depth_and_of_old_kernels_are_waiters() {
        for arrow in ["->", " ->", "  ->", "     ->"] {
            let row = one(&format!("2: {arrow} FLOCK  ADVISORY  WRITE 9 fe:00:5 0 EOF"));
            assert!(row.waits);
            assert_eq!(row.pid, 9);
        }
        assert_eq!(one("2: -> POSIX  ADVISORY  READ 0 fe:00:5 0 EOF").pid, 0);
    }

    #[test]
    fn a_lock_on_no_file_is_counted_and_hides_no_other() {
        let text = "6: FLOCK ADVISORY WRITE 1 fe:00:5 0 EOF\n\
                    7: LEASE  BREAKER   READ  99 <none>:0 0 EOF\n\
                    8: FLOCK ADVISORY WRITE 2 fe:00:6 0 EOF\n";
        let rows = parse(text.as_bytes());
        assert_eq!((rows.rows.len(), rows.odd), (2, 1));
    }

    #[test]
    fn historical_and_unknown_words_are_no_failure() {
        for (line, class, mode) in [
            ("1: POSIX  MANDATORY WRITE 1 fe:00:5 0 EOF", Class::Posix, Some(LockMode::Exclusive)),
            ("1: FLOCK  MSNFS     READ 1 fe:00:5 0 EOF", Class::Flock, Some(LockMode::Shared)),
            ("1: FLOCK  MSNFS     RW 1 fe:00:5 0 EOF", Class::Flock, None),
            ("1: ACCESS *NOINODE* READ 1 fe:00:5 0 EOF", Class::Other, Some(LockMode::Shared)),
            ("1: FOO ADVISORY READ 1 fe:00:5 0 EOF", Class::Other, Some(LockMode::Shared)),
            ("1: DELEG  ACTIVE    READ 1 fe:00:5 0 EOF", Class::Lease, Some(LockMode::Shared)),
        ] {
            let row = one(line);
            assert_eq!((row.class, row.mode), (class, mode), "{line}");
            assert_eq!(row.class.is_lock(), matches!(class, Class::Flock | Class::Posix));
        }
        assert!(one("1: LEASE  BREAKING  UNLCK 1 fe:00:5 0 EOF").breaking);
    }

    #[test]
    fn lines_that_are_cut_or_junk_are_counted() {
        for (text, odd) in [
            ("", 0),
            ("1: FLOCK ADVISORY WRITE 1 fe:00:5 0", 1),
            ("1: FLOCK ADVISORY WRITE 1 fe:00:5 0 EOF more", 1),
            ("1: FLOCK ADVISORY WRITE 1 fe:00:5:6 0 EOF", 1),
            ("\0\0\0\n\0", 2),
            ("x: FLOCK ADVISORY WRITE 1 fe:00:5 0 EOF", 1),
        ] {
            let rows = parse(text.as_bytes());
            assert_eq!((rows.rows.len(), rows.odd), (0, odd), "{text:?}");
        }
        let junk = vec![b'x'; 10 << 20];
        assert_eq!(parse(&junk).odd, 1);
    }

    #[test]
    fn rows_that_are_left_out_are_told_of() {
        let text = "1: FLOCK ADVISORY WRITE 1 fe:00:5 0 EOF\n".repeat(3);
        let some = parse_some(text.as_bytes(), 2);
        assert_eq!((some.rows.len(), some.cut), (2, true));
        assert!(!parse_some(text.as_bytes(), 3).cut);
    }

    #[test]
    fn descriptors_tell_their_mount_their_inode_and_what_they_have() {
        let info = parse_fdinfo(
            b"pos:\t0\nflags:\t0100000\nmnt_id:\t29\nino:\t12\n\
              lock:\t1: FLOCK  ADVISORY  WRITE 23538 fe:00:12 0 EOF\n",
        );
        assert_eq!((info.mount, info.inode), (Some(29), Some(12)));
        assert_eq!(info.locks.len(), 1);
        assert_eq!(info.locks[0].file.inode, 12);
    }

    proptest! {
        #[test]
        fn every_line_is_a_row_or_is_counted(text in prop::collection::vec(any::<u8>(), 0..2000)) {
            let rows = parse(&text);
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
            prop_assert_eq!(rows.rows.len() + rows.odd as usize, lines);
            parse_fdinfo(&text);
        }

        #[test]
        fn what_the_kernel_writes_is_read_back(
            major in 0_u32..0x1000, minor in 0_u32..0x10_0000, inode: u64, pid: i32, depth in 0_usize..5,
            start: u64, end: Option<u64>,
        ) {
            let arrow = if depth == 0 { String::new() } else { format!("{:>depth$}-> ", "") };
            let end_word = end.map_or("EOF".to_owned(), |end| end.to_string());
            let line = format!(
                "1: {arrow}POSIX  ADVISORY  READ {pid} {major:02x}:{minor:02x}:{inode} {start} {end_word}"
            );
            let row = one(&line);
            prop_assert_eq!(row.file, FileKey { major, minor, inode });
            prop_assert_eq!((row.pid, row.waits, row.range), (i64::from(pid), depth > 0, (start, end)));
        }
    }
}
