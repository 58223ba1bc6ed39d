//! The workspace: where the work happens, and what came of it.
//!
//! In: a [`WorkspacePlan`](crate::plan::WorkspacePlan), the checkout it starts from, and a private
//! folder. Out: a tree to work in, the patch against the state after setup, and fresh trees for the
//! verdict (P5, P8, P9). Knows nothing of models, tools or checks.

mod carve;
pub mod change;
mod clone;
mod fresh;
pub mod git;
mod guard;
mod layered;
mod left;
mod lfs;
mod overlay;
mod prepare;
mod shadow;
mod snapshot;
pub mod source;
pub mod state;
mod submodule;
pub mod tree;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use carve::git_folders;
pub use change::{Change, LfsObject, SubmoduleChange, touched_protected};
pub use fresh::Fresh;
pub use git::{Git, GitError, GitOptions, GitOutput};
pub use guard::{Guard, PutBack};
pub use left::find_left;
pub use prepare::Workspace;
pub use snapshot::Artifact;
pub use source::{Source, TreeEntry, Uncommitted};
pub use state::{RunState, StateError, Swept, sweep};

impl WorkspaceError {
    /// Whether git could not be confined here: exit status 15 (P3).
    pub const fn is_confinement(&self) -> bool {
        matches!(self, Self::Git(GitError::Confine { .. }))
    }
}

/// Why there is no workspace, no patch or no fresh tree.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    /// A file or folder can't be used.
    #[error("failed to {action} `{}`", path.display())]
    Io {
        /// What was tried, for example `read`.
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A checkout whose path git can't say in one line.
    #[error("the path of the checkout around `{}` must not hold a line break", path.display())]
    OddName {
        /// Folder that was looked at.
        path: PathBuf,
    },
    /// A file that no patch can hold.
    #[error("`{}` has {bytes} bytes; a result holds files of at most {most}", path.display())]
    TooLarge {
        /// Path relative to the workspace.
        path: PathBuf,
        /// Its size, holes included.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// Git said no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A revision that the checkout doesn't have.
    #[error("unknown revision `{rev}` in `{}`{remedy}", root.display())]
    UnknownRevision {
        /// As the user wrote it.
        rev: String,
        /// The checkout.
        root: PathBuf,
        /// What helps, starting with `; `, or empty.
        remedy: String,
    },
    /// `kind: clone` without a git checkout.
    #[error("workspace `clone` needs a git checkout with a commit; use `copy` or `in-place` here")]
    NoCheckout,
    /// Uncommitted changes belong to another commit than the one to work on.
    #[error("`dirty: carry` needs the checked-out commit `{head}`, got `{commit}`")]
    CarryElsewhere {
        /// The checked-out commit.
        head: String,
        /// The commit to work on.
        commit: String,
    },
    /// The working folder isn't there.
    #[error("`workspace.path` must be a folder, found none at `{}`", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// A cache folder isn't there or lies outside.
    #[error("cache `{path}` must lie inside the workspace or below `~/`")]
    CachePath {
        /// As the task says it.
        path: String,
    },
    /// A patch does not give the tree that it was taken from.
    #[error("the patch must give tree `{expected}` on base `{base}`, got `{found}`")]
    NotReproduced {
        /// Base tree.
        base: String,
        /// Tree that it was taken from.
        expected: String,
        /// Tree that came out.
        found: String,
    },
    /// Calls in the wrong order: a bug of the caller.
    #[error("`{call}` was called {when}")]
    Order {
        /// Function.
        call: &'static str,
        /// What is wrong.
        when: &'static str,
    },
    /// A glob that can't be read.
    #[error("glob `{glob}` is not valid")]
    Glob {
        /// As the task says it.
        glob: String,
        /// Cause.
        #[source]
        source: globset::Error,
    },
}

/// Words an I/O error with what was tried and where.
pub(crate) fn io_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> WorkspaceError + 'a {
    move |source| WorkspaceError::Io { action, path: path.to_path_buf(), source }
}
