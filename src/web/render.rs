//! The page of metrics, and the threads that write pages. How the request was made is not known
//! here.
#![allow(clippy::disallowed_methods, reason = "a page is as of the moment in which it is written")]

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, mpsc};
use std::thread;

use jiff::Timestamp;
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};
use tokio::sync::oneshot;

use super::kept::{Body, Kept, Key, Part, PartBody};
use super::{Site, Wanted};
use crate::exposition::format::Format;
use crate::exposition::metrics::{MOVING, StatusCollector};
use crate::exposition::openmetrics;
use crate::reload::Settings;

type Job = Box<dyn FnOnce() + Send>;

/// The thread that renders, one page after the other.
///
/// An allocator keeps for each thread what that thread has freed. With every page on another
/// thread of a pool, each of them would keep the memory of the largest page: a thousand targets
/// once took 800 MiB after forty scrapes.
#[derive(Debug)]
pub struct Renderer {
    jobs: mpsc::Sender<Job>,
}

impl Renderer {
    /// Starts the thread; it ends when the renderer is dropped.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub fn start() -> io::Result<Self> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        thread::Builder::new().name("render".into()).spawn(move || {
            for job in waiting {
                // The panic is logged by its hook, and whoever waits sees that nothing came.
                let _ = catch_unwind(AssertUnwindSafe(job));
            }
        })?;
        Ok(Self { jobs })
    }

    /// Runs some work on the thread. `None` when it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let job = move || {
            // Nobody waits any more when the client has gone.
            let _ = done.send(work());
        };
        self.jobs.send(Box::new(job)).ok()?;
        result.await.ok()
    }
}

/// The whole page of metrics as of now.
///
/// # Errors
/// When an encoder refuses, which a test would show.
pub(super) fn page(
    site: &Site,
    wanted: &Wanted,
    format: Format,
    gzip: bool,
) -> anyhow::Result<Vec<u8>> {
    site.telemetry.scan_lag(site.waiting.lag());
    let mut status = site.status.borrow().clone();
    if !wanted.without.is_empty() {
        let mut targets = (*status.targets).clone();
        targets.retain(|_, target| !wanted.without.contains(&target.spec.source_name()));
        status.targets = Arc::new(targets);
    }
    let Settings { rules, exporter: facts, .. } = site.settings.borrow().clone();
    let now = Timestamp::now();
    let revision = status.revision;
    let collector = StatusCollector::new(status, now, rules.clone());
    // Collectors that describe nothing beforehand look alike to a registry: one each.
    let exporter = Registry::new();
    exporter.register(Box::new(facts))?;
    let machine = Registry::new();
    machine.register(Box::new(site.machine.borrow().clone()))?;
    let is_wanted = |name: &str| wanted.names.is_empty() || wanted.names.contains(name);
    let mut text = String::new();
    let mut body = if *wanted == Wanted::default() {
        let key = Key { open: format != Format::Text, gzip, revision, rules };
        let mut kept = site.kept.lock().unwrap_or_else(PoisonError::into_inner);
        Body::new(gzip, Some(&of_targets(&collector, &mut kept, key, format, now)?))
    } else {
        let mut body = Body::new(gzip, None);
        collector.each(
            |name| is_wanted(name) && name != MOVING,
            |family| add(&mut body, &mut text, &[family], format),
        )?;
        body
    };
    if is_wanted(MOVING) {
        add(&mut body, &mut text, collector.moving().as_slice(), format)?;
    }
    for registry in [&machine, &exporter, site.telemetry.registry(), &site.process] {
        let mut families = registry.gather();
        families.retain(|family| is_wanted(family.name()));
        add(&mut body, &mut text, &families, format)?;
    }
    if matches!(format, Format::OpenMetrics { .. }) {
        body.write(openmetrics::END)?;
    }
    Ok(body.finish()?)
}

/// The part of a page that speaks of targets and does not move with the clock: the kept one while
/// it is true, else a new one.
fn of_targets(
    collector: &StatusCollector,
    kept: &mut Kept,
    key: Key,
    format: Format,
    now: Timestamp,
) -> anyhow::Result<Part> {
    if let Some(part) = kept.get(&key, now) {
        return Ok(part);
    }
    let mut growing = PartBody::new(key.gzip);
    let mut text = String::new();
    collector.each(
        |name| name != MOVING,
        |family| {
            encode(&[family], format, &mut text)?;
            growing.write(&text)?;
            text.clear();
            anyhow::Ok(())
        },
    )?;
    let part = growing.finish()?;
    kept.put(key, part.clone(), now, collector.true_until());
    Ok(part)
}

fn add(
    body: &mut Body,
    text: &mut String,
    families: &[MetricFamily],
    format: Format,
) -> anyhow::Result<()> {
    encode(families, format, text)?;
    body.write(text)?;
    text.clear();
    Ok(())
}

fn encode(families: &[MetricFamily], format: Format, text: &mut String) -> anyhow::Result<()> {
    match format {
        Format::Text => TextEncoder::new().encode_utf8(families, text)?,
        Format::OpenMetrics { .. } => openmetrics::encode(families, text),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_page_is_rendered_on_one_thread_and_a_panic_ends_only_its_own() {
        let renderer = Renderer::start().unwrap();
        let first = renderer.run(|| thread::current().id()).await;
        assert!(renderer.run(|| panic!("on purpose")).await.is_none_or(|(): ()| false));
        let (a, b) = tokio::join!(
            renderer.run(|| thread::current().id()),
            renderer.run(|| thread::current().id()),
        );
        assert!(first.is_some());
        assert_eq!((first, first), (a, b));
        assert_ne!(first, Some(thread::current().id()));
    }
}
