//! The starter, from inside: sets the confinement up once, then forks a reaper a command.
//!
//! In: orders over the control socket, which is descriptor 0. Out: reapers, each with a socket of
//! its own to the runner. One thread, no secrets; the end of its socket ends it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::unistd::{Pid, getpid, setsid};

use super::family;
use super::reaper::{self, at};
use super::sys::{self, Reap};
use super::wire::{Failure, FromReaper, Spec, Step};

/// The confinement's other half: what happens inside, and when.
pub(crate) trait Confinement {
    /// Once, in the fresh starter. Returns descriptors for the runner.
    fn enter(&mut self, setup: &[u8], fds: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Failure>;

    /// Flags of the clone(2) that makes a reaper: `CLONE_NEWPID` and `CLONE_NEWNS`, or 0.
    fn reaper_flags(&self) -> i32;

    /// In a new reaper, first thing.
    fn adopt(&self) -> Result<(), Failure>;

    /// In the forked command, last before exec.
    fn confine(&self) -> Result<(), Failure>;
}

/// Runs the starter to its end.
pub(crate) fn run(confinement: &mut dyn Confinement) -> ExitCode {
    let control = sys::adopt(0);
    match set_up(&control, confinement) {
        Ok(signals) => serve(&control, &signals, confinement),
        Err(failure) => {
            reaper::say(&control, FromReaper::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

/// Makes this process a quiet adopter of orphans, then enters the confinement.
///
/// No `PR_SET_PDEATHSIG`: it fires when the *thread* that spawned ends, and the end of the control
/// socket says the same without that.
fn set_up(control: &OwnedFd, confinement: &mut dyn Confinement) -> Result<SignalFd, Failure> {
    let signals = quiet().map_err(at(Step::Receive))?;
    let mut fds = take(control).filter(|fds| !fds.is_empty());
    let mut fds = fds.take().ok_or(Failure { step: Step::Receive, errno: 0 })?;
    let setup = read(fds.remove(0)).ok_or(Failure { step: Step::Receive, errno: 0 })?;
    let made = confinement.enter(&setup, fds)?;
    let raw: Vec<_> = made.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    sendmsg::<()>(
        control.as_raw_fd(),
        &[std::io::IoSlice::new(&FromReaper::Ready.encode())],
        if raw.is_empty() { &[] } else { &rights },
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map_err(at(Step::Receive))?;
    Ok(signals)
}

/// No signal disturbs this process, nothing reads it, and orphans become its children.
pub(super) fn quiet() -> nix::Result<SignalFd> {
    prctl::set_child_subreaper(true)?;
    prctl::set_dumpable(false)?;
    // Fails for the leader of a group, which a spawned process is not.
    let _ = setsid();
    SigSet::all().thread_block()?;
    let mut heard = SigSet::empty();
    heard.add(Signal::SIGCHLD);
    heard.add(Signal::SIGTERM);
    SignalFd::with_flags(&heard, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

fn serve(control: &OwnedFd, signals: &SignalFd, confinement: &dyn Confinement) -> ExitCode {
    let mut reapers = HashSet::new();
    loop {
        bury(&mut reapers);
        let mut fds = [
            PollFd::new(control.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
        let has_order = fds[0].any().unwrap_or(true);
        while let Ok(Some(signal)) = signals.read_signal() {
            if signal.ssi_signo == Signal::SIGTERM as u32 {
                return ExitCode::FAILURE;
            }
        }
        if has_order {
            let Some(fds) = take(control) else { return ExitCode::SUCCESS };
            match sys::split(confinement.reaper_flags()) {
                Ok(Some(pid)) => drop(reapers.insert(pid)),
                Ok(None) => sys::leave(i32::from(reaper::run(fds, confinement))),
                // The reaper's end of the socket is among the descriptors.
                Err(errno) => {
                    if let Some(end) = fds.last() {
                        reaper::say(end, FromReaper::Failed(at(Step::Fork)(errno)));
                    }
                }
            }
        }
    }
}

/// Waits for what ended. A reaper that was killed leaves its tree to this process: it is killed.
fn bury(reapers: &mut HashSet<Pid>) {
    let mut was_killed = false;
    while let Ok(Reap::One(reaped)) = sys::reap() {
        was_killed |= reapers.remove(&reaped.pid) && reaped.status != 0;
    }
    if was_killed {
        for pid in family::strays(getpid(), reapers) {
            family::kill_descendants(pid);
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// Receives an order's descriptors; `None` at the end of the socket.
fn take(control: &OwnedFd) -> Option<Vec<OwnedFd>> {
    let mut byte = [0];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 16]);
    let mut slices = [std::io::IoSliceMut::new(&mut byte)];
    let message = loop {
        match recvmsg::<()>(
            control.as_raw_fd(),
            &mut slices,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) {
            Err(Errno::EINTR) => {}
            other => break other.ok()?,
        }
    };
    let mut fds = Vec::new();
    for part in message.cmsgs().ok()? {
        if let ControlMessageOwned::ScmRights(received) = part {
            fds.extend(received.into_iter().map(sys::adopt));
        }
    }
    (message.bytes > 0).then_some(fds)
}

/// Reads a memory file whole.
fn read(fd: OwnedFd) -> Option<Vec<u8>> {
    let mut file = File::from(fd);
    let mut bytes = Vec::new();
    file.rewind().ok()?;
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The spec of an order, its standard streams, and the reaper's end of the control socket.
pub(super) fn unpack(mut fds: Vec<OwnedFd>) -> Option<(Spec, [OwnedFd; 3], OwnedFd)> {
    if fds.len() != 5 {
        return None;
    }
    let control = fds.pop()?;
    let spec = Spec::decode(&read(fds.remove(0))?)?;
    Some((spec, fds.try_into().ok()?, control))
}
