//! What is left: files that hold bytes which must be in none.
//!
//! In: folders, a time, and the bytes. Out: the first file that changed since and holds them, in its
//! content, its name or, for a symlink, its goal. Knows nothing of what the bytes mean.

use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{WorkspaceError, io_error, tree};

/// Clocks of file systems are coarse: as much earlier is as good as the same. Longest tick of the
/// kernel, at 100 Hz.
const TICK: Duration = Duration::from_millis(10);

/// Bytes read at a time.
const CHUNK: usize = 1 << 20;

/// Finds the first file at or below `places` that changed since `begun` and holds one of `parts`.
/// Its time of change can't be set back: inode(7).
///
/// # Errors
///
/// A folder or file that can't be read.
pub fn find_left(
    places: &[PathBuf],
    begun: SystemTime,
    parts: &[&[u8]],
) -> Result<Option<PathBuf>, WorkspaceError> {
    let begun = begun.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(TICK);
    let mut queue: Vec<PathBuf> = places.to_vec();
    while let Some(path) = queue.pop() {
        let Ok(facts) = fs::symlink_metadata(&path) else { continue };
        if facts.is_dir() {
            queue.extend(tree::names(&path)?.into_iter().map(|name| path.join(name)));
        }
        if changed(&facts) >= begun && holds(&path, &facts, parts)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn changed(facts: &Metadata) -> Duration {
    let seconds = u64::try_from(facts.ctime()).unwrap_or(0);
    Duration::new(seconds, u32::try_from(facts.ctime_nsec()).unwrap_or(0))
}

fn holds(path: &Path, facts: &Metadata, parts: &[&[u8]]) -> Result<bool, WorkspaceError> {
    let has = |bytes: &[u8]| parts.iter().any(|part| crate::text::find(bytes, part).is_some());
    if path.file_name().is_some_and(|name| has(name.as_bytes())) {
        return Ok(true);
    }
    if facts.is_symlink() {
        let goal = fs::read_link(path).map_err(io_error("read", path))?;
        return Ok(has(goal.as_os_str().as_bytes()));
    }
    if !facts.is_file() {
        return Ok(false);
    }
    let overlap = parts.iter().map(|part| part.len()).max().unwrap_or(1).saturating_sub(1);
    let mut file = File::open(path).map_err(io_error("read", path))?;
    let mut window = Vec::with_capacity(CHUNK + overlap);
    loop {
        let kept = window.len().min(overlap);
        window.drain(..window.len() - kept);
        let limit = u64::try_from(CHUNK).unwrap_or(u64::MAX);
        let count = file.by_ref().take(limit).read_to_end(&mut window);
        if count.map_err(io_error("read", path))? == 0 {
            return Ok(false);
        }
        if has(&window) {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::{CHUNK, find_left};

    #[test]
    fn a_secret_is_found_in_content_over_a_border_in_names_and_in_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let begun = crate::clock::now();
        let find = || find_left(&[root.to_path_buf()], begun, &[b"s3cret", b"other"]).unwrap();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/clean"), "s3cre t").unwrap();
        assert_eq!(find(), None);
        let mut bytes = vec![b'x'; CHUNK - 3];
        bytes.extend(b"s3cret");
        fs::write(root.join("d/big"), &bytes).unwrap();
        assert_eq!(find(), Some(root.join("d/big")));
        // What was there before the step is not the step's.
        let later = crate::clock::now() + Duration::from_secs(5);
        assert_eq!(find_left(&[root.to_path_buf()], later, &[b"s3cret"]).unwrap(), None);
        fs::remove_file(root.join("d/big")).unwrap();
        symlink("https://s3cret@host", root.join("l")).unwrap();
        assert_eq!(find(), Some(root.join("l")));
        fs::remove_file(root.join("l")).unwrap();
        fs::write(root.join("another"), "").unwrap();
        assert_eq!(find(), Some(root.join("another")));
    }
}
