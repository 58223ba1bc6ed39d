//! Processes: how a confined command runs.
//!
//! In: a [`Launch`]. Out: a process tree under a reaper of our own, observed until it is [`Ended`].
//! Imported by `sandbox` alone, so that nothing starts without a proof (P2). Knows nothing of
//! policy, nor of what the confinement between fork and exec is.

mod capture;
mod family;
mod quota;
mod reaper;
mod spawn;
mod start;
mod starter;
mod sys;
mod tree;
mod wire;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use family::kill_own;
pub use family::{MARKER, end_leftovers};
pub(crate) use quota::Quota;
pub(crate) use reaper::at;
pub(crate) use spawn::{Order, Streams, input_pipe, pump};
pub(crate) use start::{Confinement, run as run_starter};
pub(crate) use starter::{Begin, INNER, Starter};
pub(crate) use sys::{adopt, leave, split};
pub(crate) use tree::{GRACE, Tree};
pub(crate) use wire::Failure;
pub use wire::Step;

/// Why a command could not be started or driven.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// Our own binary can't be started.
    #[error("failed to start the inner stage `{}`", binary.display())]
    Spawn {
        /// Our binary.
        binary: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A pipe, socket or memory file between runner, starter and reaper.
    #[error("failed to {what}")]
    Channel {
        /// What was tried.
        what: &'static str,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A step before exec failed.
    #[error("failed to prepare `{}`: {} failed", program.display(), step.name())]
    Setup {
        /// The program that was to run.
        program: PathBuf,
        /// The step.
        step: Step,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The program does not exist: 127 for a shell.
    #[error("`{}` is not found", program.display())]
    NotFound {
        /// The program.
        program: PathBuf,
    },
    /// The program exists and can't be executed: 126 for a shell.
    #[error("`{}` can't be executed", program.display())]
    NotExecutable {
        /// The program.
        program: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The working folder can't be entered.
    #[error("working folder `{}` can't be entered", cwd.display())]
    Cwd {
        /// The folder.
        cwd: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The log can't be written.
    #[error("failed to open the log `{}`", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The reaper ended before it said how the command ended.
    #[error("the inner stage of `{}` is gone: {status}", program.display())]
    Lost {
        /// The program.
        program: PathBuf,
        /// How the inner stage ended.
        status: String,
    },
    /// The reaper did not answer in time.
    #[error("the inner stage of `{}` did not answer within {} s", program.display(), after.as_secs())]
    Silent {
        /// The program.
        program: PathBuf,
        /// How long it was given.
        after: Duration,
    },
    /// Processes outlived SIGKILL; the workspace is still in use.
    #[error("{count} processes of `{}` outlive SIGKILL", program.display())]
    Unkillable {
        /// The program.
        program: PathBuf,
        /// How many.
        count: u32,
    },
    /// The command does not read any more, or was started without an open stdin.
    #[error("the command's stdin is closed")]
    StdinClosed,
    /// The command did not read what was written.
    #[error("the command took {written} of {length} bytes within {} s", after.as_secs())]
    StdinFull {
        /// Bytes that the pipe took.
        written: usize,
        /// Bytes that were to be written.
        length: usize,
        /// How long it was given.
        after: Duration,
    },
}

impl ProcessError {
    /// The exit code that a shell gives when the program itself is the reason: 127 not found, 126
    /// not executable. `None` for everything else.
    pub const fn exit_code(&self) -> Option<u8> {
        match self {
            Self::NotFound { .. } => Some(127),
            Self::NotExecutable { .. } => Some(126),
            Self::Spawn { .. }
            | Self::Channel { .. }
            | Self::Setup { .. }
            | Self::Cwd { .. }
            | Self::Log { .. }
            | Self::Lost { .. }
            | Self::Silent { .. }
            | Self::Unkillable { .. }
            | Self::StdinClosed
            | Self::StdinFull { .. } => None,
        }
    }
}

/// A command with everything decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments, the program's name included.
    pub argv: Vec<String>,
    /// Absolute working folder.
    pub cwd: PathBuf,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
}

/// What the command reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// A pipe that stays open for [`Running::write`](crate::sandbox::Running::write).
    Open,
    /// These bytes, then end of file.
    Bytes(Vec<u8>),
}

/// How a command's output is kept; bounded in memory while it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Bytes kept from the head of what wasn't taken yet, and as many from the tail.
    pub window: usize,
    /// File that gets the full log.
    pub log: Option<PathBuf>,
    /// Cap of the log in bytes.
    pub log_cap: u64,
    /// Existing file that gets all of stdout instead; stderr alone is captured then.
    pub stdout: Option<PathBuf>,
}

impl Default for Capture {
    fn default() -> Self {
        Self { window: 512 << 10, log: None, log_cap: 64 << 20, stdout: None }
    }
}

/// Output since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// First bytes.
    pub head: Vec<u8>,
    /// Bytes between head and tail that were read and not kept.
    pub omitted: u64,
    /// Line ends among the omitted bytes.
    pub omitted_lines: u64,
    /// Last bytes; empty when nothing was omitted.
    pub tail: Vec<u8>,
}

/// Why a process tree ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The main process ended by itself.
    Exited,
    /// Its deadline passed.
    TimedOut,
    /// Its private folders took more than they may.
    Limit,
    /// It was stopped: end of the attempt, a signal, a fault.
    Stopped,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Process id of the main process.
    pub pid: u32,
    /// Exit code, if it exited.
    pub exit_code: Option<i32>,
    /// Signal number, if a signal ended it.
    pub signal: Option<i32>,
    /// Why.
    pub cause: Cause,
    /// Wall time from start to the end of the main process.
    pub wall: Duration,
    /// User and system time of the main process and what it waited for.
    pub cpu: Duration,
    /// Bytes of stdout and stderr, kept or not.
    pub output_bytes: u64,
    /// Descendants alive when the main process ended.
    pub survivors: u32,
}
