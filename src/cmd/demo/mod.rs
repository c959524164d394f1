//! `demo`: real repositories with locks of every kind, made on the spot, kept alive, served, and
//! removed at the end.
#![allow(
    clippy::disallowed_methods,
    reason = "the demo writes its own folder and dates its own locks"
)]

use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use crate::app::{self, Failure};
use crate::cli::{Cli, Demo, Web};
use crate::config::{self, Config, Overrides};
use crate::web::{self, Listener};

use super::round::look_once;
use super::{check, print};

use writer::{Fields, Repository, Version};

#[doc(hidden)]
pub mod writer;

/// The password of every demo repository; they hold nothing.
const PASSWORD: &[u8] = b"demo";
/// As restic refreshes its locks.
const REFRESH: Duration = Duration::from_secs(5 * 60);
/// Where the demo is served.
const ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], crate::cli::PORT);

/// A lock that the demo keeps alive as a running restic would.
struct Live {
    repository: Repository,
    file: String,
    fields: Fields,
}

impl Live {
    fn refresh(&mut self) -> std::io::Result<()> {
        self.fields.time = Timestamp::now();
        self.file = self.repository.refresh(&self.file, &self.fields)?;
        Ok(())
    }
}

/// Makes the repositories, serves them until a signal, and removes them.
///
/// # Errors
/// [`Failure::Usage`] when repositories are named, for it makes its own; anything else when they
/// cannot be made or the address is taken.
pub async fn run(cli: &Cli, demo: &Demo) -> Result<(), Failure> {
    if !cli.watch.repositories.is_empty() || cli.watch.repository_file.is_some() {
        return Err(Failure::Usage(anyhow!(
            "demo makes its own repositories and looks at no others: leave out -r, or leave out \
             demo to serve that repository"
        )));
    }
    Ok(serve(cli, demo).await?)
}

async fn serve(cli: &Cli, demo: &Demo) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("lock_exporter-demo-")
        .tempdir()
        .context("cannot make a folder for the demo")?;
    let live = make(folder.path()).context("cannot make the demo's repositories")?;
    let _held = held_file(&folder.path().join("job.lock")).context("cannot lock a file")?;
    let config = configuration(folder.path())?;
    if demo.once {
        let context = app::context(app::machine(cli));
        let (done, _) = mpsc::unbounded_channel();
        let status = look_once(&config, &context, |_| true, None, done).await;
        return print(&check::prom(&status, &app::rules(&config))?);
    }
    // By default every address; a demo is nobody else's business unless it is asked for.
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, crate::cli::PORT));
    let addresses = match &cli.web.listen[..] {
        [address] if *address == everywhere => vec![ADDRESS.into()],
        given => given.to_vec(),
    };
    let web = Web { listen: addresses, ..cli.web.clone() };
    let doors = web::open(&web).await?;
    let refreshing = tokio::spawn(keep_alive(live));
    let address = doors.listeners.first().and_then(Listener::address).unwrap_or(ADDRESS.into());
    print(&words(folder.path(), address))?;
    let again = config.clone();
    let load = move || {
        let config = again.clone();
        Box::pin(async { Ok(config) }) as _
    };
    let context = app::context(app::machine(cli));
    let stop = app::signals()?;
    let served = app::run(cli, config, context, None, &load, doors, stop).await;
    refreshing.abort();
    folder.close().context("cannot remove the demo's folder")?;
    served
}

async fn keep_alive(mut live: Vec<Live>) {
    let mut ticks = tokio::time::interval(REFRESH);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        for lock in &mut live {
            if let Err(error) = lock.refresh() {
                tracing::warn!(%error, "a lock of the demo was not refreshed");
            }
        }
    }
}

fn make(folder: &Path) -> anyhow::Result<Vec<Live>> {
    std::fs::write(folder.join("password"), PASSWORD)?;
    let init = |name: &str, version: Version| {
        Repository::init(&folder.join(name), version, PASSWORD, Repository::CHEAP)
    };
    let holder = |host: &str, pid: i64, exclusive: bool, minutes: i64| Fields {
        time: Timestamp::now() - SignedDuration::from_mins(minutes),
        exclusive,
        hostname: host.into(),
        username: "backup".into(),
        pid,
        uid: 1000,
        gid: 1000,
    };
    init("free", Version::V2)?;
    let mut live = Vec::new();
    for (name, version, host, exclusive) in [
        ("live-shared", Version::V2, "web01", false),
        ("live-exclusive", Version::V1, "prune01", true),
    ] {
        let repository = init(name, version)?;
        let fields = holder(host, i64::from(std::process::id()), exclusive, 2);
        let file = repository.lock(&fields)?;
        live.push(Live { repository, file, fields });
    }
    // What a killed prune leaves behind: every backup is blocked until somebody unlocks.
    let stale = init("stale", Version::V2)?;
    let fields = holder("db01.example.org", 802_602, true, 47);
    let file = stale.lock(&fields)?;
    // Its file is as old as its time says; else it would look like a holder with a wrong clock.
    let path = stale.lock_folder().join(file);
    std::fs::File::open(path)?
        .set_modified(std::time::SystemTime::now() - Duration::from_secs(47 * 60))?;
    let unreadable = init("unreadable", Version::V2)?;
    unreadable.lock(&holder("web02", 4711, false, 1))?;
    unreadable.unreadable()?;
    init("empty", Version::V1)?.empty()?;
    // Nobody gave the password of this one: count and age can be told all the same.
    init("sealed", Version::V2)?.lock(&holder("nas", 99, false, 1))?;
    Ok(live)
}

/// A lock file as a cron job behind flock(1) has it; free again when the file is closed.
fn held_file(path: &Path) -> std::io::Result<std::fs::File> {
    let file = std::fs::File::create(path)?;
    file.lock()?;
    Ok(file)
}

fn configuration(folder: &Path) -> anyhow::Result<Config> {
    let mut text = String::from("scan: {interval: 10s, timeout: 5s}\ntargets:\n");
    for name in ["free", "live-shared", "live-exclusive", "stale", "unreadable", "empty", "sealed"]
    {
        let path = folder.join(name);
        let password = folder.join("password");
        let open =
            if name == "sealed" { String::new() } else { format!(", password_file: {password:?}") };
        text += &format!("  - {{name: {name}, restic: {{repository: {path:?}{open}}}}}\n");
    }
    let path = folder.join("job.lock");
    text += &format!("  - {{name: job, file: {{path: {path:?}}}}}\n");
    Ok(config::parse(&text, &Overrides::default(), "demo")?)
}

fn words(folder: &Path, address: SocketAddr) -> String {
    format!(
        "Seven repositories in restic's format and a locked file are in {folder} \
         (password: demo).\n\
         \n\
         \x20 http://{address}/          what is locked, by whom, since when, what to do\n\
         \x20 http://{address}/metrics   the same for Prometheus\n\
         \n\
         Try beside it: lock_exporter check -r {folder}/stale --password-file {folder}/password\n\
         \n\
         Ctrl-C ends it and removes the folder.\n",
        folder = folder.display(),
    )
}
