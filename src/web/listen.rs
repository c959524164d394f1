//! Where the server listens: addresses, sockets that systemd opened, and a place for probes.
#![allow(clippy::disallowed_methods, reason = "systemd passes sockets through the environment")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use listenfd::ListenFd;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use super::guard::Guard;
use crate::cli::Web;

/// Everything that is listened on, and who watches over it.
#[derive(Debug)]
pub struct Doors {
    /// For everybody whom the guard lets in.
    pub listeners: Vec<Listener>,
    /// For `/-/healthy` and `/-/ready` alone, without TLS and password.
    pub probes: Vec<TcpListener>,
    /// Watches over the listeners.
    pub guard: Arc<Guard>,
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// TCP
    Tcp(TcpListener),
    /// A Unix socket, as only systemd passes.
    Unix(UnixListener),
}

/// Something that bytes come from and go to.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// As `accept(2)`.
    pub async fn accept(&self) -> std::io::Result<Box<dyn Socket>> {
        Ok(match self {
            Listener::Tcp(listener) => Box::new(listener.accept().await?.0),
            Listener::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }

    /// The address, when it is one that a browser could be given.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            Listener::Unix(_) => None,
        }
    }
}

/// Opens every door that the flags name, before anything else happens.
///
/// # Errors
/// The address that cannot be listened on, or what is wrong with the web configuration.
pub async fn open(web: &Web) -> anyhow::Result<Doors> {
    let guard = Arc::new(Guard::new(web.web_config.as_deref())?);
    let listeners = if web.systemd_socket {
        passed()?
    } else {
        bind(&web.listen, "--web.listen-address").await?
    };
    let probes = bind(web.probe_listen.as_slice(), "--web.probe-listen-address").await?;
    let tls = guard.now().is_ok_and(|protection| protection.tls.is_some());
    for listener in &listeners {
        match listener {
            Listener::Tcp(listener) => {
                tracing::info!(tls, address = %listener.local_addr()?, "listening");
            }
            Listener::Unix(_) => tracing::info!(tls, "listening on a Unix socket"),
        }
    }
    let mut only_probes = Vec::new();
    for listener in probes {
        if let Listener::Tcp(listener) = listener {
            tracing::info!(probe_address = %listener.local_addr()?, "listening for probes");
            only_probes.push(listener);
        }
    }
    Ok(Doors { listeners, probes: only_probes, guard })
}

/// Listens on each address.
async fn bind(addresses: &[SocketAddr], flag: &str) -> anyhow::Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = match TcpListener::bind(address).await {
            // A kernel without IPv6 still has every IPv4 address.
            Err(error)
                if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
                    && *address == SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port())) =>
            {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        };
        let listener = listener
            .with_context(|| format!("cannot listen on {address}; choose another with {flag}"))?;
        listeners.push(Listener::Tcp(listener));
    }
    Ok(listeners)
}

/// The sockets that systemd opened for us (`sd_listen_fds(3)`).
fn passed() -> anyhow::Result<Vec<Listener>> {
    let mut sockets = ListenFd::from_env();
    let mut listeners = Vec::new();
    for index in 0..sockets.len() {
        // A socket of the wrong kind is refused, and can then be taken as the other one.
        if let Ok(Some(socket)) = sockets.take_tcp_listener(index) {
            socket.set_nonblocking(true).context("cannot use a socket from systemd")?;
            listeners.push(Listener::Tcp(TcpListener::from_std(socket)?));
        } else if let Ok(Some(socket)) = sockets.take_unix_listener(index) {
            socket.set_nonblocking(true).context("cannot use a socket from systemd")?;
            listeners.push(Listener::Unix(UnixListener::from_std(socket)?));
        } else {
            bail!("socket {index} from systemd is no listening stream socket (ListenStream=)");
        }
    }
    if listeners.is_empty() {
        bail!(
            "--web.systemd-socket, but systemd passed no socket: start this through its .socket \
             unit, or without the flag"
        );
    }
    Ok(listeners)
}
