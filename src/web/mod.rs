//! The HTTP server: its routes. What it shows is rendered elsewhere; who may ask is decided in
//! `entry`, before a request comes here.
//!
//! HTTP/1.1 only: one request at a time on a connection makes every limit simple.
#![allow(clippy::disallowed_methods, reason = "requests are where renderers get the time from")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use prometheus::Registry;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use self::body::Answer;
use self::render::Renderer;
use self::wanted::{Wanted, accepts_gzip};
use crate::exposition::format::Format;
use crate::exposition::overview::Overview;
use crate::reload::{Settings, Wish};
use crate::roster::Roster;
use crate::scanner::Waiting;
use crate::status::{MachineStatus, Status};
use crate::telemetry::Telemetry;

mod auth;
mod body;
mod connections;
mod entry;
pub mod guard;
mod kept;
mod listen;
mod look;
mod pages;
mod rate;
pub mod render;
mod seat;
mod tls;
pub mod wanted;

pub use connections::{DRAIN, serve};
pub use kept::Kept;
pub use listen::{Doors, Listener, open};
pub use tls::any_server;

/// Scrapes that come within this time of a rendering share it.
const SHARED_FOR: Duration = Duration::from_millis(500);
/// What the server shows.
pub struct Site {
    /// The current picture.
    pub status: watch::Receiver<Status>,
    /// How metrics are rendered, and facts about this process.
    pub settings: watch::Receiver<Settings>,
    /// The exporter's own counters.
    pub telemetry: Arc<Telemetry>,
    /// What is known of the machine itself.
    pub machine: watch::Receiver<MachineStatus>,
    /// `process_*`.
    pub process: Registry,
    /// Where metrics are rendered.
    pub renderer: Renderer,
    /// Where pages are rendered.
    pub pages: Renderer,
    /// Scans waiting for a place.
    pub waiting: Waiting,
    /// Who is watched; searches that have not ended once.
    pub roster: Arc<Roster>,
    /// What stands before all paths: nothing, or a path without a slash at its end.
    pub prefix: String,
    /// The same for browsers, who may come through a proxy.
    pub external_path: String,
    /// Where metrics are, `/metrics`.
    pub telemetry_path: String,
    /// Scrapes answered at once; none = no limit.
    pub scrapes: Option<Arc<Semaphore>>,
    /// Parts of pages that are still true.
    pub kept: std::sync::Mutex<Kept>,
    /// The last page of metrics.
    pub page: tokio::sync::Mutex<Option<Page>>,
    /// What each target amounts to, kept from page to page.
    pub overview: std::sync::Mutex<Overview>,
    /// From when on the exporter is ready although targets were not all looked at.
    pub ready_from: Instant,
    /// Where wishes to reload go; none = `/-/reload` is off.
    pub reload: Option<mpsc::Sender<Wish>>,
    /// True as soon as the exporter stops.
    pub stopping: watch::Receiver<bool>,
}

/// Where a request leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place<'a> {
    /// A path below the prefix.
    Path(&'a str),
    /// The prefix without the slash at its end, or what is before it.
    Home,
    /// Nowhere.
    Nothing,
}

impl<'a> Place<'a> {
    fn of(prefix: &str, path: &'a str) -> Self {
        match path.strip_prefix(prefix) {
            Some(path) if path.starts_with('/') => Place::Path(path),
            // Links of the page are relative to its folder, so it needs the slash at its end.
            Some("") => Place::Home,
            Some(_) | None if path == "/" => Place::Home,
            Some(_) | None => Place::Nothing,
        }
    }

    /// The handler's name in metrics, whatever the answer will be: who is refused at `/metrics`
    /// is told apart from who tries paths.
    fn handler(self, telemetry_path: &str) -> &'static str {
        match self {
            Place::Path(path) if path == telemetry_path => "/metrics",
            Place::Path("/-/healthy") => "/-/healthy",
            Place::Path("/-/ready") => "/-/ready",
            Place::Path("/-/reload") => "/-/reload",
            Place::Path(path) => pages::handler(path).unwrap_or("other"),
            Place::Home | Place::Nothing => "other",
        }
    }
}

/// The answer to a request that may come in.
async fn route(site: &Arc<Site>, request: &Request<Incoming>) -> Response<Answer> {
    let path = match Place::of(&site.prefix, request.uri().path()) {
        Place::Path("/-/reload") => return reload(site, request.method()).await,
        Place::Path(path) if path == site.telemetry_path => {
            return match refused_method(request.method()) {
                Some(refusal) => refusal,
                None => metrics(site, request).await,
            };
        }
        Place::Path(path @ ("/-/healthy" | "/-/ready")) => return probe(site, request, path),
        Place::Path(path) if pages::handler(path).is_some() => path,
        Place::Home => {
            return refused_method(request.method()).unwrap_or_else(|| home(site));
        }
        Place::Path(_) | Place::Nothing => return not_found(),
    };
    // Before anything is rendered: that is work which the answer would not show.
    if let Some(refusal) = refused_method(request.method()) {
        return refusal;
    }
    let query = request.uri().query().unwrap_or_default();
    pages::answer(site, path, query).await.unwrap_or_else(not_found)
}

fn home(site: &Site) -> Response<Answer> {
    let mut response = text(StatusCode::FOUND, "");
    let path = if site.external_path.is_empty() { &site.prefix } else { &site.external_path };
    if let Ok(place) = HeaderValue::from_str(&format!("{path}/")) {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

fn not_found() -> Response<Answer> {
    text(StatusCode::NOT_FOUND, "not found; see /\n")
}

/// What probes may ask, at either door.
fn probe(site: &Site, request: &Request<Incoming>, path: &str) -> Response<Answer> {
    let answer: fn(&Site) -> Response<Answer> = match path {
        "/-/healthy" => |_| text(StatusCode::OK, "healthy\n"),
        "/-/ready" => ready,
        _ => return not_found(),
    };
    refused_method(request.method()).unwrap_or_else(|| answer(site))
}

/// The refusal of a method by which nothing is read.
fn refused_method(method: &Method) -> Option<Response<Answer>> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    Some(refusal)
}

/// The same headers, its length included, without the body.
fn headless(mut response: Response<Answer>) -> Response<Answer> {
    let length = response.body().left();
    response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    response.map(Answer::cut)
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Answer> {
    with_type(status, "text/plain; charset=utf-8", body)
}

fn with_type(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Response<Answer> {
    let mut response = Response::new(Answer::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn ready(site: &Site) -> Response<Answer> {
    if *site.stopping.borrow() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    let status = site.status.borrow();
    let waiting = status.targets.values().filter(|t| t.last_attempt.is_none()).count();
    // What they find is not there yet, so it does not wait either.
    let searching = site.roster.unsearched();
    if waiting + searching == 0 || Instant::now() >= site.ready_from {
        text(StatusCode::OK, "ready\n")
    } else {
        let all = status.targets.len();
        let body = match searching {
            0 => format!("{waiting} of {all} targets not looked at yet\n"),
            _ => format!(
                "{waiting} of {all} targets not looked at yet, {searching} searches not done\n"
            ),
        };
        text(StatusCode::SERVICE_UNAVAILABLE, body)
    }
}

async fn reload(site: &Site, method: &Method) -> Response<Answer> {
    let Some(reload) = &site.reload else {
        return text(StatusCode::FORBIDDEN, "reloading is off; see --web.enable-lifecycle\n");
    };
    if !matches!(*method, Method::POST | Method::PUT) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only POST and PUT\n");
        refusal.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, PUT"));
        return refusal;
    }
    let (wish, answer) = oneshot::channel();
    if reload.send(wish).await.is_err() {
        return text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
    }
    match answer.await {
        Ok(Ok(())) => text(StatusCode::OK, "reloaded\n"),
        Ok(Err(error)) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
    }
}

async fn metrics(site: &Arc<Site>, request: &Request<Incoming>) -> Response<Answer> {
    let permit = match &site.scrapes {
        None => None,
        Some(scrapes) => match scrapes.clone().try_acquire_owned() {
            Ok(permit) => Some(permit),
            Err(_) => return text(StatusCode::SERVICE_UNAVAILABLE, "too many scrapes at once\n"),
        },
    };
    let query = request.uri().query().unwrap_or_default();
    let Some(wanted) = Wanted::of(query, &site.settings.borrow().rules.sources) else {
        return text(StatusCode::BAD_REQUEST, "collect[] and exclude[] name sources, not both\n");
    };
    let headers = request.headers();
    let gzip = accepts_gzip(&listed(headers, header::ACCEPT_ENCODING));
    let format = Format::accepted(&listed(headers, header::ACCEPT));
    let body = match page_of(site, Asked { wanted, format, gzip }).await {
        Ok(body) => body,
        Err(error) => {
            tracing::error!(%error, "metrics not rendered");
            return text(StatusCode::INTERNAL_SERVER_ERROR, format!("not rendered: {error}\n"));
        }
    };
    let mut response = with_type(StatusCode::OK, &format.content_type(), body);
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    if gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response.map(|body| body.with(permit))
}

/// A header that is a list, whole: it may come in several lines, which mean the same as one (RFC
/// 9110, section 5.3).
fn listed(headers: &HeaderMap, name: HeaderName) -> String {
    let lines: Vec<_> =
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    lines.join(",")
}

/// What a page of metrics depends on beside the status.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    wanted: Wanted,
    format: Format,
    gzip: bool,
}

/// A page of metrics, kept for the scrapes that come at the same time.
#[derive(Debug)]
pub struct Page {
    asked: Asked,
    revision: u64,
    reloaded: (bool, Timestamp),
    rendered: Instant,
    body: Bytes,
}

/// The page as asked for. Scrapes that come together share one rendering and one copy.
async fn page_of(site: &Arc<Site>, asked: Asked) -> anyhow::Result<Bytes> {
    let mut page = site.page.lock().await;
    let revision = site.status.borrow().revision;
    let reloaded = {
        let exporter = &site.settings.borrow().exporter;
        (exporter.reload_successful, exporter.reload_success_at)
    };
    if let Some(page) = &*page
        && page.asked == asked
        && page.revision == revision
        && page.reloaded == reloaded
        && page.rendered.elapsed() < SHARED_FOR
    {
        return Ok(page.body.clone());
    }
    let (rendering, wants) = (site.clone(), asked.clone());
    // Thousands of targets take milliseconds of a core, which belong to nobody's connection.
    site.telemetry.tasks(Handle::current().metrics().num_alive_tasks());
    let work = move || render::page(&rendering, &wants.wanted, wants.format, wants.gzip);
    let rendered = site.renderer.run(work).await;
    let body = Bytes::from(rendered.context("a fault, see the log")??);
    *page = Some(Page { asked, revision, reloaded, rendered: Instant::now(), body: body.clone() });
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_in_several_lines_is_one_list() {
        let mut headers = HeaderMap::new();
        for line in ["identity", "gzip"] {
            headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(line));
        }
        assert!(accepts_gzip(&listed(&headers, header::ACCEPT_ENCODING)));
        assert!(!accepts_gzip(&listed(&headers, header::ACCEPT)));
    }

    #[test]
    fn a_handler_is_named_by_its_place_alone() {
        for (prefix, path, handler) in [
            ("", "/metrics", "/metrics"),
            ("/p", "/p/metrics", "/metrics"),
            ("/p", "/metrics", "other"),
            ("/p", "/p", "other"),
            ("/p", "/", "other"),
            ("/p", "/px", "other"),
            ("", "", "other"),
            ("", "*", "other"),
            ("", "/", "/"),
            ("", "/targets/a", "/targets"),
            ("", "/targets/%zz", "other"),
            ("", "/api/v1/locks", "/api/v1"),
            ("", "/-/page.css", "/-/page"),
            ("", "/nothing", "other"),
        ] {
            assert_eq!(Place::of(prefix, path).handler("/metrics"), handler, "{prefix} {path}");
        }
    }
}
