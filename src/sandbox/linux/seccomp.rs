//! seccomp: which system calls a command may make, and with which arguments.
//!
//! In: what of the network and of unix sockets is allowed. Out: one BPF program as bytes. Calls
//! are found by binary search: the kernel runs the filter for every call number when it is
//! installed, and a straight line of 430 instructions costs 0.9 ms (measured).

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BackendError, BpfProgram, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompRule,
    sock_filter,
};

use crate::profile::Network;

/// What of unix sockets is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnixSockets {
    /// All; no socket of the host is within reach.
    Open,
    /// Pairs and listening only: a socket of the host is within reach, and seccomp can't see the
    /// path that `connect` is given.
    NoConnect,
}

/// Instructions of classic BPF: `linux/bpf_common.h`.
const LOAD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Offsets in `struct seccomp_data`: seccomp(2).
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// `AUDIT_ARCH_*`: linux/audit.h.
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;

/// Bit of the calls of the x32 ABI, which share the architecture of x86-64.
const X32: u32 = 0x4000_0000;

/// Calls that libc does not name on every architecture; the numbers are the same on all since 5.1.
const OPEN_TREE_ATTR: i64 = 467;
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;

/// Namespaces that clone(2) can make.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

const SET_ID: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];

/// The kind bits of a socket's type, without `SOCK_CLOEXEC` and `SOCK_NONBLOCK`.
const SOCKET_TYPE: u64 = 0xf;

/// What a filter says about one call.
enum Verdict {
    /// This error number, always.
    Deny(i32),
    /// This error number when one of the rules matches.
    DenyIf(i32, Vec<SeccompRule>),
    /// This error number when none of the rules matches.
    AllowIf(i32, Vec<SeccompRule>),
    /// The supervisor is asked, always.
    Ask,
    /// The supervisor is asked when one of the rules matches.
    AskIf(Vec<SeccompRule>),
    /// The first case with a rule that matches decides, else the last.
    Cases(Vec<(Case, Vec<SeccompRule>)>, Case),
}

/// What is said in one case.
#[derive(Clone, Copy)]
enum Case {
    Allow,
    Deny(i32),
    Ask,
}

type Table = BTreeMap<i64, Verdict>;

/// Makes the filter of a command without namespaces of its own, eight bytes an instruction.
pub(crate) fn filter(network: Network, unix: UnixSockets) -> Result<Vec<u8>, BackendError> {
    let mut table = Table::new();
    deny(&mut table);
    stand_in(&mut table);
    deny_unseen(&mut table);
    arguments(&mut table)?;
    set_id(&mut table)?;
    sockets(&mut table, network, unix)?;
    Ok(assemble(table))
}

/// Makes the filter of a command under a supervisor.
pub(crate) fn supervised(asked: Asked) -> Result<Vec<u8>, BackendError> {
    let mut table = Table::new();
    deny(&mut table);
    stand_in(&mut table);
    deny_unseen(&mut table);
    arguments(&mut table)?;
    set_id(&mut table)?;
    asked::ask(&mut table, asked)?;
    Ok(assemble(table))
}

/// Makes the filter of a command in namespaces of its own: System V IPC, attributes of files and the
/// network are its own or guarded by mounts.
pub(crate) fn inside() -> Result<Vec<u8>, BackendError> {
    let mut table = Table::new();
    deny(&mut table);
    stand_in(&mut table);
    arguments(&mut table)?;
    set_id(&mut table)?;
    sockets(&mut table, Network::Full, UnixSockets::Open)?;
    Ok(assemble(table))
}

fn assemble(table: Table) -> Vec<u8> {
    let table: Vec<(u32, BpfProgram)> = table
        .into_iter()
        .filter_map(|(number, verdict)| Some((u32::try_from(number).ok()?, body(verdict))))
        .collect();
    let mut program = vec![
        statement(LOAD, ARCHITECTURE),
        jump(JUMP_EQUAL, NATIVE, 1, 0),
        statement(RETURN, libc::SECCOMP_RET_KILL_PROCESS),
        statement(LOAD, NUMBER),
    ];
    if cfg!(target_arch = "x86_64") {
        program.push(jump(JUMP_AT_LEAST, X32, 0, 1));
        program.push(error(libc::ENOSYS));
    }
    program.extend(search(&table));
    program.iter().flat_map(bytes).collect()
}

/// A tree over the sorted calls; falls to "allow" for a call that is not among them.
fn search(table: &[(u32, BpfProgram)]) -> BpfProgram {
    match table {
        [] => vec![allow()],
        [(number, body)] => {
            let mut program = vec![jump(JUMP_EQUAL, *number, 1, 0), allow()];
            program.extend(body.iter().cloned());
            program
        }
        _ => {
            let (low, high) = table.split_at(table.len() / 2);
            let pivot = high.first().map_or(0, |(number, _)| *number);
            let low = search(low);
            let mut program = vec![
                jump(JUMP_AT_LEAST, pivot, 0, 1),
                statement(JUMP, u32::try_from(low.len()).unwrap_or(u32::MAX)),
            ];
            program.extend(low);
            program.extend(search(high));
            program
        }
    }
}

fn body(verdict: Verdict) -> BpfProgram {
    let (cases, otherwise) = match verdict {
        Verdict::Deny(number) => (Vec::new(), Case::Deny(number)),
        Verdict::Ask => (Vec::new(), Case::Ask),
        Verdict::DenyIf(number, rules) => (vec![(Case::Deny(number), rules)], Case::Allow),
        Verdict::AllowIf(number, rules) => (vec![(Case::Allow, rules)], Case::Deny(number)),
        Verdict::AskIf(rules) => (vec![(Case::Ask, rules)], Case::Allow),
        Verdict::Cases(cases, otherwise) => (cases, otherwise),
    };
    let mut program = BpfProgram::new();
    for (case, rules) in cases {
        for rule in rules {
            // A rule that matches falls through to what stands behind it, else it jumps over that.
            program.extend(BpfProgram::from(rule));
            program.push(say(case));
        }
    }
    program.push(say(otherwise));
    program
}

fn say(case: Case) -> sock_filter {
    match case {
        Case::Allow => allow(),
        Case::Deny(number) => error(number),
        Case::Ask => statement(RETURN, libc::SECCOMP_RET_USER_NOTIF),
    }
}

/// Calls that reach other processes, the kernel, mounts or the machine.
fn deny(table: &mut Table) {
    for number in [
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_fanotify_init,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        OPEN_TREE_ATTR,
        libc::SYS_mount_setattr,
        libc::SYS_setns,
        libc::SYS_unshare,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_quotactl_fd,
        libc::SYS_clock_settime,
        libc::SYS_settimeofday,
        libc::SYS_clock_adjtime,
        libc::SYS_adjtimex,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_syslog,
        libc::SYS_vhangup,
        libc::SYS_name_to_handle_at,
        libc::SYS_open_by_handle_at,
        libc::SYS_lookup_dcookie,
        libc::SYS_migrate_pages,
    ] {
        table.insert(number, Verdict::Deny(libc::EPERM));
    }
    #[cfg(target_arch = "x86_64")]
    for number in [libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS__sysctl] {
        table.insert(number, Verdict::Deny(libc::EPERM));
    }
}

/// Calls on what has neither path nor namespace here.
fn deny_unseen(table: &mut Table) {
    for number in [
        // System V IPC is shared with the whole host when there is no namespace for it.
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_shmctl,
        libc::SYS_semget,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_semctl,
        libc::SYS_msgget,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        libc::SYS_msgctl,
        // POSIX message queues too.
        libc::SYS_mq_open,
        libc::SYS_mq_unlink,
    ] {
        table.insert(number, Verdict::Deny(libc::EPERM));
    }
    // Landlock knows no right for extended attributes. Callers take this for a file system without
    // them, which is common.
    for number in [
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        SETXATTRAT,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        REMOVEXATTRAT,
    ] {
        table.insert(number, Verdict::Deny(libc::EOPNOTSUPP));
    }
}

/// Calls that others stand in for: callers fall back to those, whose arguments a filter can see.
fn stand_in(table: &mut Table) {
    for number in [
        libc::SYS_clone3,
        libc::SYS_openat2,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ] {
        table.insert(number, Verdict::Deny(libc::ENOSYS));
    }
}

fn arguments(table: &mut Table) -> Result<(), BackendError> {
    let denied = |rules| Verdict::DenyIf(libc::EPERM, rules);
    let allowed = |rules| Verdict::AllowIf(libc::EPERM, rules);
    table.insert(libc::SYS_clone, allowed(vec![rule([masked(0, NAMESPACES, 0)?])?]));
    // Compared as 32 bits, as the kernel does: `TIOCSTI | 1 << 32` is TIOCSTI.
    table.insert(
        libc::SYS_ioctl,
        denied(vec![
            rule([equal(1, libc::TIOCSTI)?])?,
            rule([equal(1, libc::TIOCLINUX)?])?,
            rule([equal(1, libc::TIOCSETD)?])?,
        ]),
    );
    // Other processes' limits, priorities, processors and pages; 0 is the caller.
    table.insert(libc::SYS_prlimit64, allowed(vec![rule([equal(0, 0)?])?]));
    table.insert(libc::SYS_setpriority, allowed(vec![rule([equal(1, 0)?])?]));
    table.insert(libc::SYS_ioprio_set, allowed(vec![rule([equal(1, 0)?])?]));
    for number in [
        libc::SYS_move_pages,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
    ] {
        table.insert(number, allowed(vec![rule([equal(0, 0)?])?]));
    }
    Ok(())
}

/// Files that would run as their owner for whoever starts them on the host.
fn set_id(table: &mut Table) -> Result<(), BackendError> {
    let mode = |argument: u8| -> Result<Vec<SeccompRule>, BackendError> {
        SET_ID.iter().map(|&bit| rule([masked(argument, bit, bit)?])).collect()
    };
    // The mode counts only when a file is made.
    let open = |flags: u8| -> Result<Vec<SeccompRule>, BackendError> {
        let make = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];
        let makes = make.iter().map(|&flag| u64::from(flag.cast_unsigned()));
        makes
            .flat_map(|flag| SET_ID.map(|bit| (flag, bit)))
            .map(|(flag, bit)| rule([masked(flags, flag, flag)?, masked(flags + 1, bit, bit)?]))
            .collect()
    };
    let node = |argument: u8| -> Result<Vec<SeccompRule>, BackendError> {
        let format = u64::from(libc::S_IFMT);
        let mut rules = mode(argument)?;
        for kind in [libc::S_IFCHR, libc::S_IFBLK] {
            rules.push(rule([masked(argument, format, kind.into())?])?);
        }
        Ok(rules)
    };
    let denied = |rules| Verdict::DenyIf(libc::EPERM, rules);
    table.insert(libc::SYS_fchmod, denied(mode(1)?));
    table.insert(libc::SYS_fchmodat, denied(mode(2)?));
    table.insert(FCHMODAT2, denied(mode(2)?));
    table.insert(libc::SYS_mkdirat, denied(mode(2)?));
    table.insert(libc::SYS_openat, denied(open(2)?));
    table.insert(libc::SYS_mknodat, denied(node(2)?));
    #[cfg(target_arch = "x86_64")]
    {
        table.insert(libc::SYS_chmod, denied(mode(1)?));
        table.insert(libc::SYS_mkdir, denied(mode(1)?));
        table.insert(libc::SYS_creat, denied(mode(1)?));
        table.insert(libc::SYS_open, denied(open(1)?));
        table.insert(libc::SYS_mknod, denied(node(1)?));
    }
    Ok(())
}

fn sockets(table: &mut Table, network: Network, unix: UnixSockets) -> Result<(), BackendError> {
    let kind = |value: i32| masked(1, SOCKET_TYPE, number(value));
    let family = |value: i32| equal_number(0, value);
    let connected = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
    let mut made = Vec::new();
    let mut paired = Vec::new();
    match unix {
        UnixSockets::Open => {
            made.push(rule([family(libc::AF_UNIX)?])?);
            paired.push(rule([family(libc::AF_UNIX)?])?);
        }
        // A datagram socket reaches any path by `sendmsg`, also when it is half of a pair.
        UnixSockets::NoConnect => {
            for value in connected {
                paired.push(rule([family(libc::AF_UNIX)?, kind(value)?])?);
            }
        }
    }
    match (network, unix) {
        (Network::None | Network::Listed, UnixSockets::NoConnect) => {
            for value in connected {
                made.push(rule([family(libc::AF_UNIX)?, kind(value)?])?);
            }
            table.insert(libc::SYS_connect, Verdict::Deny(libc::EPERM));
        }
        (Network::None | Network::Listed, UnixSockets::Open) => {}
        (Network::Full, _) => {
            for value in [libc::AF_INET, libc::AF_INET6] {
                for socket in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
                    made.push(rule([family(value)?, kind(socket)?])?);
                }
            }
            let route = equal_number(2, libc::NETLINK_ROUTE)?;
            made.push(rule([family(libc::AF_NETLINK)?, route])?);
        }
    }
    table.insert(libc::SYS_socket, Verdict::AllowIf(libc::EPERM, made));
    table.insert(libc::SYS_socketpair, Verdict::AllowIf(libc::EPERM, paired));
    Ok(())
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

fn equal(argument: u8, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, value)
}

fn equal_number(argument: u8, value: i32) -> Result<SeccompCondition, BackendError> {
    equal(argument, number(value))
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, Dword, SeccompCmpOp::MaskedEq(mask), value)
}

fn number(value: i32) -> u64 {
    u64::from(value.cast_unsigned())
}

fn statement(code: u16, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn allow() -> sock_filter {
    statement(RETURN, libc::SECCOMP_RET_ALLOW)
}

fn error(number: i32) -> sock_filter {
    statement(RETURN, libc::SECCOMP_RET_ERRNO | (number.cast_unsigned() & 0xffff))
}

fn bytes(instruction: &sock_filter) -> [u8; 8] {
    let [code, code2] = instruction.code.to_ne_bytes();
    let [k, k2, k3, k4] = instruction.k.to_ne_bytes();
    [code, code2, instruction.jt, instruction.jf, k, k2, k3, k4]
}

mod asked;
pub(crate) use asked::Asked;

#[cfg(test)]
mod tests;
