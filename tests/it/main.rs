//! Tests of the whole, against real servers, real repositories and scripted ones.

mod fixtures;
mod restic;
