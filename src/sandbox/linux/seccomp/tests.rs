//! The filter, run instruction by instruction.

use nix::libc;

use super::{NATIVE, Network, UnixSockets, filter};

/// Runs a filter as the kernel does. Returns the error number of the call; 0 is "allowed".
fn verdict(program: &[u8], arch: u32, number: i64, arguments: &[u64]) -> u32 {
    let mut data = [0; 64];
    data[..4].copy_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
    data[4..8].copy_from_slice(&arch.to_le_bytes());
    for (slot, argument) in data[16..].chunks_exact_mut(8).zip(arguments) {
        slot.copy_from_slice(&argument.to_le_bytes());
    }
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let code = u16::from_ne_bytes(program[at * 8..at * 8 + 2].try_into().unwrap());
        let (jt, jf) = (usize::from(program[at * 8 + 2]), usize::from(program[at * 8 + 3]));
        let k = u32::from_ne_bytes(program[at * 8 + 4..at * 8 + 8].try_into().unwrap());
        let branch = |is_so: bool| at + 1 + if is_so { jt } else { jf };
        at = match code {
            0x20 => {
                let from = usize::try_from(k).unwrap();
                accumulator = u32::from_le_bytes(data[from..from + 4].try_into().unwrap());
                at + 1
            }
            0x54 => {
                accumulator &= k;
                at + 1
            }
            0x05 => at + 1 + usize::try_from(k).unwrap(),
            0x15 => branch(accumulator == k),
            0x35 => branch(accumulator >= k),
            0x06 if k == libc::SECCOMP_RET_ALLOW => return 0,
            0x06 if k == libc::SECCOMP_RET_KILL_PROCESS => return u32::MAX,
            0x06 => return k & 0xffff,
            other => panic!("instruction {other:#x}"),
        };
    }
}

const PERM: u32 = libc::EPERM as u32;
const NOSYS: u32 = libc::ENOSYS as u32;
const UNIX: u64 = libc::AF_UNIX as u64;
const INET: u64 = libc::AF_INET as u64;
const STREAM: u64 = libc::SOCK_STREAM as u64;
const DGRAM: u64 = libc::SOCK_DGRAM as u64;
const CLOEXEC: u64 = libc::SOCK_CLOEXEC as u64;

#[test]
fn calls_are_judged_by_number_and_argument() {
    let program = filter(Network::None, UnixSockets::Open).unwrap();
    for (number, arguments, expected) in [
        (libc::SYS_read, vec![], 0),
        (libc::SYS_execve, vec![], 0),
        (libc::SYS_ptrace, vec![], PERM),
        (libc::SYS_shmget, vec![], PERM),
        (libc::SYS_clone3, vec![], NOSYS),
        (libc::SYS_io_uring_setup, vec![], NOSYS),
        (libc::SYS_clone, vec![libc::SIGCHLD as u64], 0),
        (libc::SYS_clone, vec![libc::CLONE_NEWUSER as u64 | libc::SIGCHLD as u64], PERM),
        (libc::SYS_ioctl, vec![0, libc::TCGETS], 0),
        (libc::SYS_ioctl, vec![0, libc::TIOCSTI], PERM),
        (libc::SYS_ioctl, vec![0, libc::TIOCSTI | 1 << 32], PERM),
        (libc::SYS_openat, vec![0, 0, 0, 0o4755], 0),
        (libc::SYS_openat, vec![0, 0, libc::O_CREAT as u64, 0o4755], PERM),
        (libc::SYS_openat, vec![0, 0, libc::O_TMPFILE as u64, 0o2755], PERM),
        (libc::SYS_openat, vec![0, 0, libc::O_DIRECTORY as u64, 0o4755], 0),
        (libc::SYS_openat, vec![0, 0, libc::O_CREAT as u64, 0o755], 0),
        (libc::SYS_fchmodat, vec![0, 0, 0o6755], PERM),
        (libc::SYS_fchmodat, vec![0, 0, 0o1777], 0),
        (libc::SYS_mknodat, vec![0, 0, u64::from(libc::S_IFIFO) | 0o600], 0),
        (libc::SYS_mknodat, vec![0, 0, u64::from(libc::S_IFCHR) | 0o600], PERM),
        (libc::SYS_mknodat, vec![0, 0, u64::from(libc::S_IFSOCK) | 0o600], 0),
        (libc::SYS_prlimit64, vec![0], 0),
        (libc::SYS_prlimit64, vec![7], PERM),
        (libc::SYS_socket, vec![UNIX, DGRAM | CLOEXEC], 0),
        (libc::SYS_socket, vec![INET, STREAM], PERM),
        (libc::SYS_socketpair, vec![UNIX, STREAM], 0),
        (libc::SYS_socketpair, vec![INET, STREAM], PERM),
        (libc::SYS_connect, vec![], 0),
        (1000, vec![], 0),
    ] {
        let found = verdict(&program, NATIVE, number, &arguments);
        assert_eq!(found, expected, "call {number} with {arguments:x?}");
    }
}

#[test]
fn other_architectures_find_no_way_around() {
    let program = filter(Network::Full, UnixSockets::Open).unwrap();
    // i386, by `int 0x80`.
    assert_eq!(verdict(&program, 0x4000_0003, libc::SYS_getpid, &[]), u32::MAX);
    #[cfg(target_arch = "x86_64")]
    assert_eq!(verdict(&program, NATIVE, libc::SYS_ptrace | 0x4000_0000, &[]), NOSYS);
}

#[test]
fn sockets_follow_network_and_reach() {
    let vsock = libc::AF_VSOCK as u64;
    let netlink = libc::AF_NETLINK as u64;
    let raw = libc::SOCK_RAW as u64;
    let open = filter(Network::Full, UnixSockets::Open).unwrap();
    let near = filter(Network::Full, UnixSockets::NoConnect).unwrap();
    let none = filter(Network::None, UnixSockets::NoConnect).unwrap();
    for (call, arguments, expected) in [
        (libc::SYS_socket, vec![INET, STREAM | CLOEXEC], [0, 0, PERM]),
        (libc::SYS_socket, vec![INET, raw], [PERM, PERM, PERM]),
        (libc::SYS_socket, vec![vsock, STREAM], [PERM, PERM, PERM]),
        (libc::SYS_socket, vec![netlink, raw, 0], [0, 0, PERM]),
        (libc::SYS_socket, vec![netlink, raw, 15], [PERM, PERM, PERM]),
        (libc::SYS_socket, vec![UNIX, STREAM], [0, PERM, 0]),
        (libc::SYS_socket, vec![UNIX, DGRAM], [0, PERM, PERM]),
        (libc::SYS_socket, vec![UNIX, raw], [0, PERM, PERM]),
        (libc::SYS_socketpair, vec![UNIX, STREAM], [0, 0, 0]),
        (libc::SYS_socketpair, vec![UNIX, DGRAM], [0, PERM, PERM]),
        (libc::SYS_connect, vec![], [0, 0, PERM]),
    ] {
        let found = [&open, &near, &none].map(|p| verdict(p, NATIVE, call, &arguments));
        assert_eq!(found, expected, "call {call} with {arguments:x?}");
    }
}
