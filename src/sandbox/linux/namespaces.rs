//! Namespaces: a user, mount, network, IPC, host name and control group namespace for the starter,
//! and a process and mount namespace for each of its reapers.
//!
//! In: a [`Plan`] as bytes, and a ruleset. Out: listeners made inside the network namespace. The
//! starter keeps its capabilities, which reach no further than its own user namespace; a command
//! keeps none.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{
    Gid, Uid, fchown, getegid, geteuid, getpid, pipe2, read, setgroups, sethostname, setresgid,
    setresuid,
};

use super::mounts::{self, Layers, Placed, number};
use super::{MALFORMED, sys};
use crate::process::{Confinement, Failure, Step, at, leave, split};

/// Name of the host inside.
const HOST_NAME: &str = "horseman";

/// What the starter makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Places, ordered.
    pub(crate) places: Vec<Placed>,
    /// Whether the network is the attempt's own.
    pub(crate) own_network: bool,
    /// Ports of the loopback that the runner answers at.
    pub(crate) doors: Vec<u16>,
    /// Whether the runner answers name lookups at port 53.
    pub(crate) has_names: bool,
    /// Bytes of `/dev/shm`.
    pub(crate) shm_size: u64,
    /// The file by which a process joins the control group, if there is one.
    pub(crate) group: Option<PathBuf>,
    /// What the workspace is made of, when it is laid over a folder.
    pub(crate) layers: Option<Layers>,
    /// User and group that commands run as, when not as the runner's.
    pub(crate) owner: Option<Owner>,
    /// The filter.
    pub(crate) filter: Vec<u8>,
}

/// A user and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// User id outside and inside.
    pub(crate) uid: u32,
    /// Group id outside and inside.
    pub(crate) gid: u32,
}

impl Plan {
    /// The plan as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.own_network), u8::from(self.has_names)];
        out.extend(self.shm_size.to_le_bytes());
        out.extend((self.doors.len() as u64).to_le_bytes());
        out.extend(self.doors.iter().flat_map(|port| port.to_le_bytes()));
        mounts::encode(&self.places, &mut out);
        mounts::put(self.group.as_deref().unwrap_or(Path::new("")), &mut out);
        mounts::encode_layers(self.layers.as_ref(), &mut out);
        let owner = self.owner.map(|Owner { uid, gid }| [1, uid.into(), gid.into()]);
        out.extend(owner.unwrap_or_default().iter().flat_map(|value: &u64| value.to_le_bytes()));
        out.extend(&self.filter);
        out
    }

    /// Reads what [`Plan::encode`] wrote; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let ([own_network, has_names], mut rest) = bytes.split_first_chunk::<2>()?;
        let from = &mut rest;
        let shm_size = number(from)?;
        let mut doors = Vec::new();
        for _ in 0..number(from)? {
            let (port, left) = from.split_first_chunk::<2>()?;
            doors.push(u16::from_le_bytes(*port));
            *from = left;
        }
        let places = mounts::decode(from)?;
        let group = Some(mounts::path(from)?).filter(|group| group.is_absolute());
        let layers = Some(mounts::decode_layers(from)?).filter(|layers| layers.lower.is_absolute());
        let (has_owner, uid, gid) = (number(from)?, number(from)?, number(from)?);
        let owner = Owner { uid: u32::try_from(uid).ok()?, gid: u32::try_from(gid).ok()? };
        Some(Self {
            places,
            group,
            layers,
            owner: (has_owner != 0).then_some(owner),
            own_network: *own_network != 0,
            doors,
            has_names: *has_names != 0,
            shm_size,
            filter: from.to_vec(),
        })
    }
}

/// The confinement by namespaces.
#[derive(Default)]
pub(crate) struct Inside {
    filter: Vec<u8>,
    ruleset: Option<OwnedFd>,
    owner: Option<Owner>,
}

impl Confinement for Inside {
    fn enter(&mut self, setup: &[u8], mut fds: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Failure> {
        let plan = Plan::decode(setup).ok_or(MALFORMED)?;
        let ruleset = fds.pop().ok_or(MALFORMED)?;
        if let Some(group) = &plan.group {
            // 0 is the writer itself: cgroups(7).
            write(group, "0").map_err(at(Step::Limits))?;
        }
        unshare_all(plan.own_network, plan.owner).map_err(at(Step::Namespaces))?;
        let made = mounts::carry_out(&plan.places, (plan.layers.as_ref(), plan.shm_size))
            .map_err(at(Step::Mounts))?;
        let rights = super::landlock::writable_bits();
        for folder in &made.writable {
            let terminals = rights | super::landlock::device_bits();
            sys::landlock_grant(ruleset.as_fd(), folder.as_fd(), terminals)
                // A right that the ruleset doesn't handle.
                .or_else(|_| sys::landlock_grant(ruleset.as_fd(), folder.as_fd(), rights))
                .map_err(at(Step::Landlock))?;
        }
        if let Some(folder) = made.layered {
            // A read-only one is mounted so; the ruleset of the host's folders doesn't know it.
            sys::landlock_grant(ruleset.as_fd(), folder.as_fd(), rights)
                .map_err(at(Step::Landlock))?;
        }
        let doors = if plan.own_network { network(&plan)? } else { Vec::new() };
        self.filter = plan.filter;
        self.owner = plan.owner;
        self.ruleset = Some(ruleset);
        Ok(doors)
    }

    fn reaper_flags(&self) -> i32 {
        (CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS).bits()
    }

    fn adopt(&self) -> Result<(), Failure> {
        mounts::fresh_proc().map_err(at(Step::Mounts))?;
        Ok(())
    }

    fn confine(&self) -> Result<(), Failure> {
        if let Some(owner) = self.owner {
            // The change of user takes the capability that this needs.
            sys::limit_bounding(0);
            become_owner(owner).map_err(at(Step::Capabilities))?;
        }
        sys::limit_capabilities(0).map_err(at(Step::Capabilities))?;
        nix::sys::prctl::set_no_new_privs().map_err(at(Step::NoNewPrivs))?;
        let ruleset = self.ruleset.as_ref().ok_or(MALFORMED)?;
        sys::landlock_restrict(ruleset.as_fd()).map_err(at(Step::Landlock))?;
        sys::seccomp_install(&self.filter).map_err(at(Step::Seccomp))
    }
}

/// New namespaces for this process, in which it is the same user as outside.
fn unshare_all(own_network: bool, owner: Option<Owner>) -> nix::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    let mut flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    if own_network {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    // The files of /proc/self belong to root while a process is undumpable: proc(5).
    nix::sys::prctl::set_dumpable(true)?;
    if let Some(owner) = owner {
        map_from_outside(flags, owner)?;
    } else {
        unshare(flags)?;
        // Without it an unprivileged user may not map groups: user_namespaces(7).
        write("/proc/self/setgroups", "deny")?;
        write("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
        write("/proc/self/gid_map", &format!("{gid} {gid} 1"))?;
    }
    nix::sys::prctl::set_dumpable(false)?;
    sethostname(HOST_NAME)
}

/// Unshares, and has a second user mapped by a child that stays outside: it takes capabilities there,
/// which this process gives up.
fn map_from_outside(flags: CloneFlags, owner: Owner) -> nix::Result<()> {
    let (uid, gid) = (geteuid(), getegid());
    let (told, tells) = pipe2(OFlag::O_CLOEXEC)?;
    let own = Path::new("/proc").join(getpid().to_string());
    let Some(child) = split(0)? else {
        drop(tells);
        // Ends with the other end: the namespaces are there, or the parent is gone.
        let done = read(&told, &mut [0]).and_then(|count| {
            if count == 0 {
                return Err(Errno::ESRCH);
            }
            write(own.join("uid_map"), &format!("{uid} {uid} 1\n{0} {0} 1", owner.uid))?;
            write(own.join("gid_map"), &format!("{gid} {gid} 1\n{0} {0} 1", owner.gid))
        });
        leave(done.err().map_or(0, |errno| errno as i32));
    };
    drop(told);
    let unshared = unshare(flags).and_then(|()| nix::unistd::write(&tells, b"m").map(drop));
    drop(tells);
    let status = waitpid(child, None)?;
    unshared?;
    let WaitStatus::Exited(_, code) = status else { return Err(Errno::ECHILD) };
    if code == 0 { Ok(()) } else { Err(Errno::from_raw(code)) }
}

fn write(file: impl AsRef<Path>, text: &str) -> nix::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO)))
}

/// Makes this process another user's, with its streams: it may open them again by name.
fn become_owner(owner: Owner) -> nix::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    for stream in [std::io::stdin().as_fd(), std::io::stdout().as_fd(), std::io::stderr().as_fd()] {
        let kind = SFlag::from_bits_truncate(fstat(stream)?.st_mode) & SFlag::S_IFMT;
        if kind == SFlag::S_IFIFO {
            fchown(stream, Some(uid), Some(gid))?;
        }
    }
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

/// Brings the loopback up and makes what the runner listens to.
fn network(plan: &Plan) -> Result<Vec<OwnedFd>, Failure> {
    let step = at(Step::Namespaces);
    let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(&step)?;
    sys::loopback_up(control.as_fd()).map_err(&step)?;
    let failed = |error: std::io::Error| Failure {
        step: Step::Namespaces,
        errno: error.raw_os_error().unwrap_or(nix::libc::EIO),
    };
    let mut doors = Vec::new();
    for port in &plan.doors {
        doors.push(TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).map_err(failed)?.into());
    }
    if plan.has_names {
        doors.push(UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)).map_err(failed)?.into());
    }
    Ok(doors)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Owner, Plan};
    use crate::sandbox::linux::mounts::{Layers, Placed, View, ordered};

    fn placed(at: &str, view: View) -> Placed {
        Placed { at: PathBuf::from(at), what: PathBuf::from(at), view }
    }

    #[test]
    fn a_plan_survives_the_way() {
        let plan = Plan {
            places: vec![placed("/a", View::Writable), placed("/a/.git", View::Protected)],
            own_network: true,
            doors: vec![3128, 5432],
            has_names: true,
            shm_size: 7,
            group: Some(PathBuf::from("/g")),
            layers: Some(Layers {
                lower: PathBuf::from("/l"),
                upper: PathBuf::from("/u"),
                work: PathBuf::from("/k"),
            }),
            owner: Some(Owner { uid: 1, gid: 2 }),
            filter: vec![1, 2, 3],
        };
        assert_eq!(Plan::decode(&plan.encode()), Some(plan));
        assert_eq!(Plan::decode(b"x"), None);
    }

    #[test]
    fn the_deeper_place_is_laid_later() {
        let places = ordered(vec![
            placed("/w/a/b", View::Writable),
            placed("/w/a", View::Hidden),
            placed("/w", View::Protected),
            placed("/w", View::Writable),
        ]);
        let seen: Vec<_> = places
            .iter()
            .map(|place| (place.at.to_string_lossy().into_owned(), place.view))
            .collect();
        assert_eq!(
            seen,
            [
                ("/w".to_owned(), View::Writable),
                ("/w".to_owned(), View::Protected),
                ("/w/a".to_owned(), View::Hidden),
                ("/w/a/b".to_owned(), View::Writable)
            ]
        );
    }
}
