//! One round over all targets: what is searched first, then every one looked at once, with its key,
//! and nothing kept running.

use std::sync::Arc;

use futures_util::StreamExt;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::discovery;
use crate::roster::Roster;
use crate::scan::Scan;
use crate::scanner::{self, Open};
use crate::shard::Shard;
use crate::source::{self, Context};
use crate::state::Remembered;
use crate::status::Status;
use crate::target::TargetSpec;
use crate::tracker::Tracker;

/// Looks at every target of a configuration and at every one that its searches find and that is
/// `wanted`, as one who knows what an exporter `remembered`; `done` hears of each one that is
/// finished.
pub async fn look_once(
    config: &Config,
    context: &Context,
    wanted: impl Fn(&TargetSpec) -> bool,
    remembered: Option<Remembered>,
    done: mpsc::UnboundedSender<Arc<TargetSpec>>,
) -> Status {
    let roster = Arc::new(Roster::new(config.targets.clone(), Shard::default()));
    let open = discovery::opener(&roster);
    let mut tracker = Tracker::new(source::policy, config.scan.hold);
    if let Some(Remembered { saved, traces }) = remembered {
        tracker.restore(saved);
        context.machine.traces.restore(traces);
        // The clock may have been set since.
        let (wall, boot) = scanner::moment();
        tracker.clock(wall, boot);
    }
    let lane = config.scan.concurrency.max(1);
    let searches = roster.targets();
    let searches = searches.iter().filter(|spec| spec.search().is_some()).cloned().collect();
    let searched = look_at_each(searches, context, &open, &done, lane).await;
    let is_wanted = |spec: &&Arc<TargetSpec>| {
        config.targets.iter().any(|known| known.name == spec.name) || wanted(spec)
    };
    let targets = roster.targets().iter().filter(is_wanted).cloned().collect();
    tracker.retarget(&targets);
    let others = targets.iter().filter(|spec| spec.search().is_none()).cloned().collect();
    let looked = look_at_each(others, context, &open, &done, lane).await;
    for scan in searched.into_iter().chain(looked) {
        tracker.apply(scan);
    }
    tracker.status()
}

async fn look_at_each(
    specs: Vec<Arc<TargetSpec>>,
    context: &Context,
    open: &Open,
    done: &mpsc::UnboundedSender<Arc<TargetSpec>>,
    lane: usize,
) -> Vec<Scan> {
    let scans = futures_util::stream::iter(specs).map(|spec| {
        let (context, open, done) = (context.clone(), open.clone(), done.clone());
        async move {
            let scan = look_at(&spec, &context, &open).await;
            // Whoever listened may have lost interest.
            let _ = done.send(spec);
            scan
        }
    });
    scans.buffer_unordered(lane).collect().await
}

async fn look_at(spec: &Arc<TargetSpec>, context: &Context, open: &Open) -> Scan {
    let source = open(spec, context);
    source.ready().await;
    let scan = scanner::scan(spec, &*source).await;
    context.telemetry.scan_ended(spec, &scan);
    scan
}
