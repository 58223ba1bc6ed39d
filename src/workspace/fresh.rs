//! The fresh tree: base plus patch, where the verdict is given (P5).
//!
//! In: a change. Out: a tree that has what the patch says and nothing else of the agent's: not its
//! ignored files, not its HOME. It stands at the workspace's own path, since files that setup made
//! name that path: a script that starts `…/workspace/venv/bin/python` would run the agent's.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::change::{Case, paths_set};
use super::layered::Files;
use super::lfs;
use super::prepare::{Repo, Workspace};
use super::shadow::join;
use super::{Change, WorkspaceError, io_error, tree};
use crate::plan::WorkspaceKind;

/// A fresh tree. While it lives, the agent's tree is parked; it comes back when this is dropped.
#[derive(Debug)]
pub struct Fresh {
    /// Root of the tree; the workspace's own root, for an in-place workspace a private folder.
    pub root: PathBuf,
    /// Working folder of checks.
    pub workdir: PathBuf,
    /// Where its files are written; the root itself but for an overlay.
    files: Files,
    places: Vec<Place>,
    is_out: Rc<Cell<bool>>,
}

/// Where a folder of the agent's waits while a fresh one has its name.
#[derive(Debug)]
struct Place {
    live: PathBuf,
    /// `None`: nothing was parked here.
    parked: Option<PathBuf>,
}

impl Workspace {
    /// Makes a fresh tree: the base plus the patch of `change`, with a fresh HOME and an empty
    /// temporary folder at their usual paths.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::NotReproduced`] when the patch doesn't give the tree it was taken from.
    pub async fn fresh(&self, change: &Change) -> Result<Fresh, WorkspaceError> {
        self.require_base("fresh")?;
        let next = self.dir.join("next");
        tree::remove(&next)?;
        for name in ["workspace", "home", "tmp"] {
            let folder = next.join(name);
            fs::create_dir_all(&folder).map_err(io_error("make", &folder))?;
        }
        let root = next.join("workspace");
        let files = self.files_at(&root);
        if self.layers.is_some() {
            self.fill_layers(&root)?;
            tree::copy(&self.pristine().join("home"), &next.join("home"), &|_| false)?;
        } else if self.needs_pristine() {
            let pristine = self.pristine();
            tree::copy(&pristine.join("workspace"), &root, &|_| false)?;
            tree::copy(&pristine.join("home"), &next.join("home"), &|_| false)?;
        } else {
            self.fill_clone(&root).await?;
        }
        for repo in &self.repos {
            let is_changed = change.submodules.iter().any(|inner| inner.path == repo.prefix);
            if is_changed && !files.has_folder(&repo.prefix) {
                return Err(WorkspaceError::NoFolder { path: root.join(&repo.prefix) });
            }
            self.apply_to(repo, change, &files.below(&repo.prefix)).await?;
        }
        self.put_in_place(&next)
    }

    /// Puts the files that match `globs` back as `commit` has them; files that only the tree has
    /// stay. Without a commit they come from the pristine copy.
    ///
    /// # Errors
    ///
    /// A glob that can't be read, or a commit that isn't here.
    pub async fn restore(
        &self,
        fresh: &Fresh,
        globs: &[String],
        commit: Option<&str>,
    ) -> Result<Vec<PathBuf>, WorkspaceError> {
        const INDEX: &str = "restore-index";
        let set = paths_set(globs, Case::Exact)?;
        let (Some(commit), Some(source), Some(repo)) = (commit, &self.source, self.repos.first())
        else {
            return self.restore_pristine(fresh, &set);
        };
        // Paths of a workspace that is a folder of the checkout start there.
        let below = match self.plan.kind {
            WorkspaceKind::Clone => Path::new(""),
            WorkspaceKind::Copy | WorkspaceKind::InPlace | WorkspaceKind::Overlay => {
                self.plan.path.strip_prefix(source.root()).unwrap_or(Path::new(""))
            }
        };
        let (mut entries, mut paths) = (Vec::new(), Vec::new());
        let listed = source.list(commit, None).await?;
        for entry in &listed {
            let Ok(path) = entry.path.strip_prefix(below) else { continue };
            if entry.mode != "160000" && set.is_match(path) {
                entries.push(((entry.mode.clone(), entry.id.clone()), path));
                paths.push(path.to_path_buf());
            }
        }
        tree::remove(&repo.shadow.index(INDEX))?;
        repo.shadow.set(INDEX, &entries).await?;
        self.write_out(repo, INDEX, (&fresh.files, &paths)).await?;
        Ok(paths)
    }

    /// Puts the agent's tree, HOME and temporary folder back to the state after setup.
    ///
    /// # Errors
    ///
    /// A file can't be written.
    pub async fn reset(&self) -> Result<(), WorkspaceError> {
        self.require_base("reset")?;
        tree::clear(&self.tmp())?;
        if !self.needs_pristine() {
            tree::clear(&self.home())?;
            tree::clear(&self.root)?;
            self.fill_clone(&self.root).await?;
            return Ok(());
        }
        let pristine = self.pristine();
        if self.layers.is_some() {
            let folder = self.layers_folder();
            tree::remove(&folder)?;
            self.fill_layers(&folder)?;
            return tree::mirror(&pristine.join("home"), &self.home(), &|_| false);
        }
        let is_in_place = self.plan.kind == WorkspaceKind::InPlace;
        let root = self.root.clone();
        tree::mirror(&pristine.join("workspace"), &root, &|path| {
            is_in_place && (path.starts_with(".git") || self.stays_out(&root, path))
        })?;
        tree::mirror(&pristine.join("home"), &self.home(), &|_| false)
    }

    async fn apply_to(
        &self,
        repo: &Repo,
        change: &Change,
        files: &Files,
    ) -> Result<(), WorkspaceError> {
        const INDEX: &str = "fresh-index";
        let (patch, expected) = if repo.prefix.as_os_str().is_empty() {
            (&change.patch, &change.result_tree)
        } else {
            let Some(inner) = change.submodules.iter().find(|inner| inner.path == repo.prefix)
            else {
                return Ok(());
            };
            (&inner.patch, &inner.result_tree)
        };
        if patch.is_empty() {
            return Ok(());
        }
        let shadow = &repo.shadow;
        tree::remove(&shadow.index(INDEX))?;
        shadow.run(&["read-tree", &repo.base_tree], INDEX, Vec::new()).await?;
        let args = ["apply", "--cached", "--binary", "--whitespace=nowarn", "-"];
        shadow.run(&args, INDEX, patch.clone()).await?;
        let found = shadow.write_tree(INDEX).await?;
        if found != *expected {
            return Err(WorkspaceError::NotReproduced {
                base: repo.base_tree.clone(),
                expected: expected.clone(),
                found,
            });
        }
        // The tree is verified, so its files are written as they are: a file that setup made is
        // replaced where the patch adds one of that name.
        let args = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=D"];
        let trees = [repo.base_tree.as_str(), found.as_str()];
        let gone = shadow.run(&[&args[..], &trees[..]].concat(), INDEX, Vec::new()).await?;
        for path in paths(&gone) {
            files.delete(&path)?;
        }
        let args = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=d"];
        let there = shadow.run(&[&args[..], &trees[..]].concat(), INDEX, Vec::new()).await?;
        self.write_out(repo, INDEX, (files, &paths(&there))).await
    }

    /// Writes `paths` of `index` among `files`; links that lead out of them are replaced.
    async fn write_out(
        &self,
        repo: &Repo,
        index: &str,
        (files, paths): (&Files, &[PathBuf]),
    ) -> Result<(), WorkspaceError> {
        for path in paths {
            files.make_way(path)?;
        }
        let root = files.root();
        let args = ["checkout-index", "--force", "-z", "--stdin"];
        repo.shadow.write_out(&args, index, (&root, join(paths))).await?;
        if !repo.lfs.is_empty() {
            for store in [Some(self.dir.join("lfs")), repo.lfs_store()].into_iter().flatten() {
                lfs::fill(&root, &store, paths)?;
            }
        }
        Ok(())
    }

    fn restore_pristine(
        &self,
        fresh: &Fresh,
        set: &globset::GlobSet,
    ) -> Result<Vec<PathBuf>, WorkspaceError> {
        let pristine = self.pristine_view();
        let mut restored = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop().filter(|folder| pristine.has_folder(folder)) {
            for name in pristine.names(&folder)? {
                let path = folder.join(name);
                let (source, facts) = pristine.look(&path)?;
                if facts.is_dir() {
                    folders.push(path);
                } else if set.is_match(&path) {
                    let target = fresh.files.root().join(&path);
                    fresh.files.make_way(&path)?;
                    tree::copy_leaf(&source, &target, &facts)?;
                    restored.push(path);
                }
            }
        }
        restored.sort_unstable();
        Ok(restored)
    }

    /// Parks the agent's folders and gives the fresh ones their names.
    fn put_in_place(&self, next: &Path) -> Result<Fresh, WorkspaceError> {
        let is_in_place = self.plan.kind == WorkspaceKind::InPlace;
        let root = if is_in_place { self.dir.join("verdict") } else { self.root.clone() };
        let parked = self.parked();
        self.is_fresh_out.set(true);
        let live = if self.layers.is_some() { self.layers_folder() } else { root.clone() };
        let mut fresh = Fresh {
            workdir: self.workdir_in(&root),
            root,
            files: self.files_at(&live),
            places: Vec::new(),
            is_out: Rc::clone(&self.is_fresh_out),
        };
        for (name, live) in [("workspace", live), ("home", self.home()), ("tmp", self.tmp())] {
            let mut place = Place { live: live.clone(), parked: None };
            if live.exists() {
                let parked = parked.join(name);
                fs::rename(&live, &parked).map_err(io_error("move", &live))?;
                place.parked = Some(parked);
            }
            fresh.places.push(place);
            fs::rename(next.join(name), &live).map_err(io_error("move to", &live))?;
        }
        Ok(fresh)
    }
}

impl Repo {
    /// Where the source keeps contents of LFS files.
    fn lfs_store(&self) -> Option<PathBuf> {
        self.origin.as_ref().map(|origin| origin.common_dir.join("lfs/objects"))
    }
}

impl Fresh {
    /// Removes the fresh tree and puts the agent's folders back.
    ///
    /// # Errors
    ///
    /// A folder can't be removed or moved.
    pub fn close(mut self) -> Result<(), WorkspaceError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), WorkspaceError> {
        while let Some(place) = self.places.pop() {
            tree::remove(&place.live)?;
            if let Some(parked) = place.parked {
                fs::rename(&parked, &place.live).map_err(io_error("move", &parked))?;
            }
        }
        self.is_out.set(false);
        Ok(())
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.places.is_empty()
            && let Err(error) = self.put_back()
        {
            tracing::warn!("{error}");
        }
    }
}

fn paths(output: &super::GitOutput) -> Vec<PathBuf> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    output.fields().map(|field| PathBuf::from(OsStr::from_bytes(field))).collect()
}
