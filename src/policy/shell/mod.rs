//! Shell text: every simple command that stands anywhere in it.
//!
//! In: text for a POSIX-like shell, read as bash reads it. Out: a [`Script`] of [`Simple`] commands
//! in order of appearance, and what could not be read. Pure and total; bounded in size, depth and
//! steps. Knows nothing of rules or of what programs do.
//!
//! Rejected: walking a tree-sitter tree. Its grammar reads `> log git push` and
//! `cat <<E; git push` otherwise than bash does, and what a reader misses runs unjudged. It is the
//! second opinion in the tests instead.

mod braces;
mod compound;
mod heredoc;
mod parse;
mod resolve;
mod simple;
mod word;

pub(crate) use parse::read;
pub(crate) use resolve::{Arg, ArgKind, Readings, Variables, readings};

/// Largest text that counts as known, in bytes; what stands in a larger one is still judged. Our
/// choice.
pub(crate) const MAX_TEXT: usize = 256 << 10;
/// Deepest nesting of compounds, quotes and substitutions that counts as known. Our choice.
pub(crate) const MAX_DEPTH: usize = 64;
/// Most simple commands of one text. Our choice.
pub(crate) const MAX_COMMANDS: usize = 20_000;

/// What stands in a shell text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    /// Simple commands in order of appearance; those of substitutions come before the command that
    /// they stand in.
    pub(crate) commands: Vec<Simple>,
    /// What could not be read, in words; empty for text that a shell accepts.
    pub(crate) faults: Vec<String>,
    /// Values that variables have somewhere in the text.
    pub(crate) variables: Variables,
    /// Functions that the text defines.
    pub(crate) functions: Vec<Function>,
}

/// A function that a text defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Name.
    pub(crate) name: String,
    /// Its body's commands in [`Script::commands`].
    pub(crate) body: std::ops::Range<usize>,
}

/// A simple command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Simple {
    /// Words; empty for a command of assignments or redirects only.
    pub(crate) words: Vec<Word>,
    /// Assignments before the first word.
    pub(crate) assignments: Vec<Assignment>,
    /// Redirects.
    pub(crate) redirects: Vec<Redirect>,
    /// Where its stdin comes from.
    pub(crate) stdin: Stdin,
}

/// Where a command's stdin comes from, as far as the text says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stdin {
    /// From whoever started the shell.
    #[default]
    Inherited,
    /// This text, from a here-document, a here-string or an `echo` before the pipe.
    Text(String),
    /// From a file, a pipe or a descriptor: known only when it runs.
    Unknown,
}

/// `NAME=VALUE` before a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Name, without a subscript.
    pub(crate) name: String,
    /// Value.
    pub(crate) value: Word,
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// `>`, `>>`, `<`, `<>`, `&>`, `>&`, `<&`, `>|`, `&>>`, `<<`, `<<-`, `<<<`.
    pub(crate) operator: String,
    /// Target, or the delimiter of a here-document.
    pub(crate) target: Word,
}

/// A word as the text spells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// Its parts, in order.
    pub(crate) parts: Vec<Part>,
    /// Its source.
    pub(crate) raw: String,
    /// Whether any of it is quoted, so that it stays a word when it is empty.
    pub(crate) is_quoted: bool,
}

/// A part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Characters without a meaning of their own.
    Text(String),
    /// An unquoted `*`, `?`, `[` or extended pattern.
    Glob(String),
    /// A parameter; what it holds is known only if the text sets it.
    Parameter {
        /// Name.
        name: String,
        /// Literal that stands in for it, as in `${x:-literal}`.
        alternative: Option<String>,
        /// Whether it stays one word.
        is_quoted: bool,
    },
    /// The output of commands, with its value when it can be told.
    Substitution {
        /// What it prints.
        value: Option<String>,
        /// Whether it stays one word.
        is_quoted: bool,
    },
    /// Anything else that is known only when it runs.
    Dynamic {
        /// Whether it stays one word.
        is_quoted: bool,
    },
}

impl Word {
    /// A word that is known as it stands.
    pub(crate) fn literal(text: &str) -> Self {
        Self { parts: vec![Part::Text(text.to_owned())], raw: text.to_owned(), is_quoted: false }
    }

    /// Its text, if nothing of it is a pattern or known only when it runs.
    pub(crate) fn known(&self) -> Option<String> {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                Part::Glob(_)
                | Part::Parameter { .. }
                | Part::Substitution { .. }
                | Part::Dynamic { .. } => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
