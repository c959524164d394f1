//! The process entry: flags, logging, the command, the exit code.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use lock_exporter::app::{self, Failure};
use lock_exporter::cli::{self, Cli, Command, Log, LogFormat, LogLevel};
use lock_exporter::exposition::table;
use lock_exporter::{cmd, web};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};

/// `check` answers Nagios with 3 for everything that is not a judgement.
const UNKNOWN: u8 = 3;
/// sysexits' EX_USAGE.
const USAGE: u8 = 64;
/// sysexits' EX_TEMPFAIL: another instance has the state folder.
const TAKEN: u8 = 75;
/// Lines that wait to be written, at most; a burst of a large fleet fits. Their places are taken
/// from memory at the start, 32 bytes each.
const LOG_LINES_MAX: usize = 4_096;

fn main() -> ExitCode {
    let cli = match Cli::try_parse().map_err(cli::without_logins) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version were asked for: standard output, success.
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let _ = error.print();
            if !asked && is_for_nagios() {
                let words = error.to_string();
                let first = words.lines().next().unwrap_or_default();
                let first = first.strip_prefix("error: ").unwrap_or(first);
                let _ = cmd::print(&table::nagios_refusal(first));
            }
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(usage_code()) };
        }
    };
    let checking = matches!(cli.command, Some(Command::Check(_)));
    // Who looks at a table, or gets it by mail, looks for what is wrong.
    let log = start_log(&cli.log, if checking { LogLevel::Warn } else { LogLevel::Info });
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        tracing::debug!("a TLS provider is installed already");
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(run(&cli));
    // What was logged comes before what is said last.
    drop(log);
    let code = match result {
        Ok(code) => code,
        Err(failure) => {
            let (error, code) = match failure {
                Failure::Usage(error) => (error, USAGE),
                Failure::Taken(error) => (error, TAKEN),
                Failure::Other(error) => (error, 1),
            };
            complain(&format!("{error:#}"));
            if let Some(Command::Check(check)) = &cli.command {
                let _ = cmd::check::refuse(check, &error);
            }
            if checking { UNKNOWN } else { code }
        }
    };
    // A thread that hangs in a dead file system must not keep the process.
    runtime.shutdown_background();
    ExitCode::from(code)
}

/// Says what went wrong, if anybody can hear it: a full disk behind stderr is no reason to panic.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "lock_exporter: {text}");
}

/// The parser failed, so the command line itself has to tell whether it was a `check`.
fn usage_code() -> u8 {
    if is_check() { UNKNOWN } else { USAGE }
}

fn is_check() -> bool {
    arguments().any(|argument| argument == "check")
}

/// Whether a plugin was meant, whose answer has to be on standard output.
fn is_for_nagios() -> bool {
    let joined: Vec<_> = arguments().collect();
    let named = joined.windows(2).any(|pair| pair[0] == "--output" && pair[1] == "nagios");
    is_check() && (named || joined.iter().any(|argument| argument == "--output=nagios"))
}

/// The arguments as far as they are text.
fn arguments() -> impl Iterator<Item = String> {
    std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned())
}

async fn run(cli: &Cli) -> Result<u8, Failure> {
    match &cli.command {
        None => {
            if cli.watch.config_check {
                cmd::print(&app::check(cli).await?)?;
                return Ok(0);
            }
            let config = app::configuration(cli).await?;
            let context = app::context(app::machine(cli));
            let state = app::state(cli, &context)?;
            let doors = web::open(&cli.web).await?;
            let load = || {
                let again = async {
                    let config = app::configuration(cli).await.map_err(Failure::into_error)?;
                    // It is read again by itself; that it is broken must be seen here too.
                    app::of_web(cli).await?;
                    Ok(config)
                };
                Box::pin(again) as _
            };
            app::run(cli, config, context, state, &load, doors, app::signals()?).await?;
            Ok(0)
        }
        Some(Command::Check(check)) => cmd::check::run(cli, check).await,
        Some(Command::Healthcheck) => {
            cmd::misc::healthcheck(&cli.web).await?;
            Ok(0)
        }
        Some(Command::Completions { shell }) => {
            cmd::misc::completions(*shell)?;
            Ok(0)
        }
        Some(Command::Man) => {
            cmd::misc::man()?;
            Ok(0)
        }
        Some(Command::Demo(demo)) => {
            cmd::demo::run(cli, demo).await?;
            Ok(0)
        }
    }
}

/// Logs to standard error through a thread of its own: a reader that stops reading must stop nobody
/// who logs. Lines beyond what that thread can keep are lost. Dropping the guard writes the rest.
fn start_log(log: &Log, level: LogLevel) -> WorkerGuard {
    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;
    let level = match log.level.unwrap_or(level) {
        LogLevel::Debug => "lock_exporter=debug,warn",
        LogLevel::Info => "lock_exporter=info,warn",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(LOG_LINES_MAX)
        .thread_name("log")
        .finish(std::io::stderr());
    let registry = tracing_subscriber::registry().with(EnvFilter::new(level));
    match log.format {
        LogFormat::Logfmt => registry
            .with(tracing_logfmt::builder().with_target(false).layer().with_writer(writer))
            .init(),
        LogFormat::Json => {
            registry.with(tracing_subscriber::fmt::layer().json().with_writer(writer)).init()
        }
    }
    guard
}
