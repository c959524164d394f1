//! From a target's specification to an open backend and the secret that opens the repository.
//!
//! Secrets and backends know nothing of restic's files; this is the one place where the source
//! asks for both, and the place where tests put their own.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::scan::{ErrorClass, ScanError};
use crate::secret::{self, Environment, Opener, SecretError};
use crate::store::{self, ReadStore, StoreError};
use crate::target::ResticSpec;
use crate::telemetry::Telemetry;

/// An open backend, and what opens the repository there.
#[derive(Debug)]
pub struct Session {
    /// The backend.
    pub store: Arc<dyn ReadStore>,
    /// The secret.
    pub opener: Opener,
    /// The start of the id of the key to try first.
    pub hint: Option<String>,
}

/// Makes sessions.
#[async_trait]
pub trait Connect: Send + Sync {
    /// Reads the secrets and opens the backend.
    ///
    /// # Errors
    /// Of class `config`: no request was sent yet.
    async fn connect(&self) -> Result<Session, ScanError>;
}

/// Connects as the specification says.
pub struct Specified {
    /// The specification.
    pub spec: ResticSpec,
    /// Time limit of a whole scan.
    pub timeout: Duration,
    /// Where requests are counted.
    pub telemetry: Arc<Telemetry>,
}

#[async_trait]
impl Connect for Specified {
    async fn connect(&self) -> Result<Session, ScanError> {
        let environment = Environment::load(&self.spec.env).await.map_err(secret_failed)?;
        // A command that hangs must be told as such before the whole scan is.
        let patience = self.timeout.mul_f64(0.8);
        let resolving = secret::resolve(&self.spec.password, &environment);
        let opener = match tokio::time::timeout(patience, resolving).await {
            Ok(opener) => opener.map_err(secret_failed)?,
            Err(_elapsed) => {
                return Err(ScanError::new(
                    ErrorClass::Config,
                    "read the password",
                    &format!("the password command or file did not answer within {patience:?}"),
                    "Run the command by hand as the exporter's user; it must not ask anything.",
                ));
            }
        };
        let hint = match &self.spec.key_hint {
            Some(hint) => Some(hint.clone()),
            None => environment
                .text("RESTIC_KEY_HINT")
                .map_err(secret_failed)?
                .map(|hint| hint.to_string()),
        };
        let store = store::open(&self.spec, &environment, self.timeout, &self.telemetry)
            .map_err(|error| store_failed(&error))?;
        Ok(Session { store, opener, hint })
    }
}

fn secret_failed(error: SecretError) -> ScanError {
    ScanError::new(ErrorClass::Config, &error.doing, &error.cause, &error.advice)
}

/// A failed verb as the failure of a scan.
pub fn store_failed(error: &StoreError) -> ScanError {
    ScanError::new(error.kind.class(), &error.doing, &error.cause, &error.advice)
        .asked_to_wait(error.wait)
}
