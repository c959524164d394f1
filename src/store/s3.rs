//! S3 and its like: restic's variables and options for it, as a store that only reads.
//!
//! Credentials are the ones given. Profiles and the metadata services of clouds are not asked: a
//! target without credentials says so at once instead of waiting for a service that is not there.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use zeroize::Zeroizing;

use super::fault::explain;
use super::http::{self, Limits, Wire};
use super::object::{Objects, Pages};
use super::{Entry, Listing, ReadStore, StoreError, StoreErrorKind};
use crate::location::{Location, S3Location};
use crate::scan::ErrorClass;
use crate::secret::{Environment, Secret};
use crate::target::ResticSpec;
use crate::telemetry::Telemetry;

const CONFIG: StoreErrorKind = StoreErrorKind::Failed(ErrorClass::Config);

/// Where requests go to when nothing else is said; also what Amazon takes for "anywhere".
const REGION: &str = "us-east-1";

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
    wire: Wire,
    pages: Arc<Pages>,
    limits: Limits,
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
    keys: Keys,
    /// As it was given; none: to be learnt.
    region: Option<String>,
    virtual_host: bool,
}

enum Keys {
    Anonymous,
    Static { id: Zeroizing<String>, secret: Zeroizing<String>, token: Option<Zeroizing<String>> },
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
        let client = http::client(spec, environment, at.plain_http, limits)?;
        let pages = Arc::<Pages>::default();
        let wire = Wire::new(client, "s3", telemetry.clone(), pages.clone(), plan.hidden());
        let region = plan.region.clone().or_else(|| region_of_host(&at.host).map(str::to_owned));
        let region = region.unwrap_or_else(|| REGION.into());
        let objects = plan.build(&region, &wire, &pages, limits)?;
        let open = RwLock::new(Open { region, objects });
        Ok(Self { plan, wire, pages, limits, open })
    }

    fn current(&self) -> Open {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// After a refusal: whether requests now go to another region than the refused one did.
    fn has_moved(&self, refused: &Open) -> bool {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = self.wire.take_region()
            && self.plan.region.is_none()
            && region != open.region
            && let Ok(objects) = self.plan.build(&region, &self.wire, &self.pages, self.limits)
        {
            *open = Open { region, objects };
        }
        open.region != refused.region
    }
}

#[async_trait]
impl ReadStore for S3 {
    async fn list(&self, folder: &str) -> Result<Listing, StoreError> {
        let open = self.current();
        match open.objects.list(folder).await {
            Err(_) if self.has_moved(&open) => self.current().objects.list(folder).await,
            result => result,
        }
    }

    async fn stat(&self, path: &str) -> Result<Entry, StoreError> {
        let open = self.current();
        match open.objects.stat(path).await {
            Err(_) if self.has_moved(&open) => self.current().objects.stat(path).await,
            result => result,
        }
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, StoreError> {
        let open = self.current();
        match open.objects.read(path, bytes_max).await {
            Err(_) if self.has_moved(&open) => self.current().objects.read(path, bytes_max).await,
            result => result,
        }
    }

    async fn folders(&self, folder: &str) -> Result<Option<Vec<String>>, StoreError> {
        let open = self.current();
        match open.objects.folders(folder).await {
            Err(_) if self.has_moved(&open) => self.current().objects.folders(folder).await,
            result => result,
        }
    }
}

impl Plan {
    fn of(
        at: &S3Location,
        spec: &ResticSpec,
        environment: &Environment,
    ) -> Result<Self, StoreError> {
        let ours = spec.options.keys().filter(|name| name.starts_with("s3."));
        if let Some(unknown) = ours.into_iter().find(|name| !OPTIONS.contains(&name.as_str())) {
            return Err(bad_option(unknown, "restic has no such option"));
        }
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
                .map_err(http::secret)?
                .map(|region| region.to_string()),
        };
        let keys = if anonymous { Keys::Anonymous } else { Keys::of(environment)? };
        Ok(Self { at: at.clone(), keys, region, virtual_host })
    }

    fn hidden(&self) -> Vec<Secret> {
        match &self.keys {
            Keys::Anonymous => Vec::new(),
            Keys::Static { secret, token, .. } => [Some(secret), token.as_ref()]
                .into_iter()
                .flatten()
                .map(|value| Secret::new(value.as_bytes()))
                .collect(),
        }
    }

    fn build(
        &self,
        region: &str,
        wire: &Wire,
        pages: &Arc<Pages>,
        limits: Limits,
    ) -> Result<Arc<Objects>, StoreError> {
        let shown = Location::S3(self.at.clone()).to_string();
        let mut builder = AmazonS3Builder::new()
            .with_http_connector(wire.clone())
            .with_retry(limits.retries())
            .with_allow_http(self.at.plain_http)
            .with_endpoint(self.endpoint(region))
            .with_virtual_hosted_style_request(self.virtual_host)
            .with_bucket_name(&self.at.bucket)
            .with_region(region);
        builder = match &self.keys {
            Keys::Anonymous => builder.with_skip_signature(true),
            Keys::Static { id, secret, token } => {
                let builder =
                    builder.with_access_key_id(id.as_str()).with_secret_access_key(secret.as_str());
                match token {
                    Some(token) => builder.with_token(token.as_str()),
                    None => builder,
                }
            }
        };
        let store = builder.build().map_err(|error| {
            StoreError::new(CONFIG, format!("open {shown}"), explain(&error).cause, "")
        })?;
        let objects =
            Objects::new(Arc::new(store), &self.at.prefix, shown, limits.verb, pages.clone());
        Ok(Arc::new(objects))
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

impl Keys {
    /// minio-go `pkg/credentials` EnvAWS and EnvMinio, in the order restic asks them.
    fn of(environment: &Environment) -> Result<Self, StoreError> {
        let first = |names: [&str; 2]| -> Result<Option<Zeroizing<String>>, StoreError> {
            for name in names {
                if let Some(value) = environment.text(name).map_err(http::secret)? {
                    return Ok(Some(value));
                }
            }
            Ok(None)
        };
        let mut id = first(["AWS_ACCESS_KEY_ID", "AWS_ACCESS_KEY"])?;
        let mut secret = first(["AWS_SECRET_ACCESS_KEY", "AWS_SECRET_KEY"])?;
        let token = environment.text("AWS_SESSION_TOKEN").map_err(http::secret)?;
        if id.is_none() && secret.is_none() {
            id = first(["MINIO_ROOT_USER", "MINIO_ACCESS_KEY"])?;
            secret = first(["MINIO_ROOT_PASSWORD", "MINIO_SECRET_KEY"])?;
        }
        let cause = match (id, secret) {
            (Some(id), Some(secret)) => return Ok(Keys::Static { id, secret, token }),
            (Some(_), None) => "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not",
            (None, Some(_)) => "AWS_SECRET_ACCESS_KEY is set, AWS_ACCESS_KEY_ID is not",
            (None, None) => "neither AWS_ACCESS_KEY_ID nor AWS_SECRET_ACCESS_KEY is set",
        };
        Err(StoreError::new(
            CONFIG,
            "find the S3 credentials",
            cause,
            "Set both in env, env_file, env_dir or the exporter's own environment (profiles and \
             instance roles are not supported yet), or for a public bucket the option \
             s3.unsafe-anonymous-auth=true.",
        ))
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
mod tests {
    use super::*;

    fn at(text: &str) -> S3Location {
        match Location::parse(text) {
            Ok(Location::S3(at)) => at,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_clouds_that_restic_knows_get_the_bucket_into_the_host() {
        for (text, virtual_host) in [
            ("s3:s3.amazonaws.com/bucket", true),
            ("s3:s3.eu-central-1.amazonaws.com/bucket", true),
            ("s3:s3.cn-north-1.amazonaws.com.cn/bucket", true),
            ("s3:s3.amazonaws.com/buc.ket", false),
            ("s3:http://s3.amazonaws.com/buc.ket", true),
            ("s3:storage.googleapis.com/bucket", true),
            ("s3:oss-eu-central-1.aliyuncs.com/bucket", true),
            ("s3:s3.example.com:9000/bucket", false),
            ("s3:s3.amazonaws.com.example.com/bucket", false),
        ] {
            assert_eq!(is_virtual_host(&at(text)), virtual_host, "{text}");
        }
    }

    #[test]
    fn the_region_is_read_from_amazon_hosts_only() {
        for (host, region) in [
            ("s3.eu-central-1.amazonaws.com", Some("eu-central-1")),
            ("s3-us-west-2.amazonaws.com", Some("us-west-2")),
            ("s3.dualstack.eu-west-1.amazonaws.com:443", Some("eu-west-1")),
            ("s3-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("s3.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("s3.amazonaws.com", None),
            ("s3-external-1.amazonaws.com", None),
            ("s3.eu-central-1.example.com", None),
        ] {
            assert_eq!(region_of_host(host), region, "{host}");
        }
    }

    #[test]
    fn requests_go_to_the_address_that_restic_would_use() {
        let plan = |text: &str, region: Option<&str>| {
            let (at, region) = (at(text), region.map(str::to_owned));
            let virtual_host = is_virtual_host(&at);
            Plan { at, keys: Keys::Anonymous, region, virtual_host }
        };
        for (text, region, endpoint) in [
            ("s3:s3.amazonaws.com/bucket", REGION, "https://bucket.s3.amazonaws.com"),
            ("s3:s3.amazonaws.com/buc.ket", "eu-west-1", "https://s3.eu-west-1.amazonaws.com"),
            ("s3:http://127.0.0.1:9000/bucket", "eu-west-1", "http://127.0.0.1:9000"),
        ] {
            assert_eq!(plan(text, None).endpoint(region), endpoint);
        }
    }

    #[test]
    fn missing_keys_are_told_by_name_and_never_shown() {
        let of = |variables: &[(&str, &str)]| {
            Keys::of(&Environment::only(
                variables.iter().map(|(name, value)| (name.to_string(), Secret::new(*value))),
            ))
        };
        let id = ("AWS_ACCESS_KEY_ID", "AKIA");
        for (variables, cause) in [
            (vec![], "neither"),
            (vec![id], "AWS_SECRET_ACCESS_KEY is not"),
            (vec![("AWS_SECRET_KEY", "planted")], "AWS_ACCESS_KEY_ID is not"),
            (vec![id, ("AWS_SECRET_ACCESS_KEY", "planted\n")], "line break"),
        ] {
            let error = of(&variables).err().expect("is incomplete");
            assert_eq!(error.kind, CONFIG);
            assert!(error.cause.contains(cause), "{error}");
            assert!(!format!("{error:?}").contains("planted"), "{error:?}");
        }
        assert!(of(&[("AWS_ACCESS_KEY", "a"), ("AWS_SECRET_KEY", "b")]).is_ok());
        assert!(of(&[("MINIO_ROOT_USER", "a"), ("MINIO_ROOT_PASSWORD", "b")]).is_ok());
    }
}
