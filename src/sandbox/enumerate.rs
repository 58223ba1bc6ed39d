//! Enumeration: how a folder is granted without some of what lies in it.
//!
//! In: roots and denied paths. Out: the paths to grant. Landlock's rights are a union along the
//! path, so a folder above a denied place can't be granted itself; its other entries are, one by
//! one. The names in such a folder can then not be listed: a right to list it would hold in the
//! denied place as well.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// Entries looked at for one glob. Ours; a tree with more is refused, not half searched.
const GLOB_ENTRIES: usize = 200_000;

/// Folders at the root, for when they can't be listed.
const TOP: [&str; 19] = [
    "/bin", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/nix", "/opt", "/proc",
    "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var",
];

/// What to grant: everything below `roots` but what lies at or below one of `denied`. A root that
/// lies at or below a denied path wins: whoever names it means it.
pub(crate) fn granted(roots: &[PathBuf], denied: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let denied = Denied::look(denied);
    for root in roots {
        denied.grant(root, &mut out);
    }
    out
}

/// Denied places, and the same as objects: a rule holds for an object, which may lie at a second
/// place by a mount.
struct Denied<'a> {
    places: &'a BTreeSet<PathBuf>,
    objects: HashSet<(u64, u64)>,
    /// Folders above them.
    above: HashSet<(u64, u64)>,
}

impl<'a> Denied<'a> {
    fn look(places: &'a BTreeSet<PathBuf>) -> Self {
        let identity = |path: &Path| fs::symlink_metadata(path).ok().map(|data| identity(&data));
        let above: BTreeSet<&Path> =
            places.iter().flat_map(|place| place.ancestors().skip(1)).collect();
        Self {
            places,
            objects: places.iter().filter_map(|place| identity(place)).collect(),
            above: above.into_iter().filter_map(identity).collect(),
        }
    }

    fn grant(&self, path: &Path, out: &mut Vec<PathBuf>) {
        // Sorted by components, so that everything below `path` follows it directly.
        let is_below = |place: &&PathBuf| place.starts_with(path) && *place != path;
        let holds_denied = self.places.range(path.to_path_buf()..).find(|p| *p != path);
        let is_above =
            || fs::symlink_metadata(path).is_ok_and(|data| self.above.contains(&identity(&data)));
        if !holds_denied.as_ref().is_some_and(is_below) && !is_above() {
            out.push(path.to_owned());
            return;
        }
        for child in children(path) {
            let Ok(data) = fs::symlink_metadata(&child) else { continue };
            let kind = data.file_type();
            let is_device = kind.is_block_device() || kind.is_char_device();
            let is_denied = self.places.contains(&child) || self.objects.contains(&identity(&data));
            // A link is no object of its own for Landlock: what it leads to is asked for.
            if kind.is_symlink() || is_device || is_denied {
                continue;
            }
            self.grant(&child, out);
        }
    }
}

fn identity(data: &fs::Metadata) -> (u64, u64) {
    (data.dev(), data.ino())
}

/// Entries of a folder. Inside another Landlock sandbox the root itself may not be listable; the
/// usual folders are in it all the same.
fn children(path: &Path) -> Vec<PathBuf> {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) if path == Path::new("/") => TOP.iter().map(PathBuf::from).collect(),
        Err(_) => Vec::new(),
    }
}

/// Looks denied places up: real paths, as the kernel walks them. A place that is not there is
/// denied below its deepest existing folder, so that it stays unreadable when it comes to be.
pub(crate) fn resolve(places: &[PathBuf]) -> BTreeSet<PathBuf> {
    places.iter().filter_map(|place| resolve_one(place)).collect()
}

fn resolve_one(place: &Path) -> Option<PathBuf> {
    if let Ok(real) = fs::canonicalize(place) {
        return Some(real);
    }
    let parent = place.parent()?;
    Some(resolve_one(parent)?.join(place.file_name()?))
}

/// Finds what `pattern`, an absolute path or glob, names. `Err` with the reason when that can't be
/// found out.
pub(crate) fn find(pattern: &str) -> Result<Vec<PathBuf>, String> {
    let is_glob = |part: &str| part.contains(['*', '?', '[', '{']);
    if !is_glob(pattern) {
        return Ok(resolve_one(Path::new(pattern.trim_end_matches('/'))).into_iter().collect());
    }
    let fixed: PathBuf = Path::new(pattern)
        .components()
        .take_while(|part| !is_glob(&part.as_os_str().to_string_lossy()))
        .collect();
    let glob = GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .map_err(|error| format!("`{pattern}` is no glob: {error}"))?
        .compile_matcher();
    let mut found = Vec::new();
    let mut left = GLOB_ENTRIES;
    search(&fixed, &glob, &mut found, &mut left);
    if left == 0 {
        return Err(format!(
            "`{pattern}` would have to be looked for in more than {GLOB_ENTRIES} entries"
        ));
    }
    Ok(found)
}

fn search(folder: &Path, glob: &GlobMatcher, found: &mut Vec<PathBuf>, left: &mut usize) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let path = entry.path();
        if glob.is_match(&path) {
            found.extend(resolve_one(&path));
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            search(&path, glob, found, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::{find, granted, resolve};

    fn tree() -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for file in ["a/x", "home/.ssh/key", "home/.config/gh/t", "home/.config/git/c", "home/b"] {
            let path = tree.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("home/.ssh", tree.path().join("link")).unwrap();
        tree
    }

    fn names(root: &Path, paths: &[PathBuf]) -> BTreeSet<String> {
        paths.iter().map(|p| p.strip_prefix(root).unwrap().display().to_string()).collect()
    }

    #[test]
    fn siblings_of_a_denied_place_are_granted_one_by_one() {
        let tree = tree();
        let root = fs::canonicalize(tree.path()).unwrap();
        let denied = resolve(&[root.join("home/.ssh"), root.join("home/.config/gh")]);
        let paths = granted(std::slice::from_ref(&root), &denied);
        let expected = ["a", "home/b", "home/.config/git"];
        assert_eq!(names(&root, &paths), expected.map(str::to_owned).into());
    }

    #[test]
    fn a_place_that_is_not_there_yet_stays_denied() {
        let tree = tree();
        let root = fs::canonicalize(tree.path()).unwrap();
        let denied = resolve(&[root.join("home/.aws/credentials")]);
        let paths = granted(std::slice::from_ref(&root), &denied);
        assert_eq!(
            names(&root, &paths),
            ["a", "home/b", "home/.config", "home/.ssh"].map(str::to_owned).into()
        );
    }

    #[test]
    fn a_link_to_a_denied_place_denies_the_real_one() {
        let tree = tree();
        let root = fs::canonicalize(tree.path()).unwrap();
        assert_eq!(resolve(&[root.join("link")]), [root.join("home/.ssh")].into());
    }

    #[test]
    fn an_explicit_root_below_a_denied_place_wins() {
        let tree = tree();
        let root = fs::canonicalize(tree.path()).unwrap();
        let denied = resolve(&[root.join("home")]);
        let wanted = root.join("home/.config");
        assert_eq!(granted(std::slice::from_ref(&wanted), &denied), [wanted]);
    }

    #[test]
    fn globs_find_what_is_there() {
        let tree = tree();
        let root = fs::canonicalize(tree.path()).unwrap();
        let pattern = format!("{}/**/k*", root.display());
        assert_eq!(find(&pattern).unwrap(), [root.join("home/.ssh/key")]);
        assert!(find("/nowhere-at-all/*").unwrap().is_empty());
    }
}
