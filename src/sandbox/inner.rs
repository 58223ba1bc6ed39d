//! The inner stage: our own binary, started again.
//!
//! In: the arguments of the process. Out: its exit code, when it is a starter or a trial. A starter
//! sets a confinement up and starts commands in it; a trial is such a command and says what is not
//! as it should be.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::linux;
use crate::process::{INNER, run_starter};
use crate::profile::Network;

/// Second argument of a trial.
pub(super) const TRIAL: &str = "--trial";

/// Runs the inner stage when `args`, the program's name included, ask for it. `main` calls it
/// before anything else: the starter must have one thread and no state of a runner.
pub fn inner_stage(args: &[OsString]) -> Option<ExitCode> {
    let [_, first, rest @ ..] = args else { return None };
    if first != INNER {
        return None;
    }
    match rest {
        [] => Some(run_starter(&mut linux::Chosen::default())),
        [mode, network, tier, roots @ ..] if mode == TRIAL => {
            let is_open = network == "full";
            Some(trial((is_open, tier == NAMESPACES), roots))
        }
        _ => Some(ExitCode::FAILURE),
    }
}

/// Fourth argument of a trial in namespaces.
const NAMESPACES: &str = "namespaces";

/// Arguments of a trial with this network, in this tier, with these writable roots.
pub(super) fn trial_arguments(
    network: Network,
    has_namespaces: bool,
    roots: &[String],
) -> Vec<String> {
    let tier = if has_namespaces { NAMESPACES } else { "landlock" };
    let fixed = ["horseman", INNER, TRIAL, network.name(), tier];
    fixed.into_iter().map(str::to_owned).chain(roots.iter().cloned()).collect()
}

/// What of the outside is still there, seen from namespaces of its own.
fn outside(is_open: bool) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if !is_open {
        let interfaces = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
        let others = interfaces.lines().filter(|line| line.contains(':'));
        if let Some(other) = others.map(str::trim).find(|line| !line.starts_with("lo:")) {
            found.push(("network", format!("an interface of the host is there: {other}")));
        }
        let tried = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| TcpStream::connect(listener.local_addr()?));
        if let Err(error) = tried {
            found.push(("network", format!("the loopback does not work: {error}")));
        }
    }
    found
}

/// Prints a line `item<TAB>reason` for each thing that is not in force.
fn trial((is_open, has_namespaces): (bool, bool), roots: &[OsString]) -> ExitCode {
    let mut text = String::new();
    let mut say = |item: &str, why: &str| text.extend([item, "\t", why, "\n"]);
    // Its own name is a file that this process owns and that no ruleset of ours grants.
    if OpenOptions::new().write(true).open("/proc/self/comm").is_ok() {
        say("write", "a file outside the roots could be opened for writing");
    }
    if has_namespaces {
        for (item, why) in outside(is_open) {
            say(item, &why);
        }
    } else if !is_open {
        let made = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None);
        if !matches!(made, Err(Errno::EPERM)) {
            say("network", "an internet socket could be made");
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for (line, item, why) in [
        ("NoNewPrivs:\t1", "set-id", "no_new_privs is not set"),
        ("Seccomp:\t2", "processes", "no system call filter is installed"),
        ("CapEff:\t0000000000000000", "processes", "capabilities are left"),
        ("CapPrm:\t0000000000000000", "processes", "capabilities are left"),
    ] {
        if !status.lines().any(|found| found == line) {
            say(item, why);
        }
    }
    for root in roots.iter().map(Path::new).filter(|root| root.is_dir()) {
        // A file without a name: nothing is left behind, whatever happens.
        let tried =
            OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(root);
        let errno = tried.err().and_then(|error| error.raw_os_error());
        if let Some(errno) = errno.filter(|errno| *errno != libc::EOPNOTSUPP) {
            let cause = io::Error::from_raw_os_error(errno);
            say("write", &format!("the root `{}` is not writable: {cause}", root.display()));
        }
    }
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
