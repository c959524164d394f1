//! One round over all targets: every one looked at once, with its key, and nothing kept running.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::scan::Scan;
use crate::scanner::{self, Open};
use crate::source::{self, Context};
use crate::status::Status;
use crate::target::{TargetSet, TargetSpec};
use crate::tracker::Tracker;

/// Looks at every target of a configuration; `done` hears of each one that is finished.
pub async fn look_once(
    config: &Config,
    context: &Context,
    open: Open,
    done: mpsc::UnboundedSender<Arc<TargetSpec>>,
) -> Status {
    let targets = TargetSet::new(config.targets.clone());
    let mut tracker = Tracker::new(source::policy, config.scan.hold);
    tracker.retarget(&targets);
    let specs: Vec<_> = targets.iter().cloned().collect();
    let mut scans = futures_util::stream::iter(specs)
        .map(|spec| {
            let context = context.clone();
            let done = done.clone();
            async move {
                let scan = look_at(&spec, &context, open).await;
                // Whoever listened may have lost interest.
                let _ = done.send(spec);
                scan
            }
        })
        .buffer_unordered(config.scan.concurrency.max(1));
    while let Some(scan) = scans.next().await {
        tracker.apply(scan);
    }
    tracker.status()
}

async fn look_at(spec: &Arc<TargetSpec>, context: &Context, open: Open) -> Scan {
    let source = open(spec, context);
    source.ready().await;
    let scan = scanner::scan(spec, &*source).await;
    context.telemetry.scan_ended(spec, &scan);
    scan
}
