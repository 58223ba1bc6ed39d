//! System calls of the confinement that have no safe wrapper.
//!
//! In: plain values. Out: `nix` results. Those that restrict are called by the forked child alone.

#![expect(unsafe_code, reason = "landlock, seccomp and capabilities have no safe wrapper")]

pub(super) mod notify;

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::{AccessFlags, access};

/// `LANDLOCK_CREATE_RULESET_VERSION`: `landlock_create_ruleset(2)`.
const CREATE_RULESET_VERSION: u32 = 1;

/// `_LINUX_CAPABILITY_VERSION_3`: capget(2).
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Highest number tried when the bounding set is emptied; the kernel knows 41 (capabilities(7)) and
/// says EINVAL beyond its last.
const CAPABILITY_LAST: u64 = 63;

/// Landlock's ABI, or why there is none.
pub(crate) fn landlock_abi() -> nix::Result<u32> {
    // SAFETY: with the version flag the kernel reads no attributes.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    };
    Errno::result(abi).map(|abi| u32::try_from(abi).unwrap_or(0))
}

/// Restricts this thread by a ruleset.
pub(super) fn landlock_restrict(ruleset: BorrowedFd<'_>) -> nix::Result<()> {
    // SAFETY: takes a descriptor and flags.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    Errno::result(done).map(drop)
}

/// Installs a filter: instructions of eight bytes each.
pub(super) fn seccomp_install(filter: &[u8]) -> nix::Result<()> {
    install(filter, 0).map(drop)
}

/// Installs a filter with flags of seccomp(2). Returns what the kernel does.
fn install(filter: &[u8], flags: libc::c_ulong) -> nix::Result<i64> {
    let mut program: Vec<libc::sock_filter> = filter
        .chunks_exact(8)
        .map(|bytes| libc::sock_filter {
            code: u16::from_ne_bytes([bytes[0], bytes[1]]),
            jt: bytes[2],
            jf: bytes[3],
            k: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        })
        .collect();
    let length = u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?;
    let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the program outlives the call and its length is right.
    let done = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    Errno::result(done)
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Leaves programs that this thread executes at most the capabilities in `keep`.
pub(super) fn limit_bounding(keep: u64) {
    for capability in (0..=CAPABILITY_LAST).filter(|capability| keep >> capability & 1 == 0) {
        // EPERM without CAP_SETPCAP: no_new_privs keeps the bounding set from giving anything.
        // SAFETY: takes integers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0_u64, 0_u64, 0_u64) };
    }
}

/// Leaves this thread at most the capabilities in `keep`.
pub(super) fn limit_capabilities(keep: u64) -> nix::Result<()> {
    // SAFETY: takes integers.
    let done = unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0_u64, 0_u64, 0_u64)
    };
    Errno::result(done)?;
    limit_bounding(keep);
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: header and data are as version 3 wants them.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    for (set, shift) in data.iter_mut().zip([0_u32, 32]) {
        let mask = u32::try_from(keep >> shift & u64::from(u32::MAX)).unwrap_or(0);
        set.permitted &= mask;
        set.effective = set.permitted;
        set.inheritable = 0;
    }
    // SAFETY: header and data are as version 3 wants them.
    let done = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
    Errno::result(done).map(drop)
}

/// Whether this user may write to `path`, which for a socket is to connect.
pub(crate) fn can_write(path: &Path) -> bool {
    access(path, AccessFlags::W_OK).is_ok()
}

/// `MOUNT_ATTR_*`: `mount_setattr(2)`.
pub(crate) const READ_ONLY: u64 = 1;
pub(crate) const NO_SET_ID: u64 = 2;
pub(crate) const NO_DEVICES: u64 = 4;

#[repr(C)]
#[derive(Default)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// A detached copy of the mount at `path` with all below it: `open_tree(2)`, Linux 5.2.
pub(crate) fn clone_tree(path: &CStr) -> nix::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | (libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW).cast_unsigned();
    // SAFETY: the path is a C string that outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    let fd = i32::try_from(Errno::result(fd)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Mounts a detached copy at `path`: `move_mount(2)`, Linux 5.2.
pub(crate) fn place_tree(tree: BorrowedFd<'_>, path: &CStr) -> nix::Result<()> {
    // SAFETY: both paths are C strings that outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    Errno::result(done).map(drop)
}

/// Adds attributes to a mount, to all below it as well when `is_deep`, and keeps what happens in it
/// from other namespaces: `mount_setattr(2)`, Linux 5.12.
pub(crate) fn set_mount(tree: BorrowedFd<'_>, set: u64, is_deep: bool) -> nix::Result<()> {
    let attributes =
        MountAttributes { set, propagation: libc::MS_PRIVATE, ..MountAttributes::default() };
    let flags = libc::AT_EMPTY_PATH | if is_deep { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the attributes outlive the call and their size is right.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttributes>(),
        )
    };
    Errno::result(done).map(drop)
}

/// `struct landlock_path_beneath_attr`, which the kernel has packed.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// Grants `allowed` below an open folder: `landlock_add_rule(2)`.
pub(crate) fn landlock_grant(
    ruleset: BorrowedFd<'_>,
    folder: BorrowedFd<'_>,
    allowed: u64,
) -> nix::Result<()> {
    let rule = PathBeneath { allowed, parent: folder.as_raw_fd() };
    // SAFETY: the rule outlives the call; 1 is `LANDLOCK_RULE_PATH_BENEATH`.
    let done = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), 1, &raw const rule, 0)
    };
    Errno::result(done).map(drop)
}

/// Brings the loopback interface of this network namespace up: netdevice(7).
pub(crate) fn loopback_up(socket: BorrowedFd<'_>) -> nix::Result<()> {
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *slot = byte.cast_signed();
    }
    request.ifr_ifru.ifru_flags =
        i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the request outlives the call.
    let done =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    Errno::result(done).map(drop)
}

/// Most bytes of an attribute that are read; those of ours are shorter.
const ATTRIBUTE: usize = 64;

/// An extended attribute of what stands at `path`, at most [`ATTRIBUTE`] bytes: lgetxattr(2).
pub(crate) fn attribute(path: &Path, name: &CStr) -> nix::Result<Vec<u8>> {
    let path = super::mounts::c_string(path)?;
    let mut value = vec![0_u8; ATTRIBUTE];
    // SAFETY: both names are C strings and the buffer is as long as it is said to be.
    let length = unsafe {
        libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    value.truncate(usize::try_from(Errno::result(length)?).unwrap_or(0));
    Ok(value)
}

/// Sets an extended attribute of what stands at `path`: lsetxattr(2).
pub(crate) fn set_attribute(path: &Path, name: &CStr, value: &[u8]) -> nix::Result<()> {
    let path = super::mounts::c_string(path)?;
    // SAFETY: both names are C strings and the value is as long as it is said to be.
    let done = unsafe {
        libc::lsetxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    Errno::result(done).map(drop)
}
