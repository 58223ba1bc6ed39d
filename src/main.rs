//! The binary: the sandbox's inner stage, or the command line.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    match horseman::sandbox::inner_stage(&args) {
        Some(code) => code,
        None => horseman::cli::run(args),
    }
}
