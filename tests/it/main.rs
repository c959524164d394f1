//! Tests of the whole, against real servers, real repositories and scripted ones.

mod decode;
mod fault_server;
mod fixtures;
mod restic;
mod stores;
mod target;
