//! Spawn: the one place where a cleared git command becomes a process.
//!
//! In: a [`Cleared`] command and where it may write. Out: what it said on standard error, or why
//! it failed. Knows nothing of git.

use std::path::PathBuf;
use std::time::Duration;

use super::GitError;
use crate::approval::Cleared;
use crate::process::{Capture, Cause, Stdin};
use crate::sandbox::{Host, Sandbox};

/// A command with what it needs.
pub(super) struct Job {
    /// Subcommand and arguments, for errors.
    pub(super) command: String,
    /// The proof.
    pub(super) cleared: Cleared,
    /// Folders and files that it may write.
    pub(super) write: Vec<PathBuf>,
    /// Standard input.
    pub(super) stdin: Vec<u8>,
    /// Wall-clock deadline.
    pub(super) deadline: Duration,
}

/// Runs `job` to its end.
pub(super) async fn run(host: &Host, marker: &str, job: Job) -> Result<String, GitError> {
    let Job { command, cleared, write, stdin, deadline } = job;
    let sandbox = Sandbox::narrow(host, &write, marker).await?;
    let stdin = if stdin.is_empty() { Stdin::Null } else { Stdin::Bytes(stdin) };
    let confined = sandbox.confine(cleared)?;
    let (ended, output) = confined.finish(stdin, Capture::default(), deadline).await?;
    let mut said = output.head;
    said.extend_from_slice(&output.tail);
    let text = String::from_utf8_lossy(&said).trim().to_owned();
    let status = match (ended.cause, ended.exit_code, ended.signal) {
        (Cause::TimedOut, _, _) => return Err(GitError::TimedOut { command, deadline }),
        (_, Some(0), _) => return Ok(text),
        (_, Some(code), _) => format!("exit status {code}"),
        (_, None, Some(signal)) => format!("signal {signal}"),
        (_, None, None) => "no status".to_owned(),
    };
    Err(GitError::Failed { command, status, text })
}
