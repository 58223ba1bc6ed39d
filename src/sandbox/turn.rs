//! Turns: an overlay is mounted by one confinement at a time. Another's mount doesn't see what was
//! written through the first, so whoever had it not last mounts it anew.
//!
//! In: who wants it. Out: whether its mount is of use, and a work folder for a new one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place in the row of those that share an overlay.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    number: u64,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Places so far, without the first.
    made: AtomicU64,
    /// Mounts so far.
    mounts: AtomicU64,
    /// Who had the overlay last.
    holder: AtomicU64,
}

impl Turn {
    /// Another place in the same row.
    pub(super) fn another(&self) -> Self {
        let number = self.shared.made.fetch_add(1, Ordering::Relaxed) + 1;
        Self { number, shared: Arc::clone(&self.shared) }
    }

    /// Takes the overlay; whether nobody else had it meanwhile.
    pub(super) fn take(&self) -> bool {
        self.shared.holder.swap(self.number, Ordering::Relaxed) == self.number
    }

    /// A work folder that no mount had: the kernel empties it for a new mount, under the older one.
    ///
    /// # Errors
    ///
    /// The folder can't be made.
    pub(super) fn work_folder(&self, parent: &Path) -> io::Result<PathBuf> {
        let folder = parent.join(self.shared.mounts.fetch_add(1, Ordering::Relaxed).to_string());
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(folder),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Turn;

    #[test]
    fn whoever_had_it_last_keeps_its_mount() {
        let first = Turn::default();
        let second = first.another();
        assert!(first.take() && first.take());
        assert!(!second.take() && second.take());
        assert!(!first.take() && first.take());
        let folder = tempfile::tempdir().unwrap();
        let one = first.work_folder(folder.path()).unwrap();
        assert_ne!(one, second.work_folder(folder.path()).unwrap());
        assert!(first.work_folder(&folder.path().join("nowhere")).is_err());
    }
}
