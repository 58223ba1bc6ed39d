//! The writer: one line for one event, on disk before `append` returns (P4).
//!
//! In: a folder, events with their scope, bytes that don't fit a line. Out: `transcript.jsonl` and
//! `blobs/<sha256>`, and the same records for a live sink. Knows nothing of what the events mean.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
use thiserror::Error;

use super::event::{Blob, Event, Record, Scope, VERSION};
use super::{BLOBS, FILE, GENESIS};
use crate::clock::Clock;
use crate::text;

/// What is told of each record after its line is written; the text is the line without newline.
pub type Sink = Box<dyn FnMut(&Record, &str)>;

/// Bytes read at a time from a big log.
const CHUNK: usize = 64 << 10;

/// Why the record can't be written.
#[derive(Clone, Debug, Error)]
pub enum TranscriptError {
    /// The folder already holds a transcript.
    #[error("`{}` already holds a transcript", path.display())]
    Exists {
        /// The transcript that is there.
        path: PathBuf,
    },
    /// A folder or file of the record can't be made.
    #[error("failed to make `{}`", path.display())]
    Create {
        /// Folder or file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: Arc<io::Error>,
    },
    /// A line can't be written. Each later append fails with this first cause.
    #[error("failed to write `{}`", path.display())]
    Write {
        /// The transcript.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: Arc<io::Error>,
    },
    /// A blob can't be written.
    #[error("failed to write blob `{}`", path.display())]
    Blob {
        /// The blob, or the folder for blobs while the name isn't known yet.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: Arc<io::Error>,
    },
    /// A file that should become a blob can't be read.
    #[error("failed to read `{}`", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: Arc<io::Error>,
    },
}

/// The transcript of one run, open for writing. A clone writes to the same file.
///
/// For one thread: a run's events have one order.
#[derive(Clone)]
pub struct Transcript {
    shared: Rc<Shared>,
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Transcript").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

struct Shared {
    folder: PathBuf,
    path: PathBuf,
    run: String,
    clock: Clock,
    lines: RefCell<Chain>,
    sink: RefCell<Option<Sink>>,
}

/// The file and the end of its chain.
struct Chain {
    file: File,
    seq: u64,
    prev: String,
    broken: Option<TranscriptError>,
}

impl Transcript {
    /// Makes `dir` with `blobs/` and an empty `transcript.jsonl` for the run `run`.
    ///
    /// # Errors
    ///
    /// [`TranscriptError::Exists`] when `dir` already holds a transcript, an empty one included;
    /// [`TranscriptError::Create`] when a folder or the file can't be made.
    pub fn create(dir: &Path, run: &str, clock: Clock) -> Result<Self, TranscriptError> {
        let path = dir.join(FILE);
        if path.symlink_metadata().is_ok() {
            return Err(TranscriptError::Exists { path });
        }
        let blobs = dir.join(BLOBS);
        fs::create_dir_all(&blobs).map_err(|source| create_error(&blobs, source))?;
        let file = match OpenOptions::new().append(true).create_new(true).open(&path) {
            Ok(file) => file,
            // Somebody else was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(TranscriptError::Exists { path });
            }
            Err(source) => return Err(create_error(&path, source)),
        };
        let chain = Chain { file, seq: 0, prev: GENESIS.to_owned(), broken: None };
        Ok(Self {
            shared: Rc::new(Shared {
                folder: dir.to_owned(),
                path,
                run: run.to_owned(),
                clock,
                lines: RefCell::new(chain),
                sink: RefCell::new(None),
            }),
        })
    }

    /// Folder that holds the record.
    pub fn dir(&self) -> &Path {
        &self.shared.folder
    }

    /// Id of the run.
    pub fn run(&self) -> &str {
        &self.shared.run
    }

    /// Sets what is told of each further record; replaces an earlier sink. A sink may append.
    pub fn set_sink(&self, sink: Sink) {
        *self.shared.sink.borrow_mut() = Some(sink);
    }

    /// Appends one line, handed to the system in one write before this returns, and tells the
    /// sink.
    ///
    /// # Errors
    ///
    /// [`TranscriptError::Write`] when the line can't be written; each later append then fails
    /// with the same error and writes nothing, since a line after a torn one would break the chain.
    pub fn append(&self, scope: &Scope, event: Event) -> Result<(), TranscriptError> {
        let shared = &*self.shared;
        let (record, mut line) = {
            let mut chain = shared.lines.borrow_mut();
            if let Some(error) = &chain.broken {
                return Err(error.clone());
            }
            let record = Record {
                v: VERSION,
                seq: chain.seq,
                at_ms: shared.clock.at_ms(),
                ts: Clock::timestamp(),
                run: shared.run.clone(),
                task: scope.task.clone(),
                attempt: scope.attempt,
                step: scope.step,
                call: scope.call.clone(),
                event,
                prev: chain.prev.clone(),
            };
            let line = chain.write(&record).map_err(|source| {
                let error =
                    TranscriptError::Write { path: shared.path.clone(), source: Arc::new(source) };
                chain.broken = Some(error.clone());
                error
            })?;
            (record, line)
        };
        line.pop();
        // Taken out while it runs, so that it may append or be replaced.
        let sink = shared.sink.borrow_mut().take();
        if let Some(mut sink) = sink {
            sink(&record, &line);
            shared.sink.borrow_mut().get_or_insert(sink);
        }
        Ok(())
    }

    /// Puts `bytes` beside the transcript and returns their name. The same bytes are kept once.
    ///
    /// # Errors
    ///
    /// [`TranscriptError::Blob`] when they can't be written.
    pub fn blob(&self, bytes: &[u8]) -> Result<Blob, TranscriptError> {
        let blob = Blob { sha256: text::sha256(bytes), bytes: bytes.len() as u64 };
        let target = self.blob_path(&blob);
        if is_kept(&target, &blob) {
            return Ok(blob);
        }
        let mut file = self.temporary()?;
        file.write_all(bytes).map_err(|source| blob_error(&target, source))?;
        persist(file, &target)?;
        Ok(blob)
    }

    /// Copies the file at `path` beside the transcript and returns its name; memory doesn't grow
    /// with the file.
    ///
    /// # Errors
    ///
    /// [`TranscriptError::Source`] when `path` can't be read, [`TranscriptError::Blob`] when the
    /// copy can't be written.
    pub fn blob_file(&self, path: &Path) -> Result<Blob, TranscriptError> {
        let source_error =
            |source| TranscriptError::Source { path: path.to_owned(), source: Arc::new(source) };
        let mut source = File::open(path).map_err(source_error)?;
        let mut copy = self.temporary()?;
        let mut digest = Sha256::new();
        let mut bytes = 0;
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = match source.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(source_error(error)),
            };
            digest.update(&chunk[..count]);
            bytes += count as u64;
            copy.write_all(&chunk[..count]).map_err(|source| blob_error(copy.path(), source))?;
        }
        let blob = Blob { sha256: text::hex(&digest.finalize()), bytes };
        let target = self.blob_path(&blob);
        if !is_kept(&target, &blob) {
            persist(copy, &target)?;
        }
        Ok(blob)
    }

    /// Path of a blob of this run.
    pub fn blob_path(&self, blob: &Blob) -> PathBuf {
        self.shared.folder.join(BLOBS).join(&blob.sha256)
    }

    /// Waits until the lines written so far are on the disk (`fdatasync(2)`).
    ///
    /// # Errors
    ///
    /// [`TranscriptError::Write`] when the system can't promise it.
    pub fn sync(&self) -> Result<(), TranscriptError> {
        self.shared.lines.borrow().file.sync_data().map_err(|source| TranscriptError::Write {
            path: self.shared.path.clone(),
            source: Arc::new(source),
        })
    }

    /// An unnamed-to-be file among the blobs, readable as the process's umask says.
    fn temporary(&self) -> Result<NamedTempFile, TranscriptError> {
        let folder = self.shared.folder.join(BLOBS);
        tempfile::Builder::new()
            .prefix(".blob-")
            // Like the transcript itself; a temporary file's own 0600 would shut out who may read
            // that.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(&folder)
            .map_err(|source| blob_error(&folder, source))
    }
}

impl Chain {
    /// Writes `record` and returns its line, newline included.
    fn write(&mut self, record: &Record) -> io::Result<String> {
        let mut line = serde_json::to_string(record)?;
        let digest = text::sha256(line.as_bytes());
        line.push('\n');
        self.file.write_all(line.as_bytes())?;
        self.seq += 1;
        self.prev = digest;
        Ok(line)
    }
}

/// Whether `target` already holds `blob`. The size is enough: a blob appears by rename, whole.
fn is_kept(target: &Path, blob: &Blob) -> bool {
    target.metadata().is_ok_and(|found| found.is_file() && found.len() == blob.bytes)
}

fn persist(file: NamedTempFile, target: &Path) -> Result<(), TranscriptError> {
    file.persist(target).map(drop).map_err(|failed| blob_error(target, failed.error))
}

fn create_error(path: &Path, source: io::Error) -> TranscriptError {
    TranscriptError::Create { path: path.to_owned(), source: Arc::new(source) }
}

fn blob_error(path: &Path, source: io::Error) -> TranscriptError {
    TranscriptError::Blob { path: path.to_owned(), source: Arc::new(source) }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs::{self, File};
    use std::rc::Rc;

    use super::{Transcript, TranscriptError};
    use crate::clock::Clock;
    use crate::text;
    use crate::transcript::GENESIS;
    use crate::transcript::event::{Event, Record, Scope};

    fn step() -> Event {
        Event::StepCompleted { calls: 1 }
    }

    #[test]
    fn p4_a_line_is_on_disk_before_append_returns_and_chained() {
        let dir = tempfile::tempdir().unwrap();
        let transcript = Transcript::create(dir.path(), "r1", Clock::start()).unwrap();
        let scope = Scope { task: Some("fix".into()), attempt: Some(1), ..Scope::default() };
        let mut prev = GENESIS.to_owned();
        for seq in 0..3 {
            transcript.clone().append(&scope, step()).unwrap();
            let text = fs::read_to_string(dir.path().join("transcript.jsonl")).unwrap();
            assert!(text.ends_with('\n'));
            let line = text.lines().last().unwrap();
            let record: Record = serde_json::from_str(line).unwrap();
            assert_eq!((record.seq, record.prev.as_str()), (seq, prev.as_str()));
            assert_eq!(record.task.as_deref(), Some("fix"));
            prev = text::sha256(line.as_bytes());
        }
        transcript.sync().unwrap();
    }

    #[test]
    fn an_existing_transcript_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("transcript.jsonl"), "").unwrap();
        let error = Transcript::create(dir.path(), "r1", Clock::start()).err().unwrap();
        assert!(error.to_string().ends_with("transcript.jsonl` already holds a transcript"));
    }

    #[test]
    fn equal_blobs_are_kept_once_and_files_are_like_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let transcript = Transcript::create(&dir.path().join("deep/er"), "r", Clock::start());
        let transcript = transcript.unwrap();
        let bytes = vec![7; 200_000];
        let log = dir.path().join("log");
        fs::write(&log, &bytes).unwrap();
        let blob = transcript.blob(&bytes).unwrap();
        assert_eq!(transcript.blob_file(&log).unwrap(), blob);
        assert_eq!(fs::read(transcript.blob_path(&blob)).unwrap(), bytes);
        assert_eq!(fs::read_dir(transcript.dir().join("blobs")).unwrap().count(), 1);
        let missing = transcript.blob_file(&dir.path().join("none")).unwrap_err();
        assert!(missing.to_string().contains("none"), "{missing}");
    }

    #[test]
    fn a_failed_write_names_the_cause_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let transcript = Transcript::create(dir.path(), "r", Clock::start()).unwrap();
        // Every write to this device fails for lack of space.
        transcript.shared.lines.borrow_mut().file =
            File::options().write(true).open("/dev/full").unwrap();
        for _ in 0..2 {
            let error = transcript.append(&Scope::default(), step()).unwrap_err();
            assert!(error.to_string().contains("transcript.jsonl"), "{error}");
            let TranscriptError::Write { source, .. } = error else { panic!("{error}") };
            assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
            transcript.shared.lines.borrow_mut().file =
                File::options().append(true).open(dir.path().join("transcript.jsonl")).unwrap();
        }
        assert_eq!(fs::read(dir.path().join("transcript.jsonl")).unwrap(), b"");
    }

    #[test]
    fn the_sink_sees_what_is_written_and_may_append() {
        let dir = tempfile::tempdir().unwrap();
        let transcript = Transcript::create(dir.path(), "r", Clock::start()).unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (copy, inner) = (Rc::clone(&seen), transcript.clone());
        transcript.set_sink(Box::new(move |record, line| {
            copy.borrow_mut().push(line.to_owned());
            if record.seq == 0 {
                inner.append(&Scope::default(), step()).unwrap();
            }
        }));
        transcript.append(&Scope::default(), step()).unwrap();
        transcript.append(&Scope::default(), step()).unwrap();
        let text = fs::read_to_string(dir.path().join("transcript.jsonl")).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(*seen.borrow(), [lines[0], lines[2]]);
    }
}
