//! Writing a verified patch, whole or not at all.
//!
//! In: new contents for places. Out: all of them on disk, or none. Each file is written beside
//! its place, synced, and renamed over it; what stood there is kept under another name until all
//! is done, and put back if anything fails. A hard link is broken thereby, not written through.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fsync, linkat, unlinkat};

use super::resolve::{Found, Resolved, Roots, errno};
use super::{PatchFailure, failed};

/// What to write at one place.
pub(super) struct Write<'a> {
    pub(super) place: &'a Resolved,
    /// New bytes; `None` removes the file.
    pub(super) new: Option<&'a [u8]>,
    /// The file whose mode and owner it takes.
    pub(super) like: Option<&'a Found>,
}

/// A failure while writing.
pub(super) struct WriteError {
    failure: PatchFailure,
    /// Paths that could not be put back.
    left: Vec<PathBuf>,
}

impl WriteError {
    /// The failure, with what could not be put back: then the tree is neither old nor new.
    pub(super) fn into_failure(self) -> PatchFailure {
        if self.left.is_empty() {
            return match self.failure {
                PatchFailure::Fault(text) => {
                    PatchFailure::Fault(format!("{text}; nothing was changed"))
                }
                other @ (PatchFailure::Invalid(_) | PatchFailure::Refused(_)) => other,
            };
        }
        let left: Vec<String> =
            self.left.iter().map(|path| format!("`{}`", path.display())).collect();
        PatchFailure::Fault(format!(
            "{}; and these could not be put back: {}",
            self.failure,
            left.join(", ")
        ))
    }
}

/// The disk; in tests it can fail at a chosen step.
#[derive(Debug, Default)]
pub(super) struct Disk {
    #[cfg(test)]
    pub(super) fails: std::cell::Cell<Option<(usize, Errno)>>,
}

impl Disk {
    /// Comes before each system call that changes something.
    #[cfg(test)]
    fn step(&self) -> nix::Result<()> {
        match self.fails.get() {
            Some((0, error)) => Err(error),
            Some((left, error)) => {
                self.fails.set(Some((left - 1, error)));
                Ok(())
            }
            None => Ok(()),
        }
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "fails in tests")]
    fn step(&self) -> nix::Result<()> {
        Ok(())
    }

    /// Writes all of `writes`, or nothing.
    pub(super) fn commit(&self, roots: &Roots, writes: Vec<Write<'_>>) -> Result<(), WriteError> {
        let mut all = Transaction { disk: self, roots, made: Vec::new(), items: Vec::new() };
        all.carry_out(writes).map_err(|failure| WriteError { failure, left: all.take_back() })
    }
}

/// What was done at a place, to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Nothing,
    /// A file stands where none stood.
    Created,
    /// The file stands under `kept`, and another or none at its place.
    Changed,
}

struct Item<'a> {
    write: Write<'a>,
    folder: OwnedFd,
    /// Name of the new bytes until they are renamed.
    temporary: Option<String>,
    /// Name of the old file until all is done.
    kept: Option<String>,
    done: Done,
    /// Whether a file stands at the place that is not removed by another item.
    replaces: bool,
    turn: Turn,
}

/// Order of the writes: what is added comes before what is removed, so that a killed process
/// leaves a moved file twice rather than not at all. Only a new spelling of the same name must
/// be free first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    RemoveOldSpelling,
    Write,
    Remove,
}

struct Transaction<'a> {
    disk: &'a Disk,
    roots: &'a Roots,
    /// Folders that were made, outermost first.
    made: Vec<(usize, PathBuf)>,
    items: Vec<Item<'a>>,
}

impl<'a> Transaction<'a> {
    fn carry_out(&mut self, writes: Vec<Write<'a>>) -> Result<(), PatchFailure> {
        let spellings: Vec<bool> =
            writes.iter().map(|write| is_respelled(write, &writes)).collect();
        for (write, respelled) in writes.into_iter().zip(spellings) {
            self.prepare(write, respelled)?;
        }
        self.items.sort_by_key(|item| item.turn);
        for number in 0..self.items.len() {
            self.still_as_read(number)?;
        }
        for number in 0..self.items.len() {
            let path = self.roots.path(self.items[number].write.place);
            self.swap(number).map_err(|error| failed("write", &path, error))?;
        }
        for item in &self.items {
            let path = self.roots.path(item.write.place);
            self.disk
                .step()
                .and_then(|()| fsync(&item.folder))
                .map_err(|error| failed("sync the folder of", &path, error))?;
        }
        for item in &mut self.items {
            // The new state is complete: a name that can't be removed is no reason to go back.
            if let Some(kept) = item.kept.take() {
                let _ = unlinkat(&item.folder, kept.as_str(), UnlinkatFlags::NoRemoveDir);
            }
        }
        Ok(())
    }

    /// Makes folders, and writes the new bytes beside the place.
    fn prepare(&mut self, write: Write<'a>, respelled: bool) -> Result<(), PatchFailure> {
        let place = write.place;
        if let (Some(new), Some(found), Some(like)) = (write.new, &place.found, write.like)
            && std::ptr::eq(found, like)
            && found.bytes == new
        {
            return Ok(());
        }
        let path = self.roots.path(place);
        if write.new.is_some() {
            self.make_folders(place)?;
        }
        let folder =
            self.roots.folder(place).map_err(|error| failed("open the folder of", &path, error))?;
        let turn = match (write.new, respelled) {
            (Some(_), _) => Turn::Write,
            (None, true) => Turn::RemoveOldSpelling,
            (None, false) => Turn::Remove,
        };
        let replaces = place.found.is_some() && !(respelled && write.new.is_some());
        self.items.push(Item {
            write,
            folder,
            temporary: None,
            kept: None,
            done: Done::Nothing,
            replaces,
            turn,
        });
        let number = self.items.len() - 1;
        self.write_temporary(number).map_err(|error| failed("write", &path, error))
    }

    fn make_folders(&mut self, place: &Resolved) -> Result<(), PatchFailure> {
        let mut done = PathBuf::new();
        for part in place.folder.components() {
            let parent = done.clone();
            done.push(part);
            match self.roots.folder_at(place.root, &done) {
                Ok(_) => continue,
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(failed("open the folder", &done, error)),
            }
            let made =
                self.disk.step().and_then(|()| self.roots.folder_at(place.root, &parent)).and_then(
                    |parent| mkdirat(&parent, part.as_os_str(), Mode::from_bits_truncate(0o777)),
                );
            made.map_err(|error| failed("make the folder", &done, error))?;
            self.made.push((place.root, done.clone()));
        }
        Ok(())
    }

    fn write_temporary(&mut self, number: usize) -> nix::Result<()> {
        let Some(new) = self.items[number].write.new else { return Ok(()) };
        self.disk.step()?;
        let item = &mut self.items[number];
        let (name, fd) = create(&item.folder, number)?;
        item.temporary = Some(name);
        self.disk.step()?;
        let mut file = File::from(fd);
        file.write_all(new).map_err(|error| errno(&error))?;
        if let Some(like) = item.write.like {
            let own = fstat(&file)?;
            let (uid, gid) = (like.stat.st_uid, like.stat.st_gid);
            let mut mode = like.mode;
            if (own.st_uid, own.st_gid) != (uid, gid)
                && fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).is_err()
            {
                // The owner can't be kept; then its set-id bits must not be either.
                mode &= 0o777;
            }
            self.disk.step()?;
            fchmod(&file, Mode::from_bits_truncate(mode))?;
        }
        self.disk.step()?;
        fsync(&file)
    }

    /// Refuses to write over a file that changed since it was read.
    fn still_as_read(&self, number: usize) -> Result<(), PatchFailure> {
        let item = &self.items[number];
        let place = item.write.place;
        let path = self.roots.path(place);
        let now = fstatat(&item.folder, place.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        let same = match (&place.found, now) {
            (Some(found), Ok(stat)) => found.is_still(&stat),
            (None, Err(Errno::ENOENT)) => true,
            (_, Err(error)) if error != Errno::ENOENT => {
                return Err(failed("stat", &path, error));
            }
            (_, _) => false,
        };
        if same {
            return Ok(());
        }
        Err(PatchFailure::Refused(format!(
            "`{}` changed while the patch was applied; read it again",
            path.display()
        )))
    }

    /// Puts the new file in place of the old one, or takes the old one away.
    fn swap(&mut self, number: usize) -> nix::Result<()> {
        let disk = self.disk;
        let item = &mut self.items[number];
        let (folder, name) = (&item.folder, item.write.place.name.as_os_str());
        let Some(temporary) = item.temporary.clone() else {
            let kept = free_name(folder, number)?;
            disk.step()?;
            renameat(folder, name, folder, kept.as_str())?;
            item.kept = Some(kept);
            item.done = Done::Changed;
            return Ok(());
        };
        if !item.replaces {
            disk.step()?;
            // linkat(2) takes nothing's place, unlike renameat(2).
            match linkat(folder, temporary.as_str(), folder, name, AtFlags::empty()) {
                Ok(()) => {
                    item.done = Done::Created;
                    disk.step()?;
                    unlinkat(folder, temporary.as_str(), UnlinkatFlags::NoRemoveDir)?;
                }
                Err(Errno::EPERM | Errno::EOPNOTSUPP | Errno::EMLINK | Errno::ENOSYS) => {
                    renameat(folder, temporary.as_str(), folder, name)?;
                    item.done = Done::Created;
                }
                Err(error) => return Err(error),
            }
            item.temporary = None;
            return Ok(());
        }
        let kept = free_name(folder, number)?;
        disk.step()?;
        if linkat(folder, name, folder, kept.as_str(), AtFlags::empty()).is_err() {
            // No second name to be had (a file of somebody else, a file system without links):
            // then the place is empty for a moment.
            renameat(folder, name, folder, kept.as_str())?;
            item.done = Done::Changed;
        }
        item.kept = Some(kept);
        disk.step()?;
        renameat(folder, temporary.as_str(), folder, name)?;
        item.done = Done::Changed;
        item.temporary = None;
        Ok(())
    }

    /// Takes everything back, last first; returns what could not be.
    fn take_back(&mut self) -> Vec<PathBuf> {
        let mut left = Vec::new();
        for item in self.items.iter_mut().rev() {
            let (folder, name) = (&item.folder, item.write.place.name.as_os_str());
            let undone = match (item.done, &item.kept) {
                (Done::Created, _) => unlinkat(folder, name, UnlinkatFlags::NoRemoveDir),
                (Done::Changed, Some(kept)) => renameat(folder, kept.as_str(), folder, name),
                (Done::Nothing, Some(kept)) => {
                    unlinkat(folder, kept.as_str(), UnlinkatFlags::NoRemoveDir)
                }
                (_, None) => Ok(()),
            };
            let cleared = item.temporary.as_ref().map_or(Ok(()), |temporary| {
                unlinkat(folder, temporary.as_str(), UnlinkatFlags::NoRemoveDir)
            });
            if undone.is_err() {
                left.push(self.roots.path(item.write.place));
            }
            if cleared.is_err()
                && let Some(temporary) = &item.temporary
            {
                left.push(self.roots.path(item.write.place).with_file_name(temporary));
            }
        }
        for (root, folder) in self.made.iter().rev() {
            let parent = folder.parent().unwrap_or(Path::new(""));
            let removed = self.roots.folder_at(*root, parent).and_then(|parent| {
                let name = folder.file_name().unwrap_or_default();
                unlinkat(&parent, name, UnlinkatFlags::RemoveDir)
            });
            if removed.is_err() {
                left.push(folder.clone());
            }
        }
        left
    }
}

/// Whether `write` is one half of a move to another spelling of the same name.
fn is_respelled(write: &Write<'_>, all: &[Write<'_>]) -> bool {
    let Some(found) = &write.place.found else { return false };
    all.iter().any(|other| {
        other.new.is_some() != write.new.is_some()
            && other.place.key != write.place.key
            && other.place.found.as_ref().is_some_and(|other| found.is_same_name_as(other))
    })
}

/// Makes a file under a name that is free.
fn create(folder: &OwnedFd, number: usize) -> nix::Result<(String, OwnedFd)> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut last = Errno::EEXIST;
    for try_number in 0..100 {
        let name = hidden_name(number, try_number, "new");
        match openat(folder, name.as_str(), flags, Mode::from_bits_truncate(0o666)) {
            Ok(fd) => return Ok((name, fd)),
            Err(Errno::EEXIST) => {}
            Err(error) => {
                last = error;
                break;
            }
        }
    }
    Err(last)
}

/// A name where nothing stands.
fn free_name(folder: &OwnedFd, number: usize) -> nix::Result<String> {
    (0..100)
        .map(|try_number| hidden_name(number, try_number, "old"))
        .find(|name| {
            let stat = fstatat(folder, name.as_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
            stat == Err(Errno::ENOENT)
        })
        .ok_or(Errno::EEXIST)
}

fn hidden_name(number: usize, try_number: u32, what: &str) -> String {
    format!(".horseman-{}-{number}-{try_number}.{what}", std::process::id())
}
