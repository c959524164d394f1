//! From a listening socket to a request: accepting, TLS, HTTP/1.1, time limits, draining. What a
//! request is answered is not known here.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::body::Answer;
use super::guard::{Broken, Guard};
use super::listen::{Doors, Listener, Socket};
use super::seat::{LOOK, Seat, Seats, Watched};
use super::{Site, entry};

/// Connections open at once, when the process may have enough files open.
const CONNECTIONS_MAX: u64 = 512;
/// And at least so many.
const CONNECTIONS_MIN: u64 = 16;
/// Connections of probes open at once.
const PROBES_MAX: u16 = 32;
/// Largest request head that is read; larger ones are answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Time for running requests to end when the server stops.
pub const DRAIN: Duration = Duration::from_secs(9);
/// Time after a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// Whom a connection came in by.
#[derive(Clone, Debug)]
pub enum Door {
    /// The one for everybody, with the TLS that was agreed on.
    Guarded(Arc<Guard>, Option<Arc<ServerConfig>>),
    /// The one for probes.
    Probe,
}

/// Serves until `site.stopping` says so, then lets running requests end.
pub async fn serve(doors: Doors, site: Arc<Site>) {
    let seats = Seats::new(seats_max());
    let probes = Seats::new(PROBES_MAX);
    let mut servers = Vec::new();
    for listener in doors.listeners {
        let door = Door::Guarded(doors.guard.clone(), None);
        servers.push(tokio::spawn(accept(listener, door, site.clone(), seats.clone())));
    }
    for listener in doors.probes {
        let listener = Listener::Tcp(listener);
        servers.push(tokio::spawn(accept(listener, Door::Probe, site.clone(), probes.clone())));
    }
    futures_util::future::join_all(servers).await;
}

/// Half of the files that may be open are for scans and all else.
fn seats_max() -> u16 {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let seats = files.map_or(CONNECTIONS_MAX, |files| files / 2);
    // Within 512, so it fits.
    u16::try_from(seats.clamp(CONNECTIONS_MIN, CONNECTIONS_MAX)).unwrap_or(u16::MAX)
}

async fn accept(listener: Listener, door: Door, site: Arc<Site>, seats: Arc<Seats>) {
    let mut stopping = site.stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopping.wait_for(|stopping| *stopping) => break,
        };
        match accepted {
            Ok(socket) => seat(socket, &door, &site, &seats).await,
            Err(error) => {
                // Out of descriptors, usually; the listener is fine.
                tracing::warn!(%error, "connection not accepted");
                seats.take_some_back();
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    // Who was let in by the kernel before may have asked already.
    for _ in 0..CONNECTIONS_MAX {
        let Some(Ok(socket)) = listener.accept().now_or_never() else { break };
        seat(socket, &door, &site, &seats).await;
    }
    drop(listener);
    let _ = tokio::time::timeout(DRAIN, seats.empty()).await;
}

async fn seat(socket: Box<dyn Socket>, door: &Door, site: &Arc<Site>, seats: &Arc<Seats>) {
    let taken = seats.take().await;
    let (site, door) = (site.clone(), door.clone());
    tokio::spawn(async move {
        attend(socket, door, site, &taken.seat).await;
    });
}

/// One connection from its first byte to its last.
async fn attend(socket: Box<dyn Socket>, door: Door, site: Arc<Site>, seat: &Arc<Seat>) {
    let Door::Guarded(guard, _) = &door else {
        return converse(Watched::new(socket, seat.clone()), door, site, seat).await;
    };
    // Who says nothing costs no look at the web configuration.
    let speaks = poll_fn(|context| socket.poll_ready(context));
    let Some(Ok(())) = within(seat, site.stopping.clone(), speaks).await else { return };
    let now = guard.now().await;
    // Below TLS, so that every byte counts as one.
    let socket = Watched::new(socket, seat.clone());
    match now {
        Ok(protection) => match protection.tls.clone() {
            None => converse(socket, door, site, seat).await,
            Some(tls) => {
                seat.handshakes();
                let acceptor = TlsAcceptor::from(tls.clone());
                let stopping = site.stopping.clone();
                let Some(done) = within(seat, stopping, acceptor.accept(socket)).await else {
                    return;
                };
                match done {
                    Ok(socket) => {
                        seat.is_open();
                        let door = Door::Guarded(guard.clone(), Some(tls));
                        converse(socket, door, site, seat).await;
                    }
                    Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                }
            }
        },
        // Whoever speaks TLS here would take anything else for an attack.
        Err(Broken { tls: true }) => {}
        Err(Broken { tls: false }) => converse(socket, door, site, seat).await,
    }
}

/// The result, unless a limit passes, the seat is taken back or the server stops before.
async fn within<T>(
    seat: &Seat,
    mut stopping: watch::Receiver<bool>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            // What has come counts, also at the end.
            biased;
            done = &mut work => return Some(done),
            () = seat.taken_back() => return None,
            _ = stopping.wait_for(|stopping| *stopping) => return None,
            () = tokio::time::sleep(LOOK) => if seat.is_over() { return None },
        }
    }
}

async fn converse(
    socket: impl AsyncRead + AsyncWrite + Unpin + Send,
    door: Door,
    site: Arc<Site>,
    seat: &Arc<Seat>,
) {
    let mut stopping = site.stopping.clone();
    let speaker = seat.clone();
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // hyper would count the rest between two requests in; the seat has limits for both.
        .header_read_timeout(None)
        // Who has nothing more to say, as `nc -N`, still wants the answer.
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(
            TokioIo::new(socket),
            service_fn(move |request: Request<Incoming>| {
                let (site, door, seat) = (site.clone(), door.clone(), speaker.clone());
                async move {
                    seat.answers();
                    let response = entry::answer(&site, &door, &request).await;
                    seat.writes(response.status().is_success());
                    Ok::<Response<Answer>, Infallible>(response.map(|body| body.on(&seat)))
                }
            }),
        );
    let mut connection = std::pin::pin!(connection);
    let mut asked_to_end = false;
    loop {
        tokio::select! {
            // A request that has come is taken before the end is.
            biased;
            // A client's own faults (resets, bad requests) are nobody's news.
            _ = &mut connection => return,
            () = seat.taken_back() => return,
            _ = stopping.wait_for(|stopping| *stopping), if !asked_to_end => {
                if seat.is_unasked() {
                    return;
                }
                asked_to_end = true;
                connection.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(LOOK) => if seat.is_over() { return },
        }
    }
}
