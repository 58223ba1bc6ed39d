//! The proof that somebody cleared an action.
//!
//! In: an action and an authority, from [`approval`](super) alone. Out: a value that can't be
//! made, cloned or read from anywhere else (P2).

use std::fmt;
use std::sync::Arc;

use crate::policy::{Action, Exec};

/// An action that somebody cleared. The sandbox confines nothing else.
#[derive(Debug)]
pub struct Cleared {
    action: Arc<Action>,
    by: Authority,
}

/// Who cleared an action: a closed list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authority {
    /// Policy allowed it.
    Policy,
    /// An approver said yes to a `prompt`.
    Approver(&'static str),
    /// The task's author wrote it down: setup, context, checks, key commands.
    TaskAuthor(Span),
    /// The person at the command line wrote it down.
    Operator,
    /// This program's own git.
    Runner(GitOperation),
}

/// Where in the task file something stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
pub struct Span {
    /// File as the user knows it.
    pub file: String,
    /// Line, 1-based; 0 when it comes from a default.
    pub line: u32,
    /// Column, 1-based.
    pub column: u32,
}

/// What this program does with git: a closed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GitOperation {
    /// Reads commits, trees, blobs and configuration of the source.
    Read,
    /// Makes a workspace: init, checkout, submodules.
    Prepare,
    /// Snapshots a tree into our own index.
    Snapshot,
    /// Writes a diff between two trees.
    Diff,
    /// Applies a patch onto a checkout.
    Apply,
    /// Commits an applied patch.
    Commit,
}

impl Cleared {
    pub(super) fn new(action: Arc<Action>, by: Authority) -> Self {
        Self { action, by }
    }

    /// The action.
    pub fn action(&self) -> &Arc<Action> {
        &self.action
    }

    /// The pinned command.
    pub fn exec(&self) -> &Exec {
        self.action.exec()
    }

    /// Who cleared it.
    pub fn authority(&self) -> &Authority {
        &self.by
    }
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            out.write_str(&self.file)
        } else {
            write!(out, "{}:{}:{}", self.file, self.line, self.column)
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => out.write_str("policy"),
            Self::Approver(name) => write!(out, "approver {name}"),
            Self::TaskAuthor(span) => write!(out, "task-author {span}"),
            Self::Operator => out.write_str("operator"),
            Self::Runner(operation) => write!(out, "runner git-{}", operation.name()),
        }
    }
}

impl GitOperation {
    /// Name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Prepare => "prepare",
            Self::Snapshot => "snapshot",
            Self::Diff => "diff",
            Self::Apply => "apply",
            Self::Commit => "commit",
        }
    }
}
