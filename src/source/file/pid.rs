//! The content of a file that names the process behind it → pids.
//!
//! Pure and bounded. One reader for the files of dnf, PostgreSQL, resticprofile, UUCP and others.

/// Pids that a file may name; resticprofile adds one for each restic it starts.
const PIDS_MAX: usize = 64;

/// The pids that a file names; none when it names none (yet): it may be half written.
///
/// The first line is a number, perhaps with blanks and more words behind it; a negative one is a
/// single-user PostgreSQL (`src/include/utils/pidfile.h`). If it is none, all later lines that are
/// numbers count, as in resticprofile's files (`lock/lock.go`). Four bytes may be one in binary.
pub fn parse(bytes: &[u8]) -> Vec<i64> {
    if let (&[a, b, c, d], true) = (bytes, bytes.iter().any(|byte| !is_text(*byte))) {
        let pid = i64::from(u32::from_le_bytes([a, b, c, d]));
        return Some(pid).filter(|pid| is_pid(*pid)).into_iter().collect();
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    let mut lines =
        text.lines().map(|line| line.trim_matches(|c: char| c.is_whitespace() || c == '\0'));
    let first = lines.next().unwrap_or_default();
    match first.split_whitespace().next().and_then(number) {
        Some(pid) => Some(pid).filter(|pid| is_pid(*pid)).into_iter().collect(),
        None => lines.filter_map(number).filter(|pid| is_pid(*pid)).take(PIDS_MAX).collect(),
    }
}

fn is_text(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte.is_ascii_whitespace()
}

fn number(word: &str) -> Option<i64> {
    word.parse::<i64>().ok().map(|pid| pid.saturating_abs())
}

fn is_pid(pid: i64) -> bool {
    // PID_MAX_LIMIT of Linux is 4 × 1024 × 1024.
    (1..=4_194_304).contains(&pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pids_are_read_in_every_way_that_tools_write_them() {
        for (text, pids) in [
            (" 4242\n", &[4242][..]),
            ("-77", &[77]),
            ("", &[]),
            ("\n", &[]),
            ("0\n", &[]),
            ("4242 host", &[4242]),
            ("4242\0", &[4242]),
            ("u on DATE from h\n4242\n4243", &[4242, 4243]),
            ("u on DATE from h\n", &[]),
            ("4242\n/var/lib/postgresql\n1700000000\n5432\n", &[4242]),
            ("      1234\n", &[1234]),
            ("{\"Session\":\"s\",\"PID\":\"12345\"}", &[]),
            ("99999999999999999999\n", &[]),
            ("\u{10}\u{0}\u{0}\u{0}", &[16]),
            ("1234", &[1234]),
        ] {
            assert_eq!(parse(text.as_bytes()), pids, "{text:?}");
        }
        assert!(parse(&[b'x'; 5000]).is_empty() && parse(&[0xff; 4]).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_are_pids_or_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(parse(&bytes).iter().all(|pid| is_pid(*pid)));
        }
    }
}
