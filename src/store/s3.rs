//! S3 and its like: restic's variables and options for it, as a store that only reads.
//!
//! Where the credentials come from is not known here.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use tokio::sync::OnceCell;

use super::advice;
use super::client::{ClientSpec, secret_failed};
use super::credentials::{Keys, Role, Source};
use super::fault::explain;
use super::http::{Limits, Wire};
use super::object::{Objects, Pages};
use super::{Entry, Listing, ReadStore, StoreError, StoreErrorKind, check_options};
use crate::location::{Location, S3Location};
use crate::scan::ErrorClass;
use crate::secret::{Environment, Secret};
use crate::target::ResticSpec;
use crate::telemetry::Telemetry;

const CONFIG: StoreErrorKind = StoreErrorKind::Failed(ErrorClass::Config);

/// Where requests go to when nothing else is said; also what Amazon takes for "anywhere".
pub(super) const REGION: &str = "us-east-1";

/// restic `internal/backend/s3/config.go`. Those that are not read here are about writing, about
/// restoring from archives, or about how many requests restic sends.
const OPTIONS: [&str; 12] = [
    "s3.bucket-lookup",
    "s3.connections",
    "s3.enable-restore",
    "s3.layout",
    "s3.list-objects-v1",
    "s3.region",
    "s3.restore-days",
    "s3.restore-tier",
    "s3.restore-timeout",
    "s3.retries",
    "s3.storage-class",
    "s3.unsafe-anonymous-auth",
];

/// The store. It learns the bucket's region from a refusal, once it is refused for it.
pub(super) struct S3 {
    plan: Plan,
    client: ClientSpec,
    limits: Limits,
    telemetry: Arc<Telemetry>,
    /// Made by the first verb, since it reads certificates.
    ready: OnceCell<Ready>,
}

struct Ready {
    wire: Wire,
    pages: Arc<Pages>,
    keys: Keys,
    open: RwLock<Open>,
}

#[derive(Clone)]
struct Open {
    region: String,
    objects: Arc<Objects>,
}

/// Everything that a specification says, before anything is opened.
struct Plan {
    at: S3Location,
    keys: Source,
    /// Taken on with these keys.
    role: Option<Role>,
    /// As it was given; none: to be learnt.
    region: Option<String>,
    virtual_host: bool,
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3({}/{}/{})", self.plan.at.host, self.plan.at.bucket, self.plan.at.prefix)
    }
}

impl S3 {
    pub(super) fn open(
        at: &S3Location,
        spec: &ResticSpec,
        environment: &Environment,
        timeout: Duration,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Self, StoreError> {
        let plan = Plan::of(at, spec, environment)?;
        let limits = Limits::within(timeout);
        let client = ClientSpec::of(spec, environment, at.plain_http, limits)?;
        plan.check(&plan.first_region())?;
        Ok(Self { plan, client, limits, telemetry: telemetry.clone(), ready: OnceCell::new() })
    }

    async fn ready(&self) -> Result<&Ready, StoreError> {
        self.ready
            .get_or_try_init(async || {
                let client = self.client.client().await?;
                let keys = self.keys().await?;
                let (pages, hidden) = (Arc::<Pages>::default(), hidden(&keys));
                let telemetry = self.telemetry.clone();
                let wire = Wire::new(client, "s3", telemetry, pages.clone(), hidden, &advice::S3);
                let region = self.plan.first_region();
                let objects = self.plan.build(&region, &keys, &wire, &pages, self.limits)?;
                Ok(Ready { wire, pages, keys, open: RwLock::new(Open { region, objects }) })
            })
            .await
    }

    async fn keys(&self) -> Result<Keys, StoreError> {
        let asker = async || self.client.for_credentials().client().await;
        let telemetry = self.telemetry.clone();
        let keys = match &self.plan.keys {
            Source::Keys(keys) => keys.clone(),
            Source::Elsewhere(elsewhere) => {
                let client = asker().await?;
                let wire = |tried| {
                    Wire::to_credentials(client, "s3", telemetry.clone(), &advice::S3, tried)
                };
                elsewhere.keys(wire).await?
            }
        };
        match &self.plan.role {
            Some(role) => Ok(role.clone().with(keys, asker().await?, telemetry)),
            None => Ok(keys),
        }
    }

    async fn current(&self) -> Result<Open, StoreError> {
        let ready = self.ready().await?;
        Ok(ready.open.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// After a failure: the store to try once more, when requests now go to another region than
    /// the failed one did.
    fn moved(&self, failed: &Open) -> Option<Arc<Objects>> {
        let ready = self.ready.get()?;
        let mut open = ready.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = ready.wire.take_region()
            && self.plan.region.is_none()
            && region != open.region
            && let Ok(objects) =
                self.plan.build(&region, &ready.keys, &ready.wire, &ready.pages, self.limits)
        {
            *open = Open { region, objects };
        }
        (open.region != failed.region).then(|| open.objects.clone())
    }
}

#[async_trait]
impl ReadStore for S3 {
    async fn list(&self, folder: &str) -> Result<Listing, StoreError> {
        let open = self.current().await?;
        let result = open.objects.list(folder).await;
        match result.is_err().then(|| self.moved(&open)).flatten() {
            Some(objects) => objects.list(folder).await,
            None => result,
        }
    }

    async fn stat(&self, path: &str) -> Result<Entry, StoreError> {
        let open = self.current().await?;
        let result = open.objects.stat(path).await;
        match result.is_err().then(|| self.moved(&open)).flatten() {
            Some(objects) => objects.stat(path).await,
            None => result,
        }
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, StoreError> {
        let open = self.current().await?;
        let result = open.objects.read(path, bytes_max).await;
        match result.is_err().then(|| self.moved(&open)).flatten() {
            Some(objects) => objects.read(path, bytes_max).await,
            None => result,
        }
    }

    async fn folders(&self, folder: &str) -> Result<Option<Vec<String>>, StoreError> {
        let open = self.current().await?;
        let result = open.objects.folders(folder).await;
        match result.is_err().then(|| self.moved(&open)).flatten() {
            Some(objects) => objects.folders(folder).await,
            None => result,
        }
    }
}

impl Plan {
    fn of(
        at: &S3Location,
        spec: &ResticSpec,
        environment: &Environment,
    ) -> Result<Self, StoreError> {
        check_options(spec, "s3.", &OPTIONS)?;
        let option = |name: &str| spec.options.get(name).map(String::as_str);
        let anonymous = match option("s3.unsafe-anonymous-auth") {
            None => false,
            Some(value) => go_bool(value).ok_or_else(|| {
                bad_option("s3.unsafe-anonymous-auth", "it is neither true nor false")
            })?,
        };
        let virtual_host = match option("s3.bucket-lookup") {
            None | Some("auto" | "") => is_virtual_host(at),
            Some("dns") => true,
            Some("path") => false,
            Some(_) => {
                return Err(bad_option("s3.bucket-lookup", "it is none of auto, dns, path"));
            }
        };
        let region = match option("s3.region") {
            Some(region) if !region.is_empty() => Some(region.to_owned()),
            _ => environment
                .text("AWS_DEFAULT_REGION")
                .map_err(secret_failed)?
                .map(|region| region.to_string()),
        };
        let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if let Some(region) = region.as_deref().filter(|region| !region.chars().all(named)) {
            let cause = format!("{region:?} is no region");
            return Err(StoreError::new(CONFIG, "read the region", cause, ""));
        }
        let keys = match anonymous {
            true => Source::Keys(Keys::Anonymous),
            false => Source::of(environment)?,
        };
        let role = Role::of(environment, region.as_deref())?;
        Ok(Self { at: at.clone(), keys, role, region, virtual_host })
    }

    fn build(
        &self,
        region: &str,
        keys: &Keys,
        wire: &Wire,
        pages: &Arc<Pages>,
        limits: Limits,
    ) -> Result<Arc<Objects>, StoreError> {
        let shown = Location::S3(self.at.clone()).to_string();
        self.check(region)?;
        let mut builder = AmazonS3Builder::new()
            .with_http_connector(wire.clone())
            .with_retry(limits.retries())
            .with_allow_http(self.at.plain_http)
            .with_endpoint(self.endpoint(region))
            .with_virtual_hosted_style_request(self.virtual_host)
            .with_bucket_name(&self.at.bucket)
            .with_region(region);
        builder = match keys {
            Keys::Anonymous => builder.with_skip_signature(true),
            Keys::Static { id, secret, token } => {
                let builder =
                    builder.with_access_key_id(id.as_str()).with_secret_access_key(secret.as_str());
                match token {
                    Some(token) => builder.with_token(token.as_str()),
                    None => builder,
                }
            }
            Keys::Asked(provider) => builder.with_credentials(provider.clone()),
        };
        let store = builder.build().map_err(|error| {
            StoreError::new(CONFIG, format!("open {shown}"), explain(&error).cause, "")
        })?;
        let (prefix, pages) = (&self.at.prefix, pages.clone());
        let store = Arc::new(store);
        Ok(Arc::new(Objects::new(store, prefix, shown, limits.verb, pages, &advice::S3)))
    }

    fn first_region(&self) -> String {
        let named = self.region.as_deref().or_else(|| region_of_host(&self.at.host));
        named.unwrap_or(REGION).to_owned()
    }

    /// `object_store` and `reqwest` panic on addresses that they cannot parse.
    fn check(&self, region: &str) -> Result<(), StoreError> {
        let endpoint = self.endpoint(region);
        if endpoint.parse::<hyper::Uri>().is_ok() && url::Url::parse(&endpoint).is_ok() {
            return Ok(());
        }
        Err(StoreError::new(
            CONFIG,
            format!("open {}", Location::S3(self.at.clone())),
            "the bucket's name cannot be a part of a host name",
            "Set the option s3.bucket-lookup=path.",
        ))
    }

    fn endpoint(&self, region: &str) -> String {
        let scheme = if self.at.plain_http { "http" } else { "https" };
        // The global address redirects to other regions instead of answering for them.
        let host = match self.at.host.as_str() {
            "s3.amazonaws.com" if region != REGION => format!("s3.{region}.amazonaws.com"),
            host => host.to_owned(),
        };
        if self.virtual_host {
            format!("{scheme}://{}.{host}", self.at.bucket)
        } else {
            format!("{scheme}://{host}")
        }
    }
}

/// What is never shown.
pub(super) fn hidden(keys: &Keys) -> Vec<Secret> {
    match keys {
        Keys::Anonymous | Keys::Asked(_) => Vec::new(),
        Keys::Static { secret, token, .. } => [Some(secret), token.as_ref()]
            .into_iter()
            .flatten()
            .map(|value| Secret::new(value.as_bytes()))
            .collect(),
    }
}

fn bad_option(name: &str, cause: &str) -> StoreError {
    StoreError::new(CONFIG, format!("read the option {name}"), cause, "")
}

/// Go's `strconv.ParseBool`.
fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// minio-go `pkg/s3utils` IsVirtualHostSupported, restic's `auto`: a certificate for `*.host`
/// does not hold for a bucket with dots.
fn is_virtual_host(at: &S3Location) -> bool {
    let host = at.host.split(':').next().unwrap_or_default();
    let amazon = host.starts_with("s3")
        && (host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn"));
    let others = host == "storage.googleapis.com" || host.ends_with("aliyuncs.com");
    (amazon || others) && (at.plain_http || !at.bucket.contains('.'))
}

/// The region in an Amazon host name, `s3.REGION.amazonaws.com` and its older forms.
fn region_of_host(host: &str) -> Option<&str> {
    let host = host.split(':').next()?;
    let inner = host.strip_suffix(".amazonaws.com").or(host.strip_suffix(".amazonaws.com.cn"))?;
    let inner = inner.strip_prefix("s3-fips.").or(inner.strip_prefix("s3"))?;
    let region = inner.trim_start_matches(['.', '-']);
    let region = region.strip_prefix("dualstack.").unwrap_or(region);
    (region.contains('-') && !region.contains('.') && region != "external-1").then_some(region)
}

#[cfg(test)]
mod tests;
