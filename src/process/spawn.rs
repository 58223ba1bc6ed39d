//! Spawning: what the runner makes for a command before it is ordered.
//!
//! In: a [`Launch`] and what goes with it. Out: its spec as bytes in a memory file, and our ends of
//! its pipes. The runner itself never forks: a copy of its page tables costs 10 ms at 500 MB
//! (measured).

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::pipe2;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::capture::Sink;
use super::wire::Spec;
use super::{Launch, MARKER, ProcessError, Quota};

/// What goes with a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    /// Value of the mark in the command's environment.
    pub(crate) marker: &'a str,
    /// Resource limits: number of the resource and its ceiling.
    pub(crate) limits: &'a [(u32, u64)],
    /// When the whole tree is stopped, from the start.
    pub(crate) deadline: Option<Duration>,
    /// What stops it sooner.
    pub(crate) quota: Option<&'a Quota>,
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

pub(super) fn spec(launch: &Launch, order: &Order<'_>) -> Spec {
    let mut env: Vec<Vec<u8>> = launch
        .env
        .iter()
        .filter(|(name, _)| *name != MARKER)
        .map(|(name, value)| format!("{name}={value}").into_bytes())
        .collect();
    env.push(format!("{MARKER}={}", order.marker).into_bytes());
    Spec {
        program: launch.program.as_os_str().as_bytes().to_vec(),
        argv: launch.argv.iter().map(|argument| argument.clone().into_bytes()).collect(),
        cwd: launch.cwd.as_os_str().as_bytes().to_vec(),
        env,
        limits: order.limits.to_vec(),
        deadline: order.deadline,
    }
}

/// A memory file with these bytes, to be read from its start.
pub(super) fn memory(bytes: &[u8]) -> Result<OwnedFd, ProcessError> {
    let write = || -> io::Result<OwnedFd> {
        let mut file = File::from(memfd_create(c"order", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(bytes)?;
        file.rewind()?;
        Ok(file.into())
    };
    write().map_err(|source| ProcessError::Channel { what: "write a memory file", source })
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
