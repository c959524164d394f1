//! The commands besides serving.

pub mod check;
pub mod demo;
