//! The reader: a run's folder as records and blobs.
//!
//! In: a folder. Out: the records in order, the exact lines they came from, and bytes of blobs.
//! Knows nothing of chains, sessions or reports.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::event::{Blob, Record, VERSION};
use super::{BLOBS, FILE};

/// What a transcript holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// Records, in order.
    pub records: Vec<Record>,
    /// The line of each record, without newline.
    pub texts: Vec<String>,
    /// Whether the file ended inside a line, as it does when the writer was killed. What is there
    /// of that line is left out.
    pub torn: bool,
}

/// Why a transcript can't be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file can't be read.
    #[error("failed to read `{}`", path.display())]
    File {
        /// The transcript.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A line is no record of a known type.
    #[error("{}:{line}: not a line of a transcript", path.display())]
    Line {
        /// The transcript.
        path: PathBuf,
        /// Line, 1-based.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A line is no text.
    #[error("{}:{line}: expected UTF-8", path.display())]
    Text {
        /// The transcript.
        path: PathBuf,
        /// Line, 1-based.
        line: usize,
    },
    /// A line of another version of the format.
    #[error("{}:{line}: expected version {VERSION} of the transcript, found {found}", path.display())]
    Version {
        /// The transcript.
        path: PathBuf,
        /// Line, 1-based.
        line: usize,
        /// Its version.
        found: u32,
    },
}

/// The version alone, so that a line of a later format is named as such.
#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

/// Reads `transcript.jsonl` of the run's folder `dir`.
///
/// # Errors
///
/// [`ReadError`] with path and line. A torn last line is no error.
pub fn read(dir: &Path) -> Result<Lines, ReadError> {
    let path = dir.join(FILE);
    match fs::read(&path) {
        Ok(bytes) => parse(&bytes, &path),
        Err(source) => Err(ReadError::File { path, source }),
    }
}

/// Reads the bytes of a transcript; `path` is named in errors.
///
/// # Errors
///
/// As [`read`].
pub fn parse(bytes: &[u8], path: &Path) -> Result<Lines, ReadError> {
    let mut lines = Lines::default();
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let Some(line) = line.strip_suffix(b"\n") else {
            lines.torn = true;
            break;
        };
        let number = index + 1;
        let path = || path.to_owned();
        let text =
            str::from_utf8(line).map_err(|_| ReadError::Text { path: path(), line: number })?;
        let wrong = |source| ReadError::Line { path: path(), line: number, source };
        let Versioned { v } = serde_json::from_str(text).map_err(wrong)?;
        if v != VERSION {
            return Err(ReadError::Version { path: path(), line: number, found: v });
        }
        lines.records.push(serde_json::from_str(text).map_err(wrong)?);
        lines.texts.push(text.to_owned());
    }
    Ok(lines)
}

/// Bytes that lie beside a transcript.
pub trait Blobs {
    /// Returns at most `most` bytes of `blob` from the offset `from`, in bytes; `None` when the
    /// blob isn't there or can't be read.
    fn read(&self, blob: &Blob, from: u64, most: usize) -> Option<Vec<u8>>;
}

/// The blobs of a run's folder.
#[derive(Clone, Debug)]
pub struct BlobFolder {
    folder: PathBuf,
}

impl BlobFolder {
    /// The blobs of the run's folder `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { folder: dir.join(BLOBS) }
    }

    /// Path of the blob with this digest; `None` when `sha256` is no digest, so that a transcript
    /// from elsewhere can't name another file.
    pub fn path(&self, sha256: &str) -> Option<PathBuf> {
        is_digest(sha256).then(|| self.folder.join(sha256))
    }
}

impl Blobs for BlobFolder {
    fn read(&self, blob: &Blob, from: u64, most: usize) -> Option<Vec<u8>> {
        let mut file = File::open(self.path(&blob.sha256)?).ok()?;
        file.seek(SeekFrom::Start(from)).ok()?;
        let mut bytes = Vec::new();
        file.take(most as u64).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

/// Whether `text` is a SHA-256 in lower-case hex.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{BlobFolder, Blobs as _, parse};
    use crate::transcript::event::Blob;

    const LINE: &str = r#"{"v":1,"seq":0,"at_ms":0,"ts":"t","run":"r","event":{"type":"step.completed","calls":1},"prev":"0"}"#;

    #[test]
    fn p4_a_torn_last_line_is_tolerated_at_every_byte() {
        let whole = format!("{LINE}\n{LINE}\n");
        for end in LINE.len() + 1..whole.len() {
            let lines = parse(&whole.as_bytes()[..end], Path::new("t")).unwrap();
            assert_eq!(lines.records.len(), 1, "{end}");
            assert_eq!(lines.torn, end > LINE.len() + 1, "{end}");
        }
        let lines = parse(whole.as_bytes(), Path::new("t")).unwrap();
        assert_eq!((lines.records.len(), lines.torn), (2, false));
        assert_eq!(lines.texts, [LINE, LINE]);
    }

    #[test]
    fn anything_else_wrong_names_the_line() {
        let unknown = LINE.replace("step.completed", "step.dreamt");
        let later = LINE.replace("\"v\":1", "\"v\":2");
        for (second, expected) in [
            ("", "t:2: not a line of a transcript"),
            ("{}", "t:2: not a line of a transcript"),
            (unknown.as_str(), "t:2: not a line of a transcript"),
            (later.as_str(), "t:2: expected version 1 of the transcript, found 2"),
        ] {
            let text = format!("{LINE}\n{second}\n{LINE}\n");
            let error = parse(text.as_bytes(), Path::new("t")).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let error = parse(b"\xff\n", Path::new("t")).unwrap_err();
        assert_eq!(error.to_string(), "t:1: expected UTF-8");
    }

    #[test]
    fn a_digest_that_is_a_path_reads_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("blobs")).unwrap();
        std::fs::write(dir.path().join("secret"), "x").unwrap();
        let blobs = BlobFolder::new(dir.path());
        let blob = Blob { sha256: "../secret".into(), bytes: 1 };
        assert_eq!(blobs.read(&blob, 0, 10), None);
    }
}
