//! Wires everything: makes the one [`Context`], runs scanner, tracker and server until it is told
//! to stop. What is to be run is read by `configured`.
#![allow(
    clippy::disallowed_methods,
    reason = "the edge of the process: environment, configuration files and the clock are read here"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use prometheus::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

mod changes;
mod configured;

pub use configured::{check, configuration, of_repositories, of_web};

use crate::cli::Cli;
use crate::config::Config;
use crate::discovery;
use crate::exposition::metrics::{Exporter, Rules};
use crate::proc::machine::{Machine, MachineSpec};
use crate::proc::process::Programs;
use crate::proc::procfs::Procfs;
use crate::reload::{Load, Refused, Reloader, Settings, Wish};
use crate::roster::Roster;
use crate::scan::Scan;
use crate::scanner::{Scanner, moment};
use crate::source::restic::derivation::DerivationBudget;
use crate::source::{self, Context, SOURCES};
use crate::state::{Remembered, State, StateError};
use crate::status::{ClockStep, MachineStatus, Status};
use crate::store::BACKENDS;
use crate::supervisor;
use crate::target::{TargetSet, TargetSpec};
use crate::telemetry::Telemetry;
use crate::tracker::Tracker;
use crate::web::guard::Guard;
use crate::web::{self, Doors, Site};

/// Scans on their way to the tracker; scanners wait when it is full.
const SCANS_QUEUED: usize = 256;
/// So often is looked whether the clock was stepped, also when nothing is scanned.
const CLOCK_EVERY: Duration = Duration::from_secs(5);

/// The machine itself is looked at this often.
const LOOK_AT_MACHINE_EVERY: Duration = Duration::from_secs(15);
/// What is remembered is written down this often, while there is something new.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// How long the end of the process waits for that.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// How a command ends when it does not succeed.
#[derive(Debug)]
pub enum Failure {
    /// It was called wrongly.
    Usage(anyhow::Error),
    /// Another instance has what only one can have.
    Taken(anyhow::Error),
    /// Anything else.
    Other(anyhow::Error),
}

impl Failure {
    /// The error in words, whatever its kind.
    pub fn into_error(self) -> anyhow::Error {
        match self {
            Failure::Usage(error) | Failure::Taken(error) | Failure::Other(error) => error,
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::Other(error)
    }
}

/// What the flags say about this machine.
pub fn machine(cli: &Cli) -> MachineSpec {
    let flags = &cli.machine;
    let own = std::iter::once(configured::host_name(&cli.watch));
    MachineSpec {
        names: own.chain(flags.host_alias.iter().cloned()).map(Into::into).collect(),
        unique: flags.host_name_unique,
        evidence: !flags.no_evidence,
        show_holders: flags.process,
        programs: Programs { others: flags.programs.clone() },
        procfs: Procfs::new(&flags.procfs),
        rootfs: flags.rootfs.clone(),
        ..MachineSpec::unknown()
    }
}

/// What the whole process shares.
pub fn context(machine: MachineSpec) -> Context {
    let sources: Vec<_> = SOURCES.iter().map(|source| source.name).collect();
    let backends: Vec<_> = BACKENDS.iter().map(|backend| backend.name).collect();
    Context {
        telemetry: Arc::new(Telemetry::new(&sources, &backends)),
        derivations: Arc::new(DerivationBudget::of_this_machine()),
        machine: Arc::new(Machine::new(machine)),
    }
}

/// The state folder that the flags name, taken.
///
/// # Errors
/// [`Failure::Taken`] when another instance has it; anything else when nobody can have it.
pub fn state(cli: &Cli, context: &Context) -> Result<Option<State>, Failure> {
    let Some(folder) = &cli.machine.state_dir else {
        tracing::info!("no --state.dir: what is remembered of holds ends with this process");
        return Ok(None);
    };
    match State::take(folder, &context.machine.spec.procfs) {
        Ok(state) => Ok(Some(state)),
        Err(error @ StateError::Taken { .. }) => Err(Failure::Taken(error.into())),
        Err(error @ StateError::Unusable { .. }) => Err(Failure::Other(error.into())),
    }
}

/// How metrics of this configuration are rendered.
pub fn rules(config: &Config) -> Rules {
    Rules {
        hold: config.scan.hold,
        labels: config.labels.clone(),
        sources: SOURCES.iter().map(|source| source.name).collect(),
    }
}

/// Label pairs of `lock_exporter_build_info`.
pub fn build() -> Vec<(&'static str, &'static str)> {
    vec![
        ("version", env!("CARGO_PKG_VERSION")),
        ("revision", env!("LOCK_EXPORTER_REVISION")),
        ("branch", env!("LOCK_EXPORTER_BRANCH")),
        ("rustversion", env!("LOCK_EXPORTER_RUSTC")),
        ("target_os", std::env::consts::OS),
        ("target_arch", std::env::consts::ARCH),
    ]
}

/// Serves until `shutdown` ends: listens first, then scans, follows reloads, then drains.
///
/// # Errors
/// When the exporter's own metrics or signals cannot be set up.
pub async fn run<'a>(
    cli: &Cli,
    config: Config,
    context: Context,
    state: Option<State>,
    load: &'a Load<'a>,
    doors: Doors,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let web = &cli.web;
    // Ours until the end of this function, whatever the tasks do.
    let state = state.map(Arc::new);
    let roster = Arc::new(Roster::new(config.targets.clone(), config.shard));
    let following = roster.follow();
    let (scans, arriving) = mpsc::channel(SCANS_QUEUED);
    // The first scrape sees every target, and none of them looked at.
    let mut tracker = remembering(state.as_deref(), config.scan.hold, &context.machine);
    tracker.retarget(&following.borrow());
    let (publish, status) = watch::channel(tracker.status());
    let (machine, machine_now) = watch::channel(MachineStatus::default());
    let (stop, stopping) = watch::channel(false);
    let (reload, mut reloads) = mpsc::channel(1);
    let (settings, settings_now) = watch::channel(Settings {
        rules: Arc::new(rules(&config)),
        exporter: Exporter {
            build: build(),
            reload_successful: true,
            reload_success_at: Timestamp::now(),
            shard: config.shard.ordinal(),
            total_shards: config.shard.total(),
        },
        config: Arc::new(config.clone()),
        refused: None,
    });
    let open = discovery::opener(&roster);
    let scanner = Scanner::new(context.clone(), open, config.scan.concurrency, scans);
    let process = Registry::new();
    process.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
    let guard = doors.guard.clone();
    let site = Arc::new(Site {
        status,
        settings: settings_now.clone(),
        telemetry: context.telemetry.clone(),
        machine: machine_now,
        process,
        renderer: web::render::Renderer::start().context("cannot start a thread")?,
        pages: web::render::Renderer::start().context("cannot start a thread")?,
        waiting: scanner.waiting(),
        roster: roster.clone(),
        prefix: web.prefix(),
        external_path: web.external_path(),
        telemetry_path: web.telemetry_path.clone(),
        scrapes: (web.max_requests > 0).then(|| Arc::new(Semaphore::new(web.max_requests.into()))),
        kept: std::sync::Mutex::default(),
        page: tokio::sync::Mutex::default(),
        overview: std::sync::Mutex::default(),
        ready_from: Instant::now() + web.ready_timeout,
        reload: web.enable_lifecycle.then_some(reload),
        stopping: stopping.clone(),
    });
    let looking = tokio::spawn(look_at_machine(context.machine.clone(), machine));
    let watchdog = tokio::spawn(supervisor::feed_watchdog(site.status.clone()));
    let server = tokio::spawn(web::serve(doors, site));
    let tracking = tokio::spawn(track(Tracking {
        tracker,
        state: state.clone(),
        machine: context.machine.clone(),
        settings: settings_now,
        targets: following.clone(),
        scans: arriving,
        publish,
        stopping: stopping.clone(),
    }));
    let scanning = tokio::spawn(scanner.run(following));
    log_start(&config);
    let mut reloader = Reloader { load, rules, current: config, roster, settings };
    let mut watch = changes::Watch::new(cli);
    watch.learn(&reloader.current, &guard).await;
    let mut hangups = signal(SignalKind::hangup())?;
    let mut shutdown = std::pin::pin!(shutdown);
    supervisor::ready();
    loop {
        let wish: Option<Wish> = tokio::select! {
            () = &mut shutdown => break,
            () = watch.changed(&reloader.current, &guard) => None,
            _ = hangups.recv() => None,
            Some(wish) = reloads.recv() => Some(wish),
        };
        let result = tokio::select! {
            () = &mut shutdown => break,
            result = reload_now(&mut reloader, &mut watch, &guard) => result,
        };
        // Without a wish the result is in metric and log; whoever had one may have hung up.
        let _ = wish.map(|wish| wish.send(result));
    }
    tracing::info!("stopping");
    supervisor::stopping();
    stop.send_replace(true);
    scanning.abort();
    looking.abort();
    watchdog.abort();
    if server.await.is_err() {
        tracing::error!("the server ended with a fault");
    }
    if tracking.await.is_err() {
        tracing::error!("the tracker ended with a fault");
    }
    Ok(())
}

async fn reload_now(
    reloader: &mut Reloader<'_>,
    watch: &mut changes::Watch<'_>,
    guard: &Guard,
) -> Result<(), String> {
    supervisor::reloading();
    let result = reloader.reload(Timestamp::now()).await;
    watch.learn(&reloader.current, guard).await;
    supervisor::ready();
    result
}

fn log_start(config: &Config) {
    let a_day = |interval: Duration| 86_400.0 / interval.as_secs_f64();
    let searches = config.targets.iter().filter(|target| target.search().is_some()).count();
    // Lock files of this machine cost nothing.
    let repositories = config.targets.iter().filter(|target| !target.backend().is_empty());
    let listings = |interval: fn(&TargetSpec) -> Duration| {
        repositories.clone().map(|target| a_day(interval(target))).sum::<f64>().round() as u64
    };
    let (most, least) =
        (listings(|it| it.interval), listings(|it| it.idle().unwrap_or(it.interval)));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        revision = env!("LOCK_EXPORTER_REVISION"),
        targets = config.targets.len() - searches,
        searches,
        listings_a_day = most,
        listings_a_day_without_locks = (least < most).then_some(least),
        "started; target names must be unique in the whole fleet"
    );
    if config.shard.total() > 1 {
        let (shard, total_shards) = (config.shard.ordinal(), config.shard.total());
        tracing::info!(shard, total_shards, "targets are shared among exporters by their names");
    }
    if searches > 0 {
        tracing::info!("{}; what is found is watched as well", configured::searched(searches));
    }
    if rustix::process::geteuid().is_root() {
        tracing::warn!("running as root; reading repositories needs no more than their user");
    }
}

/// Looks at the machine itself from time to time, and says once what may not be seen of it.
async fn look_at_machine(machine: Arc<Machine>, publish: watch::Sender<MachineStatus>) {
    let mut ticks = tokio::time::interval(LOOK_AT_MACHINE_EVERY);
    let mut told = false;
    loop {
        ticks.tick().await;
        let machine = machine.clone();
        let Ok(status) = tokio::task::spawn_blocking(move || machine.status()).await else {
            continue;
        };
        let missing: Vec<_> =
            status.capabilities.iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect();
        if !missing.is_empty() && !told {
            told = true;
            tracing::info!(
                missing = missing.join(" "),
                "some of what proves who holds a lock of this machine may not be seen; \
                 docs/file-locks.md says how to grant it"
            );
        }
        publish.send_replace(status);
    }
}

/// A tracker that knows what another process remembered, and so does the machine.
fn remembering(state: Option<&State>, hold: Duration, machine: &Machine) -> Tracker {
    let mut tracker = Tracker::new(source::policy, hold);
    if let Some(state) = state {
        let (remembered, told) = state.load();
        if let Some(told) = told {
            tracing::warn!("{told}");
        }
        if let Some(Remembered { saved, traces }) = remembered {
            tracker.restore(saved);
            machine.traces.restore(traces);
        }
    }
    tracker
}

/// What the owner of the tracker works with.
struct Tracking {
    tracker: Tracker,
    state: Option<Arc<State>>,
    machine: Arc<Machine>,
    settings: watch::Receiver<Settings>,
    targets: watch::Receiver<TargetSet>,
    scans: mpsc::Receiver<Scan>,
    publish: watch::Sender<Status>,
    stopping: watch::Receiver<bool>,
}

/// Owns the tracker: takes scans in, follows the set of targets, publishes the picture, and
/// writes down what is remembered, from time to time and at the end.
async fn track(mut on: Tracking) {
    let mut batch = Vec::new();
    let mut written = Instant::now();
    let mut writing: Option<JoinHandle<()>> = None;
    let mut ticks = tokio::time::interval(CLOCK_EVERY);
    loop {
        follow_clock(&mut on.tracker);
        on.publish.send_replace(on.tracker.status());
        // Nobody waits for a disk here, which may be slow or hang; then no second writer is sent.
        let ended = writing.as_ref().is_none_or(JoinHandle::is_finished);
        if ended && written.elapsed() >= WRITE_EVERY {
            written = Instant::now();
            writing = Some(tokio::spawn(remember(&on)));
        }
        tokio::select! {
            _ = ticks.tick() => {}
            Ok(()) = on.settings.changed() => {
                let settings = on.settings.borrow_and_update().clone();
                on.tracker.hold_for(settings.rules.hold);
                match settings.refused {
                    Some(Refused { at, error }) => on.tracker.reloaded(at, Err(error)),
                    None => {
                        let at = settings.exporter.reload_success_at;
                        on.tracker.reloaded(at, Ok(settings.config.targets.len()));
                    }
                }
            }
            changed = on.targets.changed() => {
                if changed.is_err() {
                    break;
                }
                let set = on.targets.borrow_and_update().clone();
                on.tracker.retarget(&set);
            }
            taken = on.scans.recv_many(&mut batch, SCANS_QUEUED) => {
                if taken == 0 {
                    break;
                }
                // A search tells of its finds before its scan ends, so they are known first.
                if let Ok(true) = on.targets.has_changed() {
                    let set = on.targets.borrow_and_update().clone();
                    on.tracker.retarget(&set);
                }
                follow_clock(&mut on.tracker);
                for scan in batch.drain(..) {
                    on.tracker.apply(scan);
                }
            }
            _ = on.stopping.wait_for(|stopping| *stopping) => break,
        }
    }
    let last = async {
        if let Some(writing) = writing {
            // What went wrong with it is in the log.
            let _ = writing.await;
        }
        remember(&on).await;
    };
    if tokio::time::timeout(LAST_WRITE, last).await.is_err() {
        tracing::warn!("the state folder does not answer; what was written last stays in it");
    }
}

/// Writes down what is remembered now.
fn remember(on: &Tracking) -> impl Future<Output = ()> + use<> {
    let store = on.state.clone().map(|state| {
        let (saved, machine) = (on.tracker.save(), on.machine.clone());
        move || state.store(Remembered { saved, traces: machine.traces.save() })
    });
    async {
        let Some(store) = store else { return };
        match tokio::task::spawn_blocking(store).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "what is remembered was not written down"),
            Err(error) => tracing::error!(%error, "what is remembered was not written down"),
        }
    }
}

/// Tells the tracker what time it is, so that it notices when the clock is stepped.
fn follow_clock(tracker: &mut Tracker) {
    let (wall, boot) = moment();
    if let Some(by) = tracker.clock(wall, boot) {
        tracing::warn!(
            seconds = by.as_secs_f64(),
            "this machine's clock was stepped; times in memory follow it, ages by the clocks of \
             lock holders and storages are not reliable for {} minutes",
            ClockStep::SPOILS.as_mins()
        );
    }
}

/// Ends at the first SIGTERM or SIGINT; a second one ends the process at once.
///
/// # Errors
/// When signals cannot be listened for.
pub fn signals() -> anyhow::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        tokio::spawn(async move {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            std::process::exit(1);
        });
    })
}
