//! Connections and how long each may last: a bounded number of seats, of which the one that is
//! missed least is taken back when somebody new comes. What is said on a connection is not known
//! here.
#![allow(clippy::disallowed_methods, reason = "seats have time limits")]

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// A client must have ended its part of a handshake after this time.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// A client must have sent its request's head after this time.
const HEAD: Duration = Duration::from_secs(5);
/// A connection between two requests is kept for this time.
const IDLE: Duration = Duration::from_secs(5 * 60);
/// A client must have taken the whole of an answer after this time.
const WRITE: Duration = Duration::from_secs(60);
/// So often is looked whether a limit has passed.
pub const LOOK: Duration = Duration::from_secs(1);
/// Who has said nothing when this part of all seats was taken anew is missed by nobody. Counted in
/// arrivals, it holds for slow crowds, fast ones and busy machines alike.
const NEWCOMERS: u64 = 4;
/// Of all seats this part is taken back at once.
const BATCH: u32 = 16;
/// Whoever waits for a seat tries to take one back this often.
const TAKE_BACK_EVERY: Duration = Duration::from_millis(100);

/// What a connection does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// TLS is being agreed on.
    Handshake,
    /// It was opened and nothing has come.
    Fresh,
    /// The head of a request is coming.
    Head,
    /// A request is being answered: the wait is ours.
    Answering,
    /// An answer is on its way.
    Writing,
    /// Between two requests.
    Idle,
}

impl Phase {
    fn limit(self) -> Option<Duration> {
        match self {
            Phase::Handshake => Some(HANDSHAKE),
            Phase::Fresh | Phase::Head => Some(HEAD),
            Phase::Answering => None,
            Phase::Writing => Some(WRITE),
            Phase::Idle => Some(IDLE),
        }
    }
}

/// One connection's place.
#[derive(Debug)]
pub struct Seat {
    doing: Mutex<(Phase, Instant)>,
    /// Something was ever sent here.
    spoke: AtomicBool,
    /// An answer that was no refusal has been given here.
    known: AtomicBool,
    taken_back: AtomicBool,
    leave: Notify,
}

impl Seat {
    fn new() -> Self {
        Self {
            doing: Mutex::new((Phase::Fresh, Instant::now())),
            spoke: AtomicBool::new(false),
            known: AtomicBool::new(false),
            taken_back: AtomicBool::new(false),
            leave: Notify::new(),
        }
    }

    /// A handshake begins.
    pub fn handshakes(&self) {
        self.is(Phase::Handshake);
    }

    /// The first request may come.
    pub fn is_open(&self) {
        self.is(Phase::Fresh);
    }

    /// A request's head is there.
    pub fn answers(&self) {
        self.is(Phase::Answering);
    }

    /// An answer is handed out from now on; `welcome` when it is no refusal.
    pub fn writes(&self, welcome: bool) {
        self.is(Phase::Writing);
        self.known.fetch_or(welcome, Ordering::Relaxed);
    }

    /// An answer was taken.
    pub fn rests(&self) {
        self.is(Phase::Idle);
    }

    /// Whether the client is surely owed nothing now. After an answer was handed out its end may
    /// still be on its way.
    pub fn is_unasked(&self) -> bool {
        matches!(self.doing().0, Phase::Handshake | Phase::Fresh | Phase::Head)
    }

    /// Whether a time limit has passed.
    pub fn is_over(&self) -> bool {
        let (phase, since) = *self.doing();
        phase.limit().is_some_and(|limit| since.elapsed() > limit)
    }

    /// Ends when the seat is taken back.
    pub async fn taken_back(&self) {
        self.leave.notified().await;
    }

    fn bytes_came(&self) {
        self.spoke.store(true, Ordering::Relaxed);
        let mut doing = self.doing();
        match doing.0 {
            // The first head must be whole within its limit, counted from the start.
            Phase::Fresh => doing.0 = Phase::Head,
            Phase::Idle => *doing = (Phase::Head, Instant::now()),
            Phase::Handshake | Phase::Head | Phase::Answering | Phase::Writing => {}
        }
    }

    fn is(&self, phase: Phase) {
        *self.doing() = (phase, Instant::now());
    }

    fn doing(&self) -> MutexGuard<'_, (Phase, Instant)> {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lower, the less it is missed; of equals the one that does the same for longer. `None`
    /// while the wait is ours.
    ///
    /// Who says nothing while others come, or was only ever refused, goes first; then who rests
    /// between requests, since it can come again. Who has just come, or is in a handshake or a
    /// head, stays in the order of coming: else those who came before would outlive an honest
    /// newcomer. Who takes an answer goes last: it is being used.
    fn rank(&self, is_newcomer: bool) -> Option<(u8, Instant)> {
        let (phase, since) = *self.doing();
        let class = match phase {
            Phase::Answering => return None,
            Phase::Writing => 3,
            Phase::Idle => u8::from(self.known.load(Ordering::Relaxed)),
            Phase::Handshake | Phase::Fresh | Phase::Head => {
                if is_newcomer || self.spoke.load(Ordering::Relaxed) { 2 } else { 0 }
            }
        };
        Some((class, since))
    }
}

/// All seats of one door.
#[derive(Debug)]
pub struct Seats {
    max: u32,
    newcomers: u64,
    free: Arc<Semaphore>,
    taken: Mutex<BTreeMap<u64, Arc<Seat>>>,
    next: AtomicU64,
}

/// A seat that is given back when this is dropped.
#[derive(Debug)]
pub struct Taken {
    /// The seat.
    pub seat: Arc<Seat>,
    number: u64,
    seats: Arc<Seats>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.seats.all().remove(&self.number);
    }
}

impl Seats {
    /// So many seats, all free.
    pub fn new(max: u16) -> Arc<Self> {
        Self::with(max, u64::from(max) / NEWCOMERS)
    }

    fn with(max: u16, newcomers: u64) -> Arc<Self> {
        Arc::new(Self {
            max: max.into(),
            newcomers,
            free: Arc::new(Semaphore::new(max.into())),
            taken: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// A seat for somebody new, if need be one that is taken back. Waits only while every
    /// connection waits for an answer of ours.
    pub async fn take(self: &Arc<Self>) -> Taken {
        let permit = loop {
            match self.free.clone().try_acquire_owned() {
                Ok(permit) => break permit,
                Err(_) => self.take_some_back(),
            }
            let freed = self.free.clone().acquire_owned();
            if let Ok(Ok(permit)) = tokio::time::timeout(TAKE_BACK_EVERY, freed).await {
                break permit;
            }
        };
        let seat = Arc::new(Seat::new());
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.all().insert(number, seat.clone());
        Taken { seat, number, seats: self.clone(), _permit: permit }
    }

    /// Asks the connection that is missed least to leave, and with it a few of those that never
    /// said anything: who comes in crowds is not looked for one by one.
    pub fn take_some_back(&self) {
        let all = self.all();
        let next = self.next.load(Ordering::Relaxed);
        let is_new = |number: u64| next.saturating_sub(number) <= self.newcomers;
        // Those who were asked before will leave as soon as a busy machine lets them.
        if all.values().any(|seat| seat.taken_back.load(Ordering::Relaxed)) {
            return;
        }
        let ranked =
            all.iter().filter_map(|(number, seat)| Some((seat.rank(is_new(*number))?, seat)));
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        let at_once = (self.max / BATCH).max(1) as usize;
        let some = ranked.iter().take(at_once).enumerate();
        for (_, (_, seat)) in some.take_while(|(index, ((class, _), _))| *index == 0 || *class == 0)
        {
            seat.taken_back.store(true, Ordering::Relaxed);
            seat.leave.notify_one();
        }
    }

    /// Ends when everybody has left.
    pub async fn empty(&self) {
        let _all = self.free.acquire_many(self.max).await;
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Seat>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A socket whose seat is told when bytes come.
#[derive(Debug)]
pub struct Watched<S> {
    socket: S,
    seat: Arc<Seat>,
}

impl<S> Watched<S> {
    /// This socket on this seat.
    pub fn new(socket: S, seat: Arc<Seat>) -> Self {
        Self { socket, seat }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.seat.bytes_came();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills every seat, in the given order; the seats that must be taken back first come first.
    async fn order_of_leaving(newcomers: u64, doing: &[fn(&Seat)]) -> Vec<usize> {
        let seats = Seats::with(u16::try_from(doing.len()).unwrap(), newcomers);
        let mut taken = Vec::new();
        for does in doing {
            let one = seats.take().await;
            does(&one.seat);
            taken.push(Some(one));
        }
        let mut left = Vec::new();
        for _ in doing {
            seats.take_some_back();
            for (index, one) in taken.iter_mut().enumerate() {
                if one.take_if(|one| one.seat.taken_back.load(Ordering::Relaxed)).is_some() {
                    left.push(index);
                }
            }
        }
        left
    }

    #[test]
    fn whoever_was_answered_may_still_be_owed_the_end() {
        let seat = Seat::new();
        assert!(seat.is_unasked());
        // Handed out is not sent.
        for does in [Seat::answers, |seat: &Seat| seat.writes(true), Seat::rests] {
            does(&seat);
            assert!(!seat.is_unasked());
        }
    }

    #[tokio::test]
    async fn nobody_is_asked_to_leave_while_somebody_who_was_asked_is_still_there() {
        let seats = Seats::new(2);
        let (first, second) = (seats.take().await, seats.take().await);
        for _ in 0..3 {
            seats.take_some_back();
        }
        let asked = |one: &Taken| one.seat.taken_back.load(Ordering::Relaxed);
        assert!(asked(&first) && !asked(&second));
    }

    #[tokio::test]
    async fn who_is_missed_least_leaves_first_and_nobody_who_waits_for_us() {
        let served: fn(&Seat) = |seat| {
            seat.bytes_came();
            seat.writes(true);
            seat.rests();
        };
        let refused: fn(&Seat) = |seat| {
            seat.bytes_came();
            seat.writes(false);
            seat.rests();
        };
        let begun: fn(&Seat) = |seat| {
            seat.handshakes();
            seat.bytes_came();
        };
        let slow: fn(&Seat) = |seat| seat.writes(true);
        let all: [fn(&Seat); 8] = [
            slow,
            served,
            |seat| seat.answers(),
            |seat| seat.handshakes(),
            refused,
            |_| {},
            served,
            begun,
        ];
        assert_eq!(order_of_leaving(0, &all).await, [3, 4, 5, 1, 6, 7, 0]);
        assert_eq!(order_of_leaving(u64::MAX, &all).await, [4, 1, 6, 3, 5, 7, 0]);
    }

    #[tokio::test]
    async fn somebody_new_gets_the_seat_of_somebody_idle() {
        let seats = Seats::new(1);
        let idle = seats.take().await;
        let leaving = tokio::spawn(async move {
            idle.seat.taken_back().await;
            drop(idle);
        });
        let _new = seats.take().await;
        leaving.await.unwrap();
        assert_eq!(seats.all().len(), 1);
    }

    #[test]
    fn a_client_cannot_make_its_first_head_last_longer_by_sending_a_little() {
        let seat = Seat::new();
        let since = seat.doing().1;
        seat.bytes_came();
        assert_eq!(*seat.doing(), (Phase::Head, since));
        seat.bytes_came();
        assert_eq!(*seat.doing(), (Phase::Head, since));
        seat.rests();
        seat.bytes_came();
        let (phase, later) = *seat.doing();
        assert!(phase == Phase::Head && later > since);
    }
}
