//! What can go wrong with a confinement.
//!
//! In: causes of the layers below. Out: one error, with what the operator can do, and whether the
//! command itself is the reason. Knows nothing of who reads it.

use std::path::PathBuf;

use thiserror::Error;

use super::LandlockError;
use crate::process::ProcessError;

/// Why a command can't be confined, started or driven. Never a command's output.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The profile asks for what can't be enforced here: exit 15 (P3).
    #[error("the required confinement can't be enforced: {}", list(items))]
    Unenforceable {
        /// Policy item and reason.
        items: Vec<(String, String)>,
        /// What the operator can do; may be empty.
        hint: String,
    },
    /// A ruleset can't be made.
    #[error(transparent)]
    Landlock(#[from] LandlockError),
    /// The system call filter can't be made.
    #[error("failed to make the system call filter")]
    Filter(#[source] seccompiler::BackendError),
    /// The action is input for a command that runs already.
    #[error("input for a running command is no command to confine")]
    NotACommand,
    /// The action is not input for the command it was given to.
    #[error("only input can be written to a running command")]
    NotInput,
    /// A path or argument can't be handed to a program.
    #[error("{what} of `{}` holds a NUL byte", program.display())]
    Nul {
        /// The program.
        program: PathBuf,
        /// `an argument`, `the environment`, `the working folder`.
        what: &'static str,
    },
    /// There is no room for what an overlay needs.
    #[error("failed to make a folder in `{}`", path.display())]
    Work {
        /// Where.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Starting or driving the process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

impl SandboxError {
    pub(super) fn unlisted(why: String) -> Self {
        Self::Unenforceable { items: vec![("network".to_owned(), why)], hint: String::new() }
    }

    /// What the operator can do about it, if there is one obvious thing.
    pub fn hint(&self) -> Option<&str> {
        if let Self::Unenforceable { hint, .. } = self {
            return Some(hint.as_str()).filter(|hint| !hint.is_empty());
        }
        None
    }

    /// Whether the command itself is the reason: its program or its working folder. Everything else
    /// is a fault of the confinement.
    pub const fn is_about_command(&self) -> bool {
        matches!(
            self,
            Self::Nul { .. }
                | Self::Process(
                    ProcessError::NotFound { .. }
                        | ProcessError::NotExecutable { .. }
                        | ProcessError::Cwd { .. }
                )
        )
    }

    /// The exit code that a shell gives when the program itself is the reason: 127 not found, 126
    /// not executable. `None` for everything else.
    pub const fn exit_code(&self) -> Option<u8> {
        match self {
            Self::Process(error) => error.exit_code(),
            Self::Unenforceable { .. }
            | Self::Landlock(_)
            | Self::Filter(_)
            | Self::NotACommand
            | Self::NotInput
            | Self::Work { .. }
            | Self::Nul { .. } => None,
        }
    }
}

fn list(items: &[(String, String)]) -> String {
    items.iter().map(|(item, why)| format!("{item}: {why}")).collect::<Vec<_>>().join("; ")
}
