//! Credentials that a program prints.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use tokio::io::AsyncReadExt;
use zeroize::Zeroizing;

use super::answer::Answer;
use super::issued::{Issued, Last};
use crate::scan::ErrorClass;
use crate::store::StoreError;
use crate::store::fault::Fault;
use crate::store::program::{ProgramSpec, split_option};

/// A program that takes longer hangs.
const TIMEOUT: Duration = Duration::from_secs(30);
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// The program of one profile.
pub(super) struct Process {
    command: ProgramSpec,
    last: Last,
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
        // Any of them may be one that opens something.
        let hidden = arguments.clone();
        let command = ProgramSpec { program, arguments, variables, hidden, missing };
        Ok(Self { command, last: Last::default() })
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
        let Some(answer) = Answer::of_process(&answer) else {
            let said = running.last_words().await.pop();
            let said = said.unwrap_or_else(|| "what it printed is no credential".into());
            let advice = "Run the command of the profile by hand, as the exporter's user.";
            return Err(Fault::new(
                ErrorClass::Auth,
                format!("credential_process: {said}"),
                advice,
            ));
        };
        Issued::of("credential_process", answer)
    }
}

#[async_trait]
impl CredentialProvider for Process {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.last.or_ask(async || self.ask().await).await
    }
}
