//! Which calls the supervisor is asked about.
//!
//! In: what it has to guard. Out: verdicts. Only calls that need it: an ordinary open is not among them
//! unless something is carved out of a writable root.

use nix::libc;
use seccompiler::{BackendError, SeccompRule};

use super::{
    Case, FCHMODAT2, SOCKET_TYPE, Table, Verdict, equal, equal_number, masked, number, rule,
};

/// `TCP_FASTOPEN_CONNECT`: tcp(7).
const FAST_OPEN_CONNECT: i32 = 30;

/// `FS_IOC_SETFLAGS`, `FS_IOC32_SETFLAGS`, `FS_IOC_SETVERSION`, `FS_IOC_FSSETXATTR`: linux/fs.h.
/// They change attributes of a file that is only open for reading.
const FILE_FLAGS: [u64; 4] = [0x4008_6602, 0x4004_6602, 0x4008_7602, 0x401c_5820];

/// `file_setattr(2)`, which does the same by a path.
const FILE_SETATTR: i64 = 469;

/// What the supervisor guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Whether something is carved out of a writable root.
    pub(crate) writing: bool,
    /// Whether something in a writable root is unreadable.
    pub(crate) reading: bool,
    /// Whether the network is the host's: then sockets of datagrams are made too.
    pub(crate) is_open: bool,
    /// Whether processes are counted.
    pub(crate) counting: bool,
}

pub(super) fn ask(table: &mut Table, asked: Asked) -> Result<(), BackendError> {
    sockets(table, asked)?;
    attributes(table)?;
    files(table, asked)?;
    if asked.counting {
        let Some(Verdict::AllowIf(errno, rules)) = table.remove(&libc::SYS_clone) else {
            return Ok(());
        };
        table.insert(libc::SYS_clone, Verdict::Cases(vec![(Case::Ask, rules)], Case::Deny(errno)));
        #[cfg(target_arch = "x86_64")]
        for call in [libc::SYS_fork, libc::SYS_vfork] {
            table.insert(call, Verdict::Ask);
        }
    }
    // The supervisor must be able to look into its callers. Who asks to be unreadable is told that it
    // is so: Landlock keeps all others out.
    let hides = rule([equal_number(0, libc::PR_SET_DUMPABLE)?, equal(1, 0)?])?;
    table.insert(libc::SYS_prctl, Verdict::DenyIf(0, vec![hides]));
    Ok(())
}

fn sockets(table: &mut Table, asked: Asked) -> Result<(), BackendError> {
    let kind = |value: i32| masked(1, SOCKET_TYPE, number(value));
    let family = |value: i32| equal_number(0, value);
    let mut made = Vec::new();
    let mut paired = Vec::new();
    // A datagram socket reaches any path by `sendmsg`, also when it is half of a pair.
    for value in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
        made.push(rule([family(libc::AF_UNIX)?, kind(value)?])?);
        paired.push(rule([family(libc::AF_UNIX)?, kind(value)?])?);
    }
    for value in [libc::AF_INET, libc::AF_INET6] {
        // Not MPTCP, which passes Landlock.
        for protocol in [0, libc::IPPROTO_TCP] {
            let protocol = equal_number(2, protocol)?;
            made.push(rule([family(value)?, kind(libc::SOCK_STREAM)?, protocol])?);
        }
        if asked.is_open {
            made.push(rule([family(value)?, kind(libc::SOCK_DGRAM)?])?);
        }
    }
    let mut cases = vec![(Case::Ask, made)];
    if asked.is_open {
        let route = equal_number(2, libc::NETLINK_ROUTE)?;
        cases.push((Case::Allow, vec![rule([family(libc::AF_NETLINK)?, route])?]));
    }
    table.insert(libc::SYS_socket, Verdict::Cases(cases, Case::Deny(libc::EPERM)));
    table.insert(libc::SYS_socketpair, Verdict::AllowIf(libc::EPERM, paired));
    for call in [
        libc::SYS_bind,
        libc::SYS_connect,
        libc::SYS_listen,
        libc::SYS_getsockname,
        libc::SYS_getpeername,
    ] {
        table.insert(call, Verdict::Ask);
    }
    if !asked.is_open {
        // These connect without `connect`.
        let fast = number(libc::MSG_FASTOPEN);
        for (call, flags) in
            [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)]
        {
            let rules = vec![rule([masked(flags, fast, fast)?])?];
            table.insert(call, Verdict::DenyIf(libc::EOPNOTSUPP, rules));
        }
        let option = [equal_number(1, libc::IPPROTO_TCP)?, equal_number(2, FAST_OPEN_CONNECT)?];
        let rules = vec![rule(option)?];
        table.insert(libc::SYS_setsockopt, Verdict::DenyIf(libc::ENOPROTOOPT, rules));
    }
    Ok(())
}

fn attributes(table: &mut Table) -> Result<(), BackendError> {
    for call in [
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
    ] {
        table.insert(call, Verdict::Ask);
    }
    #[cfg(target_arch = "x86_64")]
    for call in
        [libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat]
    {
        table.insert(call, Verdict::Ask);
    }
    for call in [libc::SYS_fchmod, libc::SYS_fchmodat, FCHMODAT2] {
        then_ask(table, call, None);
    }
    #[cfg(target_arch = "x86_64")]
    then_ask(table, libc::SYS_chmod, None);
    table.insert(FILE_SETATTR, Verdict::Deny(libc::ENOSYS));
    if let Some(Verdict::DenyIf(_, rules)) = table.get_mut(&libc::SYS_ioctl) {
        for request in FILE_FLAGS {
            rules.push(rule([equal(1, request)?])?);
        }
    }
    Ok(())
}

fn files(table: &mut Table, asked: Asked) -> Result<(), BackendError> {
    let flag = |argument: u8, mask: i32, value: i32| {
        rule([masked(argument, number(mask), number(value))?])
    };
    let opens = |argument: u8| -> Result<Option<Vec<SeccompRule>>, BackendError> {
        if asked.reading {
            return Ok(None);
        }
        // So are shared memory and semaphores opened, and little else.
        let kinds = libc::O_NOFOLLOW | libc::O_DIRECTORY | libc::O_PATH;
        let makes = libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_ACCMODE;
        let mut rules = vec![
            flag(argument, kinds, libc::O_NOFOLLOW)?,
            flag(argument, makes, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR)?,
        ];
        if asked.writing {
            for bit in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC] {
                rules.push(flag(argument, bit, bit)?);
            }
        }
        Ok(Some(rules))
    };
    then_ask(table, libc::SYS_openat, opens(2)?);
    // It would read a file that nobody opened.
    #[cfg(target_arch = "x86_64")]
    table.insert(libc::SYS_uselib, Verdict::Deny(libc::EPERM));
    #[cfg(target_arch = "x86_64")]
    then_ask(table, libc::SYS_open, opens(1)?);
    // Semaphores are made under another name, and then renamed by these.
    #[cfg(target_arch = "x86_64")]
    for call in [libc::SYS_link, libc::SYS_unlink] {
        table.insert(call, Verdict::Ask);
    }
    if asked.writing || cfg!(target_arch = "aarch64") {
        for call in [libc::SYS_linkat, libc::SYS_unlinkat] {
            table.insert(call, Verdict::Ask);
        }
    }
    if !asked.writing {
        return Ok(());
    }
    for call in [libc::SYS_mkdirat, libc::SYS_mknodat] {
        then_ask(table, call, None);
    }
    for call in [libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_symlinkat, libc::SYS_truncate] {
        table.insert(call, Verdict::Ask);
    }
    #[cfg(target_arch = "x86_64")]
    {
        for call in [libc::SYS_creat, libc::SYS_mkdir, libc::SYS_mknod] {
            then_ask(table, call, None);
        }
        for call in [libc::SYS_rmdir, libc::SYS_rename, libc::SYS_symlink] {
            table.insert(call, Verdict::Ask);
        }
    }
    Ok(())
}

/// Asks after what is denied already was denied: when one of `rules` matches, or always.
fn then_ask(table: &mut Table, call: i64, rules: Option<Vec<SeccompRule>>) {
    let denied = match table.remove(&call) {
        Some(Verdict::DenyIf(errno, denied)) => vec![(Case::Deny(errno), denied)],
        _ => Vec::new(),
    };
    let verdict = match (denied.is_empty(), rules) {
        (true, None) => Verdict::Ask,
        (true, Some(rules)) => Verdict::AskIf(rules),
        (false, None) => Verdict::Cases(denied, Case::Ask),
        (false, Some(rules)) => {
            let asked = std::iter::once((Case::Ask, rules));
            Verdict::Cases(denied.into_iter().chain(asked).collect(), Case::Allow)
        }
    };
    table.insert(call, verdict);
}
