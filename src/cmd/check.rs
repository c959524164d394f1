//! `check`: one round over the targets, printed for a person or a program.
#![allow(
    clippy::disallowed_methods,
    reason = "the time of the round and the terminal's wishes are read here"
)]

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};
use tokio::sync::mpsc;

use super::print;
use super::round::look_once;
use crate::app::{self, Failure};
use crate::cli::{Check, Cli, Output};
use crate::config::Config;
use crate::exposition::metrics::{Rules, StatusCollector};
use crate::exposition::{json, openmetrics, table};
use crate::proc::machine::MachineSpec;
use crate::state;
use crate::status::Status;
use crate::target::{TargetName, TargetSpec};

/// Progress is shown when a round takes longer than this, and from then on this often.
const PROGRESS: Duration = Duration::from_secs(2);

/// Scans once and prints; the result is the exit code.
///
/// # Errors
/// [`Failure`] when there is nothing to check or the result cannot be written.
pub async fn run(cli: &Cli, check: &Check) -> Result<u8, Failure> {
    let (config, wanted) = targets(cli, &check.targets).await?;
    let context = app::context(MachineSpec { one_look: true, ..app::machine(cli) });
    let (done, finished) = mpsc::unbounded_channel();
    // How much a search finds is known when it is done.
    let searches = config.targets.iter().any(|spec| spec.search().is_some());
    let names = config.targets.iter().map(|spec| spec.name.clone()).collect();
    let progress = tokio::spawn(progress((!searches).then_some(names), finished));
    // What the exporter on this machine remembers says since when; its folder stays its own.
    let folder = cli.machine.state_dir.as_deref();
    let remembered = folder.and_then(|folder| state::peek(folder, &context.machine.spec.procfs));
    let wants = |spec: &TargetSpec| wanted.allows(spec);
    let status = look_once(&config, &context, wants, remembered, done).await;
    if let Some(missing) = wanted.missing(&status) {
        return Err(Failure::Usage(anyhow!(
            "no repository or lock file named {missing} was found"
        )));
    }
    progress.abort();
    let hold = config.scan.hold;
    let now = Timestamp::now();
    let rules = app::rules(&config);
    let text = match check.output {
        Output::Table => table::table(&status, now, hold, colour()),
        Output::Json => json::document(&status, now, hold).context("cannot write JSON")?,
        Output::Prom => prom(&status, &rules)?,
        Output::OpenMetrics => {
            let mut text = String::new();
            openmetrics::encode(&families(&status, &rules)?, &mut text);
            text + openmetrics::END
        }
        Output::Nagios => table::nagios(&status, now, hold),
    };
    // The file first: whoever reads it does not care who reads the rest.
    if let Some(folder) = &check.textfile {
        textfile(folder, &prom(&status, &rules)?)?;
    }
    print(&text)?;
    Ok(table::severity(&status, now, hold).exit_code())
}

/// What a plugin prints when it could not even look: the guidelines want it on standard output.
///
/// # Errors
/// When it cannot be written.
pub fn refuse(check: &Check, error: &anyhow::Error) -> anyhow::Result<()> {
    match check.output {
        Output::Nagios => print(&table::nagios_refusal(&format!("{error:#}"))),
        Output::Table | Output::Json | Output::Prom | Output::OpenMetrics => Ok(()),
    }
}

/// Which finds of a search are wanted.
#[derive(Default)]
struct Wanted {
    /// Searches all of whose finds are.
    searches: BTreeSet<TargetName>,
    /// Names of single finds.
    finds: BTreeSet<String>,
}

impl Wanted {
    fn allows(&self, found: &TargetSpec) -> bool {
        let name = found.name.as_str();
        self.finds.contains(name) || self.searches.iter().any(|search| search.is_above(name))
    }

    /// One that was asked for by name and not found, unless a search that failed may be why.
    fn missing(&self, status: &Status) -> Option<&str> {
        let is_there = |name: &str| status.targets.keys().any(|known| known.as_str() == name);
        let failed = status.targets.values().filter(|target| target.error().is_some());
        let failed: Vec<_> = failed.map(|target| &target.spec.name).collect();
        let missing = self.finds.iter().filter(|name| !is_there(name));
        let surely = |name: &&String| !failed.iter().any(|search| search.is_above(name));
        missing.filter(surely).map(String::as_str).next()
    }
}

/// Configured targets by name, and what searches find; what is no name is a repository, opened as
/// `-r` would.
async fn targets(cli: &Cli, wanted: &[String]) -> Result<(Config, Wanted), Failure> {
    let searches = |config: &Config| -> BTreeSet<TargetName> {
        let searches = config.targets.iter().filter(|spec| spec.search().is_some());
        searches.map(|spec| spec.name.clone()).collect()
    };
    if wanted.is_empty() {
        let config = app::configuration(cli).await?;
        let wanted = Wanted { searches: searches(&config), ..Wanted::default() };
        return Ok((config, wanted));
    }
    // Without a configuration the names are all repositories, so its absence is no error here.
    let configured = match app::configuration(cli).await {
        Ok(config) => Some(config),
        Err(Failure::Usage(error)) if cli.watch.config_file.is_some() => {
            return Err(Failure::Usage(error));
        }
        Err(Failure::Usage(_)) => None,
        Err(other) => return Err(other),
    };
    let mut named: Vec<TargetSpec> = Vec::new();
    let mut repositories = Vec::new();
    let mut finds = BTreeSet::new();
    for text in wanted {
        let specs = configured.iter().flat_map(|config| &config.targets);
        match specs.clone().find(|spec| spec.name.as_str() == text) {
            Some(spec) => named.push(spec.clone()),
            None if let Some(search) = specs
                .clone()
                .filter(|spec| spec.search().is_some())
                .find(|spec| spec.name.is_above(text)) =>
            {
                finds.insert(text.clone());
                if !named.iter().any(|spec| spec.name == search.name) {
                    named.push(search.clone());
                }
            }
            None if configured.is_some() && is_word(text) && !Path::new(text).exists() => {
                let names: Vec<_> = specs.take(10).map(|spec| spec.name.as_str()).collect();
                return Err(Failure::Usage(anyhow!(
                    "no target is named {text:?}, and there is no such folder; targets: {}",
                    names.join(", ")
                )));
            }
            None => repositories.push(text.clone()),
        }
    }
    if let (Some(text), false) = (repositories.first(), cli.watch.repositories.is_empty()) {
        // Only what is named is looked at, so those of -r would be passed over without a word.
        return Err(Failure::Usage(anyhow!(
            "-r and {text:?}: name every repository behind check, or each with a -r of its own"
        )));
    }
    named.extend(app::of_repositories(cli, repositories)?.targets);
    let config = match configured {
        Some(configured) => configured,
        None => app::of_repositories(cli, Vec::new())?,
    };
    let config = Config { targets: named, ..config };
    let asked = |search: &TargetName| wanted.iter().any(|text| text == search.as_str());
    let searches = searches(&config).into_iter().filter(asked).collect();
    Ok((config, Wanted { searches, finds }))
}

/// Neither a path nor a repository string with a scheme.
fn is_word(text: &str) -> bool {
    !text.contains(['/', ':'])
}

fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Says on a terminal how far a slow round is, and whom it waits for, where that is known.
async fn progress(
    mut missing: Option<BTreeSet<TargetName>>,
    mut finished: mpsc::UnboundedReceiver<Arc<TargetSpec>>,
) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let mut done = 0;
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS, PROGRESS);
    loop {
        tokio::select! {
            spec = finished.recv() => match spec {
                Some(spec) => {
                    done += 1;
                    if let Some(missing) = &mut missing {
                        missing.remove(&spec.name);
                    }
                }
                None => return,
            },
            _ = ticks.tick() => {
                let _ = writeln!(std::io::stderr(), "{}", so_far(done, missing.as_ref()));
            }
        }
    }
}

/// How far a round is, in words of one line.
fn so_far(done: usize, missing: Option<&BTreeSet<TargetName>>) -> String {
    const NAMED: usize = 3;
    let Some(missing) = missing else { return format!("{done} targets looked at …") };
    let total = done + missing.len();
    let names: Vec<_> = missing.iter().take(NAMED).map(TargetName::as_str).collect();
    let more = if missing.len() > NAMED { ", …" } else { "" };
    format!("{done} of {total} targets looked at; waiting for {}{more}", names.join(", "))
}

/// The metrics of one round in the text format.
///
/// # Errors
/// When the encoder refuses, which a test would show.
pub fn prom(status: &Status, rules: &Rules) -> anyhow::Result<String> {
    Ok(TextEncoder::new().encode_to_string(&families(status, rules)?)?)
}

fn families(status: &Status, rules: &Rules) -> anyhow::Result<Vec<MetricFamily>> {
    let registry = Registry::new();
    let rules = Arc::new(rules.clone());
    registry.register(Box::new(StatusCollector::new(status.clone(), Timestamp::now(), rules)))?;
    Ok(registry.gather())
}

/// Puts the metrics where node_exporter picks them up, whole or not at all.
fn textfile(folder: &Path, text: &str) -> anyhow::Result<()> {
    let shown = folder.display();
    let refused = || format!("cannot write the metrics into {shown} (--textfile)");
    // An error of the temporary file would tell of a name that nobody knows.
    std::fs::metadata(folder).with_context(refused)?;
    let made = tempfile::Builder::new().prefix(".lock_exporter").tempfile_in(folder);
    let mut file = made.map_err(|error| io::Error::from(error.kind())).with_context(refused)?;
    file.write_all(text.as_bytes()).with_context(refused)?;
    // node_exporter runs as another user.
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable)?;
    file.persist(folder.join("lock_exporter.prom"))
        .with_context(|| format!("cannot replace lock_exporter.prom in {shown}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_names_a_few_of_those_that_are_waited_for() {
        let names = |names: &[&str]| -> BTreeSet<_> {
            names.iter().map(|name| TargetName::new(name).unwrap()).collect()
        };
        assert_eq!(so_far(2, Some(&names(&["b"]))), "2 of 3 targets looked at; waiting for b");
        assert_eq!(
            so_far(5, Some(&names(&["a", "b", "c", "d"]))),
            "5 of 9 targets looked at; waiting for a, b, c, …"
        );
        assert_eq!(so_far(5, None), "5 targets looked at …");
    }
}
