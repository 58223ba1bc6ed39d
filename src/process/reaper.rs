//! The reaper: the small process between the runner and a command.
//!
//! In: a [`Spec`], the command's streams and a control socket, from the starter that forked it.
//! Out: how the command ended, over that socket. It adopts every orphan below it, so that nothing survives
//! the end of the socket: kill -9 of the runner closes it too (P9).

use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{Signal, killpg};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::{self, Pid, pipe2, setsid};

use super::family;
use super::filling::Filling;
use super::start::{Confinement, quiet, unpack};
use super::sys::{self, Reap};
use super::wire::{Failure, FromReaper, PACKET, Spec, Step, Stopped, ToReaper};
use crate::clock::Clock;

/// Time between SIGTERM and SIGKILL when the deadline passes.
pub(crate) const DEADLINE_GRACE: Duration = Duration::from_millis(250);

/// How long to wait for killed processes to be gone. A process in uninterruptible sleep outlives
/// SIGKILL; ordinary I/O ends sooner. Our choice.
const REAP: Duration = Duration::from_secs(3);

/// Runs a reaper on an order's descriptors to its end. Returns whether it went wrong.
pub(super) fn run(fds: Vec<OwnedFd>, confinement: &dyn Confinement) -> bool {
    let Some((spec, streams, control)) = unpack(fds) else { return true };
    match Reaper::start(&control, (&spec, streams), confinement) {
        Ok(mut reaper) => reaper.serve(),
        Err(failure) => {
            say(&control, FromReaper::Failed(failure));
            true
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
    stopped: Option<Stopped>,
    filling: Option<Filling>,
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
    fn start(
        control: &'a OwnedFd,
        (spec, streams): (&Spec, [OwnedFd; 3]),
        confinement: &dyn Confinement,
    ) -> Result<Self, Failure> {
        let clock = Clock::start();
        let signals = prepare().map_err(at(Step::Receive))?;
        confinement.adopt()?;
        let (said, says) = pipe2(OFlag::O_CLOEXEC).map_err(at(Step::Fork))?;
        let Some(pid) = sys::split(0).map_err(at(Step::Fork))? else {
            let Err(failure) = become_command(spec, &streams, (control, confinement));
            report(says, failure);
            sys::leave(127);
        };
        drop(says);
        drop(streams);
        if let Some(failure) = outcome(&said, control) {
            family::kill_own();
            return Err(failure);
        }
        say(control, FromReaper::Started);
        Ok(Self {
            control,
            signals,
            clock,
            pid,
            deadline: spec.deadline,
            kill_at: None,
            stopped: None,
            filling: spec
                .folder
                .as_ref()
                .map(|(at, most)| Filling::new(PathBuf::from(OsStr::from_bytes(at)), *most)),
            is_reported: false,
        })
    }

    /// Returns whether something of the tree may be alive.
    fn serve(&mut self) -> bool {
        loop {
            if !self.reap() {
                say(self.control, FromReaper::Gone { unkilled: 0 });
                return false;
            }
            let now = self.clock.elapsed();
            if self.kill_at.is_some_and(|at| at <= now) {
                let unkilled = self.kill_all();
                say(self.control, FromReaper::Gone { unkilled });
                return false;
            }
            if self.kill_at.is_none() && self.deadline.is_some_and(|at| at <= now) {
                self.stop_by_itself(Stopped::Deadline);
                continue;
            }
            if self.kill_at.is_none() && self.filling.as_mut().is_some_and(|it| it.is_over(now)) {
                self.stop_by_itself(Stopped::Folder);
                continue;
            }
            match self.listen(self.next().map(|at| at.saturating_sub(now))) {
                Next::Go => {}
                Next::Abandoned => {
                    self.kill_all();
                    return true;
                }
                Next::Done => return true,
            }
        }
    }

    fn stop_by_itself(&mut self, why: Stopped) {
        self.stopped = Some(why);
        self.terminate(DEADLINE_GRACE);
    }

    /// When something is due, since the start.
    fn next(&self) -> Option<Duration> {
        let look = self.filling.as_ref().map(Filling::next);
        self.kill_at.or_else(|| [self.deadline, look].into_iter().flatten().min())
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
                            stopped: self.stopped,
                            wall: self.clock.elapsed(),
                            cpu: reaped.cpu,
                            survivors: survivors(),
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
                let all = survivors();
                let others = all.saturating_sub(u32::from(!self.is_reported));
                say(self.control, FromReaper::Count(others));
            }
            Some(ToReaper::Stop(grace)) => self.terminate(grace),
            None => return Next::Done,
        }
        Next::Go
    }

    fn terminate(&mut self, grace: Duration) {
        if !grace.is_zero() {
            family::signal_own(Signal::SIGTERM);
            family::signal_own(Signal::SIGCONT);
        }
        self.kill_at = Some(self.clock.elapsed() + grace);
    }

    /// Kills every descendant and waits until they are gone. Returns how many outlived it.
    fn kill_all(&mut self) -> u32 {
        let until = self.clock.elapsed() + REAP;
        loop {
            family::kill_own();
            if !self.reap() {
                return 0;
            }
            if self.clock.elapsed() > until {
                return survivors();
            }
            let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, PollTimeout::from(5_u8));
            while let Ok(Some(_)) = self.signals.read_signal() {}
        }
    }
}

/// Counts the descendants.
fn survivors() -> u32 {
    u32::try_from(family::own().len()).unwrap_or(u32::MAX)
}

/// As the starter, and told when that dies: it doesn't wait for the runner then.
fn prepare() -> nix::Result<SignalFd> {
    let signals = quiet()?;
    prctl::set_pdeathsig(Some(Signal::SIGTERM))?;
    Ok(signals)
}

/// The forked child up to exec; returns only if a step fails.
fn become_command(
    spec: &Spec,
    [stdin, stdout, stderr]: &[OwnedFd; 3],
    (control, confinement): (&OwnedFd, &dyn Confinement),
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
    unistd::dup2_stdin(stdin).map_err(at(Step::Streams))?;
    unistd::dup2_stdout(stdout).map_err(at(Step::Streams))?;
    unistd::dup2_stderr(stderr).map_err(at(Step::Streams))?;
    sys::reset_signals().map_err(at(Step::Signals))?;
    unistd::chdir(cwd.as_c_str()).map_err(at(Step::Cwd))?;
    for (resource, most) in &spec.limits {
        sys::lower_limit(*resource, *most).map_err(at(Step::Limits))?;
    }
    sys::close_on_exec_from(3).map_err(at(Step::Descriptors))?;
    say(control, FromReaper::Here);
    confinement.confine()?;
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
            PollFd::new(control.as_fd(), PollFlags::from_bits_retain(libc::POLLRDHUP)),
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
pub(super) fn say(control: &OwnedFd, message: FromReaper) {
    let _ = send(control.as_raw_fd(), &message.encode(), MsgFlags::MSG_NOSIGNAL);
}
