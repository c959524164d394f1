//! `rclone serve restic --stdio` as restic starts it: the REST protocol in HTTP/2 on the pipes of a
//! program. B2 and Swift go the same way, with a remote made of restic's own variables.
//!
//! Targets of one remote share one program, which ends when nobody has used it for a while. What
//! the requests mean is for the REST store.

#![allow(clippy::disallowed_methods, reason = "this module measures how long a program is idle")]

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use tokio::runtime;
use tokio::sync::watch;
use tokio::time::Instant;
use url::Url;

use super::advice;
use super::client::secret_failed;
use super::fault::Fault;
use super::program::{ProgramSpec, Running, split_option};
use super::rest::{Carrier, Rest};
use super::{StoreError, StoreErrorKind, check_options};
use crate::location::{CloudLocation, Location, RcloneLocation};
use crate::scan::ErrorClass;
use crate::secret::Environment;
use crate::target::ResticSpec;
use crate::telemetry::Telemetry;

/// restic `internal/backend/rclone/config.go`.
const OPTIONS: [&str; 4] =
    ["rclone.args", "rclone.connections", "rclone.program", "rclone.timeout"];
const ARGUMENTS: &str = "serve restic --stdio --b2-hard-delete";
/// Longer than the usual interval of scans, so that a program is not started for each.
const IDLE: Duration = Duration::from_secs(180);
/// A request may fail a moment before the end of the program behind it is noticed.
const END_NOTICED: Duration = Duration::from_millis(500);

const MISSING: &str = "Install the package rclone, or name it by the option rclone.program.";
const MISSING_B2: &str = "Install the package rclone, through which B2 is read; or read the same \
                          bucket without it by B2's S3: \
                          s3:https://s3.REGION.backblazeb2.com/BUCKET/PREFIX with the key in \
                          AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.";

/// Opens a remote of rclone's own configuration.
pub(super) fn open(
    at: &RcloneLocation,
    spec: &ResticSpec,
    environment: &Environment,
    timeout: Duration,
    telemetry: &Arc<Telemetry>,
) -> Result<Rest, StoreError> {
    let mut command = command(spec, &at.remote, MISSING)?;
    command.hidden = at.secrets();
    // A remote may want the variables of any cloud; the repository's password is none of them.
    command.variables.extend(environment.for_program(|name| !name.starts_with("RESTIC_")));
    let shown = Location::Rclone(at.clone()).to_string();
    over(command, "", "rclone", shown, timeout, telemetry)
}

/// Opens a bucket of B2 or a container of Swift.
pub(super) fn open_cloud(
    at: &CloudLocation,
    spec: &ResticSpec,
    environment: &Environment,
    timeout: Duration,
    telemetry: &Arc<Telemetry>,
) -> Result<Rest, StoreError> {
    let known: &[&str] = match at.scheme {
        "b2" => &["b2.connections"],
        _ => &["swift.connections"],
    };
    check_options(spec, &format!("{}.", at.scheme), known)?;
    let missing = if at.scheme == "b2" { MISSING_B2 } else { MISSING };
    let mut command = command(spec, &format!("{REMOTE}:{}", at.container), missing)?;
    command.variables.extend(remote(at.scheme, environment)?);
    let shown = Location::Cloud(at.clone()).to_string();
    over(command, &at.prefix, at.scheme, shown, timeout, telemetry)
}

/// The remote's name; its settings are in variables with it.
const REMOTE: &str = "lockexporter";

/// The settings of a remote that no file holds (rclone.org/docs "Config file": a remote from
/// variables).
fn remote(scheme: &str, environment: &Environment) -> Result<Vec<(String, OsString)>, StoreError> {
    let setting = |name: &str| format!("RCLONE_CONFIG_LOCKEXPORTER_{name}");
    let mut variables = vec![("RCLONE_CONFIG".to_owned(), OsString::from("/notfound"))];
    variables.push((setting("TYPE"), scheme.into()));
    if scheme == "b2" {
        for (ours, name) in [("ACCOUNT", "B2_ACCOUNT_ID"), ("KEY", "B2_ACCOUNT_KEY")] {
            let value = environment.text(name).map_err(secret_failed)?.ok_or_else(|| {
                StoreError::new(
                    StoreErrorKind::Failed(ErrorClass::Config),
                    "find the B2 credentials",
                    format!("{name} is not set"),
                    "Set it in env, env_file, env_dir or the exporter's own environment.",
                )
            })?;
            variables.push((setting(ours), value.as_str().into()));
        }
    } else {
        // rclone reads OpenStack's variables under the names that restic has.
        variables.push((setting("ENV_AUTH"), "true".into()));
        let own =
            environment.for_program(|name| name.starts_with("OS_") || name.starts_with("ST_"));
        variables.extend(own);
    }
    Ok(variables)
}

/// restic `internal/backend/rclone/backend.go` New.
fn command(
    spec: &ResticSpec,
    remote: &str,
    missing: &'static str,
) -> Result<ProgramSpec, StoreError> {
    check_options(spec, "rclone.", &OPTIONS)?;
    let option = |name: &str| spec.options.get(name).filter(|value| !value.is_empty());
    let mut parts = match option("rclone.program") {
        Some(line) => split_option("rclone.program", line)?,
        None => vec!["rclone".into()],
    };
    let arguments = option("rclone.args").map_or(ARGUMENTS, String::as_str);
    parts.extend(split_option("rclone.args", arguments)?);
    parts.push(remote.to_owned());
    let program = parts.remove(0);
    // Nobody could answer.
    let variables = vec![("RCLONE_ASK_PASSWORD".to_owned(), OsString::from("false"))];
    let hidden = Vec::new();
    Ok(ProgramSpec { program, arguments: parts, variables, hidden, missing })
}

fn over(
    command: ProgramSpec,
    prefix: &str,
    backend: &'static str,
    shown: String,
    timeout: Duration,
    telemetry: &Arc<Telemetry>,
) -> Result<Rest, StoreError> {
    let mut base = Url::parse("http://localhost/").map_err(|_| {
        let kind = StoreErrorKind::Failed(ErrorClass::Internal);
        StoreError::new(kind, format!("open {shown}"), "no URL", "")
    })?;
    if let Ok(mut parts) = base.path_segments_mut() {
        parts.pop_if_empty().extend(prefix.split('/').filter(|part| !part.is_empty())).push("");
    }
    let pipe = Box::new(Lazy { command, pipe: std::sync::OnceLock::new() });
    Ok(Rest::over(pipe, base, backend, shown, timeout, telemetry, &advice::RCLONE))
}

/// A pipe belongs to the runtime that made it.
type Key = (runtime::Id, ProgramSpec);

static PIPES: LazyLock<Mutex<HashMap<Key, Weak<Pipe>>>> = LazyLock::new(Mutex::default);

/// The program for all who want the same; started by the first request.
struct Lazy {
    command: ProgramSpec,
    pipe: std::sync::OnceLock<Arc<Pipe>>,
}

struct Pipe {
    command: ProgramSpec,
    live: tokio::sync::Mutex<Option<Arc<Live>>>,
}

/// A running program.
struct Live {
    sender: SendRequest<Full<Bytes>>,
    running: Running,
    used_at: Mutex<Instant>,
    /// Its other half is dropped with the connection.
    connected: watch::Receiver<()>,
}

impl Live {
    async fn has_ended(&self) -> bool {
        let mut connected = self.connected.clone();
        tokio::time::timeout(END_NOTICED, connected.changed()).await.is_ok()
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Live")
    }
}

impl Lazy {
    fn pipe(&self) -> &Arc<Pipe> {
        self.pipe.get_or_init(|| {
            let key = (runtime::Handle::current().id(), self.command.clone());
            let mut pipes = PIPES.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(pipe) = pipes.get(&key).and_then(Weak::upgrade) {
                return pipe;
            }
            let (command, live) = (self.command.clone(), tokio::sync::Mutex::default());
            let pipe = Arc::new(Pipe { command, live });
            pipes.retain(|_, pipe| pipe.strong_count() > 0);
            pipes.insert(key, Arc::downgrade(&pipe));
            pipe
        })
    }
}

#[async_trait]
impl Carrier for Lazy {
    async fn service(&self) -> Result<Arc<dyn HttpService>, Fault> {
        let pipe = self.pipe();
        let mut live = pipe.live.lock().await;
        if let Some(live) = live.as_ref().filter(|live| !live.sender.is_closed()) {
            *live.used_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            return Ok(live.clone());
        }
        *live = None;
        let (running, input, output) = pipe.command.start()?;
        let io = TokioIo::new(tokio::io::join(output, input));
        let shaken = http2::handshake(TokioExecutor::new(), io).await;
        let Ok((sender, connection)) = shaken else {
            return Err(epitaph(&running).await);
        };
        let (while_connected, connected) = watch::channel(());
        tokio::spawn(async move {
            // How it ends shows in the requests.
            let _ = connection.await;
            drop(while_connected);
        });
        let used_at = Mutex::new(Instant::now());
        let made = Arc::new(Live { sender, running, used_at, connected });
        *live = Some(made.clone());
        tokio::spawn(end_when_idle(Arc::downgrade(pipe), Arc::downgrade(&made)));
        Ok(made)
    }

    async fn explain(&self, fault: Fault) -> Fault {
        let pipe = self.pipe();
        let mut live = pipe.live.lock().await;
        match fault.kind {
            // A program that hangs is given up, so that the next scan has a new one.
            StoreErrorKind::Failed(ErrorClass::Timeout) => *live = None,
            StoreErrorKind::Failed(ErrorClass::Network | ErrorClass::Protocol) => {
                if let Some(ended) = &*live
                    && ended.has_ended().await
                {
                    let fault = epitaph(&ended.running).await;
                    *live = None;
                    return fault;
                }
            }
            _ => {}
        }
        fault
    }
}

#[async_trait]
impl HttpService for Live {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, _) = request.into_parts();
        // Only reading verbs come here, and they have no body.
        let request = hyper::Request::from_parts(parts, Full::new(Bytes::new()));
        let failed = |error| HttpError::new(HttpErrorKind::Request, error);
        let response = self.sender.clone().send_request(request).await.map_err(failed)?;
        let (parts, body) = response.into_parts();
        let body = body.map_err(move |error| HttpError::new(HttpErrorKind::Interrupted, error));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

async fn end_when_idle(pipe: Weak<Pipe>, live: Weak<Live>) {
    loop {
        tokio::time::sleep(IDLE / 4).await;
        let (Some(pipe), Some(live)) = (pipe.upgrade(), live.upgrade()) else { return };
        let used_at = *live.used_at.lock().unwrap_or_else(PoisonError::into_inner);
        if used_at.elapsed() >= IDLE {
            pipe.live.lock().await.take_if(|current| Arc::ptr_eq(current, &live));
            return;
        }
    }
}

/// Why the program ended, by its own words.
async fn epitaph(running: &Running) -> Fault {
    let lines = running.last_words().await;
    complaint(&lines)
}

/// What rclone complains of, by a part of the line.
const COMPLAINTS: &[(&str, ErrorClass, &str)] = &[
    (
        "didn't find section in config file",
        ErrorClass::Config,
        "Name a remote that `rclone listremotes` shows to the exporter's user; the file is named \
         by RCLONE_CONFIG.",
    ),
    ("unknown command", ErrorClass::Config, "Check the option rclone.args."),
    ("unknown flag", ErrorClass::Config, "Check the option rclone.args."),
    ("couldn't decrypt", ErrorClass::Config, "Give RCLONE_CONFIG_PASS."),
    ("unable to decrypt configuration", ErrorClass::Config, "Give RCLONE_CONFIG_PASS."),
    ("401", ErrorClass::Auth, "Check the credentials of the remote."),
    ("403", ErrorClass::Permission, "Check the rights of the remote's credentials."),
    ("no such host", ErrorClass::Network, "Check that the exporter's machine reaches the remote."),
    ("connection refused", ErrorClass::Network, "Check host and port of the remote."),
    ("timeout", ErrorClass::Timeout, "Check that the exporter's machine reaches the remote."),
];

fn complaint(lines: &[String]) -> Fault {
    for line in lines.iter().rev() {
        let low = line.to_lowercase();
        if let Some((_, class, advice)) = COMPLAINTS.iter().find(|(part, ..)| low.contains(part)) {
            return Fault::new(*class, format!("rclone: {line}"), *advice);
        }
    }
    match lines.last() {
        Some(line) => Fault::new(ErrorClass::Other, format!("rclone: {line}"), ""),
        None => Fault::new(ErrorClass::Other, "rclone ended without a word", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    #[test]
    fn secrets_are_given_in_variables_only() {
        let environment = Environment::only(
            [("B2_ACCOUNT_ID", "id"), ("B2_ACCOUNT_KEY", "pl4nted"), ("OS_PASSWORD", "pl4nted")]
                .map(|(name, value)| (name.to_owned(), Secret::new(value))),
        );
        for (scheme, name) in [("b2", "RCLONE_CONFIG_LOCKEXPORTER_KEY"), ("swift", "OS_PASSWORD")] {
            let variables = remote(scheme, &environment).expect("is complete");
            assert!(variables.contains(&(name.to_owned(), "pl4nted".into())), "{scheme}");
            let rest = variables.iter().filter(|(known, _)| known != name);
            assert!(rest.into_iter().all(|(_, value)| value != "pl4nted"));
        }
        let error = remote("b2", &Environment::only([])).expect_err("is incomplete");
        assert!(error.to_string().contains("B2_ACCOUNT_ID is not set"), "{error}");
    }

    #[test]
    fn the_last_complaint_that_is_known_is_told() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let fault = complaint(&lines(
            "2026/11/30 NOTICE: x\n2026/11/30 Failed to create file system for \"a:\": didn't \
             find section in config file\n2026/11/30 NOTICE: bye",
        ));
        assert_eq!(fault.kind, StoreErrorKind::Failed(ErrorClass::Config));
        assert!(fault.cause.contains("didn't find section"), "{fault}");
        assert_eq!(complaint(&[]).kind, StoreErrorKind::Failed(ErrorClass::Other));
    }
}
