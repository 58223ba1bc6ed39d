//! Submodules: where their objects lie on this machine.
//!
//! In: a store and one of its commits. Out: the store of each submodule, or that it isn't here.
//! Nothing is fetched.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::clone::Origin;
use super::git::Git;
use super::source::answer;
use super::{Source, TreeEntry, WorkspaceError};

/// A submodule of a commit.
#[derive(Clone, Debug)]
pub(super) struct Submodule {
    /// Path relative to the repository that holds it.
    pub(super) path: PathBuf,
    /// Its store; `None`: not on this machine, or without the commit.
    pub(super) origin: Option<Origin>,
}

/// Finds the stores of the submodules among `entries`, the tree of `origin`'s commit. `checkout`:
/// the work tree of the same repository, where submodules may hold their own store.
pub(super) async fn find(
    git: &Rc<Git>,
    origin: &Origin,
    (entries, checkout): (&[TreeEntry], Option<&Path>),
) -> Result<Vec<Submodule>, WorkspaceError> {
    let links: Vec<&TreeEntry> = entries.iter().filter(|entry| entry.mode == "160000").collect();
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let names = names(git, origin).await?;
    let mut found = Vec::new();
    for link in links {
        let store = names.get(&link.path).map(|name| origin.common_dir.join("modules").join(name));
        let store = store.filter(|store| store.join("objects").is_dir());
        let mut inner = store.map(|store| Origin {
            git_dir: store.clone(),
            common_dir: store,
            commit: link.id.clone(),
            object_format: origin.object_format.clone(),
            is_partial: false,
        });
        if inner.is_none()
            && let Some(folder) = checkout.map(|root| root.join(&link.path))
            && folder.join(".git").exists()
            && let Some(source) = Source::open(git, &folder).await?
        {
            inner = Some(Origin::of(&source, &link.id));
        }
        let has_commit = match &inner {
            Some(inner) => {
                let spec = format!("{}^{{tree}}", link.id);
                answer(inner.read(git, &["cat-file", "-e", &spec]).await)?.is_some()
            }
            None => false,
        };
        found.push(Submodule { path: link.path.clone(), origin: inner.filter(|_| has_commit) });
    }
    Ok(found)
}

/// Path to name of each submodule, as `.gitmodules` of the commit says.
async fn names(
    git: &Rc<Git>,
    origin: &Origin,
) -> Result<BTreeMap<PathBuf, PathBuf>, WorkspaceError> {
    let blob = format!("--blob={}:.gitmodules", origin.commit);
    let args = ["config", "-z", &blob, "--get-regexp", r"^submodule\..*\.path$"];
    let output = match origin.read(git, &args).await {
        Ok(output) => output,
        Err(error) if error.is_refusal() => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    let mut names = BTreeMap::new();
    for field in output.fields() {
        let Some(end) = field.iter().position(|&byte| byte == b'\n') else { continue };
        let (key, path) = (&field[..end], &field[end + 1..]);
        let name = key.strip_prefix(b"submodule.").and_then(|key| key.strip_suffix(b".path"));
        let Some(name) = name.map(|name| PathBuf::from(OsStr::from_bytes(name))) else { continue };
        // A name such as `../../x` would lead out of the store.
        if name.components().all(|part| matches!(part, Component::Normal(_))) {
            names.insert(PathBuf::from(OsStr::from_bytes(path)), name);
        }
    }
    Ok(names)
}
