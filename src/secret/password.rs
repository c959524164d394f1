//! Finds what opens a repository, in restic's order and with restic's rules.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use zeroize::Zeroizing;

use super::file::off_worker;
use super::{Environment, PasswordSpec, Secret, SecretError, file, text};

/// A command that prints a password must be done by then.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
/// More output than this is no password.
const COMMAND_BYTES_MAX: u64 = 64 * 1024;

/// What files are called in errors.
const PASSWORD: &str = "password file";
const MASTER_KEY: &str = "master key file";

/// What opens a repository.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opener {
    /// Nothing was given: lock files are listed and stay sealed.
    Sealed,
    /// A password; empty only when that was asked for.
    Password(Secret),
    /// The output of `restic cat masterkey`, not yet looked into.
    MasterKey(Secret),
}

/// Reads what a specification names.
///
/// # Errors
/// [`SecretError`] when the place cannot be read, the command fails or takes over 20 s, two places
/// contradict each other, or the password is empty without having been asked for.
pub async fn resolve(
    spec: &PasswordSpec,
    environment: &Environment,
) -> Result<Opener, SecretError> {
    match spec {
        PasswordSpec::Inherit => match inherited(environment)? {
            Inherited::Command(line) => {
                of_command(&line, "RESTIC_PASSWORD_COMMAND", environment).await
            }
            Inherited::File(path) => off_worker(PASSWORD, path, read_password).await,
            Inherited::Given(opener) => Ok(opener),
        },
        PasswordSpec::File(path) => off_worker(PASSWORD, path.clone(), read_password).await,
        PasswordSpec::Command(line) => of_command(line, "password_command", environment).await,
        PasswordSpec::Variable(name) => of_variable(name, environment),
        PasswordSpec::MasterKeyFile(path) => {
            off_worker(MASTER_KEY, path.clone(), read_master_key).await
        }
        PasswordSpec::Empty => Ok(Opener::Password(Secret::new(Vec::new()))),
    }
}

/// Whether what a specification names can be read now, at once on this thread; no command is run.
///
/// # Errors
/// As [`resolve`].
pub fn look(spec: &PasswordSpec, environment: &Environment) -> Result<(), SecretError> {
    match spec {
        PasswordSpec::Inherit => match inherited(environment)? {
            Inherited::File(path) => read_password(&path).map(drop),
            Inherited::Command(_) | Inherited::Given(_) => Ok(()),
        },
        PasswordSpec::File(path) => read_password(path).map(drop),
        PasswordSpec::Variable(name) => of_variable(name, environment).map(drop),
        PasswordSpec::MasterKeyFile(path) => read_master_key(path).map(drop),
        PasswordSpec::Command(_) | PasswordSpec::Empty => Ok(()),
    }
}

/// The location in a file, as restic reads `--repository-file` and `RESTIC_REPOSITORY_FILE`.
///
/// # Errors
/// [`SecretError`] when it cannot be read, is empty or not UTF-8.
pub async fn read_location(path: &Path) -> Result<Zeroizing<String>, SecretError> {
    const WHAT: &str = "repository file";
    off_worker(WHAT, path.to_owned(), |path| {
        let mut content = text::of_file(&file::read(WHAT, path)?);
        let fail = |cause: &str| SecretError::file(WHAT, path, cause, "");
        let location = String::from_utf8(std::mem::take(&mut *content))
            .map_err(|_| fail("it is not UTF-8"))?;
        if location.is_empty() {
            return Err(fail("it is empty"));
        }
        Ok(Zeroizing::new(location))
    })
    .await
}

/// What the variables of restic say of the password.
enum Inherited {
    Command(Zeroizing<String>),
    File(PathBuf),
    Given(Opener),
}

/// restic `internal/global/global.go` resolvePassword.
fn inherited(environment: &Environment) -> Result<Inherited, SecretError> {
    let command = environment.text("RESTIC_PASSWORD_COMMAND")?;
    let file = environment.text("RESTIC_PASSWORD_FILE")?;
    match (command, file) {
        (Some(_), Some(_)) => Err(SecretError::new(
            "find the password",
            "both RESTIC_PASSWORD_COMMAND and RESTIC_PASSWORD_FILE are set",
            "Unset one of them; restic refuses both together too.",
        )),
        (Some(line), None) => Ok(Inherited::Command(line)),
        (None, Some(path)) => Ok(Inherited::File(PathBuf::from(path.as_str()))),
        (None, None) => Ok(Inherited::Given(match environment.get("RESTIC_PASSWORD") {
            Some(password) => Opener::Password(password),
            None => Opener::Sealed,
        })),
    }
}

fn read_password(path: &Path) -> Result<Opener, SecretError> {
    let mut password = text::of_file(&file::read(PASSWORD, path)?);
    if password.is_empty() {
        return Err(empty(format!("read {PASSWORD} {}", path.display())));
    }
    Ok(Opener::Password(Secret::new(std::mem::take(&mut *password))))
}

fn read_master_key(path: &Path) -> Result<Opener, SecretError> {
    let mut key = file::read(MASTER_KEY, path)?;
    Ok(Opener::MasterKey(Secret::new(std::mem::take(&mut *key))))
}

fn of_variable(name: &str, environment: &Environment) -> Result<Opener, SecretError> {
    environment.get(name).map(Opener::Password).ok_or_else(|| {
        SecretError::new(
            format!("read password from {name}"),
            "the variable is not set or empty",
            "Set it in env, env_file, env_dir or the exporter's own environment.",
        )
    })
}

fn empty(doing: String) -> SecretError {
    SecretError::new(
        doing,
        "the password is empty",
        "Put the password there; for a repository without one set insecure_no_password.",
    )
}

/// Runs a command without a shell and takes what it prints. Errors name the program only, since
/// people do write passwords into its arguments.
async fn of_command(
    line: &str,
    origin: &str,
    environment: &Environment,
) -> Result<Opener, SecretError> {
    let parts = text::split_command(line)
        .map_err(|cause| SecretError::new(format!("split {origin}"), cause, ""))?;
    let (program, arguments) = parts.split_first().expect("a split command has a first part");
    let doing = format!("run {origin} ({program})");
    let fail = |cause: String, advice: &str| SecretError::new(doing.clone(), cause, advice);
    let mut child = Command::new(program)
        .args(arguments)
        .envs(environment.own())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // What it complains of may hold a secret, and every error goes to log, page and JSON.
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            fail(error.to_string(), "Check that the program is installed where the exporter runs.")
        })?;
    let mut family = Family::of(&child);
    let stdout = child.stdout.take();
    let finished = tokio::time::timeout(COMMAND_TIMEOUT, async {
        (read_capped(stdout, COMMAND_BYTES_MAX).await, child.wait().await)
    })
    .await;
    if finished.is_ok() {
        // Its pid is free for others from now on, and what it left running it meant to (an agent).
        family.0 = None;
    }
    drop(family);
    let Ok((output, status)) = finished else {
        let cause = format!("no answer within {} s", COMMAND_TIMEOUT.as_secs());
        return Err(fail(
            cause,
            "Run it by hand as the exporter's user; it must not ask anything.",
        ));
    };
    let status = status.map_err(|error| fail(error.to_string(), ""))?;
    if !status.success() {
        let advice = "Run it by hand as the exporter's user to see what it says.";
        return Err(fail(status.to_string(), advice));
    }
    let output = output.map_err(|cause| fail(cause, ""))?;
    let password = text::trim(&output);
    if password.is_empty() {
        return Err(empty(doing));
    }
    Ok(Opener::Password(Secret::new(password)))
}

async fn read_capped(
    pipe: Option<impl AsyncRead + Unpin>,
    bytes_max: u64,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    let Some(mut pipe) = pipe else { return Ok(bytes) };
    (&mut pipe).take(bytes_max + 1).read_to_end(&mut bytes).await.map_err(|e| e.to_string())?;
    if bytes.len() as u64 > bytes_max {
        // Go on reading: the program would never end with a full pipe.
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
        return Err(format!("it printed more than {bytes_max} bytes"));
    }
    Ok(bytes)
}

/// A command of ours that runs, and whatever it started. They are ended together when nobody
/// waits for them any more: a child that is left behind at each try would fill the machine.
struct Family(Option<rustix::process::Pid>);

impl Family {
    fn of(child: &tokio::process::Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(rustix::process::Pid::from_raw))
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Not waited for, so its pid is still its own.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests;
