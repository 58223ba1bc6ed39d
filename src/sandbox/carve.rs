//! Carve-outs: what of the writable roots is read-only all the same.
//!
//! In: a profile's globs and the git folders of a place. Out: real paths, looked up. What `write`
//! names wins: whoever names it means it.

use std::path::{Path, PathBuf};

use super::{Place, SandboxError, enumerate};
use crate::profile::{Profile, SandboxMode};

/// The protected paths of an attempt; none where nothing is writable or all is thrown away.
pub(super) fn protected(profile: &Profile, place: &Place) -> Result<Vec<PathBuf>, SandboxError> {
    if profile.mode == SandboxMode::ReadOnly || place.is_disposable {
        return Ok(Vec::new());
    }
    let mut found = named(&profile.protected, &place.workspace)?;
    found.extend(enumerate::resolve(&place.git));
    found.retain(|path| !is_granted(profile, place, path));
    found.sort();
    found.dedup();
    Ok(found)
}

/// Names that must stay as they are and that no mount can hold: what isn't there, and symlinks on
/// the way to what is.
pub(super) fn loose(profile: &Profile, place: &Place) -> Vec<PathBuf> {
    if profile.mode == SandboxMode::ReadOnly || place.is_disposable {
        return Vec::new();
    }
    let is_glob = |name: &&String| name.contains(['*', '?', '[', '{']);
    let literal = profile.protected.iter().filter(|name| !is_glob(name));
    let mut loose = Vec::new();
    for path in literal.map(|name| place.workspace.join(name)).chain(place.git.iter().cloned()) {
        let Ok(inner) = path.strip_prefix(&place.workspace) else { continue };
        let mut at = place.workspace.clone();
        let link = inner.components().find_map(|part| {
            at.push(part);
            at.is_symlink().then(|| at.clone())
        });
        loose.extend(link.or_else(|| (!path.exists()).then_some(path)));
    }
    loose.retain(|path| !is_granted(profile, place, path));
    loose.sort();
    loose.dedup();
    loose
}

/// Whether `write` names a path or a folder above it. The workspace is writable in any case: naming
/// it grants nothing that is protected.
fn is_granted(profile: &Profile, place: &Place, path: &Path) -> bool {
    let grants = |root: &PathBuf| path.starts_with(root) && !place.workspace.starts_with(root);
    profile.write.iter().any(grants)
}

/// The folders between each protected path and the writable root that it lies below. None of them
/// may be renamed: the path would go along, and its old name would be free.
pub(super) fn pinned(protected: &[PathBuf], roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut pinned = Vec::new();
    for path in protected {
        let Some(root) = roots.iter().find(|root| path.starts_with(root)) else { continue };
        let above = path.ancestors().skip(1).take_while(|above| above != root);
        pinned.extend(above.map(Path::to_path_buf));
    }
    pinned.sort();
    pinned.dedup();
    pinned
}

/// What the globs of protected paths name in a workspace. A glob for all that lies below another's
/// path is that path.
fn named(globs: &[String], workspace: &Path) -> Result<Vec<PathBuf>, SandboxError> {
    let mut found = Vec::new();
    for glob in globs {
        let is_covered =
            glob.strip_suffix("/**").is_some_and(|base| globs.iter().any(|g| g == base));
        if !is_covered {
            let pattern = format!("{}/{glob}", workspace.display());
            found.extend(enumerate::find(&pattern).map_err(|why| SandboxError::Unenforceable {
                items: vec![("protected".to_owned(), why)],
                hint: String::new(),
            })?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::{pinned, protected};
    use crate::profile::Profile;
    use crate::sandbox::Place;

    #[test]
    fn what_write_names_is_not_carved_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".git")).unwrap();
        fs::create_dir_all(root.join(".codex")).unwrap();
        let place = Place {
            workspace: root.clone(),
            git: vec![root.join(".git"), PathBuf::from("/elsewhere/.git")],
            ..Place::default()
        };
        let profile = Profile { protected: vec![".codex".to_owned()], ..Profile::default() };
        let carved = [PathBuf::from("/elsewhere/.git"), root.join(".codex"), root.join(".git")];
        assert_eq!(protected(&profile, &place).unwrap(), carved);
        let granted = |path: PathBuf| Profile { write: vec![path], ..profile.clone() };
        assert_eq!(protected(&granted(root.join(".git")), &place).unwrap(), carved[..2]);
        assert_eq!(protected(&granted(root), &place).unwrap(), carved);
        let place = Place { is_disposable: true, ..place };
        assert!(protected(&profile, &place).unwrap().is_empty());
    }

    #[test]
    fn folders_above_a_protected_path_are_pinned_below_the_root() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            pinned(&paths(&["/w/a/b/c", "/w/d", "/x/y"]), &paths(&["/w"])),
            paths(&["/w/a", "/w/a/b"])
        );
    }
}
