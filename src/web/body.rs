//! Bodies that are handed out in pieces, so that what a client does not take stays counted.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

use super::seat::Seat;

/// Handed out at once; hyper asks for more when the client has taken most of it.
const PIECE: usize = 64 * 1024;

/// An answer's body. While it is not taken whole, its permit is not given back.
#[derive(Debug, Default)]
pub struct Answer {
    rest: Bytes,
    permit: Option<OwnedSemaphorePermit>,
    seat: Option<Arc<Seat>>,
}

impl Answer {
    /// A body of these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self { rest: bytes.into(), permit: None, seat: None }
    }

    /// The same body, holding a permit until it is taken.
    pub fn with(mut self, permit: Option<OwnedSemaphorePermit>) -> Self {
        self.permit = permit;
        self
    }

    /// The same body, whose seat is told when it is taken.
    pub fn on(mut self, seat: &Arc<Seat>) -> Self {
        self.seat = Some(seat.clone());
        self
    }

    /// Nothing of the body, for HEAD; what it held is given back.
    pub fn cut(mut self) -> Self {
        self.rest = Bytes::new();
        self
    }

    /// Bytes that are left to take.
    pub fn left(&self) -> usize {
        self.rest.len()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(seat) = &self.seat {
            seat.rests();
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
