//! restic's REST protocol, as far as reading needs it (restic `doc/REST_backend.rst`), over TCP,
//! TLS, a Unix socket, or whatever else carries HTTP.
//!
//! The protocol knows names and sizes, but no times and no folders of folders. A listing that was
//! not found, came from a cache or is a web page is never taken for an empty one.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use hyper::header::{
    ACCEPT, AGE, AUTHORIZATION, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap,
    HeaderValue,
};
use hyper::{Method, Request, Uri};
use object_store::client::{HttpRequestBody, HttpResponse, HttpService};
use tokio::sync::OnceCell;
use url::Url;
use zeroize::Zeroizing;

use super::advice::{self, Advice};
use super::client::{ClientSpec, secret_failed};
use super::fault::{Fault, explain, is_html};
use super::http::{Count, Limits, RETRIES, collect};
use super::{
    ENTRIES_MAX, Entry, EntryKind, Listing, ReadStore, StoreError, StoreErrorKind, check_options,
    doing, is_inside, retry_after,
};
use crate::location::{RestLocation, RestPlace};
use crate::scan::ErrorClass;
use crate::secret::Environment;
use crate::target::ResticSpec;
use crate::telemetry::{Operation, Telemetry};

pub mod answer;

use answer::{Named, refusal};

/// rest-server compares the whole header; anything else gets the first version, and from rclone a
/// refusal.
const V2: &str = "application/vnd.x.restic.rest.v2";
const V1: &str = "application/vnd.x.restic.rest.v1";
/// The folders that the protocol has. Others are answered by an error, like a wrong path.
const TYPES: [&str; 5] = ["data", "index", "keys", "locks", "snapshots"];
/// 200,000 names of 64 digits in the second version have 18 MB.
const LIST_BYTES_MAX: usize = 32 * 1024 * 1024;
/// How often a listing is asked for in the second version before its 404 is believed: rest-server
/// gives one when a file is removed while it lists (rest-server `repo/repo.go` listBlobsV2).
const LOOKS: usize = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);
/// Sizes asked for at the same time, when a listing has none.
const STATS_AT_ONCE: usize = 8;

/// What HTTP requests go through.
#[async_trait]
pub(super) trait Carrier: Send + Sync {
    /// The open connection, or a new one.
    ///
    /// # Errors
    /// [`StoreError`], ready to be shown, when it cannot be made.
    async fn service(&self) -> Result<Arc<dyn HttpService>, Fault>;

    /// What failed, in the words of whoever knows better than HTTP does.
    async fn explain(&self, fault: Fault) -> Fault {
        fault
    }
}

/// The store.
pub(super) struct Rest {
    carrier: Box<dyn Carrier>,
    /// Ends with a slash.
    base: Url,
    authorization: Option<HeaderValue>,
    backend: &'static str,
    /// The repository's location, for errors.
    shown: String,
    /// Whether the server also speaks the first version.
    speaks_v1: bool,
    advice: &'static Advice,
    limits: Limits,
    telemetry: Arc<Telemetry>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rest({})", self.shown)
    }
}

/// A client that is made by the first request, since it reads certificates.
struct Network {
    spec: ClientSpec,
    client: OnceCell<Arc<reqwest::Client>>,
}

#[async_trait]
impl Carrier for Network {
    async fn service(&self) -> Result<Arc<dyn HttpService>, Fault> {
        let client = self.client.get_or_try_init(|| self.spec.client()).await;
        Ok(client.map_err(Fault::from)?.clone())
    }
}

impl Rest {
    pub(super) fn open(
        at: &RestLocation,
        spec: &ResticSpec,
        environment: &Environment,
        timeout: Duration,
        telemetry: &Arc<Telemetry>,
    ) -> Result<Self, StoreError> {
        check_options(spec, "rest.", &["rest.connections"])?;
        let limits = Limits::within(timeout);
        let mut client = ClientSpec::of(spec, environment, !at.tls, limits)?;
        if let RestPlace::Socket(socket) = &at.place {
            client = client.through(PathBuf::from(socket));
        }
        let shown = at.to_string();
        let config = StoreErrorKind::Failed(ErrorClass::Config);
        // `reqwest` and `hyper` disagree on few texts, but panic on those.
        let base = Url::parse(&at.url()).ok().filter(|url| url.as_str().parse::<Uri>().is_ok());
        let base = base.ok_or_else(|| {
            let cause = "this is no URL that requests could be sent to";
            StoreError::new(config, format!("open {shown}"), cause, "")
        })?;
        let carrier = Box::new(Network { spec: client, client: OnceCell::new() });
        let authorization = authorization(at, environment)?;
        let telemetry = telemetry.clone();
        let (backend, advice) = ("rest", &advice::REST);
        Ok(Self {
            carrier,
            base,
            authorization,
            backend,
            shown,
            speaks_v1: true,
            advice,
            limits,
            telemetry,
        })
    }

    /// A store over something else that carries HTTP, whose server speaks the second version
    /// only.
    pub(super) fn over(
        carrier: Box<dyn Carrier>,
        base: Url,
        backend: &'static str,
        shown: String,
        timeout: Duration,
        telemetry: &Arc<Telemetry>,
        advice: &'static Advice,
    ) -> Self {
        Self {
            carrier,
            base,
            authorization: None,
            backend,
            shown,
            speaks_v1: false,
            advice,
            limits: Limits::within(timeout),
            telemetry: telemetry.clone(),
        }
    }

    async fn call<T>(
        &self,
        verb: &str,
        path: &str,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, StoreError> {
        let fault = match tokio::time::timeout(self.limits.verb, work).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(fault)) => fault,
            Err(_) => Fault::new(
                ErrorClass::Timeout,
                format!("not done in {:?}", self.limits.verb),
                "Check whether the server is overloaded, or raise the scan's time limit.",
            ),
        };
        let fault = self.advice.complete(self.carrier.explain(fault).await);
        let cause = format!("{} ({})", fault.cause, self.shown);
        let error = StoreError::new(fault.kind, doing(verb, path), cause, &fault.advice);
        Err(StoreError { wait: fault.wait, ..error })
    }

    fn url(&self, path: &str, folder: bool) -> Result<Uri, Fault> {
        let internal = |cause: &str| Fault::new(ErrorClass::Internal, cause, "");
        if !is_inside(path) {
            return Err(internal("the path leads out of the repository"));
        }
        let mut url = self.base.clone();
        if !path.is_empty() {
            let mut parts =
                url.path_segments_mut().map_err(|()| internal("the URL has no path"))?;
            parts.pop_if_empty().extend(path.split('/'));
            if folder {
                parts.push("");
            }
        }
        url.as_str().parse().map_err(|_| internal("this path cannot be asked for"))
    }

    /// One request, tried again where that may help. An answer is one of a good status.
    async fn send(
        &self,
        method: Method,
        uri: &Uri,
        operation: Operation,
        accept: &'static str,
    ) -> Result<(HttpResponse, Count<'_>), Fault> {
        let mut pause = (self.limits.verb / 64).min(Duration::from_millis(100));
        for tried in 0.. {
            let mut request = Request::new(HttpRequestBody::from(Bytes::new()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = uri.clone();
            let headers = request.headers_mut();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            if let Some(authorization) = &self.authorization {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            let service = self.carrier.service().await?;
            let count = Count::begin(&self.telemetry, self.backend, operation);
            let (fault, again) = match service.call(request).await {
                Ok(response) => match refusal(response.status().as_u16()) {
                    None => {
                        uncached(response.headers())?;
                        return Ok((response, count));
                    }
                    Some((fault, again)) => {
                        let wait = again.then(|| retry_after::wait(response.headers())).flatten();
                        // Who was told when to come back does not come back before.
                        (retry_after::told(fault, wait), again && wait.is_none())
                    }
                },
                Err(error) => {
                    let fault = explain(&error);
                    let network = StoreErrorKind::Failed(ErrorClass::Network);
                    let again = fault.kind == network;
                    (fault, again)
                }
            };
            drop(count);
            if !again || tried >= RETRIES {
                return Err(fault);
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(Fault::new(ErrorClass::Internal, "no request was sent", ""))
    }

    /// A folder's names. rest-server's 404 may mean a file that was removed meanwhile, so it is
    /// looked at again; in the end in the first version, whose listing cannot fail by that.
    async fn entries(&self, folder: &str) -> Result<Listing, Fault> {
        if !TYPES.contains(&folder) {
            return Ok(Listing::default());
        }
        for look in 0..=LOOKS {
            let accept = match look {
                LOOKS if !self.speaks_v1 => break,
                LOOKS => V1,
                _ => V2,
            };
            match self.page(folder, accept).await {
                Err(fault) if fault.kind == StoreErrorKind::NotFound => {}
                Err(_) if accept == V1 => {}
                other => return other,
            }
            if look == 0 {
                self.size("config").await.map_err(|fault| match fault.kind {
                    StoreErrorKind::NotFound => {
                        Fault { advice: self.advice.container.into(), ..answer::no_repository() }
                    }
                    _ => fault,
                })?;
            }
            if look < LOOKS {
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
        }
        Ok(Listing::default())
    }

    async fn page(&self, folder: &str, accept: &'static str) -> Result<Listing, Fault> {
        let uri = self.url(folder, true)?;
        let (response, mut count) = self.send(Method::GET, &uri, Operation::List, accept).await?;
        let body = collect(response.into_body(), LIST_BYTES_MAX).await;
        let body = body.map_err(|error| explain(&error))?;
        let named = answer::names(&body, ENTRIES_MAX)?;
        count.failed = false;
        drop(count);
        let sized = stream::iter(named)
            .map(|Named { name, size }| async move {
                let size = match size {
                    Some(size) => Some(size),
                    None if answer::has_size(&name) => {
                        match self.size(&format!("{folder}/{name}")).await {
                            Ok(size) => Some(size),
                            // Removed since it was listed.
                            Err(fault) if fault.kind == StoreErrorKind::NotFound => None,
                            Err(fault) => return Err(fault),
                        }
                    }
                    None => Some(0),
                };
                Ok(size.map(|size| entry(name, size)))
            })
            .buffered(STATS_AT_ONCE)
            .collect::<Vec<_>>()
            .await;
        let entries = sized.into_iter().filter_map(Result::transpose);
        Ok(Listing { entries: entries.collect::<Result<_, _>>()?, odd: Vec::new() })
    }

    async fn size(&self, path: &str) -> Result<u64, Fault> {
        let uri = self.url(path, false)?;
        let (response, mut count) = self.send(Method::HEAD, &uri, Operation::Stat, V2).await?;
        let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
        let size = length.and_then(|length| length.parse().ok());
        let size = size.ok_or_else(|| answer::no_rest("an answer without a size"))?;
        count.failed = false;
        Ok(size)
    }

    async fn content(&self, path: &str, bytes_max: u64) -> Result<Bytes, Fault> {
        let uri = self.url(path, false)?;
        let (response, mut count) = self.send(Method::GET, &uri, Operation::Get, V2).await?;
        let range = response.headers().get(CONTENT_RANGE).map(HeaderValue::as_bytes);
        if range.is_some_and(|range| !range.starts_with(b"bytes 0-")) {
            return Err(answer::no_rest("a part of the file that was not asked for"));
        }
        let mut parts = response.into_body().bytes_stream();
        let mut content = BytesMut::new();
        while let Some(part) = parts.next().await {
            let part = part.map_err(|error| explain(&error))?;
            if (content.len() + part.len()) as u64 > bytes_max {
                let cause = format!("more than {bytes_max} bytes");
                return Err(Fault::of(StoreErrorKind::TooLarge, cause, ""));
            }
            content.extend_from_slice(&part);
        }
        // restic's files are encrypted or JSON; none begins like this.
        if is_html(&content) {
            return Err(answer::no_rest("a web page instead of a file"));
        }
        count.failed = false;
        Ok(content.freeze())
    }
}

#[async_trait]
impl ReadStore for Rest {
    async fn list(&self, folder: &str) -> Result<Listing, StoreError> {
        self.call("list", folder, self.entries(folder)).await
    }

    async fn stat(&self, path: &str) -> Result<Entry, StoreError> {
        self.call("stat", path, async {
            let name = path.rsplit('/').next().unwrap_or_default();
            Ok(entry(name.to_owned(), self.size(path).await?))
        })
        .await
    }

    async fn read(&self, path: &str, bytes_max: u64) -> Result<Bytes, StoreError> {
        self.call("read", path, self.content(path, bytes_max)).await
    }

    async fn folders(&self, _folder: &str) -> Result<Option<Vec<String>>, StoreError> {
        Ok(None)
    }
}

fn entry(name: String, size: u64) -> Entry {
    Entry { name, kind: EntryKind::File, size, modified_at: None }
}

/// A cache in between would show locks that are gone.
fn uncached(headers: &HeaderMap) -> Result<(), Fault> {
    let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.trim().parse::<u64>().ok());
    match age {
        None | Some(0) => Ok(()),
        Some(age) => Err(Fault::new(
            ErrorClass::Protocol,
            format!("the answer is {age} s old: it comes from a cache"),
            "Let the proxy before the server pass requests with Cache-Control: no-cache through.",
        )),
    }
}

/// The variables count only where the string has neither user nor password (restic
/// `internal/backend/rest/config.go` ApplyEnvironment). Sent with the first request: rest-server
/// never asks.
fn authorization(
    at: &RestLocation,
    environment: &Environment,
) -> Result<Option<HeaderValue>, StoreError> {
    let (user, password) = if at.user.is_none() && at.password.is_none() {
        let variable = |name| environment.text(name).map_err(secret_failed);
        (variable("RESTIC_REST_USERNAME")?, variable("RESTIC_REST_PASSWORD")?)
    } else {
        (at.user.clone().map(Zeroizing::new), at.password.clone())
    };
    if user.is_none() && password.is_none() {
        return Ok(None);
    }
    let text = |part: Option<Zeroizing<String>>| part.unwrap_or_default();
    let pair = Zeroizing::new(format!("{}:{}", *text(user), *text(password)));
    let encoded = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    let mut value = HeaderValue::from_str(&encoded).map_err(|_| {
        let config = StoreErrorKind::Failed(ErrorClass::Config);
        StoreError::new(config, "read user and password", "they fit into no header", "")
    })?;
    value.set_sensitive(true);
    Ok(Some(value))
}
