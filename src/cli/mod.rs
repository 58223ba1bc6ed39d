//! The command line: the only reader of arguments and environment, the only printer.

pub mod rules;
