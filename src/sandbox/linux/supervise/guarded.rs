//! Opening where something in a writable root is unreadable: then every open is the supervisor's.
//!
//! In: open calls. Out: open files. Landlock grants reading in such a root, or no program in it could
//! be executed, so no open may be left to the kernel: it would look the path up again. For what lies
//! outside of the roots the supervisor is held by the same rules as the caller; but it may see more
//! of processes, so that their files in /proc are judged here.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::getpid;

use super::caller::{Caller, From, Named, Object, kind};
use super::files::{again, give, new_mode, open_fifo, writes};
use super::{CONTINUE, Outcome, Supervisor};

/// Files of any process that everybody may read: the kernel tells no secrets in them, or asks who
/// reads.
const PUBLIC: [&str; 9] =
    ["stat", "statm", "status", "cmdline", "comm", "cgroup", "children", "oom_score", "schedstat"];

/// `/dev/tty`: the terminal of whoever opens it.
const TERMINAL: libc::dev_t = libc::makedev(5, 0);

impl Supervisor {
    /// What to do with a call that can't be understood. The starter and its reapers can't be looked
    /// into and aren't held by a command's rules: they are let through.
    pub(super) fn unread(&self, caller: &Caller<'_>) -> nix::Result<Outcome> {
        if !self.policy.guards_reading() || caller.is_child_of(self.starter)? {
            return Ok(CONTINUE);
        }
        Err(Errno::EACCES)
    }

    /// What to do when a path leads nowhere.
    pub(super) fn lost(&self, errno: Errno) -> nix::Result<Outcome> {
        if self.policy.guards_reading() { Err(errno) } else { Ok(CONTINUE) }
    }

    /// Opens what lies where Landlock judges this process as it would the caller.
    pub(super) fn open_elsewhere(
        &self,
        caller: &Caller<'_>,
        object: &Object,
        (flags, mode): (i32, u32),
    ) -> nix::Result<Outcome> {
        if !self.policy.guards_reading() {
            return Ok(CONTINUE);
        }
        let facts = object.facts()?;
        if self.shared.holds(&self.policy, &facts, !writes(flags)) {
            return Err(Errno::EACCES);
        }
        let is_unnamed = flags & libc::O_TMPFILE == libc::O_TMPFILE;
        match kind(&facts) {
            libc::S_IFLNK => return Err(Errno::ELOOP),
            libc::S_IFDIR if (writes(flags) || flags & libc::O_CREAT != 0) && !is_unnamed => {
                return Err(Errno::EISDIR);
            }
            libc::S_IFSOCK => return Err(Errno::ENXIO),
            // What this process would open is its own terminal, and it has none.
            libc::S_IFCHR if facts.st_rdev == TERMINAL => return Err(Errno::ENXIO),
            libc::S_IFIFO => return open_fifo(caller, object, flags),
            _ => {}
        }
        let mode = if is_unnamed { new_mode(caller, mode)? } else { Mode::empty() };
        let fd = match of_process(&object.path, caller)? {
            None => open(object.handle().as_str(), again(flags), mode)?,
            Some(path) => open(&path, again(flags), mode)?,
        };
        give(caller, &fd, flags)
    }

    /// Makes a file where Landlock judges this process as it would the caller.
    pub(super) fn make_elsewhere(
        &self,
        caller: &Caller<'_>,
        named: &Named,
        (flags, mode): (i32, u32),
    ) -> nix::Result<Outcome> {
        if !self.policy.guards_reading() {
            return Ok(CONTINUE);
        }
        let only_new = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let flags_here = OFlag::from_bits_retain(flags | only_new);
        let mode = new_mode(caller, mode)?;
        let fd = openat(&named.folder, named.name.as_os_str(), flags_here, mode)?;
        give(caller, &fd, flags)
    }

    /// The end of a way that the kernel would end by itself: the same error.
    pub(super) fn refuse_open(
        &self,
        caller: &Caller<'_>,
        (from, path): (From<'_>, &[u8]),
        flags: i32,
    ) -> nix::Result<Outcome> {
        if !self.policy.guards_reading() {
            return Ok(CONTINUE);
        }
        if flags & libc::O_EXCL != 0 {
            return Err(Errno::EEXIST);
        }
        match caller.object_at(from, path, flags & libc::O_NOFOLLOW == 0) {
            Err(errno) => Err(errno),
            Ok(object) if kind(&object.facts()?) == libc::S_IFLNK => Err(Errno::ELOOP),
            Ok(_) => Err(Errno::EISDIR),
        }
    }
}

/// Judges a file of a process. Returns the path to open in its place, when the object is this
/// process's: the caller's own is meant, as a link of /proc names it.
fn of_process(path: &Path, caller: &Caller<'_>) -> nix::Result<Option<PathBuf>> {
    let Ok(rest) = path.strip_prefix("/proc") else { return Ok(None) };
    let mut parts = rest.components();
    let number = |part: Option<Component<'_>>| match part {
        Some(Component::Normal(name)) => name.to_str()?.parse::<i32>().ok(),
        _ => None,
    };
    let Some(id) = number(parts.next()) else { return Ok(None) };
    if id == getpid().as_raw() {
        let own = Path::new("/proc").join(caller.process()?.to_string()).join(parts.as_path());
        return Ok(Some(own));
    }
    let name = path.file_name().unwrap_or(OsStr::new(""));
    let is_folder = parts.as_path().as_os_str().is_empty() || name == "task";
    let is_thread = path.parent().is_some_and(|above| above.ends_with("task"));
    let is_public = PUBLIC.iter().any(|public| name == *public);
    if is_folder || is_thread || is_public || caller.process()? == id {
        return Ok(None);
    }
    Err(Errno::EACCES)
}
