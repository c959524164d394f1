//! Tests of the whole, against real servers and scripted ones.

mod fault_server;
mod stores;
