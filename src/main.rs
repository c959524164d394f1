//! The process entry.

fn main() {}
