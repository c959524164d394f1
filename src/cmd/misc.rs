//! The small commands: `healthcheck`, `completions`, `man`.
#![allow(clippy::disallowed_methods, reason = "healthcheck has a time limit")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::CommandFactory;
use clap_complete::Shell;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::print;
use crate::cli::Cli;

/// A healthy exporter answers at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the exporter that listens where this command line says for its health.
///
/// # Errors
/// When it does not answer that it is healthy.
pub async fn healthcheck(listen: &[SocketAddr]) -> anyhow::Result<()> {
    let address = reachable(*listen.first().context("no address to ask")?);
    let asked = tokio::time::timeout(PATIENCE, ask(address)).await;
    let answer = asked
        .with_context(|| format!("{address} does not answer"))?
        .with_context(|| format!("cannot ask {address}"))?;
    if !answer.starts_with("HTTP/1.1 200 ") {
        bail!("{address} answers: {}", answer.lines().next().unwrap_or_default());
    }
    Ok(())
}

async fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).await?;
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
