//! Flags and sub-commands, with Prometheus' names for the exporter's own and restic's names for
//! how a repository is reached. Only their shapes: what follows from them is `app`'s business.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// The port of `--web.listen-address` when none is given.
pub const PORT: u16 = 10130;

/// Prometheus exporter for locks: who holds them, since when, alive or dead, what is blocked.
#[derive(Parser, Debug)]
#[command(
    name = "lock_exporter",
    version,
    about,
    after_help = "Without a sub-command it serves metrics. What is watched comes from -r or \
                  --repository-file, else --config.file, else lock_exporter.yml here or in \
                  /etc/lock-exporter, else RESTIC_REPOSITORY or RESTIC_REPOSITORY_FILE."
)]
pub struct Cli {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What is watched.
    #[command(flatten)]
    pub watch: Watch,
    /// How it is scanned.
    #[command(flatten)]
    pub scan: ScanFlags,
    /// Who else scans.
    #[command(flatten)]
    pub shard: ShardFlags,
    /// What is known of this machine.
    #[command(flatten)]
    pub machine: MachineFlags,
    /// How it is served.
    #[command(flatten)]
    pub web: Web,
    /// What is logged.
    #[command(flatten)]
    pub log: Log,
}

/// The sub-commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Scan once, print what was found; exit 0 ok, 1 warning, 2 critical, 3 unknown
    Check(Check),
    /// Make repositories with locks of every kind, serve them, remove them at exit
    Demo(Demo),
    /// Ask a running exporter whether it is healthy; exit 0 or 1
    Healthcheck,
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// `check`
#[derive(Args, Debug)]
pub struct Check {
    /// Names of configured targets, or restic repository strings; all targets when none is given
    #[arg(value_name = "TARGET|REPO")]
    pub targets: Vec<String>,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Also write DIR/lock_exporter.prom, for the textfile collector of node_exporter
    #[arg(long, value_name = "DIR")]
    pub textfile: Option<PathBuf>,
}

/// Formats of `check`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs; the same objects as the HTTP API
    Json,
    /// Prometheus text format
    Prom,
    /// OpenMetrics 1.0
    #[value(name = "openmetrics")]
    OpenMetrics,
    /// One line with the plugin conventions of Nagios and Icinga
    Nagios,
}

/// `demo`
#[derive(Args, Debug)]
pub struct Demo {
    /// Print the metrics once and end
    #[arg(long)]
    pub once: bool,
}

/// Where targets come from.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "What is watched")]
pub struct Watch {
    /// Configuration file
    #[arg(
        long = "config.file",
        value_name = "FILE",
        global = true,
        env = "LOCK_EXPORTER_CONFIG_FILE"
    )]
    pub config_file: Option<PathBuf>,
    /// Check the configuration and the files it names, print everything that is wrong, and end
    #[arg(long = "config.check")]
    pub config_check: bool,
    /// Reload when any file changed that the configuration is made of: itself, passwords,
    /// variables, authorities, the web configuration
    #[arg(long = "config.enable-auto-reload", env = "LOCK_EXPORTER_CONFIG_ENABLE_AUTO_RELOAD")]
    pub auto_reload: bool,
    /// How often is looked for such a change [default: 30s]
    #[arg(long = "config.auto-reload-interval", value_name = "DURATION",
          env = "LOCK_EXPORTER_CONFIG_AUTO_RELOAD_INTERVAL",
          value_parser = crate::config::duration)]
    pub auto_reload_interval: Option<Duration>,
    /// restic repository, as for restic itself; can be given several times
    #[arg(short = 'r', long = "repo", value_name = "REPO", global = true)]
    pub repositories: Vec<String>,
    /// File with the repository string
    #[arg(long, value_name = "FILE", global = true)]
    pub repository_file: Option<PathBuf>,
    /// File with the repository password
    #[arg(short = 'p', long, value_name = "FILE", global = true)]
    pub password_file: Option<PathBuf>,
    /// Command that prints the repository password
    #[arg(long, value_name = "COMMAND", global = true)]
    pub password_command: Option<String>,
    /// Start of the id of the key to try first
    #[arg(long, value_name = "KEY", global = true)]
    pub key_hint: Option<String>,
    /// Certificate authorities to trust beside the system's, PEM
    #[arg(long, value_name = "FILE", global = true)]
    pub cacert: Vec<PathBuf>,
    /// Open repositories that have an empty password
    #[arg(long, global = true)]
    pub insecure_no_password: bool,
    /// Trust any certificate of the backend
    #[arg(long, global = true)]
    pub insecure_tls: bool,
    /// Extended option of restic
    #[arg(short = 'o', long = "option", value_name = "KEY=VALUE", global = true)]
    pub options: Vec<String>,
    /// Name of this machine, in labels and for recognising its own locks
    #[arg(long = "host.name", value_name = "NAME", global = true, env = "LOCK_EXPORTER_HOST_NAME")]
    pub host_name: Option<String>,
}

/// How targets are scanned; what is given here wins over the configuration file.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Scanning")]
pub struct ScanFlags {
    /// How often each target is scanned [default: 60s]
    #[arg(long = "scan.interval", value_name = "DURATION", global = true,
          env = "LOCK_EXPORTER_SCAN_INTERVAL", value_parser = crate::config::duration)]
    pub interval: Option<Duration>,
    /// How often instead a repository in which the last scan saw no lock file; fewer listings
    /// [default: as --scan.interval]
    #[arg(long = "scan.idle-interval", value_name = "DURATION", global = true,
          env = "LOCK_EXPORTER_SCAN_IDLE_INTERVAL", value_parser = crate::config::duration)]
    pub idle_interval: Option<Duration>,
    /// How long one scan may take [default: 30s]
    #[arg(long = "scan.timeout", value_name = "DURATION", global = true,
          env = "LOCK_EXPORTER_SCAN_TIMEOUT", value_parser = crate::config::duration)]
    pub timeout: Option<Duration>,
    /// How many scans run at once [default: 16]
    #[arg(long = "scan.concurrency", value_name = "N", global = true,
          env = "LOCK_EXPORTER_SCAN_CONCURRENCY",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub concurrency: Option<u16>,
    /// How long values stay shown without a successful scan [default: 15m]
    #[arg(long = "scan.hold", value_name = "DURATION", global = true,
          env = "LOCK_EXPORTER_SCAN_HOLD", value_parser = crate::config::duration)]
    pub hold: Option<Duration>,
}

/// Several exporters with one configuration share its targets.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sharing the work")]
pub struct ShardFlags {
    /// Which of the exporters this is, from 0; auto: the number at the end of POD_NAME
    #[arg(long = "shard", value_name = "N|auto", default_value = "0", env = "LOCK_EXPORTER_SHARD")]
    pub shard: String,
    /// How many exporters share the targets, by their names
    #[arg(
        long = "total-shards",
        value_name = "N",
        default_value_t = 1,
        env = "LOCK_EXPORTER_TOTAL_SHARDS"
    )]
    pub total: u32,
}

/// What is known of the machine that the exporter runs on.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "This machine")]
pub struct MachineFlags {
    /// Another name by which locks of this machine are known; can be given several times
    #[arg(
        long = "host.alias",
        value_name = "NAME",
        global = true,
        value_delimiter = ',',
        env = "LOCK_EXPORTER_HOST_ALIAS"
    )]
    pub host_alias: Vec<String>,
    /// Whether no other machine or container has these names; if not, no lock is called dead
    /// because its process is not here
    #[arg(long = "host.name-unique", value_name = "BOOL", global = true, default_value_t = true,
          default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = clap::ArgAction::Set, env = "LOCK_EXPORTER_HOST_NAME_UNIQUE")]
    pub host_name_unique: bool,
    /// Look for the processes that hold restic's locks of this machine (this is the default)
    #[arg(long = "collector.evidence", global = true, overrides_with = "no_evidence")]
    pub evidence: bool,
    /// Do not look for them
    #[arg(long = "no-collector.evidence", global = true, overrides_with = "evidence")]
    pub no_evidence: bool,
    /// Show the processes of this machine that can hold repository locks, so that other exporters'
    /// locks can be joined with them
    #[arg(long = "collector.process", global = true, env = "LOCK_EXPORTER_COLLECTOR_PROCESS")]
    pub process: bool,
    /// Another program that holds repository locks as restic does; can be given several times
    #[arg(long = "collector.evidence.program", value_name = "NAME", global = true)]
    pub programs: Vec<String>,
    /// Folder in which holds are remembered over restarts; made if only it is missing; one exporter
    /// at a time has it
    #[arg(long = "state.dir", value_name = "DIR", global = true, env = "LOCK_EXPORTER_STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// Where /proc is mounted
    #[arg(
        long = "path.procfs",
        value_name = "DIR",
        global = true,
        default_value = "/proc",
        env = "LOCK_EXPORTER_PATH_PROCFS"
    )]
    pub procfs: PathBuf,
    /// Where the root of the watched machine is mounted, when lock files are not in our own
    #[arg(
        long = "path.rootfs",
        value_name = "DIR",
        global = true,
        env = "LOCK_EXPORTER_PATH_ROOTFS"
    )]
    pub rootfs: Option<PathBuf>,
}

/// How metrics are served.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Serving")]
pub struct Web {
    /// Address to listen on; can be given several times
    #[arg(long = "web.listen-address", value_name = "ADDRESS", default_value = ":10130", global = true,
          env = "LOCK_EXPORTER_WEB_LISTEN_ADDRESS", value_parser = listen_address)]
    pub listen: Vec<SocketAddr>,
    /// Listen on the sockets that systemd passes instead
    #[arg(long = "web.systemd-socket", env = "LOCK_EXPORTER_WEB_SYSTEMD_SOCKET")]
    pub systemd_socket: bool,
    /// File with TLS certificates, users and headers, as other Prometheus exporters have it
    #[arg(
        long = "web.config.file",
        value_name = "FILE",
        global = true,
        env = "LOCK_EXPORTER_WEB_CONFIG_FILE"
    )]
    pub web_config: Option<PathBuf>,
    /// Another address, for /-/healthy and /-/ready alone, without TLS and password
    #[arg(long = "web.probe-listen-address", value_name = "ADDRESS", global = true,
          env = "LOCK_EXPORTER_WEB_PROBE_LISTEN_ADDRESS", value_parser = listen_address)]
    pub probe_listen: Option<SocketAddr>,
    /// Path before all paths; by default that of --web.external-url
    #[arg(long = "web.route-prefix", value_name = "PATH", global = true,
          env = "LOCK_EXPORTER_WEB_ROUTE_PREFIX", value_parser = prefix)]
    pub route_prefix: Option<String>,
    /// URL by which browsers reach this exporter, behind a reverse proxy
    #[arg(long = "web.external-url", value_name = "URL", global = true,
          env = "LOCK_EXPORTER_WEB_EXTERNAL_URL", value_parser = external)]
    pub external_url: Option<url::Url>,
    /// Path of the metrics
    #[arg(long = "web.telemetry-path", value_name = "PATH", default_value = "/metrics",
          env = "LOCK_EXPORTER_WEB_TELEMETRY_PATH", value_parser = telemetry_path)]
    pub telemetry_path: String,
    /// Scrapes answered at once; 0 = no limit
    #[arg(
        long = "web.max-requests",
        value_name = "N",
        default_value_t = 40,
        env = "LOCK_EXPORTER_WEB_MAX_REQUESTS"
    )]
    pub max_requests: u16,
    /// Allow POST and PUT to /-/reload
    #[arg(long = "web.enable-lifecycle", env = "LOCK_EXPORTER_WEB_ENABLE_LIFECYCLE")]
    pub enable_lifecycle: bool,
    /// Be ready after this time although targets were not all looked at
    #[arg(long = "web.ready-timeout", value_name = "DURATION", default_value = "60s",
          env = "LOCK_EXPORTER_WEB_READY_TIMEOUT", value_parser = crate::config::duration)]
    pub ready_timeout: Duration,
}

impl Web {
    /// What stands before all paths here: nothing, or a path without a slash at its end.
    pub fn prefix(&self) -> String {
        self.route_prefix.clone().unwrap_or_else(|| self.external_path())
    }

    /// What stands before all paths for browsers: nothing, or a path without a slash at its end.
    pub fn external_path(&self) -> String {
        let path = self.external_url.as_ref().map_or("", |url| url.path().trim_end_matches('/'));
        if self.external_url.is_some() {
            path.to_owned()
        } else {
            self.route_prefix.clone().unwrap_or_default()
        }
    }
}

/// What is logged.
#[derive(Args, Debug)]
#[command(next_help_heading = "Logging")]
pub struct Log {
    /// Least severe messages that are logged [default: info; warn for check]
    #[arg(
        long = "log.level",
        value_name = "LEVEL",
        global = true,
        env = "LOCK_EXPORTER_LOG_LEVEL",
        value_enum
    )]
    pub level: Option<LogLevel>,
    /// How they are written
    #[arg(
        long = "log.format",
        value_name = "FORMAT",
        default_value = "logfmt",
        global = true,
        env = "LOCK_EXPORTER_LOG_FORMAT",
        value_enum
    )]
    pub format: LogFormat,
}

/// Severities, with Prometheus' words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogLevel {
    /// Every scan
    Debug,
    /// Start, stop, reload
    Info,
    /// Targets that begin to fail and recover
    Warn,
    /// Faults of the exporter
    Error,
}

/// Log formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LogFormat {
    /// key=value
    Logfmt,
    /// One JSON object a line
    Json,
}

/// `:10130`, `127.0.0.1:10130`, `[::1]:10130`. A port alone means every address, as in Go.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Some(port) = text.strip_prefix(':') {
        let port = port.parse().map_err(|_| format!("{port:?} is no port"))?;
        return Ok((Ipv6Addr::UNSPECIFIED, port).into());
    }
    if let Some(port) = text.strip_prefix("localhost:") {
        let port: u16 = port.parse().map_err(|_| format!("{port:?} is no port"))?;
        return Ok(([127, 0, 0, 1], port).into());
    }
    text.parse().map_err(|_| "write :10130, 127.0.0.1:10130 or [::1]:10130".into())
}

/// `/`, `locks`, `/locks/`: without slashes at the ends, but for one before the first word.
fn prefix(text: &str) -> Result<String, String> {
    let words = text.trim_matches('/');
    if words.chars().any(|c| c.is_whitespace() || "?#%".contains(c)) {
        return Err("must be a path like /locks".into());
    }
    Ok(if words.is_empty() { String::new() } else { format!("/{words}") })
}

/// A refusal of arguments without the login of a URL that it quotes.
pub fn without_logins(mut error: clap::Error) -> clap::Error {
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand]
    {
        if let Some(ContextValue::String(text)) = error.get(kind) {
            let text = without_login(text);
            error.insert(kind, ContextValue::String(text));
        }
    }
    error
}

/// A text in which nothing stands between the scheme of a URL and the last `@`.
fn without_login(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}://***{}", &text[..scheme], &text[at..])
        }
        _ => text.to_owned(),
    }
}

fn external(text: &str) -> Result<url::Url, String> {
    let url = url::Url::parse(text).map_err(|error| error.to_string())?;
    let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    if matches!(url.scheme(), "http" | "https") && url.password().is_none() && is_plain {
        Ok(url)
    } else {
        Err("must be like https://example.org/locks/, without user, query and fragment".into())
    }
}

fn telemetry_path(text: &str) -> Result<String, String> {
    if text.len() > 1 && text.starts_with('/') && !text.starts_with("/-/") {
        Ok(text.to_owned())
    } else {
        Err("must begin with / and be neither / nor below /-/".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn addresses_are_written_as_for_other_exporters() {
        for (text, expected) in [
            (":10130", Some("[::]:10130")),
            ("127.0.0.1:1", Some("127.0.0.1:1")),
            ("[::1]:10130", Some("[::1]:10130")),
            ("localhost:80", Some("127.0.0.1:80")),
            ("10130", None),
            (":x", None),
        ] {
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(listen_address(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn no_login_is_quoted_when_arguments_are_refused() {
        for argument in ["--web.external-url=https://u:pl4nted@h/", "x:https://u:pl4@nted@h/"] {
            let error = Cli::try_parse_from(["lock_exporter", argument]).err().unwrap();
            let shown = without_logins(error).to_string();
            assert!(shown.contains("https://***@h/"), "{shown}");
            assert!(!shown.contains("pl4"), "{shown}");
        }
    }

    #[test]
    fn the_prefix_comes_from_the_external_url_unless_it_is_given() {
        for (flags, here, outside) in [
            (&[][..], "", ""),
            (&["--web.route-prefix=locks/"], "/locks", "/locks"),
            (&["--web.external-url=https://a.example/b/c/"], "/b/c", "/b/c"),
            (&["--web.external-url=https://a.example/b", "--web.route-prefix=/"], "", "/b"),
            (&["--web.external-url=https://a.example", "--web.route-prefix=/x"], "/x", ""),
        ] {
            let flags = std::iter::once(&"lock_exporter").chain(flags);
            let web = Cli::try_parse_from(flags).unwrap().web;
            assert_eq!((web.prefix().as_str(), web.external_path().as_str()), (here, outside));
        }
        for wrong in ["--web.external-url=https://u:p@a.example", "--web.route-prefix=/a b"] {
            assert!(Cli::try_parse_from(["lock_exporter", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn flags_may_stand_behind_a_sub_command() {
        let cli = Cli::try_parse_from(["lock_exporter", "check", "-r", "/srv/a", "--output=json"]);
        let cli = cli.unwrap();
        assert_eq!(cli.watch.repositories, ["/srv/a"]);
        assert!(matches!(cli.command, Some(Command::Check(check)) if check.output == Output::Json));
    }
}
