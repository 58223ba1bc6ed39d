//! Attributes: mode, owner, times and extended attributes, which Landlock knows no right for.
//!
//! In: calls with a path or a descriptor. Out: the same effect on an object in a writable root, or a
//! refusal. Never continued by the kernel: it would look the path up again.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::libc;
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmodat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchownat};

use super::super::sys::notify;
use super::caller::{At, Caller, Object, kind};
use super::policy::Lies;
use super::{DONE, Outcome, Supervisor};

/// Bits of a mode that make a program run as its owner or group.
const SET_ID: u32 = 0o6000;

/// All bits of a mode: chmod(2).
const MODE: u32 = 0o7777;

/// Longest name and value of an extended attribute: `XATTR_NAME_MAX`, `XATTR_SIZE_MAX`.
const NAME: usize = 255;
const VALUE: u64 = 65536;

/// The only attributes that an unprivileged user has and that no part of the system acts upon.
const USER: &[u8] = b"user.";

/// Calls that libc does not name on every architecture.
const FCHMODAT2: i64 = 452;

impl Supervisor {
    pub(super) fn dispatch_attributes(
        &self,
        caller: &Caller<'_>,
        here: impl Fn(usize) -> At,
        at: impl Fn(usize) -> At,
    ) -> nix::Result<Outcome> {
        let argument = caller.call.arguments;
        // A null pointer stands for the descriptor itself.
        let held = || At { folder: caller.int(0), path: 0 };
        let no_follow = libc::AT_SYMLINK_NOFOLLOW;
        match caller.call.number {
            libc::SYS_fchmod => self.set_mode(caller, (held(), 0), caller.unsigned(1)),
            libc::SYS_fchmodat => self.set_mode(caller, (at(0), 0), caller.unsigned(2)),
            FCHMODAT2 => self.set_mode(caller, (at(0), caller.int(3)), caller.unsigned(2)),
            libc::SYS_fchown => self.set_owner(caller, (held(), 0), 1),
            libc::SYS_fchownat => self.set_owner(caller, (at(0), caller.int(4)), 2),
            libc::SYS_utimensat => {
                let times = Self::times(caller, argument[2], 1)?;
                self.set_times(caller, (at(0), caller.int(3)), times)
            }
            libc::SYS_setxattr => self.set_attribute(caller, (here(0), 0)),
            libc::SYS_lsetxattr => self.set_attribute(caller, (here(0), no_follow)),
            libc::SYS_fsetxattr => self.set_attribute(caller, (held(), 0)),
            libc::SYS_removexattr => self.remove_attribute(caller, (here(0), 0)),
            libc::SYS_lremovexattr => self.remove_attribute(caller, (here(0), no_follow)),
            libc::SYS_fremovexattr => self.remove_attribute(caller, (held(), 0)),
            _ => Err(Errno::ENOSYS),
        }
    }

    /// The object, if its attributes may be changed.
    fn changeable(&self, caller: &Caller<'_>, (at, flags): (At, i32)) -> nix::Result<Object> {
        let object = match caller.object_or_held(at, flags) {
            // A process that can't be looked into.
            Err(Errno::EACCES) if caller.string(at.path).is_err() => return Err(Errno::EPERM),
            other => other?,
        };
        match self.policy.locate(&object.path) {
            Lies::Granted | Lies::Carved => {
                let is_shared = self.shared.holds(&self.policy, &object.facts()?, false);
                if is_shared { Err(Errno::EACCES) } else { Ok(object) }
            }
            Lies::Protected | Lies::Denied => Err(Errno::EACCES),
            Lies::Outside if has_no_name(&object) => Ok(object),
            Lies::Outside => Err(Errno::EPERM),
        }
    }

    pub(super) fn set_mode(
        &self,
        caller: &Caller<'_>,
        target: (At, i32),
        mode: u32,
    ) -> nix::Result<Outcome> {
        if mode & SET_ID != 0 {
            return Err(Errno::EPERM);
        }
        let object = self.changeable(caller, target)?;
        if kind(&object.facts()?) == libc::S_IFLNK {
            return Err(Errno::EOPNOTSUPP);
        }
        let mode = Mode::from_bits_truncate(mode & MODE);
        fchmodat(AT_FDCWD, object.handle().as_str(), mode, FchmodatFlags::FollowSymlink)?;
        Ok(DONE)
    }

    pub(super) fn set_owner(
        &self,
        caller: &Caller<'_>,
        target: (At, i32),
        first: usize,
    ) -> nix::Result<Outcome> {
        let object = self.changeable(caller, target)?;
        // All ones leaves the owner as it is: chown(2).
        let id = |index| Some(caller.unsigned(index)).filter(|id| *id != u32::MAX);
        let (owner, group) = (id(first).map(Uid::from_raw), id(first + 1).map(Gid::from_raw));
        fchownat(&object.fd, "", owner, group, AtFlags::AT_EMPTY_PATH)?;
        Ok(DONE)
    }

    /// Reads two times, each of two words, in the unit given as nanoseconds. A null pointer is now.
    fn times(caller: &Caller<'_>, address: u64, unit: i64) -> nix::Result<[TimeSpec; 2]> {
        if address == 0 {
            return Ok([TimeSpec::UTIME_NOW; 2]);
        }
        let words = words::<4>(caller, address)?;
        let part = |index: usize| {
            // Two values of nanoseconds have a meaning of their own: utimensat(2).
            let fine = words[index + 1].checked_mul(unit).ok_or(Errno::EINVAL)?;
            Ok(TimeSpec::new(words[index], fine))
        };
        Ok([part(0)?, part(2)?])
    }

    fn set_times(
        &self,
        caller: &Caller<'_>,
        target: (At, i32),
        [accessed, modified]: [TimeSpec; 2],
    ) -> nix::Result<Outcome> {
        let object = self.changeable(caller, target)?;
        let path = object.handle();
        let follow = UtimensatFlags::FollowSymlink;
        utimensat(AT_FDCWD, path.as_str(), &accessed, &modified, follow)?;
        Ok(DONE)
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn set_times_in_seconds(
        &self,
        caller: &Caller<'_>,
        at: At,
        address: u64,
    ) -> nix::Result<Outcome> {
        let times = if address == 0 {
            [TimeSpec::UTIME_NOW; 2]
        } else {
            words::<2>(caller, address)?.map(|seconds| TimeSpec::new(seconds, 0))
        };
        self.set_times(caller, (at, 0), times)
    }

    #[cfg(target_arch = "x86_64")]
    pub(super) fn set_times_in_micros(
        &self,
        caller: &Caller<'_>,
        at: At,
        address: u64,
    ) -> nix::Result<Outcome> {
        let times = Self::times(caller, address, 1000)?;
        if address != 0 && times.iter().any(|time| !(0..1_000_000_000).contains(&time.tv_nsec())) {
            return Err(Errno::EINVAL);
        }
        self.set_times(caller, (at, 0), times)
    }

    fn set_attribute(&self, caller: &Caller<'_>, target: (At, i32)) -> nix::Result<Outcome> {
        let [_, name, value, size, _, _] = caller.call.arguments;
        let name = attribute(caller, name)?;
        if size > VALUE {
            return Err(Errno::E2BIG);
        }
        let value = caller.bytes(value, usize::try_from(size).map_err(|_| Errno::E2BIG)?)?;
        let object = self.changeable(caller, target)?;
        let path = c_string(object.handle().as_bytes())?;
        notify::set_attribute(&path, &name, (&value, caller.int(4)))?;
        Ok(DONE)
    }

    fn remove_attribute(&self, caller: &Caller<'_>, target: (At, i32)) -> nix::Result<Outcome> {
        let name = attribute(caller, caller.call.arguments[1])?;
        let object = self.changeable(caller, target)?;
        notify::remove_attribute(&c_string(object.handle().as_bytes())?, &name)?;
        Ok(DONE)
    }
}

/// Pipes, sockets and memory files, which lie in no folder. The name of a file that does starts with
/// a slash.
fn has_no_name(object: &Object) -> bool {
    let path = object.path.as_os_str().as_bytes();
    let kinds: [&[u8]; 3] = [b"pipe:[", b"socket:[", b"anon_inode:"];
    kinds.iter().any(|kind| path.starts_with(kind))
        || path.starts_with(b"/memfd:") && path.ends_with(b" (deleted)")
}

fn words<const N: usize>(caller: &Caller<'_>, address: u64) -> nix::Result<[i64; N]> {
    let bytes = caller.bytes(address, 8 * N)?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = i64::from_ne_bytes(*bytes);
    }
    Ok(words)
}

fn attribute(caller: &Caller<'_>, address: u64) -> nix::Result<CString> {
    let name = caller.string(address)?;
    match name.len() {
        0 => Err(Errno::ERANGE),
        length if length > NAME => Err(Errno::ERANGE),
        // Callers take this for a file system without them, which is common.
        _ if !name.starts_with(USER) => Err(Errno::EOPNOTSUPP),
        _ => c_string(OsStr::from_bytes(&name).as_bytes()),
    }
}

fn c_string(bytes: &[u8]) -> nix::Result<CString> {
    CString::new(bytes).map_err(|_| Errno::EINVAL)
}
