//! Where the server listens: addresses, sockets that systemd opened, and a place for probes.
#![allow(clippy::disallowed_methods, reason = "systemd passes sockets through the environment")]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, bail};
use listenfd::ListenFd;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::guard::Guard;
use crate::cli::Web;
use crate::label;
use crate::proc::listener::{self, Listens};

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
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send + Sync {
    /// Ready when there is something to read, were it the end. Nothing is read.
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Socket for TcpStream {
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(context)
    }
}

impl Socket for UnixStream {
    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(context)
    }
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// As `accept(2)`.
    pub async fn accept(&self) -> io::Result<Box<dyn Socket>> {
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
    let tls = guard.last().is_ok_and(|protection| protection.tls.is_some());
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
        let listener = listener.with_context(|| {
            let who = taken_by(address.port());
            format!("cannot listen on {address}; choose another with {flag}{who}")
        })?;
        listeners.push(Listener::Tcp(listener));
    }
    Ok(listeners)
}

/// Who has the port, or how to find out; nothing when nobody has it.
fn taken_by(port: u16) -> String {
    match listener::of_port(Path::new("/proc"), port) {
        Listens::Nobody => String::new(),
        Listens::Process { pid, name } => {
            let name = label::shortened(&name, 64);
            format!(", or end what listens there: {name} (pid {pid})")
        }
        Listens::Unseen => {
            format!(", or end what listens there, which root can see: ss -ltnp 'sport = :{port}'")
        }
    }
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
