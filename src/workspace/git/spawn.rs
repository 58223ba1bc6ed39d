//! Spawn: the one place where a cleared git command becomes a process.
//!
//! In: a [`Cleared`] command and what it may write. Out: what it said on standard error, or why it
//! failed. Knows nothing of git.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::GitError;
use crate::approval::Cleared;
use crate::sandbox::{Capture, Cause, Host, Sandbox, SandboxError, Stdin};

/// Confinements that are kept for the next command; a ruleset costs more to make than to keep.
/// Our choice.
const KEPT: usize = 16;

/// Starts git commands, each confined to what it may write.
#[derive(Debug)]
pub(super) struct Spawner {
    host: Host,
    marker: String,
    kept: RefCell<BTreeMap<Vec<PathBuf>, Sandbox>>,
}

/// A command with what it needs.
pub(super) struct Job {
    /// Subcommand and arguments, for errors.
    pub(super) command: String,
    /// The proof.
    pub(super) cleared: Cleared,
    /// Folders that it may write below.
    pub(super) write: Vec<PathBuf>,
    /// Standard input.
    pub(super) stdin: Vec<u8>,
    /// File that gets standard output: a warning between the fields of a list would be read as
    /// one of them if the streams were one.
    pub(super) stdout: PathBuf,
    /// Wall-clock deadline.
    pub(super) deadline: Duration,
}

impl Spawner {
    pub(super) fn new(host: &Host, marker: &str) -> Self {
        Self { host: host.clone(), marker: marker.to_owned(), kept: RefCell::default() }
    }

    /// Ends the processes that are kept for the next command.
    pub(super) fn rest(&self) {
        self.kept.borrow_mut().clear();
    }

    /// Runs `job` to its end.
    pub(super) async fn run(&self, job: Job) -> Result<String, GitError> {
        let Job { command, cleared, write, stdin, stdout, deadline } = job;
        let confine = |source: SandboxError| GitError::Confine {
            command: command.clone(),
            source: Box::new(source),
        };
        let sandbox = self.sandbox(write).await.map_err(confine)?;
        let stdin = if stdin.is_empty() { Stdin::Null } else { Stdin::Bytes(stdin) };
        let confined = sandbox.confine(cleared).map_err(confine)?;
        let capture = Capture { stdout: Some(stdout), ..Capture::default() };
        let (ended, output) = confined.finish(stdin, capture, deadline).await.map_err(confine)?;
        if ended.cause == Cause::TimedOut {
            return Err(GitError::TimedOut { command, deadline });
        }
        let said = [output.head, output.tail].concat();
        let text = String::from_utf8_lossy(&said).trim().to_owned();
        let status = match (ended.exit_code, ended.signal) {
            (Some(0), _) => return Ok(text),
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no exit status".to_owned(),
        };
        Err(GitError::Failed { command, status, text })
    }

    async fn sandbox(&self, write: Vec<PathBuf>) -> Result<Sandbox, SandboxError> {
        if let Some(sandbox) = self.kept.borrow().get(&write) {
            return Ok(sandbox.clone());
        }
        let sandbox = Sandbox::narrow(&self.host, &write, &self.marker).await?;
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(write, sandbox.clone());
        Ok(sandbox)
    }
}
