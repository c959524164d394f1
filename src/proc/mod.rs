//! What the kernel tells through `/proc`: locks on files, and processes.
//!
//! Text becomes values in pure parsers; the readers around them are thin and bounded. Nothing
//! here opens a watched file, sends a signal or takes a lock, and what may not be seen is told
//! apart from what is not there.

pub mod kernel;
pub mod listener;
pub mod locks;
pub mod machine;
pub mod mountinfo;
pub mod process;
pub mod procfs;
pub mod steady;
pub mod traces;
