//! Files: opening, making, moving and removing in roots with carve-outs.
//!
//! In: calls with paths. Out: the same effect on what the supervisor found and judged, or the
//! kernel's own course where Landlock judges as well. A name in a carve-out can't come to lie outside
//! of it, nor another's inside: so what was judged by its real path stays what it is.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, FcntlArg, OFlag, OpenHow, RenameFlags, ResolveFlag, fcntl, open, openat,
    openat2, readlinkat, renameat2,
};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat, mknodat};
use nix::unistd::{UnlinkatFlags, linkat, pipe2, symlinkat, truncate, unlinkat};

use super::super::sys::notify;
use super::caller::{At, Caller, From, Named, Object, kind};
use super::policy::{Lies, Policy};
use super::{CONTINUE, DONE, Outcome, Supervisor};

/// Links that are followed on one way, as the kernel does: `path_resolution(7)`.
const LINKS: usize = 40;

/// How often the other end of a FIFO is looked for, in milliseconds.
const LOOK: u8 = 5;

/// Permission bits that a new file may have; set-id bits are refused by the filter.
const PERMISSIONS: u32 = 0o1777;

impl Supervisor {
    pub(super) fn open(
        &self,
        caller: &Caller<'_>,
        at: At,
        (flags, mode): (i32, u32),
    ) -> nix::Result<Outcome> {
        // A descriptor that only names an object gives no access to it.
        if flags & libc::O_PATH != 0 {
            return Ok(CONTINUE);
        }
        // What can't be read is not acted upon: Landlock judges, and the kernel words the error.
        let Ok(path) = caller.string(at.path) else { return self.unread(caller) };
        caller.check()?;
        if let Some(name) = Policy::shared_name(&path) {
            let folder = self.shared_memory()?;
            let flags = flags | libc::O_NOFOLLOW;
            let mode = new_mode(caller, mode)?;
            let fd = openat(&folder, name, OFlag::from_bits_retain(flags), mode)?;
            return give(caller, &fd, flags);
        }
        if self.policy.carved().next().is_none() && !self.policy.guards_reading() {
            return Ok(CONTINUE);
        }
        if flags & libc::O_CREAT != 0 {
            return self.open_or_make(caller, (at.folder, path), (flags, mode));
        }
        let follows = flags & libc::O_NOFOLLOW == 0;
        match caller.object_at(From::Caller(at.folder), &path, follows) {
            Ok(object) => self.open_object(caller, &object, (flags, mode)),
            Err(errno) => self.lost(errno),
        }
    }

    /// Follows links to the last name one by one, because what they lead to may not be there.
    fn open_or_make(
        &self,
        caller: &Caller<'_>,
        (folder, mut path): (i32, Vec<u8>),
        (flags, mode): (i32, u32),
    ) -> nix::Result<Outcome> {
        let mut held: Option<OwnedFd> = None;
        for _ in 0..LINKS {
            let from = held.as_ref().map_or(From::Caller(folder), |fd| From::Held(fd.as_fd()));
            let is_own = flags & (libc::O_EXCL | libc::O_NOFOLLOW) == 0;
            if is_own && caller.own_view(&path).is_some_and(|path| is_link_of_fd(&path)) {
                // A link of /proc leads to an object, which is there, and not to a name.
                return match caller.object_at(from, &path, true) {
                    Ok(object) => self.open_object(caller, &object, (flags, mode)),
                    Err(errno) => self.lost(errno),
                };
            }
            let named = match caller.split(from, &path) {
                Ok(named) => named,
                Err(errno) => return self.lost(errno),
            };
            if is_folder_name(&named.name) {
                return self.refuse_open(caller, (from, &path), flags);
            }
            let object = match look(&named) {
                Ok(object) => object,
                Err(Errno::ENOENT) => match self.make_file(caller, &named, (flags, mode)) {
                    Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => continue,
                    other => return other,
                },
                Err(errno) => return self.lost(errno),
            };
            let is_link = kind(&object.facts()?) == libc::S_IFLNK;
            if flags & libc::O_EXCL != 0 || is_link && flags & libc::O_NOFOLLOW != 0 {
                return self.refuse_open(caller, (from, &path), flags);
            }
            if !is_link {
                return self.open_object(caller, &object, (flags, mode));
            }
            path = readlinkat(&named.folder, named.name.as_os_str())?.into_vec();
            held = Some(named.folder);
        }
        Err(Errno::ELOOP)
    }

    fn make_file(
        &self,
        caller: &Caller<'_>,
        named: &Named,
        (flags, mode): (i32, u32),
    ) -> nix::Result<Outcome> {
        match self.policy.locate(&named.path) {
            Lies::Outside | Lies::Granted => {
                return self.make_elsewhere(caller, named, (flags, mode));
            }
            Lies::Protected | Lies::Denied => return Err(Errno::EACCES),
            Lies::Carved => {}
        }
        let only_new = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let flags_here = OFlag::from_bits_retain(flags | only_new);
        let mode = new_mode(caller, mode)?;
        let fd = openat(&named.folder, named.name.as_os_str(), flags_here, mode)?;
        give(caller, &fd, flags)
    }

    fn open_object(
        &self,
        caller: &Caller<'_>,
        object: &Object,
        (flags, mode): (i32, u32),
    ) -> nix::Result<Outcome> {
        let is_write = writes(flags);
        if !is_write && let Some(copy) = self.policy.copy_of(&object.path) {
            let fd = open(copy, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
            return give(caller, &fd, flags);
        }
        match self.policy.locate(&object.path) {
            Lies::Outside | Lies::Granted => {
                return self.open_elsewhere(caller, object, (flags, mode));
            }
            Lies::Denied => return Err(Errno::EACCES),
            Lies::Protected if is_write => return Err(Errno::EACCES),
            Lies::Protected if !self.policy.guards_reading() => return Ok(CONTINUE),
            Lies::Protected | Lies::Carved => {}
        }
        let facts = object.facts()?;
        if self.shared.holds(&self.policy, &facts, !is_write) {
            return Err(Errno::EACCES);
        }
        let is_unnamed = flags & libc::O_TMPFILE == libc::O_TMPFILE;
        match kind(&facts) {
            libc::S_IFLNK => return Err(Errno::ELOOP),
            libc::S_IFDIR if (is_write || flags & libc::O_CREAT != 0) && !is_unnamed => {
                return Err(Errno::EISDIR);
            }
            libc::S_IFREG | libc::S_IFDIR => {}
            libc::S_IFIFO => return open_fifo(caller, object, flags),
            libc::S_IFSOCK => return Err(Errno::ENXIO),
            _ => return Err(Errno::EACCES),
        }
        let mode = if is_unnamed { new_mode(caller, mode)? } else { Mode::empty() };
        let fd = open(object.handle().as_str(), again(flags), mode)?;
        give(caller, &fd, flags)
    }

    /// The name, where the supervisor acts on it; `None` where Landlock judges.
    fn place(&self, caller: &Caller<'_>, at: At) -> nix::Result<Option<Named>> {
        let Ok(named) = caller.named(at) else { return Ok(None) };
        match self.policy.locate(&named.path) {
            Lies::Outside | Lies::Granted => Ok(None),
            Lies::Protected | Lies::Denied => Err(Errno::EACCES),
            Lies::Carved => Ok(Some(named)),
        }
    }

    pub(super) fn make_folder(
        &self,
        caller: &Caller<'_>,
        at: At,
        mode: u32,
    ) -> nix::Result<Outcome> {
        let Some(named) = self.place(caller, at)? else { return Ok(CONTINUE) };
        mkdirat(&named.folder, named.name.as_os_str(), new_mode(caller, mode)?)?;
        Ok(DONE)
    }

    pub(super) fn make_node(&self, caller: &Caller<'_>, at: At, mode: u32) -> nix::Result<Outcome> {
        let Some(named) = self.place(caller, at)? else { return Ok(CONTINUE) };
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => SFlag::S_IFREG,
            libc::S_IFIFO => SFlag::S_IFIFO,
            libc::S_IFSOCK => SFlag::S_IFSOCK,
            _ => return Err(Errno::EPERM),
        };
        mknodat(&named.folder, named.name.as_os_str(), kind, new_mode(caller, mode)?, 0)?;
        Ok(DONE)
    }

    pub(super) fn remove(
        &self,
        caller: &Caller<'_>,
        at: At,
        is_folder: bool,
    ) -> nix::Result<Outcome> {
        let flag = if is_folder { UnlinkatFlags::RemoveDir } else { UnlinkatFlags::NoRemoveDir };
        if !is_folder
            && let Ok(path) = caller.string(at.path)
            && let Some(name) = Policy::shared_name(&path)
        {
            caller.check()?;
            unlinkat(self.shared_memory()?, name, flag)?;
            return Ok(DONE);
        }
        if self.policy.carved().next().is_none() {
            return Ok(CONTINUE);
        }
        let Some(named) = self.place(caller, at)? else { return Ok(CONTINUE) };
        unlinkat(&named.folder, named.name.as_os_str(), flag)?;
        Ok(DONE)
    }

    pub(super) fn rename(
        &self,
        caller: &Caller<'_>,
        [from, to]: [At; 2],
        flags: u32,
    ) -> nix::Result<Outcome> {
        let (Ok(from), Ok(to)) = (caller.named(from), caller.named(to)) else {
            return Ok(CONTINUE);
        };
        let lie = [&from, &to].map(|named| self.policy.locate(&named.path));
        if lie.iter().any(|lies| matches!(lies, Lies::Protected | Lies::Denied)) {
            return Err(Errno::EACCES);
        }
        if lie.contains(&Lies::Outside) || lie == [Lies::Granted; 2] {
            return Ok(CONTINUE);
        }
        if flags & libc::RENAME_WHITEOUT != 0 {
            return Err(Errno::EINVAL);
        }
        // A folder takes along what is carved out below it, and would bring it along.
        if self.policy.holds_carved(&from.path) {
            return Err(Errno::EACCES);
        }
        if self.policy.holds_carved(&to.path) {
            let facts = fstatat(&from.folder, from.name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if kind(&facts) == libc::S_IFDIR || flags & libc::RENAME_EXCHANGE != 0 {
                return Err(Errno::EACCES);
            }
        }
        let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
        let [old, new] = [&from, &to].map(|named| named.name.as_os_str());
        renameat2(&from.folder, old, &to.folder, new, flags)?;
        Ok(DONE)
    }

    pub(super) fn link(
        &self,
        caller: &Caller<'_>,
        [from, to]: [At; 2],
        flags: i32,
    ) -> nix::Result<Outcome> {
        let paths = [from, to].map(|at| caller.string(at.path).unwrap_or_default());
        caller.check()?;
        if let [Some(old), Some(new)] = paths.each_ref().map(|path| Policy::shared_name(path)) {
            let folder = self.shared_memory()?;
            linkat(&folder, old, &folder, new, AtFlags::empty())?;
            return Ok(DONE);
        }
        if self.policy.carved().next().is_none() {
            return Ok(CONTINUE);
        }
        let is_held = paths[0].is_empty() && flags & libc::AT_EMPTY_PATH != 0;
        let follows = flags & libc::AT_SYMLINK_FOLLOW != 0;
        let source = if is_held {
            caller.held(from.folder)
        } else {
            caller.object_at(From::Caller(from.folder), &paths[0], follows)
        };
        let new = caller.split(From::Caller(to.folder), &paths[1]);
        let (Ok(source), Ok(new)) = (source, new) else { return Ok(CONTINUE) };
        let lie = [&source.path, &new.path].map(|path| self.policy.locate(path));
        if lie.iter().any(|lies| matches!(lies, Lies::Protected | Lies::Denied))
            || self.shared.holds(&self.policy, &source.facts()?, false)
        {
            return Err(Errno::EACCES);
        }
        if lie[1] == Lies::Outside || !lie.contains(&Lies::Carved) {
            return Ok(CONTINUE);
        }
        // Landlock holds this process too: a file from outside the roots gets no name in them.
        let flag = AtFlags::AT_SYMLINK_FOLLOW;
        linkat(AT_FDCWD, source.handle().as_str(), &new.folder, new.name.as_os_str(), flag)?;
        Ok(DONE)
    }

    pub(super) fn link_to_path(
        &self,
        caller: &Caller<'_>,
        target: u64,
        at: At,
    ) -> nix::Result<Outcome> {
        let Some(named) = self.place(caller, at)? else { return Ok(CONTINUE) };
        let target = caller.string(target)?;
        caller.check()?;
        symlinkat(OsStr::from_bytes(&target), &named.folder, named.name.as_os_str())?;
        Ok(DONE)
    }

    pub(super) fn truncate(
        &self,
        caller: &Caller<'_>,
        at: At,
        length: i64,
    ) -> nix::Result<Outcome> {
        let Ok(object) = caller.object(at, true) else { return Ok(CONTINUE) };
        match self.policy.locate(&object.path) {
            Lies::Outside | Lies::Granted => return Ok(CONTINUE),
            Lies::Protected | Lies::Denied => return Err(Errno::EACCES),
            Lies::Carved => {}
        }
        if self.shared.holds(&self.policy, &object.facts()?, false) {
            return Err(Errno::EACCES);
        }
        truncate(object.handle().as_str(), length)?;
        Ok(DONE)
    }

    /// The folder that `/dev/shm` shows, made at its first use.
    fn shared_memory(&self) -> nix::Result<OwnedFd> {
        let path: &Path = &self.policy.shared_memory;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        match open(path, flags, Mode::empty()) {
            Err(Errno::ENOENT) => {
                mkdirat(AT_FDCWD, path, Mode::S_IRWXU)
                    .or_else(|errno| if errno == Errno::EEXIST { Ok(()) } else { Err(errno) })?;
                open(path, flags, Mode::empty())
            }
            other => other,
        }
    }
}

/// A link of /proc that stands for a descriptor.
fn is_link_of_fd(path: &str) -> bool {
    path.rsplit_once("/fd/").is_some_and(|(_, name)| name.parse::<u32>().is_ok())
}

/// A name that can only be a folder's: making a file there fails, whatever is there.
fn is_folder_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.ends_with(b"/") || name == b"." || name == b".."
}

/// What a name stands for; a link is not followed.
fn look(named: &Named) -> nix::Result<Object> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_MAGICLINKS);
    Object::of(openat2(&named.folder, named.name.as_os_str(), how)?)
}

pub(super) fn writes(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_CREAT | libc::O_TRUNC) != 0
}

/// The caller's flags for an object that was found: it is there, and no link.
pub(super) fn again(flags: i32) -> OFlag {
    let found = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    OFlag::from_bits_retain(flags & !found | libc::O_CLOEXEC | libc::O_NOCTTY)
}

pub(super) fn new_mode(caller: &Caller<'_>, mode: u32) -> nix::Result<Mode> {
    Ok(Mode::from_bits_truncate(mode & PERMISSIONS & !caller.mask()?))
}

/// Gives the caller an open file.
pub(super) fn give(caller: &Caller<'_>, fd: &OwnedFd, flags: i32) -> nix::Result<Outcome> {
    let closes_on_exec = flags & libc::O_CLOEXEC != 0;
    match notify::answer_with(caller.listener, caller.call.id, (fd.as_fd(), closes_on_exec)) {
        // A caller that is gone needs no answer.
        Ok(()) | Err(Errno::ENOENT) => Ok(Outcome::Answered),
        Err(errno) => Err(errno),
    }
}

/// Opens a FIFO, which waits for the other end, unless the caller doesn't.
pub(super) fn open_fifo(caller: &Caller<'_>, object: &Object, flags: i32) -> nix::Result<Outcome> {
    let path = object.handle();
    let path = path.as_str();
    let is_patient = flags & libc::O_NONBLOCK == 0;
    let mode = flags & libc::O_ACCMODE;
    let attempt = move |path: &str| open(path, again(flags) | OFlag::O_NONBLOCK, Mode::empty());
    let fd = match attempt(path) {
        Ok(fd) => fd,
        Err(Errno::ENXIO) if is_patient => {
            // A file of our own keeps the object where it is while it is waited for.
            let kept = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
            return Ok(Outcome::Later(Box::new(move |_, caller| {
                let path = super::caller::handle(kept.as_fd());
                loop {
                    std::thread::sleep(Duration::from_millis(LOOK.into()));
                    caller.check()?;
                    match attempt(&path) {
                        Err(Errno::ENXIO) => {}
                        Err(errno) => return Err(errno),
                        Ok(fd) => return give_waiting(caller, &fd, flags),
                    }
                }
            })));
        }
        Err(errno) => return Err(errno),
    };
    // A pipe without a name was opened at both ends when it was made.
    let has_name = !object.path.as_os_str().as_bytes().starts_with(b"pipe:[");
    if is_patient && has_name && mode == libc::O_RDONLY {
        return Ok(Outcome::Later(Box::new(move |_, caller| {
            let scratch = pipe2(OFlag::O_CLOEXEC)?;
            loop {
                // The first writer is seen by what it writes, by its going, or by its being there.
                let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
                let found = poll(&mut fds, PollTimeout::from(LOOK));
                caller.check()?;
                if found != Ok(0) || notify::has_writer(fd.as_fd(), scratch.1.as_fd()) {
                    return give_waiting(caller, &fd, flags);
                }
            }
        })));
    }
    if is_patient { give_waiting(caller, &fd, flags) } else { give(caller, &fd, flags) }
}

/// Gives a file whose reads and writes wait.
fn give_waiting(caller: &Caller<'_>, fd: &OwnedFd, flags: i32) -> nix::Result<Outcome> {
    let waiting = again(flags) & !OFlag::O_NONBLOCK;
    fcntl(fd, FcntlArg::F_SETFL(waiting))?;
    give(caller, fd, flags)
}
