//! Credentials that a program prints, asked for again before they expire.
#![allow(clippy::disallowed_methods, reason = "credentials expire by the wall clock")]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use serde::Deserialize;
use tokio::io::AsyncReadExt;
use zeroize::Zeroizing;

use crate::scan::ErrorClass;
use crate::store::StoreError;
use crate::store::fault::Fault;
use crate::store::program::{ProgramSpec, split_option};

/// A program that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// Asked for again so long before the end.
const EARLY: SignedDuration = SignedDuration::from_secs(300);

/// The program of one profile.
pub(super) struct Process {
    command: ProgramSpec,
    last: tokio::sync::Mutex<Option<Issued>>,
}

struct Issued {
    credential: Arc<AwsCredential>,
    expires_at: Option<Timestamp>,
}

/// What it prints (docs.aws.amazon.com "Sourcing credentials with an external process").
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({:?})", self.command)
    }
}

impl Process {
    pub(super) fn of(
        line: &str,
        variables: Vec<(String, std::ffi::OsString)>,
    ) -> Result<Self, StoreError> {
        let mut arguments = split_option("credential_process", line)?;
        let program = arguments.remove(0);
        let missing = "Check credential_process in the profile.";
        let command = ProgramSpec { program, arguments, variables, missing };
        Ok(Self { command, last: tokio::sync::Mutex::default() })
    }

    async fn ask(&self) -> Result<Issued, Fault> {
        let (running, input, output) = self.command.start()?;
        drop(input);
        let mut answer = Zeroizing::new(Vec::new());
        let mut output = output.take(ANSWER_BYTES_MAX);
        let read = tokio::time::timeout(TIMEOUT, output.read_to_end(&mut answer)).await;
        if read.is_err() {
            let cause = format!("credential_process: no answer in {TIMEOUT:?}");
            return Err(Fault::new(ErrorClass::Timeout, cause, ""));
        }
        let Ok(answer) = serde_json::from_slice::<Answer>(&answer) else {
            let said = running.last_words().await.pop();
            let said = said.unwrap_or_else(|| "what it printed is no credential".into());
            let advice = "Run the command of the profile by hand, as the exporter's user.";
            return Err(Fault::new(
                ErrorClass::Auth,
                format!("credential_process: {said}"),
                advice,
            ));
        };
        let expires_at = match answer.expiration.as_deref().map(str::parse::<Timestamp>) {
            None => None,
            Some(Ok(time)) => Some(time),
            Some(Err(_)) => {
                let cause = "credential_process: its Expiration is no time";
                return Err(Fault::new(ErrorClass::Auth, cause, ""));
            }
        };
        let printable = |text: &str| text.bytes().all(|c| c.is_ascii_graphic());
        if !printable(&answer.access_key_id) || !answer.session_token.iter().all(|t| printable(t)) {
            let cause = "credential_process: a blank or a letter beyond ASCII in the credential";
            return Err(Fault::new(ErrorClass::Auth, cause, ""));
        }
        let Answer { access_key_id: key_id, secret_access_key: secret_key, .. } = answer;
        let token = answer.session_token;
        let credential = Arc::new(AwsCredential { key_id, secret_key, token });
        Ok(Issued { credential, expires_at })
    }
}

#[async_trait]
impl CredentialProvider for Process {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut last = self.last.lock().await;
        let soon = Timestamp::now().checked_add(EARLY).unwrap_or(Timestamp::MAX);
        if let Some(issued) = &*last
            && issued.expires_at.is_none_or(|expires_at| expires_at > soon)
        {
            return Ok(issued.credential.clone());
        }
        let issued = self.ask().await.map_err(|fault| object_store::Error::Generic {
            store: "s3",
            source: Box::new(fault),
        })?;
        Ok(last.insert(issued).credential.clone())
    }
}
