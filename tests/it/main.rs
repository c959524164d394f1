//! Tests of the whole, against real servers, real repositories and scripted ones.

mod decode;
mod fixtures;
mod restic;
mod target;
