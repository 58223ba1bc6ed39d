//! The supervisor: carries out, for confined commands, the calls that Landlock can't judge.
//!
//! In: a [`Policy`], and notifications of a filter that the starter installs. Out: answers. It is a
//! process of its own, the starter's parent, confined to the union of the profile before it has
//! threads; it holds no secrets. A call is continued by the kernel only where Landlock judges it as
//! well: memory can change after it was read here. Knows nothing of profiles.

mod address;
mod attributes;
mod caller;
mod connect;
mod count;
mod files;
mod guarded;
mod paths;
mod policy;
mod sockets;
mod tables;

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout};

use super::sys::notify::{self, Answer, Notification};
use crate::process::{Failure, Step, at, kill_own, leave, split};
use caller::{At, Caller};
pub(crate) use policy::Policy;

/// Threads that answer. A call that has to wait gets a thread of its own; ours.
const THREADS: usize = 4;

/// Most calls that wait at a time, such as for the other end of a FIFO; ours.
const WAITING: usize = 256;

/// How long commands may take to be gone once the starter is. Their reapers take at most three
/// seconds.
const END: Duration = Duration::from_secs(4);

/// Where the supervisor keeps its listener: what is above is closed.
const LISTENER: i32 = 3;

/// Waits for what a call needs, in a thread of its own.
type Wait = Box<dyn FnOnce(&Supervisor, &Caller<'_>) -> nix::Result<Outcome> + Send>;

/// What comes of a call.
enum Outcome {
    Answer(Answer),
    /// The answer was given together with a descriptor.
    Answered,
    /// The answer has to be waited for.
    Later(Wait),
}

/// The kernel carries the call out, and Landlock judges it.
const CONTINUE: Outcome = Outcome::Answer(Answer::Continue);

/// The call was carried out.
const DONE: Outcome = Outcome::Answer(Answer::Value(0));

/// The supervisor's state, shared by its threads.
struct Supervisor {
    policy: Policy,
    listener: OwnedFd,
    starter: Pid,
    waiting: AtomicUsize,
    shared: paths::Shared,
    sockets: sockets::Sockets,
    count: count::Count,
}

/// Splits the starter, which is confined but for the filter, in two: this process becomes the
/// supervisor and never returns; its child goes on as the starter, under the filter.
pub(super) fn begin(policy: Policy, filter: &[u8]) -> Result<(), Failure> {
    let (ours, theirs) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(at(Step::Supervisor))?;
    if let Some(starter) = split(0).map_err(at(Step::Supervisor))? {
        leave(i32::from(supervise(policy, ours, starter).is_err()));
    }
    drop(ours);
    hand_over(&theirs, filter).map_err(at(Step::Supervisor))
}

/// In the starter: ends with the supervisor, installs the filter, hands its listener over and waits
/// until it is served.
fn hand_over(supervisor: &OwnedFd, filter: &[u8]) -> nix::Result<()> {
    prctl::set_pdeathsig(Some(Signal::SIGTERM))?;
    prctl::set_child_subreaper(true)?;
    let listener = notify::install_notifying(filter)?;
    let fds = [listener.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&fds)];
    let byte = [std::io::IoSlice::new(b"l")];
    sendmsg::<()>(supervisor.as_raw_fd(), &byte, &rights, MsgFlags::MSG_NOSIGNAL, None)?;
    drop(listener);
    let mut answer = [0];
    // Nothing comes when it died before its death could be told.
    if nix::unistd::read(supervisor, &mut answer)? == 1 { Ok(()) } else { Err(Errno::EPIPE) }
}

/// In the supervisor, from fork to end.
fn supervise(policy: Policy, starter: OwnedFd, child: Pid) -> nix::Result<()> {
    let listener = receive_listener(&starter)?;
    // Nothing of the starter's stays: the end of its control socket must be its own.
    dup2_stdin(&starter)?;
    drop(starter);
    let null = open_null()?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    drop(null);
    let listener = notify::move_to(listener, LISTENER)?;
    notify::close_from(LISTENER.unsigned_abs() + 1)?;
    notify::mask_nothing();
    notify::forget_children()?;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    notify::wake_in_place(listener.as_fd());
    let child_end = notify::watch_process(child)?;
    let supervisor = Arc::new(Supervisor {
        count: count::Count::new(policy.processes),
        shared: paths::Shared::default(),
        sockets: sockets::Sockets::default(),
        waiting: AtomicUsize::new(0),
        starter: child,
        policy,
        listener,
    });
    for _ in 0..THREADS {
        let supervisor = Arc::clone(&supervisor);
        thread::Builder::new().spawn(move || serve(&supervisor)).map_err(|_| Errno::EAGAIN)?;
    }
    nix::unistd::write(std::io::stdin(), b"k")?;
    dup2_stdin(&open_null()?)?;
    wait_for_end(&supervisor, &child_end)
}

fn open_null() -> nix::Result<OwnedFd> {
    open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
}

fn receive_listener(from: &OwnedFd) -> nix::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
    let mut slices = [std::io::IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(from.as_raw_fd(), &mut slices, Some(&mut space), flags)?;
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = part
            && let [fd] = fds[..]
        {
            return Ok(crate::process::adopt(fd));
        }
    }
    Err(Errno::EPIPE)
}

/// Waits until nobody is under the filter any more.
fn wait_for_end(supervisor: &Supervisor, starter: &OwnedFd) -> nix::Result<()> {
    let mut patience = PollTimeout::NONE;
    loop {
        // The end of the last user is an error condition, which is always reported.
        let mut fds = vec![PollFd::new(supervisor.listener.as_fd(), PollFlags::empty())];
        if patience.is_none() {
            fds.push(PollFd::new(starter.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, patience) {
            Ok(0) => {
                kill_own();
                return Ok(());
            }
            Ok(_) if fds[0].any().unwrap_or(true) => return Ok(()),
            Ok(_) => {
                patience = PollTimeout::try_from(END).unwrap_or(PollTimeout::MAX);
            }
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn serve(supervisor: &Arc<Supervisor>) {
    loop {
        match notify::receive(supervisor.listener.as_fd()) {
            Ok(call) => supervisor.handle(call),
            // A caller that was killed before its call was received, or an interruption.
            Err(Errno::ENOENT | Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}

impl Supervisor {
    fn handle(self: &Arc<Self>, call: Notification) {
        let caller = Caller { listener: self.listener.as_fd(), call };
        let outcome = self.dispatch(&caller);
        self.settle(&caller, outcome);
    }

    /// Gives the answer, or lets a thread of its own wait for it.
    fn settle(self: &Arc<Self>, caller: &Caller<'_>, outcome: nix::Result<Outcome>) {
        match outcome {
            Ok(Outcome::Answered) => {}
            Ok(Outcome::Answer(answer)) => self.answer(caller, answer),
            Ok(Outcome::Later(wait)) => {
                let supervisor = Arc::clone(self);
                let call = caller.call;
                let is_full = self.waiting.fetch_add(1, Ordering::SeqCst) >= WAITING;
                let waits = move || {
                    let caller = Caller { listener: supervisor.listener.as_fd(), call };
                    let outcome = wait(&supervisor, &caller);
                    supervisor.waiting.fetch_sub(1, Ordering::SeqCst);
                    supervisor.settle(&caller, outcome);
                };
                if is_full || thread::Builder::new().spawn(waits).is_err() {
                    self.waiting.fetch_sub(1, Ordering::SeqCst);
                    self.answer(caller, Answer::Error(Errno::EAGAIN));
                }
            }
            Err(errno) => self.answer(caller, Answer::Error(errno)),
        }
    }

    fn answer(&self, caller: &Caller<'_>, answer: Answer) {
        // A caller that is gone needs no answer.
        let _ = notify::answer(self.listener.as_fd(), caller.call.id, answer);
    }

    fn dispatch(&self, caller: &Caller<'_>) -> nix::Result<Outcome> {
        let argument = caller.call.arguments;
        let here = |index: usize| At { folder: libc::AT_FDCWD, path: argument[index] };
        let at = |index: usize| At { folder: caller.int(index), path: argument[index + 1] };
        #[cfg(target_arch = "x86_64")]
        if let Some(outcome) = self.dispatch_old(caller, here) {
            return outcome;
        }
        match caller.call.number {
            libc::SYS_openat => self.open(caller, at(0), (caller.int(2), caller.unsigned(3))),
            libc::SYS_mkdirat => self.make_folder(caller, at(0), caller.unsigned(2)),
            libc::SYS_mknodat => self.make_node(caller, at(0), caller.unsigned(2)),
            libc::SYS_unlinkat => {
                self.remove(caller, at(0), caller.int(2) & libc::AT_REMOVEDIR != 0)
            }
            libc::SYS_renameat => self.rename(caller, [at(0), at(2)], 0),
            libc::SYS_renameat2 => self.rename(caller, [at(0), at(2)], caller.unsigned(4)),
            libc::SYS_linkat => self.link(caller, [at(0), at(2)], caller.int(4)),
            libc::SYS_symlinkat => self.link_to_path(caller, argument[0], at(1)),
            libc::SYS_truncate => self.truncate(caller, here(0), argument[1].cast_signed()),
            libc::SYS_clone => self.count.admit(self.starter).map(|()| CONTINUE),
            libc::SYS_socket => self.socket(caller, [caller.int(0), caller.int(1), caller.int(2)]),
            libc::SYS_bind => self.bind(caller, caller.int(0), (argument[1], caller.int(2))),
            libc::SYS_connect => self.connect(caller, caller.int(0), (argument[1], caller.int(2))),
            libc::SYS_listen => self.listen(caller, caller.int(0), caller.int(1)),
            libc::SYS_getsockname => {
                self.name(caller, (caller.int(0), false), [argument[1], argument[2]])
            }
            libc::SYS_getpeername => {
                self.name(caller, (caller.int(0), true), [argument[1], argument[2]])
            }
            _ => self.dispatch_attributes(caller, here, at),
        }
    }

    /// Calls that aarch64 has no more.
    #[cfg(target_arch = "x86_64")]
    fn dispatch_old(
        &self,
        caller: &Caller<'_>,
        here: impl Fn(usize) -> At,
    ) -> Option<nix::Result<Outcome>> {
        let argument = caller.call.arguments;
        Some(match caller.call.number {
            libc::SYS_open => self.open(caller, here(0), (caller.int(1), caller.unsigned(2))),
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                self.open(caller, here(0), (flags, caller.unsigned(1)))
            }
            libc::SYS_mkdir => self.make_folder(caller, here(0), caller.unsigned(1)),
            libc::SYS_mknod => self.make_node(caller, here(0), caller.unsigned(1)),
            libc::SYS_unlink => self.remove(caller, here(0), false),
            libc::SYS_rmdir => self.remove(caller, here(0), true),
            libc::SYS_rename => self.rename(caller, [here(0), here(1)], 0),
            libc::SYS_link => self.link(caller, [here(0), here(1)], 0),
            libc::SYS_symlink => self.link_to_path(caller, argument[0], here(1)),
            libc::SYS_fork | libc::SYS_vfork => self.count.admit(self.starter).map(|()| CONTINUE),
            libc::SYS_chmod => self.set_mode(caller, (here(0), 0), caller.unsigned(1)),
            libc::SYS_chown => self.set_owner(caller, (here(0), 0), 1),
            libc::SYS_lchown => self.set_owner(caller, (here(0), libc::AT_SYMLINK_NOFOLLOW), 1),
            libc::SYS_utime => self.set_times_in_seconds(caller, here(0), argument[1]),
            libc::SYS_utimes => self.set_times_in_micros(caller, here(0), argument[1]),
            libc::SYS_futimesat => {
                let at = At { folder: caller.int(0), path: argument[1] };
                self.set_times_in_micros(caller, at, argument[2])
            }
            _ => return None,
        })
    }
}
