//! Printing: the only place that writes to stdout and stderr.
//!
//! A closed pipe is not a fault of the run: what can't be printed is dropped.

use std::error::Error;
use std::io::{Write as _, stderr, stdout};

/// Writes data to stdout; says whether all of it went out.
pub(super) fn data(text: &str) -> bool {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok()
}

/// Writes what the command was run for to stdout. A reader that went away is no fault; a full disk
/// is.
///
/// # Errors
///
/// What the system says, but for a closed pipe.
pub(super) fn result(text: &str) -> std::io::Result<()> {
    let mut out = stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes one line for people to stderr.
pub(super) fn note(text: &str) {
    let mut out = stderr().lock();
    drop(writeln!(out, "{text}"));
}

/// Prints an error with its causes, and the one remedy if there is one.
pub(super) fn complain(error: &dyn Error, hint: Option<&str>) {
    note(&format!("error: {error}"));
    let mut cause = error.source();
    while let Some(error) = cause {
        note(&format!("  caused by: {error}"));
        cause = error.source();
    }
    if let Some(hint) = hint {
        note(&format!("\nhint: {hint}"));
    }
}

/// Prints one error sentence, and the one remedy if there is one.
pub(super) fn complain_text(text: &str, hint: Option<&str>) {
    note(&format!("error: {text}"));
    if let Some(hint) = hint {
        note(&format!("\nhint: {hint}"));
    }
}
