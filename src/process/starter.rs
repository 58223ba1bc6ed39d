//! The starter, as the runner sees it: one small process a confinement, from which its commands are
//! forked.
//!
//! In: our binary and what its other half needs to set the confinement up. Out: reapers' control
//! sockets, one a command. It holds no secret: its environment is empty but for the mark, and the
//! runner is never forked. Knows nothing of confinement.

use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, setsockopt, socketpair,
    sockopt::PassCred,
};
use tokio::io::Interest;
use tokio::time::timeout;

use super::spawn::{Order, Streams, channel, memory, spec};
use super::wire::{FromReaper, receive};
use super::{Launch, MARKER, ProcessError, sys};
use crate::clock::Clock;

/// First argument of our binary when it is to be a starter.
pub(crate) const INNER: &str = "__inner-stage";

/// How long setting the confinement up may take. It takes milliseconds; a loaded machine gets its
/// time.
const SET_UP: Duration = Duration::from_secs(20);

/// How long a starter whose socket has ended may take to be gone.
const END: Duration = Duration::from_secs(5);

/// How to begin a starter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin<'a> {
    /// Our binary.
    pub(crate) binary: &'a Path,
    /// Marks starter, reapers and commands as part of the run.
    pub(crate) marker: &'a str,
    /// Read by the confinement's other half.
    pub(crate) setup: &'a [u8],
    /// Handed to the confinement's other half.
    pub(crate) fds: &'a [BorrowedFd<'a>],
}

/// A starter that takes orders. Dropping it ends it; reapers that live are told to kill their trees.
#[derive(Debug)]
pub(crate) struct Starter {
    binary: PathBuf,
    control: Option<OwnedFd>,
    child: Mutex<Child>,
}

impl Starter {
    /// Begins a starter and waits until its confinement stands. Returns it with the descriptors
    /// that the confinement made inside.
    pub(crate) async fn begin(how: Begin<'_>) -> Result<(Self, Vec<OwnedFd>), ProcessError> {
        let (ours, theirs) = pair()?;
        let setup = memory(how.setup)?;
        let fds: Vec<RawFd> = std::iter::once(setup.as_raw_fd())
            .chain(how.fds.iter().map(std::os::fd::AsRawFd::as_raw_fd))
            .collect();
        hand_over(&ours, &fds).map_err(channel("hand the confinement over"))?;
        non_blocking(&ours)?;
        #[expect(clippy::disallowed_methods, reason = "this is where processes are started")]
        let mut command = Command::new(how.binary);
        let child = command
            .arg(INNER)
            .env_clear()
            .env(MARKER, how.marker)
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| ProcessError::Spawn { binary: how.binary.to_owned(), source })?;
        let mut starter =
            Self { binary: how.binary.to_owned(), control: None, child: Mutex::new(child) };
        let watched = sys::watch(ours)
            .map_err(|source| ProcessError::Channel { what: "watch the control socket", source })?;
        let answer =
            timeout(SET_UP, watched.async_io(Interest::READABLE, |fd| Ok(receive(fd.as_fd())?)))
                .await
                .map_err(|_| ProcessError::Silent {
                    program: how.binary.to_owned(),
                    after: SET_UP,
                })?
                .map_err(|source| ProcessError::Channel { what: "hear the inner stage", source })?;
        starter.control = Some(watched.into_inner());
        match answer.message {
            Some(FromReaper::Ready) => {
                let control = starter.control.as_ref().ok_or_else(|| starter.lost(how.binary))?;
                nix::fcntl::fcntl(control, nix::fcntl::FcntlArg::F_SETFL(OFlag::empty()))
                    .map_err(channel("make the control socket blocking"))?;
                Ok((starter, answer.fds))
            }
            Some(FromReaper::Failed(failure)) => Err(ProcessError::Setup {
                program: how.binary.to_owned(),
                step: failure.step,
                source: std::io::Error::from_raw_os_error(failure.errno),
            }),
            _ => Err(starter.lost(how.binary)),
        }
    }

    /// Orders a command. Returns its reaper's control socket, non-blocking.
    pub(super) fn order(
        &self,
        launch: &Launch,
        order: &Order<'_>,
        streams: &Streams,
    ) -> Result<OwnedFd, ProcessError> {
        let Some(control) = &self.control else { return Err(self.lost(&launch.program)) };
        let (ours, theirs) = pair()?;
        // The command says itself that it is there; the kernel attaches its id in our view.
        setsockopt(&ours, PassCred, &true).map_err(channel("ask for process ids"))?;
        let spec = memory(&spec(launch, order).encode())?;
        let fds = [
            spec.as_raw_fd(),
            streams.stdin.as_raw_fd(),
            streams.stdout.as_raw_fd(),
            streams.stderr.as_raw_fd(),
            theirs.as_raw_fd(),
        ];
        match hand_over(control, &fds) {
            Ok(()) => {}
            Err(Errno::EPIPE | Errno::ECONNRESET) => return Err(self.lost(&launch.program)),
            Err(errno) => return Err(channel("hand the command over")(errno)),
        }
        non_blocking(&ours)?;
        Ok(ours)
    }

    fn lost(&self, program: &Path) -> ProcessError {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let status = match child.try_wait() {
            Ok(Some(status)) => status.to_string(),
            Ok(None) => format!("`{}` takes no orders", self.binary.display()),
            Err(error) => error.to_string(),
        };
        ProcessError::Lost { program: program.to_owned(), status }
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        self.control = None;
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let clock = Clock::start();
        while matches!(child.try_wait(), Ok(None)) {
            if clock.elapsed() > END {
                // It is our child and was not waited for, so the id is still its own.
                drop(child.kill());
                drop(child.wait());
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd), ProcessError> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
        .map_err(channel("make a control socket"))
}

fn non_blocking(fd: &OwnedFd) -> Result<(), ProcessError> {
    nix::fcntl::fcntl(fd, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
        .map_err(channel("make the control socket non-blocking"))?;
    Ok(())
}

fn hand_over(control: &OwnedFd, fds: &[RawFd]) -> nix::Result<()> {
    sendmsg::<()>(
        control.as_raw_fd(),
        &[std::io::IoSlice::new(b"c")],
        &[ControlMessage::ScmRights(fds)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map(drop)
}
