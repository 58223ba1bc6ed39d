//! The source: what a checkout says about itself, read through our own git.
//!
//! In: a folder. Out: facts, commits, blobs and lists of its repository. Writes nothing, runs no
//! program that the checkout's configuration names, and reaches no network.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::git::{self, Git, GitError, GitOptions, GitOutput};
use super::{WorkspaceError, lfs};
use crate::approval::GitOperation;

/// What is asked of a checkout in one call; one line each.
const FACTS: [&str; 6] = [
    "rev-parse",
    "--show-toplevel",
    "--absolute-git-dir",
    "--git-common-dir",
    "--is-shallow-repository",
    "--show-object-format",
];
/// The commit that is checked out, then the branch's full name, or `HEAD` without one.
const HEAD: [&str; 4] = ["rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD"];
/// Settings of a checkout that count, or that must not: how its files are converted, and the
/// programs that it names.
const SETTINGS: &str = r"^(extensions\.partialclone|core\.(autocrlf|eol|filemode|symlinks|ignorecase)|filter\..*\.(clean|smudge|process|required)|diff\..*\.(textconv|command)|merge\..*\.driver)$";

/// A git checkout: main work tree, linked worktree or submodule; never written to.
#[derive(Debug)]
pub struct Source {
    git: Rc<Git>,
    root: PathBuf,
    git_dir: PathBuf,
    common_dir: PathBuf,
    head: Option<String>,
    branch: Option<String>,
    is_shallow: bool,
    is_partial: bool,
    object_format: String,
    settings: Vec<(String, String)>,
}

/// One entry of a commit's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// Mode as git writes it: `100644`, `100755`, `120000`, `160000`.
    pub mode: String,
    /// Object id.
    pub id: String,
    /// Path relative to the root.
    pub path: PathBuf,
}

/// Changes of the checkout that no commit has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncommitted {
    /// Tracked paths that differ from HEAD, in the index or in the work tree.
    pub changed: Vec<PathBuf>,
    /// Untracked paths that aren't ignored.
    pub untracked: Vec<PathBuf>,
}

impl Uncommitted {
    /// Number of paths.
    pub fn count(&self) -> usize {
        self.changed.len() + self.untracked.len()
    }

    /// One clause for people: the count and the first five names.
    pub fn summary(&self) -> String {
        let names: Vec<String> = self
            .changed
            .iter()
            .chain(&self.untracked)
            .take(5)
            .map(|path| format!("`{}`", path.display()))
            .collect();
        let more = if self.count() > names.len() { ", …" } else { "" };
        let files = if self.count() == 1 { "path" } else { "paths" };
        format!("{} uncommitted {files}: {}{more}", self.count(), names.join(", "))
    }
}

impl Source {
    /// Opens the checkout that `folder` lies in; `None` when it lies in none.
    ///
    /// # Errors
    ///
    /// Git is missing, or the repository is broken.
    pub async fn open(git: &Rc<Git>, folder: &Path) -> Result<Option<Self>, WorkspaceError> {
        let ask =
            async |args: &[&str]| git.run(GitOperation::Read, args, GitOptions::at(folder)).await;
        let facts = match ask(&FACTS).await {
            Ok(output) => output,
            Err(error) if has_no_work_tree(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let lines: Vec<&[u8]> = facts.stdout.split(|&byte| byte == b'\n').collect();
        let [root, git_dir, common, shallow, object_format, b""] = lines[..] else {
            return Err(WorkspaceError::OddName { path: folder.to_path_buf() });
        };
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let (head, branch) = match answer(ask(&HEAD).await)? {
            Some(text) => match text.split_once('\n') {
                Some((commit, name)) => {
                    let branch = name.strip_prefix("refs/heads/").map(str::to_owned);
                    (Some(commit.to_owned()), branch)
                }
                None => (Some(text), None),
            },
            // Before the first commit there is a branch and nothing on it.
            None => (None, answer(ask(&["symbolic-ref", "--quiet", "--short", "HEAD"]).await)?),
        };
        let settings = match ask(&["config", "-z", "--show-scope", "--get-regexp", SETTINGS]).await
        {
            Ok(output) => parse_settings(&output),
            Err(error) if error.is_refusal() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        // Without `..` in it: inside, a folder on the way may not be there.
        let common_dir = folder.join(path(common));
        Ok(Some(Self {
            git: Rc::clone(git),
            common_dir: common_dir.canonicalize().unwrap_or(common_dir),
            root: path(root),
            git_dir: path(git_dir),
            head,
            branch,
            is_shallow: shallow == b"true",
            is_partial: settings.iter().any(|(name, _)| name == "extensions.partialclone"),
            object_format: String::from_utf8_lossy(object_format).into_owned(),
            settings,
        }))
    }

    /// Root of the work tree; absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// This work tree's own git folder; for a linked worktree not the one with the objects.
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// The git folder with objects and refs.
    pub fn common_dir(&self) -> &Path {
        &self.common_dir
    }

    /// The checked-out commit; `None` before the first one.
    pub fn head(&self) -> Option<&str> {
        self.head.as_deref()
    }

    /// The checked-out branch; `None` when HEAD is detached.
    pub fn branch(&self) -> Option<&str> {
        self.branch.as_deref()
    }

    /// Whether HEAD names a commit and no branch.
    pub fn is_detached(&self) -> bool {
        self.branch.is_none()
    }

    /// Whether history is cut off.
    pub fn is_shallow(&self) -> bool {
        self.is_shallow
    }

    /// Whether objects are missing that git would fetch when needed.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// `sha1` or `sha256`.
    pub fn object_format(&self) -> &str {
        &self.object_format
    }

    /// Facts that the agent and the record should know, one sentence each.
    pub fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if self.is_shallow {
            notices.push("history is shallow: older commits exist and aren't here".to_owned());
        }
        if self.is_partial {
            notices
                .push("the checkout is a partial clone: some objects may not be here".to_owned());
        }
        if self.head.is_some() && self.is_detached() {
            notices.push("the checkout has a detached HEAD".to_owned());
        }
        notices
    }

    /// Resolves `rev` to the full id of a commit.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::UnknownRevision`], with what helps where history or refs are cut off.
    pub async fn resolve(&self, rev: &str) -> Result<String, WorkspaceError> {
        let spec = format!("{rev}^{{commit}}");
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", &spec];
        match answer(self.read(&args).await)? {
            Some(commit) if !rev.is_empty() => Ok(commit),
            _ => Err(WorkspaceError::UnknownRevision {
                rev: rev.to_owned(),
                root: self.root.clone(),
                remedy: self.remedy(rev).await?,
            }),
        }
    }

    /// Whether `commit` is `rev` or one of its ancestors; no for a revision that isn't here.
    ///
    /// # Errors
    ///
    /// Git can't be run.
    pub async fn is_ancestor(&self, commit: &str, rev: &str) -> Result<bool, WorkspaceError> {
        let args = ["merge-base", "--is-ancestor", commit, rev];
        Ok(answer(self.read(&args).await)?.is_some())
    }

    async fn remedy(&self, rev: &str) -> Result<String, WorkspaceError> {
        let remotes = self.read(&["remote"]).await?.line();
        let Some(remote) = remotes.lines().next() else { return Ok(String::new()) };
        let depth = if self.is_shallow { "--unshallow " } else { "" };
        let why = if self.is_shallow {
            "; the checkout is shallow, fetch it first"
        } else {
            "; fetch it first"
        };
        let is_id = rev.len() >= 7 && rev.chars().all(|c| c.is_ascii_hexdigit());
        if is_id {
            return Ok(format!("{why}: `git fetch {depth}{remote} {rev}`"));
        }
        let name = rev.split(['~', '^', '@', ':']).next().unwrap_or(rev);
        let name = name
            .trim_start_matches("refs/heads/")
            .trim_start_matches("refs/remotes/")
            .trim_start_matches(&format!("{remote}/"));
        // A clone of one branch or tag has a refspec that never brings other branches, with
        // `--unshallow` neither, so the refspec is written out.
        Ok(format!(
            "{why}: `git fetch {depth}{remote} +refs/heads/{name}:refs/remotes/{remote}/{name}`, \
             then name it `{remote}/{name}`"
        ))
    }

    /// Reads the file `path` as `commit` has it; `None` when it has no such file.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn read_blob(
        &self,
        commit: &str,
        path: &Path,
    ) -> Result<Option<Vec<u8>>, WorkspaceError> {
        let entries = self.list(commit, Some(path)).await?;
        let Some(entry) = entries.iter().find(|entry| entry.path == path) else {
            return Ok(None);
        };
        if entry.mode == "160000" {
            return Ok(None);
        }
        Ok(Some(self.read(&["cat-file", "blob", &entry.id]).await?.stdout))
    }

    /// Lists the files of `commit`, all of them or those at or below `prefix`, sorted by path.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn list(
        &self,
        commit: &str,
        prefix: Option<&Path>,
    ) -> Result<Vec<TreeEntry>, WorkspaceError> {
        let mut args = vec!["ls-tree", "-r", "-z", "--full-tree", commit];
        if let Some(prefix) = prefix.filter(|prefix| !prefix.as_os_str().is_empty()) {
            args.extend(["--", git::text(prefix)?]);
        }
        let output = self.read(&args).await?;
        Ok(parse_tree(&output))
    }

    /// Changes that no commit has. Submodules count when another commit is checked out there.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn uncommitted(&self) -> Result<Uncommitted, WorkspaceError> {
        let args = [
            "status",
            "--porcelain=v1",
            "-z",
            "--no-renames",
            "--untracked-files=all",
            "--ignore-submodules=dirty",
        ];
        let mut options = GitOptions::at(&self.root);
        options.config = self.own_settings();
        let output = self.git.run(GitOperation::Read, &args, options).await?;
        let mut found = Uncommitted::default();
        for field in output.fields() {
            let Some((status, path)) = field.split_at_checked(3) else { continue };
            let path = PathBuf::from(OsStr::from_bytes(path));
            if path.components().next().is_some_and(|part| part.as_os_str() == ".horseman") {
                continue;
            }
            if status.starts_with(b"??") {
                found.untracked.push(path);
            } else if status != b" M " || !self.is_same_lfs(&path).await? {
                found.changed.push(path);
            }
        }
        Ok(found)
    }

    /// Settings for commands that compare or write the checkout's own files: its conversion of
    /// line ends and its rules count there, the programs that it names don't.
    pub fn own_settings(&self) -> Vec<(String, String)> {
        self.settings
            .iter()
            .filter(|(name, _)| name != "extensions.partialclone")
            .map(|(name, value)| {
                let value = match name.rsplit('.').next() {
                    _ if name.starts_with("core.") => value.as_str(),
                    Some("required") => "false",
                    _ => "",
                };
                (name.clone(), value.to_owned())
            })
            .collect()
    }

    /// Without its filter an LFS file always differs from its pointer, so it is compared by digest.
    async fn is_same_lfs(&self, path: &Path) -> Result<bool, WorkspaceError> {
        let mut spec = b":0:".to_vec();
        spec.extend_from_slice(git::bytes(path));
        let Ok(spec) = String::from_utf8(spec) else { return Ok(false) };
        let size = answer(self.read(&["cat-file", "-s", &spec]).await)?;
        if size.and_then(|size| size.parse::<u64>().ok()).is_none_or(|size| size > lfs::POINTER_MAX)
        {
            return Ok(false);
        }
        let blob = self.read(&["cat-file", "blob", &spec]).await?.stdout;
        Ok(lfs::Pointer::parse(&blob)
            .is_some_and(|pointer| pointer.is_content(&self.root.join(path)).unwrap_or(false)))
    }

    /// Paths of submodules in `commit`.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn submodules(&self, commit: &str) -> Result<Vec<PathBuf>, WorkspaceError> {
        let entries = self.list(commit, None).await?;
        Ok(entries.into_iter().filter(|e| e.mode == "160000").map(|e| e.path).collect())
    }

    /// Whether files of `commit` are kept in LFS, as its `.gitattributes` say.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub async fn uses_lfs(&self, commit: &str) -> Result<bool, WorkspaceError> {
        for entry in self.list(commit, None).await? {
            if entry.path.file_name() == Some(OsStr::new(".gitattributes")) {
                let blob = self.read(&["cat-file", "blob", &entry.id]).await?.stdout;
                if lfs::is_named_in(&blob) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Runs a git command that reads the source.
    pub(super) async fn read(&self, args: &[&str]) -> Result<GitOutput, GitError> {
        self.git.run(GitOperation::Read, args, GitOptions::at(&self.root)).await
    }
}

/// Reads the output of `git ls-tree -z`.
pub(super) fn parse_tree(output: &GitOutput) -> Vec<TreeEntry> {
    output.fields().filter_map(parse_tree_entry).collect()
}

/// Parses `MODE TYPE ID\tPATH`.
fn parse_tree_entry(field: &[u8]) -> Option<TreeEntry> {
    let tab = field.iter().position(|&byte| byte == b'\t')?;
    let facts = std::str::from_utf8(&field[..tab]).ok()?;
    let mut facts = facts.split(' ');
    let (mode, _, id) = (facts.next()?, facts.next()?, facts.next()?);
    Some(TreeEntry {
        mode: mode.to_owned(),
        id: id.to_owned(),
        path: PathBuf::from(OsStr::from_bytes(&field[tab + 1..])),
    })
}

/// A refusal of git to a question is the answer "no".
pub(super) fn answer(ran: Result<GitOutput, GitError>) -> Result<Option<String>, GitError> {
    match ran {
        Ok(output) => Ok(Some(output.line())),
        Err(error) if error.is_refusal() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The settings of the repository itself, the last value of each name: what our own command line
/// says is left out.
fn parse_settings(output: &GitOutput) -> Vec<(String, String)> {
    let mut settings: Vec<(String, String)> = Vec::new();
    let fields: Vec<&[u8]> = output.fields().collect();
    for pair in fields.chunks_exact(2) {
        if pair[0] == b"command" {
            continue;
        }
        let text = String::from_utf8_lossy(pair[1]);
        // A name without a value means true.
        let (name, value) = text.split_once('\n').unwrap_or((&text, "true"));
        settings.retain(|(known, _)| known != name);
        settings.push((name.to_owned(), value.to_owned()));
    }
    settings
}

fn has_no_work_tree(error: &GitError) -> bool {
    let text = error.text();
    text.contains("not a git repository") || text.contains("must be run in a work tree")
}
