//! Layers: the marks that overlayfs leaves in its upper folder.
//!
//! In: paths of an upper folder. Out: whether a name is gone, and whether a folder hides the one
//! below it. Format: the kernel's overlayfs document, mounted with `userxattr`.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use nix::sys::stat::{Mode, SFlag, mknod};

use super::linux::{attribute, set_attribute};

const OPAQUE: &std::ffi::CStr = c"user.overlay.opaque";
const WHITEOUT: &std::ffi::CStr = c"user.overlay.whiteout";

/// Whether what stands at `path`, of which these are the facts, says that its name is gone.
pub(crate) fn is_whiteout(path: &Path, facts: &Metadata) -> bool {
    facts.file_type().is_char_device() && facts.rdev() == 0
        || facts.is_file() && facts.len() == 0 && attribute(path, WHITEOUT).is_ok()
}

/// Says that the name `path`, at which nothing stands, is gone.
///
/// # Errors
///
/// The mark can't be made.
pub(crate) fn make_whiteout(path: &Path) -> io::Result<()> {
    // Device 0:0 needs no capability: mknod(2), Linux 5.8.
    mknod(path, SFlag::S_IFCHR, Mode::empty(), 0).map_err(io::Error::from)
}

/// Whether the folder hides what lies below it.
pub(crate) fn is_opaque(folder: &Path) -> bool {
    attribute(folder, OPAQUE).is_ok_and(|value| value == b"y")
}

/// Lets the folder hide what lies below it.
///
/// # Errors
///
/// The file system keeps no attributes of users.
pub(crate) fn set_opaque(folder: &Path) -> io::Result<()> {
    set_attribute(folder, OPAQUE, b"y").map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{is_opaque, is_whiteout, make_whiteout, set_opaque};

    #[test]
    fn marks_are_read_as_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let (gone, there) = (folder.path().join("gone"), folder.path().join("there"));
        make_whiteout(&gone).unwrap();
        fs::write(&there, "").unwrap();
        let marked = |path| is_whiteout(path, &fs::symlink_metadata(path).unwrap());
        assert!(marked(&gone) && !marked(&there));
        assert!(!is_opaque(folder.path()));
        set_opaque(folder.path()).unwrap();
        assert!(is_opaque(folder.path()));
    }
}
