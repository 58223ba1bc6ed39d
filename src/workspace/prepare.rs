//! Preparing: from a plan to a tree to work in.
//!
//! In: a [`WorkspacePlan`], the checkout and a private folder. Out: a [`Workspace`], whose base is
//! taken with [`base`](Workspace::base) once setup has run. Knows nothing of setup commands.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::clone::{self, Origin, shown};
use super::git::Git;
use super::lfs::{self, Pointer};
use super::overlay::Layers;
use super::shadow::{Shadow, copy_index_file};
use super::submodule::{self, Submodule};
use super::{Source, TreeEntry, Uncommitted, WorkspaceError, io_error, tree};
use crate::plan::{CachePlan, WorkspaceKind, WorkspacePlan};

/// A tree to work in, with what is needed to say what became of it.
#[derive(Debug)]
pub struct Workspace {
    pub(super) git: Rc<Git>,
    pub(super) source: Option<Rc<Source>>,
    pub(super) plan: WorkspacePlan,
    pub(super) dir: PathBuf,
    pub(super) root: PathBuf,
    /// What the tree is made of, when it is an overlay; only a command sees the whole at `root`.
    pub(super) layers: Option<Layers>,
    pub(super) repos: Vec<Repo>,
    pub(super) has_base: bool,
    pub(super) is_fresh_out: Rc<Cell<bool>>,
    read_extra: Vec<PathBuf>,
    notices: Vec<String>,
}

/// One repository of the workspace: the root, then its submodules.
#[derive(Debug)]
pub(super) struct Repo {
    pub(super) shadow: Shadow,
    /// Path relative to the workspace; empty for the root.
    pub(super) prefix: PathBuf,
    /// Where its objects are borrowed from; `None` without git.
    pub(super) origin: Option<Origin>,
    /// Pointers of files whose content lies in the tree.
    pub(super) lfs: BTreeMap<PathBuf, Pointer>,
    pub(super) base_tree: String,
    /// Untracked paths that setup or a check made, with mode and object id.
    pub(super) products: BTreeMap<PathBuf, (String, String)>,
}

/// What came of filling a tree from an origin.
#[derive(Debug)]
pub(super) struct Filled {
    prefix: PathBuf,
    origin: Origin,
    lfs: BTreeMap<PathBuf, Pointer>,
}

impl Workspace {
    /// Makes the workspace that `plan` describes. `dir` is the attempt's private folder
    /// ([`RunState::attempt_dir`](super::RunState::attempt_dir)); everything but an in-place tree
    /// lies below it. `source` is the checkout that the plan was made from, if there is one.
    ///
    /// Next: run setup, then [`base`](Self::base).
    ///
    /// # Errors
    ///
    /// No checkout for a clone, objects that aren't on this machine, a folder that can't be made.
    pub async fn prepare(
        git: &Rc<Git>,
        source: Option<&Rc<Source>>,
        plan: &WorkspacePlan,
        dir: &Path,
    ) -> Result<Self, WorkspaceError> {
        let root = match plan.kind {
            WorkspaceKind::Clone | WorkspaceKind::Copy => dir.join("workspace"),
            WorkspaceKind::InPlace | WorkspaceKind::Overlay => plan.path.clone(),
        };
        let is_own = matches!(plan.kind, WorkspaceKind::Clone | WorkspaceKind::Copy);
        let mut workspace = Self {
            git: Rc::clone(git),
            source: source.map(Rc::clone),
            plan: plan.clone(),
            dir: dir.to_path_buf(),
            root,
            layers: None,
            repos: Vec::new(),
            has_base: false,
            is_fresh_out: Rc::new(Cell::new(false)),
            read_extra: Vec::new(),
            notices: source.map(|source| source.notices()).unwrap_or_default(),
        };
        for folder in [workspace.home(), workspace.tmp(), workspace.parked()] {
            make(&folder)?;
        }
        if is_own {
            make(&workspace.root)?;
            workspace.notices.extend(tree::no_programs(&workspace.root));
        }
        match plan.kind {
            WorkspaceKind::Clone => workspace.prepare_clone().await?,
            WorkspaceKind::Copy => {
                workspace.copy_folder(&workspace.root.clone()).await?;
                workspace.track_folder().await?;
            }
            WorkspaceKind::InPlace => workspace.track_folder().await?,
            WorkspaceKind::Overlay => {
                workspace.lay_over().await?;
                workspace.track_folder().await?;
            }
        }
        if !workspace.workdir().is_dir() {
            return Err(WorkspaceError::NoFolder { path: workspace.workdir() });
        }
        for cache in &plan.caches {
            workspace.add_cache(cache)?;
        }
        Ok(workspace)
    }

    /// Root of the tree; absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Working folder of commands: `workspace.path` inside a clone, else the root.
    pub fn workdir(&self) -> PathBuf {
        self.workdir_in(&self.root)
    }

    pub(super) fn workdir_in(&self, root: &Path) -> PathBuf {
        match self.plan.kind {
            WorkspaceKind::Clone if !self.plan.path.as_os_str().is_empty() => {
                root.join(&self.plan.path)
            }
            WorkspaceKind::Clone
            | WorkspaceKind::Copy
            | WorkspaceKind::InPlace
            | WorkspaceKind::Overlay => root.to_path_buf(),
        }
    }

    /// Private writable HOME of commands; absolute.
    pub fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    /// Private TMPDIR of commands; absolute.
    pub fn tmp(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// Where the agent's folders wait while a fresh tree has their names. Checks of the verdict
    /// must not be able to read it: what only the agent's tree had can't make them green (P5).
    pub fn parked(&self) -> PathBuf {
        self.dir.join("parked")
    }

    /// Folders that commands must be able to read beside the system's: caches that are read where
    /// they lie, and the stores that the clone borrows objects from.
    pub fn read_extra(&self) -> &[PathBuf] {
        &self.read_extra
    }

    /// Whether the tree is thrown away, so that nothing in it needs protection.
    pub fn is_disposable(&self) -> bool {
        self.plan.kind != WorkspaceKind::InPlace
    }

    /// Things a person should know, one sentence each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    async fn prepare_clone(&mut self) -> Result<(), WorkspaceError> {
        let root = self.root.clone();
        let (filled, notices) = self.fill_clone(&root).await?;
        self.notices.extend(notices);
        for filled in filled {
            let number = self.repos.len();
            let work_tree = root.join(&filled.prefix);
            let git_dir = self.dir.join("git").join(number.to_string());
            let borrowed = filled.origin.objects();
            let format = filled.origin.object_format.clone();
            let shadow =
                Shadow::create(&self.git, (&git_dir, &work_tree), Some(&borrowed), &format).await?;
            // The index that our own checkout wrote a moment ago saves reading every file again.
            let index = shadow.index("index");
            copy_index_file(&work_tree.join(".git/index"), &index)?;
            self.read_extra.push(borrowed.clone());
            self.repos.push(Repo {
                shadow,
                prefix: filled.prefix,
                origin: Some(filled.origin),
                lfs: filled.lfs,
                base_tree: String::new(),
                products: BTreeMap::new(),
            });
        }
        self.carry_or_say().await
    }

    /// Fills the existing empty folder `root` with the clone and its submodules.
    pub(super) async fn fill_clone(
        &self,
        root: &Path,
    ) -> Result<(Vec<Filled>, Vec<String>), WorkspaceError> {
        let (Some(source), Some(commit)) = (&self.source, &self.plan.commit) else {
            return Err(WorkspaceError::NoCheckout);
        };
        let (mut filled, mut notices) = (Vec::new(), Vec::new());
        let top = Submodule { path: PathBuf::new(), origin: Some(Origin::of(source, commit)) };
        let mut queue = vec![(PathBuf::new(), top)];
        while let Some((parent, module)) = queue.pop() {
            let prefix = parent.join(&module.path);
            let to = root.join(&prefix);
            let Some(origin) = module.origin else {
                notices.push(format!(
                    "submodule `{}` is empty: its objects aren't on this machine",
                    shown(&prefix)
                ));
                continue;
            };
            let is_top = prefix.as_os_str().is_empty();
            if !is_top && !to.is_dir() {
                // A sparse checkout leaves it out.
                continue;
            }
            clone::repository(&self.git, &origin, &to).await?;
            let sparse: &[String] = if is_top { &self.plan.sparse } else { &[] };
            clone::check_out(&self.git, &origin, (&to, sparse)).await?;
            let entries = entries(&self.git, &origin).await?;
            let lfs = fill_lfs(&to, &origin, (&entries, &prefix), &mut notices)?;
            let checkout = source.root().join(&prefix);
            let modules = submodule::find(&self.git, &origin, (&entries, Some(&checkout))).await?;
            queue.extend(modules.into_iter().map(|module| (prefix.clone(), module)));
            filled.push(Filled { prefix, origin, lfs });
        }
        filled.sort_by(|one, two| one.prefix.cmp(&two.prefix));
        Ok((filled, notices))
    }

    /// Uncommitted changes of the checkout come along, or are left out and said so.
    async fn carry_or_say(&mut self) -> Result<(), WorkspaceError> {
        let Some(source) = self.source.clone() else { return Ok(()) };
        let dirty = source.uncommitted().await?;
        if dirty.count() == 0 {
            return Ok(());
        }
        let is_head = source.head() == self.plan.commit.as_deref();
        match (self.plan.carry_dirty, is_head) {
            (false, true) => {
                self.notices.push(format!("{} left out of the workspace", dirty.summary()));
            }
            (false, false) => {}
            (true, false) => {
                return Err(WorkspaceError::CarryElsewhere {
                    head: source.head().unwrap_or("none").to_owned(),
                    commit: self.plan.commit.clone().unwrap_or_default(),
                });
            }
            (true, true) => {
                carry(source.root(), &self.root, &dirty)?;
                if let Some(repo) = self.repos.first() {
                    let lfs = &repo.lfs;
                    repo.shadow.update_tracked("index", &|path| lfs.contains_key(path)).await?;
                    let untracked: Vec<PathBuf> = dirty
                        .untracked
                        .iter()
                        .filter(|path| is_leaf(&self.root.join(path)))
                        .cloned()
                        .collect();
                    repo.shadow.add("index", &untracked).await?;
                }
                self.notices.push(format!("{} carried into the workspace", dirty.summary()));
            }
        }
        Ok(())
    }

    /// Copies the planned folder to `to`, with a disposable repository in place of its own: that
    /// one holds credentials, hooks and configuration.
    pub(super) async fn copy_folder(&mut self, to: &Path) -> Result<(), WorkspaceError> {
        let from = self.plan.path.clone();
        if !from.is_dir() {
            return Err(WorkspaceError::NoFolder { path: from });
        }
        let copied = tree::copy(&from, to, &|path| self.stays_out(&from, path))?;
        if !copied.special.is_empty() {
            let names: Vec<_> = copied.special.iter().take(5).map(|path| shown(path)).collect();
            self.notices.push(format!(
                "{} sockets, pipes or devices not copied: {}",
                copied.special.len(),
                names.join(", ")
            ));
        }
        self.disposable_repository(to).await
    }

    /// What a copy of the folder `from` leaves out: our own folders and every link to a repository
    /// that lies elsewhere, through which git inside would reach the original.
    pub(super) fn stays_out(&self, from: &Path, path: &Path) -> bool {
        let is_top = path.components().count() == 1;
        let full = from.join(path);
        (is_top
            && (path.starts_with(".horseman")
                || path.starts_with(".git")
                    && (self.origin_of_folder().is_some() || full.is_file())))
            || (path.file_name().is_some_and(|name| name == ".git") && full.is_file())
            || self.dir.starts_with(&full)
    }

    /// Gives the copy at `to` a repository with the history of the folder it came from.
    pub(super) async fn disposable_repository(&self, to: &Path) -> Result<(), WorkspaceError> {
        let Some(origin) = self.origin_of_folder() else { return Ok(()) };
        clone::repository(&self.git, &origin, to).await?;
        clone::fill_index(&self.git, to).await
    }

    /// The store of the planned folder, when it is the root of the checkout.
    fn origin_of_folder(&self) -> Option<Origin> {
        let source = self.source.as_ref()?;
        let head = source.head()?;
        (source.root() == self.plan.path).then(|| Origin::of(source, head))
    }

    /// Takes everything in the folder that isn't ignored as the base of a copy or in-place tree.
    async fn track_folder(&mut self) -> Result<(), WorkspaceError> {
        if !self.root.is_dir() {
            return Err(WorkspaceError::NoFolder { path: self.root.clone() });
        }
        let origin = self.source.as_ref().and_then(|source| {
            let head = source.head()?;
            self.plan.path.starts_with(source.root()).then(|| Origin::of(source, head))
        });
        let below = self
            .source
            .as_ref()
            .and_then(|source| self.plan.path.strip_prefix(source.root()).ok())
            .map(Path::to_path_buf)
            .unwrap_or_default();
        self.track(PathBuf::new(), origin.clone(), &below).await?;
        if let (Some(origin), true) = (origin, below.as_os_str().is_empty()) {
            let entries = entries(&self.git, &origin).await?;
            let checkout = self.plan.path.clone();
            for module in submodule::find(&self.git, &origin, (&entries, Some(&checkout))).await? {
                if let (Some(origin), true) =
                    (module.origin, self.root.join(&module.path).join("").is_dir())
                {
                    self.track(module.path, Some(origin), Path::new("")).await?;
                }
            }
        }
        Ok(())
    }

    async fn track(
        &mut self,
        prefix: PathBuf,
        origin: Option<Origin>,
        below: &Path,
    ) -> Result<(), WorkspaceError> {
        let git_dir = self.dir.join("git").join(self.repos.len().to_string());
        let borrowed = origin.as_ref().map(Origin::objects);
        let format = origin.as_ref().map_or("sha1", |origin| origin.object_format.as_str());
        let work_tree = self.root.join(&prefix);
        let shadow =
            Shadow::create(&self.git, (&git_dir, &work_tree), borrowed.as_deref(), format).await?;
        if let Some(origin) = &origin {
            // Tracked files count also where a rule ignores them, so the index starts with them.
            let tree = format!("{}:{}", origin.commit, super::git::text(below)?);
            if super::source::answer(origin.read(&self.git, &["cat-file", "-e", &tree]).await)?
                .is_some()
            {
                shadow.run(&["read-tree", &tree], "index", Vec::new()).await?;
            }
            exclude_as(&shadow, origin)?;
        }
        shadow.update_tracked("index", &|_| false).await?;
        let untracked = shadow.untracked("index").await?;
        shadow.add("index", &untracked.files).await?;
        self.repos.push(Repo {
            shadow,
            prefix,
            origin,
            lfs: BTreeMap::new(),
            base_tree: String::new(),
            products: BTreeMap::new(),
        });
        Ok(())
    }

    fn add_cache(&mut self, cache: &CachePlan) -> Result<(), WorkspaceError> {
        let bad = || WorkspaceError::CachePath { path: cache.path.clone() };
        let (root, path) = match cache.path.strip_prefix("~/") {
            Some(path) => (self.home(), Path::new(path)),
            // A cache inside an in-place tree would change the user's own folder.
            None if !self.is_disposable() => return Err(bad()),
            None => (self.files().to_path_buf(), Path::new(&cache.path)),
        };
        let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || path.as_os_str().is_empty() || tree::is_in_git(path) {
            return Err(bad());
        }
        if !cache.from.is_dir() {
            self.notices.push(format!("cache `{}` is empty: no folder there", cache.path));
        }
        match &self.layers {
            Some(layers) if root == layers.upper => layers.make_way(path)?,
            Some(_) | None => tree::make_parents(&root, path)?,
        }
        let target = root.join(path);
        if !cache.is_private_copy {
            symlink(&cache.from, &target).map_err(io_error("make", &target))?;
            self.read_extra.push(cache.from.clone());
            return Ok(());
        }
        fs::create_dir_all(&target).map_err(io_error("make", &target))?;
        if cache.from.is_dir() {
            tree::copy(&cache.from, &target, &|_| false)?;
        }
        Ok(())
    }
}

/// Lets our snapshot ignore what the user's own `info/exclude` ignores.
fn exclude_as(shadow: &Shadow, origin: &Origin) -> Result<(), WorkspaceError> {
    let theirs = fs::read(origin.common_dir.join("info/exclude")).unwrap_or_default();
    let mut rules = b"/.horseman/\n".to_vec();
    rules.extend(theirs);
    super::shadow::write(&shadow.git_dir().join("info/exclude"), &rules)
}

fn carry(from: &Path, to: &Path, dirty: &Uncommitted) -> Result<(), WorkspaceError> {
    for path in dirty.changed.iter().chain(&dirty.untracked) {
        let (source, target) = (from.join(path), to.join(path));
        let Ok(facts) = fs::symlink_metadata(&source) else {
            tree::remove(&target)?;
            continue;
        };
        if facts.is_file() || facts.is_symlink() {
            tree::make_parents(to, path)?;
            tree::remove(&target)?;
            tree::copy_leaf(&source, &target, &facts)?;
        }
    }
    Ok(())
}

fn is_leaf(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|facts| facts.is_file() || facts.is_symlink())
}

fn fill_lfs(
    root: &Path,
    origin: &Origin,
    (entries, prefix): (&[TreeEntry], &Path),
    notices: &mut Vec<String>,
) -> Result<BTreeMap<PathBuf, Pointer>, WorkspaceError> {
    let is_used = entries
        .iter()
        .filter(|entry| entry.path.file_name().is_some_and(|name| name == ".gitattributes"))
        .any(|entry| fs::read(root.join(&entry.path)).is_ok_and(|bytes| lfs::is_named_in(&bytes)));
    if !is_used {
        return Ok(BTreeMap::new());
    }
    let files: Vec<PathBuf> = entries.iter().map(|entry| entry.path.clone()).collect();
    let store = origin.common_dir.join("lfs/objects");
    let (filled, missing) = lfs::fill(root, &store, &files)?;
    if let Some(first) = missing.first() {
        notices.push(format!(
            "{} LFS files are pointers: their content isn't on this machine (`{}`{})",
            missing.len(),
            shown(&prefix.join(first)),
            if missing.len() > 1 { ", …" } else { "" }
        ));
    }
    Ok(filled)
}

async fn entries(git: &Git, origin: &Origin) -> Result<Vec<TreeEntry>, WorkspaceError> {
    let args = ["ls-tree", "-r", "-z", "--full-tree", &origin.commit];
    Ok(super::source::parse_tree(&origin.read(git, &args).await?))
}

fn make(folder: &Path) -> Result<(), WorkspaceError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_error("make", folder))
}
