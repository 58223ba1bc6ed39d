//! The clone: a disposable repository that borrows its objects.
//!
//! In: an object store and a commit. Out: a checkout with history to read, without remotes, hooks,
//! credentials or configuration of the origin. Time and disk don't grow with history: nothing is
//! copied but refs, and nothing is hard-linked, since one overwritten object would corrupt the
//! source.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::git::{self, Git, GitOptions, GitOutput};
use super::shadow::{RAW_ATTRIBUTES, borrow, write};
use super::{GitError, Source, WorkspaceError, io_error};
use crate::approval::GitOperation;

/// The store that a clone borrows from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// Repository to read refs and commits from.
    pub(super) git_dir: PathBuf,
    /// Folder with `objects`, `shallow`, `modules` and `lfs`.
    pub(super) common_dir: PathBuf,
    /// Commit to check out.
    pub(super) commit: String,
    /// `sha1` or `sha256`.
    pub(super) object_format: String,
    /// Whether missing objects would have to be fetched.
    pub(super) is_partial: bool,
}

impl Origin {
    /// The store of `source`, at `commit`.
    pub(super) fn of(source: &Source, commit: &str) -> Self {
        Self {
            git_dir: source.git_dir().to_path_buf(),
            common_dir: source.common_dir().to_path_buf(),
            commit: commit.to_owned(),
            object_format: source.object_format().to_owned(),
            is_partial: source.is_partial(),
        }
    }

    pub(super) fn objects(&self) -> PathBuf {
        self.common_dir.join("objects")
    }

    /// Runs a git command that reads the store.
    pub(super) async fn read(&self, git: &Git, args: &[&str]) -> Result<GitOutput, GitError> {
        // The store of a submodule names a work tree that may be gone; this one exists.
        let options = GitOptions::at(&self.git_dir).git_dir(&self.git_dir).work_tree(&self.git_dir);
        git.run(GitOperation::Read, args, options).await
    }
}

/// Makes a repository in the existing folder `to`: borrowed objects, refs to read, a neutral
/// identity, HEAD detached at the origin's commit. Nothing is checked out and the index is empty.
pub(super) async fn repository(
    git: &Rc<Git>,
    origin: &Origin,
    to: &Path,
) -> Result<(), WorkspaceError> {
    let format = format!("--object-format={}", origin.object_format);
    let args = ["init", "--quiet", "--template=", "--initial-branch=horseman", &format];
    git.run(GitOperation::Prepare, &args, GitOptions::at(to).write(to)).await?;
    let git_dir = to.join(".git");
    borrow(&git_dir, &origin.objects())?;
    let shallow = origin.common_dir.join("shallow");
    if shallow.is_file() {
        let copy = git_dir.join("shallow");
        fs::copy(&shallow, &copy).map_err(io_error("copy to", &copy))?;
    }
    let format = "--format=%(objectname) %(refname)";
    let args = ["for-each-ref", format, "refs/heads", "refs/tags", "refs/remotes"];
    let refs = origin.read(git, &args).await?;
    write(&git_dir.join("packed-refs"), &refs.stdout)?;
    write(&git_dir.join("HEAD"), format!("{}\n", origin.commit).as_bytes())?;
    let info = git_dir.join("info");
    fs::create_dir_all(&info).map_err(io_error("make", &info))?;
    write(&info.join("attributes"), RAW_ATTRIBUTES.as_bytes())?;
    write(&info.join("exclude"), b"/.horseman/\n")?;
    let config = git_dir.join("config");
    let mut text = fs::read_to_string(&config).map_err(io_error("read", &config))?;
    text.push_str(CONFIG);
    write(&config, text.as_bytes())
}

/// What a clone's own configuration adds: commits work, nothing is cleaned up behind the borrowed
/// store's back.
const CONFIG: &str = "[user]
\tname = horseman
\temail = horseman@localhost
[core]
\tautocrlf = false
[commit]
\tgpgSign = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[advice]
\tdetachedHead = false
";

/// Checks the origin's commit out in the repository at `to`; with `sparse`, these folders and the
/// files of the folders above them.
pub(super) async fn check_out(
    git: &Rc<Git>,
    origin: &Origin,
    (to, sparse): (&Path, &[String]),
) -> Result<(), WorkspaceError> {
    let options = || {
        let mut options = GitOptions::at(to).git_dir(&to.join(".git")).work_tree(to).write(to);
        options.config.push(("core.fsync".to_owned(), "none".to_owned()));
        options
    };
    if !sparse.is_empty() {
        let mut lines = sparse.join("\n").into_bytes();
        lines.push(b'\n');
        let args = ["sparse-checkout", "set", "--cone", "--stdin"];
        git.run(GitOperation::Prepare, &args, options().stdin(lines)).await?;
    }
    let args = ["read-tree", "-m", "-u", "HEAD"];
    match git.run(GitOperation::Prepare, &args, options()).await {
        Err(GitError::Failed { command, status, text }) if origin.is_partial => {
            let text = format!(
                "{text}; the checkout is a partial clone and the network isn't used here: fetch \
                 the missing objects first, for example with `git fetch --refetch --no-filter`"
            );
            Err(GitError::Failed { command, status, text }.into())
        }
        other => other.map(drop).map_err(Into::into),
    }
}

/// Fills the index of the repository at `to` from its commit, without touching files.
pub(super) async fn fill_index(git: &Rc<Git>, to: &Path) -> Result<(), WorkspaceError> {
    let options = GitOptions::at(to).git_dir(&to.join(".git")).work_tree(to).write(to);
    git.run(GitOperation::Prepare, &["read-tree", "HEAD"], options).await?;
    Ok(())
}

/// Name of a path for messages.
pub(super) fn shown(path: &Path) -> String {
    String::from_utf8_lossy(git::bytes(path)).into_owned()
}
