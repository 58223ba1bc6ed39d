//! The command line: the only reader of argv, environment and terminal, the only printer.
//!
//! In: the process's arguments. Out: an exit status. Knows every other module.

pub mod apply;
pub mod doctor;
pub mod sandbox;
