//! The tier of Landlock, prepared: what the supervisor guards, and what Landlock grants without it.
//!
//! In: a layout with its carve-outs. Out: rulesets, filter and policy, as the starter takes them. Knows
//! nothing of system calls.

use std::fs::File;
use std::io::Read as _;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::layout::Layout;
use super::linux::landlock::{Fence, SCOPES, ruleset};
use super::linux::seccomp::Asked;
use super::linux::supervise::Policy;
use super::{Inner, SandboxError, denied, enumerate, linux, proxy, real_roots};
use crate::profile::{Network, Profile};

/// Folder of shared memory in the private temporary folder.
const SHARED_MEMORY: &str = ".shm";

/// What the starter applies.
pub(super) struct Supervised {
    pub(super) setup: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
}

/// Prepares a supervised confinement.
pub(super) fn prepare(inner: &Inner, layout: &Layout) -> Result<Supervised, SandboxError> {
    let Inner { host, profile, place, facts, .. } = inner;
    let write = real_roots(&layout.write);
    let denied = denied(layout)?;
    let is_inside =
        |path: &PathBuf| write.iter().any(|root| path.starts_with(root) && path != root);
    let is_counted = host.uid == 0;
    let loopback = (profile.network != Network::Full).then(loopback);
    let policy = Policy {
        protected: layout.protected.iter().filter(|path| is_inside(path)).cloned().collect(),
        denied: denied.iter().filter(|path| is_inside(path)).cloned().collect(),
        copies: layout.copies.clone(),
        shared_memory: place.tmp.join(SHARED_MEMORY),
        sockets: sockets(profile, layout),
        doors: match loopback {
            Some(ip) if profile.network == Network::Listed => {
                let ports = proxy::ports(&profile.hosts).map_err(SandboxError::unlisted)?;
                ports.into_iter().map(|port| (port, (ip, 0).into())).collect()
            }
            Some(_) | None => Vec::default(),
        },
        loopback,
        has_scopes: facts.abi() >= SCOPES,
        processes: profile.limits.processes.filter(|_| is_counted),
        write,
    };
    let read = enumerate::granted(&real_roots(&layout.read), &denied);
    let (carved, granted): (Vec<PathBuf>, Vec<PathBuf>) =
        policy.write.iter().cloned().partition(|root| policy.holds_carved(root));
    let outer = ruleset(facts.abi(), Fence::Open, &read, &policy.write)?;
    // What is unreadable in a carved root is kept by the supervisor alone: executing needs the right
    // to read, and Landlock can't grant that to what is yet to be made and not to what is there.
    let read = [read, carved].concat();
    let fence = if profile.network == Network::Full { Fence::Open } else { Fence::NoTcp };
    let own = ruleset(facts.abi(), fence, &read, &granted)?;
    let asked = Asked {
        writing: policy.carved().next().is_some(),
        reading: policy.guards_reading(),
        is_open: profile.network == Network::Full,
        counting: policy.processes.is_some(),
    };
    let filter = linux::seccomp::supervised(asked).map_err(SandboxError::Filter)?;
    Ok(Supervised { setup: linux::encode_supervised(&filter, &policy), fds: vec![outer, own] })
}

fn sockets(profile: &Profile, layout: &Layout) -> Vec<PathBuf> {
    let listed: Vec<PathBuf> =
        layout.sockets.iter().chain(&profile.unix_sockets).cloned().collect();
    real_roots(&listed)
}

/// An address of the host's loopback that nobody else is likely to have. Even, because the next one
/// belongs to it; without randomness the process id tells attempts apart.
fn loopback() -> Ipv4Addr {
    let mut bytes = std::process::id().to_ne_bytes();
    let random = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    drop(random);
    let [first, second, third, _] = bytes;
    // 127.0.0.x and 127.x.x.255 are used by services and as broadcast addresses.
    Ipv4Addr::new(127, first.max(1), second, (third & 0xfc).clamp(4, 248))
}
