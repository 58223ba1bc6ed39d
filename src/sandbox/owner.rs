//! Owner: whom commands must be so that they can write to the workspace.
//!
//! In: host, profile, places. Out: a user, and private folders that are its own. Knows nothing of
//! namespaces.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::Path;

use super::linux::namespaces::Owner;
use super::{Host, Place};
use crate::profile::{Profile, SandboxMode};

/// The owner of the workspace, when commands can't be root: a root without capabilities can't write
/// to another user's folder.
pub(super) fn needed(host: &Host, profile: &Profile, place: &Place) -> Option<Owner> {
    let facts = fs::metadata(&place.workspace).ok()?;
    let is_foreign = host.uid == 0 && facts.uid() != 0;
    (is_foreign && profile.mode == SandboxMode::WorkspaceWrite)
        .then(|| Owner { uid: facts.uid(), gid: facts.gid() })
}

/// Gives a private folder with all in it to `owner`. What can't be given is found by the trial.
///
/// A folder that is no longer root's is left alone: its new owner may have laid links into it. So
/// the folder itself comes last.
pub(super) fn give(path: &Path, owner: Owner) {
    let Ok(facts) = fs::symlink_metadata(path) else { return };
    // A second name of a file may lie outside.
    if facts.uid() != 0 || (facts.is_file() && facts.nlink() > 1) {
        return;
    }
    if facts.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            give(&entry.path(), owner);
        }
    }
    drop(lchown(path, Some(owner.uid), Some(owner.gid)));
}
