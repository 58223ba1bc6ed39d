//! System calls that have no safe wrapper.
//!
//! In: plain values. Out: `nix` results. All but [`watch`] are called only by a single-threaded
//! process, the reaper, and by the child it forks.

#![expect(unsafe_code, reason = "fork, wait4 and friends have no safe wrapper")]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A child that was waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// Its id.
    pub(crate) pid: Pid,
    /// Raw wait status.
    pub(crate) status: i32,
    /// User and system time of it and of what it waited for.
    pub(crate) cpu: Duration,
}

/// What a look for ended children found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reap {
    /// This one ended.
    One(Reaped),
    /// There are children and none has ended.
    Alive,
    /// There are no children.
    None,
}

/// Takes ownership of a descriptor that the kernel has just handed over.
pub(crate) fn adopt(fd: RawFd) -> OwnedFd {
    // SAFETY: callers pass a descriptor that was received or inherited and that nothing else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Watches a descriptor for being readable. Must be called inside a runtime.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays open and the same until the `AsyncFd` that owns it is dropped.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(Into::into)
}

/// Forks, into new namespaces when `flags` name some. Returns `None` in the child.
pub(crate) fn split(flags: i32) -> nix::Result<Option<Pid>> {
    let flags = i64::from(flags | libc::SIGCHLD);
    // SAFETY: starter and reaper have one thread, so the child's copy of the heap and its locks is
    // usable; without a stack of its own the child goes on where this one is, as with fork(2).
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    let pid = Errno::result(pid)?;
    Ok((pid != 0).then(|| Pid::from_raw(i32::try_from(pid).unwrap_or(0))))
}

/// Ends the forked child without running anything of the parent's copy.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Waits for any child without blocking.
pub(crate) fn reap() -> nix::Result<Reap> {
    let mut status = 0;
    // SAFETY: all zeros is a valid `rusage`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    match Errno::result(pid) {
        Ok(0) => Ok(Reap::Alive),
        Ok(pid) => {
            let cpu = duration(usage.ru_utime) + duration(usage.ru_stime);
            Ok(Reap::One(Reaped { pid: Pid::from_raw(pid), status, cpu }))
        }
        Err(Errno::ECHILD) => Ok(Reap::None),
        Err(errno) => Err(errno),
    }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Gives every signal its default disposition and an empty mask, as a fresh program expects.
///
/// By the system call itself: libc refuses the two signals it uses for itself, and a caller of ours
/// may have them ignored.
pub(crate) fn reset_signals() -> nix::Result<()> {
    /// All zeros is `SIG_DFL` without flags in the kernel's `struct sigaction`, which has at most
    /// this size.
    const DEFAULT: [u64; 4] = [0; 4];
    /// Size of the kernel's signal set in bytes.
    const SET: usize = 8;
    for signal in (1..=64).filter(|s| ![libc::SIGKILL, libc::SIGSTOP].contains(s)) {
        // SAFETY: the default disposition runs no code of ours; the old one is not asked for.
        let done = unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                DEFAULT.as_ptr(),
                std::ptr::null_mut::<libc::c_void>(),
                SET,
            )
        };
        Errno::result(done)?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

/// Marks every descriptor from `first` on as closed on exec: `close_range(2)`, Linux 5.11.
pub(crate) fn close_on_exec_from(first: u32) -> nix::Result<()> {
    // SAFETY: takes three integers.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Errno::result(done).map(drop)
}

/// Lowers one resource limit; a limit that is lower already stays.
pub(crate) fn lower_limit(resource: u32, most: u64) -> nix::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is valid for the call.
    Errno::result(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    limit.rlim_max = limit.rlim_max.min(most);
    limit.rlim_cur = limit.rlim_cur.min(limit.rlim_max);
    // SAFETY: the pointer is valid for the call.
    Errno::result(unsafe { libc::setrlimit(resource, &raw const limit) }).map(drop)
}
