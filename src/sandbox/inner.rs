//! The inner stage: our own binary, started again.
//!
//! In: the arguments of the process. Out: its exit code, when it is a starter or a trial. A starter
//! sets a confinement up and starts commands in it; a trial is such a command and says what is not
//! as it should be.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::libc;

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
        [mode, network, tier, places @ ..] if mode == TRIAL => {
            let is_open = network == "full";
            Some(trial((is_open, tier == NAMESPACES), &Tried::read(places)))
        }
        _ => Some(ExitCode::FAILURE),
    }
}

/// Fourth argument of a trial in namespaces.
const NAMESPACES: &str = "namespaces";

/// Begins a line that says what is so, not what is missing.
pub(super) const NOTE: &str = "note";

/// The note that /proc is not this process namespace's.
pub(super) const OUTER_PROC: &str = "outer-proc";

/// Places that a trial tries out; absolute.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// Must be writable.
    pub(super) roots: Vec<PathBuf>,
    /// Must not be writable.
    pub(super) protected: Vec<PathBuf>,
    /// Must be neither readable nor listed.
    pub(super) denied: Vec<PathBuf>,
}

impl Tried {
    fn write(&self) -> impl Iterator<Item = String> {
        let named = |kind: char, paths: &[PathBuf]| -> Vec<String> {
            paths.iter().map(|path| format!("{kind}{}", path.display())).collect()
        };
        let all = [named('w', &self.roots), named('p', &self.protected), named('d', &self.denied)];
        all.into_iter().flatten()
    }

    fn read(arguments: &[OsString]) -> Self {
        let mut tried = Self::default();
        for argument in arguments {
            let Some((kind, path)) = argument.as_bytes().split_first() else { continue };
            let path = PathBuf::from(OsStr::from_bytes(path));
            match kind {
                b'w' => tried.roots.push(path),
                b'p' => tried.protected.push(path),
                _ => tried.denied.push(path),
            }
        }
        tried
    }
}

/// Arguments of a trial with this network, in this tier.
pub(super) fn trial_arguments(
    network: Network,
    has_namespaces: bool,
    tried: &Tried,
) -> Vec<String> {
    let tier = if has_namespaces { NAMESPACES } else { "landlock" };
    let fixed = ["horseman", INNER, TRIAL, network.name(), tier];
    fixed.into_iter().map(str::to_owned).chain(tried.write()).collect()
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
        found.extend(loopback());
    }
    found.extend(processes());
    found
}

/// Why the attempt's own loopback does not work.
fn loopback() -> Option<(&'static str, String)> {
    let tried = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| TcpStream::connect(listener.local_addr()?));
    Some(("network", format!("the loopback does not work: {}", tried.err()?)))
}

/// An address that nobody has: RFC 5737.
const NOWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// What of the outside is still there, beside a supervisor.
fn beside(is_open: bool) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if !is_open {
        found.extend(loopback());
        let errno = TcpStream::connect(NOWHERE).err().and_then(|error| error.raw_os_error());
        if errno != Some(libc::ENETUNREACH) {
            found.push(("network", "an address outside is not refused".to_owned()));
        }
    }
    // The mode that it has: nothing is changed, whatever happens.
    let same = fs::metadata("/").and_then(|facts| fs::set_permissions("/", facts.permissions()));
    if same.is_ok() {
        found.push(("write", "the mode of a folder outside could be changed".to_owned()));
    }
    found
}

/// What of other processes is seen.
fn processes() -> Option<(&'static str, String)> {
    let own = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse::<u32>().ok());
    if own != Some(std::process::id()) {
        return Some((NOTE, OUTER_PROC.to_owned()));
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // Beside this process there is only the reaper, which is the first.
    let other = ids.find(|id| ![Some(1), own].contains(&Some(*id)))?;
    Some(("processes", format!("a process that is not of this command is seen: {other}")))
}

/// Whether something could be written there. A file without a name: nothing is left behind,
/// whatever happens.
fn write_at(path: &Path) -> io::Result<()> {
    let mut how = OpenOptions::new();
    how.write(true).mode(0o600);
    if path.is_dir() {
        how.custom_flags(libc::O_TMPFILE);
    }
    match how.open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        other => other.map(drop),
    }
}

/// Whether something can be read there.
fn is_readable(path: &Path) -> bool {
    if path.is_dir() { fs::read_dir(path).is_ok() } else { fs::File::open(path).is_ok() }
}

/// Prints a line `item<TAB>reason` for each thing that is not in force.
fn trial((is_open, has_namespaces): (bool, bool), tried: &Tried) -> ExitCode {
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
    } else {
        for (item, why) in beside(is_open) {
            say(item, &why);
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
    for root in tried.roots.iter().filter(|root| root.is_dir()) {
        if let Err(error) = write_at(root) {
            say("write", &format!("the root `{}` is not writable: {error}", root.display()));
        }
    }
    for path in tried.protected.iter().filter(|path| write_at(path).is_ok()) {
        say("protected", &format!("`{}` could be opened for writing", path.display()));
    }
    for path in tried.denied.iter().filter(|path| is_readable(path)) {
        say("read", &format!("`{}` could be read", path.display()));
    }
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
