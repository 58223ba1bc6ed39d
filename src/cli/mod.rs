//! The command line.

pub mod patch;
