//! A restic target, for the tests that need one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lock_exporter::location::Location;
use lock_exporter::proc::machine::{Machine, MachineSpec};
use lock_exporter::scan::{Look, ScanError};
use lock_exporter::secret::{EnvSpec, PasswordSpec, Secret};
use lock_exporter::source::restic::derivation::DerivationBudget;
use lock_exporter::source::{self, Context, LockSource};
use lock_exporter::target::{PerMode, ResticSpec, SourceSpec, TargetName, TargetSpec};
use lock_exporter::telemetry::Telemetry;

/// What a process shares.
pub fn context() -> Context {
    Context {
        telemetry: Arc::new(Telemetry::new(&["restic"], &["local"])),
        derivations: Arc::new(DerivationBudget::new(256 << 20)),
        machine: Arc::new(Machine::new(MachineSpec::unknown())),
    }
}

/// The reader of a repository, with this way to the password and these variables.
pub fn reader(
    root: &Path,
    password: PasswordSpec,
    env: &[(&str, &str)],
    context: &Context,
) -> Box<dyn LockSource> {
    let repository = root.to_str().expect("test folders have plain names");
    reader_of(repository, password, env, &[], context)
}

/// The reader of a repository anywhere.
pub fn reader_of(
    repository: &str,
    password: PasswordSpec,
    env: &[(&str, &str)],
    options: &[(&str, &str)],
    context: &Context,
) -> Box<dyn LockSource> {
    source::open(&spec_of(repository, password, env, options), context)
}

/// The reader of a repository anywhere whose scans may take so long.
pub fn reader_limited(
    repository: &str,
    env: &[(&str, &str)],
    timeout: Duration,
    context: &Context,
) -> Box<dyn LockSource> {
    let spec = spec_of(repository, PasswordSpec::Inherit, env, &[]);
    source::open(&TargetSpec { timeout, ..spec }, context)
}

fn spec_of(
    repository: &str,
    password: PasswordSpec,
    env: &[(&str, &str)],
    options: &[(&str, &str)],
) -> TargetSpec {
    // Empty variables count as none: what runs the tests may have some of restic's own.
    let none = ["RESTIC_PASSWORD", "RESTIC_PASSWORD_FILE", "RESTIC_PASSWORD_COMMAND"];
    let mut variables: BTreeMap<_, _> =
        none.into_iter().map(|name| (name.to_owned(), Secret::new(""))).collect();
    variables.extend(env.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))));
    let restic = ResticSpec {
        repository: Location::parse(repository).expect("a location"),
        password,
        env: EnvSpec { env: variables, env_file: None, env_dir: None },
        options: options.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        key_hint: None,
        cacert: vec![],
        insecure_tls: false,
    };
    TargetSpec {
        name: TargetName::new("t").expect("a name"),
        interval: Duration::from_secs(60),
        idle_interval: Duration::from_secs(60),
        timeout: Duration::from_secs(30),
        hold_limit: PerMode::default(),
        stuck_limit: PerMode::default(),
        host: Arc::default(),
        source: SourceSpec::Restic(restic),
    }
}

/// Looks once, with the key there.
///
/// # Errors
/// As the source.
pub async fn scan(source: &dyn LockSource) -> Result<Look, ScanError> {
    source.ready().await;
    source.scan().await
}
