//! The plan: what is meant.
//!
//! In: a task file, flags and the host's facts. Out: a complete [`Plan`].

pub mod instance;

pub use instance::*;
