//! Complaints: what is wrong with a task file, all of it at once.
//!
//! In: a place, a sentence, perhaps a remedy. Out: lines for the terminal. Pure; knows nothing of
//! YAML.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::exit::Exit;

/// Where something stands in a task file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// File as the user knows it.
    pub file: Arc<str>,
    /// Line, 1-based; 0 when it comes from a default or a flag.
    pub line: u32,
    /// Column in characters, 1-based.
    pub column: u32,
    /// Path of keys, for example `tasks[0].budget.wall`.
    pub key: String,
    /// For block scalars: line and column at which the text itself starts.
    pub text: Option<(u32, u32)>,
}

impl At {
    /// A place that stands for a whole file, or for the command line.
    pub fn whole(file: &str) -> Self {
        Self { file: Arc::from(file), ..Self::default() }
    }

    /// The place of a key below this one, for sentences about what isn't written.
    #[must_use]
    pub fn below(&self, key: &str) -> Self {
        let key = if self.key.is_empty() { key.to_owned() } else { format!("{}.{key}", self.key) };
        Self { key, ..self.clone() }
    }

    /// Complains about this place.
    pub fn complain(&self, message: impl Into<String>) -> Complaint {
        Complaint {
            file: self.file.to_string(),
            line: self.line,
            column: self.column,
            message: message.into(),
            hint: None,
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Complaint {
    /// File as the user knows it.
    pub file: String,
    /// Line, 1-based; 0 when the complaint is about no line.
    pub line: u32,
    /// Column in characters, 1-based.
    pub column: u32,
    /// Lower-case fragment: what was expected, then what was found.
    pub message: String,
    /// The one obvious remedy.
    pub hint: Option<String>,
}

impl Complaint {
    /// Adds the remedy.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for Complaint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.is_empty(), self.line) {
            (true, _) => {}
            (false, 0) => write!(out, "{}: ", self.file)?,
            (false, line) => write!(out, "{}:{line}:{}: ", self.file, self.column)?,
        }
        out.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(out, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Every complaint about one command line and its files, in order of place.
///
/// Prints one line for each complaint, and a `hint: …` line below it where there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    /// The complaints; never empty in an `Err`.
    pub list: Vec<Complaint>,
    /// Whether nothing is wrong but `--select` names nothing: exit status 3 instead of 2.
    pub is_nothing_selected: bool,
}

impl Complaints {
    /// Adds one.
    pub fn push(&mut self, complaint: Complaint) {
        self.list.push(complaint);
    }

    /// Adds all of another list.
    pub fn extend(&mut self, other: Self) {
        self.list.extend(other.list);
    }

    /// Whether there is nothing to complain about.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Exit status of a command that ends with these complaints.
    pub fn exit(&self) -> Exit {
        if self.is_nothing_selected { Exit::Nothing } else { Exit::Usage }
    }

    /// Returns `value` if there is nothing to complain about.
    ///
    /// # Errors
    ///
    /// The complaints, sorted by file, line and column, each once.
    pub fn or<T>(mut self, value: T) -> Result<T, Self> {
        if self.list.is_empty() {
            return Ok(value);
        }
        self.list.sort();
        self.list.dedup();
        Err(self)
    }
}

impl From<Complaint> for Complaints {
    fn from(complaint: Complaint) -> Self {
        Self { list: vec![complaint], is_nothing_selected: false }
    }
}

impl fmt::Display for Complaints {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, complaint) in self.list.iter().enumerate() {
            if number > 0 {
                out.write_str("\n")?;
            }
            write!(out, "{complaint}")?;
        }
        Ok(())
    }
}

impl Error for Complaints {}
