//! Families: which processes descend from one, and which belong to a run.
//!
//! In: `/proc`. Out: process ids, and signals to them. Knows nothing of commands.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};

/// Name of the variable that marks every process of a run with the run's private state folder.
pub const MARKER: &str = "HORSEMAN_STATE";

/// Rounds of "look again" before processes that keep appearing are killed where they stand.
const FREEZE_ROUNDS: u32 = 64;

/// How often [`end_leftovers`] looks again. Each round kills all it sees, so a second one is needed
/// only for what was forked in between; ours.
const SWEEPS: u32 = 50;

/// Descendants of `root` that are not zombies, in no order. Empty without `/proc`.
pub(crate) fn descendants(root: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<(i32, bool)>> = HashMap::new();
    for pid in processes() {
        if let Some((state, parent)) = stat(pid) {
            let is_dead = matches!(state, b'Z' | b'X');
            children.entry(parent).or_default().push((pid, is_dead));
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root.as_raw()];
    while let Some(parent) = open.pop() {
        for (pid, is_dead) in children.remove(&parent).unwrap_or_default() {
            open.push(pid);
            if !is_dead {
                found.push(Pid::from_raw(pid));
            }
        }
    }
    found
}

/// Children of `root` that are not among `known`.
pub(crate) fn strays(root: Pid, known: &HashSet<Pid>) -> Vec<Pid> {
    processes()
        .filter(|&pid| stat(pid).is_some_and(|(_, parent)| parent == root.as_raw()))
        .map(Pid::from_raw)
        .filter(|pid| !known.contains(pid))
        .collect()
}

/// Stops every descendant of `root` so that none can fork, then sends SIGKILL to all. Returns how
/// many there were.
pub(crate) fn kill_descendants(root: Pid) -> usize {
    let mut seen = HashSet::new();
    for _ in 0..FREEZE_ROUNDS {
        let fresh: Vec<Pid> =
            descendants(root).into_iter().filter(|pid| seen.insert(*pid)).collect();
        if fresh.is_empty() {
            break;
        }
        signal_all(&fresh, Signal::SIGSTOP);
    }
    let all: Vec<Pid> = seen.into_iter().collect();
    signal_all(&all, Signal::SIGKILL);
    all.len()
}

/// Id of the first process of a process namespace: `pid_namespaces(7)`.
const INIT: i32 = 1;

/// All that descends from this process.
///
/// The folder of /proc may be of an outer namespace, where this process has another id.
pub(crate) fn own() -> Vec<Pid> {
    let id = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse().ok());
    descendants(id.map_or_else(getpid, Pid::from_raw))
}

/// Sends `signal` to all that descends from this process.
pub(crate) fn signal_own(signal: Signal) {
    if getpid().as_raw() == INIT {
        // To all of the namespace but this process: kill(2).
        let _ = kill(Pid::from_raw(-1), signal);
    } else {
        signal_all(&descendants(getpid()), signal);
    }
}

/// Kills all that descends from this process.
pub(crate) fn kill_own() {
    if getpid().as_raw() == INIT {
        signal_own(Signal::SIGKILL);
    } else {
        kill_descendants(getpid());
    }
}

/// Sends `signal` to each; one that is gone already is no error.
pub(crate) fn signal_all(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill(*pid, signal);
    }
}

/// Ends what a killed run left over.
///
/// A process belongs to the run when its initial environment says `HORSEMAN_STATE=<marker>`, or
/// when its working folder, root, program or an open file lies below `marker`. This process and
/// its ancestors are spared. Returns how many processes got SIGKILL; blocks for at most about a
/// second, until they are gone.
pub fn end_leftovers(marker: &Path) -> u32 {
    let spared = ancestors(getpid());
    let mut ended = HashSet::new();
    for _ in 0..SWEEPS {
        let left: Vec<Pid> = processes()
            .filter(|pid| !spared.contains(pid) && belongs(*pid, marker))
            .map(Pid::from_raw)
            .collect();
        if left.is_empty() {
            break;
        }
        signal_all(&left, Signal::SIGSTOP);
        signal_all(&left, Signal::SIGKILL);
        ended.extend(left);
        std::thread::sleep(Duration::from_millis(20));
    }
    u32::try_from(ended.len()).unwrap_or(u32::MAX)
}

fn belongs(pid: i32, marker: &Path) -> bool {
    if stat(pid).is_none_or(|(state, _)| matches!(state, b'Z' | b'X')) {
        return false;
    }
    let folder = Path::new("/proc").join(pid.to_string());
    let is_marked = fs::read(folder.join("environ")).is_ok_and(|environ| {
        let value = [MARKER.as_bytes(), b"=", marker.as_os_str().as_bytes()].concat();
        environ.split(|&byte| byte == 0).any(|entry| entry == value)
    });
    let lies_below = |link: &Path| fs::read_link(link).is_ok_and(|path| path.starts_with(marker));
    is_marked
        || ["cwd", "root", "exe"].iter().any(|name| lies_below(&folder.join(name)))
        || fs::read_dir(folder.join("fd"))
            .is_ok_and(|fds| fds.flatten().any(|fd| lies_below(&fd.path())))
}

fn ancestors(pid: Pid) -> HashSet<i32> {
    let mut found = HashSet::new();
    let mut at = pid.as_raw();
    while at > 0 && found.insert(at) {
        at = stat(at).map_or(0, |(_, parent)| parent);
    }
    found
}

fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// State and parent of a process, from `/proc/PID/stat`.
fn stat(pid: i32) -> Option<(u8, i32)> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The name stands in brackets and may hold anything, brackets and spaces too: the last one counts.
fn parse_stat(line: &[u8]) -> Option<(u8, i32)> {
    let end = line.iter().rposition(|&byte| byte == b')')?;
    let mut fields = line.get(end + 2..)?.split(|&byte| byte == b' ');
    let state = *fields.next()?.first()?;
    let parent = OsStr::from_bytes(fields.next()?).to_str()?.parse().ok()?;
    Some((state, parent))
}

#[cfg(test)]
mod tests {
    use super::parse_stat;

    #[test]
    fn a_name_with_brackets_does_not_hide_a_process() {
        assert_eq!(parse_stat(b"12 (a) S 1) R 34 12 12 0"), Some((b'R', 34)));
        assert_eq!(parse_stat(b"12 (sleep) Z 1 12"), Some((b'Z', 1)));
        assert_eq!(parse_stat(b"12 (sleep"), None);
    }
}
