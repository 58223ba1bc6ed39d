//! The chain: whether a record is whole and unchanged.
//!
//! In: a run's folder. Out: what was verified, or the first thing that is wrong. Knows nothing of
//! what the events mean.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::event::{Blob, Event};
use super::read::{BlobFolder, Lines, ReadError, read};
use super::{FILE, GENESIS};
use crate::text;

/// What holds of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Lines in the chain.
    pub lines: u64,
    /// Different blobs that the lines name.
    pub blobs: u64,
    /// Whether the file ended inside a line.
    pub torn: bool,
    /// Whether the last line is the end of the run.
    pub complete: bool,
}

/// The first thing that is wrong with a record.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The transcript can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Lines are missing, double or out of order.
    #[error("{}:{line}: expected line number {expected} of the run, found {found}", path.display())]
    Order {
        /// The transcript.
        path: PathBuf,
        /// Line, 1-based.
        line: usize,
        /// `seq` that belongs here.
        expected: u64,
        /// `seq` that is there.
        found: u64,
    },
    /// The line before was changed.
    #[error("{}:{line}: expected `prev` {expected}, found {found}", path.display())]
    Chain {
        /// The transcript.
        path: PathBuf,
        /// Line, 1-based.
        line: usize,
        /// Digest of the line before.
        expected: String,
        /// Digest that the line names.
        found: String,
    },
    /// A blob that a line names is not there or can't be read.
    #[error("{}:{line}: failed to read blob `{sha256}`", path.display())]
    Missing {
        /// The transcript.
        path: PathBuf,
        /// First line that names it, 1-based.
        line: usize,
        /// Its name.
        sha256: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A blob is not what its name says.
    #[error("{}:{line}: blob `{sha256}` was changed: its digest is {found}", path.display())]
    Changed {
        /// The transcript.
        path: PathBuf,
        /// First line that names it, 1-based.
        line: usize,
        /// Its name.
        sha256: String,
        /// Digest of what is there.
        found: String,
    },
}

/// Checks order, chain and every blob of the run's folder `dir`.
///
/// # Errors
///
/// [`VerifyError`] with the line, and the blob where one is concerned.
pub fn verify(dir: &Path) -> Result<Verified, VerifyError> {
    let lines = read(dir)?;
    let path = dir.join(FILE);
    check_lines(&lines, &path)?;
    let named = named(&lines);
    let folder = BlobFolder::new(dir);
    for (sha256, line) in &named {
        let (path, line, sha256) = (path.clone(), *line, sha256.clone());
        match digest_of(&folder, &sha256) {
            Ok(found) if found == sha256 => {}
            Ok(found) => return Err(VerifyError::Changed { path, line, sha256, found }),
            Err(source) => return Err(VerifyError::Missing { path, line, sha256, source }),
        }
    }
    Ok(Verified {
        lines: lines.records.len() as u64,
        blobs: named.len() as u64,
        torn: lines.torn,
        complete: lines
            .records
            .last()
            .is_some_and(|record| matches!(record.event, Event::RunCompleted { .. })),
    })
}

/// Checks order and chain of `lines`; `path` is named in errors.
///
/// # Errors
///
/// [`VerifyError::Order`] or [`VerifyError::Chain`].
pub fn check_lines(lines: &Lines, path: &Path) -> Result<(), VerifyError> {
    let mut prev = GENESIS.to_owned();
    for (index, (record, line_text)) in lines.records.iter().zip(&lines.texts).enumerate() {
        let (path, line, expected) = (path.to_owned(), index + 1, index as u64);
        if record.seq != expected {
            return Err(VerifyError::Order { path, line, expected, found: record.seq });
        }
        if record.prev != prev {
            let found = record.prev.clone();
            return Err(VerifyError::Chain { path, line, expected: prev, found });
        }
        prev = text::sha256(line_text.as_bytes());
    }
    Ok(())
}

/// Calls `each` with every blob that `value` names, as a map of `sha256` and `bytes` alone.
pub(super) fn blobs_in(value: &Value, each: &mut dyn FnMut(Blob)) {
    match value {
        Value::Object(map) => {
            match (map.len(), map.get("sha256"), map.get("bytes").and_then(Value::as_u64)) {
                (2, Some(Value::String(sha256)), Some(bytes)) => {
                    each(Blob { sha256: sha256.clone(), bytes });
                }
                _ => map.values().for_each(|value| blobs_in(value, each)),
            }
        }
        Value::Array(values) => values.iter().for_each(|value| blobs_in(value, each)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Parts of an event that hold JSON of somebody else, where what looks like a blob is none.
pub(super) const FOREIGN: [&str; 5] = ["item", "requested", "budget", "reports", "usage_extra"];

/// The fields of an event that can name blobs.
pub(super) fn own_fields(line: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let event = line.get("event").and_then(Value::as_object);
    event.into_iter().flatten().filter(|(key, _)| !FOREIGN.contains(&key.as_str()))
}

/// Digests that the lines name, with the first line of each, 1-based.
fn named(lines: &Lines) -> BTreeMap<String, usize> {
    let mut named = BTreeMap::new();
    for (index, text) in lines.texts.iter().enumerate() {
        // It was read as a record before.
        let line: Value = serde_json::from_str(text).unwrap_or_default();
        for (_, value) in own_fields(&line) {
            blobs_in(value, &mut |blob| {
                named.entry(blob.sha256).or_insert(index + 1);
            });
        }
    }
    named
}

fn digest_of(folder: &BlobFolder, sha256: &str) -> io::Result<String> {
    let path = folder
        .path(sha256)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a SHA-256 in hex"))?;
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(text::hex(&digest.finalize())),
            Ok(count) => digest.update(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use tempfile::TempDir;

    use super::{Verified, VerifyError, verify};
    use crate::clock::Clock;
    use crate::transcript::event::{Event, Scope, Usage};
    use crate::transcript::{FILE, Transcript};

    /// A run of five lines that names one blob twice; its folder and the blob's path.
    fn run() -> (TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let transcript = Transcript::create(dir.path(), "r", Clock::start()).unwrap();
        let blob = transcript.blob(b"body").unwrap();
        let path = transcript.blob_path(&blob);
        let foreign = json!({ "x": { "sha256": "not ours", "bytes": 1 } });
        for event in [
            Event::ModelRequested { r#try: 1, body: blob.clone() },
            Event::ModelRequested { r#try: 2, body: blob },
            Event::ItemReceived { item: Some(foreign), blob: None },
            Event::StepCompleted { calls: 0 },
            Event::RunCompleted {
                exit: 0,
                outcome: "done".into(),
                signal: None,
                usage: Usage::default(),
            },
        ] {
            transcript.append(&Scope::default(), event).unwrap();
        }
        (dir, path)
    }

    #[test]
    fn p4_a_whole_record_verifies_and_a_cut_one_says_so() {
        let (dir, _) = run();
        let whole = Verified { lines: 5, blobs: 1, torn: false, complete: true };
        assert_eq!(verify(dir.path()).unwrap(), whole);
        let path = dir.path().join(FILE);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let cut = Verified { lines: 4, blobs: 1, torn: true, complete: false };
        assert_eq!(verify(dir.path()).unwrap(), cut);
    }

    #[test]
    fn p4_changed_lost_and_swapped_lines_are_found() {
        let (dir, _) = run();
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let put = |lines: &[&str]| fs::write(&path, lines.join("\n") + "\n").unwrap();

        let changed = lines[1].replace("\"try\":2", "\"try\":3");
        put(&[lines[0], &changed, lines[2], lines[3]]);
        assert!(matches!(verify(dir.path()), Err(VerifyError::Chain { line: 3, .. })));
        put(&[lines[0], lines[2], lines[3]]);
        assert!(matches!(
            verify(dir.path()),
            Err(VerifyError::Order { line: 2, expected: 1, found: 2, .. })
        ));
        let renumbered = lines[2].replace("\"seq\":2", "\"seq\":1");
        put(&[lines[0], &renumbered]);
        assert!(matches!(verify(dir.path()), Err(VerifyError::Chain { line: 2, .. })));
    }

    #[test]
    fn p4_a_changed_or_missing_blob_is_named_with_its_line() {
        let (dir, blob) = run();
        let name = blob.file_name().unwrap().to_str().unwrap().to_owned();
        fs::write(&blob, "other").unwrap();
        let error = verify(dir.path()).unwrap_err();
        assert!(matches!(&error, VerifyError::Changed { line: 1, sha256, .. } if *sha256 == name));
        fs::remove_file(&blob).unwrap();
        let error = verify(dir.path()).unwrap_err();
        assert!(error.to_string().ends_with(&format!(":1: failed to read blob `{name}`")));
    }
}
