//! Processes: how a confined command runs.
//!
//! In: a [`Launch`]. Out: a [`Running`] process tree, observed until it is [`Ended`]. Imported by
//! `sandbox` alone, so that nothing starts without a proof (P2). Knows nothing of policy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
}

impl Default for Capture {
    fn default() -> Self {
        Self { window: 512 << 10, log: None, log_cap: 64 << 20 }
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
