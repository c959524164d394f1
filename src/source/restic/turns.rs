//! Whose turn it is to derive a key: never more at a time than memory and cores allow, and of
//! those who wait the one first whose locks look oldest. Knows neither keys nor repositories.
//!
//! With thousands of repositories the last key comes minutes after the start. A lock that is dead
//! looks old long before anybody can open it, and it is the one that somebody waits to hear about.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::oneshot;

/// Locks of which the backend tells no time come after all that are dated, and before none at all.
const UNDATED: i64 = i64::MAX - 1;

/// How soon a repository's key is wanted. Shared with whoever looks at the repository, so that it
/// is right when a turn is given, not only when it is asked for.
#[derive(Clone, Debug)]
pub struct Urgency(Arc<AtomicI64>);

impl Default for Urgency {
    fn default() -> Self {
        Self(Arc::new(AtomicI64::new(i64::MAX)))
    }
}

impl Urgency {
    /// Takes in when the lock files that are listed now were stored, by the backend's clock.
    pub fn follow(&self, stored_at: impl Iterator<Item = Option<Timestamp>>) {
        let oldest = stored_at.map(|at| at.map_or(UNDATED, Timestamp::as_second)).min();
        self.0.store(oldest.unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    fn rank(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Memory and cores, and who waits for them.
#[derive(Debug)]
pub struct Turns(Mutex<Free>);

#[derive(Debug)]
struct Free {
    bytes: u64,
    cores: usize,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    urgency: Urgency,
    bytes: u64,
    turn: oneshot::Sender<Turn>,
}

/// The right to use so many bytes and a core, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    turns: Arc<Turns>,
    bytes: u64,
}

impl Turns {
    /// So much there is.
    pub fn new(bytes: u64, cores: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Free { bytes, cores, waiting: VecDeque::new() })))
    }

    /// Waits for its turn. `bytes` must not be more than there are, else it waits for ever.
    pub async fn take(self: &Arc<Self>, bytes: u64, urgency: &Urgency) -> Option<Turn> {
        let (turn, ready) = oneshot::channel();
        let urgency = urgency.clone();
        self.lock().waiting.push_back(Waiting { urgency, bytes, turn });
        self.give();
        ready.await.ok()
    }

    /// Gives turns as long as there is something for the one that comes next. It is not passed
    /// over for one that needs less, or large keys would wait for ever.
    fn give(self: &Arc<Self>) {
        while let Some((turn, waiting)) = self.next() {
            // Who does not wait any more gives it back by dropping it.
            let _ = waiting.turn.send(turn);
        }
    }

    fn next(self: &Arc<Self>) -> Option<(Turn, Waiting)> {
        let mut free = self.lock();
        free.waiting.retain(|waiting| !waiting.turn.is_closed());
        let ranks = free.waiting.iter().map(|waiting| waiting.urgency.rank()).enumerate();
        let (first, _) = ranks.min_by_key(|(_, rank)| *rank)?;
        if free.cores == 0 || free.waiting[first].bytes > free.bytes {
            return None;
        }
        let waiting = free.waiting.remove(first)?;
        free.cores -= 1;
        free.bytes -= waiting.bytes;
        Some((Turn { turns: Arc::clone(self), bytes: waiting.bytes }, waiting))
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        // Nothing that can panic runs between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let mut free = self.turns.lock();
            free.cores += 1;
            free.bytes += self.bytes;
        }
        self.turns.give();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize};

    use super::*;

    fn urgency(stored_at: &[Option<i64>]) -> Urgency {
        let urgency = Urgency::default();
        let times = stored_at.iter().map(|at| at.map(|at| Timestamp::from_second(at).unwrap()));
        urgency.follow(times);
        urgency
    }

    fn left(turns: &Turns) -> (u64, usize) {
        let free = turns.lock();
        (free.bytes, free.cores)
    }

    /// Takes a turn in a task of its own and notes its name when it comes.
    fn wait(
        turns: &Arc<Turns>,
        order: &Arc<Mutex<Vec<&'static str>>>,
        name: &'static str,
        urgency: &Urgency,
    ) -> tokio::task::JoinHandle<()> {
        let (turns, order, urgency) = (Arc::clone(turns), Arc::clone(order), urgency.clone());
        tokio::spawn(async move {
            let _turn = turns.take(1, &urgency).await.unwrap();
            order.lock().unwrap().push(name);
        })
    }

    #[tokio::test]
    async fn the_oldest_looking_locks_come_first_also_when_that_is_seen_late() {
        let turns = Turns::new(10, 1);
        let busy = turns.take(1, &Urgency::default()).await.unwrap();
        let order = Arc::default();
        let late = Urgency::default();
        let waiting = [
            wait(&turns, &order, "no lock", &urgency(&[])),
            wait(&turns, &order, "undated", &urgency(&[None])),
            wait(&turns, &order, "new", &urgency(&[Some(2_000)])),
            wait(&turns, &order, "seen late", &late),
            wait(&turns, &order, "one old", &urgency(&[Some(3_000), Some(1_000), None])),
            wait(&turns, &order, "no lock either", &urgency(&[])),
        ];
        while turns.lock().waiting.len() < waiting.len() {
            tokio::task::yield_now().await;
        }
        late.follow([Timestamp::from_second(500).ok()].into_iter());
        drop(busy);
        for task in waiting {
            task.await.unwrap();
        }
        let expected = ["seen late", "one old", "new", "undated", "no lock", "no lock either"];
        assert_eq!(*order.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn who_needs_much_is_not_passed_over_and_who_left_holds_up_nobody() {
        let turns = Turns::new(10, 3);
        let small = turns.take(4, &Urgency::default()).await.unwrap();
        let (old, new) = (urgency(&[Some(1)]), urgency(&[Some(2)]));
        let mut large = std::pin::pin!(turns.take(8, &old));
        let mut next = std::pin::pin!(turns.take(1, &new));
        assert!(futures_util::poll!(&mut large).is_pending());
        assert!(futures_util::poll!(&mut next).is_pending());
        {
            let oldest = urgency(&[Some(0)]);
            let mut gone = std::pin::pin!(turns.take(10, &oldest));
            assert!(futures_util::poll!(&mut gone).is_pending());
        }
        drop(small);
        let large = large.await.unwrap();
        assert_eq!(next.await.unwrap().bytes, 1);
        drop(large);
        assert_eq!(left(&turns), (10, 3));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn never_more_at_a_time_than_there_is() {
        let turns = Turns::new(100, 5);
        let in_use = Arc::new((AtomicU64::new(0), AtomicUsize::new(0)));
        let tasks = (0..500_u64).map(|number| {
            let (turns, in_use) = (Arc::clone(&turns), Arc::clone(&in_use));
            tokio::spawn(async move {
                let bytes = 1 + number * 37 % 100;
                let urgency = urgency(&[Some(i64::try_from(number % 7).unwrap())]);
                let turn = turns.take(bytes, &urgency).await.unwrap();
                assert!(in_use.0.fetch_add(bytes, Ordering::SeqCst) + bytes <= 100);
                assert!(in_use.1.fetch_add(1, Ordering::SeqCst) < 5);
                tokio::task::yield_now().await;
                in_use.0.fetch_sub(bytes, Ordering::SeqCst);
                in_use.1.fetch_sub(1, Ordering::SeqCst);
                drop(turn);
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(left(&turns), (100, 5));
    }
}
