//! Credentials that somebody issues for a while, asked for again before they expire.
#![allow(clippy::disallowed_methods, reason = "credentials expire by the wall clock")]

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use object_store::aws::AwsCredential;
use tokio::sync::Mutex;

use super::answer::Answer;
use crate::scan::ErrorClass;
use crate::store::fault::Fault;

/// Asked for again so long before the end.
const EARLY: SignedDuration = SignedDuration::from_secs(300);

/// What was issued.
pub(super) struct Issued {
    credential: Arc<AwsCredential>,
    /// None = for good.
    expires_at: Option<Timestamp>,
}

impl Issued {
    /// Credentials as `issuer` gave them.
    ///
    /// # Errors
    /// When the end is no time, or a header could not hold them: `object_store` panics on that.
    pub(super) fn of(issuer: &str, answer: Answer) -> Result<Self, Fault> {
        let bad = |cause: &str| Fault::new(ErrorClass::Auth, format!("{issuer}: {cause}"), "");
        let expires_at = answer
            .expiration
            .map(|time| time.parse().map_err(|_| bad("its Expiration is no time")))
            .transpose()?;
        let credential = AwsCredential {
            key_id: answer.access_key_id,
            secret_key: answer.secret_access_key,
            token: answer.session_token,
        };
        let printable = |text: &str| text.bytes().all(|c| c.is_ascii_graphic());
        if !printable(&credential.key_id) || !credential.token.iter().all(|t| printable(t)) {
            return Err(bad("a blank or a letter beyond ASCII in the credential"));
        }
        Ok(Self { credential: Arc::new(credential), expires_at })
    }
}

/// The last that was issued.
#[derive(Default)]
pub(super) struct Last(Mutex<Option<Issued>>);

impl Last {
    /// What was issued last, while it holds; else what `ask` gets. Who comes meanwhile waits for
    /// the same answer.
    pub(super) async fn or_ask(
        &self,
        ask: impl AsyncFnOnce() -> Result<Issued, Fault>,
    ) -> object_store::Result<Arc<AwsCredential>> {
        let mut last = self.0.lock().await;
        let soon = Timestamp::now().checked_add(EARLY).unwrap_or(Timestamp::MAX);
        if let Some(issued) = &*last
            && issued.expires_at.is_none_or(|expires_at| expires_at > soon)
        {
            return Ok(issued.credential.clone());
        }
        let issued = ask().await.map_err(|fault| object_store::Error::Generic {
            store: "s3",
            source: Box::new(fault),
        })?;
        Ok(last.insert(issued).credential.clone())
    }
}
