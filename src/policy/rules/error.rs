//! What can be wrong with a `.rules` file.
//!
//! In: a place and a sentence. Out: one error type that prints both with the line it is about.

use std::fmt;

use super::Origin;

/// A `.rules` file that can't be used; nothing of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Where; line 0 when the file as a whole is meant.
    pub origin: Origin,
    /// What is wrong, a fragment.
    pub message: String,
}

impl RuleError {
    pub(crate) fn new(origin: Origin, message: impl Into<String>) -> Self {
        Self { origin, message: message.into() }
    }

    /// An error about the file as a whole.
    pub(crate) fn file(name: &str, message: impl Into<String>) -> Self {
        Self::new(Origin { file: name.to_owned(), ..Origin::default() }, message)
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { file, line, column, snippet } = &self.origin;
        if *line == 0 {
            return write!(out, "{file}: {}", self.message);
        }
        write!(out, "{file}:{line}:{column}: {}", self.message)?;
        if snippet.trim().is_empty() {
            return Ok(());
        }
        let gutter = line.to_string();
        let pad = " ".repeat(gutter.len());
        let lead: String = snippet
            .chars()
            .take(usize::try_from(column.saturating_sub(1)).unwrap_or(0))
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        write!(out, "\n {pad} |\n {gutter} | {snippet}\n {pad} | {lead}^")
    }
}

impl std::error::Error for RuleError {}
