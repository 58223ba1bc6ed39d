//! The caller: the process behind a notification, its memory and its view of paths.
//!
//! In: a notification. Out: what its arguments point to, as copies, and open objects with their real
//! paths. What is read here may be anything: the caller's other threads can change it meanwhile, so
//! that only what comes out is judged, and acted upon. Knows nothing of what is allowed.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat2, readlink};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

use super::super::sys::notify::{self, Notification};

/// Bytes of the longest path, the end mark included: `PATH_MAX`.
const PATH: usize = 4096;

/// Reads don't cross into a page that may not be there. All pages are at least this long.
const PAGE: u64 = 4096;

/// Where a relative path starts.
#[derive(Clone, Copy)]
pub(super) enum From<'a> {
    /// At this descriptor of the caller, or `AT_FDCWD`.
    Caller(i32),
    /// At a folder that is held open here.
    Held(BorrowedFd<'a>),
}

/// A process that waits for an answer.
pub(super) struct Caller<'a> {
    pub(super) listener: BorrowedFd<'a>,
    pub(super) call: Notification,
}

/// An object, whatever it is reached by, held open without any right to it.
pub(super) struct Object {
    pub(super) fd: OwnedFd,
    /// Its real path; for what has none, what the kernel shows in its place.
    pub(super) path: PathBuf,
}

/// A name in a folder that is held open.
pub(super) struct Named {
    pub(super) folder: OwnedFd,
    /// The last part, with the slash that stood behind it.
    pub(super) name: OsString,
    /// Real path of the folder, and the name.
    pub(super) path: PathBuf,
}

/// A path argument: where it starts from, and where it lies in memory.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub(super) folder: i32,
    pub(super) path: u64,
}

impl Caller<'_> {
    /// Fails when the caller has gone: what was read may be of a process that has its number now.
    pub(super) fn check(&self) -> nix::Result<()> {
        if notify::is_waiting(self.listener, self.call.id) { Ok(()) } else { Err(Errno::ESRCH) }
    }

    /// An argument as the kernel takes an `int`.
    pub(super) fn int(&self, index: usize) -> i32 {
        self.unsigned(index).cast_signed()
    }

    /// An argument as the kernel takes an `unsigned int`.
    #[expect(clippy::cast_possible_truncation, reason = "the kernel takes the low half")]
    pub(super) fn unsigned(&self, index: usize) -> u32 {
        self.call.arguments[index] as u32
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.call.thread)
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.call.thread)
    }

    /// Copies `length` bytes.
    pub(super) fn bytes(&self, address: u64, length: usize) -> nix::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        if self.read(address, &mut bytes)? == length { Ok(bytes) } else { Err(Errno::EFAULT) }
    }

    fn read(&self, address: u64, into: &mut [u8]) -> nix::Result<usize> {
        let base = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
        let remote = [RemoteIoVec { base, len: into.len() }];
        match process_vm_readv(self.pid(), &mut [IoSliceMut::new(into)], &remote) {
            // An engine's own filter may keep this call from us.
            Err(Errno::EPERM | Errno::ENOSYS) => {
                let memory = fs::File::open(self.file("mem")).map_err(|error| errno(&error))?;
                memory.read_at(into, address).map_err(|error| errno(&error))
            }
            other => other,
        }
    }

    /// Copies a string without its end mark.
    pub(super) fn string(&self, address: u64) -> nix::Result<Vec<u8>> {
        let mut text = Vec::with_capacity(256);
        let mut at = address;
        while text.len() < PATH {
            let to_page_end = usize::try_from(PAGE - at % PAGE).unwrap_or(PATH);
            // Most paths are short, and the first bytes say whether this one is.
            let step = to_page_end.min(if text.is_empty() { 256 } else { PATH });
            let start = text.len();
            text.resize(start + step, 0);
            let read = self.read(at, &mut text[start..])?;
            text.truncate(start + read);
            if let Some(end) = text[start..].iter().position(|byte| *byte == 0) {
                text.truncate(start + end);
                return if text.len() < PATH { Ok(text) } else { Err(Errno::ENAMETOOLONG) };
            }
            if read < step {
                return Err(Errno::EFAULT);
            }
            at = at.checked_add(step as u64).ok_or(Errno::EFAULT)?;
        }
        Err(Errno::ENAMETOOLONG)
    }

    /// Copies into the caller's memory.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> nix::Result<()> {
        self.check()?;
        let base = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
        let remote = [RemoteIoVec { base, len: bytes.len() }];
        let written = match process_vm_writev(self.pid(), &[IoSlice::new(bytes)], &remote) {
            // As for reading.
            Err(Errno::EPERM | Errno::ENOSYS) => {
                let memory = fs::OpenOptions::new().write(true).open(self.file("mem"));
                let memory = memory.map_err(|error| errno(&error))?;
                self.check()?;
                memory.write_at(bytes, address).map_err(|error| errno(&error))?
            }
            other => other?,
        };
        if written == bytes.len() { Ok(()) } else { Err(Errno::EFAULT) }
    }

    /// Permissions that new files of the caller don't have: umask(2).
    pub(super) fn mask(&self) -> nix::Result<u32> {
        let status = fs::read_to_string(self.file("status")).map_err(|error| errno(&error))?;
        let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        u32::from_str_radix(mask.unwrap_or_default().trim(), 8).map_err(|_| Errno::EIO)
    }

    /// The process that the calling thread belongs to.
    pub(super) fn process(&self) -> nix::Result<i32> {
        self.number("Tgid:")
    }

    /// Whether the caller is this process, or was started by it.
    pub(super) fn is_child_of(&self, parent: Pid) -> nix::Result<bool> {
        let is_child = self.pid() == parent || self.number("PPid:")? == parent.as_raw();
        self.check()?;
        Ok(is_child)
    }

    fn number(&self, name: &str) -> nix::Result<i32> {
        let status = fs::read_to_string(self.file("status")).map_err(|error| errno(&error))?;
        let number = status.lines().find_map(|line| line.strip_prefix(name));
        number.and_then(|number| number.trim().parse().ok()).ok_or(Errno::EIO)
    }

    /// What the caller's descriptor stands for, as the kernel words it: a path, or `socket:[7]`.
    pub(super) fn link_of(&self, fd: i32) -> nix::Result<PathBuf> {
        let link = readlink(self.file(&format!("fd/{fd}")).as_str());
        let link =
            link.map_err(|errno| if errno == Errno::ENOENT { Errno::EBADF } else { errno })?;
        self.check()?;
        Ok(link.into())
    }

    /// The object behind the caller's descriptor.
    pub(super) fn held(&self, fd: i32) -> nix::Result<Object> {
        Object::of(self.descriptor(fd)?)
    }

    fn descriptor(&self, fd: i32) -> nix::Result<OwnedFd> {
        let name = if fd == libc::AT_FDCWD { "cwd".to_owned() } else { format!("fd/{fd}") };
        let opened =
            open(self.file(&name).as_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
        let fd =
            opened.map_err(|errno| if errno == Errno::ENOENT { Errno::EBADF } else { errno })?;
        self.check()?;
        Ok(fd)
    }

    /// The object that a path leads to; the last link is not followed unless `follows`.
    pub(super) fn object(&self, at: At, follows: bool) -> nix::Result<Object> {
        let path = self.string(at.path)?;
        self.check()?;
        self.object_at(From::Caller(at.folder), &path, follows)
    }

    /// As [`Caller::object`], of a path that was read.
    pub(super) fn object_at(
        &self,
        from: From<'_>,
        path: &[u8],
        follows: bool,
    ) -> nix::Result<Object> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        Object::of(self.walk(from, path, follows)?)
    }

    /// As [`Caller::object`], where an empty path stands for the folder itself with
    /// `AT_EMPTY_PATH`, and a null pointer always.
    pub(super) fn object_or_held(&self, at: At, flags: i32) -> nix::Result<Object> {
        let follows = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        let is_empty =
            at.path == 0 || flags & libc::AT_EMPTY_PATH != 0 && self.bytes(at.path, 1)? == [0];
        if is_empty { self.held(at.folder) } else { self.object(at, follows) }
    }

    /// A name, as calls take it that make or remove one.
    pub(super) fn named(&self, at: At) -> nix::Result<Named> {
        let path = self.string(at.path)?;
        self.check()?;
        self.split(From::Caller(at.folder), &path)
    }

    /// Splits a path into its folder, which is opened, and the last name.
    pub(super) fn split(&self, from: From<'_>, path: &[u8]) -> nix::Result<Named> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let bare = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let start = path[..bare].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let parent = match (bare, start) {
            (0, _) => &b"/"[..],
            (_, 0) => &b"."[..],
            _ => &path[..start],
        };
        let folder = Object::of(self.walk(from, parent, true)?)?;
        let name = OsStr::from_bytes(&path[start..bare]);
        if matches!(name.as_bytes(), b"" | b"." | b"..") {
            // Calls that make or remove these fail whatever the folder is.
            let name = if name.is_empty() { OsStr::new(".") } else { name };
            return Ok(Named { name: name.to_owned(), path: folder.path, folder: folder.fd });
        }
        let with_slash = OsStr::from_bytes(&path[start..path.len().min(bare + 1)]);
        let path = folder.path.join(name);
        Ok(Named { folder: folder.fd, name: with_slash.to_owned(), path })
    }

    fn walk(&self, from: From<'_>, path: &[u8], follows: bool) -> nix::Result<OwnedFd> {
        let mut flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        flags.set(OFlag::O_NOFOLLOW, !follows);
        let plain = ResolveFlag::RESOLVE_NO_MAGICLINKS;
        if path.first() == Some(&b'/') {
            return match self.own_view(path) {
                // Links of /proc lead where the caller is, and what they lead to is judged.
                Some(path) => {
                    let found = walk_from(AT_FDCWD, path.as_bytes(), flags, ResolveFlag::empty())?;
                    self.check()?;
                    Ok(found)
                }
                None => walk_from(AT_FDCWD, path, flags, plain),
            };
        }
        match from {
            From::Caller(folder) => walk_from(self.descriptor(folder)?, path, flags, plain),
            From::Held(folder) => walk_from(folder, path, flags, plain),
        }
    }

    /// A path in which `self` means this process, with the caller in its place.
    pub(super) fn own_view(&self, path: &[u8]) -> Option<String> {
        let path = std::str::from_utf8(path).ok()?;
        let thread = self.call.thread;
        let own = |rest: &str| format!("/proc/{thread}/{rest}");
        match path {
            "/dev/stdin" => Some(own("fd/0")),
            "/dev/stdout" => Some(own("fd/1")),
            "/dev/stderr" => Some(own("fd/2")),
            "/dev/fd" => Some(own("fd")),
            _ => ["/proc/self/", "/proc/thread-self/"]
                .iter()
                .find_map(|prefix| path.strip_prefix(prefix))
                .map(own)
                .or_else(|| path.strip_prefix("/dev/fd/").map(|rest| own(&format!("fd/{rest}"))))
                .or_else(|| {
                    let (id, rest) = path.strip_prefix("/proc/")?.split_once('/')?;
                    let is_own = id.parse::<i32>().ok()? == self.process().ok()?;
                    is_own.then(|| own(rest))
                }),
        }
    }
}

fn walk_from(
    base: impl AsFd,
    path: &[u8],
    flags: OFlag,
    resolve: ResolveFlag,
) -> nix::Result<OwnedFd> {
    openat2(base, OsStr::from_bytes(path), OpenHow::new().flags(flags).resolve(resolve))
}

impl Object {
    pub(super) fn of(fd: OwnedFd) -> nix::Result<Self> {
        let path = real(fd.as_fd())?;
        Ok(Self { fd, path })
    }

    pub(super) fn facts(&self) -> nix::Result<FileStat> {
        fstat(&self.fd)
    }

    /// A path that leads to this very object.
    pub(super) fn handle(&self) -> String {
        handle(self.fd.as_fd())
    }
}

/// A path that leads to what this process holds open.
pub(super) fn handle(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn real(fd: BorrowedFd<'_>) -> nix::Result<PathBuf> {
    readlink(handle(fd).as_str()).map(PathBuf::from)
}

/// The kind of a file: `S_IFMT` of inode(7).
pub(super) fn kind(facts: &FileStat) -> libc::mode_t {
    facts.st_mode & libc::S_IFMT
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
