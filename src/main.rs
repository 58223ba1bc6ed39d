//! horseman: argv to the library; before that, the sandbox's inner stage.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = horseman::sandbox::inner_stage(&args) {
        return code;
    }
    ExitCode::from(horseman::exit::Exit::Usage)
}
