//! Tests of the whole: real servers, real repositories, scripted faults, committed pictures.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "these are tests"
)]

mod binary;
mod decode;
mod differential;
mod discovery;
mod fault_server;
mod file_locks;
mod fixtures;
mod golden;
mod pages;
mod reference;
mod requests;
mod restic;
mod scene;
mod stores;
mod target;
mod tidy;
mod words;
