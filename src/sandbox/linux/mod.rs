//! Linux: the layers of the `landlock` tier and the half of them that runs between fork and exec.
//!
//! In: a layout with absolute paths. Out: a ruleset, a filter, and [`apply`], which puts both on
//! the forked child. Knows nothing of profiles.

pub(crate) mod landlock;
pub(crate) mod seccomp;
mod sys;

use std::os::fd::{AsFd as _, OwnedFd};

use nix::sys::resource::{Resource, setrlimit};

use crate::process::{Failure, Step, at};

/// Capabilities that our own git keeps as root: it must read and write files of other users.
/// `CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER`: capabilities(7).
pub(crate) const FILE_CAPABILITIES: u64 = 0b1111;

/// The confinement as bytes for the inner stage: capabilities to keep, then the filter. The
/// ruleset goes beside it as a descriptor.
pub(crate) fn encode(keep: u64, filter: &[u8]) -> Vec<u8> {
    [&keep.to_le_bytes()[..], filter].concat()
}

/// Applies what [`encode`] wrote: capabilities, no new privileges, Landlock, seccomp. Nothing is
/// applied when `bytes` is empty, which is `danger-full-access`.
pub(crate) fn apply(bytes: &[u8], fds: &[OwnedFd]) -> Result<(), Failure> {
    if bytes.is_empty() {
        return Ok(());
    }
    let (Some((keep, filter)), [ruleset]) = (bytes.split_first_chunk::<8>(), fds) else {
        return Err(Failure { step: Step::Receive, errno: nix::libc::EPROTO });
    };
    sys::limit_capabilities(u64::from_le_bytes(*keep)).map_err(at(Step::Capabilities))?;
    nix::sys::prctl::set_no_new_privs().map_err(at(Step::NoNewPrivs))?;
    sys::landlock_restrict(ruleset.as_fd()).map_err(at(Step::Landlock))?;
    sys::seccomp_install(filter).map_err(at(Step::Seccomp))
}

/// Makes this process unreadable for others of the same user.
pub(crate) fn harden() {
    // Fails only for invalid arguments: prctl(2).
    let _ = nix::sys::prctl::set_dumpable(false);
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

pub(crate) use sys::{can_write, landlock_abi};
