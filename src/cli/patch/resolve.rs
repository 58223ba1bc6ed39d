//! Paths of a patch to places beneath the roots, and what stands there.
//!
//! In: a path as written. Out: the root, the folder and the name it stands for, all links on the
//! way resolved, and the file. A place is opened again by `openat2(2)` without any link, so that
//! a link that appears between resolving and writing leads nowhere.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};

use super::{PatchFailure, PatchOptions, failed};
use crate::text::nearest;

/// Largest file that is edited, in bytes; our choice.
const LARGEST: u64 = 256 << 20;

/// Names of a folder that are looked at for a hint; our choice.
const NAMES: usize = 2_000;

/// The folders that a patch may change.
pub(super) struct Roots {
    all: Vec<Root>,
    base: PathBuf,
    protected: GlobSet,
}

struct Root {
    path: PathBuf,
    dir: OwnedFd,
}

/// A place that a path stands for.
#[derive(Debug)]
pub(super) struct Resolved {
    /// Path relative to the workspace, or absolute in another root.
    pub(super) key: String,
    /// Number of the root.
    pub(super) root: usize,
    /// Folder relative to the root; empty for the root itself.
    pub(super) folder: PathBuf,
    /// Last component.
    pub(super) name: OsString,
    /// The file that stands there.
    pub(super) found: Option<Found>,
}

/// A regular file as it was read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
    pub(super) stat: FileStat,
}

impl Found {
    /// Whether both are one file under one directory entry, as in a folder that ignores case.
    pub(super) fn is_same_name_as(&self, other: &Self) -> bool {
        self.is_same_file_as(&other.stat) && self.stat.st_nlink == 1
    }

    fn is_same_file_as(&self, stat: &FileStat) -> bool {
        (self.stat.st_dev, self.stat.st_ino) == (stat.st_dev, stat.st_ino)
    }

    /// Whether `stat` is of this file, unchanged since it was read.
    pub(super) fn is_still(&self, stat: &FileStat) -> bool {
        let times = |stat: &FileStat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        self.is_same_file_as(stat) && times(&self.stat) == times(stat)
    }
}

impl Roots {
    /// Opens the roots and compiles the protected paths.
    pub(super) fn open(options: &PatchOptions) -> Result<Self, PatchFailure> {
        let canonical = |path: &Path| {
            std::fs::canonicalize(path).map_err(|error| {
                PatchFailure::Fault(format!("failed to resolve `{}`: {error}", path.display()))
            })
        };
        let base = canonical(&options.cwd)?;
        let workspace = options.root.as_ref().unwrap_or(&options.cwd);
        let mut roots = Vec::new();
        for path in std::iter::once(workspace).chain(&options.roots) {
            let path = canonical(path)?;
            let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let dir = open(&path, flags, Mode::empty())
                .map_err(|error| failed("open the folder", &path, error))?;
            roots.push(Root { path, dir });
        }
        let protected = protected(&options.protected)?;
        Ok(Self { all: roots, base, protected })
    }

    /// Resolves `path` and reads the file that stands there.
    pub(super) fn resolve(&self, path: &str) -> Result<Resolved, PatchFailure> {
        let joined = self.base.join(path);
        let absolute = follow(&joined)?;
        let outside = || {
            PatchFailure::Refused(format!(
                "the path leads to `{}`, outside of `{}`; relative paths start at `{}`",
                absolute.display(),
                self.all[0].path.display(),
                self.base.display()
            ))
        };
        let (root, relative) = self
            .all
            .iter()
            .enumerate()
            .find_map(|(number, root)| Some((number, absolute.strip_prefix(&root.path).ok()?)))
            .ok_or_else(outside)?;
        let (Some(folder), Some(name)) = (relative.parent(), relative.file_name()) else {
            return Err(PatchFailure::Refused("the path is the root folder itself".to_owned()));
        };
        let shown = if root == 0 { relative } else { &absolute };
        let key = shown.to_str().map(str::to_owned).ok_or_else(|| {
            PatchFailure::Refused("the path leads to a name that is not UTF-8".to_owned())
        })?;
        if self.protected.is_match(relative) {
            return Err(PatchFailure::Refused(format!(
                "`{key}` is protected and can't be changed"
            )));
        }
        let (folder, name) = (folder.to_owned(), name.to_owned());
        let mut place = Resolved { key, root, folder, name, found: None };
        place.found = self.read(&place)?;
        Ok(place)
    }

    /// The path of a place for messages.
    pub(super) fn path(&self, place: &Resolved) -> PathBuf {
        self.all[place.root].path.join(&place.folder).join(&place.name)
    }

    /// Opens the folder of a place.
    pub(super) fn folder(&self, place: &Resolved) -> nix::Result<OwnedFd> {
        self.folder_at(place.root, &place.folder)
    }

    /// Opens a folder relative to a root.
    pub(super) fn folder_at(&self, root: usize, folder: &Path) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        beneath(&self.all[root].dir, folder, flags)
    }

    /// Reads the text file `name` in a folder relative to a root, if there is one.
    pub(super) fn text(&self, root: usize, folder: &Path, name: &str) -> Option<String> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd = beneath(&self.all[root].dir, &folder.join(name), flags).ok()?;
        let mut text = String::new();
        File::from(fd).take(1 << 20).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn read(&self, place: &Resolved) -> Result<Option<Found>, PatchFailure> {
        let path = self.path(place);
        let relative = place.folder.join(&place.name);
        // O_NONBLOCK: opening a FIFO must not wait for a writer (P1).
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let fd = match beneath(&self.all[place.root].dir, &relative, flags) {
            Ok(fd) => fd,
            Err(Errno::ENOENT) => return Ok(None),
            Err(Errno::ELOOP) => {
                let target = std::fs::read_link(&path).unwrap_or_default();
                return Err(PatchFailure::Refused(format!(
                    "it is a symbolic link to `{}`; name the file itself",
                    target.display()
                )));
            }
            Err(Errno::ENXIO) => {
                return Err(PatchFailure::Refused("it is not a regular file".to_owned()));
            }
            Err(error) => return Err(failed("open", &path, error)),
        };
        let stat = fstat(&fd).map_err(|error| failed("stat", &path, error))?;
        let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
        if kind != SFlag::S_IFREG {
            let what = if kind == SFlag::S_IFDIR { "a folder" } else { "not a regular file" };
            return Err(PatchFailure::Refused(format!("it is {what}")));
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > LARGEST {
            return Err(PatchFailure::Refused(format!(
                "it has {size} bytes; patches edit files of at most {LARGEST} bytes"
            )));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        File::from(fd)
            .take(LARGEST)
            .read_to_end(&mut bytes)
            .map_err(|error| failed("read", &path, errno(&error)))?;
        Ok(Some(Found { bytes, mode: stat.st_mode & 0o7777, stat }))
    }

    /// What to say about a path where nothing stands.
    pub(super) fn missing_hint(&self, place: &Resolved) -> String {
        let path = self.path(place);
        let base = self.base.display();
        let mut out =
            format!("; the path is `{}`, relative paths start at `{base}`", path.display());
        let Some(folder) = path.parent() else { return out };
        let names: Vec<String> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .take(NAMES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        let name = place.name.to_string_lossy();
        if let Some(like) = nearest(&name, names.iter().map(String::as_str)) {
            let _ = write!(out, "; `{like}` stands in that folder");
        }
        out
    }
}

/// The number of an I/O error.
pub(super) fn errno(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Resolves all links in the folders of `path`; the last component stays as written.
fn follow(path: &Path) -> Result<PathBuf, PatchFailure> {
    let Some(Component::Normal(name)) = path.components().next_back() else {
        return Err(PatchFailure::Refused("the path names no file".to_owned()));
    };
    let ends_in_slash = path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if ends_in_slash {
        return Err(PatchFailure::Refused("the path names a folder".to_owned()));
    }
    let mut folder = path.parent().unwrap_or(Path::new("/"));
    let mut rest = vec![name];
    loop {
        match std::fs::canonicalize(folder) {
            Ok(real) => return Ok(rest.iter().rev().fold(real, |path, name| path.join(name))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if let Ok(target) = std::fs::read_link(folder) {
                    return Err(PatchFailure::Refused(format!(
                        "`{}` is a symbolic link to `{}`, which doesn't exist",
                        folder.display(),
                        target.display()
                    )));
                }
                let up = folder.parent();
                let (Some(Component::Normal(name)), Some(up)) =
                    (folder.components().next_back(), up)
                else {
                    return Err(PatchFailure::Refused(
                        "the path goes up with `..` from a folder that doesn't exist".to_owned(),
                    ));
                };
                rest.push(name);
                folder = up;
            }
            Err(error) => return Err(failed("resolve", folder, errno(&error))),
        }
    }
}

/// Opens `path` beneath `dir`; no component may be a link.
fn beneath(dir: &OwnedFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(dir, path, OpenHow::new().flags(flags).resolve(resolve)) {
        // EAGAIN: something was renamed meanwhile, openat2(2); once more is enough for a test of
        // bad luck.
        Err(Errno::EAGAIN) => openat2(dir, path, OpenHow::new().flags(flags).resolve(resolve)),
        Err(Errno::ENOSYS | Errno::EPERM) => step_by_step(dir, path, flags),
        other => other,
    }
}

/// The same as [`beneath`] where `openat2(2)` is filtered: one component at a time, none a link.
fn step_by_step(dir: &OwnedFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let step = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = dir.try_clone().map_err(|error| errno(&error))?;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() { step } else { flags | OFlag::O_NOFOLLOW };
        match part {
            Component::Normal(name) => at = openat(at.as_fd(), name, flags, Mode::empty())?,
            Component::CurDir => at = openat(at.as_fd(), ".", flags, Mode::empty())?,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(Errno::EXDEV);
            }
        }
    }
    Ok(at)
}

fn protected(patterns: &[String]) -> Result<GlobSet, PatchFailure> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let plain = pattern.strip_prefix("./").unwrap_or(pattern).trim_end_matches('/');
        for glob in [plain.to_owned(), format!("{plain}/**")] {
            let glob =
                GlobBuilder::new(&glob).literal_separator(true).build().map_err(|error| {
                    PatchFailure::Fault(format!("invalid protected path `{pattern}`: {error}"))
                })?;
            set.add(glob);
        }
    }
    set.build().map_err(|error| PatchFailure::Fault(format!("invalid protected paths: {error}")))
}
