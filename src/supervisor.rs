//! Tells systemd how we are (`sd_notify(3)`): ready, reloading, stopping, and alive for as long as
//! the exporter's own loops turn. Without systemd nothing is said. What they do is not known here.
#![allow(clippy::disallowed_methods, reason = "a watchdog measures time")]

use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tokio::sync::watch;

/// The tracker turns at least every few seconds; a shorter silence of it is no fault.
const SILENCE_MIN: Duration = Duration::from_secs(15);

/// The exporter answers from now on; also after a reload.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// A configuration is being read; [`ready`] ends that.
pub fn reloading() {
    // systemd 253 and newer want to know when, to tell this reload from the one before.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// The exporter ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not told");
    }
}

/// Pings systemd's watchdog, if there is one, while `turns` changes: it does with every turn of
/// the tracker. When that stands still, no ping comes and systemd starts us anew.
pub async fn feed_watchdog<T: Clone + Send + Sync>(mut turns: watch::Receiver<T>) {
    let Some(limit) = sd_notify::watchdog_enabled() else { return };
    let every = limit / 3;
    let silence = (limit / 2).max(SILENCE_MIN);
    let mut turned = Instant::now();
    let mut ticks = tokio::time::interval(every.max(Duration::from_millis(10)));
    loop {
        ticks.tick().await;
        match turns.has_changed() {
            Ok(true) => {
                turns.mark_unchanged();
                turned = Instant::now();
            }
            Ok(false) => {}
            Err(_) => return,
        }
        if turned.elapsed() <= silence {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("the tracker stands still; systemd's watchdog is not fed");
        }
    }
}
