//! Connecting, and binding to a path.
//!
//! In: the attempt's sockets and copies of addresses. Out: connections to what is its own, to its
//! doors and to listed sockets; to nothing else, whatever the address says.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{Mode, fchmod, fstat};

use super::super::sys::notify;
use super::address::{self, Address};
use super::caller::{Caller, From, handle, kind};
use super::policy::Lies;
use super::sockets::{Socket, State};
use super::tables;
use super::{DONE, Outcome, Supervisor};

/// How long a connection is waited for on the spot. One on the loopback stands at once.
const SOON: u8 = 50;

/// How often a caller that waits is looked at, in milliseconds.
const LOOK: u8 = 200;

/// How often a full queue of a unix socket is tried again.
const RETRY: Duration = Duration::from_millis(2);

/// A connection that is being made.
struct Attempt {
    inode: u64,
    copy: Arc<OwnedFd>,
    address: Vec<u8>,
    /// What the caller sees as its peer.
    peer: Vec<u8>,
    /// Whether the caller doesn't wait.
    is_impatient: bool,
}

impl Supervisor {
    pub(super) fn connect(
        &self,
        caller: &Caller<'_>,
        fd: i32,
        (address, length): (u64, i32),
    ) -> nix::Result<Outcome> {
        let bytes = address::read(caller, address, length)?;
        let (inode, socket, copy) = self.idle(caller, fd)?;
        let is_impatient =
            OFlag::from_bits_retain(fcntl(&copy, FcntlArg::F_GETFL)?).contains(OFlag::O_NONBLOCK);
        let attempt = |address| Attempt {
            inode,
            copy: Arc::clone(&copy),
            address,
            peer: bytes.clone(),
            is_impatient,
        };
        match address::parse(&bytes)? {
            Address::None => {
                notify::connect(copy.as_fd(), &bytes)?;
                Ok(DONE)
            }
            Address::Unix(_) | Address::Abstract if socket.family != libc::AF_UNIX => {
                Err(Errno::EAFNOSUPPORT)
            }
            Address::Inet(_) if socket.family == libc::AF_UNIX => Err(Errno::EINVAL),
            Address::Abstract => {
                if !self.policy.has_scopes {
                    return Err(Errno::EPERM);
                }
                self.connect_unix(attempt(bytes.clone()))
            }
            Address::Unix(path) => {
                let object = caller.object_at(From::Caller(libc::AT_FDCWD), path, true)?;
                if kind(&object.facts()?) != libc::S_IFSOCK {
                    return Err(Errno::ECONNREFUSED);
                }
                let is_own =
                    matches!(self.policy.locate(&object.path), Lies::Granted | Lies::Carved);
                if !is_own && !self.policy.sockets.contains(&object.path) {
                    return Err(Errno::EACCES);
                }
                let address = address::unix(object.handle().as_bytes()).ok_or(Errno::EINVAL)?;
                self.connect_unix(attempt(address))
            }
            Address::Inet(wanted) => self.connect_inet(&socket, wanted, attempt),
        }
    }

    /// Connects without waiting; a queue that is full is waited for elsewhere.
    fn connect_unix(&self, attempt: Attempt) -> nix::Result<Outcome> {
        let set = |is_waiting: bool| set_waiting(&attempt.copy, is_waiting || attempt.is_impatient);
        set(true)?;
        let done = notify::connect(attempt.copy.as_fd(), &attempt.address);
        match done {
            Err(Errno::EAGAIN) if !attempt.is_impatient => {
                // The path of an open object holds as long as that is open, which ends here.
                set(false)?;
                Self::wait_for_queue(attempt)
            }
            other => {
                set(false)?;
                other?;
                self.connected(&attempt, State::Connected);
                Ok(DONE)
            }
        }
    }

    /// The path in the address is that of an object that is open here; it is opened anew for the wait.
    fn wait_for_queue(mut attempt: Attempt) -> nix::Result<Outcome> {
        let kept = match address::parse(&attempt.address.clone())? {
            Address::Unix(path) => {
                let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
                let path = std::ffi::OsStr::from_bytes(path);
                let fd = nix::fcntl::open(path, flags, Mode::empty())?;
                attempt.address =
                    address::unix(handle(fd.as_fd()).as_bytes()).ok_or(Errno::EINVAL)?;
                Some(fd)
            }
            Address::None | Address::Inet(_) | Address::Abstract => None,
        };
        Ok(Outcome::Later(Box::new(move |supervisor, caller| {
            let _kept = kept;
            loop {
                std::thread::sleep(RETRY);
                caller.check()?;
                set_waiting(&attempt.copy, true)?;
                let done = notify::connect(attempt.copy.as_fd(), &attempt.address);
                set_waiting(&attempt.copy, false)?;
                match done {
                    Err(Errno::EAGAIN) => {}
                    Err(errno) => return Err(errno),
                    Ok(()) => {
                        supervisor.connected(&attempt, State::Connected);
                        return Ok(DONE);
                    }
                }
            }
        })))
    }

    fn connect_inet(
        &self,
        socket: &Socket,
        wanted: SocketAddr,
        attempt: impl Fn(Vec<u8>) -> Attempt,
    ) -> nix::Result<Outcome> {
        let targets = self.policy.targets(wanted).ok_or(Errno::ENETUNREACH)?;
        let own = targets.own.into_iter().filter(|at| tables::is_listening(*at));
        let targets: Vec<SocketAddr> = own.chain(targets.outside).collect();
        let mut failed = Errno::ECONNREFUSED;
        for target in targets {
            let is_v4 = target.ip().to_canonical().is_ipv4();
            if socket.family == libc::AF_INET && !is_v4 {
                continue;
            }
            let attempt = attempt(address::render(target, socket.family));
            if socket.family == libc::AF_INET6 && is_v4 && self.policy.loopback.is_some() {
                notify::allow_v4(attempt.copy.as_fd())?;
            }
            if socket.kind != libc::SOCK_STREAM {
                // Datagrams have no other end that waits for a close, and may be connected again.
                notify::connect(attempt.copy.as_fd(), &attempt.address)?;
                return Ok(DONE);
            }
            match self.connect_stream(attempt) {
                Err(errno) => failed = errno,
                done => return done,
            }
        }
        Err(failed)
    }

    fn connect_stream(&self, attempt: Attempt) -> nix::Result<Outcome> {
        set_waiting(&attempt.copy, true)?;
        let mut done = notify::connect(attempt.copy.as_fd(), &attempt.address);
        if done == Err(Errno::EINPROGRESS) {
            done = finish(&attempt, SOON);
        }
        if done != Err(Errno::EINPROGRESS) {
            set_waiting(&attempt.copy, attempt.is_impatient)?;
            done?;
            self.connected(&attempt, State::Connected);
            return Ok(DONE);
        }
        if attempt.is_impatient {
            self.connected(&attempt, State::Connecting);
            return Err(Errno::EINPROGRESS);
        }
        Ok(Outcome::Later(Box::new(move |supervisor, caller| {
            loop {
                let done = finish(&attempt, LOOK);
                if done == Err(Errno::EINPROGRESS) {
                    if let Err(errno) = caller.check() {
                        set_waiting(&attempt.copy, false)?;
                        return Err(errno);
                    }
                    continue;
                }
                set_waiting(&attempt.copy, false)?;
                done?;
                supervisor.connected(&attempt, State::Connected);
                return Ok(DONE);
            }
        })))
    }

    /// Notes how a socket is connected, and lets go of it.
    fn connected(&self, attempt: &Attempt, state: State) {
        let name = notify::name_of(attempt.copy.as_fd(), false).ok();
        self.sockets.change(attempt.inode, |socket| {
            if socket.name.is_none() && socket.family != libc::AF_UNIX {
                socket.name = name.map(|name| self.shown(name, socket.family));
            }
            socket.peer = Some(attempt.peer.clone());
            socket.state = state;
            socket.copy = None;
        });
    }

    /// Makes a socket's name in the file system, with the mode that the caller's mask leaves.
    pub(super) fn bind_unix(
        &self,
        caller: &Caller<'_>,
        copy: &OwnedFd,
        path: &[u8],
    ) -> nix::Result<()> {
        let named = caller.split(From::Caller(libc::AT_FDCWD), path)?;
        if !matches!(self.policy.locate(&named.path), Lies::Granted | Lies::Carved) {
            return Err(Errno::EACCES);
        }
        let mut real = handle(named.folder.as_fd()).into_bytes();
        real.push(b'/');
        real.extend(named.name.as_bytes());
        let address = address::unix(&real).ok_or(Errno::ENAMETOOLONG)?;
        // The new file gets the mode of the socket itself: unix(7).
        let before = fstat(copy)?.st_mode;
        let mode = before & 0o777 & !caller.mask()?;
        fchmod(copy, Mode::from_bits_truncate(mode))?;
        let done = notify::bind(copy.as_fd(), &address);
        fchmod(copy, Mode::from_bits_truncate(before & 0o777))?;
        done
    }
}

/// Looks whether a connection that was begun stands, for so many milliseconds.
fn finish(attempt: &Attempt, patience: u8) -> nix::Result<()> {
    let mut fds = [PollFd::new(attempt.copy.as_fd(), PollFlags::POLLOUT)];
    match poll(&mut fds, PollTimeout::from(patience)) {
        Ok(0) | Err(Errno::EINTR) => Err(Errno::EINPROGRESS),
        Err(errno) => Err(errno),
        // The same call again says how it ended, and readies the socket for another address.
        Ok(_) => match notify::connect(attempt.copy.as_fd(), &attempt.address) {
            Err(Errno::EISCONN) => Ok(()),
            Err(Errno::EALREADY) => Err(Errno::EINPROGRESS),
            other => other,
        },
    }
}

/// Sets whether calls on the socket return at once. The caller's descriptor shares it, and its
/// caller waits meanwhile.
fn set_waiting(socket: &OwnedFd, is_impatient: bool) -> nix::Result<()> {
    let mut flags = OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL)?);
    flags.set(OFlag::O_NONBLOCK, is_impatient);
    fcntl(socket, FcntlArg::F_SETFL(flags)).map(drop)
}
