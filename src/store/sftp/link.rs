//! One ssh connection for all targets of one login: made by the first verb, shared, made anew when
//! it has died, closed when nobody has used it for a while.

#![allow(clippy::disallowed_methods, reason = "this module measures how long a link is idle")]

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use russh_sftp::client::error::Error as SftpError;
use russh_sftp::client::rawsession::SftpResult;
use russh_sftp::client::{Config, RawSftpSession};
use russh_sftp::protocol::Handle;
use tokio::runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::words::complaint;
use crate::store::fault::Fault;
use crate::store::program::{ProgramSpec, Running};

/// Longer than the usual interval of scans, so that a connection is not made for each.
const IDLE: Duration = Duration::from_secs(180);
/// Requests are given up by the time limit of their verb; this one only ends what it forgot.
const REQUEST_SECONDS_MAX: u64 = 3600;
/// OpenSSH sends at most 256 KiB.
const PACKET_BYTES_MAX: u32 = 512 * 1024;

/// A connection belongs to the runtime that made it.
type Key = (runtime::Id, ProgramSpec);

static LINKS: LazyLock<Mutex<HashMap<Key, Weak<Link>>>> = LazyLock::new(Mutex::default);

/// Handles open at the same time on one connection: servers refuse more than their limit on open
/// files allows.
const OPEN_MAX: usize = 32;

/// The way to one server with one login.
pub(super) struct Link {
    command: ProgramSpec,
    live: tokio::sync::Mutex<Option<Arc<Live>>>,
}

/// An open connection.
pub(super) struct Live {
    pub session: RawSftpSession,
    ssh: Running,
    handles: Arc<Semaphore>,
    made_at: Instant,
    /// Milliseconds after `made_at` at which something was last answered.
    answered: AtomicU64,
}

impl Live {
    fn answered(&self) {
        let now = u64::try_from(self.made_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.answered.store(now, Ordering::Relaxed);
    }

    fn answered_at(&self) -> Instant {
        self.made_at + Duration::from_millis(self.answered.load(Ordering::Relaxed))
    }
}

/// The link of a command line, the same for all who ask with the same.
pub(super) fn link(command: &ProgramSpec) -> Arc<Link> {
    let key = (runtime::Handle::current().id(), command.clone());
    let mut links = LINKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(link) = links.get(&key).and_then(Weak::upgrade) {
        return link;
    }
    let link = Arc::new(Link { command: command.clone(), live: tokio::sync::Mutex::default() });
    links.retain(|_, link| link.strong_count() > 0);
    links.insert(key, Arc::downgrade(&link));
    link
}

/// What a request ended with.
pub(super) enum Failure {
    /// The server's answer, or what it means.
    Fault(Fault),
    /// From the session: perhaps the end of it.
    Session(SftpError),
}

impl From<SftpError> for Failure {
    fn from(error: SftpError) -> Self {
        Failure::Session(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure::Fault(fault)
    }
}

impl Link {
    /// Runs requests on the connection. One that turns out to have died is made anew, once.
    pub(super) async fn run<T, W>(
        self: &Arc<Self>,
        work: impl Fn(Arc<Live>) -> W,
    ) -> Result<T, Failure>
    where
        W: Future<Output = Result<T, Failure>>,
    {
        loop {
            let (live, fresh) = self.live().await?;
            let given_up = GivenUp { link: self, live: &live, begun: Instant::now(), done: false };
            let result = work(live.clone()).await;
            given_up.done();
            match result {
                Err(Failure::Session(error)) if is_end(&error) => {
                    self.forget(&live).await;
                    if fresh {
                        return Err(epitaph(&live).await.into());
                    }
                }
                other => {
                    live.answered();
                    return other;
                }
            }
        }
    }

    /// The connection, and whether it was made just now.
    async fn live(self: &Arc<Self>) -> Result<(Arc<Live>, bool), Fault> {
        let mut live = self.live.lock().await;
        if let Some(live) = &*live {
            return Ok((live.clone(), false));
        }
        let (ssh, input, output) = self.command.start()?;
        let config = Config {
            max_packet_len: PACKET_BYTES_MAX,
            request_timeout_secs: REQUEST_SECONDS_MAX,
            ..Config::default()
        };
        let session = RawSftpSession::new_with_config(tokio::io::join(output, input), config);
        let made_at = Instant::now();
        let made = Arc::new(Live {
            session,
            ssh,
            handles: Arc::new(Semaphore::new(OPEN_MAX)),
            made_at,
            answered: AtomicU64::new(0),
        });
        if made.session.init().await.is_err() {
            return Err(epitaph(&made).await);
        }
        made.answered();
        *live = Some(made.clone());
        tokio::spawn(close_when_idle(Arc::downgrade(self), Arc::downgrade(&made)));
        Ok((made, true))
    }

    async fn forget(&self, dead: &Arc<Live>) {
        let mut live = self.live.lock().await;
        if live.as_ref().is_some_and(|live| Arc::ptr_eq(live, dead)) {
            *live = None;
        }
    }
}

/// A verb that is dropped before it ends was waiting for a server that may hang: if nobody got an
/// answer meanwhile, the connection is given up with it.
struct GivenUp<'a> {
    link: &'a Arc<Link>,
    live: &'a Arc<Live>,
    begun: Instant,
    done: bool,
}

impl GivenUp<'_> {
    fn done(mut self) {
        self.done = true;
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if self.done || self.live.answered_at() > self.begun {
            return;
        }
        let (link, live) = (self.link.clone(), self.live.clone());
        if let Ok(runtime) = runtime::Handle::try_current() {
            runtime.spawn(async move { link.forget(&live).await });
        }
    }
}

async fn close_when_idle(link: Weak<Link>, live: Weak<Live>) {
    loop {
        tokio::time::sleep(IDLE / 4).await;
        let (Some(link), Some(live)) = (link.upgrade(), live.upgrade()) else { return };
        if live.answered_at().elapsed() >= IDLE {
            link.forget(&live).await;
            return;
        }
    }
}

/// Whether the session has ended: there is no other way to ask.
fn is_end(error: &SftpError) -> bool {
    match error {
        SftpError::Status(_) | SftpError::Limited(_) => false,
        SftpError::IO(_)
        | SftpError::Timeout
        | SftpError::UnexpectedPacket
        | SftpError::UnexpectedBehavior(_) => true,
    }
}

async fn epitaph(live: &Live) -> Fault {
    let _ = live.session.close_session();
    complaint(&live.ssh.last_words().await)
}

/// A handle on the server, given back whatever happens to the verb.
pub(super) struct Open {
    live: Arc<Live>,
    pub handle: String,
    turn: Option<OwnedSemaphorePermit>,
}

impl Open {
    /// Opens something, once its turn has come.
    pub(super) async fn with<W>(
        live: &Arc<Live>,
        open: impl FnOnce(Arc<Live>) -> W,
    ) -> SftpResult<Self>
    where
        W: Future<Output = SftpResult<Handle>>,
    {
        // It is never closed; without a permit the request just goes uncounted.
        let turn = live.handles.clone().acquire_owned().await.ok();
        let handle = open(live.clone()).await?.handle;
        Ok(Self { live: live.clone(), handle, turn })
    }

    pub(super) fn session(&self) -> &RawSftpSession {
        &self.live.session
    }

    pub(super) fn live(&self) -> Arc<Live> {
        self.live.clone()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let (live, handle) = (self.live.clone(), std::mem::take(&mut self.handle));
        let turn = self.turn.take();
        if let Ok(runtime) = runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _held_until_it_is_closed = turn;
                let _: SftpResult<_> = live.session.close(handle).await;
            });
        }
    }
}
