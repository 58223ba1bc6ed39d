//! Commands that the task's author wrote down: setup, context, checks.
//!
//! In: a command with where it stands. Out: how it ended, with its log as a blob; both are in the
//! transcript, the start before the effect (P2, P4).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use super::secret::{Secret, cut};
use super::{Run, Signal, record};
use crate::approval::{self, Span};
use crate::plan::Command;
use crate::policy::Exec;
use crate::process::{Capture, Cause, Ended, Output, Stdin};
use crate::sandbox::{Sandbox, SandboxError};
use crate::transcript::{Blob, Scope, TranscriptError};

/// Exit code of a program that isn't there, as shells give it.
const NOT_FOUND: i32 = 127;
/// Exit code of a program that can't be executed, as shells give it.
const NOT_EXECUTABLE: i32 = 126;

/// A command of the task's author, ready to run.
#[derive(Debug)]
pub struct Authored<'a> {
    /// `setup`, `context`, `check`.
    pub role: &'static str,
    /// Command.
    pub command: &'a Command,
    /// Where it stands in the task file.
    pub span: &'a Span,
    /// Confinement.
    pub sandbox: &'a Sandbox,
    /// Working folder; absolute.
    pub cwd: &'a Path,
    /// Environment.
    pub env: &'a BTreeMap<String, String>,
    /// Secrets in `env`, which are cut out of what is kept.
    pub secrets: &'a [Secret],
    /// Deadline.
    pub timeout: Duration,
}

/// How such a command ended.
#[derive(Debug)]
pub struct AuthoredDone {
    /// How.
    pub ended: Ended,
    /// Head and tail of what it wrote.
    pub output: Output,
    /// All of what it wrote, within the log's cap.
    pub log: Blob,
}

/// Why such a command has no end.
#[derive(Debug, Error)]
pub enum AuthoredError {
    /// The run is being stopped.
    #[error("interrupted by {}", .0.name())]
    Stopped(Signal),
    /// Its confinement can't be set up.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// It can't be written down.
    #[error(transparent)]
    Record(#[from] TranscriptError),
    /// Its log has no place, or can't be read.
    #[error("failed to make or read a log file at `{}`", path.display())]
    Log {
        /// Folder or file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
}

impl Authored<'_> {
    /// Runs the command to its end or deadline; no descendant outlives it.
    ///
    /// # Errors
    ///
    /// See [`AuthoredError`]; a red exit code is no error.
    pub async fn run(&self, run: &Run, scope: &Scope) -> Result<AuthoredDone, AuthoredError> {
        let Some(exec) = self.exec() else {
            return self.not_started(run, NOT_FOUND, "its program is not on PATH");
        };
        let cleared = approval::by_task_author(exec, self.span.clone());
        let confined = self.sandbox.confine(cleared)?;
        run.transcript.append(scope, record::process_started(self.role, &confined, None))?;
        let log = tempfile::NamedTempFile::new_in(&run.state)
            .map_err(|source| AuthoredError::Log { path: run.state.clone(), source })?
            .into_temp_path();
        let capture = Capture { log: Some(log.to_path_buf()), ..Capture::default() };
        let finished = run.stop.guard(confined.finish(Stdin::Null, capture, self.timeout)).await;
        let finished = finished.map_err(|stopped| AuthoredError::Stopped(stopped.0))?;
        let (ended, output) = match finished {
            Ok(done) => done,
            Err(error) if error.is_about_command() => {
                let code = error.exit_code().map_or(NOT_EXECUTABLE, i32::from);
                let done = self.not_started(run, code, &record::chain(&error))?;
                let event = record::process_ended(&done.ended, Some(done.log.clone()), None);
                run.transcript.append(scope, event)?;
                return Ok(done);
            }
            Err(error) => return Err(error.into()),
        };
        let (output, blob) = self.keep(run, output, &log)?;
        run.transcript.append(scope, record::process_ended(&ended, Some(blob.clone()), None))?;
        Ok(AuthoredDone { ended, output, log: blob })
    }

    /// Puts the log beside the transcript, without the secrets, and the same for what is shown.
    fn keep(&self, run: &Run, output: Output, log: &Path) -> Result<(Output, Blob), AuthoredError> {
        if self.secrets.is_empty() {
            return Ok((output, run.transcript.blob_file(log)?));
        }
        // The log is whole where head and tail may each have a part of a secret.
        let text = std::fs::read(log)
            .map_err(|source| AuthoredError::Log { path: log.to_path_buf(), source })?;
        let text = cut(text, self.secrets);
        let blob = run.transcript.blob(&text)?;
        Ok((Output { head: text, ..Output::default() }, blob))
    }

    /// A command that could not be started has failed, with the code that a shell gives.
    fn not_started(&self, run: &Run, code: i32, why: &str) -> Result<AuthoredDone, AuthoredError> {
        let text = format!("{} at {} was not started: {why}\n", self.role, self.span);
        let ended = Ended {
            pid: 0,
            exit_code: Some(code),
            signal: None,
            cause: Cause::Exited,
            wall: Duration::ZERO,
            cpu: Duration::ZERO,
            output_bytes: text.len() as u64,
            survivors: 0,
        };
        let log = run.transcript.blob(text.as_bytes())?;
        Ok(AuthoredDone {
            ended,
            output: Output { head: text.into_bytes(), ..Output::default() },
            log,
        })
    }

    /// The command with everything pinned; `None` when its program can't be found.
    fn exec(&self) -> Option<Exec> {
        let argv = match self.command {
            Command::Shell(text) => {
                ["bash", "-euo", "pipefail", "-c", text].map(str::to_owned).to_vec()
            }
            Command::Argv(argv) => argv.clone(),
        };
        let name = argv.first().cloned().unwrap_or_default();
        let program = if name.contains('/') {
            Some(self.cwd.join(&name))
        } else {
            crate::path::find_program(&name, self.env.get("PATH"))
        };
        Some(Exec {
            program: program?,
            argv,
            cwd: self.cwd.to_path_buf(),
            env: self.env.clone(),
            shell_text: match self.command {
                Command::Shell(text) => Some(text.clone()),
                Command::Argv(_) => None,
            },
        })
    }
}
