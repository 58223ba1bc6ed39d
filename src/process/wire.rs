//! What runner and reaper say to each other.
//!
//! In: a [`Spec`] and small messages. Out: bytes; the spec travels in a memory file, the messages
//! as packets of [`PACKET`] bytes. Both ends are the same binary, so there is no version.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::sys;

/// Size of a packet: six little-endian `u64`.
pub(crate) const PACKET: usize = 48;

/// Everything that the reaper must know to start a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Absolute path of the program.
    pub(crate) program: Vec<u8>,
    /// Arguments, the program's name included.
    pub(crate) argv: Vec<Vec<u8>>,
    /// Absolute working folder.
    pub(crate) cwd: Vec<u8>,
    /// `NAME=value`.
    pub(crate) env: Vec<Vec<u8>>,
    /// Resource limits: number of the resource and its ceiling.
    pub(crate) limits: Vec<(u32, u64)>,
    /// When the tree is stopped.
    pub(crate) deadline: Option<Duration>,
}

/// What failed before exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Reading what to do.
    Receive,
    /// unshare(2), uid maps, what belongs to a namespace.
    Namespaces,
    /// Mounts.
    Mounts,
    /// The supervisor of notified system calls.
    Supervisor,
    /// fork(2).
    Fork,
    /// setsid(2).
    Session,
    /// dup2(2) of the standard streams.
    Streams,
    /// Signal dispositions and mask.
    Signals,
    /// setrlimit(2).
    Limits,
    /// chdir(2).
    Cwd,
    /// capset(2).
    Capabilities,
    /// `PR_SET_NO_NEW_PRIVS`.
    NoNewPrivs,
    /// `landlock_restrict_self(2)`.
    Landlock,
    /// seccomp(2).
    Seccomp,
    /// `close_range(2)`.
    Descriptors,
    /// execve(2).
    Exec,
}

impl Step {
    const ALL: [Self; 16] = [
        Self::Receive,
        Self::Namespaces,
        Self::Mounts,
        Self::Supervisor,
        Self::Fork,
        Self::Session,
        Self::Streams,
        Self::Signals,
        Self::Limits,
        Self::Cwd,
        Self::Capabilities,
        Self::NoNewPrivs,
        Self::Landlock,
        Self::Seccomp,
        Self::Descriptors,
        Self::Exec,
    ];

    /// The system call or what it is for.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Receive => "receiving the command",
            Self::Namespaces => "making the namespaces",
            Self::Mounts => "making the mounts",
            Self::Supervisor => "starting the supervisor",
            Self::Fork => "fork",
            Self::Session => "setsid",
            Self::Streams => "dup2 of the standard streams",
            Self::Signals => "sigaction",
            Self::Limits => "setrlimit",
            Self::Cwd => "chdir",
            Self::Capabilities => "capset",
            Self::NoNewPrivs => "prctl(PR_SET_NO_NEW_PRIVS)",
            Self::Landlock => "landlock_restrict_self",
            Self::Seccomp => "seccomp",
            Self::Descriptors => "close_range",
            Self::Exec => "execve",
        }
    }
}

/// A step and the error number of its system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Step.
    pub(crate) step: Step,
    /// `errno`.
    pub(crate) errno: i32,
}

/// A message from the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToReaper {
    /// SIGINT to the command's process group.
    Interrupt,
    /// Count the descendants.
    Count,
    /// SIGTERM, this much grace, then SIGKILL to every descendant.
    Stop(Duration),
}

/// A message from the starter or a reaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FromReaper {
    /// The starter takes orders.
    Ready,
    /// The command is about to be executed. It says so itself, so that the kernel attaches its
    /// process id as the receiver sees it.
    Here,
    /// The program runs.
    Started,
    /// It could not be started.
    Failed(Failure),
    /// The main process ended.
    Ended {
        /// Raw wait status.
        status: i32,
        /// Whether the deadline had passed.
        timed_out: bool,
        /// Time since the start.
        wall: Duration,
        /// Processor time.
        cpu: Duration,
        /// Descendants alive.
        survivors: u32,
    },
    /// Answer to [`ToReaper::Count`]: descendants alive without the main process.
    Count(u32),
    /// Nothing is left but these, which outlived SIGKILL. The last message.
    Gone {
        /// How many.
        unkilled: u32,
    },
}

impl ToReaper {
    pub(crate) fn encode(self) -> [u8; PACKET] {
        match self {
            Self::Interrupt => packet([1, 0, 0, 0, 0, 0]),
            Self::Count => packet([2, 0, 0, 0, 0, 0]),
            Self::Stop(grace) => packet([3, millis(grace), 0, 0, 0, 0]),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [kind, value, ..] = numbers(bytes)?;
        match kind {
            1 => Some(Self::Interrupt),
            2 => Some(Self::Count),
            3 => Some(Self::Stop(Duration::from_millis(value))),
            _ => None,
        }
    }
}

impl FromReaper {
    pub(crate) fn encode(self) -> [u8; PACKET] {
        match self {
            Self::Started => packet([1, 0, 0, 0, 0, 0]),
            Self::Ready => packet([6, 0, 0, 0, 0, 0]),
            Self::Here => packet([7, 0, 0, 0, 0, 0]),
            Self::Failed(failure) => {
                packet([2, failure.step as u64, u64::from(failure.errno.cast_unsigned()), 0, 0, 0])
            }
            Self::Ended { status, timed_out, wall, cpu, survivors } => packet([
                3,
                u64::from(status.cast_unsigned()),
                u64::from(timed_out),
                micros(wall),
                micros(cpu),
                survivors.into(),
            ]),
            Self::Count(count) => packet([4, count.into(), 0, 0, 0, 0]),
            Self::Gone { unkilled } => packet([5, unkilled.into(), 0, 0, 0, 0]),
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [kind, fields @ ..] = numbers(bytes)?;
        let small = |at: usize| u32::try_from(fields[at]).ok();
        match kind {
            1 => Some(Self::Started),
            2 => Some(Self::Failed(Failure {
                step: *Step::ALL.get(usize::try_from(fields[0]).ok()?)?,
                errno: small(1)?.cast_signed(),
            })),
            3 => Some(Self::Ended {
                status: small(0)?.cast_signed(),
                timed_out: fields[1] != 0,
                wall: Duration::from_micros(fields[2]),
                cpu: Duration::from_micros(fields[3]),
                survivors: small(4)?,
            }),
            4 => Some(Self::Count(small(0)?)),
            5 => Some(Self::Gone { unkilled: small(0)? }),
            6 => Some(Self::Ready),
            7 => Some(Self::Here),
            _ => None,
        }
    }
}

/// What came over a control socket.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// The message; `None` at the socket's end.
    pub(crate) message: Option<FromReaper>,
    /// Process id of the sender as this process sees it, when the socket asks for it.
    pub(crate) pid: u32,
    /// Descriptors.
    pub(crate) fds: Vec<OwnedFd>,
}

/// Receives one message without waiting.
pub(crate) fn receive(control: BorrowedFd<'_>) -> nix::Result<Received> {
    let mut bytes = [0; PACKET];
    let mut space = nix::cmsg_space!(nix::libc::ucred, [RawFd; 32]);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = match recvmsg::<()>(control.as_raw_fd(), &mut slices, Some(&mut space), flags) {
        // A peer that died with unread messages of ours resets the socket.
        Err(Errno::ECONNRESET) => return Ok(Received::default()),
        other => other?,
    };
    let mut received = Received::default();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = part {
            received.fds.extend(fds.into_iter().map(sys::adopt));
        } else if let ControlMessageOwned::ScmCredentials(who) = part {
            received.pid = who.pid().unsigned_abs();
        }
    }
    let length = message.bytes;
    received.message = bytes.get(..length).and_then(FromReaper::decode);
    Ok(received)
}

fn packet(values: [u64; 6]) -> [u8; PACKET] {
    let mut bytes = [0; PACKET];
    for (slot, value) in bytes.chunks_exact_mut(8).zip(values) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn numbers(bytes: &[u8]) -> Option<[u64; 6]> {
    let mut values = [0; 6];
    if bytes.len() != PACKET {
        return None;
    }
    for (value, slot) in values.iter_mut().zip(bytes.chunks_exact(8)) {
        *value = u64::from_le_bytes(slot.try_into().ok()?);
    }
    Some(values)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Spec {
    /// Writes the spec: each string behind its length, each list behind its count.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, &self.program);
        put_list(&mut out, &self.argv);
        put(&mut out, &self.cwd);
        put_list(&mut out, &self.env);
        out.extend((self.limits.len() as u64).to_le_bytes());
        for (resource, most) in &self.limits {
            out.extend(u64::from(*resource).to_le_bytes());
            out.extend(most.to_le_bytes());
        }
        out.extend(self.deadline.map_or(u64::MAX, millis).to_le_bytes());
        out
    }

    /// Reads what [`Spec::encode`] wrote; `None` for anything else.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let program = take(from)?;
        let argv = take_list(from)?;
        let cwd = take(from)?;
        let env = take_list(from)?;
        let mut limits = Vec::new();
        for _ in 0..take_number(from)? {
            limits.push((u32::try_from(take_number(from)?).ok()?, take_number(from)?));
        }
        let deadline = Some(take_number(from)?).filter(|&ms| ms != u64::MAX);
        let deadline = deadline.map(Duration::from_millis);
        Some(Self { program, argv, cwd, env, limits, deadline }).filter(|_| bytes.is_empty())
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn put_list(out: &mut Vec<u8>, list: &[Vec<u8>]) {
    out.extend((list.len() as u64).to_le_bytes());
    for item in list {
        put(out, item);
    }
}

fn take_number(from: &mut &[u8]) -> Option<u64> {
    let (number, rest) = from.split_first_chunk::<8>()?;
    *from = rest;
    Some(u64::from_le_bytes(*number))
}

fn take(from: &mut &[u8]) -> Option<Vec<u8>> {
    let length = usize::try_from(take_number(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes.to_vec())
}

fn take_list(from: &mut &[u8]) -> Option<Vec<Vec<u8>>> {
    (0..take_number(from)?).map(|_| take(from)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Failure, FromReaper, Spec, Step, ToReaper};

    #[test]
    fn a_spec_survives_the_way() {
        let spec = Spec {
            program: b"/bin/\xff".to_vec(),
            argv: vec![b"x".to_vec(), Vec::new()],
            cwd: b"/".to_vec(),
            env: vec![b"A=b".to_vec()],
            limits: vec![(4, 0), (6, 4096)],
            deadline: Some(Duration::from_millis(12)),
        };
        let bytes = spec.encode();
        assert_eq!(Spec::decode(&bytes), Some(spec));
        assert_eq!(Spec::decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Spec::decode(&[&bytes[..], b"x"].concat()), None);
    }

    #[test]
    fn messages_survive_the_way() {
        for message in [ToReaper::Interrupt, ToReaper::Count, ToReaper::Stop(Duration::ZERO)] {
            assert_eq!(ToReaper::decode(&message.encode()), Some(message));
        }
        for message in [
            FromReaper::Ready,
            FromReaper::Here,
            FromReaper::Started,
            FromReaper::Failed(Failure { step: Step::Exec, errno: 2 }),
            FromReaper::Ended {
                status: 0x8b,
                timed_out: true,
                wall: Duration::from_micros(5),
                cpu: Duration::from_micros(6),
                survivors: 2,
            },
            FromReaper::Count(3),
            FromReaper::Gone { unkilled: 0 },
        ] {
            assert_eq!(FromReaper::decode(&message.encode()), Some(message));
        }
        assert_eq!(FromReaper::decode(b"short"), None);
    }

    #[test]
    fn every_step_has_its_number() {
        for (number, step) in Step::ALL.iter().enumerate() {
            assert_eq!(*step as usize, number);
        }
    }
}
