//! What people and programs read beside metrics: pages, the JSON API, the configuration.
//!
//! Each answer is rendered on a thread of its own kind, from the picture of that moment, so that
//! readers never keep a scrape waiting. What is rendered is the renderers' business.
#![allow(clippy::disallowed_methods, reason = "a page is as of the moment in which it is written")]

use std::sync::{Arc, Mutex, PoisonError};

use hyper::header::{self, HeaderValue};
use hyper::{Response, StatusCode};
use jiff::Timestamp;

use super::body::Answer;
use super::wanted::target_name;
use super::{Site, text, with_type};
use crate::exposition::configuration;
use crate::exposition::json::{self, EventsAsk, LocksAsk, TargetsAsk};
use crate::exposition::overview::Overview;
use crate::exposition::page::{self, Ask, Frame};
use crate::reload::Settings;
use crate::status::Status;

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";
const YAML: &str = "text/plain; charset=utf-8";
/// Longest path that is looked at: the longest name, escaped, and what is before it.
const PATH_BYTES_MAX: usize = 1024;

/// The name in metrics of what is at a path below the root; `None` when there is nothing.
pub(super) fn handler(path: &str) -> Option<&'static str> {
    Some(match asked(path)? {
        Asked::File(..) => "/-/page",
        Asked::List if path == "/" => "/",
        Asked::List | Asked::Target(_) => "/targets",
        Asked::Config => "/config",
        Asked::Targets | Asked::TargetObject(_) | Asked::Locks | Asked::Events => "/api/v1",
    })
}

fn asked(path: &str) -> Option<Asked> {
    if path.len() > PATH_BYTES_MAX {
        return None;
    }
    Some(match path {
        "/-/page.css" => Asked::File("text/css; charset=utf-8", page::STYLE),
        "/-/page.js" => Asked::File("text/javascript; charset=utf-8", page::SCRIPT),
        "/-/icon.svg" => Asked::File("image/svg+xml", page::ICON),
        "/" | "/targets" => Asked::List,
        "/config" => Asked::Config,
        "/api/v1/targets" => Asked::Targets,
        "/api/v1/locks" => Asked::Locks,
        "/api/v1/events" => Asked::Events,
        _ => match path.strip_prefix("/api/v1/targets/") {
            Some(name) => Asked::TargetObject(target_name(name)?),
            None => Asked::Target(target_name(path.strip_prefix("/targets/")?)?),
        },
    })
}

/// Answers what this module has at a path below the root; `None` when there is nothing.
pub(super) async fn answer(site: &Arc<Site>, path: &str, query: &str) -> Option<Response<Answer>> {
    let asked = asked(path)?;
    if let Asked::File(content_type, body) = asked {
        return Some(file(content_type, body));
    }
    let (rendering, root, query) = (site.clone(), page::root(path), query.to_owned());
    let work = move || render(&rendering, &asked, &root, &query);
    Some(match site.pages.run(work).await {
        Some(Ok((content_type, body))) => shown(content_type, body),
        Some(Err(Refusal::Bad(why))) => text(StatusCode::BAD_REQUEST, why + "\n"),
        Some(Err(Refusal::NoTarget)) => {
            text(StatusCode::NOT_FOUND, "there is no target of this name; see /targets\n")
        }
        Some(Err(Refusal::Fault(why))) => {
            tracing::error!(error = why, "page not rendered");
            text(StatusCode::INTERNAL_SERVER_ERROR, "not rendered; see the log\n")
        }
        None => text(StatusCode::INTERNAL_SERVER_ERROR, "not rendered; see the log\n"),
    })
}

/// What is at a path.
enum Asked {
    /// A file of the program itself: its type and text.
    File(&'static str, &'static str),
    List,
    Target(String),
    Config,
    Targets,
    TargetObject(String),
    Locks,
    Events,
}

enum Refusal {
    /// A parameter that cannot be asked for.
    Bad(String),
    NoTarget,
    Fault(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Refusal::Bad(why)
    }
}

impl From<serde_json::Error> for Refusal {
    fn from(error: serde_json::Error) -> Self {
        Refusal::Fault(error.to_string())
    }
}

fn render(
    site: &Site,
    asked: &Asked,
    root: &str,
    query: &str,
) -> Result<(&'static str, String), Refusal> {
    let status = site.status.borrow().clone();
    let settings = site.settings.borrow().clone();
    let now = Timestamp::now();
    let answer = json::Answer { status: &status, now, hold: settings.rules.hold };
    let none = |query: &str| match query {
        "" => Ok(()),
        _ => Err(Refusal::Bad("nothing can be asked for here".into())),
    };
    Ok(match asked {
        Asked::File(content_type, body) => (*content_type, (*body).to_owned()),
        Asked::List => {
            let ask = Ask::parse(query)?;
            (HTML, list(site, &status, &settings, root, now, &ask)?)
        }
        Asked::Target(name) => {
            none(query)?;
            (HTML, target(site, &status, &settings, root, now, name)?)
        }
        Asked::Config => {
            none(query)?;
            (YAML, configuration::yaml(&settings.config))
        }
        Asked::Targets => {
            let ask = TargetsAsk::parse(query)?;
            let overview = followed(site, &status, &settings, now);
            (JSON, answer.targets(&overview, &ask)?)
        }
        Asked::TargetObject(name) => {
            none(query)?;
            let target = page::named(&status, name).ok_or(Refusal::NoTarget)?;
            (JSON, answer.target(target)?)
        }
        Asked::Locks => (JSON, answer.locks(&LocksAsk::parse(query)?)?),
        Asked::Events => (JSON, answer.events(&EventsAsk::parse(query)?)?),
    })
}

fn list(
    site: &Site,
    status: &Status,
    settings: &Settings,
    root: &str,
    now: Timestamp,
    ask: &Ask,
) -> Result<String, Refusal> {
    if let Some(name) = &ask.name {
        return target(site, status, settings, root, now, name);
    }
    let overview = followed(site, status, settings, now);
    Ok(page::list(&frame(site, settings, root, now), status, &overview, ask))
}

fn target(
    site: &Site,
    status: &Status,
    settings: &Settings,
    root: &str,
    now: Timestamp,
    name: &str,
) -> Result<String, Refusal> {
    let target = page::named(status, name).ok_or(Refusal::NoTarget)?;
    let overview = followed(site, status, settings, now);
    Ok(page::target(&frame(site, settings, root, now), &overview, status, target))
}

fn frame<'a>(site: &'a Site, settings: &'a Settings, root: &'a str, now: Timestamp) -> Frame<'a> {
    Frame {
        now,
        hold: settings.rules.hold,
        root,
        telemetry_path: &site.telemetry_path,
        refused: settings.refused.as_ref().map(|refused| (refused.at, &*refused.error)),
    }
}

/// The overview, brought up to this picture. Only the thread of pages asks for it.
fn followed<'a>(
    site: &'a Site,
    status: &Status,
    settings: &Settings,
    now: Timestamp,
) -> std::sync::MutexGuard<'a, Overview> {
    let overview: &Mutex<Overview> = &site.overview;
    let mut overview = overview.lock().unwrap_or_else(PoisonError::into_inner);
    overview.follow(status, now, settings.rules.hold);
    overview
}

fn shown(content_type: &str, body: String) -> Response<Answer> {
    let mut response = with_type(StatusCode::OK, content_type, body);
    if content_type == HTML {
        let headers = response.headers_mut();
        let policy = HeaderValue::from_static(page::POLICY);
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    }
    response
}

/// A file of the program itself; it holds nothing of anybody and changes only with the program.
fn file(content_type: &str, body: &'static str) -> Response<Answer> {
    let mut response = with_type(StatusCode::OK, content_type, body);
    let kept = HeaderValue::from_static("max-age=60");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    response
}
