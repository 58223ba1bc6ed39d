//! Trees of files: copying, mirroring and removing whole folders.
//!
//! In: absolute paths. Out: the same on disk, symlinks never followed. Knows nothing of git.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes, Metadata, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};

use super::{WorkspaceError, io_error};

/// A sentence for the operator when no program below `folder` can be executed: its file system is
/// mounted `noexec`, as `/tmp` of a container with `--tmpfs /tmp` is.
pub fn no_programs(folder: &Path) -> Option<String> {
    let facts = statvfs(folder).ok()?;
    facts.flags().contains(FsFlags::ST_NOEXEC).then(|| {
        format!(
            "programs in `{}` can't be executed, its file system is mounted `noexec`; name another \
             folder for temporary files with TMPDIR",
            folder.display()
        )
    })
}

/// What was left out while copying.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Sockets, pipes and devices, relative.
    pub special: Vec<PathBuf>,
}

/// Copies the folder `from` into the existing folder `to`: bytes (shared with the original where
/// the file system can), permission bits without set-id, modification times, symlinks as links.
/// What `skips` says yes to (path relative to `from`) is left out.
///
/// # Errors
///
/// The first path that can't be read or written.
pub fn copy(
    from: &Path,
    to: &Path,
    skips: &dyn Fn(&Path) -> bool,
) -> Result<Copied, WorkspaceError> {
    let mut copied = Copied::default();
    let mut folders = vec![PathBuf::new()];
    let mut made = Vec::new();
    while let Some(folder) = folders.pop() {
        for name in names(&from.join(&folder))? {
            let path = folder.join(name);
            if skips(&path) {
                continue;
            }
            let (source, target) = (from.join(&path), to.join(&path));
            let facts = stat(&source)?;
            if facts.is_dir() {
                fs::create_dir(&target).map_err(io_error("make", &target))?;
                made.push((target, facts));
                folders.push(path);
            } else if facts.is_file() || facts.is_symlink() {
                copy_leaf(&source, &target, &facts)?;
            } else {
                copied.special.push(path);
            }
        }
    }
    // Modes last, deepest first: a folder may be read-only.
    for (target, facts) in made.into_iter().rev() {
        set_mode(&target, facts.mode() & 0o777)?;
    }
    Ok(copied)
}

/// Makes the folder `to` the same as `from`: what differs is replaced, what is too much goes, what
/// is the same isn't touched.
///
/// # Errors
///
/// The first path that can't be read or written.
pub fn mirror(from: &Path, to: &Path, skips: &dyn Fn(&Path) -> bool) -> Result<(), WorkspaceError> {
    let mut folders = vec![PathBuf::new()];
    let mut made = Vec::new();
    while let Some(folder) = folders.pop() {
        let wanted = names(&from.join(&folder))?;
        open_up(&to.join(&folder))?;
        for name in names(&to.join(&folder))? {
            let path = folder.join(&name);
            if !skips(&path) && !wanted.contains(&name) {
                remove(&to.join(path))?;
            }
        }
        for name in wanted {
            let path = folder.join(name);
            if skips(&path) {
                continue;
            }
            let (source, target) = (from.join(&path), to.join(&path));
            let facts = stat(&source)?;
            let present = fs::symlink_metadata(&target).ok();
            if facts.is_dir() {
                if !present.as_ref().is_some_and(Metadata::is_dir) {
                    remove(&target)?;
                    fs::create_dir(&target).map_err(io_error("make", &target))?;
                }
                made.push((target, facts));
                folders.push(path);
            } else if !present.is_some_and(|present| is_same(&source, &target, (&facts, &present)))
            {
                remove(&target)?;
                copy_leaf(&source, &target, &facts)?;
            }
        }
    }
    for (target, facts) in made.into_iter().rev() {
        set_mode(&target, facts.mode() & 0o777)?;
    }
    Ok(())
}

/// Removes `path`, whatever it is, also when folders in it are read-only. A path that isn't there
/// is fine. Symlinks go, what they point to stays.
///
/// # Errors
///
/// The path that stays.
pub fn remove(path: &Path) -> Result<(), WorkspaceError> {
    let Ok(facts) = fs::symlink_metadata(path) else { return Ok(()) };
    if !facts.is_dir() {
        return fs::remove_file(path).map_err(io_error("remove", path));
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_all(path)?;
            fs::remove_dir_all(path).map_err(io_error("remove", path))
        }
        other => other.map_err(io_error("remove", path)),
    }
}

/// Removes everything in `folder` but the folder itself: a confinement may be tied to its inode.
///
/// # Errors
///
/// The first path that stays.
pub fn clear(folder: &Path) -> Result<(), WorkspaceError> {
    open_up(folder)?;
    for name in names(folder)? {
        remove(&folder.join(name))?;
    }
    Ok(())
}

/// Makes every folder below `folder` readable and writable, and every file readable, for us. A pipe,
/// socket or device that bears the name of one of git's rule files is removed: opening it would
/// wait for ever.
///
/// # Errors
///
/// The first path whose mode can't be changed.
pub fn open_all(folder: &Path) -> Result<(), WorkspaceError> {
    walk(folder, &mut |path, facts| {
        if facts.is_dir() {
            open_up(path)
        } else if facts.is_file() && facts.mode() & 0o400 == 0 {
            set_mode(path, facts.mode() & 0o777 | 0o400)
        } else {
            unblock(path, facts)
        }
    })
}

/// As [`open_all`], but changes no mode: for a folder of the user's own.
///
/// # Errors
///
/// A folder that can't be read.
pub fn unblock_all(folder: &Path) -> Result<(), WorkspaceError> {
    walk(folder, &mut unblock)
}

fn unblock(path: &Path, facts: &Metadata) -> Result<(), WorkspaceError> {
    let is_rule =
        path.file_name().is_some_and(|name| name == ".gitignore" || name == ".gitattributes");
    let is_plain = facts.is_dir() || facts.is_file() || facts.is_symlink();
    if is_rule && !is_plain { remove(path) } else { Ok(()) }
}

/// Visits `folder` and everything below it, each folder before its contents.
fn walk(
    folder: &Path,
    visit: &mut dyn FnMut(&Path, &Metadata) -> Result<(), WorkspaceError>,
) -> Result<(), WorkspaceError> {
    visit(folder, &stat(folder)?)?;
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for name in names(&folder)? {
            let path = folder.join(name);
            let facts = stat(&path)?;
            visit(&path, &facts)?;
            if facts.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}

/// Whether both paths are the same kind of thing with the same bytes and the same executable bit.
pub fn is_same_leaf(left: &Path, right: &Path) -> bool {
    let (Ok(one), Ok(two)) = (fs::symlink_metadata(left), fs::symlink_metadata(right)) else {
        return false;
    };
    is_same(left, right, (&one, &two))
}

/// Makes the folder of `root`/`path` inside `root`; whatever stands in the way, a symlink too, is
/// removed, so that nothing is written outside.
///
/// # Errors
///
/// The path that can't be made.
pub fn make_parents(root: &Path, path: &Path) -> Result<(), WorkspaceError> {
    let Some(parent) = path.parent() else { return Ok(()) };
    let mut folder = root.to_path_buf();
    for part in parent.components() {
        folder.push(part);
        if !fs::symlink_metadata(&folder).is_ok_and(|facts| facts.is_dir()) {
            remove(&folder)?;
            fs::create_dir(&folder).map_err(io_error("make", &folder))?;
        }
    }
    Ok(())
}

/// Whether `root`/`path` is a folder, and so is every part of `path` on the way: no symlink.
pub fn is_real_folder(root: &Path, path: &Path) -> bool {
    let mut folder = root.to_path_buf();
    let is_folder = |at: &Path| fs::symlink_metadata(at).is_ok_and(|facts| facts.is_dir());
    is_folder(&folder)
        && path.components().all(|part| {
            folder.push(part);
            is_folder(&folder)
        })
}

/// Whether `root`/`path` is a regular file that is reached through no symlink.
pub fn is_real_file(root: &Path, path: &Path) -> bool {
    path.parent().is_some_and(|parent| is_real_folder(root, parent))
        && fs::symlink_metadata(root.join(path)).is_ok_and(|facts| facts.is_file())
}

/// Copies one file or symlink to `target`, which must not exist.
///
/// # Errors
///
/// The path that can't be read or written.
pub fn copy_leaf(source: &Path, target: &Path, facts: &Metadata) -> Result<(), WorkspaceError> {
    if facts.is_symlink() {
        let goal = fs::read_link(source).map_err(io_error("read", source))?;
        return symlink(goal, target).map_err(io_error("make", target));
    }
    let mut input = File::open(source).map_err(io_error("read", source))?;
    let mut output = File::create_new(target).map_err(io_error("make", target))?;
    // On Linux this is copy_file_range(2): a reflink where the file system has them.
    io::copy(&mut input, &mut output).map_err(io_error("copy to", target))?;
    if let Ok(modified) = facts.modified() {
        output
            .set_times(FileTimes::new().set_modified(modified))
            .map_err(io_error("set the time of", target))?;
    }
    output
        .set_permissions(Permissions::from_mode(facts.mode() & 0o777))
        .map_err(io_error("set the mode of", target))
}

/// Names in `folder`, sorted, so that the same tree is always walked in the same order.
///
/// # Errors
///
/// The folder can't be read.
pub fn names(folder: &Path) -> Result<Vec<std::ffi::OsString>, WorkspaceError> {
    let mut names = fs::read_dir(folder)
        .and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.file_name()))
                .collect::<io::Result<Vec<_>>>()
        })
        .map_err(io_error("read", folder))?;
    names.sort_unstable();
    Ok(names)
}

/// Whether one part of `path` is `.git`, in whatever case.
pub fn is_in_git(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(OsStr::new(".git")))
}

fn is_same(left: &Path, right: &Path, (one, two): (&Metadata, &Metadata)) -> bool {
    if one.is_symlink() || two.is_symlink() {
        return one.is_symlink()
            && two.is_symlink()
            && matches!((fs::read_link(left), fs::read_link(right)), (Ok(a), Ok(b)) if a == b);
    }
    one.is_file()
        && two.is_file()
        && one.len() == two.len()
        && one.mode() & 0o777 == two.mode() & 0o777
        && has_same_bytes(left, right).unwrap_or(false)
}

fn has_same_bytes(left: &Path, right: &Path) -> io::Result<bool> {
    let (mut left, mut right) = (File::open(left)?, File::open(right)?);
    let (mut one, mut two) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let count = left.read(&mut one)?;
        if count == 0 {
            return Ok(right.read(&mut two)? == 0);
        }
        if right.read_exact(&mut two[..count]).is_err() || one[..count] != two[..count] {
            return Ok(false);
        }
    }
}

pub(super) fn open_up(folder: &Path) -> Result<(), WorkspaceError> {
    let facts = stat(folder)?;
    if facts.mode() & 0o700 == 0o700 {
        return Ok(());
    }
    set_mode(folder, facts.mode() & 0o777 | 0o700)
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<(), WorkspaceError> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(io_error("set the mode of", path))
}

pub(super) fn stat(path: &Path) -> Result<Metadata, WorkspaceError> {
    fs::symlink_metadata(path).map_err(io_error("look at", path))
}
