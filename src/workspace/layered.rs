//! Layered: a workspace that is an overlay, and what is the same for trees that are none.
//!
//! In: the folder to lay over. Out: its layers, the tree as a command sees it, and where files are
//! written. Only a command has the whole at one path: what is done here is done on both layers.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use super::git::GitOptions;
use super::overlay::{self, Became, Layers};
use super::prepare::{Repo, Workspace};
use super::shadow::{self, Shadow};
use super::{WorkspaceError, io_error, tree};
use crate::approval::GitOperation;
use crate::plan::WorkspaceKind;
use crate::sandbox::Overlay;

/// Settings of a repository that it doesn't work without, and that hold no secret.
const KEPT: &str = r"^(core\.(repositoryformatversion|filemode|bare|symlinks|ignorecase|autocrlf|eol)|extensions\..*)$";

/// Where files of a tree are read and written: below one folder, perhaps over another one.
#[derive(Clone, Debug)]
pub(super) struct Files {
    folder: PathBuf,
    layers: Option<Layers>,
    prefix: PathBuf,
}

impl Files {
    /// The folder that files are written below.
    pub(super) fn root(&self) -> PathBuf {
        joined(&self.folder, &self.prefix)
    }

    /// The same, for what lies below `prefix`.
    pub(super) fn below(&self, prefix: &Path) -> Self {
        Self { prefix: joined(&self.prefix, prefix), ..self.clone() }
    }

    /// Whether a folder, reached through no symlink, is at `path`.
    pub(super) fn has_folder(&self, path: &Path) -> bool {
        let path = joined(&self.prefix, path);
        match &self.layers {
            Some(layers) => layers.is_folder(&path),
            None => tree::is_real_folder(&self.folder, &path),
        }
    }

    /// Names in the folder `path`.
    pub(super) fn names(&self, path: &Path) -> Result<BTreeSet<OsString>, WorkspaceError> {
        let path = joined(&self.prefix, path);
        match &self.layers {
            Some(layers) => layers.names(&path),
            None => Ok(tree::names(&joined(&self.folder, &path))?.into_iter().collect()),
        }
    }

    /// Where `path` lies, and what it is.
    pub(super) fn look(&self, path: &Path) -> Result<(PathBuf, Metadata), WorkspaceError> {
        let inner = joined(&self.prefix, path);
        if let Some(layers) = &self.layers {
            return layers.find(&inner).ok_or_else(|| {
                io_error("look at", path)(std::io::Error::from(std::io::ErrorKind::NotFound))
            });
        }
        let at = self.folder.join(inner);
        let facts = fs::symlink_metadata(&at).map_err(io_error("look at", &at))?;
        Ok((at, facts))
    }

    /// Makes room for a file at `path`.
    pub(super) fn make_way(&self, path: &Path) -> Result<(), WorkspaceError> {
        if let Some(layers) = &self.layers {
            return layers.make_way(&joined(&self.prefix, path));
        }
        let root = self.root();
        tree::make_parents(&root, path)?;
        tree::remove(&root.join(path))
    }

    /// Takes a file away, and the folders that are empty without it, as git does. Of an overlay the
    /// empty folders stay.
    pub(super) fn delete(&self, path: &Path) -> Result<(), WorkspaceError> {
        if let Some(layers) = &self.layers {
            return layers.delete(&joined(&self.prefix, path));
        }
        self.make_way(path)?;
        let root = self.root();
        let mut folder = path.parent();
        while let Some(inner) = folder.filter(|inner| !inner.as_os_str().is_empty()) {
            if fs::remove_dir(root.join(inner)).is_err() {
                break;
            }
            folder = inner.parent();
        }
        Ok(())
    }
}

/// As `Path::join`, without a slash behind a path joined with nothing.
fn joined(path: &Path, inner: &Path) -> PathBuf {
    if inner.as_os_str().is_empty() { path.to_path_buf() } else { path.join(inner) }
}

impl Workspace {
    /// What commands see at the root, when the workspace is an overlay.
    pub fn overlay(&self) -> Option<Overlay> {
        let Layers { lower, upper } = self.layers.clone()?;
        Some(Overlay { lower, upper, work: self.layers_folder().join("work") })
    }

    /// Where what commands see at `path`, relative to the root, really lies; `None` when nothing is
    /// there, or when a symlink is on the way.
    pub fn find(&self, path: &Path) -> Option<(PathBuf, Metadata)> {
        match &self.layers {
            Some(layers) => layers.find(path),
            None => self.look(path).ok(),
        }
    }

    /// Moves the tree to `to` (or copies it, over file systems), when it is to be kept. An
    /// in-place tree stays where it is; of an overlay the upper folder is kept.
    ///
    /// # Errors
    ///
    /// `to` exists or can't be made.
    pub fn keep(self, to: &Path) -> Result<(), WorkspaceError> {
        if self.plan.kind == WorkspaceKind::InPlace {
            return Ok(());
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(io_error("make", parent))?;
        }
        if fs::rename(self.files(), to).is_ok() {
            return Ok(());
        }
        fs::create_dir(to).map_err(io_error("make", to))?;
        if let Some(layers) = &self.layers {
            return overlay::copy_upper(&layers.upper, to);
        }
        tree::open_all(&self.root)?;
        tree::copy(&self.root, to, &|_| false)?;
        tree::remove(&self.root)
    }

    /// Where commands leave what they write: the tree, HOME and the temporary folder.
    pub fn writable_places(&self) -> Vec<PathBuf> {
        vec![self.files().to_path_buf(), self.home(), self.tmp()]
    }

    /// What of git an in-place workspace stands on; it must not be written to. Nothing for others.
    pub fn git_folders(&self) -> Vec<PathBuf> {
        if self.is_disposable() { Vec::new() } else { super::git_folders(&self.root) }
    }

    /// The private folder with the upper layer and the kernel's.
    pub(super) fn layers_folder(&self) -> PathBuf {
        self.dir.join("overlay")
    }

    /// Where files of the tree are written.
    pub(super) fn files(&self) -> &Path {
        self.layers.as_ref().map_or(&self.root, |layers| &layers.upper)
    }

    /// Files of a tree like this one at `folder`; of an overlay that is the folder with its layers.
    pub(super) fn files_at(&self, folder: &Path) -> Files {
        let layers = self
            .layers
            .as_ref()
            .map(|layers| Layers { lower: layers.lower.clone(), upper: folder.join("upper") });
        let folder = layers.as_ref().map_or(folder, |layers| &layers.upper).to_path_buf();
        Files { folder, layers, prefix: PathBuf::new() }
    }

    /// Where the pristine copy keeps the files of the tree; of an overlay, the upper ones.
    pub(super) fn pristine_files(&self) -> PathBuf {
        let pristine = self.pristine().join("workspace");
        if self.layers.is_some() { pristine.join("upper") } else { pristine }
    }

    /// The pristine tree.
    pub(super) fn pristine_view(&self) -> Files {
        self.files_at(&self.pristine().join("workspace"))
    }

    fn live(&self) -> Files {
        Files {
            folder: self.files().to_path_buf(),
            layers: self.layers.clone(),
            prefix: PathBuf::new(),
        }
    }

    pub(super) fn has_folder(&self, path: &Path) -> bool {
        self.live().has_folder(path)
    }

    pub(super) fn names(&self, path: &Path) -> Result<BTreeSet<OsString>, WorkspaceError> {
        self.live().names(path)
    }

    pub(super) fn look(&self, path: &Path) -> Result<(PathBuf, Metadata), WorkspaceError> {
        self.live().look(path)
    }

    /// Makes the layers over the planned folder. The repository in it is seen as it is, but for its
    /// configuration, which may hold credentials; commits go into the upper layer.
    pub(super) async fn lay_over(&mut self) -> Result<(), WorkspaceError> {
        let lower = self.plan.path.clone();
        let facts = fs::metadata(&lower).ok().filter(Metadata::is_dir);
        let facts = facts.ok_or_else(|| WorkspaceError::NoFolder { path: lower.clone() })?;
        let folder = self.layers_folder();
        let upper = folder.join("upper");
        for folder in [&upper, &folder.join("work")] {
            fs::create_dir_all(folder).map_err(io_error("make", folder))?;
        }
        // Overlayfs shows the mode and the owner of the upper one.
        overlay::dress(&upper, &facts)?;
        let layers = Layers { lower, upper };
        let git = layers.lower.join(".git");
        if git.symlink_metadata().is_ok_and(|facts| facts.is_dir()) {
            self.clean_configuration(&layers).await?;
        } else if git.symlink_metadata().is_ok() {
            // A link to elsewhere, where nothing may be written.
            self.disposable_repository(&layers.upper).await?;
        }
        self.layers = Some(layers);
        Ok(())
    }

    async fn clean_configuration(&self, layers: &Layers) -> Result<(), WorkspaceError> {
        let git = layers.lower.join(".git");
        let args = ["config", "--local", "-z", "--get-regexp", KEPT];
        let options = GitOptions::at(&git).git_dir(&git);
        let settings = match self.git.run(GitOperation::Read, &args, options).await {
            Ok(output) => output,
            // Exit status 1 without a word: it has none of them.
            Err(error) if error.is_refusal() && error.text().is_empty() => {
                super::GitOutput::default()
            }
            Err(error) => return Err(error.into()),
        };
        let mut text = String::new();
        for field in settings.fields() {
            let field = String::from_utf8_lossy(field);
            // A name without a value means true.
            let (name, value) = field.split_once('\n').unwrap_or((&field, "true"));
            // Its own file would hold credentials as well, and goes.
            if let (Some((section, key)), true) =
                (name.rsplit_once('.'), !name.eq_ignore_ascii_case("extensions.worktreeconfig"))
            {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"");
                text.extend(["[", section, "]\n\t", key, " = \"", &value, "\"\n"]);
            }
        }
        text.push_str(CONFIG);
        let config = Path::new(".git/config");
        layers.make_way(config)?;
        shadow::write(&layers.upper.join(config), text.as_bytes())?;
        layers.delete(Path::new(".git/config.worktree"))
    }

    /// Fills the folder `to` with an upper layer as setup left it.
    pub(super) fn fill_layers(&self, to: &Path) -> Result<(), WorkspaceError> {
        let upper = to.join("upper");
        for folder in [&upper, &to.join("work")] {
            fs::create_dir_all(folder).map_err(io_error("make", folder))?;
        }
        overlay::copy_upper(&self.pristine_files(), &upper)
    }

    /// Shows what the upper layer has, with the rules that hold for it, in a folder of ours; `None`
    /// for a tree that can be looked at where it lies.
    pub(super) fn show_changed(&self) -> Result<Option<PathBuf>, WorkspaceError> {
        let Some(layers) = &self.layers else { return Ok(None) };
        let folder = self.dir.join("shown");
        tree::remove(&folder)?;
        fs::create_dir_all(&folder).map_err(io_error("make", &folder))?;
        layers.show_changed(&folder)?;
        for repo in &self.repos {
            let tree = joined(&folder, &repo.prefix);
            fs::create_dir_all(&tree).map_err(io_error("make", &tree))?;
        }
        Ok(Some(folder))
    }
}

/// What the configuration of an overlay's repository adds; as a clone's.
const CONFIG: &str = "[user]
\tname = horseman
\temail = horseman@localhost
[gc]
\tauto = 0
[maintenance]
\tauto = false
";

/// The repository of ours over what is shown of an overlay; over the tree itself without one.
pub(super) fn shadow_over(changed: Option<&Path>, repo: &Repo) -> Shadow {
    let work_tree = match changed {
        Some(changed) => joined(changed, &repo.prefix),
        None => repo.shadow.work_tree().to_path_buf(),
    };
    repo.shadow.over(&work_tree)
}

/// Brings the tracked entries of an index up to what the tree has.
pub(super) async fn update(
    layers: Option<&Layers>,
    repo: &Repo,
    (index, keeps): (&str, &dyn Fn(&Path) -> bool),
) -> Result<(), WorkspaceError> {
    let Some(layers) = layers else { return repo.shadow.update_tracked(index, keeps).await };
    let (mut present, mut gone) = (Vec::new(), Vec::new());
    for entry in repo.shadow.entries(index).await? {
        match layers.became(&repo.prefix.join(&entry.path)) {
            Became::Same => {}
            Became::Another => present.push(entry.path),
            // The commit of a submodule stays, whatever became of its folder.
            Became::Gone if entry.mode == "160000" => {}
            Became::Gone => gone.push(entry.path),
        }
    }
    let upper = joined(&layers.upper, &repo.prefix);
    let shadow =
        if upper.is_dir() { repo.shadow.over(&upper) } else { repo.shadow.over(&layers.upper) };
    shadow.forget(index, &gone).await?;
    shadow.add(index, &present).await
}
