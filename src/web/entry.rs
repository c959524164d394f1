//! What happens to a request before it is looked at: is the web configuration whole, is there
//! room, who is it; then the routes. Pages are not known here.
#![allow(clippy::disallowed_methods, reason = "requests are timed")]

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Version};

use super::auth::Login;
use super::body::Answer;
use super::connections::Door;
use super::guard::Protection;
use super::{Place, Site, headless, probe, refused_method, route, text};

/// Answers one request, whatever happens.
pub async fn answer(
    site: &Arc<Site>,
    door: &Door,
    request: &Request<Incoming>,
) -> Response<Answer> {
    let started = Instant::now();
    let _running = site.telemetry.http_starts();
    // Named beforehand, so that refusals and faults count where they happened.
    let handler = handler(site, door, request.uri().path());
    let response = match refusal(request) {
        Some(refusal) => refusal,
        None => match AssertUnwindSafe(admitted(site, door, request)).catch_unwind().await {
            Ok(answered) => answered,
            // The panic's own words are in the log, by its hook.
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "a fault, see the log\n"),
        },
    };
    let response = if request.method() == Method::HEAD { headless(response) } else { response };
    site.telemetry.http_ended(handler, response.status().as_u16(), started.elapsed());
    response
}

/// What no place here answers, whoever asks.
fn refusal(request: &Request<Incoming>) -> Option<Response<Answer>> {
    if !has_its_host(request) {
        let mut response = text(StatusCode::BAD_REQUEST, "exactly one Host header is needed\n");
        close_after(&mut response);
        return Some(response);
    }
    match *request.method() {
        Method::GET | Method::HEAD | Method::POST | Method::PUT => None,
        _ => refused_method(request.method()),
    }
}

/// Whether the request names one host, which may be empty; before HTTP/1.1 none is needed (RFC
/// 9112, section 3.2).
fn has_its_host(request: &Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.is_empty() || Authority::try_from(host.as_bytes()).is_ok(),
        (None, _) => request.version() < Version::HTTP_11,
        (Some(_), Some(_)) => false,
    }
}

/// The path of a probe: behind the prefix or not.
fn probed<'a>(site: &Site, path: &'a str) -> &'a str {
    path.strip_prefix(&site.prefix).filter(|path| path.starts_with('/')).unwrap_or(path)
}

fn handler(site: &Site, door: &Door, path: &str) -> &'static str {
    match door {
        Door::Guarded(..) => Place::of(&site.prefix, path).handler(&site.telemetry_path),
        Door::Probe => match probed(site, path) {
            "/-/healthy" => "/-/healthy",
            "/-/ready" => "/-/ready",
            _ => "other",
        },
    }
}

async fn admitted(site: &Arc<Site>, door: &Door, request: &Request<Incoming>) -> Response<Answer> {
    let Door::Guarded(guard, tls) = door else {
        return probe(site, request, probed(site, request.uri().path()));
    };
    let Ok(protection) = guard.now().await else {
        let words = "the web configuration is broken, see the log\n";
        return text(StatusCode::INTERNAL_SERVER_ERROR, words);
    };
    if tls.is_none() && protection.tls.is_some() {
        let mut response = text(StatusCode::BAD_REQUEST, "TLS is needed here by now\n");
        close_after(&mut response);
        return response;
    }
    let mut response = match guard.admit() {
        Err(after) => too_many(after.as_secs().max(1)),
        Ok(()) => {
            let given = request.headers().get(header::AUTHORIZATION);
            match guard.login(&protection, given).await {
                Login::Right => route(site, request).await,
                Login::Wrong => unauthorized(),
                Login::Busy => too_many(1),
            }
        }
    };
    dress(&mut response, &protection);
    // Another certificate, or other authorities of clients: whoever goes on must agree on them.
    let same = match (tls, &protection.tls) {
        (Some(spoken), Some(now)) => Arc::ptr_eq(spoken, now),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    if !same {
        close_after(&mut response);
    }
    response
}

fn dress(response: &mut Response<Answer>, protection: &Protection) {
    for (name, value) in &protection.headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
}

fn close_after(response: &mut Response<Answer>) {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}

fn too_many(seconds: u64) -> Response<Answer> {
    let mut response = text(StatusCode::TOO_MANY_REQUESTS, "too many requests\n");
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    response
}

fn unauthorized() -> Response<Answer> {
    let mut response = text(StatusCode::UNAUTHORIZED, "user and password are needed\n");
    let scheme = HeaderValue::from_static("Basic realm=\"lock_exporter\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    response
}
