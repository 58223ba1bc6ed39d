//! The writer of reports: a run's folder gets its reports and files, from its record alone.
//!
//! In: a folder with a transcript. Out: `report.json junit.xml summary.md`, each attempt's files,
//! and copies where the task wants them. The same record gives the same bytes.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::junit::JunitError;
use super::shape::{Artifact, Report};
use super::{fold, json, junit, markdown};
use crate::plan::Reports;
use crate::transcript::{self, BlobFolder, ReadError};

/// Formats of `horseman report`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `report.json`.
    Json,
    /// `junit.xml`.
    Junit,
    /// `summary.md`.
    Markdown,
}

impl Format {
    /// Every format that is built, in the order of `--help`.
    pub const ALL: [Self; 3] = [Self::Json, Self::Junit, Self::Markdown];

    /// Formats that the command line names and this version doesn't build.
    pub const LATER: [&str; 4] = ["html", "sarif", "codex-json", "atif"];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Junit => "junit",
            Self::Markdown => "markdown",
        }
    }

    /// File name in a run's folder.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Json => "report.json",
            Self::Junit => "junit.xml",
            Self::Markdown => "summary.md",
        }
    }

    /// Reads the name of a format.
    ///
    /// # Errors
    ///
    /// [`ReportError::Later`] for a format that is planned, [`ReportError::Format`] for any other
    /// word.
    pub fn parse(name: &str) -> Result<Self, ReportError> {
        if let Some(format) = Self::ALL.into_iter().find(|format| format.name() == name) {
            return Ok(format);
        }
        if Self::LATER.contains(&name) {
            return Err(ReportError::Later { format: name.to_owned() });
        }
        Err(ReportError::Format { found: name.to_owned() })
    }
}

/// Why reports can't be written.
#[derive(Debug, Error)]
pub enum ReportError {
    /// The transcript can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A report or file can't be written.
    #[error("failed to write `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A blob that a report needs can't be copied.
    #[error("failed to copy blob `{sha256}` to `{}`", path.display())]
    Blob {
        /// The blob.
        sha256: String,
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The report doesn't render as JSON.
    #[error("failed to render `report.json`")]
    Json(#[from] serde_json::Error),
    /// The report doesn't render as XML.
    #[error("failed to render `junit.xml`")]
    Junit(#[from] JunitError),
    /// The format is planned.
    #[error("report format `{format}` is not built yet; expected `json`, `junit` or `markdown`")]
    Later {
        /// Its name.
        format: String,
    },
    /// The format is unknown.
    #[error("expected report format `json`, `junit` or `markdown`, found `{found}`")]
    Format {
        /// The word.
        found: String,
    },
}

/// Reads the record in `dir`, writes its reports and each attempt's files there, and the copies
/// that `copies` names. Each file is replaced whole or not at all.
///
/// # Errors
///
/// [`ReportError`] for the first thing that can't be read or written.
pub fn write_all(dir: &Path, copies: &Reports) -> Result<Report, ReportError> {
    let report = report(dir)?;
    write_files(dir, &report)?;
    for format in Format::ALL {
        let bytes = bytes(&report, format)?;
        replace(&dir.join(format.file()), &bytes)?;
        let copy = match format {
            Format::Json => None,
            Format::Junit => copies.junit.as_ref(),
            Format::Markdown => copies.markdown.as_ref(),
        };
        if let Some(path) = copy {
            replace(path, &bytes)?;
        }
    }
    if let Some(path) = &copies.events {
        let transcript = dir.join(transcript::FILE);
        copy(&transcript, path)
            .map_err(|source| ReportError::Write { path: path.clone(), source })?;
    }
    Ok(report)
}

/// Renders the record in `dir` as `format`: the bytes that [`write_all`] writes.
///
/// # Errors
///
/// [`ReportError`] when the transcript can't be read.
pub fn render(dir: &Path, format: Format) -> Result<Vec<u8>, ReportError> {
    bytes(&report(dir)?, format)
}

/// Folds the record in `dir`.
///
/// # Errors
///
/// [`ReportError::Read`] when the transcript can't be read.
pub fn report(dir: &Path) -> Result<Report, ReportError> {
    let lines = transcript::read(dir)?;
    Ok(fold(&lines.records, &BlobFolder::new(dir)))
}

fn bytes(report: &Report, format: Format) -> Result<Vec<u8>, ReportError> {
    Ok(match format {
        Format::Json => json::render(report)?.into_bytes(),
        Format::Junit => junit::render(report)?,
        Format::Markdown => markdown::render(report).into_bytes(),
    })
}

/// Writes `tasks/…`: patch, final message, output and logs.
fn write_files(dir: &Path, report: &Report) -> Result<(), ReportError> {
    let blobs = BlobFolder::new(dir);
    for task in &report.tasks {
        for attempt in &task.attempts {
            let files = [&attempt.patch, &attempt.final_message, &attempt.output];
            let beside = attempt.beside.iter().map(|part| &part.file);
            let logs = attempt.calls.iter().filter_map(|call| call.log.as_ref());
            for artifact in files.into_iter().flatten().chain(beside).chain(logs) {
                put(dir, &blobs, artifact)?;
            }
        }
        // The task's result decides, should it differ from its last attempt's.
        if let Some(patch) = &task.patch {
            put(dir, &blobs, patch)?;
        }
    }
    Ok(())
}

fn put(dir: &Path, blobs: &BlobFolder, artifact: &Artifact) -> Result<(), ReportError> {
    let path = dir.join(&artifact.path);
    let source = blobs
        .path(&artifact.sha256)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a SHA-256 in hex"));
    source.and_then(|source| copy(&source, &path)).map_err(|source| ReportError::Blob {
        sha256: artifact.sha256.clone(),
        path,
        source,
    })
}

/// Copies `from` over `to`. Not a hard link: who edits the copy must not change the record.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut file = temporary(to)?;
    io::copy(&mut source, &mut file)?;
    file.persist(to).map(drop).map_err(|failed| failed.error)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let write = || {
        let mut file = temporary(path)?;
        file.write_all(bytes)?;
        file.persist(path).map(drop).map_err(|failed| failed.error)
    };
    write().map_err(|source| ReportError::Write { path: path.to_owned(), source })
}

/// A file beside `path` that can take its place; the folder is made.
fn temporary(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    tempfile::Builder::new()
        .prefix(".report-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
}
