//! What flags, configuration file and environment amount to: targets and settings, or one error
//! that says what to do. It opens no backend.
#![allow(
    clippy::disallowed_methods,
    reason = "environment and configuration files are read here, once"
)]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::Failure;
use crate::cli::{Cli, ScanFlags, ShardFlags, Watch};
use crate::config::{self, Config, Named, Overrides, Problem, ScanSettings, Surroundings};
use crate::label::{self, LabelRules};
use crate::location::Location;
use crate::secret::{self, EnvSpec, Environment, PasswordSpec, SecretError};
use crate::shard::Shard;
use crate::target::{ResticSpec, SourceSpec, TargetName};
use crate::web;

/// Configuration files that are looked for when none is named.
const CONFIG_FILES: [&str; 2] = ["lock_exporter.yml", "/etc/lock-exporter/lock_exporter.yml"];
/// Largest configuration file.
const CONFIG_BYTES_MAX: u64 = 16 << 20;
/// A file system that does not give out a configuration by then hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// What the flags, the configuration file and the environment amount to.
///
/// # Errors
/// [`Failure::Usage`] when flags contradict each other or nothing says what to watch; else the
/// file that cannot be read, or everything that is wrong in it.
pub async fn configuration(cli: &Cli) -> Result<Config, Failure> {
    amounting(cli, Around { checks: false }).await
}

async fn amounting(cli: &Cli, around: Around) -> Result<Config, Failure> {
    let shard = shard(&cli.shard).map_err(|message| Failure::Usage(anyhow!(message)))?;
    Ok(Config { shard, ..targets(cli, around).await? })
}

/// Which of several exporters this is.
fn shard(flags: &ShardFlags) -> Result<Shard, String> {
    let ordinal = match flags.shard.as_str() {
        "auto" => {
            let pod = std::env::var("POD_NAME").map_err(|_| {
                "--shard=auto needs POD_NAME in the environment, the name of the pod of a \
                 StatefulSet (fieldRef metadata.name)"
            })?;
            Shard::ordinal_of(&pod)?
        }
        number => number
            .parse()
            .map_err(|_| format!("--shard is {number:?}; give a number from 0, or auto"))?,
    };
    Shard::new(ordinal, flags.total)
}

async fn targets(cli: &Cli, around: Around) -> Result<Config, Failure> {
    let watch = &cli.watch;
    let overrides = overrides(&cli.scan);
    let host = host_name(watch);
    let by_flag = !watch.repositories.is_empty() || watch.repository_file.is_some();
    if by_flag && watch.config_file.is_some() {
        return Err(Failure::Usage(anyhow!(
            "-r and --repository-file cannot be used together with --config.file"
        )));
    }
    if by_flag {
        return from_flags(watch, repositories(watch).await?, &overrides, &host);
    }
    let only_by_flag = [
        ("--password-file", watch.password_file.is_some()),
        ("--password-command", watch.password_command.is_some()),
        ("--insecure-no-password", watch.insecure_no_password),
        ("--insecure-tls", watch.insecure_tls),
        ("--key-hint", watch.key_hint.is_some()),
        ("--cacert", !watch.cacert.is_empty()),
        ("-o", !watch.options.is_empty()),
    ];
    if let Some(path) = file(watch) {
        if let Some((flag, _)) = only_by_flag.iter().find(|(_, given)| *given) {
            return Err(Failure::Usage(anyhow!(
                "{flag} is for repositories given by -r; those of {} say it themselves",
                path.display()
            )));
        }
        return Ok(in_time(path, move |path| from_file(path, &overrides, &host, around)).await?);
    }
    let inherited = inherited_repository().await?;
    if inherited.is_empty() {
        return Err(Failure::Usage(anyhow!(
            "nothing to watch: give -r REPOSITORY (or --repository-file), or --config.file, or \
             put lock_exporter.yml here or into /etc/lock-exporter, or set RESTIC_REPOSITORY (or \
             RESTIC_REPOSITORY_FILE)"
        )));
    }
    from_flags(watch, inherited, &overrides, &host)
}

/// The configuration file: the one that is named, or the first that is found; none when
/// repositories come by flag.
pub fn file(watch: &Watch) -> Option<PathBuf> {
    if !watch.repositories.is_empty() || watch.repository_file.is_some() {
        return None;
    }
    let found = || CONFIG_FILES.iter().map(PathBuf::from).find(|path| path.exists());
    watch.config_file.clone().or_else(found)
}

/// A configuration of these repositories, named by their locations, with the flags of `cli`.
///
/// # Errors
/// As [`configuration`].
pub fn of_repositories(cli: &Cli, repositories: Vec<String>) -> Result<Config, Failure> {
    from_flags(&cli.watch, repositories, &overrides(&cli.scan), &host_name(&cli.watch))
}

fn overrides(flags: &ScanFlags) -> Overrides {
    Overrides {
        interval: flags.interval,
        idle_interval: flags.idle_interval,
        timeout: flags.timeout,
        concurrency: flags.concurrency.map(usize::from),
        hold: flags.hold,
    }
}

/// The name of this machine, as given or as the kernel has it.
pub fn host_name(watch: &Watch) -> String {
    watch.host_name.clone().unwrap_or_else(|| {
        // restic asks uname too (Go os.Hostname); a name that is no text is no label either.
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    })
}

async fn repositories(watch: &Watch) -> anyhow::Result<Vec<String>> {
    let mut all = watch.repositories.clone();
    if let Some(path) = &watch.repository_file {
        all.push(repository_from(path).await?);
    }
    Ok(all)
}

async fn repository_from(path: &Path) -> anyhow::Result<String> {
    Ok(secret::read_location(path).await?.to_string())
}

async fn inherited_repository() -> anyhow::Result<Vec<String>> {
    let set = |name: &str| match std::env::var_os(name).filter(|value| !value.is_empty()) {
        None => Ok(None),
        Some(value) => match value.into_string() {
            Ok(value) => Ok(Some(value)),
            Err(_) => bail!("{name} is set to bytes that are no UTF-8; this exporter needs text"),
        },
    };
    match (set("RESTIC_REPOSITORY")?, set("RESTIC_REPOSITORY_FILE")?) {
        (Some(_), Some(_)) => {
            bail!("RESTIC_REPOSITORY and RESTIC_REPOSITORY_FILE are both set; restic refuses that")
        }
        (Some(repository), None) => Ok(vec![repository]),
        (None, Some(path)) => Ok(vec![repository_from(Path::new(&path)).await?]),
        (None, None) => Ok(Vec::new()),
    }
}

fn from_file(
    path: &Path,
    overrides: &Overrides,
    host: &str,
    around: Around,
) -> anyhow::Result<Config> {
    let shown = path.display();
    let problem = || format!("cannot read {shown}");
    let meta = std::fs::metadata(path).with_context(problem)?;
    // Pipes and devices would be waited for, or never end.
    if !meta.is_file() {
        bail!("{shown} is not a file");
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).with_context(problem)?;
    file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).with_context(problem)?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        bail!("{shown} is larger than {CONFIG_BYTES_MAX} bytes");
    }
    config::parse_with(&text, overrides, host, &around)
        .map_err(|error| anyhow!(error.of_file(path)))
}

/// Whether the web configuration that flags name, if any, could be read again.
///
/// # Errors
/// Everything that is wrong with it.
pub async fn of_web(cli: &Cli) -> anyhow::Result<()> {
    match cli.web.web_config.clone() {
        Some(file) => in_time(file, |file| web::guard::check(file).map(drop)).await,
        None => Ok(()),
    }
}

/// Reads on a thread that may hang, which keeps nobody else from anything.
async fn in_time<T: Send + 'static>(
    path: PathBuf,
    read: impl FnOnce(&Path) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let shown = path.display().to_string();
    let reading = tokio::task::spawn_blocking(move || read(&path));
    match tokio::time::timeout(LIMIT, reading).await {
        Ok(done) => done.with_context(|| format!("a fault while reading {shown}, see the log"))?,
        Err(_) => bail!(
            "cannot read {shown}: no answer from the file system in {} s; does it hang (a network \
             mount?)",
            LIMIT.as_secs()
        ),
    }
}

/// The files and variables that a configuration names, as they are now.
#[derive(Clone, Copy)]
struct Around {
    /// Whether each is looked at. Else a target says it itself, when it is opened.
    checks: bool,
}

impl Surroundings for Around {
    fn repository(&self, spec: &EnvSpec) -> Result<Option<String>, String> {
        let found = Environment::load_own(spec).and_then(|it| it.text(config::REPOSITORY_VARIABLE));
        found.map(|text| text.map(|text| text.to_string())).map_err(|error| worded(&error))
    }

    fn fault(&self, named: Named<'_>) -> Option<String> {
        if !self.checks {
            return None;
        }
        let fault = match named {
            Named::Opener(password, spec) => match password {
                PasswordSpec::File(_) | PasswordSpec::MasterKeyFile(_) => {
                    secret::look(password, &Environment::default()).err()?
                }
                // Variables that cannot be read are a fault of their own.
                _ => secret::look(password, &Environment::load_now(spec).ok()?).err()?,
            },
            Named::EnvFile(path) => {
                let env_file = Some(path.to_owned());
                Environment::load_own(&EnvSpec { env_file, ..EnvSpec::default() }).err()?
            }
            Named::EnvDir(path) => {
                let env_dir = Some(path.to_owned());
                Environment::load_own(&EnvSpec { env_dir, ..EnvSpec::default() }).err()?
            }
            Named::Authorities(path) => match secret::read("cacert", path) {
                Ok(pem) if CertificateDer::from_pem_slice(&pem).is_ok() => return None,
                Ok(_) => {
                    return Some(format!(
                        "{} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)",
                        path.display()
                    ));
                }
                Err(error) => error,
            },
        };
        Some(worded(&fault))
    }
}

/// A fault with its next step.
fn worded(error: &SecretError) -> String {
    if error.advice.is_empty() { error.to_string() } else { format!("{error}. {}", error.advice) }
}

fn from_flags(
    watch: &Watch,
    repositories: Vec<String>,
    overrides: &Overrides,
    host: &str,
) -> Result<Config, Failure> {
    let usage = |message: String| Failure::Usage(anyhow!(message));
    if watch.insecure_no_password
        && (watch.password_file.is_some() || watch.password_command.is_some())
    {
        return Err(usage(
            "--insecure-no-password is for repositories without a password; it contradicts \
             --password-file and --password-command"
                .into(),
        ));
    }
    let password = match (&watch.password_file, &watch.password_command) {
        _ if watch.insecure_no_password => PasswordSpec::Empty,
        (Some(_), Some(_)) => {
            return Err(usage(
                "only one of --password-file, --password-command can be used".into(),
            ));
        }
        (Some(path), None) => PasswordSpec::File(path.clone()),
        (None, Some(command)) => PasswordSpec::Command(command.clone()),
        (None, None) => PasswordSpec::Inherit,
    };
    let mut options = std::collections::BTreeMap::new();
    for (index, option) in watch.options.iter().enumerate() {
        // Not quoted: it may be a secret in the wrong place.
        let (key, value) = option.split_once('=').ok_or_else(|| {
            usage(format!("option {} (-o) has no =; write -o KEY=VALUE, as for restic", index + 1))
        })?;
        options.insert(key.to_owned(), value.to_owned());
    }
    let mut scan = ScanSettings::default();
    config::apply(overrides, &mut scan);
    if let Some(message) = config::contradiction(&scan) {
        return Err(usage(message));
    }
    let mut targets = Vec::new();
    for text in repositories {
        let repository = Location::parse(&text).map_err(|error| usage(error.to_string()))?;
        let repository = repository.absolute(&std::env::current_dir().unwrap_or_default());
        let name = name_of(&repository).map_err(usage)?;
        let spec = ResticSpec {
            repository,
            password: password.clone(),
            env: EnvSpec::default(),
            options: options.clone(),
            key_hint: watch.key_hint.clone(),
            cacert: watch.cacert.clone(),
            insecure_tls: watch.insecure_tls,
        };
        targets.push(config::target(
            name,
            SourceSpec::Restic(spec),
            &scan,
            config::default_hold_limit(),
            config::default_stuck_limit(),
            host,
        ));
    }
    if let Some(name) = config::duplicates(&targets).first() {
        return Err(usage(format!("{name} is given twice")));
    }
    Ok(Config { scan, labels: LabelRules::default(), targets, shard: Shard::default() })
}

/// The name of a target that was given by its location.
fn name_of(repository: &Location) -> Result<TargetName, String> {
    let name = label::shortened(&repository.target_name(), TargetName::CONFIGURED_BYTES_MAX);
    TargetName::new(&name).map_err(|error| {
        let problem = Problem {
            line: 0,
            column: 0,
            key: String::new(),
            message: format!("{name:?} cannot name a target: {error}; use a configuration file"),
        };
        problem.to_string()
    })
}

/// What `--config.check` looked at and found nothing wrong with, in words.
fn summary(config: &Config) -> String {
    let searches = config.targets.iter().filter(|spec| spec.search().is_some()).count();
    let count = config.targets.len() - searches;
    let targets = if count == 1 { "target" } else { "targets" };
    let more = match searches {
        0 => String::new(),
        _ => format!("; {} for more", searched(searches)),
    };
    format!(
        "{count} {targets}, nothing wrong{more}: settings are valid and the files that they name \
         can be read. No repository was opened and no password command run; `lock_exporter check` \
         does that.\n"
    )
}

/// How many searches there are, in words.
pub(super) fn searched(searches: usize) -> String {
    match searches {
        1 => "1 place is searched".into(),
        _ => format!("{searches} places are searched"),
    }
}

/// Checks the configuration and the web configuration with every file that they name, without any
/// connection. Returns what it amounts to, as one line.
///
/// # Errors
/// As [`configuration`], with everything that is wrong in all of them.
pub async fn check(cli: &Cli) -> Result<String, Failure> {
    let around = Around { checks: true };
    let mut problems = Vec::new();
    let told = match amounting(cli, around).await {
        Ok(config) => {
            if file(&cli.watch).is_none() {
                let faults = named_by_flags(&config, around);
                problems.extend(faults.into_iter().map(|fault| anyhow!(fault)));
            }
            summary(&config)
        }
        Err(Failure::Other(error)) => {
            problems.push(error);
            String::new()
        }
        Err(failure) => return Err(failure),
    };
    if let Some(file) = &cli.web.web_config {
        problems.extend(web::guard::check(file).err());
    }
    if problems.is_empty() {
        return Ok(told);
    }
    let problems: Vec<_> = problems.iter().map(|error| format!("{error:#}")).collect();
    Err(Failure::Other(anyhow!(problems.join("\n"))))
}

/// What is wrong with the files that flags name for all repositories.
fn named_by_flags(config: &Config, around: Around) -> Vec<String> {
    let Some(SourceSpec::Restic(restic)) = config.targets.first().map(|spec| &spec.source) else {
        return Vec::new();
    };
    let flag = match &restic.password {
        PasswordSpec::File(_) => "--password-file: ",
        _ => "",
    };
    let opener = around.fault(Named::Opener(&restic.password, &restic.env));
    let mut faults: Vec<_> = opener.map(|fault| format!("{flag}{fault}")).into_iter().collect();
    let cacert = restic.cacert.iter().filter_map(|path| around.fault(Named::Authorities(path)));
    faults.extend(cacert.map(|fault| format!("--cacert: {fault}")));
    faults
}
