//! Linux: the layers of a confinement, and the half of them that runs inside.
//!
//! In: a layout with absolute paths. Out: a ruleset, a filter, and [`Chosen`], which puts both on
//! the processes inside. Knows nothing of profiles.

pub(crate) mod cgroup;
pub(crate) mod landlock;
pub(crate) mod mounts;
pub(crate) mod namespaces;
pub(crate) mod seccomp;
pub(crate) mod supervise;
mod sys;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};

use crate::process::{Confinement, Failure, Step, at};

/// Capabilities that our own git keeps as root: it must read and write files of other users.
/// `CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER`: capabilities(7).
pub(crate) const FILE_CAPABILITIES: u64 = 0b1111;

/// First byte of a set-up: which confinement it is for.
const NOTHING: u8 = 0;
const LANDLOCK: u8 = 1;
const NAMESPACES: u8 = 2;
const SUPERVISED: u8 = 3;

/// The set-up of no confinement at all, which is `danger-full-access`.
pub(crate) fn encode_nothing() -> Vec<u8> {
    vec![NOTHING]
}

/// The set-up of Landlock and seccomp: capabilities to keep, then the filter. The ruleset goes
/// beside it as a descriptor.
pub(crate) fn encode_landlock(keep: u64, filter: &[u8]) -> Vec<u8> {
    [&[LANDLOCK][..], &keep.to_le_bytes(), filter].concat()
}

/// The set-up of Landlock and seccomp with a supervisor. Two rulesets go beside it: the supervisor's,
/// and the one of commands.
pub(crate) fn encode_supervised(filter: &[u8], policy: &supervise::Policy) -> Vec<u8> {
    let length = (filter.len() as u64).to_le_bytes();
    [&[SUPERVISED][..], &length, filter, &policy.encode()].concat()
}

/// The set-up of namespaces. The ruleset goes beside it as a descriptor.
pub(crate) fn encode_namespaces(plan: &namespaces::Plan) -> Vec<u8> {
    [&[NAMESPACES][..], &plan.encode()].concat()
}

/// The confinement that the set-up asks for.
#[derive(Default)]
pub(crate) struct Chosen(Option<Box<dyn Confinement>>);

impl Confinement for Chosen {
    fn enter(&mut self, setup: &[u8], fds: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Failure> {
        let (kind, rest) = setup.split_first().ok_or(MALFORMED)?;
        let mut chosen: Box<dyn Confinement> = match *kind {
            NOTHING => return Ok(Vec::new()),
            LANDLOCK => Box::new(Restricted::default()),
            NAMESPACES => Box::new(namespaces::Inside::default()),
            SUPERVISED => Box::new(Supervised::default()),
            _ => return Err(MALFORMED),
        };
        let made = chosen.enter(rest, fds)?;
        self.0 = Some(chosen);
        Ok(made)
    }

    fn reaper_flags(&self) -> i32 {
        self.0.as_ref().map_or(0, |chosen| chosen.reaper_flags())
    }

    fn adopt(&self) -> Result<(), Failure> {
        self.0.as_ref().map_or(Ok(()), |chosen| chosen.adopt())
    }

    fn confine(&self) -> Result<(), Failure> {
        self.0.as_ref().map_or(Ok(()), |chosen| chosen.confine())
    }
}

const MALFORMED: Failure = Failure { step: Step::Receive, errno: nix::libc::EPROTO };

/// Landlock and seccomp. The filter, and the loss of capabilities and of new privileges, are the
/// starter's own and inherited; the ruleset is each command's own, so that it can signal neither
/// its reaper nor another command.
#[derive(Default)]
struct Restricted {
    ruleset: Option<OwnedFd>,
}

impl Confinement for Restricted {
    fn enter(&mut self, setup: &[u8], mut fds: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Failure> {
        let (keep, filter) = setup.split_first_chunk::<8>().ok_or(MALFORMED)?;
        self.ruleset = Some(fds.pop().ok_or(MALFORMED)?);
        sys::limit_capabilities(u64::from_le_bytes(*keep)).map_err(at(Step::Capabilities))?;
        nix::sys::prctl::set_no_new_privs().map_err(at(Step::NoNewPrivs))?;
        sys::seccomp_install(filter).map_err(at(Step::Seccomp))?;
        Ok(Vec::new())
    }

    fn reaper_flags(&self) -> i32 {
        0
    }

    fn adopt(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn confine(&self) -> Result<(), Failure> {
        let ruleset = self.ruleset.as_ref().ok_or(MALFORMED)?;
        sys::landlock_restrict(ruleset.as_fd()).map_err(at(Step::Landlock))
    }
}

/// As [`Restricted`], with a supervisor beside the starter. Both are held by the union of the
/// profile; each command restricts itself further.
#[derive(Default)]
struct Supervised {
    ruleset: Option<OwnedFd>,
}

impl Confinement for Supervised {
    fn enter(&mut self, setup: &[u8], fds: Vec<OwnedFd>) -> Result<Vec<OwnedFd>, Failure> {
        let (length, rest) = setup.split_first_chunk::<8>().ok_or(MALFORMED)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| MALFORMED)?;
        let (filter, policy) = rest.split_at_checked(length).ok_or(MALFORMED)?;
        let mut policy = supervise::Policy::decode(policy).ok_or(MALFORMED)?;
        let mut made = Vec::new();
        for (_, outside) in &mut policy.doors {
            // At a port of the kernel's choice: the one inside may be in use on the host.
            let (listener, address) = door(*outside).map_err(at(Step::Supervisor))?;
            made.push(listener);
            *outside = address;
        }
        let [outer, inner]: [OwnedFd; 2] = fds.try_into().map_err(|_| MALFORMED)?;
        sys::limit_capabilities(0).map_err(at(Step::Capabilities))?;
        nix::sys::prctl::set_no_new_privs().map_err(at(Step::NoNewPrivs))?;
        sys::landlock_restrict(outer.as_fd()).map_err(at(Step::Landlock))?;
        self.ruleset = Some(inner);
        supervise::begin(policy, filter)?;
        Ok(made)
    }

    fn reaper_flags(&self) -> i32 {
        0
    }

    fn adopt(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn confine(&self) -> Result<(), Failure> {
        let ruleset = self.ruleset.as_ref().ok_or(MALFORMED)?;
        sys::landlock_restrict(ruleset.as_fd()).map_err(at(Step::Landlock))
    }
}

/// A listener on the host's loopback, and where it is.
fn door(wanted: SocketAddr) -> nix::Result<(OwnedFd, SocketAddr)> {
    let listener = TcpListener::bind(wanted).and_then(|made| Ok((made.local_addr()?, made)));
    let (address, listener) =
        listener.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
    Ok((listener.into(), address))
}

/// Makes this process unreadable for others of the same user.
pub(crate) fn harden() {
    // Fails only for invalid arguments: prctl(2).
    let _ = nix::sys::prctl::set_dumpable(false);
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

pub(crate) use sys::{attribute, can_write, landlock_abi, set_attribute};
