//! The shadow: our own repository over one work tree, which nothing inside can see or change.
//!
//! In: a work tree and the object store that it borrows from. Out: trees of what lies there, byte
//! for byte, whatever somebody did with git inside. No filter, no conversion, no configuration and
//! no index of the work tree takes part.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::git::{self, Git, GitOptions, GitOutput};
use super::{GitError, WorkspaceError, io_error, tree};
use crate::approval::GitOperation;

/// Largest file of a result, in bytes; our choice: a sparse file of terabytes costs its maker
/// nothing, and whoever reads it hours.
const MOST: u64 = 4 << 30;

/// Attributes that win over every `.gitattributes`: bytes are kept (P7).
pub(super) const RAW_ATTRIBUTES: &str =
    "* -text !eol -ident -filter !working-tree-encoding !diff !merge !whitespace !export-subst\n";

/// Our own repository over one work tree.
#[derive(Debug)]
pub(super) struct Shadow {
    git: Rc<Git>,
    git_dir: PathBuf,
    work_tree: PathBuf,
    no_object: String,
}

/// An entry of an index or tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Mode as git writes it.
    pub(super) mode: String,
    /// Object id.
    pub(super) id: String,
    /// Path relative to the work tree.
    pub(super) path: PathBuf,
    /// Whether a sparse checkout leaves it out of the work tree.
    pub(super) is_skipped: bool,
}

/// What lies beside the tracked files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Untracked {
    /// Files and symlinks that aren't ignored.
    pub(super) files: Vec<PathBuf>,
    /// Folders that are repositories of their own; their files are among `files`.
    pub(super) nested: Vec<PathBuf>,
    /// Paths that git can't hold.
    pub(super) refused: Vec<PathBuf>,
}

impl Shadow {
    /// Makes the repository `git_dir` over `work_tree`, with the objects of `borrowed`.
    pub(super) async fn create(
        git: &Rc<Git>,
        (git_dir, work_tree): (&Path, &Path),
        borrowed: Option<&Path>,
        object_format: &str,
    ) -> Result<Self, WorkspaceError> {
        fs::create_dir_all(git_dir).map_err(io_error("make", git_dir))?;
        let format = format!("--object-format={object_format}");
        let args = ["init", "--quiet", "--bare", "--template=", &format, git::text(git_dir)?];
        git.run(GitOperation::Snapshot, &args, GitOptions::at(git_dir).write(git_dir)).await?;
        let info = git_dir.join("info");
        fs::create_dir_all(&info).map_err(io_error("make", &info))?;
        write(&info.join("attributes"), RAW_ATTRIBUTES.as_bytes())?;
        write(&info.join("exclude"), b"/.horseman/\n")?;
        if let Some(borrowed) = borrowed {
            borrow(git_dir, borrowed)?;
        }
        Ok(Self {
            git: Rc::clone(git),
            git_dir: git_dir.to_path_buf(),
            work_tree: work_tree.to_path_buf(),
            no_object: "0".repeat(if object_format == "sha256" { 64 } else { 40 }),
        })
    }

    /// The same repository over another work tree.
    pub(super) fn over(&self, work_tree: &Path) -> Self {
        Self {
            git: Rc::clone(&self.git),
            git_dir: self.git_dir.clone(),
            work_tree: work_tree.to_path_buf(),
            no_object: self.no_object.clone(),
        }
    }

    pub(super) fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    pub(super) fn work_tree(&self) -> &Path {
        &self.work_tree
    }

    /// The index file `name` of ours.
    pub(super) fn index(&self, name: &str) -> PathBuf {
        self.git_dir.join(name)
    }

    /// Copies index `from` to index `to`; without `from`, `to` is empty.
    pub(super) fn copy_index(&self, from: &str, to: &str) -> Result<(), WorkspaceError> {
        let (from, to) = (self.index(from), self.index(to));
        tree::remove(&to)?;
        match fs::symlink_metadata(&from) {
            Ok(_) => copy_index_file(&from, &to),
            Err(_) => Ok(()),
        }
    }

    /// Entries of the index `index`.
    pub(super) async fn entries(&self, index: &str) -> Result<Vec<Entry>, WorkspaceError> {
        let output = self.run(&["ls-files", "-z", "-s", "-t"], index, Vec::new()).await?;
        Ok(output.fields().filter_map(parse_entry).collect())
    }

    /// What lies beside the files of `index`, in nested repositories too.
    pub(super) async fn untracked(&self, index: &str) -> Result<Untracked, WorkspaceError> {
        let mut found = Untracked::default();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let is_root = folder.as_os_str().is_empty();
            let args = ["ls-files", "-z", "--others", "--exclude-standard"];
            let mut options = self.options(if is_root { index } else { "no-index" });
            options.work_tree = Some(self.work_tree.join(&folder));
            options.cwd = self.work_tree.join(&folder);
            let output = self.git.run(GitOperation::Snapshot, &args, options).await?;
            let mut files = Vec::new();
            for field in output.fields() {
                if let Some(nested) = field.strip_suffix(b"/") {
                    let nested = folder.join(OsStr::from_bytes(nested));
                    found.nested.push(nested.clone());
                    folders.push(nested);
                } else {
                    files.push(folder.join(OsStr::from_bytes(field)));
                }
            }
            if !is_root {
                files = self.not_ignored(index, files).await?;
            }
            for file in files {
                // A `.git` below a folder that isn't a repository: git keeps no such name.
                if tree::is_in_git(&file) {
                    found.refused.push(file);
                } else {
                    found.files.push(file);
                }
            }
        }
        found.files.sort_unstable();
        found.nested.sort_unstable();
        Ok(found)
    }

    /// A nested repository is listed from its own root, so the rules above it are asked for apart.
    async fn not_ignored(
        &self,
        index: &str,
        files: Vec<PathBuf>,
    ) -> Result<Vec<PathBuf>, WorkspaceError> {
        if files.is_empty() {
            return Ok(files);
        }
        // This command knows no literal paths; `./` keeps a name such as `:x` from being magic.
        let mut names = Vec::new();
        for file in &files {
            names.extend_from_slice(&[b"./", git::bytes(file), b"\0"].concat());
        }
        let mut options = self.options(index).stdin(names);
        options.env.insert("GIT_LITERAL_PATHSPECS".to_owned(), "0".to_owned());
        let args = ["check-ignore", "-z", "--stdin", "--no-index"];
        let ignored = match self.git.run(GitOperation::Snapshot, &args, options).await {
            Ok(output) => output.fields().map(|field| field[2..].to_vec()).collect(),
            // Exit status 1 without a word: nothing is ignored.
            Err(error) if error.is_refusal() && error.text().is_empty() => BTreeSet::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(files.into_iter().filter(|file| !ignored.contains(git::bytes(file))).collect())
    }

    /// Brings the tracked entries of `index` up to what lies in the work tree. Submodules and what
    /// a sparse checkout left out stay as they are, and so does what `keeps` says yes to.
    pub(super) async fn update_tracked(
        &self,
        index: &str,
        keeps: &dyn Fn(&Path) -> bool,
    ) -> Result<(), WorkspaceError> {
        let (mut present, mut gone) = (Vec::new(), Vec::new());
        for entry in self.entries(index).await? {
            let is_there = self.holds_file(&entry.path)?;
            if entry.mode == "160000" && !is_there || keeps(&entry.path) {
                continue;
            }
            if is_there {
                if entry.is_skipped {
                    // Git takes such an entry for good as it is, so it goes first.
                    gone.push(entry.path.clone());
                }
                present.push(entry.path);
            } else if !entry.is_skipped {
                gone.push(entry.path);
            }
        }
        self.forget(index, &gone).await?;
        self.add(index, &present).await
    }

    /// Whether `path` is a file or symlink whose folders are real folders of the work tree.
    fn holds_file(&self, path: &Path) -> Result<bool, WorkspaceError> {
        let mut at = self.work_tree.clone();
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            at.push(part);
            let facts = match fs::symlink_metadata(&at) {
                Ok(facts) => facts,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(io_error("look at", &at)(error)),
            };
            if parts.peek().is_some() && !facts.is_dir() {
                return Ok(false);
            }
            if parts.peek().is_none() {
                return Ok(facts.is_file() || facts.is_symlink());
            }
        }
        Ok(false)
    }

    /// Puts files of the work tree into `index`.
    pub(super) async fn add(&self, index: &str, paths: &[PathBuf]) -> Result<(), WorkspaceError> {
        if paths.is_empty() {
            return Ok(());
        }
        for path in paths {
            let file = self.work_tree.join(path);
            let bytes = fs::symlink_metadata(&file).map_err(io_error("look at", &file))?.len();
            if bytes > MOST {
                return Err(WorkspaceError::TooLarge { path: path.clone(), bytes, most: MOST });
            }
        }
        let args = ["update-index", "-z", "--add", "--replace", "--stdin"];
        self.run(&args, index, join(paths)).await?;
        Ok(())
    }

    /// Takes paths out of `index`.
    pub(super) async fn forget(
        &self,
        index: &str,
        paths: &[PathBuf],
    ) -> Result<(), WorkspaceError> {
        let lines: Vec<_> = paths
            .iter()
            .map(|path| (("0".to_owned(), self.no_object.clone()), path.as_path()))
            .collect();
        self.set(index, &lines).await
    }

    /// Sets entries of `index`: `(mode, id)` and path.
    pub(super) async fn set(
        &self,
        index: &str,
        entries: &[((String, String), &Path)],
    ) -> Result<(), WorkspaceError> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for ((mode, id), path) in entries {
            lines.extend_from_slice(format!("{mode} {id}\t").as_bytes());
            lines.extend_from_slice(git::bytes(path));
            lines.push(0);
        }
        self.run(&["update-index", "-z", "--index-info"], index, lines).await?;
        Ok(())
    }

    /// Stores `bytes` and returns their object id.
    pub(super) async fn store(&self, bytes: &[u8]) -> Result<String, WorkspaceError> {
        let args = ["hash-object", "-w", "--stdin", "--no-filters"];
        Ok(self.run(&args, "no-index", bytes.to_vec()).await?.line())
    }

    /// Writes the tree of `index` and returns its id.
    pub(super) async fn write_tree(&self, index: &str) -> Result<String, WorkspaceError> {
        Ok(self.run(&["write-tree"], index, Vec::new()).await?.line())
    }

    /// Runs a command of ours on `index`, with `stdin`.
    pub(super) async fn run(
        &self,
        args: &[&str],
        index: &str,
        stdin: Vec<u8>,
    ) -> Result<GitOutput, GitError> {
        self.git.run(GitOperation::Snapshot, args, self.options(index).stdin(stdin)).await
    }

    /// Runs a command of ours that writes into the work tree `work_tree`.
    pub(super) async fn write_out(
        &self,
        args: &[&str],
        index: &str,
        (work_tree, stdin): (&Path, Vec<u8>),
    ) -> Result<GitOutput, GitError> {
        let mut options = self.options(index).work_tree(work_tree).write(work_tree).stdin(stdin);
        options.cwd = work_tree.to_path_buf();
        self.git.run(GitOperation::Prepare, args, options).await
    }

    fn options(&self, index: &str) -> GitOptions {
        let mut options = GitOptions::at(&self.work_tree)
            .git_dir(&self.git_dir)
            .work_tree(&self.work_tree)
            .index(&self.index(index))
            .write(&self.git_dir);
        // The snapshot is thrown away with the run; a crash needs no durable objects.
        options.config.push(("core.fsync".to_owned(), "none".to_owned()));
        options.config.push(("core.bare".to_owned(), "false".to_owned()));
        options
    }
}

/// Lets the repository `git_dir` read the objects of `objects`; nothing is copied or linked.
pub(super) fn borrow(git_dir: &Path, objects: &Path) -> Result<(), WorkspaceError> {
    let info = git_dir.join("objects").join("info");
    fs::create_dir_all(&info).map_err(io_error("make", &info))?;
    let mut line = git::bytes(objects).to_vec();
    if line.contains(&b'\n') {
        return Err(GitError::NotUtf8 { path: objects.to_path_buf() }.into());
    }
    line.push(b'\n');
    write(&info.join("alternates"), &line)
}

/// Copies an index with its time. Git takes a file for changed when it isn't older than the index:
/// a copy with a later time would hide a change of the same length made within one clock tick.
pub(super) fn copy_index_file(from: &Path, to: &Path) -> Result<(), WorkspaceError> {
    let facts = fs::symlink_metadata(from).map_err(io_error("look at", from))?;
    tree::copy_leaf(from, to, &facts)
}

pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), WorkspaceError> {
    fs::write(path, bytes).map_err(io_error("write", path))
}

/// Paths as git reads them with `-z`.
pub(super) fn join(paths: &[PathBuf]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for path in paths {
        bytes.extend_from_slice(git::bytes(path));
        bytes.push(0);
    }
    bytes
}

/// Parses `TAG MODE ID STAGE\tPATH`.
fn parse_entry(field: &[u8]) -> Option<Entry> {
    let tab = field.iter().position(|&byte| byte == b'\t')?;
    let mut facts = std::str::from_utf8(&field[..tab]).ok()?.split(' ');
    let (tag, mode, id) = (facts.next()?, facts.next()?, facts.next()?);
    Some(Entry {
        mode: mode.to_owned(),
        id: id.to_owned(),
        path: PathBuf::from(OsString::from_vec(field[tab + 1..].to_vec())),
        is_skipped: tag.eq_ignore_ascii_case("s"),
    })
}
