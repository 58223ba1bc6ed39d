//! Filling: how much a folder holds, watched while a command runs.
//!
//! In: a folder and the most that it may hold. Out: whether it holds more. A folder on disk has no
//! size of its own; looking is cheap as long as the file system's free space says that little can
//! have changed. Knows nothing of commands.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statvfs::statvfs;

/// When a command that was just started is looked at first; most end sooner.
const FIRST: Duration = Duration::from_millis(20);

/// Shortest and longest time between two looks.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(200);

/// Longest time without counting, whatever the file system says: some count late.
const COUNTING: Duration = Duration::from_secs(2);

/// Bytes that a program writes in a microsecond at most, by which the next look is timed; measured
/// are about 3 GB/s into the page cache.
const PACE: u64 = 4000;

/// Unit of `st_blocks`: stat(3type).
const BLOCK: u64 = 512;

/// A watched folder. Times are since the command's start.
#[derive(Debug)]
pub(super) struct Filling {
    folder: PathBuf,
    most: u64,
    next: Duration,
    counted: Option<Counted>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    at: Duration,
    held: u64,
    free: u64,
}

impl Filling {
    /// Watches `folder`, which may hold `most` bytes.
    pub(super) fn new(folder: PathBuf, most: u64) -> Self {
        Self { folder, most, next: FIRST, counted: None }
    }

    /// When to look next.
    pub(super) fn next(&self) -> Duration {
        self.next
    }

    /// Looks, when it is time. Returns whether the folder holds too much and more than at the first
    /// look: what an earlier command left must not stop the one that removes it.
    pub(super) fn is_over(&mut self, now: Duration) -> bool {
        if now < self.next {
            return false;
        }
        let free = free(&self.folder);
        let last = match self.counted {
            Some(last) if now.saturating_sub(last.at) < COUNTING => {
                let room = self.most.saturating_sub(last.held);
                let gone = last.free.saturating_sub(free);
                if gone < room / 2 {
                    self.next = now + pause(room - gone);
                    return false;
                }
                Some(last)
            }
            last => last,
        };
        let held = held(&self.folder);
        if last.is_none() {
            self.most = self.most.max(held);
        }
        self.counted = Some(Counted { at: now, held, free });
        self.next = now + pause(self.most.saturating_sub(held));
        held > self.most
    }
}

fn pause(room: u64) -> Duration {
    Duration::from_micros(room / PACE).clamp(SHORTEST, LONGEST)
}

fn free(folder: &Path) -> u64 {
    statvfs(folder).map_or(0, |facts| facts.blocks_free().saturating_mul(facts.fragment_size()))
}

/// Bytes on disk of all below a folder; links aren't followed. A file with two names counts twice.
fn held(folder: &Path) -> u64 {
    let mut open = vec![folder.to_owned()];
    let mut sum: u64 = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(facts) = entry.metadata() else { continue };
            sum = sum.saturating_add(facts.blocks().saturating_mul(BLOCK));
            if facts.is_dir() {
                open.push(entry.path());
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::Filling;

    #[test]
    fn what_is_written_counts_and_what_was_there_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = Duration::from_secs;
        let mut filling = Filling::new(folder.path().to_owned(), 1 << 20);
        assert!(!filling.is_over(at(0)));
        fs::write(folder.path().join("left"), vec![1; 2 << 20]).unwrap();
        assert!(!filling.is_over(at(1)));
        fs::create_dir(folder.path().join("d")).unwrap();
        fs::write(folder.path().join("d/new"), vec![1; 1 << 20]).unwrap();
        assert!(!filling.is_over(at(1)));
        assert!(filling.is_over(at(9)));
        fs::remove_file(folder.path().join("left")).unwrap();
        assert!(!filling.is_over(at(20)));
    }
}
