//! The HTTP client below `object_store`: certificates, time limits, one count for each request,
//! and a look at every answer before `object_store` has it.

#![allow(clippy::disallowed_methods, reason = "this module measures how long requests take")]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::fault::{self, Fault};
use super::list_page;
use super::object::Pages;
use super::{StoreError, StoreErrorKind};
use crate::scan::ErrorClass;
use crate::secret::{Environment, Secret, SecretError, read_file};
use crate::target::ResticSpec;
use crate::telemetry::{Operation, Telemetry};

/// A page of 1,000 keys has at most 1,000 × (1,024 bytes of key, escaped, and some 400 around).
const LIST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What is read of an error's body.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// One request and its two retries.
const RETRIES: usize = 2;

/// The time limits of requests, all within a scan's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Of a connection.
    connect: Duration,
    /// Of a silence; a listing that keeps coming may take longer.
    silence: Duration,
    /// Of one verb, with pages and retries.
    pub verb: Duration,
}

impl Limits {
    /// Three silent requests and the pauses between them end before the scan does.
    pub(super) fn within(scan: Duration) -> Self {
        Self { connect: scan / 6, silence: scan / 4, verb: scan - scan / 8 }
    }

    pub(super) fn retries(self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: (self.verb / 64).min(Duration::from_millis(100)),
                max_backoff: (self.verb / 16).min(Duration::from_secs(1)),
                base: 2.,
            },
            max_retries: RETRIES,
            retry_timeout: self.verb / 2,
        }
    }
}

/// How a target wants to be talked to; nothing is read yet.
#[derive(Debug)]
pub(super) struct ClientSpec {
    plain_http: bool,
    limits: Limits,
    user_agent: String,
    authorities: Vec<PathBuf>,
    certificate: Option<PathBuf>,
    insecure_tls: bool,
}

impl ClientSpec {
    pub(super) fn of(
        spec: &ResticSpec,
        environment: &Environment,
        plain_http: bool,
        limits: Limits,
    ) -> Result<Self, StoreError> {
        let variable = |name: &str| environment.text(name).map_err(secret);
        // As in restic a name in the options replaces the variable, a list with commas.
        let mut authorities = spec.cacert.clone();
        if authorities.is_empty()
            && let Some(list) = variable("RESTIC_CACERT")?
        {
            authorities.extend(list.split(',').filter(|path| !path.is_empty()).map(Into::into));
        }
        let user_agent = match variable("RESTIC_HTTP_USER_AGENT")? {
            Some(named) => named.to_string(),
            None => concat!("lock_exporter/", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let certificate = variable("RESTIC_TLS_CLIENT_CERT")?.map(|path| path.as_str().into());
        let insecure_tls = spec.insecure_tls;
        Ok(Self { plain_http, limits, user_agent, authorities, certificate, insecure_tls })
    }

    /// Reads the certificates and makes the client, off the async workers: those of the system
    /// alone take milliseconds. Proxies are those of the process's own environment, as for every
    /// other program.
    pub(super) async fn build(&self) -> Result<reqwest::Client, StoreError> {
        // Without a provider the client panics; whoever was first has decided.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(&self.user_agent)
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .https_only(!self.plain_http)
            .connect_timeout(self.limits.connect)
            .read_timeout(self.limits.silence);
        let authorities = self.authorities().await?;
        if self.plain_http {
            // Else it could not be made on a machine without any certificates.
            builder = builder.tls_certs_only(authorities);
        } else if !authorities.is_empty() {
            builder = builder.tls_certs_merge(authorities);
        }
        if self.insecure_tls {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if let Some(path) = &self.certificate {
            builder = builder.identity(identity(path).await?);
        }
        let doing = "make an HTTP client";
        match tokio::task::spawn_blocking(move || builder.build()).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(StoreError::new(
                CONFIG,
                doing,
                fault::explain(&error).cause,
                "Install the system's certificates (ca-certificates), or name some by cacert.",
            )),
            Err(_) => {
                let kind = StoreErrorKind::Failed(ErrorClass::Internal);
                Err(StoreError::new(kind, doing, "it was given up", ""))
            }
        }
    }

    async fn authorities(&self) -> Result<Vec<reqwest::Certificate>, StoreError> {
        let mut found = Vec::new();
        for path in &self.authorities {
            let pem = read_file("cacert", path).await.map_err(secret)?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).unwrap_or_default();
            if certificates.is_empty() {
                let doing = format!("read cacert {}", path.display());
                return Err(StoreError::new(CONFIG, doing, "it holds no certificate in PEM", ""));
            }
            found.extend(certificates);
        }
        Ok(found)
    }
}

async fn identity(path: &Path) -> Result<reqwest::Identity, StoreError> {
    let pem = read_file("client certificate", path).await.map_err(secret)?;
    reqwest::Identity::from_pem(&pem).map_err(|_| {
        let doing = format!("read client certificate {}", path.display());
        let cause = "it does not hold a certificate and its key, both in PEM";
        let advice = "Put both into the one file that RESTIC_TLS_CLIENT_CERT names.";
        StoreError::new(CONFIG, doing, cause, advice)
    })
}

const CONFIG: StoreErrorKind = StoreErrorKind::Failed(ErrorClass::Config);

/// A secret that cannot be read, as a failure of the store.
pub(super) fn secret(error: SecretError) -> StoreError {
    StoreError::new(CONFIG, error.doing, error.cause, &error.advice)
}

/// What `object_store` sends its requests through.
#[derive(Clone)]
pub(super) struct Wire(Arc<Shared>);

struct Shared {
    client: reqwest::Client,
    backend: &'static str,
    telemetry: Arc<Telemetry>,
    pages: Arc<Pages>,
    /// Where the server said that the bucket is.
    region: Mutex<Option<String>>,
    /// Never shown, whatever a server sends back.
    hidden: Vec<Secret>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.0.backend)
    }
}

impl Wire {
    pub(super) fn new(
        client: reqwest::Client,
        backend: &'static str,
        telemetry: Arc<Telemetry>,
        pages: Arc<Pages>,
        hidden: Vec<Secret>,
    ) -> Self {
        let region = Mutex::default();
        Self(Arc::new(Shared { client, backend, telemetry, pages, region, hidden }))
    }

    /// The bucket's region by the last refusal that named one.
    pub(super) fn take_region(&self) -> Option<String> {
        self.0.region.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn refuse(&self, response: HttpResponse) -> HttpError {
        let status = response.status().as_u16();
        let header = response.headers().get("x-amz-bucket-region");
        let header = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
        // A body that does not come whole still has its status.
        let body = collect(response.into_body(), REFUSAL_BYTES_MAX).await.unwrap_or_default();
        let refusal = fault::refusal(status, header.as_deref(), &body, &self.0.hidden);
        if refusal.region.is_some() {
            let mut region = self.0.region.lock().unwrap_or_else(PoisonError::into_inner);
            *region = refusal.region;
        }
        refusal.fault.into_http(refusal.again)
    }
}

impl HttpConnector for Wire {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let lists = request.uri().query().is_some_and(|query| query.contains("list-type=2"));
        let operation = match request.method().as_str() {
            "HEAD" => Operation::Stat,
            _ if lists => Operation::List,
            _ => Operation::Get,
        };
        let mut count = Count { wire: self, operation, begun: Instant::now(), failed: true };
        let response = self.0.client.call(request).await?;
        if !response.status().is_success() {
            return Err(self.refuse(response).await);
        }
        if operation != Operation::List {
            count.failed = false;
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = collect(body, LIST_BYTES_MAX).await?;
        let mut page = list_page::read(body).map_err(|fault| fault.into_http(false))?;
        self.0.pages.add(&mut page).map_err(|fault| fault.into_http(false))?;
        count.failed = false;
        Ok(HttpResponse::from_parts(parts, page.body.into()))
    }
}

async fn collect(body: HttpResponseBody, bytes_max: usize) -> Result<Bytes, HttpError> {
    let mut parts = body.bytes_stream();
    let mut body = BytesMut::new();
    while let Some(part) = parts.next().await {
        let part = part?;
        if body.len() + part.len() > bytes_max {
            let cause = format!("an answer of more than {bytes_max} bytes");
            return Err(Fault::new(ErrorClass::Incomplete, cause, "").into_http(false));
        }
        body.extend_from_slice(&part);
    }
    Ok(body.freeze())
}

/// Counts a request when it ends, given up or not.
struct Count<'a> {
    wire: &'a Wire,
    operation: Operation,
    begun: Instant,
    failed: bool,
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let Shared { telemetry, backend, .. } = &*self.wire.0;
        telemetry.store_request(backend, self.operation, self.begun.elapsed(), self.failed);
    }
}
