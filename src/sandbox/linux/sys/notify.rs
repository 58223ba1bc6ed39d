//! System calls of the supervisor: notifications, addresses as bytes, attributes.
//!
//! In: plain values and descriptors. Out: `nix` results. Knows nothing of what is allowed.

#![expect(unsafe_code, reason = "user notification and raw addresses have no safe wrapper")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// `SECCOMP_IOCTL_NOTIF_*`: linux/seccomp.h; the numbers are those of x86-64 and aarch64.
const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const IS_VALID: u64 = 0x4008_2102;
const ADD_FD: u64 = 0x4018_2103;
const SET_FLAGS: u64 = 0x4008_2104;

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`, Linux 6.6.
const SYNC_WAKE_UP: u64 = 1;

/// Most bytes of a socket address: `struct sockaddr_storage`.
const ADDRESS: usize = size_of::<libc::sockaddr_storage>();

/// A call that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notification {
    /// Names this notification.
    pub(crate) id: u64,
    /// The calling thread, in this process's view.
    pub(crate) thread: i32,
    /// Number of the call.
    pub(crate) number: i64,
    /// Its arguments.
    pub(crate) arguments: [u64; 6],
}

/// What the caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The call returns this.
    Value(i64),
    /// The call fails.
    Error(Errno),
    /// The kernel carries the call out, with memory as it is then.
    Continue,
}

/// Installs a filter that notifies, and returns the end at which notifications arrive. A caller
/// whose notification was received is disturbed by deadly signals alone.
pub(crate) fn install_notifying(filter: &[u8]) -> nix::Result<OwnedFd> {
    let flags =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let fd = super::install(filter, flags)?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets an answer wake its caller on the processor that answers; older kernels refuse.
pub(crate) fn wake_in_place(listener: BorrowedFd<'_>) {
    // SAFETY: takes an integer.
    let _ = unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) };
}

/// Waits for a call.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> nix::Result<Notification> {
    // SAFETY: all zeros is what the kernel wants to find.
    let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the structure outlives the call.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut raw) };
    Errno::result(done)?;
    Ok(Notification {
        id: raw.id,
        thread: i32::try_from(raw.pid).map_err(|_| Errno::ESRCH)?,
        number: i64::from(raw.data.nr),
        arguments: raw.data.args,
    })
}

/// Answers a call. The caller may be gone.
pub(crate) fn answer(listener: BorrowedFd<'_>, id: u64, answer: Answer) -> nix::Result<()> {
    let (val, error, flags) = match answer {
        Answer::Value(value) => (value, 0, 0),
        Answer::Error(errno) => (0, -(errno as i32), 0),
        Answer::Continue => {
            (0, 0, u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1))
        }
    };
    let raw = libc::seccomp_notif_resp { id, val, error, flags };
    // SAFETY: the structure outlives the call.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw const raw) };
    Errno::result(done).map(drop)
}

/// Whether the caller still waits: else its number may be another process's by now.
pub(crate) fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the number outlives the call.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), IS_VALID as _, &raw const id) };
    done == 0
}

/// Puts a copy of `fd` into the caller and makes its number the answer, in one step.
pub(crate) fn answer_with(
    listener: BorrowedFd<'_>,
    id: u64,
    (fd, closes_on_exec): (BorrowedFd<'_>, bool),
) -> nix::Result<()> {
    let raw = libc::seccomp_notif_addfd {
        id,
        flags: u32::try_from(libc::SECCOMP_ADDFD_FLAG_SEND).unwrap_or(2),
        srcfd: u32::try_from(fd.as_raw_fd()).map_err(|_| Errno::EBADF)?,
        newfd: 0,
        newfd_flags: if closes_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
    };
    // SAFETY: the structure outlives the call.
    let done = unsafe { libc::ioctl(listener.as_raw_fd(), ADD_FD as _, &raw const raw) };
    Errno::result(done).map(drop)
}

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: u32) -> nix::Result<()> {
    // SAFETY: the caller never returns to code that owns one of them.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    Errno::result(done).map(drop)
}

/// Moves a descriptor to a number. What had that number is closed.
pub(crate) fn move_to(fd: OwnedFd, number: RawFd) -> nix::Result<OwnedFd> {
    if fd.as_raw_fd() == number {
        return Ok(fd);
    }
    // SAFETY: takes two integers; the caller never returns to code that owns `number`.
    let moved = unsafe { libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) };
    let moved = Errno::result(moved)?;
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

/// A descriptor of a process: `pidfd_open(2)`, Linux 5.3.
pub(crate) fn watch_process(pid: Pid) -> nix::Result<OwnedFd> {
    // SAFETY: takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let fd = RawFd::try_from(Errno::result(fd)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Children that end need not be waited for.
pub(crate) fn forget_children() -> nix::Result<()> {
    // SAFETY: ignoring runs no code of ours.
    let before = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(Errno::last()) } else { Ok(()) }
}

/// bind(2) to an address as the caller wrote it.
pub(crate) fn bind(socket: BorrowedFd<'_>, address: &[u8]) -> nix::Result<()> {
    let length = libc::socklen_t::try_from(address.len()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel reads `length` bytes, which outlive the call.
    let done = unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), length) };
    Errno::result(done).map(drop)
}

/// connect(2) to an address as the caller wrote it.
pub(crate) fn connect(socket: BorrowedFd<'_>, address: &[u8]) -> nix::Result<()> {
    let length = libc::socklen_t::try_from(address.len()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel reads `length` bytes, which outlive the call.
    let done = unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) };
    Errno::result(done).map(drop)
}

/// listen(2) with the caller's backlog.
pub(crate) fn listen(socket: BorrowedFd<'_>, backlog: i32) -> nix::Result<()> {
    // SAFETY: takes two integers.
    Errno::result(unsafe { libc::listen(socket.as_raw_fd(), backlog) }).map(drop)
}

/// socket(2), closed on exec.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> nix::Result<OwnedFd> {
    // SAFETY: takes integers.
    let fd = Errno::result(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The address that a socket is bound to, or its peer's, as bytes.
pub(crate) fn name_of(socket: BorrowedFd<'_>, of_peer: bool) -> nix::Result<Vec<u8>> {
    let mut bytes = vec![0_u8; ADDRESS];
    let mut length = libc::socklen_t::try_from(ADDRESS).map_err(|_| Errno::EINVAL)?;
    let call = if of_peer { libc::getpeername } else { libc::getsockname };
    // SAFETY: the kernel writes at most `length` bytes, and as many are there.
    let done = unsafe { call(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), &raw mut length) };
    Errno::result(done)?;
    bytes.truncate(usize::try_from(length).unwrap_or(0));
    Ok(bytes)
}

/// Whether a socket of IPv6 leaves IPv4 alone: ipv6(7).
pub(crate) fn is_v6_only(socket: BorrowedFd<'_>) -> nix::Result<bool> {
    let mut value: libc::c_int = 0;
    let mut length = libc::socklen_t::try_from(size_of_val(&value)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel writes at most `length` bytes, and as many are there.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_V6ONLY,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    Errno::result(done)?;
    Ok(value != 0)
}

/// Lets a socket of IPv6 have addresses of IPv4.
pub(crate) fn allow_v4(socket: BorrowedFd<'_>) -> nix::Result<()> {
    let value: libc::c_int = 0;
    let length = libc::socklen_t::try_from(size_of_val(&value)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the kernel reads `length` bytes, which outlive the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_V6ONLY,
            (&raw const value).cast(),
            length,
        )
    };
    Errno::result(done).map(drop)
}

/// setxattr(2).
pub(crate) fn set_attribute(
    path: &CStr,
    name: &CStr,
    (value, flags): (&[u8], i32),
) -> nix::Result<()> {
    // SAFETY: path, name and value outlive the call, and the length is the value's.
    let done = unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)
    };
    Errno::result(done).map(drop)
}

/// removexattr(2).
pub(crate) fn remove_attribute(path: &CStr, name: &CStr) -> nix::Result<()> {
    // SAFETY: both strings outlive the call.
    Errno::result(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }).map(drop)
}

/// Whether somebody has an empty FIFO open for writing: `tee(2)` says so without taking anything.
/// `scratch` is the writable end of a pipe.
pub(crate) fn has_writer(fifo: BorrowedFd<'_>, scratch: BorrowedFd<'_>) -> bool {
    // SAFETY: takes descriptors and integers.
    let copied =
        unsafe { libc::tee(fifo.as_raw_fd(), scratch.as_raw_fd(), 1, libc::SPLICE_F_NONBLOCK) };
    !matches!(Errno::result(copied), Ok(0))
}

/// Sets the mask of modes of this process.
pub(crate) fn mask_nothing() {
    // SAFETY: takes an integer and can't fail.
    unsafe { libc::umask(0) };
}
