//! `demo`: repositories and locks to look at, made on the spot.

#[doc(hidden)]
pub mod writer;
