//! The page of metrics, and the threads that write pages. How the request was made is not known
//! here.
#![allow(clippy::disallowed_methods, reason = "a page is as of the moment in which it is written")]

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use flate2::write::GzEncoder;
use jiff::Timestamp;
use prometheus::proto::MetricFamily;
use prometheus::{Registry, TextEncoder};
use tokio::sync::oneshot;

use super::{Site, Wanted};
use crate::exposition::format::Format;
use crate::exposition::metrics::StatusCollector;
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
    let collector = StatusCollector::new(status, Timestamp::now(), rules);
    // Collectors that describe nothing beforehand look alike to a registry: one each.
    let exporter = Registry::new();
    exporter.register(Box::new(facts))?;
    let machine = Registry::new();
    machine.register(Box::new(site.machine.borrow().clone()))?;
    let is_wanted =
        |name: &str| wanted.names.is_empty() || wanted.names.iter().any(|known| known == name);
    let mut body = Body::new(gzip);
    collector.each(is_wanted, |family| body.add(&[family], format))?;
    for registry in [&machine, &exporter, site.telemetry.registry(), &site.process] {
        let mut families = registry.gather();
        families.retain(|family| is_wanted(family.name()));
        body.add(&families, format)?;
    }
    if matches!(format, Format::OpenMetrics { .. }) {
        body.sink.write_all(openmetrics::END.as_bytes())?;
    }
    body.sink.finish()
}

/// The text of a page as it grows. It is compressed on the way, so that a large one is never in
/// memory as a whole unless the client wants it so.
struct Body {
    sink: Sink,
    /// The text of one family.
    text: String,
}

enum Sink {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Body {
    fn new(gzip: bool) -> Self {
        let sink = if gzip {
            Sink::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::fast()))
        } else {
            Sink::Plain(Vec::new())
        };
        Self { sink, text: String::new() }
    }

    fn add(&mut self, families: &[MetricFamily], format: Format) -> anyhow::Result<()> {
        match format {
            Format::Text => TextEncoder::new().encode_utf8(families, &mut self.text)?,
            Format::OpenMetrics { .. } => openmetrics::encode(families, &mut self.text),
        }
        self.sink.write_all(self.text.as_bytes())?;
        self.text.clear();
        Ok(())
    }
}

impl Sink {
    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Sink::Plain(body) => body.write_all(text),
            Sink::Gzip(body) => body.write_all(text),
        }
    }

    fn finish(self) -> anyhow::Result<Vec<u8>> {
        match self {
            Sink::Plain(body) => Ok(body),
            Sink::Gzip(body) => Ok(body.finish()?),
        }
    }
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
