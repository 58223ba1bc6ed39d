//! Objects that have more than one name.
//!
//! In: carved-out places. Out: whether a file is also one of theirs. A hard link that was there
//! before leads into a carve-out under a name that isn't carved out.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nix::libc;
use nix::sys::stat::FileStat;

use super::caller::kind;
use super::policy::Policy;

/// Entries of carve-outs that are looked at; with more, each file with several names counts as
/// shared. Ours.
const ENTRIES: usize = 500_000;

/// Files of carve-outs with several names, found at the first need: nothing inside can make another.
#[derive(Default)]
pub(super) struct Shared(OnceLock<[Found; 2]>);

/// Device and inode of each; `None` when there are too many to tell.
type Found = Option<HashSet<(u64, u64)>>;

impl Shared {
    /// Whether the object may be a file of a carve-out under another name; when it is only to be
    /// read, of an unreadable one.
    pub(super) fn holds(&self, policy: &Policy, facts: &FileStat, is_read: bool) -> bool {
        if facts.st_nlink < 2 || kind(facts) == libc::S_IFDIR {
            return false;
        }
        let [denied, protected] =
            self.0.get_or_init(|| [gather(&policy.denied), gather(&policy.protected)]);
        let identity = (facts.st_dev, facts.st_ino);
        let is_in = |found: &Found| found.as_ref().is_none_or(|found| found.contains(&identity));
        is_in(denied) || !is_read && is_in(protected)
    }
}

fn gather(places: &[PathBuf]) -> Found {
    let mut found = HashSet::new();
    let mut left = ENTRIES;
    for place in places {
        search(place, &mut left, &mut found);
    }
    (left > 0).then_some(found)
}

fn search(path: &Path, left: &mut usize, found: &mut HashSet<(u64, u64)>) {
    *left = left.saturating_sub(1);
    let Ok(facts) = fs::symlink_metadata(path) else { return };
    if !facts.is_dir() {
        if facts.nlink() > 1 {
            found.insert((facts.dev(), facts.ino()));
        }
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if *left > 0 {
            search(&entry.path(), left, found);
        }
    }
}
