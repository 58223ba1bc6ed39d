//! Spawn: the one place where a cleared git command becomes a process.
//!
//! In: a [`Cleared`] command and where it may write. Out: what it said on standard error, or why
//! it failed. Knows nothing of git.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::GitError;
use crate::approval::Cleared;
use crate::sandbox::Host;

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
#[expect(clippy::disallowed_methods, clippy::unused_async, reason = "until the sandbox is there")]
pub(super) async fn run(_host: &Host, _marker: &str, job: Job) -> Result<String, GitError> {
    let Job { command, cleared, write: _, stdin, deadline: _ } = job;
    let start = |source| GitError::Start { command: command.clone(), source };
    let exec = cleared.exec();
    let mut child = Command::new(&exec.program)
        .args(&exec.argv[1..])
        .current_dir(&exec.cwd)
        .env_clear()
        .envs(&exec.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let mut pipe = child.stdin.take();
    let writer = thread::spawn(move || {
        if let Some(pipe) = &mut pipe {
            drop(pipe.write_all(&stdin));
        }
    });
    let mut said = Vec::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_end(&mut said).map_err(start)?;
    }
    drop(writer.join());
    let status = child.wait().map_err(start)?;
    let text = String::from_utf8_lossy(&said).trim().to_owned();
    if status.success() {
        return Ok(text);
    }
    Err(GitError::Failed { command: command.clone(), status: status.to_string(), text })
}
