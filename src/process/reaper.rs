//! The reaper: the small process between the runner and a command.
//!
//! In: a [`Spec`] and descriptors over the control socket, which is descriptor 0. Out: how the
//! command ended, over the same socket. It adopts every orphan below it, so that nothing survives
//! the end of the socket: kill -9 of the runner closes it too (P9).

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::File;
use std::io::{IoSliceMut, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recv, recvmsg, send};
use nix::unistd::{self, Pid, getpid, pipe2, setsid};

use super::family;
use super::sys::{self, Reap};
use super::wire::{Failure, FromReaper, PACKET, Spec, Step, ToReaper};
use crate::clock::Clock;

/// Time between SIGTERM and SIGKILL when the deadline passes.
pub(crate) const DEADLINE_GRACE: Duration = Duration::from_millis(250);

/// How long to wait for killed processes to be gone. A process in uninterruptible sleep outlives
/// SIGKILL; ordinary I/O ends sooner. Our choice.
const REAP: Duration = Duration::from_secs(3);

/// Puts the confinement on the forked child: the last thing before exec.
pub(crate) type Confine<'a> = &'a dyn Fn(&[u8], &[OwnedFd]) -> Result<(), Failure>;

/// Runs the reaper to its end.
pub(crate) fn run(confine: Confine<'_>) -> ExitCode {
    let control = sys::adopt(0);
    match Reaper::start(&control, confine) {
        Ok(mut reaper) => reaper.serve(),
        Err(failure) => {
            say(&control, FromReaper::Failed(failure));
            ExitCode::FAILURE
        }
    }
}

struct Reaper<'a> {
    control: &'a OwnedFd,
    signals: SignalFd,
    clock: Clock,
    pid: Pid,
    deadline: Option<Duration>,
    /// When SIGTERM has had its time.
    kill_at: Option<Duration>,
    timed_out: bool,
    is_reported: bool,
}

/// What the loop does next.
enum Next {
    Go,
    /// The runner is gone.
    Abandoned,
    Done,
}

impl<'a> Reaper<'a> {
    fn start(control: &'a OwnedFd, confine: Confine<'_>) -> Result<Self, Failure> {
        let clock = Clock::start();
        let signals = prepare().map_err(at(Step::Receive))?;
        let (spec, fds) = receive(control).ok_or(Failure { step: Step::Receive, errno: 0 })?;
        let (said, says) = pipe2(OFlag::O_CLOEXEC).map_err(at(Step::Fork))?;
        let Some(pid) = sys::split().map_err(at(Step::Fork))? else {
            let Err(failure) = become_command(&spec, &fds, confine);
            report(says, failure);
            sys::leave(127);
        };
        drop(says);
        drop(fds);
        if let Some(failure) = outcome(&said, control) {
            family::kill_descendants(getpid());
            return Err(failure);
        }
        say(control, FromReaper::Started { pid: pid.as_raw().unsigned_abs() });
        Ok(Self {
            control,
            signals,
            clock,
            pid,
            deadline: spec.deadline,
            kill_at: None,
            timed_out: false,
            is_reported: false,
        })
    }

    fn serve(&mut self) -> ExitCode {
        loop {
            if !self.reap() {
                say(self.control, FromReaper::Gone { unkilled: 0 });
                return ExitCode::SUCCESS;
            }
            let now = self.clock.elapsed();
            if self.kill_at.is_some_and(|at| at <= now) {
                let unkilled = self.kill_all();
                say(self.control, FromReaper::Gone { unkilled });
                return ExitCode::SUCCESS;
            }
            if self.kill_at.is_none() && self.deadline.is_some_and(|at| at <= now) {
                self.timed_out = true;
                self.terminate(DEADLINE_GRACE);
                continue;
            }
            match self.listen(self.kill_at.or(self.deadline).map(|at| at.saturating_sub(now))) {
                Next::Go => {}
                Next::Abandoned => {
                    self.kill_all();
                    return ExitCode::FAILURE;
                }
                Next::Done => return ExitCode::FAILURE,
            }
        }
    }

    /// Reaps all that ended. Returns whether children are left.
    fn reap(&mut self) -> bool {
        loop {
            match sys::reap() {
                Ok(Reap::One(reaped)) if reaped.pid == self.pid && !self.is_reported => {
                    self.is_reported = true;
                    say(
                        self.control,
                        FromReaper::Ended {
                            status: reaped.status,
                            timed_out: self.timed_out,
                            wall: self.clock.elapsed(),
                            cpu: reaped.cpu,
                            survivors: survivors(None),
                        },
                    );
                }
                Ok(Reap::One(_)) | Err(Errno::EINTR) => {}
                Ok(Reap::Alive) => return true,
                Ok(Reap::None) | Err(_) => return false,
            }
        }
    }

    fn listen(&mut self, at_most: Option<Duration>) -> Next {
        // Rounded up, or the loop would spin through the last millisecond.
        let timeout = at_most.map_or(PollTimeout::NONE, |time| {
            let millis = i32::try_from(time.as_millis()).unwrap_or(i32::MAX).saturating_add(1);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = [
            PollFd::new(self.control.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return Next::Abandoned,
        }
        let [control, _] = fds;
        let has_message = control.any().unwrap_or(true);
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == Signal::SIGTERM as u32 {
                return Next::Abandoned;
            }
        }
        if has_message { self.obey() } else { Next::Go }
    }

    fn obey(&mut self) -> Next {
        let mut bytes = [0; PACKET];
        match recv(self.control.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN | Errno::EINTR) => return Next::Go,
            Ok(0) | Err(_) => return Next::Abandoned,
            Ok(_) => {}
        }
        match ToReaper::decode(&bytes) {
            Some(ToReaper::Interrupt) => drop(killpg(self.pid, Signal::SIGINT)),
            Some(ToReaper::Count) => {
                say(self.control, FromReaper::Count(survivors(Some(self.pid))));
            }
            Some(ToReaper::Stop(grace)) => self.terminate(grace),
            None => return Next::Done,
        }
        Next::Go
    }

    fn terminate(&mut self, grace: Duration) {
        if !grace.is_zero() {
            let all = family::descendants(getpid());
            family::signal_all(&all, Signal::SIGTERM);
            family::signal_all(&all, Signal::SIGCONT);
        }
        self.kill_at = Some(self.clock.elapsed() + grace);
    }

    /// Kills every descendant and waits until they are gone. Returns how many outlived it.
    fn kill_all(&mut self) -> u32 {
        let until = self.clock.elapsed() + REAP;
        loop {
            family::kill_descendants(getpid());
            if !self.reap() {
                return 0;
            }
            if self.clock.elapsed() > until {
                return survivors(None);
            }
            let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(5_u8));
            while let Ok(Some(_)) = self.signals.read_signal() {}
        }
    }
}

/// Counts the descendants, without the main process when it is named.
fn survivors(without: Option<Pid>) -> u32 {
    let all = family::descendants(getpid());
    u32::try_from(all.iter().filter(|pid| Some(**pid) != without).count()).unwrap_or(u32::MAX)
}

/// Makes this process an adopter of orphans that no terminal and no command can disturb.
///
/// No `PR_SET_PDEATHSIG`: it fires when the *thread* that spawned ends, and the end of the control
/// socket says the same without that.
fn prepare() -> nix::Result<SignalFd> {
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

/// Receives the memory file with the spec, and the descriptors: stdin, stdout, stderr, others.
fn receive(control: &OwnedFd) -> Option<(Spec, Vec<OwnedFd>)> {
    let mut byte = [0];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 8]);
    let mut slices = [IoSliceMut::new(&mut byte)];
    let message = recvmsg::<()>(
        control.as_raw_fd(),
        &mut slices,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )
    .ok()?;
    let mut fds = Vec::new();
    for part in message.cmsgs().ok()? {
        if let ControlMessageOwned::ScmRights(received) = part {
            fds.extend(received.into_iter().map(sys::adopt));
        }
    }
    if fds.len() < 4 {
        return None;
    }
    let mut file = File::from(fds.remove(0));
    let mut bytes = Vec::new();
    file.rewind().ok()?;
    file.read_to_end(&mut bytes).ok()?;
    Some((Spec::decode(&bytes)?, fds))
}

/// The forked child up to exec; returns only if a step fails.
fn become_command(
    spec: &Spec,
    fds: &[OwnedFd],
    confine: Confine<'_>,
) -> Result<Infallible, Failure> {
    let string = |bytes: &Vec<u8>| {
        CString::new(bytes.as_slice())
            .map_err(|_| Failure { step: Step::Receive, errno: libc::EINVAL })
    };
    let program = string(&spec.program)?;
    let argv: Vec<CString> = spec.argv.iter().map(string).collect::<Result<_, _>>()?;
    let env: Vec<CString> = spec.env.iter().map(string).collect::<Result<_, _>>()?;
    let cwd = string(&spec.cwd)?;

    setsid().map_err(at(Step::Session))?;
    let [stdin, stdout, stderr, others @ ..] = fds else {
        return Err(Failure { step: Step::Streams, errno: libc::EBADF });
    };
    unistd::dup2_stdin(stdin).map_err(at(Step::Streams))?;
    unistd::dup2_stdout(stdout).map_err(at(Step::Streams))?;
    unistd::dup2_stderr(stderr).map_err(at(Step::Streams))?;
    sys::reset_signals().map_err(at(Step::Signals))?;
    unistd::chdir(cwd.as_c_str()).map_err(at(Step::Cwd))?;
    for (resource, most) in &spec.limits {
        sys::lower_limit(*resource, *most).map_err(at(Step::Limits))?;
    }
    sys::close_on_exec_from(3).map_err(at(Step::Descriptors))?;
    confine(&spec.confinement, others)?;
    unistd::execve(&program, &argv, &env).map_err(at(Step::Exec))
}

/// Makes a failure of an error number.
pub(crate) fn at(step: Step) -> impl Fn(Errno) -> Failure {
    move |errno| Failure { step, errno: errno as i32 }
}

/// The child tells the reaper through the pipe that exec closes.
fn report(says: OwnedFd, failure: Failure) {
    drop(File::from(says).write_all(&FromReaper::Failed(failure).encode()));
}

/// Waits until exec has closed the pipe. Returns what failed, if something did.
fn outcome(said: &OwnedFd, control: &OwnedFd) -> Option<Failure> {
    let mut bytes = [0; PACKET];
    loop {
        // The runner's end of the socket wakes this too: an exec can hang on a dead file server.
        let mut fds = [
            PollFd::new(said.as_fd(), PollFlags::POLLIN),
            PollFd::new(control.as_fd(), PollFlags::empty()),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Some(at(Step::Exec)(errno)),
        }
        let [pipe, control] = fds;
        if pipe.any().unwrap_or(true) {
            return match unistd::read(said, &mut bytes) {
                Ok(0) => None,
                Ok(_) => match FromReaper::decode(&bytes) {
                    Some(FromReaper::Failed(failure)) => Some(failure),
                    _ => Some(Failure { step: Step::Exec, errno: libc::EPROTO }),
                },
                Err(errno) => Some(at(Step::Exec)(errno)),
            };
        }
        if control.any().unwrap_or(true) {
            return Some(Failure { step: Step::Exec, errno: libc::EPIPE });
        }
    }
}

/// Sends a message; a runner that is gone is noticed at the next poll.
fn say(control: &OwnedFd, message: FromReaper) {
    let _ = send(control.as_raw_fd(), &message.encode(), MsgFlags::MSG_NOSIGNAL);
}
