//! `horseman patch`: one patch text, written to disk whole or not at all.
//!
//! In: options and the text. Out: an exit status, and what to print. Resolves every path beneath
//! the workspace, verifies the whole patch in memory, then writes. Knows nothing of the session
//! that asked, of policy, or of the sandbox that it runs in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use thiserror::Error;

use crate::exit::Exit;
use crate::patch::{
    EditKind, EditSummary, Existing, MatchLevel, Patch, Rules, StageError, Staged, parse, stage,
};
use crate::transcript::event::FileChange;

mod eol;
mod resolve;
mod write;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod scenarios;

use resolve::{Resolved, Roots};
use write::{Disk, Write, WriteError};

/// Notes about inexact matches in a message, at most; our choice.
const NOTES: usize = 5;

/// What to do with the patch text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchOptions {
    /// Base of relative paths.
    pub cwd: PathBuf,
    /// Root of the workspace: the folder that the patch may change. Default: `cwd`.
    pub root: Option<PathBuf>,
    /// Verify only, write nothing. Default no.
    pub check_only: bool,
    /// Print one JSON object instead of text. Default no.
    pub json: bool,
    /// Whether an added or moved file may take the place of another. Default no.
    pub overwrite: bool,
    /// Paths relative to the root that are refused: globs, or names that cover the file or the
    /// whole folder.
    pub protected: Vec<String>,
    /// Other folders that the patch may change.
    pub roots: Vec<PathBuf>,
}

/// How the patch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchStatus {
    /// Written, or with [`PatchOptions::check_only`] verified.
    Applied,
    /// A patch, but not applied; nothing is changed.
    Refused,
    /// The text is no patch.
    Invalid,
    /// The disk failed in a way that no other patch repairs; what was written is taken back.
    Fault,
}

/// The JSON object that is printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PatchReport {
    /// How it ended.
    pub status: PatchStatus,
    /// Text for the model.
    pub message: String,
    /// Whether files were changed.
    pub written: bool,
    /// One for each file edit; empty unless applied.
    pub files: Vec<FileChange>,
    /// Unified diff in git's form; bytes that are not UTF-8 are replaced.
    pub diff: String,
    /// The same diff to the byte, in base64; only if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_base64: Option<String>,
}

/// How the patch ended, and what to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchOutcome {
    /// 0 applied, 10 a patch but not applied, 2 no patch, 1 a fault.
    pub exit: Exit,
    /// Text or JSON for stdout, newline included.
    pub stdout: String,
    /// Text for stderr, newline included; empty with JSON.
    pub stderr: String,
    /// The same as data.
    pub report: PatchReport,
}

/// Why a patch is not written.
#[derive(Debug, Error)]
enum PatchFailure {
    #[error("invalid patch: {0}")]
    Invalid(String),
    #[error("patch refused, nothing was changed: {0}")]
    Refused(String),
    #[error("{0}")]
    Fault(String),
}

/// Applies the patch text in `stdin`.
///
/// Every path is resolved and every edit verified before the first file changes; a failure while
/// writing takes back what was written.
pub fn run(options: &PatchOptions, stdin: &[u8]) -> PatchOutcome {
    run_on(options, stdin, &Disk::default())
}

fn run_on(options: &PatchOptions, stdin: &[u8], disk: &Disk) -> PatchOutcome {
    let report = match carry_out(options, stdin, disk) {
        Ok(report) => report,
        Err(failure) => {
            let status = match failure {
                PatchFailure::Invalid(_) => PatchStatus::Invalid,
                PatchFailure::Refused(_) => PatchStatus::Refused,
                PatchFailure::Fault(_) => PatchStatus::Fault,
            };
            PatchReport {
                status,
                message: failure.to_string(),
                written: false,
                files: Vec::new(),
                diff: String::new(),
                diff_base64: None,
            }
        }
    };
    let exit = match report.status {
        PatchStatus::Applied => Exit::Done,
        PatchStatus::Refused => Exit::NotDone,
        PatchStatus::Invalid => Exit::Usage,
        PatchStatus::Fault => Exit::Internal,
    };
    let line = |text: &str| format!("{}\n", text.trim_end_matches('\n'));
    let (stdout, stderr) = if options.json {
        (line(&serde_json::to_string(&report).unwrap_or_default()), String::new())
    } else if exit == Exit::Done {
        (line(&report.message), String::new())
    } else {
        (String::new(), line(&report.message))
    };
    PatchOutcome { exit, stdout, stderr, report }
}

fn carry_out(
    options: &PatchOptions,
    stdin: &[u8],
    disk: &Disk,
) -> Result<PatchReport, PatchFailure> {
    write(options, stdin, disk).map(|staged| applied(options, &staged))
}

/// Verifies the patch and, unless told not to, writes it.
fn write(options: &PatchOptions, stdin: &[u8], disk: &Disk) -> Result<Staged, PatchFailure> {
    let text = std::str::from_utf8(stdin).map_err(|error| {
        let line = stdin[..error.valid_up_to()].split(|&byte| byte == b'\n').count();
        PatchFailure::Invalid(format!("line {line}: expected UTF-8 text, found other bytes"))
    })?;
    let patch = parse(text).map_err(|error| PatchFailure::Invalid(error.to_string()))?;
    let roots = Roots::open(options)?;
    let (patch, places) = resolve_all(&roots, patch)?;
    let mut rules = Rules { overwrite: options.overwrite, crlf: BTreeSet::new() };
    for edit in &patch.edits {
        if matches!(edit.kind, EditKind::Add { .. })
            && let Some(place) = places.get(&edit.path)
            && eol::is_crlf(&roots, place)
        {
            rules.crlf.insert(edit.path.clone());
        }
    }
    let files = existing(&patch, &places);
    let staged = stage(&patch, &files, &rules).map_err(|error| refused(&roots, &places, &error))?;
    if !options.check_only {
        let writes = staged.files.iter().map(|file| Write {
            place: &places[&file.path],
            new: file.new.as_deref(),
            like: file.origin.as_ref().and_then(|key| places[key].found.as_ref()),
        });
        disk.commit(&roots, writes.collect()).map_err(WriteError::into_failure)?;
    }
    Ok(staged)
}

/// Replaces the paths of `patch` by keys, and reads what stands there.
fn resolve_all(
    roots: &Roots,
    mut patch: Patch,
) -> Result<(Patch, BTreeMap<String, Resolved>), PatchFailure> {
    let mut places: BTreeMap<String, Resolved> = BTreeMap::new();
    for edit in &mut patch.edits {
        let line = edit.line;
        let mut key = |path: &mut String| {
            let place = roots.resolve(path).map_err(|failure| match failure {
                PatchFailure::Refused(why) => {
                    PatchFailure::Refused(format!("`{path}` (line {line} of the patch): {why}"))
                }
                other @ (PatchFailure::Invalid(_) | PatchFailure::Fault(_)) => other,
            })?;
            path.clone_from(&place.key);
            places.entry(place.key.clone()).or_insert(place);
            Ok::<(), PatchFailure>(())
        };
        key(&mut edit.path)?;
        if let EditKind::Update { to: Some(to), .. } = &mut edit.kind {
            key(to)?;
        }
    }
    Ok((patch, places))
}

/// The files before the patch, by key. A move's target that is the moved file itself under
/// another name (a folder that ignores case) counts as free.
fn existing(patch: &Patch, places: &BTreeMap<String, Resolved>) -> BTreeMap<String, Existing> {
    let mut files: BTreeMap<String, Existing> = places
        .iter()
        .filter_map(|(key, place)| {
            let found = place.found.as_ref()?;
            let executable = found.mode & 0o100 != 0;
            Some((key.clone(), Existing { bytes: found.bytes.clone(), executable }))
        })
        .collect();
    for edit in &patch.edits {
        if let EditKind::Update { to: Some(to), .. } = &edit.kind
            && *to != edit.path
            && let Some(from) = places.get(&edit.path).and_then(|place| place.found.as_ref())
            && let Some(target) = places.get(to).and_then(|place| place.found.as_ref())
            && from.is_same_name_as(target)
        {
            files.remove(to);
        }
    }
    files
}

fn refused(roots: &Roots, places: &BTreeMap<String, Resolved>, error: &StageError) -> PatchFailure {
    let mut text = error.to_string();
    if matches!(error.kind, crate::patch::StageErrorKind::Missing)
        && let Some(place) = places.get(&error.path)
    {
        text.push_str(&roots.missing_hint(place));
    }
    PatchFailure::Refused(text)
}

fn applied(options: &PatchOptions, staged: &Staged) -> PatchReport {
    let files: Vec<FileChange> = staged
        .edits
        .iter()
        .map(|edit| FileChange {
            path: edit.path.clone(),
            kind: edit.kind.to_owned(),
            to: edit.to.clone(),
            added: edit.added as u64,
            removed: edit.removed as u64,
            hunks: edit.hunks.iter().map(|(_, level)| level.name().to_owned()).collect(),
        })
        .collect();
    let diff_base64 = std::str::from_utf8(&staged.diff).is_err().then(|| base64(&staged.diff));
    PatchReport {
        status: PatchStatus::Applied,
        message: success(options, &staged.edits),
        written: !options.check_only,
        files,
        diff: String::from_utf8_lossy(&staged.diff).into_owned(),
        diff_base64,
    }
}

/// The list of files as models know it: added, changed, deleted; a moved file by its new path.
fn success(options: &PatchOptions, edits: &[EditSummary]) -> String {
    let mut out = String::from(if options.check_only {
        "Success. The patch applies to the following files:\n"
    } else {
        "Success. Updated the following files:\n"
    });
    for (letter, kinds) in [("A", &["add"][..]), ("M", &["update", "move"]), ("D", &["delete"])] {
        let mut seen = BTreeSet::new();
        for edit in edits.iter().filter(|edit| kinds.contains(&edit.kind)) {
            let path = edit.to.as_ref().unwrap_or(&edit.path);
            if seen.insert(path) {
                let _ = writeln!(out, "{letter} {path}");
            }
        }
    }
    let inexact = edits.iter().flat_map(|edit| {
        edit.hunks.iter().enumerate().map(move |(number, hunk)| (&edit.path, number + 1, *hunk))
    });
    for (path, number, (line, level)) in
        inexact.filter(|(_, _, (_, level))| *level > MatchLevel::TrailingBlanks).take(NOTES)
    {
        let how = if level == MatchLevel::OuterBlanks {
            "only with indentation left out of account"
        } else {
            "only with look-alike characters taken as equal"
        };
        let _ = writeln!(out, "Note: hunk {number} of {path} matched line {line} {how}.");
    }
    out
}

/// Standard base64 with padding (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sextet = bits >> (18 - 6 * place) & 63;
            out.push(if place > chunk.len() { '=' } else { char::from(ALPHABET[sextet as usize]) });
        }
    }
    out
}

/// What a failed system call means: a fault that no patch repairs, or a refusal of this path.
fn failed(action: &str, path: &Path, error: nix::errno::Errno) -> PatchFailure {
    use nix::errno::Errno;
    let text = format!("failed to {action} `{}`: {}", path.display(), error.desc());
    let repairable = matches!(
        error,
        Errno::EACCES
            | Errno::EPERM
            | Errno::ENOENT
            | Errno::ENOTDIR
            | Errno::EISDIR
            | Errno::EEXIST
            | Errno::ELOOP
            | Errno::EXDEV
            | Errno::ENAMETOOLONG
            | Errno::ETXTBSY
            | Errno::EINVAL
    );
    if repairable { PatchFailure::Refused(text) } else { PatchFailure::Fault(text) }
}
