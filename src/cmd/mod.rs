//! The commands beside serving, over the same parts as the server.

pub mod check;
pub mod demo;
pub mod misc;
mod round;
