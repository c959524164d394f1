//! Google Cloud Storage: restic's variables for it, as something that can be built (restic
//! `internal/backend/gs`).

use std::fmt;
use std::sync::Arc;

use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder};
use object_store::{ObjectStore, StaticCredentialProvider};
use zeroize::Zeroizing;

use super::cloud::{Plan, Wires};
use super::{StoreError, StoreErrorKind};
use crate::location::CloudLocation;
use crate::scan::ErrorClass;
use crate::secret::{Environment, Secret};

pub(super) const OPTIONS: [&str; 3] = ["gs.connections", "gs.layout", "gs.region"];

/// What the variables say.
pub(super) struct Gs {
    bucket: String,
    /// An emulator, which wants no credentials.
    emulator: Option<String>,
    token: Option<Zeroizing<String>>,
    /// A file of credentials; without one Google's usual place, then the metadata service.
    file: Option<Zeroizing<String>>,
}

impl fmt::Debug for Gs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gs({})", self.bucket)
    }
}

impl Gs {
    pub(super) fn of(at: &CloudLocation, environment: &Environment) -> Result<Self, StoreError> {
        let variable = |name: &str| environment.text(name).map_err(super::client::secret_failed);
        let emulator =
            variable("STORAGE_EMULATOR_HOST")?.map(|host| match host.split_once("://") {
                Some(_) => host.trim_end_matches('/').to_owned(),
                None => format!("http://{}", host.trim_end_matches('/')),
            });
        if let Some(url) = &emulator
            && (url.parse::<hyper::Uri>().is_err() || url::Url::parse(url).is_err())
        {
            let kind = StoreErrorKind::Failed(ErrorClass::Config);
            let cause = "STORAGE_EMULATOR_HOST is no host";
            return Err(StoreError::new(kind, "find the emulator", cause, ""));
        }
        let token = variable("GOOGLE_ACCESS_TOKEN")?;
        if token.as_ref().is_some_and(|token| !token.bytes().all(|c| c.is_ascii_graphic())) {
            let kind = StoreErrorKind::Failed(ErrorClass::Config);
            let cause = "GOOGLE_ACCESS_TOKEN holds a blank or a letter beyond ASCII";
            return Err(StoreError::new(kind, "read the access token", cause, ""));
        }
        let file = variable("GOOGLE_APPLICATION_CREDENTIALS")?;
        Ok(Self { bucket: at.container.clone(), emulator, token, file })
    }
}

impl Plan for Gs {
    fn plain_http(&self) -> bool {
        self.emulator.as_ref().is_some_and(|url| url.starts_with("http://"))
    }

    fn hidden(&self) -> Vec<Secret> {
        self.token.iter().map(|token| Secret::new(token.as_bytes())).collect()
    }

    fn tried(&self) -> String {
        match &self.file {
            Some(_) => String::new(),
            None => "neither GOOGLE_APPLICATION_CREDENTIALS nor GOOGLE_ACCESS_TOKEN is set".into(),
        }
    }

    fn credentials_file(&self) -> Option<&str> {
        let is_used = self.emulator.is_none() && self.token.is_none();
        self.file.as_ref().filter(|_| is_used).map(|file| file.as_str())
    }

    fn build(&self, wires: &Wires) -> object_store::Result<Arc<dyn ObjectStore>> {
        let builder = GoogleCloudStorageBuilder::new()
            .with_bucket_name(&self.bucket)
            .with_retry(wires.limits.retries())
            .with_http_connector(wires.store.clone());
        let bearer = |bearer: &str| {
            Arc::new(StaticCredentialProvider::new(GcpCredential { bearer: bearer.to_owned() }))
        };
        let builder = if let Some(url) = &self.emulator {
            builder.with_base_url(url).with_credentials(bearer("")).with_skip_signature(true)
        } else if let Some(token) = &self.token {
            builder.with_credentials(bearer(token))
        } else {
            let asks = builder.clone().with_http_connector(wires.credentials.clone());
            let asks = match &self.file {
                Some(file) => asks.with_application_credentials(file.as_str()),
                None => asks,
            };
            builder.with_credentials(asks.build()?.credentials().clone())
        };
        Ok(Arc::new(builder.build()?))
    }
}
