//! Keys on their way: how many repositories still wait for theirs, and what the log says of it.
//!
//! With thousands of repositories the last key comes minutes after the start; whoever looks into
//! the log meanwhile must see that it goes on. What a key opens is not known here.
#![allow(clippy::disallowed_methods, reason = "progress is told from time to time")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus::IntGauge;

/// Progress is told this often.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// All keys that are wanted now.
#[derive(Clone)]
pub(super) struct Keys {
    wanted: IntGauge,
    round: Arc<Mutex<Option<Round>>>,
}

/// From the first key that is wanted to the moment in which none is.
struct Round {
    began: Instant,
    told: Option<Instant>,
    ended: u64,
}

/// One repository waits for its key, until this is dropped.
pub struct KeyWanted(Keys);

impl Keys {
    pub fn new(wanted: IntGauge) -> Self {
        Self { wanted, round: Arc::default() }
    }

    pub fn want(&self) -> KeyWanted {
        let mut round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        round.get_or_insert_with(|| Round { began: Instant::now(), told: None, ended: 0 });
        self.wanted.inc();
        KeyWanted(self.clone())
    }
}

impl Drop for KeyWanted {
    fn drop(&mut self) {
        let Keys { wanted, round } = &self.0;
        let mut round = round.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.dec();
        let Some(it) = &mut *round else { return };
        it.ended += 1;
        let (ended, waiting) = (it.ended, wanted.get());
        if waiting == 0 {
            // What was quick is nobody's news, unless its beginning was told.
            if it.told.is_some() {
                let took_seconds = it.began.elapsed().as_secs_f64();
                tracing::info!(keys = ended, took_seconds, "no repository waits for its key");
            }
            *round = None;
        } else if it.told.unwrap_or(it.began).elapsed() >= TELL_EVERY {
            it.told = Some(Instant::now());
            tracing::info!(
                ended,
                waiting,
                "keys are being derived, first those of the oldest locks; the others are sealed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_nobody_waits() {
        let keys = Keys::new(IntGauge::new("wanted", "Keys.").unwrap());
        let (first, second) = (keys.want(), keys.want());
        assert_eq!(keys.wanted.get(), 2);
        drop(first);
        assert_eq!(keys.round.lock().unwrap().as_ref().map(|round| round.ended), Some(1));
        drop(second);
        assert_eq!(keys.wanted.get(), 0);
        assert!(keys.round.lock().unwrap().is_none());
    }
}
