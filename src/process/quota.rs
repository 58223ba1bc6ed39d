//! Quota: a watch over the size of a folder while a command runs.
//!
//! In: a folder and a limit. Out: whether what lies in it takes more. The folder lies on a disk that
//! others use too, and without privileges the kernel limits no folder; so it is looked at.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::Clock;

/// Shortest time between two looks; a disk takes some ten megabytes in it. Ours.
const SOONEST: Duration = Duration::from_millis(20);

/// Longest time between two looks. Ours.
const LATEST: Duration = Duration::from_secs(2);

/// Share of a processor that looking may take: one part in so many.
const SHARE: u32 = 20;

/// Bytes of a block in `st_blocks`: stat(3type).
const BLOCK: u64 = 512;

/// A folder and the bytes that it may take on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Quota {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// Bytes.
    pub(crate) most: u64,
}

impl Quota {
    /// Returns once the folder takes more than it may.
    pub(super) async fn exceeded(&self) {
        let mut pause = SOONEST;
        loop {
            tokio::time::sleep(pause).await;
            let clock = Clock::start();
            if used(&self.folder, self.most) > self.most {
                return;
            }
            pause = (clock.elapsed() * SHARE).clamp(SOONEST, LATEST);
        }
    }
}

/// Bytes on the disk below `folder`; counting ends when they are more than `most`. Links are not
/// followed.
fn used(folder: &Path, most: u64) -> u64 {
    let mut total: u64 = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(facts) = entry.metadata() else { continue };
            total = total.saturating_add(facts.blocks().saturating_mul(BLOCK));
            if total > most {
                return total;
            }
            if facts.is_dir() {
                open.push(entry.path());
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::used;

    #[test]
    fn what_is_written_counts_and_holes_do_not() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        let file = fs::File::create(folder.path().join("a/hole")).unwrap();
        file.set_len(1 << 40).unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("link")).unwrap();
        assert!(used(folder.path(), u64::MAX) < 1 << 20);
        fs::write(folder.path().join("a/full"), vec![1; 2 << 20]).unwrap();
        assert!(used(folder.path(), 1 << 20) > 1 << 20);
    }
}
