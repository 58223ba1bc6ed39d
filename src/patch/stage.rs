//! A whole patch on a set of files, before any of them is written.
//!
//! In: a patch whose paths are keys, and what stands at each key. Out: what will stand there, with
//! a summary of each edit and one diff, or the first edit that can't be carried out. Knows nothing
//! of file systems: keys are paths that somebody else resolved.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::apply::{ApplyError, Change, apply};
use super::diff::{Side, unified};
use super::{Edit, EditKind, Hunk, HunkLine, MatchLevel, Patch};

/// A file before the patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// What a patch may do, and how new files are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Whether an added or moved file may take the place of another. Default no.
    pub overwrite: bool,
    /// Keys whose lines end in `\r\n` if the file is new. Default none.
    pub crlf: BTreeSet<String>,
}

/// What will stand at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFile {
    /// The key.
    pub path: String,
    /// New bytes; `None` if the file goes.
    pub new: Option<Vec<u8>>,
    /// The key whose file's mode it takes: its own, or that of a moved file. `None` for a new file.
    pub origin: Option<String>,
}

/// What one edit does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditSummary {
    /// Key of the edit.
    pub path: String,
    /// `add`, `update`, `delete`, `move`.
    pub kind: &'static str,
    /// New key of a move.
    pub to: Option<String>,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
    /// Line in the old file and match level of each hunk.
    pub hunks: Vec<(usize, MatchLevel)>,
}

/// A patch that can be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Staged {
    /// Keys that change, in order, each once.
    pub files: Vec<StagedFile>,
    /// One for each edit, in order.
    pub edits: Vec<EditSummary>,
    /// Unified diff of the whole, in git's form.
    pub diff: Vec<u8>,
}

/// The first edit that can't be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{path}` (line {line} of the patch): {kind}")]
pub struct StageError {
    /// Key of the edit.
    pub path: String,
    /// Line of its header in the patch text, 1-based.
    pub line: usize,
    /// Why.
    pub kind: StageErrorKind,
}

/// Why an edit can't be carried out; worded for a model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StageErrorKind {
    /// An added file exists.
    #[error("the file exists; change it with `*** Update File`, or delete it first")]
    Exists,
    /// A file would be moved onto another.
    #[error("can't move to `{0}`: that file exists; delete it first")]
    Onto(String),
    /// The file isn't there.
    #[error("no such file")]
    Missing,
    /// The hunks don't fit.
    #[error("{0}")]
    Apply(#[from] ApplyError),
}

/// A file while edits are carried out.
#[derive(Clone)]
struct Current {
    bytes: Vec<u8>,
    executable: bool,
    origin: Option<String>,
}

/// Carries the edits of `patch` out on `files`, in order, in memory.
///
/// A later edit sees what an earlier one did. A key that `files` lacks is a file that isn't there.
///
/// # Errors
///
/// The first edit that can't be carried out; then nothing of the patch must be written.
pub fn stage(
    patch: &Patch,
    files: &BTreeMap<String, Existing>,
    rules: &Rules,
) -> Result<Staged, StageError> {
    let mut stage = Stage { files, rules, now: BTreeMap::new() };
    let mut touched: BTreeMap<&str, usize> = BTreeMap::new();
    for path in patch.paths() {
        *touched.entry(path).or_default() += 1;
    }
    let mut staged = Staged::default();
    let mut composed = BTreeSet::new();
    for edit in &patch.edits {
        let keys = edit.paths();
        // Git has no form for a rename that takes the place of a file.
        let onto = keys.len() > 1 && keys.iter().all(|key| stage.current(key).is_some());
        let (summary, diff) = stage.carry_out(edit).map_err(|kind| StageError {
            path: edit.path.clone(),
            line: edit.line,
            kind,
        })?;
        staged.edits.push(summary);
        if !onto && keys.iter().all(|key| touched.get(key) == Some(&1)) {
            staged.diff.extend(diff);
        } else {
            composed.extend(keys);
        }
    }
    for key in composed {
        staged.diff.extend(stage.net_diff(key));
    }
    staged.files = stage.into_files();
    Ok(staged)
}

struct Stage<'a> {
    files: &'a BTreeMap<String, Existing>,
    rules: &'a Rules,
    now: BTreeMap<String, Option<Current>>,
}

impl Stage<'_> {
    fn current(&self, key: &str) -> Option<Current> {
        match self.now.get(key) {
            Some(current) => current.clone(),
            None => self.files.get(key).map(|file| Current {
                bytes: file.bytes.clone(),
                executable: file.executable,
                origin: Some(key.to_owned()),
            }),
        }
    }

    fn carry_out(&mut self, edit: &Edit) -> Result<(EditSummary, Vec<u8>), StageErrorKind> {
        match &edit.kind {
            EditKind::Add { lines } => self.add(&edit.path, lines),
            EditKind::Delete => self.delete(&edit.path),
            EditKind::Update { to, hunks } => {
                let to = to.as_deref().filter(|to| *to != edit.path);
                self.update(&edit.path, to, hunks)
            }
        }
    }

    fn add(
        &mut self,
        key: &str,
        lines: &[String],
    ) -> Result<(EditSummary, Vec<u8>), StageErrorKind> {
        let old = self.current(key);
        if old.is_some() && !self.rules.overwrite {
            return Err(StageErrorKind::Exists);
        }
        let ending = if self.rules.crlf.contains(key) { "\r\n" } else { "\n" };
        let size = lines.iter().map(|line| line.len() + ending.len()).sum();
        let mut bytes = Vec::with_capacity(size);
        for line in lines {
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(ending.as_bytes());
        }
        let executable = old.as_ref().is_some_and(|file| file.executable);
        let from = old.as_ref().map(|_| Side { path: key, executable });
        let before = old.as_ref().map_or(&b""[..], |file| &file.bytes);
        let changes = whole_change(before, &bytes);
        let diff = unified(from, Some(Side { path: key, executable }), before, &changes);
        let summary = EditSummary {
            path: key.to_owned(),
            kind: "add",
            to: None,
            added: lines.len(),
            removed: changes.iter().map(|change| change.old.len()).sum(),
            hunks: Vec::new(),
        };
        let origin = old.and_then(|file| file.origin).or_else(|| self.original(key));
        self.now.insert(key.to_owned(), Some(Current { bytes, executable, origin }));
        Ok((summary, diff))
    }

    fn delete(&mut self, key: &str) -> Result<(EditSummary, Vec<u8>), StageErrorKind> {
        let old = self.current(key).ok_or(StageErrorKind::Missing)?;
        let changes = whole_change(&old.bytes, b"");
        let side = Side { path: key, executable: old.executable };
        let diff = unified(Some(side), None, &old.bytes, &changes);
        let summary = EditSummary {
            path: key.to_owned(),
            kind: "delete",
            to: None,
            added: 0,
            removed: changes.iter().map(|change| change.old.len()).sum(),
            hunks: Vec::new(),
        };
        self.now.insert(key.to_owned(), None);
        Ok((summary, diff))
    }

    fn update(
        &mut self,
        key: &str,
        to: Option<&str>,
        hunks: &[Hunk],
    ) -> Result<(EditSummary, Vec<u8>), StageErrorKind> {
        let old = self.current(key).ok_or(StageErrorKind::Missing)?;
        if let Some(to) = to
            && !self.rules.overwrite
            && self.current(to).is_some()
        {
            return Err(StageErrorKind::Onto(to.to_owned()));
        }
        let applied = apply(&old.bytes, hunks)?;
        let executable = old.executable;
        let new_key = to.unwrap_or(key);
        let diff = unified(
            Some(Side { path: key, executable }),
            Some(Side { path: new_key, executable }),
            &old.bytes,
            &applied.changes,
        );
        let count = |wanted: fn(&HunkLine) -> bool| {
            hunks.iter().flat_map(|hunk| &hunk.lines).filter(|line| wanted(line)).count()
        };
        let summary = EditSummary {
            path: key.to_owned(),
            kind: if to.is_some() { "move" } else { "update" },
            to: to.map(str::to_owned),
            added: count(|line| matches!(line, HunkLine::Add(_))),
            removed: count(|line| matches!(line, HunkLine::Remove(_))),
            hunks: applied.hunks.iter().map(|placed| (placed.line, placed.level)).collect(),
        };
        if to.is_some() {
            self.now.insert(key.to_owned(), None);
        }
        let file = Current { bytes: applied.new, executable, origin: old.origin };
        self.now.insert(new_key.to_owned(), Some(file));
        Ok((summary, diff))
    }

    /// The key itself, if a file stood there before the patch: a file that is deleted and added
    /// again keeps its mode.
    fn original(&self, key: &str) -> Option<String> {
        self.files.contains_key(key).then(|| key.to_owned())
    }

    /// The diff of what all edits together did at `key`.
    fn net_diff(&self, key: &str) -> Vec<u8> {
        let old = self.files.get(key);
        let new = self.current(key);
        let from = old.map(|file| Side { path: key, executable: file.executable });
        let to = new.as_ref().map(|file| Side { path: key, executable: file.executable });
        let before = old.map_or(&b""[..], |file| &file.bytes);
        let after = new.as_ref().map_or(&b""[..], |file| &file.bytes);
        unified(from, to, before, &whole_change(before, after))
    }

    fn into_files(self) -> Vec<StagedFile> {
        let before = self.files;
        self.now
            .into_iter()
            .filter(|(key, now)| now.is_some() || before.contains_key(key))
            .map(|(path, now)| match now {
                Some(file) => StagedFile { path, new: Some(file.bytes), origin: file.origin },
                None => StagedFile { path, new: None, origin: None },
            })
            .collect()
    }
}

/// The one change between the lines that both ends have in common; none if nothing differs.
fn whole_change(old: &[u8], new: &[u8]) -> Vec<Change> {
    let old: Vec<&[u8]> = old.split_inclusive(|&byte| byte == b'\n').collect();
    let new: Vec<&[u8]> = new.split_inclusive(|&byte| byte == b'\n').collect();
    let start = old.iter().zip(&new).take_while(|(left, right)| left == right).count();
    let most = old.len().min(new.len()) - start;
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(most)
        .take_while(|(left, right)| left == right)
        .count();
    let (old, new) = (start..old.len() - tail, &new[start..new.len() - tail]);
    if old.is_empty() && new.is_empty() {
        return Vec::new();
    }
    vec![Change { old, new: new.iter().map(|line| line.to_vec()).collect() }]
}
