//! `lock_exporter`: who holds which lock, since when, alive or dead, and what it blocks.
//!
//! ```text
//! config → targets → source ──► Scan ──► Tracker ──► Status ──► exposition ──► web / cli
//!          (pure)      │ I/O    (value)   (pure,     (value,      (pure)        (I/O)
//!                    store I/O            one owner)  shared)
//!                                    judge (pure) is called by tracker and exposition
//! ```
//!
//! Facts come in at the left through small readers that do I/O, become plain values, are judged
//! and tracked by pure code that is handed the time, and leave at the right through pure
//! renderers. One task owns all changing state. Nothing here writes to a backend, signals a
//! process or takes a lock.

pub mod app;
pub mod cli;
pub mod cmd;
pub mod config;
pub mod discovery;
pub mod evidence;
pub mod exposition;
pub mod judge;
pub mod label;
pub mod location;
pub mod lock;
pub mod pattern;
pub mod proc;
pub mod reload;
pub mod roster;
pub mod scan;
pub mod scanner;
pub mod secret;
pub mod shard;
pub mod source;
pub mod state;
pub mod status;
pub mod store;
pub mod supervisor;
pub mod target;
pub mod telemetry;
pub mod tracker;
pub mod web;
