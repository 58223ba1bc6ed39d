//! The guard: protected paths that no layer holds, looked at after each command and put back.
//!
//! In: paths, and a private folder for their contents. Out: what was changed, and what is as it was
//! again. Follows no symlink. Knows nothing of why a path is protected.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::{WorkspaceError, io_error, tree};

/// Most bytes of contents that are kept, in all; our choice. What is over it is compared and can't
/// be put back.
const MOST: u64 = 1 << 30;

/// Paths that must stay as they were.
#[derive(Debug)]
pub struct Guard {
    root: PathBuf,
    store: PathBuf,
    except: Vec<PathBuf>,
    kept: Vec<Kept>,
    copies: u64,
    bytes: u64,
}

/// One path with all that lies below it; no entries: nothing was there.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    /// Device, inode, size, times of content and of change: the same again, and it is untouched.
    stamp: [i128; 5],
    copy: Option<PathBuf>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Folder,
    File,
    Link(PathBuf),
    Other(u64),
}

/// What [`Guard::put_back`] did; paths as they were given, or below one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    /// As they were again.
    pub restored: Vec<PathBuf>,
    /// Changed for good: too large to be kept.
    pub lost: Vec<PathBuf>,
}

impl Guard {
    /// Looks at `paths` of the tree at `root` and keeps their contents below the private folder
    /// `store`, which is emptied. What lies at or below `except` isn't looked at.
    ///
    /// # Errors
    ///
    /// A path that can't be read, or no room for the contents.
    pub fn take(
        root: &Path,
        store: &Path,
        (paths, except): (&[PathBuf], &[PathBuf]),
    ) -> Result<Self, WorkspaceError> {
        tree::remove(store)?;
        fs::create_dir_all(store).map_err(io_error("make", store))?;
        let mut paths: Vec<PathBuf> = paths.to_vec();
        paths.sort();
        paths.dedup_by(|path, above| path.starts_with(above));
        let (root, store) = (root.to_path_buf(), store.to_path_buf());
        let except = except.to_vec();
        let mut guard = Self { root, store, except, kept: Vec::new(), copies: 0, bytes: 0 };
        for path in paths {
            let mut entries = found(&path, &guard.except)?;
            for (inner, entry) in &mut entries {
                guard.keep(&join(&path, inner), entry)?;
            }
            guard.kept.push(Kept { path, entries });
        }
        Ok(guard)
    }

    /// Paths that differ from what was taken. Processes may still be running.
    ///
    /// # Errors
    ///
    /// A path that can't be read.
    pub fn changed(&mut self) -> Result<Vec<PathBuf>, WorkspaceError> {
        let mut changed = Vec::new();
        for kept in &mut self.kept {
            changed.extend(kept.differing((&self.root, &self.except))?);
        }
        Ok(changed)
    }

    /// Makes what was changed as it was. Call it once no process is left that could interfere.
    ///
    /// # Errors
    ///
    /// A path that can't be written.
    pub fn put_back(&mut self) -> Result<PutBack, WorkspaceError> {
        let mut done = PutBack::default();
        for kept in &mut self.kept {
            let differing = kept.differing((&self.root, &self.except))?;
            if differing.is_empty() {
                continue;
            }
            if let Ok(inner) = kept.path.strip_prefix(&self.root) {
                tree::make_parents(&self.root, inner)?;
            }
            for path in differing {
                if kept.restore(&path)? {
                    done.restored.push(path);
                } else {
                    done.lost.push(path);
                }
            }
            kept.renew(&self.except)?;
        }
        Ok(done)
    }

    fn keep(&mut self, path: &Path, entry: &mut Entry) -> Result<(), WorkspaceError> {
        if entry.kind != Kind::File {
            return Ok(());
        }
        let facts = fs::symlink_metadata(path).map_err(io_error("look at", path))?;
        if self.bytes.saturating_add(facts.len()) > MOST {
            return Ok(());
        }
        let copy = self.store.join(self.copies.to_string());
        tree::copy_leaf(path, &copy, &facts)?;
        self.copies += 1;
        self.bytes += facts.len();
        entry.copy = Some(copy);
        Ok(())
    }
}

impl Kept {
    /// What differs, each folder before what lies in it.
    fn differing(
        &mut self,
        (root, except): (&Path, &[PathBuf]),
    ) -> Result<Vec<PathBuf>, WorkspaceError> {
        let parent = self.path.parent().and_then(|parent| parent.strip_prefix(root).ok());
        let now = match parent {
            // A symlink in the way would show somebody else's folder.
            Some(parent) if !tree::is_real_folder(root, parent) => BTreeMap::new(),
            Some(_) | None => found(&self.path, except)?,
        };
        let mut differing: Vec<PathBuf> = Vec::new();
        for (inner, entry) in &mut self.entries {
            let path = join(&self.path, inner);
            match now.get(inner) {
                Some(found) if entry.is_same(found, &path) => entry.stamp = found.stamp,
                Some(_) | None => differing.push(path),
            }
        }
        let new = now.keys().filter(|inner| !self.entries.contains_key(*inner));
        differing.extend(new.map(|inner| join(&self.path, inner)));
        differing.sort();
        Ok(differing)
    }

    /// Makes one path as it was; `false` when that can't be done.
    fn restore(&self, path: &Path) -> Result<bool, WorkspaceError> {
        let inner = path.strip_prefix(&self.path).unwrap_or(path);
        // Folders come before what lies in them: a symlink that is back is not walked through.
        let has_folder = inner.parent().is_none_or(|up| tree::is_real_folder(&self.path, up));
        if !has_folder {
            return Ok(!self.entries.contains_key(inner));
        }
        let Some(entry) = self.entries.get(inner) else {
            tree::remove(path)?;
            return Ok(true);
        };
        let is_folder = fs::symlink_metadata(path).is_ok_and(|facts| facts.is_dir());
        match (&entry.kind, &entry.copy) {
            (Kind::Folder, _) if is_folder => {}
            (Kind::Folder, _) => {
                tree::remove(path)?;
                fs::create_dir(path).map_err(io_error("make", path))?;
            }
            (Kind::Link(goal), _) => {
                tree::remove(path)?;
                symlink(goal, path).map_err(io_error("make", path))?;
            }
            // A new file: the old one may have another name by now.
            (Kind::File, Some(copy)) => {
                tree::remove(path)?;
                let facts = fs::symlink_metadata(copy).map_err(io_error("look at", copy))?;
                tree::copy_leaf(copy, path, &facts)?;
            }
            (Kind::File, None) | (Kind::Other(_), _) => return Ok(false),
        }
        let facts = fs::symlink_metadata(path).map_err(io_error("look at", path))?;
        if (facts.uid(), facts.gid()) != entry.owner {
            let (uid, gid) = entry.owner;
            std::os::unix::fs::lchown(path, Some(uid), Some(gid))
                .map_err(io_error("set the owner of", path))?;
        }
        if !facts.is_symlink() {
            fs::set_permissions(path, fs::Permissions::from_mode(entry.mode))
                .map_err(io_error("set the mode of", path))?;
        }
        Ok(true)
    }

    /// Takes what is there now for what it is compared to next, so that each change is said once.
    fn renew(&mut self, except: &[PathBuf]) -> Result<(), WorkspaceError> {
        let mut now = found(&self.path, except)?;
        for (inner, entry) in &mut now {
            entry.copy = self.entries.get(inner).and_then(|known| known.copy.clone());
        }
        self.entries = now;
        Ok(())
    }
}

impl Entry {
    fn new(facts: &Metadata, path: &Path) -> Result<Self, WorkspaceError> {
        let kind = if facts.is_dir() {
            Kind::Folder
        } else if facts.is_file() {
            Kind::File
        } else if facts.is_symlink() {
            Kind::Link(fs::read_link(path).map_err(io_error("read", path))?)
        } else {
            let kind = facts.file_type();
            let bits = u64::from(kind.is_fifo()) | u64::from(kind.is_socket()) << 1;
            Kind::Other(bits | facts.rdev() << 2)
        };
        let time = |seconds: i64, nanos: i64| i128::from(seconds) << 32 | i128::from(nanos);
        Ok(Self {
            kind,
            mode: facts.mode() & 0o7777,
            owner: (facts.uid(), facts.gid()),
            stamp: [
                i128::from(facts.dev()),
                i128::from(facts.ino()),
                i128::from(facts.len()),
                time(facts.mtime(), facts.mtime_nsec()),
                time(facts.ctime(), facts.ctime_nsec()),
            ],
            copy: None,
        })
    }

    /// Whether `other`, found at `path`, is what this was. The time of change tells of every change
    /// and can't be set: inode(7). Where it differs, the bytes decide.
    fn is_same(&self, other: &Self, path: &Path) -> bool {
        if self.kind != other.kind || self.mode != other.mode || self.owner != other.owner {
            return false;
        }
        self.kind != Kind::File
            || self.stamp == other.stamp
            || self.copy.as_ref().is_some_and(|copy| tree::is_same_leaf(copy, path))
    }
}

/// Everything at and below `path` but `except`, relative to it; nothing when it isn't there.
fn found(path: &Path, except: &[PathBuf]) -> Result<BTreeMap<PathBuf, Entry>, WorkspaceError> {
    let mut entries = BTreeMap::new();
    let mut queue = vec![PathBuf::new()];
    while let Some(inner) = queue.pop() {
        let at = join(path, &inner);
        if except.contains(&at) {
            continue;
        }
        let Ok(facts) = fs::symlink_metadata(&at) else { continue };
        let entry = match Entry::new(&facts, &at) {
            Ok(entry) => entry,
            // A process that still runs may take away what was just there.
            Err(_) if fs::symlink_metadata(&at).is_err() => continue,
            Err(error) => return Err(error),
        };
        if facts.is_dir() {
            match tree::names(&at) {
                Ok(names) => queue.extend(names.into_iter().map(|name| inner.join(name))),
                Err(_) if fs::symlink_metadata(&at).is_err() => continue,
                Err(error) => return Err(error),
            }
        }
        entries.insert(inner, entry);
    }
    Ok(entries)
}

/// As `Path::join`, without a slash behind a path joined with nothing.
fn join(path: &Path, inner: &Path) -> PathBuf {
    if inner.as_os_str().is_empty() { path.to_path_buf() } else { path.join(inner) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    use super::{Guard, PutBack};

    /// A folder with a tree to guard, and a guard over `.git`, `link` and the missing `.codex`.
    fn guarded() -> (tempfile::TempDir, PathBuf, Guard) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("w");
        fs::create_dir_all(root.join(".git/refs")).unwrap();
        fs::write(root.join(".git/config"), "plain").unwrap();
        symlink("nowhere", root.join("link")).unwrap();
        let paths = [".git", ".codex", "link", ".git/refs"].map(|name| root.join(name));
        let except = [root.join(".git/runs")];
        let store = folder.path().join("store");
        let guard = Guard::take(&root, &store, (&paths, &except)).unwrap();
        (folder, root, guard)
    }

    fn read(path: PathBuf) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn what_is_the_same_is_left_alone() {
        let (_folder, root, mut guard) = guarded();
        assert!(guard.changed().unwrap().is_empty());
        fs::write(root.join(".git/config"), "plain").unwrap();
        fs::write(root.join("other"), "x").unwrap();
        fs::create_dir(root.join(".git/runs")).unwrap();
        assert!(guard.changed().unwrap().is_empty());
        assert_eq!(guard.put_back().unwrap(), PutBack::default());
    }

    #[test]
    fn every_kind_of_change_is_found_and_put_back() {
        let (_folder, root, mut guard) = guarded();
        fs::write(root.join(".git/config"), "evil!").unwrap();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        fs::write(root.join(".git/hooks/post-commit"), "x").unwrap();
        fs::set_permissions(root.join(".git/refs"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir_all(root.join(".codex")).unwrap();
        fs::remove_file(root.join("link")).unwrap();
        fs::write(root.join("link"), "no link").unwrap();
        let expected: Vec<PathBuf> =
            [".codex", ".git/config", ".git/hooks", ".git/hooks/post-commit", ".git/refs", "link"]
                .map(|name| root.join(name))
                .into();
        assert_eq!(guard.changed().unwrap(), expected);
        let done = guard.put_back().unwrap();
        assert_eq!(done, PutBack { restored: expected, lost: Vec::new() });
        assert_eq!(read(root.join(".git/config")), "plain");
        assert!(!root.join(".git/hooks").exists() && !root.join(".codex").exists());
        assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new("nowhere"));
        let mode = fs::metadata(root.join(".git/refs")).unwrap().permissions().mode();
        assert_ne!(mode & 0o777, 0o700);
        assert!(guard.changed().unwrap().is_empty());
    }

    #[test]
    fn a_file_that_is_written_to_by_another_name_is_a_new_one_afterwards() {
        let (_folder, root, mut guard) = guarded();
        fs::hard_link(root.join(".git/config"), root.join("alias")).unwrap();
        fs::write(root.join("alias"), "evil!").unwrap();
        assert_eq!(guard.put_back().unwrap().restored, [root.join(".git/config")]);
        fs::write(root.join("alias"), "again").unwrap();
        assert_eq!(read(root.join(".git/config")), "plain");
        assert!(guard.changed().unwrap().is_empty());
    }

    #[test]
    fn a_symlink_that_is_back_is_not_walked_through() {
        let (folder, root, mut guard) = guarded();
        let there = folder.path().join("there");
        fs::create_dir_all(&there).unwrap();
        fs::write(there.join("HEAD"), "theirs").unwrap();
        fs::remove_file(root.join("link")).unwrap();
        symlink(&there, root.join("link")).unwrap();
        assert_eq!(guard.put_back().unwrap().restored, [root.join("link")]);
        let store = folder.path().join("store2");
        let mut guard = Guard::take(&root, &store, (&[root.join("link")], &[])).unwrap();
        fs::remove_file(root.join("link")).unwrap();
        fs::create_dir(root.join("link")).unwrap();
        fs::write(root.join("link/HEAD"), "evil").unwrap();
        fs::create_dir(root.join("nowhere")).unwrap();
        fs::write(root.join("nowhere/HEAD"), "mine").unwrap();
        assert_eq!(guard.put_back().unwrap().restored, [root.join("link"), root.join("link/HEAD")]);
        assert_eq!(read(root.join("link/HEAD")), "mine");
        assert_eq!(read(there.join("HEAD")), "theirs");
    }

    #[test]
    fn a_symlink_in_the_way_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("w");
        let outside = folder.path().canonicalize().unwrap().join("outside");
        fs::create_dir_all(root.join("a")).unwrap();
        fs::create_dir_all(&outside).unwrap();
        fs::write(root.join("a/kept"), "kept").unwrap();
        fs::write(outside.join("kept"), "theirs").unwrap();
        let store = folder.path().join("store");
        let mut guard = Guard::take(&root, &store, (&[root.join("a/kept")], &[])).unwrap();
        fs::rename(root.join("a"), root.join("b")).unwrap();
        symlink(&outside, root.join("a")).unwrap();
        assert_eq!(guard.put_back().unwrap().restored, [root.join("a/kept")]);
        assert_eq!(read(outside.join("kept")), "theirs");
        assert_eq!(read(root.join("a/kept")), "kept");
        assert!(!root.join("a").is_symlink());
    }
}
