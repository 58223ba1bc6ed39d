//! Counts processes and threads where the kernel doesn't: `RLIMIT_NPROC` doesn't bind uid 0.
//!
//! In: requests for one more. Out: yes or no. The tree is counted only when as many were granted as
//! were free at the last count, so that a fork costs no look at `/proc`.

use std::collections::HashMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::unistd::Pid;

use crate::clock::Clock;

/// How long a full tree stays full without another look; ours.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Count {
    most: Option<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many more may come before the tree is counted again.
    free: u64,
    /// Since when the tree is full.
    full: Option<Clock>,
}

impl Count {
    pub(super) fn new(most: Option<u64>) -> Self {
        Self { most, state: Mutex::default() }
    }

    /// Grants one more process or thread below `starter`, or says `EAGAIN`.
    pub(super) fn admit(&self, starter: Pid) -> nix::Result<()> {
        let Some(most) = self.most else { return Ok(()) };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.free == 0 {
            if state.full.as_ref().is_some_and(|clock| clock.elapsed() < PAUSE) {
                return Err(Errno::EAGAIN);
            }
            let there: u64 = tree(starter).into_iter().map(|(_, threads)| threads).sum();
            state.free = most.saturating_sub(there);
            if state.free == 0 {
                state.full = Some(Clock::start());
                return Err(Errno::EAGAIN);
            }
            state.full = None;
        }
        state.free -= 1;
        Ok(())
    }
}

/// All processes below `root`, it included, with the number of their threads.
pub(super) fn tree(root: Pid) -> Vec<(i32, u64)> {
    let mut children: HashMap<i32, Vec<(i32, u64)>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if let Some((parent, threads)) = parent_and_threads(&text) {
            children.entry(parent).or_default().push((pid, threads));
        }
    }
    let mut found = vec![(root.as_raw(), 1)];
    let mut next = 0;
    while let Some((parent, _)) = found.get(next) {
        found.extend(children.remove(parent).unwrap_or_default());
        next += 1;
    }
    found
}

/// Fields 4 and 20 of `proc_pid_stat(5)`; the second, in brackets, may hold anything.
fn parent_and_threads(stat: &str) -> Option<(i32, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(15)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::parent_and_threads;

    #[test]
    fn the_kernels_line_is_read() {
        let line = "7 (a) b) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 12 0 99 1 2";
        assert_eq!(parent_and_threads(line), Some((3, 12)));
        assert_eq!(parent_and_threads(""), None);
    }
}
