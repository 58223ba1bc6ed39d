//! Actions: what a tool call wants to do, before anybody judged it.
//!
//! In: values pinned by the tool. Out: data. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Something that a tool call wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a program.
    Exec(Exec),
    /// Change files.
    Patch(PatchAction),
    /// Write to the stdin of a running command.
    Input(InputAction),
}

/// A program to start, with everything pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments, the program's name included.
    pub argv: Vec<String>,
    /// Absolute working folder.
    pub cwd: PathBuf,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// The shell text in `argv`, when the program is a shell that was given one.
    pub shell_text: Option<String>,
}

/// A patch to be written by our own binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatchAction {
    /// Our binary as the command that writes it; the patch text goes to its stdin.
    pub exec: Exec,
    /// Patch text.
    pub text: String,
    /// Folder that relative paths resolve against; absolute.
    pub base: PathBuf,
    /// Paths that it touches, as written; a move has two.
    pub paths: Vec<String>,
}

/// Text for a running command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputAction {
    /// Session id of the command.
    pub session: u32,
    /// Line that was begun before; judged together with `text`.
    pub pending: String,
    /// Text to write.
    pub text: String,
    /// What reads it.
    pub reader: Reader,
    /// Working folder and environment of the command, for judging shell text.
    pub exec: Exec,
}

/// What reads the stdin of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A shell: the text is judged like shell text.
    Shell,
    /// An interpreter or a program that runs what it reads: opaque.
    Interpreter,
    /// Any other program: data.
    Program,
}

impl Action {
    /// The command that is pinned.
    pub fn exec(&self) -> &Exec {
        match self {
            Self::Exec(exec) => exec,
            Self::Patch(patch) => &patch.exec,
            Self::Input(input) => &input.exec,
        }
    }
}
