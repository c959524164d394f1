//! All integration tests, in one binary.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "these are tests"
)]

mod differential;
mod golden;
mod scene;
mod tidy;
