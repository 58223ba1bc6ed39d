//! Enforcement: what is in force, item by item, in words for the record.
//!
//! In: facts of the host and what was asked for. Out: an [`Enforcement`]. Pure.

use std::collections::BTreeMap;

use super::linux::landlock::SCOPES;
use super::{Facts, Host, Kind, PROTECTED, Place};
use crate::profile::{Inherit, Network, Profile, SandboxMode};
use crate::transcript::event::{Enforcement, Level};

/// Decides the levels.
pub(super) fn decide(
    host: &Host,
    profile: &Profile,
    place: &Place,
    (facts, kind): (&Facts, &Kind),
) -> Enforcement {
    let mut items = match kind {
        Kind::Open(why) => open(host, why),
        Kind::Landlock => confined(facts, profile),
        Kind::Narrow(_) => narrow(facts, profile),
        Kind::Namespaces => namespaced(facts, profile),
    };
    items.insert("limits", limits(host, profile, (facts, kind)));
    items.insert("environment", environment(profile));
    let is_open = matches!(kind, Kind::Open(_));
    if !is_open || (profile.degraded.iter().any(|item| item == PROTECTED) && !place.is_disposable) {
        items.insert(PROTECTED, protected(profile, place, kind));
    }
    Enforcement {
        tier: match kind {
            Kind::Open(_) => "none",
            Kind::Landlock | Kind::Narrow(_) => "landlock",
            Kind::Namespaces => "namespaces",
        }
        .to_owned(),
        mode: profile.mode.name().to_owned(),
        items: items.into_iter().map(|(item, level)| (item.to_owned(), level)).collect(),
    }
}

fn confined(facts: &Facts, profile: &Profile) -> BTreeMap<&'static str, Level> {
    let layer = "landlock and supervisor";
    let has_scopes = facts.abi() >= SCOPES;
    let network = match profile.network {
        Network::None | Network::Listed => full("supervisor and landlock: a loopback of its own"),
        Network::Full => network(Network::Full),
    };
    BTreeMap::from([
        ("write", full(layer)),
        (
            "read",
            partial(
                layer,
                "that a hidden file exists, its size, and that it is used can still be seen",
            ),
        ),
        ("network", network),
        ("unix-sockets", full("supervisor: its own and listed ones")),
        ("signals", signals(has_scopes)),
        (
            "processes",
            partial(
                "landlock and seccomp",
                "ids and command lines of other processes and names of interfaces can be read",
            ),
        ),
        ("secrets", full("landlock, environment and an undumpable runner")),
        ("kill-on-exit", full("subreaper")),
        ("set-id", full("seccomp and no_new_privs")),
        (
            "tmp",
            partial(
                layer,
                "TMPDIR and /dev/shm are the attempt's own; /tmp and /var/tmp are the host's, \
                 read-only",
            ),
        ),
    ])
}

/// Our own git: no supervisor, and no commands of others.
fn narrow(facts: &Facts, profile: &Profile) -> BTreeMap<&'static str, Level> {
    let has_scopes = facts.abi() >= SCOPES;
    BTreeMap::from([
        (
            "write",
            partial(
                "landlock",
                "mode, owner and times of files outside can be changed where this user owns them",
            ),
        ),
        ("read", partial("landlock", "that a hidden file exists, and its size, can still be seen")),
        ("network", network(profile.network)),
        ("unix-sockets", full("seccomp: none connects")),
        ("signals", signals(has_scopes)),
        (
            "processes",
            partial(
                "landlock and seccomp",
                "ids and command lines of other processes can be read in /proc",
            ),
        ),
        ("secrets", full("landlock, environment and an undumpable runner")),
        ("kill-on-exit", full("subreaper")),
        ("set-id", full("seccomp and no_new_privs")),
    ])
}

fn signals(has_scopes: bool) -> Level {
    if has_scopes {
        full("landlock")
    } else {
        none("Landlock has scopes from ABI 6 on (Linux 6.12)")
    }
}

fn namespaced(facts: &Facts, profile: &Profile) -> BTreeMap<&'static str, Level> {
    let network = match profile.network {
        Network::None => full("network namespace: its own loopback"),
        Network::Listed => full("network namespace, and a proxy to the listed hosts"),
        Network::Full => network(Network::Full),
    };
    let sockets = if facts.sockets.is_empty() {
        "no socket of the host was within reach; one made later outside the usual folders would be"
    } else {
        "the host's sockets and their usual folders are masked; one made later elsewhere would be \
         reachable"
    };
    let processes = if facts.has_outer_proc {
        partial(
            "process namespace, seccomp",
            "a fresh /proc is refused here, so ids and command lines of other processes can be read",
        )
    } else {
        full("process namespace, seccomp")
    };
    BTreeMap::from([
        ("write", full("mounts and landlock")),
        ("read", full("mounts")),
        ("network", network),
        ("unix-sockets", partial("mounts", sockets)),
        ("signals", full("process namespace and landlock")),
        ("processes", processes),
        ("secrets", full("process namespace, landlock, environment and an undumpable runner")),
        ("kill-on-exit", full("process namespace")),
        ("set-id", full("mounts, seccomp and no_new_privs")),
        ("tmp", full("mounts: /tmp, /var/tmp and /dev/shm are the attempt's own")),
    ])
}

fn network(network: Network) -> Level {
    match network {
        Network::None | Network::Listed => full("seccomp: no sockets but unix ones"),
        Network::Full => partial(
            "seccomp",
            "the profile allows the network; only raw, packet and vsock sockets are denied",
        ),
    }
}

fn limits(host: &Host, profile: &Profile, (facts, kind): (&Facts, &Kind)) -> Level {
    if facts.groups.processes {
        full(if facts.groups.memory {
            "cgroup and rlimit"
        } else {
            "cgroup (processes) and rlimit"
        })
    } else if host.uid == 0 && profile.limits.processes.is_some() && *kind == Kind::Landlock {
        full("rlimit, and processes counted by the supervisor")
    } else if host.uid == 0 && profile.limits.processes.is_some() {
        partial(
            "rlimit",
            "for uid 0 the kernel does not enforce the number of processes, and no cgroup of ours \
             can be made",
        )
    } else {
        full("rlimit")
    }
}

fn environment(profile: &Profile) -> Level {
    match profile.env.inherit {
        Inherit::All => {
            partial("allow list", "the profile passes every variable but provider keys")
        }
        Inherit::None | Inherit::Core => full("allow list"),
    }
}

fn protected(profile: &Profile, place: &Place, kind: &Kind) -> Level {
    if matches!(kind, Kind::Open(_)) {
        partial(
            "verification",
            "degraded: what is changed is found after each command and put back; until then the \
             change is there",
        )
    } else if profile.mode == SandboxMode::ReadOnly {
        full("landlock: the workspace is not writable")
    } else if *kind == Kind::Namespaces && !place.is_disposable && !profile.protected.is_empty() {
        partial(
            "mounts",
            "what is there is read-only; a protected name that is missing, or a symlink, can be \
             made anew, and is put back after the command",
        )
    } else if *kind == Kind::Landlock && !place.is_disposable && !profile.protected.is_empty() {
        full("supervisor: what is there is read-only, and what is missing can't be made")
    } else if place.is_disposable {
        full("disposable workspace: enforced on the patch")
    } else {
        none("the profile names no protected paths")
    }
}

fn open(host: &Host, why: &str) -> BTreeMap<&'static str, Level> {
    let mut items: BTreeMap<&'static str, Level> =
        ["write", "read", "network", "unix-sockets", "signals", "processes", "protected", "set-id"]
            .into_iter()
            .map(|item| (item, none(why)))
            .collect();
    let secrets = if host.uid == 0 {
        none("root reads the memory of every process, the runner's too")
    } else {
        partial(
            "environment and an undumpable runner",
            "a key that comes from a file or command of this user can be had the same way",
        )
    };
    items.insert("secrets", secrets);
    items.insert("kill-on-exit", partial("subreaper", "an unconfined command can kill the reaper"));
    items
}

fn full(layer: &str) -> Level {
    Level::Full { layer: layer.to_owned() }
}

fn partial(layer: &str, why: &str) -> Level {
    Level::Partial { layer: layer.to_owned(), why: why.to_owned() }
}

fn none(why: &str) -> Level {
    Level::None { why: why.to_owned() }
}
