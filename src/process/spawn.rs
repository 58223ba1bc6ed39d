//! Spawning: how the runner starts a reaper and hands it a command.
//!
//! In: a [`Launch`] and what goes with it. Out: the reaper's control socket, its child handle, and
//! our ends of the pipes. The runner itself never forks: a copy of its page tables costs 10 ms at
//! 500 MB (measured), and std's `Command` without hooks is `posix_spawn`.

use std::fs::File;
use std::io::{self, IoSlice, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::pipe2;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::capture::Sink;
use super::wire::Spec;
use super::{Launch, MARKER, ProcessError};

/// First argument of our binary when it is to be a reaper.
pub(crate) const INNER: &str = "__inner-stage";

/// What a reaper needs beside the command itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inner<'a> {
    /// Our binary.
    pub(crate) binary: &'a Path,
    /// Marks the reaper and the command as part of the run.
    pub(crate) marker: &'a str,
    /// Resource limits: number of the resource and its ceiling.
    pub(crate) limits: &'a [(u32, u64)],
    /// Read by the confinement's other half between fork and exec.
    pub(crate) confinement: &'a [u8],
    /// Handed to the confinement's other half.
    pub(crate) extra: Option<BorrowedFd<'a>>,
    /// When the whole tree is stopped, from the start.
    pub(crate) deadline: Option<Duration>,
}

/// The standard streams of a command.
#[derive(Debug)]
pub(crate) struct Streams {
    /// Descriptor 0.
    pub(crate) stdin: OwnedFd,
    /// Descriptor 1.
    pub(crate) stdout: OwnedFd,
    /// Descriptor 2.
    pub(crate) stderr: OwnedFd,
}

/// Starts a reaper for `launch`. Returns its control socket, non-blocking, and its handle.
pub(crate) fn spawn(
    launch: &Launch,
    inner: &Inner<'_>,
    streams: &Streams,
) -> Result<(OwnedFd, Child), ProcessError> {
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(channel("make a control socket"))?;
    let spec = memory(&spec(launch, inner).encode()).map_err(|source| ProcessError::Channel {
        what: "write the command into a memory file",
        source,
    })?;
    let mut fds: Vec<RawFd> = vec![
        spec.as_raw_fd(),
        streams.stdin.as_raw_fd(),
        streams.stdout.as_raw_fd(),
        streams.stderr.as_raw_fd(),
    ];
    fds.extend(inner.extra.map(|fd| fd.as_raw_fd()));
    sendmsg::<()>(
        ours.as_raw_fd(),
        &[IoSlice::new(b"c")],
        &[ControlMessage::ScmRights(&fds)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map_err(channel("hand the command over"))?;
    nix::fcntl::fcntl(&ours, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
        .map_err(channel("make the control socket non-blocking"))?;
    #[expect(clippy::disallowed_methods, reason = "this is where processes are started")]
    let mut command = Command::new(inner.binary);
    let child = command
        .arg(INNER)
        .env_clear()
        .env(MARKER, inner.marker)
        .current_dir("/")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| ProcessError::Spawn { binary: inner.binary.to_owned(), source })?;
    Ok((ours, child))
}

fn spec(launch: &Launch, inner: &Inner<'_>) -> Spec {
    let mut env: Vec<Vec<u8>> = launch
        .env
        .iter()
        .filter(|(name, _)| *name != MARKER)
        .map(|(name, value)| format!("{name}={value}").into_bytes())
        .collect();
    env.push(format!("{MARKER}={}", inner.marker).into_bytes());
    Spec {
        program: launch.program.as_os_str().as_bytes().to_vec(),
        argv: launch.argv.iter().map(|argument| argument.clone().into_bytes()).collect(),
        cwd: launch.cwd.as_os_str().as_bytes().to_vec(),
        env,
        limits: inner.limits.to_vec(),
        deadline: inner.deadline,
        confinement: inner.confinement.to_vec(),
    }
}

fn memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"command", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

pub(super) fn channel(what: &'static str) -> impl Fn(Errno) -> ProcessError {
    move |errno| ProcessError::Channel { what, source: errno.into() }
}

/// Makes a pipe for a command's stdin: what reads it and what we write to. The command can't open
/// its end again for writing.
pub(crate) fn input_pipe() -> Result<(OwnedFd, OwnedFd), ProcessError> {
    let (theirs, ours) = pipe2(OFlag::O_CLOEXEC).map_err(channel("make an input pipe"))?;
    fchmod(&theirs, Mode::S_IRUSR).map_err(channel("protect an input pipe"))?;
    Ok((theirs, ours))
}

/// Duplicates a descriptor, closed on exec.
pub(crate) fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, ProcessError> {
    fd.as_fd()
        .try_clone_to_owned()
        .map_err(|source| ProcessError::Channel { what: "duplicate a pipe", source })
}

/// Reads a pipe to its end into `take`, which says whether to go on.
pub(crate) async fn pump(mut from: pipe::Receiver, mut take: impl FnMut(&[u8]) -> bool) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        if !take(&chunk[..length]) {
            break;
        }
        // `yes` never lets the pipe run dry; the timers of this thread must have their turn.
        tokio::task::yield_now().await;
    }
}

/// Reads a pipe to its end into a sink.
pub(super) async fn collect(from: pipe::Receiver, sink: Arc<Mutex<Sink>>) {
    pump(from, |chunk| {
        sink.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
        true
    })
    .await;
}
