//! The wire below `object_store`: time limits, one count for each request, and a look at every
//! answer before `object_store` has it. What a client trusts is not known here.

#![allow(clippy::disallowed_methods, reason = "this module measures how long requests take")]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use hyper::header::{self, HeaderMap, HeaderName};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};

use super::advice::Advice;
use super::fault::{self, Fault, Hints};
use super::list_page::{self, Proof};
use super::object::Pages;
use super::{StoreErrorKind, retry_after};
use crate::scan::ErrorClass;
use crate::secret::Secret;
use crate::telemetry::{Operation, Telemetry};

/// A page of 1,000 keys has at most 1,000 × (1,024 bytes of key, escaped, and some 400 around).
const LIST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What is read of an error's body.
pub(super) const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// Tries after the first.
pub(super) const RETRIES: usize = 2;

/// The time limits of requests, all within a scan's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Of a connection.
    pub connect: Duration,
    /// Of a silence; a listing that keeps coming may take longer.
    pub silence: Duration,
    /// Of one verb, with pages and retries.
    pub verb: Duration,
}

impl Limits {
    /// A silent server is asked twice before half of the scan's time is over; one that refuses at
    /// once three times.
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

/// What `object_store` sends its requests through.
#[derive(Clone)]
pub(super) struct Wire(Arc<Shared>);

struct Shared {
    client: Arc<reqwest::Client>,
    backend: &'static str,
    telemetry: Arc<Telemetry>,
    pages: Arc<Pages>,
    /// Where the server said that the bucket is.
    region: Mutex<Option<String>>,
    /// Never shown, whatever a server sends back.
    hidden: Vec<Secret>,
    advice: &'static Advice,
    role: Role,
}

/// What a wire leads to.
#[derive(Clone, PartialEq, Eq)]
enum Role {
    Store,
    /// Services that give out credentials; their answers are never shown. The text says why they
    /// are asked, where nothing but the lack of all else led there.
    Credentials(String),
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.0.backend)
    }
}

impl Wire {
    pub(super) fn new(
        client: Arc<reqwest::Client>,
        backend: &'static str,
        telemetry: Arc<Telemetry>,
        pages: Arc<Pages>,
        hidden: Vec<Secret>,
        advice: &'static Advice,
    ) -> Self {
        let (region, role) = (Mutex::default(), Role::Store);
        Self(Arc::new(Shared { client, backend, telemetry, pages, region, hidden, advice, role }))
    }

    /// To the services that give out credentials for a backend.
    pub(super) fn to_credentials(
        client: Arc<reqwest::Client>,
        backend: &'static str,
        telemetry: Arc<Telemetry>,
        advice: &'static Advice,
        tried: String,
    ) -> Self {
        let (pages, region, hidden) = Default::default();
        let role = Role::Credentials(tried);
        Self(Arc::new(Shared { client, backend, telemetry, pages, region, hidden, advice, role }))
    }

    /// The bucket's region by the last refusal that named one.
    pub(super) fn take_region(&self) -> Option<String> {
        self.0.region.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A service of credentials that is not there, or has none for us. Where nothing but the lack
    /// of all else led to it, that lack is what a person has to know.
    fn no_credentials(&self, fault: Fault, host: &str, again: bool) -> HttpError {
        let tried = match &self.0.role {
            Role::Credentials(tried) => tried.as_str(),
            Role::Store => "",
        };
        let cause = format!("{host}, which gives out credentials: {}", fault.cause);
        let (kind, cause) = match tried {
            "" => (fault.kind, cause),
            tried => (StoreErrorKind::Failed(ErrorClass::Config), format!("{tried}; {cause}")),
        };
        let advice = self.0.advice.auth;
        Fault::of(kind, cause, advice).into_http(again && tried.is_empty())
    }

    async fn refuse(&self, response: HttpResponse, operation: Operation) -> HttpError {
        let status = response.status().as_u16();
        let field = |name: &str| {
            let value = response.headers().get(name).and_then(|value| value.to_str().ok());
            value.map(str::to_owned)
        };
        let (region, code) = (field("x-amz-bucket-region"), field("x-ms-error-code"));
        let wish = retry_after::wait(response.headers());
        // A body that does not come whole still has its status.
        let body = collect(response.into_body(), REFUSAL_BYTES_MAX).await.unwrap_or_default();
        let hints = Hints { region: region.as_deref(), code: code.as_deref() };
        let mut refusal = fault::refusal(status, hints, &body, &self.0.hidden);
        if refusal.container {
            refusal.fault.advice = self.0.advice.container.into();
        }
        let wait = wish.filter(|_| refusal.again);
        refusal.fault = retry_after::told(self.0.advice.complete(refusal.fault), wait);
        if refusal.region.is_some() {
            let mut region = self.0.region.lock().unwrap_or_else(PoisonError::into_inner);
            *region = refusal.region;
        }
        if operation == Operation::List
            && refusal.fault.kind == StoreErrorKind::NotFound
            && !refusal.coded
        {
            // S3 names what is missing. This is a proxy, or something else altogether.
            let fault = Fault::no_service(refusal.fault.cause);
            return self.0.advice.complete(fault).into_http(false);
        }
        // Who was told when to come back does not come back before.
        refusal.fault.into_http(refusal.again && wait.is_none())
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
        let lists = request.uri().query().is_some_and(|query| {
            query.split('&').any(|part| matches!(part, "list-type=2" | "comp=list"))
        });
        let operation = match request.method().as_str() {
            _ if self.0.role != Role::Store => Operation::Credentials,
            "HEAD" => Operation::Stat,
            _ if lists => Operation::List,
            _ => Operation::Get,
        };
        let Shared { telemetry, backend, .. } = &*self.0;
        let mut count = Count::begin(telemetry, backend, operation);
        let host = request.uri().host().unwrap_or_default().to_owned();
        let response = HttpService::call(&*self.0.client, request).await;
        let response = match response {
            Err(error) if operation == Operation::Credentials => {
                return Err(self.no_credentials(fault::explain(&error), &host, true));
            }
            response => response?,
        };
        if !response.status().is_success() && operation == Operation::Credentials {
            let status = response.status().as_u16();
            let fault = Fault::new(ErrorClass::Auth, format!("HTTP status {status}"), "");
            return Err(self.no_credentials(fault, &host, status >= 500));
        }
        if !response.status().is_success() {
            return Err(self.refuse(response, operation).await);
        }
        if operation != Operation::List {
            if operation != Operation::Credentials && !is_the_stores(response.headers()) {
                let fault = Fault::no_service("an answer with neither ETag nor the store's marks");
                return Err(self.0.advice.complete(fault).into_http(false));
            }
            count.failed = false;
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let body = collect(body, LIST_BYTES_MAX).await?;
        let proof = if *backend == "s3" { Proof::Said } else { Proof::NoToken };
        let mut page = list_page::read(body, proof).map_err(|fault| fault.into_http(false))?;
        self.0.pages.add(&mut page).map_err(|fault| fault.into_http(false))?;
        count.failed = false;
        Ok(HttpResponse::from_parts(parts, page.body.into()))
    }
}

/// Whether an answer to a request for an object is the store's own: what a proxy says in its place
/// has none of these.
fn is_the_stores(headers: &HeaderMap) -> bool {
    let own = |name: &HeaderName| {
        ["x-amz-", "x-ms-", "x-goog-"].iter().any(|start| name.as_str().starts_with(start))
    };
    headers.contains_key(header::ETAG) || headers.keys().any(own)
}

pub(super) async fn collect(body: HttpResponseBody, bytes_max: usize) -> Result<Bytes, HttpError> {
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
pub(super) struct Count<'a> {
    telemetry: &'a Telemetry,
    backend: &'static str,
    operation: Operation,
    begun: Instant,
    /// True until the answer is known to be good.
    pub failed: bool,
}

impl<'a> Count<'a> {
    /// A request that begins now.
    pub(super) fn begin(
        telemetry: &'a Telemetry,
        backend: &'static str,
        operation: Operation,
    ) -> Self {
        Self { telemetry, backend, operation, begun: Instant::now(), failed: true }
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let Self { telemetry, backend, operation, begun, failed } = self;
        telemetry.store_request(backend, *operation, begun.elapsed(), *failed);
    }
}
