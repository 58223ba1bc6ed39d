//! Edits as data: patch text in, old contents to new contents out.
//!
//! In: the text of a patch, and the bytes of the files it names. Out: a [`Patch`], then new bytes
//! with the place and the match level of each hunk, or an error that a model can repair. Pure:
//! knows nothing of file systems, processes, sessions or the transcript.

mod apply;
mod diff;
mod explain;
mod lines;
mod parse;
mod place;
mod seek;
pub mod shell;
mod stage;
#[cfg(test)]
mod tests;

pub use apply::{Applied, ApplyError, Change, Placed, apply};
pub use diff::{Side, unified};
pub use explain::visible;
pub use parse::{ParseError, Parser, Progress, parse};
pub use seek::MatchLevel;
pub use stage::{
    EditSummary, Existing, Rules, StageError, StageErrorKind, Staged, StagedFile, stage,
};

/// Lark grammar of the patch text, offered to models as the freeform tool's format.
///
/// Stricter than [`parse`], which also takes what models send without a grammar.
pub const GRAMMAR: &str = include_str!("grammar.lark");

/// File edits, in the order in which they are carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// At least one.
    pub edits: Vec<Edit>,
}

/// One file edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Line of its header in the patch text, 1-based.
    pub line: usize,
    /// Path as written, outer blanks cut.
    pub path: String,
    /// What happens to the file.
    pub kind: EditKind,
}

/// What happens to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditKind {
    /// The file is made.
    Add {
        /// Its lines without endings.
        lines: Vec<String>,
    },
    /// The file is removed.
    Delete,
    /// Lines of the file change, or its name does, or both.
    Update {
        /// New path as written, outer blanks cut.
        to: Option<String>,
        /// In file order. Empty only with a new path.
        hunks: Vec<Hunk>,
    },
}

/// One place in a file, and what happens there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    /// Line in the patch text where it starts, 1-based.
    pub line: usize,
    /// `@@` lines with text, outermost first: the hunk lies after each of them.
    pub contexts: Vec<Context>,
    /// Lines in file order.
    pub lines: Vec<HunkLine>,
    /// Whether its old lines are the last ones of the file.
    pub end_of_file: bool,
}

/// The text of an `@@` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// A line of the file, or its beginning.
    pub text: String,
    /// Whether the text came after unified diff ranges (`@@ -1,2 +1,2 @@ text`), where it is only
    /// a hint: it is left out of account if the file has no such line.
    pub hint: bool,
}

/// A line of a hunk, without prefix and ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HunkLine {
    /// Stays; written back from the file.
    Keep(String),
    /// Goes.
    Remove(String),
    /// Comes.
    Add(String),
}

impl Patch {
    /// Every path that the patch touches, as written, in order; a move has two.
    pub fn paths(&self) -> Vec<&str> {
        self.edits.iter().flat_map(Edit::paths).collect()
    }
}

impl Edit {
    /// The paths that the edit touches, as written; a move has two.
    pub fn paths(&self) -> Vec<&str> {
        let to = match &self.kind {
            EditKind::Update { to, .. } => to.as_deref(),
            EditKind::Add { .. } | EditKind::Delete => None,
        };
        std::iter::once(self.path.as_str()).chain(to).collect()
    }
}

impl Hunk {
    /// The lines that the file must have at the hunk's place.
    pub fn old_lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            HunkLine::Keep(text) | HunkLine::Remove(text) => Some(text.as_str()),
            HunkLine::Add(_) => None,
        })
    }
}
