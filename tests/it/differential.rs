//! Thousands of generated lock files, judged by us and by restic itself.
//!
//! restic shows what it takes for a lock (`list locks`) and what it takes for stale (what `unlock`
//! removes). Both must be what we say; where we differ on purpose, the case says so. `unlock`
//! sends signals to processes that locks name, so it runs in a PID and UTS namespace of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use lock_exporter::cmd::demo::writer::{Repository, Version};
use lock_exporter::judge::{self, Verdict};
use lock_exporter::lock::LockEntry;
use lock_exporter::source::{self, LockSource};
use lock_exporter::{app, scanner};
use sha2::{Digest, Sha256};

use crate::scene;

const FILES: usize = 1_200;

/// What a file is, as both sides can say it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct View {
    listed: bool,
    stale: bool,
}

/// A generated file and in which way we may differ from restic.
#[derive(Clone, Debug)]
struct Case {
    what: String,
    /// We call it unreadable where restic reads it.
    stricter: bool,
}

struct Generator {
    random: fastrand::Rng,
    now: Timestamp,
}

impl Generator {
    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.random.usize(..choices.len())].clone()
    }

    /// A time as JSON; none near enough to 30 minutes for the test's own duration to matter.
    fn time(&mut self) -> String {
        let seconds = self.pick(&[
            0, 1, 60, 299, 1200, 1500, 1860, 2400, 3600, 86_400, 34_560_000, -60, -3600, -86_400,
        ]);
        let at = self.now - SignedDuration::from_secs(seconds)
            + SignedDuration::from_nanos(self.random.i64(0..1_000_000_000));
        let offset = self.pick(&[0, 8 * 3600, -5 * 3600, -(3 * 3600 + 1800), 14 * 3600]);
        let zone = TimeZone::fixed(Offset::from_seconds(offset).unwrap());
        let zoned = at.to_zoned_datetime(zone);
        match self.random.u8(0..12) {
            0 => "null".into(),
            1 => "\"0001-01-01T00:00:00Z\"".into(),
            2 => zoned.strftime("\"%Y-%m-%dT%H:%M:%S\"").to_string(),
            3 => zoned.strftime("\"%Y-%m-%d %H:%M:%S%:z\"").to_string(),
            4 => zoned.strftime("\"%Y-%m-%dT%H:%M:%S%:z\"").to_string(),
            5 => at.strftime("\"%Y-%m-%dT%H:%M:%S.%3fZ\"").to_string(),
            6 => at.as_second().to_string(),
            _ => zoned.strftime("\"%Y-%m-%dT%H:%M:%S.%9f%:z\"").to_string(),
        }
    }

    fn json(&mut self) -> String {
        let mut fields: Vec<(String, String)> = Vec::new();
        let time = self.time();
        let hosts =
            ["\"db01\"", "\"\"", "\"h\u{fc}tte\"", "\"a\\nb\\u0000\"", "null", "\"q\\\"\"", "7"];
        let pids = ["1", "4242", "0", "-1", "99999999", "\"1\"", "1.5", "1e3", "null"];
        let ids = ["0", "1000", "4294967295", "4294967296", "-1", "null", "\"0\""];
        let flags = ["true", "false", "false", "true", "null", "0", "\"true\""];
        // Mostly right, so that one odd field at a time decides.
        let mut add = |this: &mut Self, name: &str, odd: &[&str], usual: &str| {
            let value = if this.random.u8(0..5) == 0 { this.pick(odd) } else { usual };
            if this.random.u8(0..12) > 0 {
                fields.push((name.into(), value.into()));
            }
        };
        add(self, "time", &[&time], &time);
        add(self, "exclusive", &flags, "false");
        add(self, "hostname", &hosts, "\"db01\"");
        add(self, "username", &hosts, "\"root\"");
        add(self, "pid", &pids, "4242");
        add(self, "uid", &ids, "1000");
        add(self, "gid", &ids, "1000");
        if self.random.u8(0..6) == 0 {
            let again = self.time();
            fields.push(("time".into(), again));
        }
        if self.random.u8(0..6) == 0 {
            fields.push(("unknown".into(), "{\"a\":[1,null]}".into()));
        }
        let upper = self.random.u8(0..8) == 0;
        let body: Vec<_> = fields
            .iter()
            .map(|(name, value)| {
                let name = if upper { name.to_uppercase() } else { name.clone() };
                format!("\"{name}\":{value}")
            })
            .collect();
        format!("{{{}}}", body.join(","))
    }

    /// The plaintext of a lock: mostly good, else damaged in one way.
    fn plain(&mut self, version: Version) -> (Vec<u8>, bool) {
        let json = self.json();
        let whole = json.into_bytes();
        let mut stricter = false;
        let text = match self.random.u8(0..24) {
            0 => whole[..self.random.usize(..whole.len())].to_vec(),
            1 => [&whole[..], b"  \n\t "].concat(),
            2 => [&whole[..], b"x"].concat(),
            3 => [b"\xef\xbb\xbf", &whole[..]].concat(),
            4 => b"null".to_vec(),
            5 => b"{}".to_vec(),
            6 => self.pick(&["[]", "", "7", "\"x\"", "[{}]", " {}"]).into(),
            7 => [b"\x03", &whole[..]].concat(),
            8 => {
                // Over our bound, compressed or not, no file is a lock; restic has no bound.
                stricter = true;
                [&whole[..], &vec![b' '; 70_000]].concat()
            }
            9 => {
                let mut bytes = whole.clone();
                let at = self.random.usize(..bytes.len());
                bytes[at] = self.random.u8(..);
                bytes
            }
            _ => whole,
        };
        let compress = match version {
            Version::V1 => self.random.u8(0..10) == 0,
            Version::V2 => self.random.u8(0..3) > 0,
        };
        if compress {
            let mut out = vec![2];
            out.extend(zstd::bulk::compress(&text, 3).unwrap());
            if self.random.u8(0..12) == 0 {
                out.truncate(self.random.usize(1..out.len()));
            }
            return (out, stricter);
        }
        (text, stricter)
    }

    /// Writes one file; returns its name as restic lists it.
    fn write(&mut self, repository: &Repository, version: Version) -> (String, Case) {
        let (plain, stricter) = self.plain(version);
        let mut case = Case { what: String::from_utf8_lossy(&plain).into_owned(), stricter };
        let name = repository.sealed(&plain).unwrap();
        let path = repository.lock_folder().join(&name);
        let damage = self.random.u8(0..20);
        if damage > 3 {
            return (name, case);
        }
        let mut bytes = std::fs::read(&path).unwrap();
        repository.remove(&name).unwrap();
        case.what = format!("damaged in way {damage}: {}", case.what);
        match damage {
            // The name stays that of the whole file.
            0 => bytes.truncate(self.random.usize(1..bytes.len())),
            1 => {
                let at = self.random.usize(..bytes.len());
                bytes[at] ^= 1;
            }
            // The name is right, the content is not.
            2 => {
                let at = self.random.usize(..bytes.len());
                bytes[at] ^= 0x80;
                let name = hex::encode(Sha256::digest(&bytes));
                repository.raw(&name, &bytes).unwrap();
                return (name, case);
            }
            _ => bytes.clear(),
        }
        repository.raw(&name, &bytes).unwrap();
        (name, case)
    }
}

async fn ours(root: &Path) -> BTreeMap<String, (View, String)> {
    let mut spec = scene::spec("differential", root.to_str().unwrap());
    let lock_exporter::target::SourceSpec::Restic(restic) = &mut spec.source else {
        panic!("a repository was asked for")
    };
    restic.password = lock_exporter::secret::PasswordSpec::Variable("PASSWORD".into());
    let password = lock_exporter::secret::Secret::new("differential");
    restic.env.env.insert("PASSWORD".into(), password);
    spec.timeout = std::time::Duration::from_secs(120);
    let reader: Box<dyn LockSource> =
        source::open(&spec, &app::context(lock_exporter::proc::machine::MachineSpec::unknown()));
    reader.ready().await;
    let scan = scanner::scan(&std::sync::Arc::new(spec.clone()), &*reader).await;
    let look = scan.outcome.unwrap();
    assert!(!look.facts.sealed);
    look.entries
        .iter()
        .map(|entry| {
            let policy = source::policy(&spec);
            let verdict = judge::judge_entry(entry, scan.ended_at, &policy, scan.ended_at);
            let stale = matches!(verdict, Verdict::Stale(_));
            let why = match entry {
                LockEntry::Readable(_) => verdict.as_str().to_owned(),
                LockEntry::Empty(_) => "empty".to_owned(),
                LockEntry::Unreadable(_, why) => format!("unreadable ({})", why.as_str()),
                LockEntry::Sealed(_, why) => {
                    panic!("{} is sealed: {}", entry.stub().id.as_str(), why.as_str())
                }
            };
            (entry.stub().id.as_str().to_owned(), (View { listed: true, stale }, why))
        })
        .collect()
}

fn restic(program: &str, root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["--no-cache", "-r"]).arg(root).args(arguments);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("RESTIC_PASSWORD", "differential").env("HOME", "/nonexistent");
    command
}

fn listed(program: &str, root: &Path) -> BTreeSet<String> {
    let output = restic(program, root, &["list", "locks", "--no-lock"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).collect()
}

/// What `unlock` removes, in namespaces where a lock can name no process but restic's own.
fn removed(program: &str, root: &Path) -> BTreeSet<String> {
    let before = listed(program, root);
    let unlock = restic(program, root, &["unlock"]);
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--uts", "--fork", "--mount-proc", "sh", "-c"]);
    inside.args(["hostname elsewhere.invalid; exec \"$@\"", "sh", program]);
    inside.args(unlock.get_args());
    for (name, value) in unlock.get_envs() {
        inside.env(name, value.unwrap_or_default());
    }
    let output = inside.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    before.difference(&listed(program, root)).cloned().collect()
}

async fn compare(program: &str, version: Version, seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("repository");
    let repository = Repository::init(&root, version, b"differential", Repository::CHEAP).unwrap();
    let mut generator = Generator { random: fastrand::Rng::with_seed(seed), now: Timestamp::now() };
    let mut cases = BTreeMap::new();
    for _ in 0..FILES {
        let (name, case) = generator.write(&repository, version);
        cases.insert(name, case);
    }
    let ours = ours(&root).await;
    let listed = listed(program, &root);
    let removed = removed(program, &root);
    let mut differences = Vec::new();
    for (name, case) in &cases {
        let restic = View { listed: listed.contains(name), stale: removed.contains(name) };
        let (mine, why) = ours
            .get(name)
            .cloned()
            .unwrap_or((View { listed: false, stale: false }, "not an entry".into()));
        if case.stricter && why.starts_with("unreadable (") {
            continue;
        }
        if mine != restic {
            differences.push(format!("restic {restic:?}, we {mine:?} ({why}): {}", case.what));
        }
    }
    let count = differences.len();
    differences.truncate(10);
    let shown = differences.join("\n");
    assert!(count == 0, "{count} of {FILES} differ (seed {seed}, {program}):\n{shown}");
    assert!(removed.len() > FILES / 10 && removed.len() < FILES, "{} removed", removed.len());
}

fn program(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} must name a restic program; tests/run installs it and sets it")
    })
}

fn seed() -> u64 {
    let seed = std::env::var("LOCK_EXPORTER_SEED").ok().and_then(|text| text.parse().ok());
    seed.unwrap_or_else(|| fastrand::u64(..))
}

#[tokio::test]
async fn restic_0_14_agrees_about_every_generated_lock() {
    compare(&program("RESTIC_014"), Version::V1, seed()).await;
    compare(&program("RESTIC_014"), Version::V2, seed()).await;
}

#[tokio::test]
async fn restic_0_18_agrees_about_every_generated_lock() {
    compare(&program("RESTIC_018"), Version::V2, seed()).await;
}
