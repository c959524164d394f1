//! The configuration file: text in, targets and settings out, or every error at once.
//!
//! A syntax error ends at the first one; after that all errors are reported together, each with
//! its line and key. Pure: files that the text names are looked at by the caller.

mod file;
mod reader;
mod restic;
mod search;
mod supplied;
mod tree;
pub mod web;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use crate::label::LabelRules;
use crate::shard::Shard;
use crate::target::{PerMode, SourceSpec, TargetName, TargetSpec, Watched};

pub use supplied::{Named, Nothing, Surroundings, VARIABLE as REPOSITORY_VARIABLE};

use reader::{Defaults, Reader};
use tree::Value;

/// Shortest interval between scans of one target.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Values of a failing target must vanish before they could look stuck.
const HOLD_MAX: Duration = Duration::from_secs(25 * 60);
/// restic's own stale limit; below it a live lock would look stuck in an outage.
pub const STUCK_LIMIT_MIN: Duration = Duration::from_secs(30 * 60);

/// How and how often targets are scanned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanSettings {
    /// How often each target is scanned.
    pub interval: Duration,
    /// How often instead a repository in which the last scan saw no lock file; absent: no
    /// difference is made.
    pub idle_interval: Option<Duration>,
    /// How long one scan may take.
    pub timeout: Duration,
    /// How many scans run at once.
    pub concurrency: usize,
    /// How long values stay shown without a successful scan.
    pub hold: Duration,
}

impl Default for ScanSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(60),
            idle_interval: None,
            timeout: Duration::from_secs(30),
            concurrency: 16,
            hold: Duration::from_secs(15 * 60),
        }
    }
}

/// Settings that were given by flag and so win over the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides {
    /// `--scan.interval`
    pub interval: Option<Duration>,
    /// `--scan.idle-interval`
    pub idle_interval: Option<Duration>,
    /// `--scan.timeout`
    pub timeout: Option<Duration>,
    /// `--scan.concurrency`
    pub concurrency: Option<usize>,
    /// `--scan.hold`
    pub hold: Option<Duration>,
}

/// Everything a configuration says.
#[derive(Clone, Debug)]
pub struct Config {
    /// How and how often.
    pub scan: ScanSettings,
    /// Rules for holder labels.
    pub labels: LabelRules,
    /// What is watched, in the order of the file.
    pub targets: Vec<TargetSpec>,
    /// Which of the targets are this exporter's; by flag alone.
    pub shard: Shard,
}

/// One thing that is wrong, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Line, from 1; 0 when it is about no line of a file.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The key, as a path: `targets[2].restic.repository`.
    pub key: String,
    /// What is wrong and what would be right; quotes no secret.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError(pub Vec<Problem>);

impl ConfigError {
    /// All of it, one problem a line, below a line that names the file.
    pub fn of_file(&self, file: &Path) -> String {
        let lines: Vec<_> = self.0.iter().map(|problem| format!("\n  {problem}")).collect();
        let errors = if lines.len() == 1 { "error" } else { "errors" };
        format!("{} has {} {errors}:{}", file.display(), lines.len(), lines.concat())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Default limits of a repository's holds: 4 h exclusive, 24 h shared.
pub fn default_hold_limit() -> PerMode<Option<Duration>> {
    PerMode {
        exclusive: Some(Duration::from_secs(4 * 3600)),
        shared: Some(Duration::from_secs(24 * 3600)),
    }
}

/// Default limit of a job's hold of a lock file.
const FILE_HOLD_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// Default limits of holds, by what is held.
#[derive(Clone, Copy, Debug)]
struct HoldLimits {
    restic: PerMode<Option<Duration>>,
    /// Of a job; a daemon may hold its lock for ever.
    file_job: Option<Duration>,
}

impl Default for HoldLimits {
    fn default() -> Self {
        Self { restic: default_hold_limit(), file_job: Some(FILE_HOLD_LIMIT) }
    }
}

/// Default stuck limit of both modes.
pub fn default_stuck_limit() -> PerMode<Option<Duration>> {
    PerMode { exclusive: Some(STUCK_LIMIT_MIN), shared: Some(STUCK_LIMIT_MIN) }
}

/// Reads a duration: `90s`, `15m`, `4h`, `1d`, `1h30m`; `0` alone is none at all.
///
/// # Errors
/// A sentence that says how a duration is written.
pub fn duration(text: &str) -> Result<Duration, String> {
    const HOW: &str = "write a duration like 90s, 15m, 4h or 1d";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(HOW)?;
        let number: u64 = rest[..digits].parse().map_err(|_| HOW)?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let millis: u64 = match &rest[..letters] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return Err(HOW.into()),
        };
        rest = &rest[letters..];
        let part = number.checked_mul(millis).ok_or("the duration is too long")?;
        total = total
            .checked_add(Duration::from_millis(part))
            .filter(|total| total.as_secs() < 100 * 365 * 86_400)
            .ok_or("the duration is too long")?;
    }
    if text.is_empty() { Err(HOW.into()) } else { Ok(total) }
}

/// A duration as a person writes it: `90s`, `4h`, `1h30m`, `7d`; [`duration`] reads it.
pub fn written(duration: Duration) -> String {
    let whole = duration.as_secs();
    if duration.subsec_millis() != 0 {
        return format!("{}ms", duration.as_millis());
    }
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes, seconds) {
        (0, 0, 0) => "0".into(),
        // A day is as often written as 24h, and 90 seconds are not 1m30s.
        (48.., 0, 0) if hours % 24 == 0 => format!("{}d", hours / 24),
        (_, 0, 0) => format!("{hours}h"),
        (0, _, 0) => format!("{minutes}m"),
        (0, _, _) => format!("{whole}s"),
        (_, _, 0) => format!("{hours}h{minutes}m"),
        (_, 0, _) => format!("{hours}h{seconds}s"),
        (_, _, _) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// Checks what holds between settings, for files and flags alike: a healthy target must not
/// vanish between two scans.
pub fn contradiction(scan: &ScanSettings) -> Option<String> {
    let ScanSettings { interval, idle_interval, timeout, .. } = *scan;
    let (longest, which) =
        idle_interval.map_or((interval, "interval"), |idle| (idle, "idle_interval"));
    if interval < INTERVAL_MIN {
        Some(format!("the interval is shorter than {}", written(INTERVAL_MIN)))
    } else if longest < interval {
        Some(format!(
            "idle_interval ({}) is shorter than interval ({}): what has no lock would be scanned \
             more often than what has one",
            written(longest),
            written(interval)
        ))
    } else if timeout.is_zero() {
        Some("the timeout must be longer than 0".into())
    } else if scan.hold > HOLD_MAX {
        Some("scan.hold may be at most 25m: an old value of a live lock would look stuck".into())
    } else if longest.saturating_add(timeout) >= scan.hold {
        Some(format!(
            "{which} ({}) plus timeout ({}) must be shorter than scan.hold ({}), else values of a \
             healthy target vanish between two scans",
            written(longest),
            written(timeout),
            written(scan.hold)
        ))
    } else {
        None
    }
}

/// Reads a configuration file's text. `host` is the watched machine's name.
///
/// # Errors
/// [`ConfigError`] with everything that is wrong.
pub fn parse(text: &str, overrides: &Overrides, host: &str) -> Result<Config, ConfigError> {
    parse_with(text, overrides, host, &Nothing)
}

/// As [`parse`]; a target without `repository` has the one that is found in its variables, and
/// what is wrong with anything that it names is a problem of the line that names it.
///
/// # Errors
/// [`ConfigError`] with everything that is wrong.
pub fn parse_with(
    text: &str,
    overrides: &Overrides,
    host: &str,
    around: &dyn Surroundings,
) -> Result<Config, ConfigError> {
    let mut root = tree::parse(text).map_err(|problem| ConfigError(vec![problem]))?;
    let mut reader = Reader::default();
    reader.problems.extend(supplied::supply(&mut root, around));
    let mut config = Config {
        scan: ScanSettings::default(),
        labels: LabelRules::default(),
        targets: vec![],
        shard: Shard::default(),
    };
    let mut hold_limits = HoldLimits::default();
    if !matches!(root.value, Value::Null) {
        let mut map = reader.map(&root, "");
        if let Some(node) = map.take("scan") {
            config.scan = reader.scan(node);
        }
        if let Some(node) = map.take("hold_limits") {
            hold_limits = reader.hold_limits(node);
        }
        if let Some(node) = map.take("labels") {
            config.labels = reader.labels(node);
        }
        let targets = map.take("targets");
        reader.finish(map, &["scan", "hold_limits", "labels", "targets"]);
        apply(overrides, &mut config.scan);
        if let Some(node) = targets {
            let defaults = Defaults { scan: config.scan, hold_limits, host, around };
            config.targets = reader.targets(node, &defaults);
        }
    }
    if config.targets.is_empty() && reader.problems.is_empty() {
        reader.problem(&root, "targets", "no target is configured; there is nothing to watch");
    }
    if reader.problems.is_empty() { Ok(config) } else { Err(reader.error()) }
}

/// Flags win over the file.
pub fn apply(overrides: &Overrides, scan: &mut ScanSettings) {
    scan.interval = overrides.interval.unwrap_or(scan.interval);
    scan.idle_interval = overrides.idle_interval.or(scan.idle_interval);
    scan.timeout = overrides.timeout.unwrap_or(scan.timeout);
    scan.concurrency = overrides.concurrency.unwrap_or(scan.concurrency);
    scan.hold = overrides.hold.unwrap_or(scan.hold);
}

/// One target from its parts; lock files and `local` repositories belong to this machine.
pub fn target(
    name: TargetName,
    source: SourceSpec,
    scan: &ScanSettings,
    hold_limit: PerMode<Option<Duration>>,
    stuck_limit: PerMode<Option<Duration>>,
    host: &str,
) -> TargetSpec {
    let ScanSettings { interval, timeout, .. } = *scan;
    let (is_ours, idle) = match source.watched() {
        Watched::Restic(restic) => (restic.repository.scheme() == "local", scan.idle_interval),
        // A look at a lock file costs nobody anything.
        Watched::File(_) => (true, None),
    };
    let host = if is_ours { host } else { "" }.into();
    let idle_interval = idle.unwrap_or(interval);
    TargetSpec { name, interval, idle_interval, timeout, hold_limit, stuck_limit, host, source }
}

/// Names that stand twice, for specifications that come from flags.
pub fn duplicates(targets: &[TargetSpec]) -> Vec<TargetName> {
    let mut known = BTreeSet::new();
    targets.iter().filter(|t| !known.insert(&t.name)).map(|t| t.name.clone()).collect()
}

#[cfg(test)]
mod tests;
