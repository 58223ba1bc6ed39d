//! The run: what all instances share, and the commands that the task's author wrote.
//!
//! In: a plan and the host's facts. Out: recorded, confined, finished commands. Knows nothing of
//! models, tools or reports.

mod authored;
pub(crate) mod record;
mod secret;
mod stop;

use std::path::PathBuf;

pub use authored::{Authored, AuthoredDone, AuthoredError};
pub use secret::Secret;
pub use stop::{Signal, Stop, Stopped};

use crate::clock::Clock;
use crate::plan::Plan;
use crate::sandbox::Host;
use crate::transcript::Transcript;

/// What all instances of a run share.
#[derive(Debug)]
pub struct Run {
    /// What is meant.
    pub plan: Plan,
    /// Facts of the host.
    pub host: Host,
    /// Time since the start.
    pub clock: Clock,
    /// The record.
    pub transcript: Transcript,
    /// The wish to end.
    pub stop: Stop,
    /// Folder that the record goes to; absolute.
    pub out: PathBuf,
    /// The run's private state folder; absolute.
    pub state: PathBuf,
    /// Names of variables that hold provider keys; no child gets them (P6).
    pub secret_names: Vec<String>,
}
