//! The parsers: what each is given, what must be true of its result, and how much it may allocate.
//!
//! Those of the restic source and of `/proc` are here; the others in modules of their own.

use std::hash::{DefaultHasher, Hash, Hasher};

use lock_exporter::lock::UnreadableWhy;
use lock_exporter::proc::{locks, mountinfo, process};
use lock_exporter::source::file::pid;
use lock_exporter::source::restic::config_file::Config;
use lock_exporter::source::restic::crypto::{DERIVED_BYTES, IV_BYTES, MasterKey};
use lock_exporter::source::restic::key::{BadKeyFile, KeyFile};
use lock_exporter::source::restic::lock_file::{self, Content, Encoding, NAME_BYTES_MAX};

use crate::{listings, requests, state, texts};

/// One parser.
pub struct Parser {
    /// Its name, and that of its folder of samples.
    pub name: &'static str,
    /// Words that its format has.
    pub words: &'static [&'static str],
    /// Samples that are made, beside the saved ones.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Bytes that it may allocate at once for an empty input.
    pub base: usize,
    /// Bytes that it may allocate more for each byte of input. A buffer that grows counts three
    /// times, since old and new one are there together.
    pub each: usize,
    /// Gives it an input, and checks what must be true of the result: what kind of answer it was.
    pub run: fn(&[u8]) -> u64,
}

impl Parser {
    /// Bytes that it may allocate at once for an input of so many bytes.
    pub fn bound(&self, input: usize) -> usize {
        self.base + self.each * input
    }
}

/// A number for a kind of answer; numbers in its text make no other kind.
pub fn kind(answer: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let text = answer.bytes().filter(|byte| !byte.is_ascii_digit()).take(200);
    text.for_each(|byte| byte.hash(&mut hasher));
    hasher.finish()
}

/// A kind that has a number which counts by its magnitude.
pub fn kind_of_many(answer: &str, count: usize) -> u64 {
    kind(answer) ^ u64::from(count.checked_ilog2().map_or(0, |log| log + 1)).rotate_right(8)
}

const KIB: usize = 1024;

pub fn none() -> Vec<Vec<u8>> {
    Vec::new()
}

const LOCK_WORDS: &[&str] = &[
    "\"time\":",
    "\"exclusive\":",
    "\"hostname\":",
    "\"username\":",
    "\"pid\":",
    "\"uid\":",
    "\"gid\":",
    "true",
    "false",
    "null",
    "\"0001-01-01T00:00:00Z\"",
    "+23:59",
    "-24:00",
    ",5Z",
    ".999999999999",
    "9999-12-31T23:59:59",
    "{}",
    "[]",
    "\"EXCLU\u{17f}IVE\":",
    "\"\u{212a}\":",
    "\\u0041",
    "\\ud83d\\udc64",
    "\\ud800",
    "1e3",
];
const KEY_WORDS: &[&str] = &[
    "\"kdf\":\"scrypt\"",
    "\"N\":",
    "\"r\":",
    "\"p\":",
    "\"salt\":",
    "\"data\":",
    "\"n\":",
    "==",
    "null",
    "1073741824",
    "2097152",
    "\"created\":",
    "A",
    "_",
    "\\n",
];
const STAT_WORDS: &[&str] = &["(", ")", ") S ", " ", "\n", " R ", " Z ", "-1", "\u{a0}"];
const STATUS_WORDS: &[&str] = &["Tgid:\t", "Uid:\t", "NSpid:\t", "Name:\t", "\n", "\t", ":"];
const LOCKS_WORDS: &[&str] = &[
    "1: ",
    "-> ",
    "POSIX",
    "FLOCK",
    "OFDLCK",
    "LEASE",
    "DELEG",
    "ADVISORY",
    "MANDATORY",
    "ACTIVE",
    "BREAKING",
    "BREAKER",
    "READ",
    "WRITE",
    "UNLCK",
    "EOF",
    "0 EOF",
    "<none>",
    "fd:01:",
    "ff:ffffffff:",
    "*NOINODE*",
    "lock:\t",
    "pos:\t",
    "flags:\t",
    "mnt_id:\t",
    "ino:\t",
    "\n",
    "  ",
];
const MOUNT_WORDS: &[&str] =
    &[" - ", "nfs4", "fuse.sshfs", "overlay", "btrfs", " / ", "\\040", "shared:1", "0:21", "\n"];

/// Every parser.
pub const PARSERS: &[Parser] = &[
    Parser { name: "lock", words: LOCK_WORDS, samples: none, base: 80 * KIB, each: 8, run: lock },
    Parser {
        name: "lock-compressed",
        words: &["\u{2}", "(\u{b5}/\u{fd}"],
        samples: compressed,
        // 64 KiB of plaintext may come from a few bytes, and be one name.
        base: 512 * KIB,
        each: 8,
        run: lock_compressed,
    },
    Parser { name: "sealed", words: &[], samples: sealed, base: KIB, each: 3, run: open_sealed },
    Parser {
        name: "repository-config",
        words: &["\"version\":", "\"id\":", "1", "2", "null", "\"chunker_polynomial\":"],
        samples: none,
        base: KIB,
        each: 16,
        run: repository_config,
    },
    Parser { name: "key", words: KEY_WORDS, samples: none, base: KIB, each: 10, run: key },
    Parser {
        name: "master-key",
        words: &["\"mac\":", "\"k\":", "\"r\":", "\"encrypt\":", "==", "null"],
        samples: || vec![master().to_json().as_bytes().to_vec()],
        base: KIB,
        each: 10,
        run: master_key,
    },
    Parser {
        name: "proc-locks",
        words: LOCKS_WORDS,
        samples: none,
        base: KIB,
        each: 16,
        run: rows,
    },
    Parser { name: "fdinfo", words: LOCKS_WORDS, samples: none, base: KIB, each: 16, run: fdinfo },
    Parser { name: "mountinfo", words: MOUNT_WORDS, samples: none, base: KIB, each: 4, run: mount },
    Parser { name: "stat", words: STAT_WORDS, samples: none, base: KIB, each: 16, run: stat },
    Parser { name: "status", words: STATUS_WORDS, samples: none, base: KIB, each: 8, run: status },
    Parser { name: "pid", words: &["\n", "-", " "], samples: none, base: KIB, each: 4, run: pids },
    listings::REST,
    listings::S3,
    listings::AZURE,
    listings::LOCKS,
    listings::REFUSAL,
    listings::SSH,
    texts::CONFIGURATION,
    texts::WEB,
    texts::DURATION,
    texts::LOCATION,
    texts::PATTERN,
    texts::ASSIGNMENTS,
    texts::PASSWORD,
    texts::COMMAND,
    texts::PROFILES,
    texts::ACCEPT,
    texts::QUERY,
    texts::LABEL,
    requests::SCRAPE,
    requests::ENCODING,
    requests::PATH,
    requests::LOGIN,
    requests::RETRY_AFTER,
    requests::PROCESS,
    requests::SERVICE,
    state::STATE,
];

fn master() -> MasterKey {
    MasterKey::from_derived(&[7; DERIVED_BYTES])
}

fn lock(input: &[u8]) -> u64 {
    let answers = [Encoding::Plain, Encoding::Compressible, Encoding::Unknown]
        .map(|encoding| told(&lock_file::decode(input, encoding)));
    if !lock_file::is_compressed(input) {
        // Only the first byte could make them differ.
        assert_eq!(answers[0], answers[2]);
    }
    kind(&answers.concat())
}

fn told(decoded: &Result<Content, UnreadableWhy>) -> String {
    match decoded {
        Ok(content) => {
            // A mark stands behind a name that was cut.
            for name in [&content.holder.hostname, &content.holder.username] {
                assert!(name.len() <= NAME_BYTES_MAX + 9, "a name of {} bytes", name.len());
            }
            let time = content.refreshed_at.is_some();
            format!(
                "{:?} {time} {:?} {}",
                content.mode,
                content.doubt,
                content.holder.pid.is_some()
            )
        }
        Err(why) => format!("{why:?}"),
    }
}

fn compressed() -> Vec<Vec<u8>> {
    let text = |letters: usize| {
        format!(r#"{{"time":"2026-01-02T03:04:05Z","hostname":"{}","pid":7}}"#, "h".repeat(letters))
    };
    // The last one is a bomb.
    [1, 2_000, 60_000, 3_000_000].map(|letters| packed(text(letters).as_bytes())).to_vec()
}

/// As restic compresses.
fn packed(text: &[u8]) -> Vec<u8> {
    let mut packed = vec![2];
    packed.extend(zstd::bulk::compress(text, 3).expect("memory suffices"));
    packed
}

fn lock_compressed(input: &[u8]) -> u64 {
    kind(&told(&lock_file::decode(input, Encoding::Compressible)))
}

fn sealed() -> Vec<Vec<u8>> {
    [&b""[..], b"{}", &[b'x'; 300]].map(|plain| master().seal([3; IV_BYTES], plain)).to_vec()
}

fn open_sealed(input: &[u8]) -> u64 {
    match master().open(input) {
        // Whoever has no key cannot make one that opens, but for those that were given.
        Ok(plain) => {
            let iv: [u8; IV_BYTES] = input[..IV_BYTES].try_into().expect("is long enough");
            assert_eq!(master().seal(iv, &plain), input);
            kind_of_many("open", plain.len())
        }
        Err(error) => kind(&error.to_string()),
    }
}

fn repository_config(input: &[u8]) -> u64 {
    match Config::open(&master().seal([3; IV_BYTES], input), &master()) {
        Ok(config) => {
            assert!(matches!(config.id.len(), 0 | 64), "{:?}", config.id);
            kind_of_many(config.version.as_str(), config.id.len())
        }
        Err(error) => kind(&error.to_string()),
    }
}

fn key(input: &[u8]) -> u64 {
    match KeyFile::parse(input) {
        Ok(key) => {
            // restic's own limits: two tables of 2 GiB, and a little.
            assert!(key.memory() < 5 << 30, "{} bytes to derive", key.memory());
            kind_of_many("key", usize::try_from(key.memory()).expect("is small"))
        }
        Err(BadKeyFile::Parameters { .. }) => kind("parameters"),
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() < 500, "an error of {} bytes", text.len());
            kind(&text)
        }
    }
}

fn master_key(input: &[u8]) -> u64 {
    match MasterKey::from_json(input) {
        Ok(key) => {
            assert!(MasterKey::from_json(key.to_json().as_bytes()).is_ok_and(|again| again == key));
            kind("key")
        }
        Err(error) => kind(&error.to_string()),
    }
}

fn rows(input: &[u8]) -> u64 {
    let all = locks::parse(input);
    let lines = input.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    assert_eq!(all.rows.len() as u64 + all.odd, lines as u64, "a line was lost");
    let first = all.rows.first().map(|row| (row.waits, row.class, row.mode, row.range.1.is_some()));
    kind_of_many(&format!("{first:?}"), all.rows.len())
}

fn fdinfo(input: &[u8]) -> u64 {
    kind(&format!("{:?}", locks::parse_fdinfo(input)))
}

fn mount(input: &[u8]) -> u64 {
    let found = [0, 1, 26, 36, u64::MAX].map(|mount| {
        let found = mountinfo::find(input, mount);
        found.map(|mount| (mount.is_remote(), mount.is_ambiguous()))
    });
    kind(&format!("{found:?}"))
}

fn stat(input: &[u8]) -> u64 {
    kind(&format!("{:?}", process::parse_stat(input)))
}

fn status(input: &[u8]) -> u64 {
    let numbers = process::parse_status(input);
    kind_of_many(&format!("{numbers:?}"), numbers.map_or(0, |numbers| numbers.pids.len()))
}

fn pids(input: &[u8]) -> u64 {
    let pids = pid::parse(input);
    assert!(pids.len() <= 64, "{} pids", pids.len());
    assert!(pids.iter().all(|pid| (1..=1 << 22).contains(pid)), "{pids:?}");
    kind_of_many("pids", pids.len())
}
