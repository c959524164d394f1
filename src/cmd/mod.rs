//! The commands beside serving, over the same parts as the server.

pub mod check;
pub mod demo;
pub mod misc;
mod round;

use std::io::Write;

use anyhow::Context as _;

/// Prints to standard output. Whoever reads may stop reading, as `head` does; that is no failure.
///
/// # Errors
/// When it cannot be written for another reason.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
