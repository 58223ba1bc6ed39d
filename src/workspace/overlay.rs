//! Overlay: a folder with the changes that are laid over it, seen from outside the mount.
//!
//! In: the folder below, and the upper folder that overlayfs filled. Out: what a command sees, name
//! by name; what was changed; and changes of our own, written as overlayfs would. No symlink is
//! followed. Knows nothing of git.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use super::{WorkspaceError, io_error, tree};
use crate::sandbox::layers::{is_opaque, is_whiteout, make_whiteout, set_opaque};

/// A folder and the changes laid over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layers {
    /// The folder below; never written to.
    pub(super) lower: PathBuf,
    /// The changes.
    pub(super) upper: PathBuf,
}

/// What became of a file of the lower folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Became {
    /// Nothing: it is seen as it lies below.
    Same,
    /// It is a file or symlink of the upper folder.
    Another,
    /// It is gone, or no file.
    Gone,
}

/// A folder as it is seen: its part in each layer.
#[derive(Clone, Debug)]
struct Folder {
    upper: Option<PathBuf>,
    lower: Option<PathBuf>,
}

/// A name in such a folder.
enum Name {
    /// In the upper layer: the mark of a name that is gone.
    Gone,
    /// Something else, with where it lies; a folder with its parts.
    There(PathBuf, Box<Metadata>, Option<Folder>),
}

impl Folder {
    fn look(&self, name: &OsStr) -> Option<Name> {
        let at = |folder: &Option<PathBuf>| {
            let path = folder.as_ref()?.join(name);
            fs::symlink_metadata(&path).ok().map(|facts| (path, facts))
        };
        let below = at(&self.lower);
        let lower = || below.clone().filter(|(_, facts)| facts.is_dir()).map(|(path, _)| path);
        if let Some((path, facts)) = at(&self.upper) {
            if is_whiteout(&path, &facts) {
                return Some(Name::Gone);
            }
            let folder = facts.is_dir().then(|| Self {
                lower: if is_opaque(&path) { None } else { lower() },
                upper: Some(path.clone()),
            });
            return Some(Name::There(path, Box::new(facts), folder));
        }
        let folder = lower().map(|path| Self { upper: None, lower: Some(path) });
        below.map(|(path, facts)| Name::There(path, Box::new(facts), folder))
    }

    /// Names that are seen in it, sorted.
    fn names(&self) -> Result<BTreeSet<OsString>, WorkspaceError> {
        let mut names = BTreeSet::new();
        for folder in self.lower.iter().chain(&self.upper) {
            names.extend(tree::names(folder)?);
        }
        names.retain(|name| matches!(self.look(name), Some(Name::There(..))));
        Ok(names)
    }
}

impl Layers {
    fn root(&self) -> Folder {
        Folder { upper: Some(self.upper.clone()), lower: Some(self.lower.clone()) }
    }

    /// The folder at `path`, if one is seen there and on the way.
    fn folder(&self, path: &Path) -> Option<Folder> {
        path.components().try_fold(self.root(), |folder, part| {
            match folder.look(part.as_os_str()) {
                Some(Name::There(_, _, inner)) => inner,
                Some(Name::Gone) | None => None,
            }
        })
    }

    /// Where what is seen at `path` really lies; `None` when nothing is, or when a symlink is on the
    /// way.
    pub(super) fn find(&self, path: &Path) -> Option<(PathBuf, Metadata)> {
        let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let (parent, name) = (path.parent()?, path.file_name().filter(|_| is_plain)?);
        match self.folder(parent)?.look(name)? {
            Name::There(path, facts, _) => Some((path, *facts)),
            Name::Gone => None,
        }
    }

    /// Names seen in the folder `path`.
    pub(super) fn names(&self, path: &Path) -> Result<BTreeSet<OsString>, WorkspaceError> {
        self.folder(path).map_or_else(|| Ok(BTreeSet::new()), |folder| folder.names())
    }

    /// Whether a folder is seen at `path`.
    pub(super) fn is_folder(&self, path: &Path) -> bool {
        self.folder(path).is_some()
    }

    /// What became of the file `path`.
    pub(super) fn became(&self, path: &Path) -> Became {
        let mut folder = self.root();
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            match folder.look(part.as_os_str()) {
                Some(Name::Gone) => return Became::Gone,
                Some(Name::There(_, _, Some(_))) if is_last => return Became::Gone,
                Some(Name::There(_, _, Some(inner))) => folder = inner,
                Some(Name::There(at, facts, None)) => {
                    let is_leaf = facts.is_file() || facts.is_symlink();
                    return match (is_last && is_leaf, at.starts_with(&self.upper)) {
                        (true, true) => Became::Another,
                        (true, false) => Became::Same,
                        (false, _) => Became::Gone,
                    };
                }
                // Below an opaque folder nothing of the lower one is left.
                None if folder.lower.is_none() => return Became::Gone,
                None => return Became::Same,
            }
        }
        Became::Same
    }

    /// Fills the empty folder `to` with the files of the upper layer, and with the `.gitignore` files
    /// that hold for them. Files share their content with the layer: they are to be read alone.
    pub(super) fn show_changed(&self, to: &Path) -> Result<(), WorkspaceError> {
        let mut folders = vec![(PathBuf::new(), self.root())];
        while let Some((path, folder)) = folders.pop() {
            let Some(upper) = &folder.upper else { continue };
            for name in tree::names(upper)? {
                let Some(Name::There(source, facts, inner)) = folder.look(&name) else { continue };
                let path = path.join(&name);
                let target = to.join(&path);
                if let Some(inner) = inner {
                    // The repository of the root is git's own, not part of the tree.
                    if path != Path::new(".git") {
                        fs::create_dir(&target).map_err(io_error("make", &target))?;
                        folders.push((path, inner));
                    }
                } else if facts.is_symlink() {
                    let goal = fs::read_link(&source).map_err(io_error("read", &source))?;
                    symlink(goal, &target).map_err(io_error("make", &target))?;
                } else if facts.is_file() && fs::hard_link(&source, &target).is_err() {
                    tree::copy_leaf(&source, &target, &facts)?;
                }
            }
            let rules = OsStr::new(".gitignore");
            if let Some(Name::There(source, facts, None)) = folder.look(rules)
                && facts.is_file()
                && !source.starts_with(&self.upper)
            {
                tree::copy_leaf(&source, &to.join(&path).join(rules), &facts)?;
            }
        }
        Ok(())
    }

    /// Makes room for `path` in the upper layer: its folders are there, and nothing at it.
    pub(super) fn make_way(&self, path: &Path) -> Result<(), WorkspaceError> {
        let mut folder = self.root();
        let mut at = self.upper.clone();
        for part in path.parent().into_iter().flat_map(Path::components) {
            at.push(part);
            let below = folder.lower.as_ref().map(|lower| lower.join(part));
            let below = below.and_then(|below| Some((fs::symlink_metadata(&below).ok()?, below)));
            let facts = fs::symlink_metadata(&at);
            let is_gone = facts.as_ref().is_ok_and(|facts| !facts.is_dir());
            if is_gone {
                tree::remove(&at)?;
            }
            if is_gone || facts.is_err() {
                fs::create_dir(&at).map_err(io_error("make", &at))?;
                match &below {
                    // What had been taken away stays away.
                    Some((facts, _)) if is_gone && facts.is_dir() => {
                        set_opaque(&at).map_err(io_error("mark", &at))?;
                    }
                    Some((facts, _)) if facts.is_dir() => dress(&at, facts)?,
                    Some(_) | None => {}
                }
            }
            let lower = below.filter(|(facts, _)| facts.is_dir()).map(|(_, below)| below);
            let lower = lower.filter(|_| !is_opaque(&at));
            folder = Folder { upper: Some(at.clone()), lower };
        }
        tree::remove(&self.upper.join(path))
    }

    /// Takes `path` away.
    pub(super) fn delete(&self, path: &Path) -> Result<(), WorkspaceError> {
        self.make_way(path)?;
        if self.find(path).is_some() {
            let at = self.upper.join(path);
            make_whiteout(&at).map_err(io_error("make", &at))?;
        }
        Ok(())
    }
}

/// Gives the folder `at` mode and owner of another. An owner that can't be given is the runner's.
pub(super) fn dress(at: &Path, facts: &Metadata) -> Result<(), WorkspaceError> {
    drop(std::os::unix::fs::chown(at, Some(facts.uid()), Some(facts.gid())));
    tree::set_mode(at, facts.mode() & 0o777)
}

/// Copies an upper folder, marks included, into the existing empty folder `to`.
pub(super) fn copy_upper(from: &Path, to: &Path) -> Result<(), WorkspaceError> {
    let mut folders = vec![PathBuf::new()];
    let mut made = Vec::new();
    while let Some(folder) = folders.pop() {
        let (source, target) = (from.join(&folder), to.join(&folder));
        if is_opaque(&source) {
            set_opaque(&target).map_err(io_error("mark", &target))?;
        }
        made.push((target, tree::stat(&source)?));
        for name in tree::names(&source)? {
            let path = folder.join(name);
            let (source, target) = (from.join(&path), to.join(&path));
            let facts = tree::stat(&source)?;
            if is_whiteout(&source, &facts) {
                make_whiteout(&target).map_err(io_error("make", &target))?;
            } else if facts.is_dir() {
                fs::create_dir(&target).map_err(io_error("make", &target))?;
                folders.push(path);
            } else if facts.is_file() || facts.is_symlink() {
                tree::copy_leaf(&source, &target, &facts)?;
                drop(std::os::unix::fs::lchown(&target, Some(facts.uid()), Some(facts.gid())));
            }
        }
    }
    made.iter().rev().try_for_each(|(target, facts)| dress(target, facts))
}

/// Makes an upper folder readable for its owner. Marks stay.
pub(super) fn open_upper(folder: &Path) -> Result<(), WorkspaceError> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        tree::open_up(&folder)?;
        for name in tree::names(&folder)? {
            let path = folder.join(name);
            let facts = tree::stat(&path)?;
            if facts.is_dir() {
                folders.push(path);
            } else if facts.is_file() && facts.mode() & 0o400 == 0 {
                tree::set_mode(&path, facts.mode() & 0o777 | 0o400)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::{Became, Layers, copy_upper};
    use crate::sandbox::layers::{is_opaque, is_whiteout, make_whiteout, set_opaque};

    /// Files `path` with their own name as content; `…/` makes a folder.
    fn fill(root: &Path, paths: &[&str]) {
        for path in paths {
            let at = root.join(path);
            if path.ends_with('/') {
                fs::create_dir_all(at).unwrap();
            } else {
                fs::create_dir_all(at.parent().unwrap()).unwrap();
                fs::write(at, path).unwrap();
            }
        }
    }

    fn layers() -> (tempfile::TempDir, Layers) {
        let folder = tempfile::tempdir().unwrap();
        let layers =
            Layers { lower: folder.path().join("lower"), upper: folder.path().join("upper") };
        fill(&layers.lower, &["a", "b", "d/x", "d/y", "e/z", "f/.gitignore", "f/w", "g"]);
        fill(&layers.upper, &["a", "d/n", "e/m", "f/v", "g/h"]);
        make_whiteout(&layers.upper.join("b")).unwrap();
        make_whiteout(&layers.upper.join("d/x")).unwrap();
        set_opaque(&layers.upper.join("e")).unwrap();
        (folder, layers)
    }

    fn names(layers: &Layers, path: &str) -> Vec<String> {
        let names = layers.names(Path::new(path)).unwrap();
        names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn names_are_those_of_both_layers_but_for_what_is_gone() {
        let (_folder, layers) = layers();
        assert_eq!(names(&layers, ""), ["a", "d", "e", "f", "g"]);
        assert_eq!(names(&layers, "d"), ["n", "y"]);
        assert_eq!(names(&layers, "e"), ["m"]);
        assert_eq!(names(&layers, "g"), ["h"]);
        assert!(layers.find(Path::new("d/y")).unwrap().0.starts_with(&layers.lower));
        assert!(layers.find(Path::new("b")).is_none() && layers.find(Path::new("e/z")).is_none());
        symlink("/etc", layers.upper.join("link")).unwrap();
        assert!(layers.find(Path::new("link/passwd")).is_none());
        assert!(layers.find(Path::new("d/../a")).is_none());
    }

    #[test]
    fn each_file_below_is_the_same_another_or_gone() {
        let (_folder, layers) = layers();
        let became = |path: &str| layers.became(Path::new(path));
        for path in ["d/y", "f/w", "never/was"] {
            assert_eq!(became(path), Became::Same, "{path}");
        }
        assert_eq!(became("a"), Became::Another);
        for path in ["b", "d/x", "e/z", "g", "a/in-a-file"] {
            assert_eq!(became(path), Became::Gone, "{path}");
        }
    }

    #[test]
    fn what_changed_is_shown_with_the_rules_that_hold_there() {
        let (folder, layers) = layers();
        fill(&layers.upper, &[".git/config"]);
        let to = folder.path().join("shown");
        fs::create_dir(&to).unwrap();
        layers.show_changed(&to).unwrap();
        for path in ["a", "d/n", "e/m", "f/v", "f/.gitignore", "g/h"] {
            assert!(to.join(path).is_file(), "{path}");
        }
        for path in ["b", "d/x", "d/y", "f/w", ".git"] {
            assert!(fs::symlink_metadata(to.join(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_written_and_taken_away_is_seen_so() {
        let (_folder, layers) = layers();
        for path in ["d/y", "b", "e/m", "f/w"] {
            layers.delete(Path::new(path)).unwrap();
            assert!(layers.find(Path::new(path)).is_none(), "{path}");
        }
        let mark = layers.upper.join("d/y");
        assert!(is_whiteout(&mark, &fs::symlink_metadata(&mark).unwrap()));
        // Nothing below: no mark is left.
        assert!(!layers.upper.join("e/m").exists());
        let write = |path: &str| {
            layers.make_way(Path::new(path)).unwrap();
            fs::write(layers.upper.join(path), "new").unwrap();
        };
        layers.delete(Path::new("d")).unwrap();
        write("d/q");
        assert_eq!(names(&layers, "d"), ["q"]);
        assert!(is_opaque(&layers.upper.join("d")));
        write("a/in");
        assert_eq!(names(&layers, "a"), ["in"]);
        write("f/.gitignore");
        assert_eq!(names(&layers, "f"), [".gitignore", "v"]);
        assert_eq!(fs::read_to_string(layers.lower.join("d/y")).unwrap(), "d/y");
    }

    #[test]
    fn a_copy_has_the_marks() {
        let (folder, layers) = layers();
        let upper: PathBuf = folder.path().join("copy");
        fs::create_dir(&upper).unwrap();
        copy_upper(&layers.upper, &upper).unwrap();
        let copy = Layers { upper, ..layers.clone() };
        for path in ["", "d", "e", "f", "g"] {
            assert_eq!(names(&copy, path), names(&layers, path), "{path}");
        }
    }
}
