//! Looks at files that may hang, away from the async workers: one at a time, shared by everybody
//! who waits for one. What is looked at is not known here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// A look that takes longer hangs, and nobody waits for it any more.
const LIMIT: Duration = Duration::from_secs(1);

/// One look at a time.
#[derive(Debug)]
pub struct Looks {
    limit: Duration,
    begun: AtomicU64,
    turn: Mutex<Turn>,
}

#[derive(Debug, Default)]
struct Turn {
    /// A look that hangs, or whose waiter has gone.
    unfinished: Option<JoinHandle<()>>,
    hangs: bool,
}

/// How waiting for a look ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// One that began after the call has ended.
    Done {
        /// The one before did hang.
        again: bool,
    },
    /// It hangs, and ends on its own one day. What was seen before is the best there is.
    Hangs {
        /// Since this call.
        newly: bool,
    },
}

impl Looks {
    /// None has begun.
    pub fn new() -> Self {
        Self::with(LIMIT)
    }

    fn with(limit: Duration) -> Self {
        Self { limit, begun: AtomicU64::new(0), turn: Mutex::default() }
    }

    /// Looks, or waits for a look of somebody else that began after this call.
    pub async fn look(&self, work: impl FnOnce() + Send + 'static) -> Look {
        let before = self.begun.load(Ordering::SeqCst);
        let mut turn = self.turn.lock().await;
        let again = turn.hangs;
        if turn.unfinished.is_some() && !turn.ends_within(self.limit).await {
            return Look::Hangs { newly: !again };
        }
        if self.begun.load(Ordering::SeqCst) > before {
            return Look::Done { again };
        }
        self.begun.fetch_add(1, Ordering::SeqCst);
        turn.unfinished = Some(tokio::task::spawn_blocking(work));
        if turn.ends_within(self.limit).await {
            Look::Done { again }
        } else {
            Look::Hangs { newly: !again }
        }
    }
}

impl Turn {
    /// Whether the look that is unfinished ends. One that is known to hang is not waited for.
    async fn ends_within(&mut self, limit: Duration) -> bool {
        let Some(unfinished) = &mut self.unfinished else { return true };
        let limit = if self.hangs { Duration::ZERO } else { limit };
        // A panic in it is in the log, by its hook, and ends it too.
        self.hangs = tokio::time::timeout(limit, unfinished).await.is_err();
        if !self.hangs {
            self.unfinished = None;
        }
        !self.hangs
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use super::*;

    const DONE: Look = Look::Done { again: false };

    #[tokio::test]
    async fn a_look_that_hangs_is_waited_for_once_and_blocks_nobody() {
        let looks = Looks::with(Duration::from_millis(20));
        let (release, hang) = mpsc::channel::<()>();
        let hangs = move || {
            let _ = hang.recv();
        };
        assert_eq!(looks.look(hangs).await, Look::Hangs { newly: true });
        let (started, starts) = mpsc::channel::<()>();
        let next = move || {
            let _ = started.send(());
        };
        assert_eq!(looks.look(next).await, Look::Hangs { newly: false });
        assert!(starts.recv().is_err(), "a second look began beside the one that hangs");
        drop(release);
        let mut look = looks.look(|| {}).await;
        while look == (Look::Hangs { newly: false }) {
            tokio::task::yield_now().await;
            look = looks.look(|| {}).await;
        }
        assert_eq!(look, Look::Done { again: true });
        assert_eq!(looks.look(|| {}).await, DONE);
    }

    #[tokio::test]
    async fn who_waits_together_shares_a_look_that_began_after_them() {
        let looks = Arc::new(Looks::with(Duration::from_secs(100)));
        let (release, wait) = mpsc::channel::<()>();
        let first = {
            let looks = looks.clone();
            tokio::spawn(async move {
                let work = move || {
                    let _ = wait.recv();
                };
                looks.look(work).await
            })
        };
        while looks.begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let count = Arc::new(AtomicUsize::new(0));
        let later: Vec<_> = (0..50)
            .map(|_| {
                let (looks, count) = (looks.clone(), count.clone());
                let work = move || {
                    count.fetch_add(1, Ordering::SeqCst);
                };
                tokio::spawn(async move { looks.look(work).await })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(release);
        assert_eq!(first.await.unwrap(), DONE);
        for one in later {
            assert_eq!(one.await.unwrap(), DONE);
        }
        // The first began before they came, so what it saw may be older than they are.
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_look_whose_waiter_went_away_is_waited_for_by_the_next() {
        let looks = Arc::new(Looks::with(Duration::from_secs(100)));
        let (release, wait) = mpsc::channel::<()>();
        let gone = {
            let looks = looks.clone();
            tokio::spawn(async move {
                let work = move || {
                    let _ = wait.recv();
                };
                looks.look(work).await
            })
        };
        while looks.begun.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        gone.abort();
        assert!(gone.await.is_err());
        drop(release);
        assert_eq!(looks.look(|| {}).await, DONE);
        assert_eq!(looks.begun.load(Ordering::SeqCst), 2);
    }
}
