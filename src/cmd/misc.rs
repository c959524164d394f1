//! The small commands: `healthcheck`, `completions`, `man`.
#![allow(clippy::disallowed_methods, reason = "healthcheck has a time limit")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::CommandFactory;
use clap_complete::Shell;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::print;
use crate::cli::{Cli, Web};
use crate::web;
use crate::web::guard::{self, Protection};

/// A healthy exporter answers at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the exporter that these flags start for its health: where it answers probes, if there is
/// such a place, else where it listens, with TLS if its web configuration has it. Nothing secret
/// is sent, so its certificate is not looked at; where a password is asked for, being asked for it
/// is health enough.
///
/// # Errors
/// When it does not answer that it is healthy.
pub async fn healthcheck(web: &Web) -> anyhow::Result<()> {
    let protection = match (&web.web_config, web.probe_listen) {
        (Some(file), None) => guard::check(file)?,
        (None, _) | (_, Some(_)) => Protection::default(),
    };
    if protection.client_certificate {
        bail!(
            "the exporter wants a certificate of whoever asks; give it --web.probe-listen-address, \
             and this command too"
        );
    }
    let address = web.probe_listen.or(web.listen.first().copied());
    let address = reachable(address.context("no address to ask")?);
    let asked = tokio::time::timeout(PATIENCE, ask(address, protection.tls.is_some())).await;
    let answer = asked
        .with_context(|| format!("{address} does not answer"))?
        .with_context(|| format!("cannot ask {address}"))?;
    let asked_for_password = !protection.users.is_empty() && answer.starts_with("HTTP/1.1 401 ");
    if !asked_for_password && !answer.starts_with("HTTP/1.1 200 ") {
        bail!("{address} answers: {}", answer.lines().next().unwrap_or_default());
    }
    Ok(())
}

async fn ask(address: SocketAddr, tls: bool) -> std::io::Result<String> {
    let stream = TcpStream::connect(address).await?;
    if !tls {
        return converse(stream).await;
    }
    let connector = TlsConnector::from(Arc::new(web::any_server()));
    converse(connector.connect(address.ip().into(), stream).await?).await
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<String> {
    stream
        .write_all(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    // A server may close without a word of TLS; what came counts.
    let ended = stream.take(4096).read_to_end(&mut answer).await;
    if answer.is_empty() {
        ended?;
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Whoever listens everywhere is asked on the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Prints the completions of a shell.
///
/// # Errors
/// When standard output is closed.
pub fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lock_exporter", &mut out);
    print(&String::from_utf8_lossy(&out))
}

/// Prints the manual page.
///
/// # Errors
/// When standard output is closed.
pub fn man() -> anyhow::Result<()> {
    let mut out = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut out)?;
    print(&String::from_utf8_lossy(&out))
}
