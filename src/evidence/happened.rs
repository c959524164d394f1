//! What happened, in words.

use super::words::{in_words, plain, plain_up_to};
use crate::lock::Holder;
use crate::status::{Event, EventKind, Happening};

/// Why a configuration is refused is told by many errors at once.
const REFUSAL_CHARS_MAX: usize = 1_000;

/// One event: one sentence without an end mark, on one line, safe to print. It does not name its
/// target.
pub fn happened(event: &Event) -> String {
    match &event.what {
        Happening::Lock { kind, id, hold } => {
            let whose = match hold {
                Some((mode, holder)) => format!("{} lock of {}", mode.as_str(), who(holder)),
                None => format!("lock file {}", plain(&short(id.as_str()))),
            };
            let what = match kind {
                EventKind::Acquired => "was taken",
                EventKind::Refreshed => "was refreshed",
                EventKind::Released => "is gone",
                EventKind::VerdictChanged { stale: true } => "became stale",
                EventKind::VerdictChanged { stale: false } => "is alive again",
            };
            format!("{whose} {what}")
        }
        Happening::RemovedStale { files: 1 } => {
            "a stale lock file was removed: somebody ran unlock".to_string()
        }
        Happening::RemovedStale { files } => {
            format!("{files} stale lock files were removed: somebody ran unlock")
        }
        Happening::Blocked { mode, since } => {
            // As of the event, unlike everything around it.
            let before = event.at.duration_since(*since);
            match before.as_secs() {
                0..60 => format!("new {} locks are refused", mode.as_str()),
                _ => format!(
                    "new {} locks are refused, and had been for {}",
                    mode.as_str(),
                    in_words(before)
                ),
            }
        }
        Happening::Unblocked { mode, since: Some(since) } => format!(
            "new {} locks are granted again after {}",
            mode.as_str(),
            in_words(event.at.duration_since(*since))
        ),
        Happening::Unblocked { mode, since: None } => {
            format!("new {} locks are granted again", mode.as_str())
        }
        Happening::Untold { mode } => {
            format!("it could not be told whether new {} locks are refused", mode.as_str())
        }
        Happening::ScanFailing { error } => {
            format!(
                "cannot be scanned ({}): {}: {}",
                error.class.as_str(),
                error.doing,
                error.cause
            )
        }
        Happening::ScanRecovered { since } => {
            format!("can be scanned again after {}", in_words(event.at.duration_since(*since)))
        }
        Happening::Reloaded { targets } => format!("configuration reloaded: {targets} targets"),
        Happening::ReloadRefused { error } => {
            let errors: Vec<_> = error.lines().map(str::trim).collect();
            let errors = plain_up_to(REFUSAL_CHARS_MAX, &errors.join("; "));
            format!("configuration refused, the old one stays in use: {errors}")
        }
        Happening::ClockStepped { by } => {
            let side = if by.is_negative() { "back" } else { "forward" };
            format!("this machine's clock jumped {} {side}", in_words(*by))
        }
    }
}

/// `root@db01 (pid 4242)`, or the command of a lock file's holder.
pub fn who(holder: &Holder) -> String {
    let Holder { hostname, username, command, pid, .. } = holder;
    let name = |text: &str| if text.is_empty() { "unknown".into() } else { plain(text) };
    let pid = pid.map_or(String::new(), |pid| format!(" (pid {pid})"));
    match (command.is_empty(), username.is_empty() && hostname.is_empty()) {
        (false, _) => format!("{}{pid}", name(command)),
        (true, false) => format!("{}@{}{pid}", name(username), name(hostname)),
        (true, true) => format!("unknown{pid}"),
    }
}

/// restic shows the first ten digits of an id.
fn short(id: &str) -> String {
    id.chars().take(10).collect()
}
