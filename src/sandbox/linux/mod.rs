//! Linux: the layers of a confinement, and the half of them that runs inside.
//!
//! In: a layout with absolute paths. Out: a ruleset, a filter, and [`Chosen`], which puts both on
//! the processes inside. Knows nothing of profiles.

pub(crate) mod cgroup;
pub(crate) mod landlock;
pub(crate) mod mounts;
pub(crate) mod namespaces;
pub(crate) mod seccomp;
mod sys;

use std::os::fd::{AsFd as _, OwnedFd};

use nix::sys::resource::{Resource, setrlimit};

use crate::process::{Confinement, Failure, Step, at};

/// Capabilities that our own git keeps as root: it must read and write files of other users.
/// `CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER`: capabilities(7).
pub(crate) const FILE_CAPABILITIES: u64 = 0b1111;

/// First byte of a set-up: which confinement it is for.
const NOTHING: u8 = 0;
const LANDLOCK: u8 = 1;
const NAMESPACES: u8 = 2;

/// The set-up of no confinement at all, which is `danger-full-access`.
pub(crate) fn encode_nothing() -> Vec<u8> {
    vec![NOTHING]
}

/// The set-up of Landlock and seccomp: capabilities to keep, then the filter. The ruleset goes
/// beside it as a descriptor.
pub(crate) fn encode_landlock(keep: u64, filter: &[u8]) -> Vec<u8> {
    [&[LANDLOCK][..], &keep.to_le_bytes(), filter].concat()
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

/// Makes this process unreadable for others of the same user.
pub(crate) fn harden() {
    // Fails only for invalid arguments: prctl(2).
    let _ = nix::sys::prctl::set_dumpable(false);
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

pub(crate) use sys::{attribute, can_write, landlock_abi, set_attribute};
