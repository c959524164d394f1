//! Walks the tree of a configuration file and makes typed values, collecting everything that is
//! wrong on the way. It opens no file that the text names.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use regex::Regex;

use super::tree::{Key, Node, Value};
use super::{
    ConfigError, HoldLimits, Problem, STUCK_LIMIT_MIN, ScanSettings, Surroundings, contradiction,
    default_stuck_limit, duration, target,
};
use crate::label::{HolderLabel, LabelRules};
use crate::target::{PerMode, Role, SourceSpec, TargetName, TargetSpec, Watched};

/// More targets than this are refused.
const TARGETS_MAX: usize = 20_000;

/// What a target inherits from the rest of the file.
pub(super) struct Defaults<'a> {
    pub scan: ScanSettings,
    pub hold_limits: HoldLimits,
    pub host: &'a str,
    pub around: &'a dyn Surroundings,
}

const TARGET_KEYS: &[&str] = &[
    "name",
    "restic",
    "file",
    "interval",
    "idle_interval",
    "timeout",
    "hold_limit",
    "stuck_limit",
];

/// Walks the tree and collects what is wrong.
#[derive(Default)]
pub(super) struct Reader {
    pub problems: Vec<Problem>,
}

/// The pairs of one map that were not taken yet.
pub(super) struct Map<'a> {
    path: String,
    pub pairs: Vec<&'a (Key, Node)>,
}

impl<'a> Map<'a> {
    pub fn take(&mut self, key: &str) -> Option<&'a Node> {
        let index = self.pairs.iter().position(|(k, _)| k.text == key)?;
        Some(&self.pairs.remove(index).1)
    }

    /// Whether nothing is left to take.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// All pairs that are left, of a map whose keys are anybody's choice.
    pub fn rest(self) -> Vec<&'a (Key, Node)> {
        self.pairs
    }
}

/// 0 = never.
fn never(duration: Duration) -> Option<Duration> {
    Some(duration).filter(|duration| !duration.is_zero())
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl Reader {
    /// Everything that is wrong, in the order of the file. One place can be looked at twice.
    pub fn error(mut self) -> ConfigError {
        self.problems.sort_by_key(|problem| (problem.line, problem.column));
        self.problems.dedup();
        ConfigError(self.problems)
    }

    pub fn problem(&mut self, node: &Node, key: &str, message: impl Into<String>) {
        let Node { line, column, .. } = *node;
        self.problems.push(Problem { line, column, key: key.into(), message: message.into() });
    }

    /// The pairs of a map; a problem and an empty map when it is none. Of a key that stands twice
    /// the first one counts, and the second is a problem.
    pub fn map<'a>(&mut self, node: &'a Node, path: &str) -> Map<'a> {
        let mut map = Map { path: path.to_owned(), pairs: Vec::new() };
        match &node.value {
            Value::Map(pairs) => {
                let mut known = BTreeMap::new();
                for pair in pairs {
                    let (key, _) = pair;
                    if let Some(first) = known.insert(key.text.as_str(), key.line) {
                        self.problems.push(Problem {
                            line: key.line,
                            column: key.column,
                            key: join(path, &key.text),
                            message: format!("the key stands twice, first in line {first}"),
                        });
                    } else {
                        map.pairs.push(pair);
                    }
                }
            }
            Value::Null | Value::Scalar(_) | Value::List(_) => {
                self.problem(node, path, "must be a map of keys and values");
            }
        }
        map
    }

    /// What was not taken is unknown.
    pub fn finish(&mut self, map: Map<'_>, known: &[&str]) {
        for (key, _) in map.pairs {
            let near = known
                .iter()
                .map(|known| (distance(known, &key.text), known))
                .min()
                .filter(|(distance, known)| *distance <= 1 + known.len() / 4);
            let hint = match near {
                Some((_, near)) => format!("did you mean {near}?"),
                None => format!("known keys: {}", known.join(", ")),
            };
            self.problems.push(Problem {
                line: key.line,
                column: key.column,
                key: join(&map.path, &key.text),
                message: format!("unknown key; {hint}"),
            });
        }
    }

    pub fn text(&mut self, node: &Node, key: &str) -> Option<String> {
        match &node.value {
            Value::Scalar(text) if !text.is_empty() => Some(text.clone()),
            Value::Null | Value::Scalar(_) | Value::List(_) | Value::Map(_) => {
                self.problem(node, key, "must be a text that is not empty");
                None
            }
        }
    }

    pub fn file(&mut self, node: &Node, key: &str) -> Option<PathBuf> {
        self.text(node, key).map(PathBuf::from)
    }

    pub fn flag(&mut self, node: &Node, key: &str) -> bool {
        match &node.value {
            Value::Scalar(text) if text == "true" => true,
            Value::Scalar(text) if text == "false" => false,
            Value::Null | Value::Scalar(_) | Value::List(_) | Value::Map(_) => {
                self.problem(node, key, "must be true or false");
                false
            }
        }
    }

    pub fn list<'a>(&mut self, node: &'a Node, key: &str) -> &'a [Node] {
        match &node.value {
            Value::List(items) => items,
            Value::Null | Value::Scalar(_) | Value::Map(_) => {
                self.problem(node, key, "must be a list");
                &[]
            }
        }
    }

    pub fn duration(&mut self, node: &Node, key: &str) -> Option<Duration> {
        let text = self.text(node, key)?;
        match duration(&text) {
            Ok(duration) => Some(duration),
            Err(message) => {
                self.problem(node, key, message);
                None
            }
        }
    }

    pub fn scan(&mut self, node: &Node) -> ScanSettings {
        let mut scan = ScanSettings::default();
        let mut map = self.map(node, "scan");
        for (key, field) in [
            ("interval", &mut scan.interval),
            ("timeout", &mut scan.timeout),
            ("hold", &mut scan.hold),
        ] {
            if let Some(node) = map.take(key) {
                *field = self.duration(node, &join("scan", key)).unwrap_or(*field);
            }
        }
        if let Some(node) = map.take("idle_interval") {
            scan.idle_interval = self.duration(node, "scan.idle_interval");
        }
        if let Some(node) = map.take("concurrency") {
            let number = self.text(node, "scan.concurrency").and_then(|text| text.parse().ok());
            match number {
                Some(number @ 1..=4096) => scan.concurrency = number,
                _ => self.problem(node, "scan.concurrency", "must be a number from 1 to 4096"),
            }
        }
        self.finish(map, &["interval", "idle_interval", "timeout", "concurrency", "hold"]);
        scan
    }

    /// One duration for both modes, or one for each; 0 = never.
    fn per_mode(
        &mut self,
        node: &Node,
        path: &str,
        mut limit: PerMode<Option<Duration>>,
    ) -> PerMode<Option<Duration>> {
        if matches!(node.value, Value::Scalar(_)) {
            if let Some(duration) = self.duration(node, path) {
                limit = PerMode { exclusive: never(duration), shared: never(duration) };
            }
            return limit;
        }
        let mut map = self.map(node, path);
        for (key, field) in [("exclusive", &mut limit.exclusive), ("shared", &mut limit.shared)] {
            if let Some(node) = map.take(key) {
                *field = self.duration(node, &join(path, key)).map_or(*field, never);
            }
        }
        self.finish(map, &["exclusive", "shared"]);
        limit
    }

    pub fn hold_limits(&mut self, node: &Node) -> HoldLimits {
        let mut limits = HoldLimits::default();
        let mut map = self.map(node, "hold_limits");
        if let Some(node) = map.take("restic") {
            limits.restic = self.per_mode(node, "hold_limits.restic", limits.restic);
        }
        if let Some(node) = map.take("file") {
            let mut map = self.map(node, "hold_limits.file");
            if let Some(node) = map.take("job") {
                let limit = self.duration(node, "hold_limits.file.job");
                limits.file_job = limit.map_or(limits.file_job, never);
            }
            self.finish(map, &["job"]);
        }
        self.finish(map, &["restic", "file"]);
        limits
    }

    pub fn labels(&mut self, node: &Node) -> LabelRules {
        let mut rules = LabelRules::default();
        let mut map = self.map(node, "labels");
        if let Some(node) = map.take("hostname_rewrite") {
            for (index, item) in self.list(node, "labels.hostname_rewrite").iter().enumerate() {
                let path = format!("labels.hostname_rewrite[{index}]");
                rules.hostname_rewrite.extend(self.rewrite(item, &path));
            }
        }
        if let Some(node) = map.take("drop") {
            for item in self.list(node, "labels.drop") {
                let text = self.text(item, "labels.drop").unwrap_or_default();
                match HolderLabel::ALL.iter().find(|label| label.as_str() == text) {
                    Some(label) => rules.drop.push(*label),
                    None => {
                        self.problem(item, "labels.drop", "may hold hostname, username, command");
                    }
                }
            }
        }
        self.finish(map, &["hostname_rewrite", "drop"]);
        rules
    }

    fn rewrite(&mut self, node: &Node, path: &str) -> Option<(Regex, String)> {
        let mut map = self.map(node, path);
        let regex = map.take("regex");
        let replacement = map.take("replacement");
        self.finish(map, &["regex", "replacement"]);
        let (Some(regex), Some(replacement)) = (regex, replacement) else {
            self.problem(node, path, "needs regex and replacement");
            return None;
        };
        let replacement = match &replacement.value {
            Value::Null => String::new(),
            Value::Scalar(text) => text.clone(),
            Value::List(_) | Value::Map(_) => self.text(replacement, path)?,
        };
        let pattern = self.text(regex, path)?;
        match Regex::new(&pattern) {
            Ok(regex) => Some((regex, replacement)),
            Err(error) => {
                let last = error.to_string();
                let last = last.lines().last().unwrap_or_default().trim().to_owned();
                self.problem(regex, &join(path, "regex"), format!("no regular expression: {last}"));
                None
            }
        }
    }

    pub fn targets(&mut self, node: &Node, defaults: &Defaults<'_>) -> Vec<TargetSpec> {
        let items = self.list(node, "targets");
        if items.len() > TARGETS_MAX {
            self.problem(node, "targets", format!("more than {TARGETS_MAX} targets"));
            return Vec::new();
        }
        let mut names: BTreeMap<TargetName, u32> = BTreeMap::new();
        let mut targets = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let path = format!("targets[{index}]");
            let (name, target) = self.target(item, &path, defaults);
            // Also of targets with other faults: all that is wrong is said at once.
            if let Some(name) = name {
                if let Some(first) = names.get(&name) {
                    let message = format!("the name {:?} is taken in line {first}", name.as_str());
                    self.problem(item, &join(&path, "name"), message);
                } else {
                    names.insert(name, item.line);
                }
            }
            targets.extend(target);
        }
        targets
    }

    /// The name, when there is a good one, and the whole target, when all of it is good.
    fn target(
        &mut self,
        node: &Node,
        path: &str,
        defaults: &Defaults<'_>,
    ) -> (Option<TargetName>, Option<TargetSpec>) {
        let before = self.problems.len();
        let mut map = self.map(node, path);
        let name = map.take("name");
        let restic = map.take("restic");
        let scan = self.own_scan(&mut map, path, defaults.scan, restic.is_some());
        let source = match (restic, map.take("file")) {
            (Some(restic), None) => self.restic(restic, &join(path, "restic"), defaults.around),
            (None, Some(file)) => self.lock_file(file, &join(path, "file")),
            (Some(_), Some(_)) => {
                self.problem(node, path, "has both restic and file; a target is one of them");
                None
            }
            (None, None) => {
                self.problem(node, path, "needs restic or file: what is to be watched");
                None
            }
        };
        let limits = self.limits(&mut map, path, source.as_ref(), &defaults.hold_limits);
        self.finish(map, TARGET_KEYS);
        let name = self.name(node, name, path);
        if let Some(message) = contradiction(&scan) {
            self.problem(node, path, message);
        }
        let (Some(good), Some(source)) = (name.clone(), source) else { return (name, None) };
        if self.problems.len() > before {
            return (name, None);
        }
        let (hold_limit, stuck_limit) = limits;
        let spec = target(good, source, &scan, hold_limit, stuck_limit, defaults.host);
        (name, Some(spec))
    }

    /// How often a target is scanned, where it differs from the rest.
    fn own_scan(
        &mut self,
        map: &mut Map<'_>,
        path: &str,
        mut scan: ScanSettings,
        is_repository: bool,
    ) -> ScanSettings {
        if let Some(node) = map.take("interval") {
            scan.interval = self.duration(node, &join(path, "interval")).unwrap_or(scan.interval);
            // What is said for all is for targets that are scanned more often.
            scan.idle_interval = scan.idle_interval.map(|idle| idle.max(scan.interval));
        }
        if let Some(node) = map.take("idle_interval") {
            let key = join(path, "idle_interval");
            scan.idle_interval = self.duration(node, &key).or(scan.idle_interval);
            if !is_repository {
                let message = "is for repositories: looking at a lock file costs nothing";
                self.problem(node, &key, message);
            }
        }
        if let Some(node) = map.take("timeout") {
            scan.timeout = self.duration(node, &join(path, "timeout")).unwrap_or(scan.timeout);
        }
        scan
    }

    /// How long the locks of a target may be held, and how long while they are not refreshed or
    /// others wait.
    fn limits(
        &mut self,
        map: &mut Map<'_>,
        path: &str,
        source: Option<&SourceSpec>,
        defaults: &HoldLimits,
    ) -> (PerMode<Option<Duration>>, PerMode<Option<Duration>>) {
        let both = |limit| PerMode { exclusive: limit, shared: limit };
        let watched = source.map(SourceSpec::watched);
        let mut hold_limit = match watched {
            Some(Watched::File(file)) => match file.role {
                Role::Job => both(defaults.file_job),
                Role::Daemon => both(None),
            },
            Some(Watched::Restic(_)) | None => defaults.restic,
        };
        if let Some(node) = map.take("hold_limit") {
            hold_limit = self.per_mode(node, &join(path, "hold_limit"), hold_limit);
        }
        let mut stuck_limit = default_stuck_limit();
        if let Some(node) = map.take("stuck_limit") {
            let key = join(path, "stuck_limit");
            stuck_limit = self.per_mode(node, &key, stuck_limit);
            let limits = [stuck_limit.exclusive, stuck_limit.shared];
            let refreshed = matches!(watched, Some(Watched::Restic(_)));
            if refreshed && limits.into_iter().flatten().any(|limit| limit < STUCK_LIMIT_MIN) {
                self.problem(
                    node,
                    &key,
                    "may not be shorter than 30m, restic's own stale limit; 0 = never",
                );
            }
        }
        (hold_limit, stuck_limit)
    }

    fn name(&mut self, target: &Node, node: Option<&Node>, path: &str) -> Option<TargetName> {
        let key = join(path, "name");
        let Some(node) = node else {
            self.problem(target, &key, "every target needs a name, unique in the whole fleet");
            return None;
        };
        let text = self.text(node, &key)?;
        match TargetName::new(&text) {
            Ok(_) if text.len() > TargetName::CONFIGURED_BYTES_MAX => {
                let most = TargetName::CONFIGURED_BYTES_MAX;
                let message = format!("a configured name may have at most {most} bytes");
                self.problem(node, &key, message);
                None
            }
            Ok(name) => Some(name),
            Err(error) => {
                self.problem(node, &key, error.to_string());
                None
            }
        }
    }
}

/// How many letters have to change to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
