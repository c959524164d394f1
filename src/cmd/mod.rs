//! The commands beside serving, over the same parts as the server.

pub mod demo;
