//! Programs that carry a backend on their pipes: `ssh` and `rclone`.
//!
//! A program ends when its last user goes. What it is told and what it says are not understood
//! here; what it says on standard error is kept, bounded, for the error that may follow.

use std::ffi::OsString;
use std::fmt;
use std::io::ErrorKind;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::fault::{Fault, clean, hide};
use super::{StoreError, StoreErrorKind};
use crate::scan::ErrorClass;
use crate::secret::{Secret, split_command};

/// What is kept of standard error: its end.
const SAID_BYTES_MAX: usize = 8 * 1024;
/// How long a program whose pipes are closed may take to end and to say why.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A program and what it is started with. Equal ones can be shared. `Debug` shows the program
/// only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct ProgramSpec {
    pub program: String,
    pub arguments: Vec<String>,
    /// Beside those of the exporter's own process.
    pub variables: Vec<(String, OsString)>,
    /// Parts of its arguments that are secret.
    pub hidden: Vec<String>,
    /// What to do when it is not installed; a full sentence.
    pub missing: &'static str,
}

impl fmt::Debug for ProgramSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramSpec({} …)", self.program)
    }
}

/// Splits the value of an option as restic does.
///
/// # Errors
/// [`StoreError`] of class `config` that names the option.
pub(super) fn split_option(name: &str, line: &str) -> Result<Vec<String>, StoreError> {
    let parts = split_command(line).map_err(|cause| {
        let kind = StoreErrorKind::Failed(ErrorClass::Config);
        StoreError::new(kind, format!("split the option {name}"), cause, "")
    })?;
    Ok(parts.into_iter().map(str::to_owned).collect())
}

/// A program that was started, without its input and output.
pub(super) struct Running {
    child: tokio::sync::Mutex<Child>,
    said: Arc<Mutex<Vec<u8>>>,
    /// What it was told and may say again.
    hidden: Vec<Secret>,
    ears: tokio::sync::Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl ProgramSpec {
    /// Starts it.
    pub(super) fn start(&self) -> Result<(Running, ChildStdin, ChildStdout), Fault> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Signals from a terminal are for the exporter, which ends it then.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| {
            let missing = error.kind() == ErrorKind::NotFound;
            let advice = if missing { self.missing } else { "" };
            Fault::new(ErrorClass::Config, format!("start {}: {error}", self.program), advice)
        })?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(Fault::new(ErrorClass::Internal, "a program without pipes", ""));
        };
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let ears = tokio::spawn(listen(errors, said.clone()));
        let running = Running {
            child: tokio::sync::Mutex::new(child),
            said,
            hidden: self.hidden(),
            ears: tokio::sync::Mutex::new(Some(ears)),
        };
        Ok((running, input, output))
    }

    /// What is not to be shown even if the program says it, also in quotes, as Go writes them.
    fn hidden(&self) -> Vec<Secret> {
        let variables = self.variables.iter().filter_map(|(_, value)| value.to_str());
        let parts = self.hidden.iter().map(String::as_str).chain(variables);
        // A part of another one must not break it up before it is looked for.
        let mut parts: Vec<&str> = parts.collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        let forms = parts.into_iter().flat_map(|part| {
            let quoted = part.replace('\\', "\\\\").replace('"', "\\\"");
            [quoted, part.to_owned()]
        });
        forms.map(Secret::new).collect()
    }
}

async fn listen(mut errors: ChildStderr, said: Arc<Mutex<Vec<u8>>>) {
    let mut part = [0; 1024];
    while let Ok(count @ 1..) = errors.read(&mut part).await {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend_from_slice(&part[..count]);
        let excess = said.len().saturating_sub(SAID_BYTES_MAX);
        said.drain(..excess);
    }
}

impl Running {
    /// What it said on standard error, line by line, printable, without the secrets that it was
    /// given; after its pipes were closed.
    pub(super) async fn last_words(&self) -> Vec<String> {
        let _ = tokio::time::timeout(LAST_WORDS, async {
            let _ = self.child.lock().await.wait().await;
            // A program left behind may hold the pipe open.
            if let Some(ears) = self.ears.lock().await.take() {
                let _ = ears.await;
            }
        })
        .await;
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&said).into_owned();
        let text = hide(&text, &self.hidden);
        text.lines().map(clean).filter(|line| !line.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_that_says_what_it_was_told_in_secret_is_not_quoted() {
        let script =
            "printf '%s\\n' \"cannot use $GIVEN\" 'nor \"a:pl4nted\\\"word\"' \"or $1 here\" >&2";
        let spec = ProgramSpec {
            program: "sh".into(),
            arguments: ["-c", script, "sh", "remote,pass=pl4nted-option:x"].map(Into::into).into(),
            variables: vec![("GIVEN".into(), "pl4nted-variable".into())],
            hidden: ["pl4nted\"word", "pl4nted-option"].map(Into::into).into(),
            missing: "",
        };
        let (running, input, output) = spec.start().expect("starts");
        drop((input, output));
        let said = running.last_words().await;
        assert_eq!(said, ["cannot use …", "nor \"a:…\"", "or remote,pass=…:x here"]);
    }
}
