//! Apply: a finished run's patch onto a checkout, whole or not at all (P7).
//!
//! In: patch bytes, the folder, and what must hold. Out: what changed, or the reason why nothing
//! did. Used by `horseman apply` and `run --apply`. Knows nothing of runs or reports.

mod touched;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use thiserror::Error;

use crate::approval::GitOperation;
use crate::text::sha256;
use crate::transcript::event::FileChange;
use crate::workspace::{
    Change, Git, GitError, GitOptions, Source, WorkspaceError, touched_protected, tree,
};
use touched::Touched;

/// How a patch is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    /// SHA-256 in hex that the patch must have; `None`: not checked.
    pub sha256: Option<String>,
    /// Globs of paths that the patch must not touch.
    pub protected: Vec<String>,
    /// What happens when files differ from those that the patch was taken on.
    pub on_other_base: OtherBase,
    /// Message of the commit to make; `None`: the change stays uncommitted.
    pub commit: Option<String>,
}

/// What happens when a file isn't the one that the patch was taken on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherBase {
    /// The patch is refused.
    #[default]
    Refuse,
    /// Three-way merge; refused when there are conflicts.
    Merge,
}

/// What was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Files changed.
    pub files: Vec<FileChange>,
    /// The commit that was made.
    pub commit: Option<String>,
}

/// Why nothing was applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The patch isn't the one that the run recorded.
    #[error("patch must have SHA-256 `{expected}` as recorded, got `{found}`")]
    Digest {
        /// Recorded.
        expected: String,
        /// Computed.
        found: String,
    },
    /// Protected paths.
    #[error("the patch touches protected paths: {}", list(.paths))]
    Protected {
        /// The paths.
        paths: Vec<String>,
    },
    /// Files have changes that no commit has.
    #[error("these files have uncommitted changes that the patch would touch: {}", list(.paths))]
    Uncommitted {
        /// The paths.
        paths: Vec<String>,
    },
    /// Files aren't those that the patch was taken on.
    #[error("these files differ from the base that the patch was taken on: {}", list(.paths))]
    OtherBase {
        /// The paths.
        paths: Vec<String>,
    },
    /// Files are in the way.
    #[error("the patch adds files that are already there: {}", list(.paths))]
    InTheWay {
        /// The paths.
        paths: Vec<String>,
    },
    /// The merge has conflicts.
    #[error("three-way merge has conflicts: {text}")]
    Conflicts {
        /// What git said.
        text: String,
    },
    /// Merging or committing without a repository.
    #[error("`{}` must be a git checkout for `{flag}`", path.display())]
    NoCheckout {
        /// The folder.
        path: PathBuf,
        /// What needs it.
        flag: &'static str,
    },
    /// The index already holds changes, which would be committed as well.
    #[error("`--commit` needs an index without staged changes, found {}", list(.paths))]
    Staged {
        /// The paths.
        paths: Vec<String>,
    },
    /// The patch text is damaged.
    #[error("the patch can't be read: {what}")]
    Unreadable {
        /// What is wrong, with the line.
        what: String,
    },
    /// A file can't be used, or git failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl From<GitError> for ApplyError {
    fn from(error: GitError) -> Self {
        Self::Workspace(error.into())
    }
}

/// Names for a message: the first five, in backticks.
fn list(paths: &[String]) -> String {
    let names: Vec<String> = paths.iter().take(5).map(|path| format!("`{path}`")).collect();
    let more = paths.len().saturating_sub(5);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

/// Applies `patch` to the folder `to`, which may be a checkout, a folder of one, or neither.
/// Verified first: digest, protected paths, and that every file is the one that the patch was
/// taken on. Nothing is changed unless everything can be.
///
/// # Errors
///
/// See [`ApplyError`]; the folder is then as it was.
pub async fn apply(
    git: &Rc<Git>,
    patch: &[u8],
    to: &Path,
    options: &ApplyOptions,
) -> Result<Applied, ApplyError> {
    let found = sha256(patch);
    if let Some(expected) = options.sha256.as_ref().filter(|expected| **expected != found) {
        return Err(ApplyError::Digest { expected: expected.clone(), found });
    }
    let touched = touched::read(patch).map_err(|what| ApplyError::Unreadable { what })?;
    let files: Vec<FileChange> = touched.iter().map(Touched::change).collect();
    let change = Change { files, ..Change::default() };
    let paths = touched_protected(&change, &options.protected)?;
    if !paths.is_empty() {
        return Err(ApplyError::Protected { paths });
    }
    let to = fs::canonicalize(to).map_err(|source| WorkspaceError::Io {
        action: "resolve",
        path: to.to_path_buf(),
        source,
    })?;
    let source = Source::open(git, &to).await?;
    let target = Target { git: Rc::clone(git), source, to };
    target.require_checkout(options)?;
    target.verify(&touched, options).await?;
    if touched.is_empty() {
        return Ok(Applied::default());
    }
    target.write(patch, &touched, options).await?;
    let commit = match &options.commit {
        Some(message) => Some(target.commit(message).await?),
        None => None,
    };
    Ok(Applied { files: change.files, commit })
}

/// The folder that a patch goes onto.
struct Target {
    git: Rc<Git>,
    source: Option<Source>,
    to: PathBuf,
}

impl Target {
    /// Where paths of the index and of `git apply` start.
    fn root(&self) -> &Path {
        self.source.as_ref().map_or(&self.to, Source::root)
    }

    /// The path of the patch as the repository knows it.
    fn below_root(&self, path: &Path) -> PathBuf {
        self.to.strip_prefix(self.root()).unwrap_or(Path::new("")).join(path)
    }

    fn require_checkout(&self, options: &ApplyOptions) -> Result<(), ApplyError> {
        let flag = match (&options.commit, options.on_other_base) {
            _ if self.source.is_some() => return Ok(()),
            (Some(_), _) => "--commit",
            (None, OtherBase::Merge) => "--3way",
            (None, OtherBase::Refuse) => return Ok(()),
        };
        Err(ApplyError::NoCheckout { path: self.to.clone(), flag })
    }

    async fn verify(&self, touched: &[Touched], options: &ApplyOptions) -> Result<(), ApplyError> {
        let (mut uncommitted, mut other, mut in_the_way) = (Vec::new(), Vec::new(), Vec::new());
        let index = self.index().await?;
        let dirty = self.dirty().await?;
        if options.commit.is_some() {
            self.require_clean_index().await?;
        }
        let is_strict = options.commit.is_some() || options.on_other_base == OtherBase::Merge;
        for touched in touched {
            if let Some(path) = touched.before() {
                let name = path.display().to_string();
                let full = self.below_root(path);
                let is_dirty =
                    self.source.is_some() && (dirty.contains(&full) || !index.contains_key(&full));
                let is_same = if is_dirty || self.source.is_none() {
                    self.is_file_same(path, touched).await?
                } else {
                    touched.id.as_ref().is_none_or(|id| index.get(&full) == Some(id))
                };
                if is_dirty && (is_strict || !is_same) {
                    uncommitted.push(name);
                } else if !is_same && options.on_other_base == OtherBase::Refuse {
                    other.push(name);
                }
            }
            if let Some(path) = touched.added()
                && fs::symlink_metadata(self.to.join(path)).is_ok_and(|facts| !facts.is_dir())
                && !touched_before(touched, path)
            {
                in_the_way.push(path.display().to_string());
            }
        }
        if !uncommitted.is_empty() {
            return Err(ApplyError::Uncommitted { paths: uncommitted });
        }
        if !other.is_empty() {
            return Err(ApplyError::OtherBase { paths: other });
        }
        if !in_the_way.is_empty() && options.on_other_base == OtherBase::Refuse {
            return Err(ApplyError::InTheWay { paths: in_the_way });
        }
        Ok(())
    }

    /// Whether the bytes that lie there are those that the patch was taken on.
    async fn is_file_same(&self, path: &Path, touched: &Touched) -> Result<bool, ApplyError> {
        let full = self.to.join(path);
        let Ok(facts) = fs::symlink_metadata(&full) else { return Ok(false) };
        let bytes = if facts.is_symlink() {
            use std::os::unix::ffi::OsStrExt as _;
            fs::read_link(&full).map(|goal| goal.as_os_str().as_bytes().to_vec())
        } else {
            fs::read(&full)
        };
        let bytes = bytes.map_err(|source| WorkspaceError::Io {
            action: "read",
            path: full.clone(),
            source,
        })?;
        let Some(id) = &touched.id else { return Ok(true) };
        let args = ["hash-object", "--no-filters", "--stdin"];
        let options = GitOptions::at(&self.to).stdin(bytes);
        Ok(self.git.run(GitOperation::Read, &args, options).await?.line() == *id)
    }

    async fn index(&self) -> Result<BTreeMap<PathBuf, String>, ApplyError> {
        if self.source.is_none() {
            return Ok(BTreeMap::new());
        }
        let args = ["ls-files", "-z", "-s"];
        let output = self.git.run(GitOperation::Read, &args, GitOptions::at(self.root())).await?;
        Ok(output.fields().filter_map(touched::index_entry).collect())
    }

    async fn dirty(&self) -> Result<Vec<PathBuf>, ApplyError> {
        let Some(source) = &self.source else { return Ok(Vec::new()) };
        Ok(source.uncommitted().await?.changed)
    }

    async fn require_clean_index(&self) -> Result<(), ApplyError> {
        let args = ["diff", "--cached", "--name-only", "--no-ext-diff", "-z", "HEAD"];
        let output = self.git.run(GitOperation::Read, &args, GitOptions::at(self.root())).await?;
        let paths: Vec<String> =
            output.fields().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
        if paths.is_empty() { Ok(()) } else { Err(ApplyError::Staged { paths }) }
    }

    async fn write(
        &self,
        patch: &[u8],
        touched: &[Touched],
        options: &ApplyOptions,
    ) -> Result<(), ApplyError> {
        let below = self.below_root(Path::new(""));
        let directory = format!("--directory={}", below.display());
        let mut args = vec!["apply", "--binary", "--whitespace=nowarn"];
        if !below.as_os_str().is_empty() {
            args.push(&directory);
        }
        if options.on_other_base == OtherBase::Merge {
            self.rehearse(&args, patch).await?;
            args.push("--3way");
        } else {
            let check = [&args[..], &["--check"]].concat();
            self.git.run(GitOperation::Apply, &check, self.options(patch)).await?;
            if options.commit.is_some() {
                args.push("--index");
            }
        }
        // The check passed, so only the disk can fail now; then everything is put back.
        let backup = Backup::take(self.git.private(), (&self.to, touched))?;
        if let Err(error) = self.git.run(GitOperation::Apply, &args, self.options(patch)).await {
            backup.put_back(&self.to)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Merges into a copy of the index: conflicts show there and leave the checkout alone.
    async fn rehearse(&self, args: &[&str], patch: &[u8]) -> Result<(), ApplyError> {
        let Some(source) = &self.source else { return Ok(()) };
        let (index, copy) =
            (source.git_dir().join("index"), self.git.private().join("merge-index"));
        let io = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source: io::Error| WorkspaceError::Io { action, path, source }
        };
        // With the time of the original, by which git tells what may have changed since.
        let facts = fs::symlink_metadata(&index).map_err(io("look at", &index))?;
        tree::remove(&copy)?;
        tree::copy_leaf(&index, &copy, &facts)?;
        let args = [args, &["--cached", "--3way"]].concat();
        let options = self.options(patch).index(&copy);
        let ran = self.git.run(GitOperation::Apply, &args, options).await;
        fs::remove_file(&copy).map_err(io("remove", &copy))?;
        match ran {
            Err(error) if error.is_refusal() => {
                Err(ApplyError::Conflicts { text: error.text().to_owned() })
            }
            other => other.map(drop).map_err(Into::into),
        }
    }

    fn options(&self, patch: &[u8]) -> GitOptions {
        let mut options = GitOptions::at(self.root()).write(self.root()).stdin(patch.to_vec());
        if let Some(source) = &self.source {
            options = options.write(source.git_dir()).write(source.common_dir());
            options.config = source.own_settings();
        }
        // Names that are special on other systems are fine in a snapshot, not on a user's disk.
        for key in ["core.protectNTFS", "core.protectHFS"] {
            options.config.push((key.to_owned(), "true".to_owned()));
        }
        options
    }

    /// Commits the index, which holds HEAD and the patch. No hook runs.
    async fn commit(&self, message: &str) -> Result<String, ApplyError> {
        let run = async |args: &[&str], stdin: &[u8]| {
            let mut options = self.options(stdin);
            for (role, key) in [("NAME", "user.name"), ("EMAIL", "user.email")] {
                let ask = ["config", "--local", key];
                let own = self.git.run(GitOperation::Read, &ask, GitOptions::at(self.root())).await;
                let own = own.ok().map(|output| output.line()).filter(|own| !own.is_empty());
                let neutral = if role == "NAME" { "horseman" } else { "horseman@localhost" };
                let value = own.unwrap_or_else(|| neutral.to_owned());
                for person in ["AUTHOR", "COMMITTER"] {
                    options.env.insert(format!("GIT_{person}_{role}"), value.clone());
                }
            }
            Ok::<_, ApplyError>(self.git.run(GitOperation::Commit, args, options).await?.line())
        };
        let head = run(&["rev-parse", "--verify", "HEAD"], b"").await?;
        let tree = run(&["write-tree"], b"").await?;
        let args = ["commit-tree", &tree, "-p", &head, "-F", "-"];
        let commit = run(&args, message.as_bytes()).await?;
        let args = ["update-ref", "-m", "horseman apply", "HEAD", &commit, &head];
        run(&args, b"").await?;
        Ok(commit)
    }
}

/// A rename whose new name differs from the old one only in case, on such a file system.
fn touched_before(touched: &Touched, path: &Path) -> bool {
    touched.before() == Some(path)
}

/// The touched files as they were.
struct Backup {
    folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
}

impl Backup {
    fn take(private: &Path, (root, touched): (&Path, &[Touched])) -> Result<Self, ApplyError> {
        let folder = tempfile::TempDir::new_in(private).map_err(|source| WorkspaceError::Io {
            action: "make a folder in",
            path: private.to_path_buf(),
            source,
        })?;
        let mut paths = Vec::new();
        for path in touched.iter().flat_map(|touched| [&touched.old, &touched.new]).flatten() {
            let from = root.join(path);
            if let Ok(facts) = fs::symlink_metadata(&from)
                && !facts.is_dir()
            {
                let to = folder.path().join(paths.len().to_string());
                tree::copy_leaf(&from, &to, &facts)?;
            }
            paths.push(path.clone());
        }
        Ok(Self { folder, paths })
    }

    fn put_back(&self, root: &Path) -> Result<(), ApplyError> {
        for (number, path) in self.paths.iter().enumerate() {
            let from = self.folder.path().join(number.to_string());
            let target = root.join(path);
            match fs::symlink_metadata(&from) {
                Ok(facts) if !tree::is_same_leaf(&from, &target) => {
                    tree::make_parents(root, path)?;
                    tree::remove(&target)?;
                    tree::copy_leaf(&from, &target, &facts)?;
                }
                Ok(_) => {}
                Err(_) => tree::remove(&target)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::{Backup, touched};

    #[test]
    fn p7_half_a_patch_is_put_back() {
        let (root, private) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (root, private) = (root.path(), private.path());
        fs::write(root.join("a"), "before").unwrap();
        fs::write(root.join("b"), "gone").unwrap();
        let patch = b"diff --git a/a b/a\nindex 1..2\ndiff --git a/b b/c/d\nrename from b\n\
            rename to c/d\n";
        let touched = touched::read(patch).unwrap();
        let backup = Backup::take(private, (root, &touched)).unwrap();
        fs::write(root.join("a"), "half").unwrap();
        fs::remove_file(root.join("b")).unwrap();
        fs::create_dir(root.join("c")).unwrap();
        fs::write(root.join("c/d"), "new").unwrap();
        backup.put_back(root).unwrap();
        let read = |path: &str| fs::read_to_string(root.join(Path::new(path))).ok();
        assert_eq!(read("a").as_deref(), Some("before"));
        assert_eq!(read("b").as_deref(), Some("gone"));
        assert_eq!(read("c/d"), None);
    }
}
