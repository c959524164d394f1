//! What Azure and Google have in common: a store that is built by its first verb, since that reads
//! certificates, over one wire for data and one for credentials.
//!
//! Which variables mean what is not known here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::ObjectStore;
use tokio::sync::OnceCell;

use super::advice::{self, Advice};
use super::azure::{self, Azure};
use super::client::ClientSpec;
use super::fault::explain;
use super::gs::{self, Gs};
use super::http::{Limits, Wire};
use super::object::{Objects, Pages, Reach};
use super::{Entry, Listing, ReadStore, StoreError, StoreErrorKind, check_options};
use crate::location::{CloudLocation, Location};
use crate::scan::ErrorClass;
use crate::secret::{Environment, Secret};
use crate::target::ResticSpec;
use crate::telemetry::Telemetry;

/// Everything that a target's variables say of one cloud.
pub(super) trait Plan: Send + Sync + fmt::Debug {
    /// Whether the service is one without TLS.
    fn plain_http(&self) -> bool;

    /// What is never shown.
    fn hidden(&self) -> Vec<Secret>;

    /// Why a service of this machine is asked for credentials, where no variable says so.
    fn tried(&self) -> String;

    /// The file that credentials are read from, where a variable names one.
    fn credentials_file(&self) -> Option<&str>;

    /// Builds the store; credentials are asked for by its first request.
    ///
    /// # Errors
    /// When a credential cannot be used.
    fn build(&self, wires: &Wires) -> object_store::Result<Arc<dyn ObjectStore>>;
}

/// What requests go through.
pub(super) struct Wires {
    pub store: Wire,
    pub credentials: Wire,
    pub limits: Limits,
}

/// The store.
pub(super) struct Cloud {
    at: CloudLocation,
    plan: Box<dyn Plan>,
    client: ClientSpec,
    limits: Limits,
    advice: &'static Advice,
    telemetry: Arc<Telemetry>,
    objects: OnceCell<Objects>,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cloud({})", self.at)
    }
}

impl Cloud {
    pub(super) fn open(
        at: &CloudLocation,
        spec: &ResticSpec,
        environment: &Environment,
        timeout: Duration,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Self, StoreError> {
        let (plan, advice): (Box<dyn Plan>, _) = match at.scheme {
            "azure" => {
                check_options(spec, "azure.", &azure::OPTIONS)?;
                (Box::new(Azure::of(at, environment)?), &advice::AZURE)
            }
            _ => {
                check_options(spec, "gs.", &gs::OPTIONS)?;
                (Box::new(Gs::of(at, environment)?), &advice::GS)
            }
        };
        let limits = Limits::within(timeout);
        let client = ClientSpec::of(spec, environment, plan.plain_http(), limits)?;
        let (at, telemetry, objects) = (at.clone(), telemetry.clone(), OnceCell::new());
        Ok(Self { at, plan, client, limits, advice, telemetry, objects })
    }

    async fn objects(&self) -> Result<&Objects, StoreError> {
        self.objects
            .get_or_try_init(async || {
                let (scheme, pages) = (self.at.scheme, Arc::<Pages>::default());
                let client = self.client.client().await?;
                let asking = self.client.for_credentials().client().await?;
                let store = Wire::new(
                    client,
                    scheme,
                    self.telemetry.clone(),
                    pages.clone(),
                    self.plan.hidden(),
                    self.advice,
                );
                let (telemetry, tried) = (self.telemetry.clone(), self.plan.tried());
                let credentials =
                    Wire::to_credentials(asking, scheme, telemetry, self.advice, tried);
                let wires = Wires { store, credentials, limits: self.limits };
                let shown = Location::Cloud(self.at.clone()).to_string();
                let built = self.plan.build(&wires).map_err(|error| {
                    let kind = StoreErrorKind::Failed(ErrorClass::Config);
                    let mut cause = explain(&error).cause;
                    if let Some(file) = self.plan.credentials_file() {
                        cause = format!("{file}: {cause}");
                    }
                    StoreError::new(kind, format!("open {shown}"), cause, self.advice.auth)
                })?;
                let (prefix, verb) = (&self.at.prefix, self.limits.verb);
                let objects = Objects::new(built, prefix, shown, verb, pages, self.advice);
                Ok(objects.reaching(Reach::Below))
            })
            .await
    }
}

#[async_trait]
impl ReadStore for Cloud {
    async fn list(&self, folder: &str) -> Result<Listing, StoreError> {
        self.objects().await?.list(folder).await
    }

    async fn stat(&self, path: &str) -> Result<Entry, StoreError> {
        self.objects().await?.stat(path).await
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, StoreError> {
        self.objects().await?.read(path, bytes_max).await
    }

    async fn folders(&self, folder: &str) -> Result<Option<Vec<String>>, StoreError> {
        self.objects().await?.folders(folder).await
    }
}
