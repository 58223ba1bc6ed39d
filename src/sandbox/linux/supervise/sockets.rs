//! Sockets: those of the attempt, made here and given to it, so that they can be bound and connected
//! here too, with a copy of the address that nobody can change.
//!
//! In: socket calls. Out: sockets that reach the attempt's own loopback, its doors and the unix sockets
//! that are its own or listed. A copy of each is kept until it listens or is connected; a longer
//! copy would hide its closing from the other end.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::fstat;
use nix::unistd::Pid;

use super::super::sys::notify::{self, Answer};
use super::address::{self, Address};
use super::caller::Caller;
use super::count::tree;
use super::tables;
use super::{DONE, Outcome, Supervisor};

/// Most sockets that are known; from there on those that are closed are looked for. Ours.
const KNOWN: usize = 4096;

/// What is known of a socket.
#[derive(Clone)]
pub(super) struct Socket {
    pub(super) family: i32,
    pub(super) kind: i32,
    /// Kept until the socket listens or is connected.
    pub(super) copy: Option<Arc<OwnedFd>>,
    pub(super) state: State,
    /// The address that the caller sees as its own.
    pub(super) name: Option<Vec<u8>>,
    /// The address that the caller sees as its peer's.
    pub(super) peer: Option<Vec<u8>>,
}

/// How far a socket has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Listening,
    /// A connection was begun that the caller doesn't wait for.
    Connecting,
    Connected,
}

/// Sockets by inode. Numbers are given again only after four thousand million others.
#[derive(Default)]
pub(super) struct Sockets(Mutex<HashMap<u64, Socket>>);

impl Sockets {
    fn with<T>(&self, act: impl FnOnce(&mut HashMap<u64, Socket>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn get(&self, inode: u64) -> Option<Socket> {
        self.with(|map| map.get(&inode).cloned())
    }

    pub(super) fn change(&self, inode: u64, change: impl FnOnce(&mut Socket)) {
        self.with(|map| map.get_mut(&inode).map(change));
    }

    /// Forgets what no process of the attempt has open.
    pub(super) fn sweep(&self, starter: Pid) {
        let before: HashSet<u64> = self.with(|map| map.keys().copied().collect());
        let mut open = HashSet::new();
        for (pid, _) in tree(starter) {
            let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
            open.extend(links.filter_map(|link| inode(&link.to_string_lossy())));
        }
        self.with(|map| map.retain(|inode, _| !before.contains(inode) || open.contains(inode)));
    }
}

/// The inode in the kernel's words for a socket.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

impl Supervisor {
    /// The inode of the caller's socket.
    pub(super) fn inode(caller: &Caller<'_>, fd: i32) -> nix::Result<u64> {
        inode(&caller.link_of(fd)?.to_string_lossy()).ok_or(Errno::ENOTSOCK)
    }

    /// A socket that is still to be bound or connected, and its copy.
    pub(super) fn idle(
        &self,
        caller: &Caller<'_>,
        fd: i32,
    ) -> nix::Result<(u64, Socket, Arc<OwnedFd>)> {
        let inode = Self::inode(caller, fd)?;
        // What isn't known is half of a pair, or was accepted.
        let socket = self.sockets.get(inode).ok_or(Errno::EISCONN)?;
        match (&socket.copy, socket.state) {
            (Some(copy), _) => {
                let copy = Arc::clone(copy);
                Ok((inode, socket, copy))
            }
            (None, State::Connecting) => Err(match tables::row(inode).map(|row| row.state) {
                Some(tables::ESTABLISHED) => {
                    self.sockets.change(inode, |socket| socket.state = State::Connected);
                    Errno::EISCONN
                }
                Some(tables::SYN_SENT) => Errno::EALREADY,
                _ => Errno::ECONNREFUSED,
            }),
            (None, State::Connected) => Err(Errno::EISCONN),
            (None, _) => Err(Errno::EINVAL),
        }
    }

    pub(super) fn socket(
        &self,
        caller: &Caller<'_>,
        [family, kind, protocol]: [i32; 3],
    ) -> nix::Result<Outcome> {
        if self.sockets.with(|map| map.len()) >= KNOWN {
            self.sockets.sweep(self.starter);
            if self.sockets.with(|map| map.len()) >= KNOWN {
                return Err(Errno::ENFILE);
            }
        }
        let fd = notify::socket(family, kind, protocol)?;
        let inode = fstat(&fd)?.st_ino;
        let closes_on_exec = kind & libc::SOCK_CLOEXEC != 0;
        let kind = kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
        let copy = Arc::new(fd);
        let socket = Socket {
            family,
            kind,
            copy: Some(Arc::clone(&copy)),
            state: State::Idle,
            name: None,
            peer: None,
        };
        // Known before it is there: another thread may use its number at once.
        self.sockets.with(|map| map.insert(inode, socket));
        let given =
            notify::answer_with(caller.listener, caller.call.id, (copy.as_fd(), closes_on_exec));
        if let Err(errno) = given {
            self.sockets.with(|map| map.remove(&inode));
            return if errno == Errno::ENOENT { Ok(Outcome::Answered) } else { Err(errno) };
        }
        Ok(Outcome::Answered)
    }

    pub(super) fn bind(
        &self,
        caller: &Caller<'_>,
        fd: i32,
        (address, length): (u64, i32),
    ) -> nix::Result<Outcome> {
        let bytes = address::read(caller, address, length)?;
        let (inode, socket, copy) = match self.idle(caller, fd) {
            Err(Errno::EISCONN) => return Err(Errno::EINVAL),
            other => other?,
        };
        let name = match address::parse(&bytes)? {
            Address::Unix(_) if socket.family != libc::AF_UNIX => return Err(Errno::EAFNOSUPPORT),
            Address::Inet(_) if socket.family == libc::AF_UNIX => return Err(Errno::EINVAL),
            Address::Unix(path) => {
                self.bind_unix(caller, &copy, path)?;
                Some(bytes)
            }
            Address::Abstract => {
                notify::bind(copy.as_fd(), &bytes)?;
                None
            }
            Address::Inet(wanted) => {
                let port = self.bind_inet(&socket, &copy, wanted)?;
                Some(address::render(SocketAddr::new(wanted.ip(), port), socket.family))
            }
            Address::None => return Err(Errno::EINVAL),
        };
        self.sockets.change(inode, |socket| socket.name = name);
        Ok(DONE)
    }

    /// Binds to the attempt's own address. Returns the port.
    fn bind_inet(&self, socket: &Socket, copy: &OwnedFd, wanted: SocketAddr) -> nix::Result<u16> {
        let is_v6 = socket.family == libc::AF_INET6;
        let is_v6_only = is_v6 && notify::is_v6_only(copy.as_fd())?;
        let real = self.policy.bound(wanted, is_v6_only).ok_or(Errno::EADDRNOTAVAIL)?;
        if is_v6 && self.policy.loopback.is_some() {
            // What stands for the loopback is an address of IPv4.
            notify::allow_v4(copy.as_fd())?;
        }
        if self.policy.loopback.is_some() && real.port() != 0 && tables::is_taken(real.port()) {
            // With `SO_REUSEPORT` the kernel would let both be.
            return Err(Errno::EADDRINUSE);
        }
        let bytes = address::render(real, socket.family);
        match notify::bind(copy.as_fd(), &bytes) {
            // The copy of a socket that was closed unconnected may have it still.
            Err(Errno::EADDRINUSE) => {
                self.sockets.sweep(self.starter);
                notify::bind(copy.as_fd(), &bytes)?;
            }
            other => other?,
        }
        match address::parse(&notify::name_of(copy.as_fd(), false)?)? {
            Address::Inet(bound) => Ok(bound.port()),
            Address::Unix(_) | Address::Abstract | Address::None => Err(Errno::EINVAL),
        }
    }

    pub(super) fn listen(
        &self,
        caller: &Caller<'_>,
        fd: i32,
        backlog: i32,
    ) -> nix::Result<Outcome> {
        let number = Self::inode(caller, fd)?;
        if self.sockets.get(number).is_some_and(|socket| socket.state == State::Listening) {
            return Ok(DONE);
        }
        let (inode, socket, copy) = match self.idle(caller, fd) {
            Err(Errno::EISCONN) => return Err(Errno::EINVAL),
            other => other?,
        };
        let is_inet = matches!(socket.family, libc::AF_INET | libc::AF_INET6);
        let mut name = socket.name.clone();
        if is_inet && name.is_none() && socket.kind == libc::SOCK_STREAM {
            // The kernel would bind it to every address of the host.
            let any: SocketAddr = if socket.family == libc::AF_INET {
                ([0; 4], 0).into()
            } else {
                ([0_u16; 8], 0).into()
            };
            let port = self.bind_inet(&socket, &copy, any)?;
            name = Some(address::render(SocketAddr::new(any.ip(), port), socket.family));
        }
        notify::listen(copy.as_fd(), backlog)?;
        self.sockets.change(inode, |socket| {
            socket.state = State::Listening;
            socket.name = name;
            socket.copy = None;
        });
        Ok(DONE)
    }

    /// Writes the address that the caller's socket has, or its peer's, as the caller knows it.
    pub(super) fn name(
        &self,
        caller: &Caller<'_>,
        (fd, of_peer): (i32, bool),
        [address, length]: [u64; 2],
    ) -> nix::Result<Outcome> {
        let inode = Self::inode(caller, fd)?;
        let Some(name) = self.known_name(inode, of_peer)? else {
            // Nothing is decided by it: an address of the attempt's may be shown as it is.
            return Ok(Outcome::Answer(Answer::Continue));
        };
        let room = caller.bytes(length, 4)?;
        let room = i32::from_ne_bytes(room.try_into().map_err(|_| Errno::EFAULT)?);
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        let written = name.len().min(room);
        let whole = u32::try_from(name.len()).map_err(|_| Errno::EINVAL)?;
        let put = |address, bytes: &[u8]| {
            if bytes.is_empty() { Ok(()) } else { caller.write(address, bytes) }
        };
        let done = put(address, &name[..written]).and_then(|()| put(length, &whole.to_ne_bytes()));
        match done {
            // Another sandbox around this one keeps the memory from us: as it is, then.
            Err(Errno::EPERM | Errno::EACCES | Errno::EROFS) => {
                Ok(Outcome::Answer(Answer::Continue))
            }
            other => other.map(|()| DONE),
        }
    }

    fn known_name(&self, inode: u64, of_peer: bool) -> nix::Result<Option<Vec<u8>>> {
        let socket = self.sockets.get(inode);
        if let Some(socket) = &socket {
            let known = if of_peer { &socket.peer } else { &socket.name };
            let is_pending = of_peer && socket.state == State::Connecting;
            if known.is_some() && !is_pending {
                return Ok(known.clone());
            }
            if let Some(copy) = &socket.copy {
                let name = notify::name_of(copy.as_fd(), of_peer)?;
                return Ok(Some(self.shown(name, socket.family)));
            }
            if socket.family == libc::AF_UNIX {
                return Ok(None);
            }
        }
        let Some(row) = tables::row(inode) else {
            let is_lost = socket.is_some() && of_peer;
            return if is_lost { Err(Errno::ENOTCONN) } else { Ok(None) };
        };
        if of_peer && matches!(row.state, tables::SYN_SENT) {
            return Err(Errno::ENOTCONN);
        }
        if let Some(peer) = socket.as_ref().and_then(|socket| socket.peer.clone())
            && of_peer
        {
            return Ok(Some(peer));
        }
        let real = if of_peer { row.remote } else { row.local };
        if real.port() == 0 && of_peer {
            return Err(Errno::ENOTCONN);
        }
        if !self.policy.is_own(row.local.ip()) && !self.policy.is_own(real.ip()) {
            return Ok(None);
        }
        let family = if row.local.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
        Ok(Some(address::render(self.policy.seen(real), family)))
    }

    /// A real address as the caller knows it.
    pub(super) fn shown(&self, name: Vec<u8>, family: i32) -> Vec<u8> {
        match address::parse(&name) {
            Ok(Address::Inet(real)) => address::render(self.policy.seen(real), family),
            _ => name,
        }
    }
}
