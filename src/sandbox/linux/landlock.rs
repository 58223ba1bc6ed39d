//! Landlock: what of the file system a command may read and write.
//!
//! In: paths to grant. Out: a ruleset descriptor that the inner stage restricts itself with.
//! TCP rules are a second fence only: MPTCP and TCP Fast Open pass them (landlock-lsm/linux#41).

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError,
    Scope,
};
use thiserror::Error;

/// Oldest ABI that can confine writes: without `TRUNCATE` any file could be emptied.
pub(crate) const OLDEST: u32 = 3;

/// First ABI with scopes for signals and abstract sockets.
pub(crate) const SCOPES: u32 = 6;

/// Stateless devices, which a command may use.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Why no ruleset could be made.
#[derive(Debug, Error)]
pub enum LandlockError {
    /// The ruleset itself.
    #[error("failed to make a Landlock ruleset")]
    Create(#[source] RulesetError),
    /// The kernel has no Landlock.
    #[error("the kernel enforces no Landlock ruleset")]
    Unsupported,
    /// A root that must be writable can't be opened.
    #[error("failed to open the writable root `{}`", path.display())]
    Root {
        /// The root.
        path: PathBuf,
        /// Cause.
        #[source]
        source: landlock::PathFdError,
    },
    /// A rule.
    #[error("failed to add a Landlock rule for `{}`", path.display())]
    Rule {
        /// Its path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: RulesetError,
    },
}

/// What of TCP a ruleset lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Nothing.
    NoTcp,
    /// Everything: the network is open, or the attempt's own.
    Open,
}

/// Makes the ruleset: `read` may be read and executed, `write` changed as well.
///
/// A path of `read` that has gone meanwhile is left out: less is readable, never more.
pub(crate) fn ruleset(
    abi: u32,
    fence: Fence,
    read: &[PathBuf],
    write: &[PathBuf],
) -> Result<OwnedFd, LandlockError> {
    let abi = known(abi);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))
        .map_err(LandlockError::Create)?;
    if abi >= ABI::V4 && fence == Fence::NoTcp {
        rules = rules.handle_access(AccessNet::from_all(abi)).map_err(LandlockError::Create)?;
    }
    if abi >= ABI::V6 {
        rules = rules
            .scope(Scope::AbstractUnixSocket | Scope::Signal)
            .map_err(LandlockError::Create)?;
    }
    let mut rules = rules.create().map_err(LandlockError::Create)?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    for path in DEVICES {
        rules = grant(rules, Path::new(path), device)?;
    }
    // It leads to the command's own terminal or to none: a command begins without one.
    rules = grant(rules, Path::new("/dev/tty"), device | AccessFs::IoctlDev)?;
    for path in read {
        rules = grant(rules, path, AccessFs::from_read(abi))?;
    }
    for path in write {
        let fd = PathFd::new(path)
            .map_err(|source| LandlockError::Root { path: path.clone(), source })?;
        rules = add(rules, path, fd, writable(abi))?;
    }
    Option::<OwnedFd>::from(rules).ok_or(LandlockError::Unsupported)
}

fn grant(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, LandlockError> {
    match PathFd::new(path) {
        Ok(fd) => add(rules, path, fd, access),
        Err(_) => Ok(rules),
    }
}

fn add(
    rules: RulesetCreated,
    path: &Path,
    fd: PathFd,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, LandlockError> {
    // A rule on a file takes only the rights of files.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(ABI::V5) };
    rules
        .add_rule(PathBeneath::new(fd, access))
        .map_err(|source| LandlockError::Rule { path: path.to_owned(), source })
}

/// All rights but making devices and controlling them.
fn writable(abi: ABI) -> BitFlags<AccessFs> {
    let never = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    AccessFs::from_all(abi) & !never
}

/// Rights in a folder that is made inside, as the kernel numbers them. The ruleset of the
/// namespaces tier handles all of ABI 3, and what it doesn't handle may not be granted.
pub(crate) fn writable_bits() -> u64 {
    writable(ABI::V3).bits()
}

/// The right that terminals need beside those, which a ruleset handles from ABI 5 on.
pub(crate) fn device_bits() -> u64 {
    BitFlags::from(AccessFs::IoctlDev).bits()
}

/// The ABI up to which this code was tried; rights of later ones are not handled.
fn known(abi: u32) -> ABI {
    match abi {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        _ => ABI::V7,
    }
}

#[cfg(test)]
mod tests {
    use landlock::{ABI, Access as _, AccessFs};

    use super::writable;

    #[test]
    fn a_workspace_can_hold_no_devices() {
        let rights = writable(ABI::V7);
        assert!(!rights.contains(AccessFs::MakeChar));
        assert!(!rights.contains(AccessFs::MakeBlock));
        assert!(!rights.contains(AccessFs::IoctlDev));
        assert!(rights.contains(AccessFs::Refer | AccessFs::Truncate | AccessFs::MakeSym));
        assert!(AccessFs::from_all(ABI::V7).contains(rights));
    }
}
