//! LFS: pointers and contents, without its program and without a network.
//!
//! In: pointer files and the local store of the source. Out: contents in the tree, pointers in the
//! snapshot.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{WorkspaceError, io_error, tree};
use crate::text::hex;

/// Largest pointer file in bytes; from the specification of the format.
pub(super) const POINTER_MAX: u64 = 1024;

/// What stands in git in place of a large file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pointer {
    /// SHA-256 of the content in hex.
    pub(super) oid: String,
    /// Size of the content in bytes.
    pub(super) size: u64,
}

impl Pointer {
    /// Reads a pointer file; `None` for anything else.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        if !lines.next()?.starts_with("version https://git-lfs.github.com/spec/") {
            return None;
        }
        let (mut oid, mut size) = (None, None);
        for line in lines {
            match line.split_once(' ') {
                Some(("oid", value)) => oid = value.strip_prefix("sha256:"),
                Some(("size", value)) => size = value.parse().ok(),
                _ => {}
            }
        }
        let oid =
            oid.filter(|oid| oid.len() == 64 && oid.chars().all(|c| c.is_ascii_hexdigit()))?;
        Some(Self { oid: oid.to_owned(), size: size? })
    }

    /// The pointer of the file at `path`.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        let mut size = 0;
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                return Ok(Self { oid: hex(&digest.finalize()), size });
            }
            digest.update(&buffer[..count]);
            size += count as u64;
        }
    }

    /// The pointer file.
    pub(super) fn text(&self) -> String {
        format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n",
            self.oid, self.size
        )
    }

    /// Whether the file at `path` is this pointer's content.
    pub(super) fn is_content(&self, path: &Path) -> io::Result<bool> {
        let facts = fs::symlink_metadata(path)?;
        Ok(facts.is_file() && facts.len() == self.size && Self::of(path)?.oid == self.oid)
    }

    /// Where a store keeps the content.
    pub(super) fn place(&self, store: &Path) -> PathBuf {
        store.join(&self.oid[..2]).join(&self.oid[2..4]).join(&self.oid)
    }
}

/// Whether a `.gitattributes` file names the LFS filter.
pub(super) fn is_named_in(attributes: &[u8]) -> bool {
    attributes.windows(10).any(|window| window == b"filter=lfs")
}

/// Puts the contents of pointer files among `paths` (relative to `root`) in their place, from
/// `store`. Returns the pointers whose content is there now, and the paths whose content isn't on
/// this machine.
///
/// # Errors
///
/// The path that can't be read or written.
pub(super) fn fill(
    root: &Path,
    store: &Path,
    paths: &[PathBuf],
) -> Result<(BTreeMap<PathBuf, Pointer>, Vec<PathBuf>), WorkspaceError> {
    let (mut filled, mut missing) = (BTreeMap::new(), Vec::new());
    for path in paths {
        let target = root.join(path);
        let Some(facts) = fs::symlink_metadata(&target).ok().filter(fs::Metadata::is_file) else {
            continue;
        };
        if facts.len() > POINTER_MAX {
            continue;
        }
        let bytes = fs::read(&target).map_err(io_error("read", &target))?;
        let Some(pointer) = Pointer::parse(&bytes) else { continue };
        let content = pointer.place(store);
        if !content.is_file() {
            missing.push(path.clone());
            continue;
        }
        tree::remove(&target)?;
        let mut kept = File::create_new(&target).map_err(io_error("make", &target))?;
        let mut content_file = File::open(&content).map_err(io_error("read", &content))?;
        io::copy(&mut content_file, &mut kept).map_err(io_error("copy to", &target))?;
        kept.set_permissions(facts.permissions()).map_err(io_error("set the mode of", &target))?;
        filled.insert(path.clone(), pointer);
    }
    Ok((filled, missing))
}
