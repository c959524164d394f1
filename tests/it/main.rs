//! All integration tests, in one binary.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, missing_docs, reason = "these are tests")]

mod golden;
mod scene;
mod tidy;
