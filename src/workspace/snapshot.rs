//! The snapshot: what the tree was after setup, and what became of it.
//!
//! In: the work tree, twice. Out: the patch between both, whatever was done with git inside.
//! Knows nothing of checks or reports.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::change::{Case, parse_files, paths_set};
use super::clone::shown;
use super::layered::{shadow_over, update};
use super::lfs::Pointer;
use super::prepare::{Repo, Workspace};
use super::shadow::{Shadow, Untracked};
use super::{
    Change, GitError, LfsObject, SubmoduleChange, WorkspaceError, io_error, overlay, tree,
};
use crate::plan::WorkspaceKind;
use crate::text::sha256;
use crate::transcript::event::FileChange;

/// A kept file that isn't part of the patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// Path relative to the workspace.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
}

/// What a snapshot of one repository found.
struct Taken {
    tree: String,
    lfs: Vec<LfsObject>,
    notices: Vec<String>,
}

impl Workspace {
    /// Takes the base after setup: tracked files as they are now. What setup made beside them is
    /// remembered and counts as a change only when it differs at the end. Where a fresh tree can't
    /// be cloned again (setup, caches, carried changes, `copy`, `in-place`), a pristine copy is
    /// taken as well.
    ///
    /// # Errors
    ///
    /// A file can't be read, or there is no room.
    pub async fn base(&mut self) -> Result<(), WorkspaceError> {
        self.open_up()?;
        let layers = self.layers.clone();
        for repo in &mut self.repos {
            // A file that setup rewrote is an ordinary one from here on.
            repo.lfs = same_pointers(repo)?;
            let pointers = &repo.lfs;
            update(layers.as_ref(), repo, ("index", &|path| pointers.contains_key(path))).await?;
            repo.base_tree = repo.shadow.write_tree("index").await?;
        }
        self.note_untracked().await?;
        self.take_pristine().await?;
        self.has_base = true;
        Ok(())
    }

    /// Remembers what lies beside the tracked files now, as if setup had made it. For the time
    /// after the `before` checks.
    ///
    /// # Errors
    ///
    /// A file can't be read.
    pub async fn note_untracked(&mut self) -> Result<(), WorkspaceError> {
        let changed = self.show_changed()?;
        for repo in &mut self.repos {
            let shadow = shadow_over(changed.as_deref(), repo);
            let untracked = shadow.untracked("index").await?;
            repo.products = ids(&shadow, &untracked.files).await?;
        }
        Ok(())
    }

    /// Takes what became of the tree as a patch against the base. Call it once all processes of
    /// the agent are dead.
    ///
    /// # Errors
    ///
    /// A file can't be read, or [`base`](Self::base) wasn't taken.
    pub async fn result(&self) -> Result<Change, WorkspaceError> {
        self.require_base("result")?;
        self.open_up()?;
        let mut change = Change::default();
        let changed = self.show_changed()?;
        for repo in &self.repos {
            // A symlink in its place would have us read, and later write, what lies outside.
            if !self.has_folder(&repo.prefix) {
                change.notices.push(format!("submodule `{}` is gone", shown(&repo.prefix)));
                continue;
            }
            let taken = self.take(repo, changed.as_deref()).await?;
            let patch = repo.shadow.diff(&repo.base_tree, &taken.tree).await?;
            let files = repo.shadow.files(&repo.base_tree, &taken.tree).await?;
            change.files.extend(files.into_iter().map(|file| below(&repo.prefix, file)));
            change.lfs.extend(taken.lfs);
            change.notices.extend(taken.notices);
            if repo.prefix.as_os_str().is_empty() {
                change.sha256 = sha256(&patch);
                change.patch = patch;
                change.base_tree.clone_from(&repo.base_tree);
                change.result_tree = taken.tree;
            } else if !patch.is_empty() {
                change.notices.push(format!(
                    "submodule `{}` changed: its patch stands alone and its commit stays",
                    shown(&repo.prefix)
                ));
                change.submodules.push(SubmoduleChange {
                    path: repo.prefix.clone(),
                    commit: repo.origin.as_ref().map(|o| o.commit.clone()).unwrap_or_default(),
                    patch,
                    base_tree: repo.base_tree.clone(),
                    result_tree: taken.tree,
                });
            }
        }
        Ok(change)
    }

    /// Copies the files of the tree that match `globs` (relative to the workspace; ignored ones
    /// too, symlinks not) below `to`.
    ///
    /// # Errors
    ///
    /// A glob that can't be read, a file that can't be copied.
    pub fn artifacts(&self, globs: &[String], to: &Path) -> Result<Vec<Artifact>, WorkspaceError> {
        let set = paths_set(globs, Case::Exact)?;
        let mut kept = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop().filter(|_| !globs.is_empty()) {
            for name in self.names(&folder)? {
                let path = folder.join(name);
                let (source, facts) = self.look(&path)?;
                if facts.is_dir() && !tree::is_in_git(&path) && !path.starts_with(".horseman") {
                    folders.push(path);
                } else if facts.is_file() && set.is_match(&path) {
                    let target = to.join(&path);
                    if let Some(parent) = target.parent() {
                        fs::create_dir_all(parent).map_err(io_error("make", parent))?;
                    }
                    tree::copy_leaf(&source, &target, &facts)?;
                    kept.push(Artifact { path, bytes: facts.len() });
                }
            }
        }
        kept.sort_by(|one, two| one.path.cmp(&two.path));
        Ok(kept)
    }

    async fn take(&self, repo: &Repo, changed: Option<&Path>) -> Result<Taken, WorkspaceError> {
        const INDEX: &str = "result-index";
        let shadow = &shadow_over(changed, repo);
        shadow.copy_index("index", INDEX)?;
        let mut taken = Taken { tree: String::new(), lfs: Vec::new(), notices: Vec::new() };
        let pointers: Vec<&Path> = repo.lfs.keys().map(PathBuf::as_path).collect();
        let keeps =
            |path: &Path| pointers.contains(&path) && tree::is_real_file(shadow.work_tree(), path);
        update(self.layers.as_ref(), repo, (INDEX, &keeps)).await?;
        self.take_lfs(repo, INDEX, &mut taken).await?;
        let untracked = shadow.untracked(INDEX).await?;
        say_odd(repo, &untracked, &mut taken.notices);
        let pristine = self.pristine_files().join(&repo.prefix);
        let found = ids(shadow, &untracked.files).await?;
        let new: Vec<((String, String), &Path)> = found
            .iter()
            .filter(|&(path, id)| {
                repo.products.get(path) != Some(id)
                    // A rule that ignored it may be gone; setup made it all the same.
                    && !tree::is_same_leaf(&pristine.join(path), &shadow.work_tree().join(path))
            })
            .map(|(path, id)| (id.clone(), path.as_path()))
            .collect();
        shadow.set(INDEX, &new).await?;
        taken.tree = shadow.write_tree(INDEX).await?;
        Ok(taken)
    }

    /// Changed LFS files go into the tree as pointers; their contents are put aside.
    async fn take_lfs(
        &self,
        repo: &Repo,
        index: &str,
        taken: &mut Taken,
    ) -> Result<(), WorkspaceError> {
        for (path, before) in &repo.lfs {
            let file = repo.shadow.work_tree().join(path);
            let is_there = tree::is_real_file(repo.shadow.work_tree(), path);
            if !is_there || before.is_content(&file).map_err(io_error("read", &file))? {
                continue;
            }
            let pointer = Pointer::of(&file).map_err(io_error("read", &file))?;
            let store = self.dir.join("lfs");
            let content = pointer.place(&store);
            if let Some(parent) = content.parent() {
                fs::create_dir_all(parent).map_err(io_error("make", parent))?;
            }
            fs::copy(&file, &content).map_err(io_error("copy to", &content))?;
            let id = repo.shadow.store(pointer.text().as_bytes()).await?;
            let facts = fs::symlink_metadata(&file).map_err(io_error("look at", &file))?;
            repo.shadow.set(index, &[((mode_of(&facts), id), path)]).await?;
            let path = repo.prefix.join(path);
            taken.notices.push(format!(
                "`{}` is an LFS file: the patch has its pointer, the content lies beside it",
                shown(&path)
            ));
            taken.lfs.push(LfsObject { path, oid: pointer.oid, content });
        }
        Ok(())
    }

    async fn take_pristine(&mut self) -> Result<(), WorkspaceError> {
        if !self.needs_pristine() {
            return Ok(());
        }
        let pristine = self.pristine();
        tree::remove(&pristine)?;
        if let Some(layers) = &self.layers {
            let (upper, home) = (self.pristine_files(), pristine.join("home"));
            for folder in [&upper, &home] {
                fs::create_dir_all(folder).map_err(io_error("make", folder))?;
            }
            overlay::copy_upper(&layers.upper, &upper)?;
            tree::copy(&self.home(), &home, &|_| false)?;
            return Ok(());
        }
        let (workspace, home) = (pristine.join("workspace"), pristine.join("home"));
        fs::create_dir_all(&workspace).map_err(io_error("make", &workspace))?;
        fs::create_dir_all(&home).map_err(io_error("make", &home))?;
        let root = self.root.clone();
        if self.plan.kind == WorkspaceKind::InPlace {
            tree::copy(&root, &workspace, &|path| self.stays_out(&root, path))?;
            self.disposable_repository(&workspace).await?;
        } else {
            tree::copy(&root, &workspace, &|_| false)?;
        }
        tree::copy(&self.home(), &home, &|_| false)?;
        Ok(())
    }

    pub(super) fn needs_pristine(&self) -> bool {
        self.plan.kind != WorkspaceKind::Clone
            || self.plan.carry_dirty
            || !self.plan.setup.is_empty()
            || !self.plan.caches.is_empty()
    }

    pub(super) fn pristine(&self) -> PathBuf {
        self.dir.join("pristine")
    }

    pub(super) fn require_base(&self, call: &'static str) -> Result<(), WorkspaceError> {
        if self.is_fresh_out.get() {
            return Err(WorkspaceError::Order { call, when: "while a fresh tree is in place" });
        }
        if !self.has_base {
            return Err(WorkspaceError::Order { call, when: "before `base`" });
        }
        Ok(())
    }

    /// Makes the tree readable for a snapshot. Modes in a user's own folder aren't ours to change;
    /// what can't be read there says so itself.
    fn open_up(&self) -> Result<(), WorkspaceError> {
        if let Some(layers) = &self.layers {
            overlay::open_upper(&layers.upper)
        } else if self.is_disposable() {
            tree::open_all(&self.root)
        } else {
            tree::unblock_all(&self.root)
        }
    }
}

impl Shadow {
    /// The patch between two trees: complete, and the same whatever is configured.
    pub(super) async fn diff(&self, base: &str, result: &str) -> Result<Vec<u8>, GitError> {
        if base == result {
            return Ok(Vec::new());
        }
        let mut args = vec!["diff-tree", "-r", "-p", "--binary", "--full-index", "-M"];
        args.extend(["--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none"]);
        args.extend(["--submodule=short", "--src-prefix=a/", "--dst-prefix=b/", base, result]);
        Ok(self.run(&args, "no-index", Vec::new()).await?.stdout)
    }

    /// The files that differ between two trees.
    pub(super) async fn files(
        &self,
        base: &str,
        result: &str,
    ) -> Result<Vec<FileChange>, GitError> {
        if base == result {
            return Ok(Vec::new());
        }
        let args = ["diff-tree", "-r", "-M", "--raw", "--numstat", "-z", base, result];
        Ok(parse_files(&self.run(&args, "no-index", Vec::new()).await?.stdout))
    }
}

/// Mode and object id of each of `files`, which lie beside the tracked ones.
async fn ids(
    shadow: &Shadow,
    files: &[PathBuf],
) -> Result<BTreeMap<PathBuf, (String, String)>, WorkspaceError> {
    const INDEX: &str = "untracked-index";
    tree::remove(&shadow.index(INDEX))?;
    shadow.add(INDEX, files).await?;
    let entries = shadow.entries(INDEX).await?;
    Ok(entries.into_iter().map(|entry| (entry.path, (entry.mode, entry.id))).collect())
}

/// LFS files whose content is that of their pointer.
fn same_pointers(repo: &Repo) -> Result<BTreeMap<PathBuf, Pointer>, WorkspaceError> {
    let mut same = BTreeMap::new();
    for (path, pointer) in &repo.lfs {
        let file = repo.shadow.work_tree().join(path);
        let is_there = tree::is_real_file(repo.shadow.work_tree(), path);
        if is_there && pointer.is_content(&file).map_err(io_error("read", &file))? {
            same.insert(path.clone(), pointer.clone());
        }
    }
    Ok(same)
}

fn say_odd(repo: &Repo, untracked: &Untracked, notices: &mut Vec<String>) {
    for nested in &untracked.nested {
        notices.push(format!(
            "`{}` became a repository of its own: its files are in the patch, its history isn't",
            shown(&repo.prefix.join(nested))
        ));
    }
    if let Some(first) = untracked.refused.first() {
        notices.push(format!(
            "{} files have a name that git can't keep and aren't in the patch: `{}`",
            untracked.refused.len(),
            shown(&repo.prefix.join(first))
        ));
    }
}

fn below(prefix: &Path, mut file: FileChange) -> FileChange {
    if !prefix.as_os_str().is_empty() {
        file.path = shown(&prefix.join(&file.path));
        file.to = file.to.map(|to| shown(&prefix.join(to)));
    }
    file
}

fn mode_of(facts: &fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt as _;
    if facts.mode() & 0o100 == 0 { "100644" } else { "100755" }.to_owned()
}
