//! `demo`: real repositories with locks of every kind, served.

use crate::cli::Demo;

/// Runs until it is stopped.
///
/// # Errors
/// When the repositories cannot be made.
pub async fn run(_demo: &Demo) -> anyhow::Result<()> {
    Ok(())
}
