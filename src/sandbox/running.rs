//! A running command, as tools and checks see it.
//!
//! In: a started process tree. Out: what became of it, piece by piece. Input goes to it only as a
//! [`Cleared`] action (P2).

use std::time::Duration;

use super::SandboxError;
use crate::approval::Cleared;
use crate::policy::Action;
use crate::process::{Ended, GRACE, Output, Tree};

/// What became of a command within a given time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// It ended; background children of it may live on.
    Ended(Ended),
    /// It still runs.
    StillRunning,
}

/// A confined process tree. Dropping it kills every process of it and waits until they are dead.
#[derive(Debug)]
pub struct Running {
    tree: Tree,
}

impl Running {
    pub(super) fn new(tree: Tree) -> Self {
        Self { tree }
    }

    /// Process id of the main process.
    pub fn pid(&self) -> u32 {
        self.tree.pid()
    }

    /// Waits until the main process has ended, at most so long. What is in the output pipe by then
    /// is read, up to 200 ms long when survivors hold it.
    ///
    /// Cancellation loses nothing.
    ///
    /// # Errors
    ///
    /// When the inner stage is gone without an answer.
    pub async fn wait(&mut self, at_most: Duration) -> Result<Observed, SandboxError> {
        self.tree.wait(at_most).await?;
        Ok(self.tree.ended().cloned().map_or(Observed::StillRunning, Observed::Ended))
    }

    /// How the main process ended, once [`Running::wait`] or [`Running::stop`] has seen it.
    pub fn ended(&self) -> Option<&Ended> {
        self.tree.ended()
    }

    /// Output since the last look, survivors' included.
    pub fn take_output(&mut self) -> Output {
        self.tree.take_output()
    }

    /// Writes to the command's stdin, for at most 5 s.
    ///
    /// # Errors
    ///
    /// When stdin is closed, or not read in time; when the action is no input.
    pub async fn write(&mut self, input: Cleared) -> Result<(), SandboxError> {
        let Action::Input(input) = &**input.action() else { return Err(SandboxError::NotInput) };
        Ok(self.tree.write(input.text.as_bytes()).await?)
    }

    /// Ends the command's input.
    pub fn close_stdin(&mut self) {
        self.tree.close_stdin();
    }

    /// Sends SIGINT to the command's process group.
    pub fn interrupt(&self) {
        self.tree.interrupt();
    }

    /// Descendants that are alive, the main process not counted. 0 when the inner stage does not
    /// answer, which the next call that can fail reports.
    pub async fn survivors(&mut self) -> u32 {
        self.tree.survivors().await.unwrap_or(0)
    }

    /// Ends the whole tree: SIGTERM, 250 ms, SIGKILL for every descendant. Returns how the main
    /// process ended, once nothing is alive.
    ///
    /// # Errors
    ///
    /// When a process outlives SIGKILL, or the inner stage is gone without an answer.
    pub async fn stop(&mut self) -> Result<Ended, SandboxError> {
        Ok(self.tree.stop(GRACE).await?)
    }
}
