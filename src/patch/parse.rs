//! Patch text to [`Patch`], line by line and in any chunks.
//!
//! In: bytes of the text as they arrive. Out: a [`Patch`], or the first line that can't be read.
//! Knows nothing of the files that the patch names.

use thiserror::Error;

use super::{Context, Edit, EditKind, Hunk, HunkLine, Patch};
use crate::text::clip;

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const END_OF_FILE: &str = "*** End of File";

/// Bytes of a line that an error quotes; our choice.
const QUOTED: usize = 120;

/// The text is no patch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: expected {expected}, found {found}")]
pub struct ParseError {
    /// Line of the patch text, 1-based, wrapper lines included.
    pub line: usize,
    /// What can stand there.
    pub expected: &'static str,
    /// What stands there, quoted in backticks, or `the end of the text`.
    pub found: String,
}

/// What a [`Parser`] has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// File edits begun.
    pub edits: usize,
    /// Lines added.
    pub added: usize,
    /// Lines removed.
    pub removed: usize,
}

/// Reads a whole patch text.
///
/// Markers tolerate trailing blanks and a carriage return; a byte order mark before the text, and
/// a code fence or a here-document around the whole are cut.
///
/// # Errors
///
/// The first line that can't be read, with what was expected there.
pub fn parse(text: &str) -> Result<Patch, ParseError> {
    let mut parser = Parser::new();
    parser.push(text.as_bytes());
    parser.finish()
}

/// Reads a patch text that arrives in chunks of any size.
#[derive(Debug, Default)]
pub struct Parser {
    rest: Vec<u8>,
    line: usize,
    state: State,
    wrappers: Vec<String>,
    patch: Patch,
    hunk: Option<Hunk>,
    /// Empty lines since the last other one: layout before a header, or lines without a prefix.
    blanks: usize,
    progress: Progress,
    error: Option<ParseError>,
}

/// Where in the text the parser stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the begin marker.
    #[default]
    Before,
    /// After the begin marker, before the first file edit.
    Begun,
    /// In the lines of an added file.
    Add,
    /// After a deleted file's header.
    Delete,
    /// Directly after the header of an updated file.
    Update,
    /// In the hunks of an updated file.
    Hunks,
    /// After the end marker.
    After,
}

impl State {
    const fn expects(self) -> &'static str {
        match self {
            Self::Before => "`*** Begin Patch`",
            Self::Begun => {
                "`*** Add File: PATH`, `*** Delete File: PATH` or `*** Update File: PATH`"
            }
            Self::Add => "a line that starts with `+`, the next file edit or `*** End Patch`",
            Self::Delete => "the next file edit or `*** End Patch`",
            Self::Update => {
                "`*** Move to: PATH`, `@@` or a line that starts with a space, `-` or `+`"
            }
            Self::Hunks => {
                "a line that starts with a space, `-`, `+` or `@@`, the next file edit or `*** End Patch`"
            }
            Self::After => "nothing after `*** End Patch`",
        }
    }
}

impl Parser {
    /// Starts at the first line.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next chunk. After an error the rest is left unread.
    pub fn push(&mut self, chunk: &[u8]) {
        if self.error.is_some() {
            return;
        }
        let mut chunk = chunk;
        while let Some(end) = chunk.iter().position(|&byte| byte == b'\n') {
            self.rest.extend_from_slice(&chunk[..end]);
            chunk = &chunk[end + 1..];
            let line = std::mem::take(&mut self.rest);
            if let Err(error) = self.read(&line) {
                self.error = Some(error);
                return;
            }
        }
        self.rest.extend_from_slice(chunk);
    }

    /// What was seen so far.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Ends the text.
    ///
    /// # Errors
    ///
    /// The first line that can't be read, or the missing end marker.
    pub fn finish(mut self) -> Result<Patch, ParseError> {
        if self.error.is_none() && !self.rest.is_empty() {
            let line = std::mem::take(&mut self.rest);
            self.error = self.read(&line).err();
        }
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.state == State::After {
            return Ok(self.patch);
        }
        let expected =
            if self.state == State::Before { "`*** Begin Patch`" } else { "`*** End Patch`" };
        Err(ParseError { line: self.line + 1, expected, found: "the end of the text".to_owned() })
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        self.line += 1;
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let line = std::str::from_utf8(bytes).map_err(|_| ParseError {
            line: self.line,
            expected: "UTF-8 text",
            found: format!("`{}`", clip(&String::from_utf8_lossy(bytes), QUOTED)),
        })?;
        match self.state {
            State::Before => self.before(line),
            State::Begun | State::Add | State::Delete => self.outside(line),
            State::Update | State::Hunks => self.inside(line),
            State::After => self.after(line),
        }
    }

    fn before(&mut self, line: &str) -> Result<(), ParseError> {
        let word = line.trim_start_matches('\u{feff}').trim();
        if word == BEGIN {
            self.state = State::Begun;
        } else if let Some(closer) = wrapper(word) {
            self.wrappers.push(closer);
        } else if !word.is_empty() {
            return Err(self.refuse(line));
        }
        Ok(())
    }

    fn after(&mut self, line: &str) -> Result<(), ParseError> {
        let word = line.trim();
        if self.wrappers.last().is_some_and(|closer| closer == word) {
            self.wrappers.pop();
        } else if !word.is_empty() {
            return Err(self.refuse(line));
        }
        Ok(())
    }

    /// Reads a line where only headers and, in an added file, `+` lines can stand, so that blanks
    /// before a header can't be meant as content.
    fn outside(&mut self, line: &str) -> Result<(), ParseError> {
        if self.state == State::Add
            && let Some(text) = line.strip_prefix('+')
        {
            let blanks = std::mem::take(&mut self.blanks);
            if let Some(Edit { kind: EditKind::Add { lines }, .. }) = self.patch.edits.last_mut() {
                lines.extend(std::iter::repeat_n(String::new(), blanks));
                lines.push(text.to_owned());
            }
            self.progress.added += blanks + 1;
            return Ok(());
        }
        if line.trim().is_empty() {
            // A blank line between `+` lines lacks its `+`; before a header it is layout.
            self.blanks += 1;
            return Ok(());
        }
        if self.header(line.trim())? { Ok(()) } else { Err(self.refuse(line)) }
    }

    fn inside(&mut self, line: &str) -> Result<(), ParseError> {
        if self.state == State::Update
            && let Some(path) = line.trim().strip_prefix(MOVE)
        {
            let path = self.path(path)?;
            if let Some(Edit { kind: EditKind::Update { to, .. }, .. }) =
                self.patch.edits.last_mut()
                && to.is_none()
            {
                *to = Some(path);
                return Ok(());
            }
            return Err(self.refuse(line));
        }
        if line.starts_with("@@") {
            self.place(line);
            return Ok(());
        }
        if line.trim_end() == END_OF_FILE {
            return match &mut self.hunk {
                Some(hunk) if !hunk.end_of_file && !hunk.lines.is_empty() => {
                    hunk.end_of_file = true;
                    self.state = State::Hunks;
                    Ok(())
                }
                _ => Err(self.refuse(line)),
            };
        }
        if line.starts_with("***") {
            return if self.header(line)? { Ok(()) } else { Err(self.refuse(line)) };
        }
        self.content(line)
    }

    fn content(&mut self, line: &str) -> Result<(), ParseError> {
        let parsed = match line.split_at_checked(1) {
            None => HunkLine::Keep(String::new()),
            Some((" ", text)) => HunkLine::Keep(text.to_owned()),
            Some(("-", text)) => HunkLine::Remove(text.to_owned()),
            Some(("+", text)) => HunkLine::Add(text.to_owned()),
            // Only blanks: an empty line of the file whose prefix was lost in an editor.
            Some(_) if line.trim().is_empty() => HunkLine::Keep(line.to_owned()),
            Some(_) => return Err(self.refuse(line)),
        };
        let first = self.state == State::Update && self.hunk.is_none();
        if self.hunk.as_ref().is_some_and(|hunk| hunk.end_of_file) {
            return if line.trim().is_empty() { Ok(()) } else { Err(self.refuse(line)) };
        }
        if first && line.is_empty() {
            return Ok(());
        }
        self.blanks = if line.is_empty() { self.blanks + 1 } else { 0 };
        match &parsed {
            HunkLine::Add(_) => self.progress.added += 1,
            HunkLine::Remove(_) => self.progress.removed += 1,
            HunkLine::Keep(_) => {}
        }
        let line = self.line;
        self.hunk.get_or_insert_with(|| Hunk { line, ..Hunk::default() }).lines.push(parsed);
        self.state = State::Hunks;
        Ok(())
    }

    /// Reads an `@@` line: the start of a hunk, or one more context of a hunk without lines.
    fn place(&mut self, line: &str) {
        let context = context(line);
        if self.hunk.as_ref().is_some_and(|hunk| !hunk.lines.is_empty()) {
            self.close_hunk();
        }
        self.blanks = 0;
        let line = self.line;
        let hunk = self.hunk.get_or_insert_with(|| Hunk { line, ..Hunk::default() });
        hunk.contexts.extend(context);
        self.state = State::Hunks;
    }

    /// Reads the header of a file edit or the end marker; `false` if `line` is neither.
    fn header(&mut self, line: &str) -> Result<bool, ParseError> {
        let line = line.trim_end();
        let (path, kind, state) = if line == END {
            (None, None, State::After)
        } else if let Some(path) = line.strip_prefix(ADD) {
            (Some(path), Some(EditKind::Add { lines: Vec::new() }), State::Add)
        } else if let Some(path) = line.strip_prefix(DELETE) {
            (Some(path), Some(EditKind::Delete), State::Delete)
        } else if let Some(path) = line.strip_prefix(UPDATE) {
            let kind = EditKind::Update { to: None, hunks: Vec::new() };
            (Some(path), Some(kind), State::Update)
        } else {
            return Ok(false);
        };
        self.close_edit(line)?;
        if let (Some(path), Some(kind)) = (path, kind) {
            let path = self.path(path)?;
            self.patch.edits.push(Edit { line: self.line, path, kind });
            self.progress.edits += 1;
        }
        self.state = state;
        self.blanks = 0;
        Ok(true)
    }

    fn close_edit(&mut self, line: &str) -> Result<(), ParseError> {
        let found = || format!("`{}`", clip(line, QUOTED));
        match self.state {
            State::Begun if line == END => {
                return Err(ParseError {
                    line: self.line,
                    expected: self.state.expects(),
                    found: found(),
                });
            }
            State::Hunks if self.hunk.as_ref().is_some_and(|hunk| hunk.lines.is_empty()) => {
                let expected = "a line of the hunk that starts with a space, `-` or `+`";
                return Err(ParseError { line: self.line, expected, found: found() });
            }
            State::Hunks => self.close_hunk(),
            State::Update => {
                let pure_move = matches!(
                    self.patch.edits.last(),
                    Some(Edit { kind: EditKind::Update { to: Some(_), .. }, .. })
                );
                if !pure_move {
                    let expected = State::Update.expects();
                    return Err(ParseError { line: self.line, expected, found: found() });
                }
            }
            State::Before | State::Begun | State::Add | State::Delete | State::After => {}
        }
        Ok(())
    }

    fn close_hunk(&mut self) {
        let Some(mut hunk) = self.hunk.take() else { return };
        // A hunk that only adds has no use for blank lines before the next marker: they would ask
        // for a blank line at its place.
        if hunk.old_lines().all(str::is_empty) && !hunk.lines.iter().any(is_removed) {
            hunk.lines.truncate((hunk.lines.len() - self.blanks).max(1));
        }
        if let Some(Edit { kind: EditKind::Update { hunks, .. }, .. }) = self.patch.edits.last_mut()
        {
            hunks.push(hunk);
        }
    }

    fn path(&self, text: &str) -> Result<String, ParseError> {
        let path = text.trim();
        if path.is_empty() || path.contains('\0') {
            let found = if path.is_empty() { "no path" } else { "a path with a NUL character" };
            let expected = "a path after the colon";
            return Err(ParseError { line: self.line, expected, found: found.to_owned() });
        }
        Ok(path.to_owned())
    }

    fn refuse(&self, line: &str) -> ParseError {
        let found = format!("`{}`", clip(line.trim_end(), QUOTED));
        ParseError { line: self.line, expected: self.state.expects(), found }
    }
}

fn is_removed(line: &HunkLine) -> bool {
    matches!(line, HunkLine::Remove(_))
}

/// The closing line of a wrapper that `line` opens: a code fence or a here-document.
fn wrapper(line: &str) -> Option<String> {
    for fence in ["```", "~~~"] {
        if let Some(language) = line.strip_prefix(fence) {
            let plain = language.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            return plain.then(|| fence.to_owned());
        }
    }
    let command = ["apply_patch", "applypatch"]
        .iter()
        .find_map(|name| line.strip_prefix(name))
        .map_or(line, str::trim_start);
    let tag = command.strip_prefix("<<")?.trim();
    let tag = ['\'', '"']
        .iter()
        .find_map(|&quote| tag.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(tag);
    let plain = !tag.is_empty() && tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain.then(|| tag.to_owned())
}

/// The context of an `@@` line, if it has one.
fn context(line: &str) -> Option<Context> {
    let text = line.strip_prefix("@@")?;
    let text = text.strip_prefix(' ').unwrap_or(text).trim_end();
    if let Some(rest) = ranges(text) {
        let text = rest.trim();
        return (!text.is_empty()).then(|| Context { text: text.to_owned(), hint: true });
    }
    let text = if text.trim() == "@@" { "" } else { text };
    (!text.trim().is_empty()).then(|| Context { text: text.to_owned(), hint: false })
}

/// What follows unified diff ranges (`-1,2 +1,2 @@`), if `text` starts with them.
fn ranges(text: &str) -> Option<&str> {
    let rest = range(text.trim_start().strip_prefix('-')?)?;
    let rest = range(rest.trim_start().strip_prefix('+')?)?;
    rest.trim_start().strip_prefix("@@")
}

fn range(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(text.len());
    (end > 0).then(|| &text[end..])
}
