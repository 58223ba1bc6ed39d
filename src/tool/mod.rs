//! Tools: what the model may ask for.
//!
//! In: a [`ToolCall`] as the model wrote it. Out: a [`ToolResult`] that the model reads, or a fault
//! that ends the run. Every effect goes through the [`Gate`]. Knows nothing of the session's loop.

mod apply_patch;
mod exec_command;
mod output;
mod store;
mod update_plan;
mod write_stdin;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use thiserror::Error;

pub use apply_patch::{ApplyPatch, PatchReply};
pub use exec_command::ExecCommand;
pub use output::{DEFAULT_OUTPUT_TOKENS, ExecReply, clip_output};
pub use store::{Live, Store};
pub use update_plan::UpdatePlan;
pub use write_stdin::WriteStdin;

use crate::approval::{Cleared, Refusal};
use crate::model::{LocalFuture, Payload, ToolCall, ToolSpec};
use crate::policy::Action;
use crate::process::{Ended, Output, Stdin};
use crate::sandbox::Running;
use crate::transcript::Event;

/// How a tool is shown to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolExposure {
    /// In the list of every request.
    Direct,
    /// Found by a tool search, callable before that as well.
    Deferred,
    /// In the list, and not callable by other tools.
    DirectModelOnly,
    /// Callable, never shown.
    Hidden,
}

/// What a tool's call may know; frozen for the step.
#[derive(Clone, Debug)]
pub struct StepContext {
    /// Step of the attempt, from 1.
    pub step: u32,
    /// Root of the working tree; absolute.
    pub workspace: PathBuf,
    /// Working folder of commands; absolute, the root or below it.
    pub cwd: PathBuf,
    /// Environment of commands.
    pub env: Rc<BTreeMap<String, String>>,
    /// The shell that runs `cmd`; absolute.
    pub shell: PathBuf,
    /// Our own binary, which writes patches; absolute.
    pub binary: PathBuf,
    /// Globs of protected paths, relative to the workspace.
    pub protected: Vec<String>,
    /// Writable roots beside the workspace.
    pub write_roots: Vec<PathBuf>,
    /// Whether a patch may replace an existing file.
    pub patch_overwrite: bool,
    /// What is left of the wall budget when the step starts.
    pub remaining: Duration,
}

/// What the model reads of a call, and what the record keeps of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// Text for the model.
    pub output: String,
    /// `ok`, `failed`, `running`, `timed-out`, `reply`.
    pub status: &'static str,
    /// Exit code of the command.
    pub exit_code: Option<i32>,
    /// Signal that ended the command.
    pub signal: Option<i32>,
    /// What stays the same when the same call has the same result: the text without ids and times.
    pub fingerprint: String,
}

impl ToolResult {
    /// A plain answer.
    pub fn text(status: &'static str, output: String) -> Self {
        Self { fingerprint: output.clone(), output, status, exit_code: None, signal: None }
    }
}

/// Two audiences: a reply goes to the model, which can try again; a fault ends the run. A tool that
/// is unsure returns a fault.
#[derive(Debug, Error)]
pub enum ToolError {
    /// The model can repair this.
    #[error("{0}")]
    Reply(String),
    /// Policy or approval said no.
    #[error("{}", .0.reason)]
    Refused(Refusal),
    /// Nobody in the run can repair this.
    #[error("tool `{tool}` can't work: {message}")]
    Fault {
        /// Tool.
        tool: &'static str,
        /// What failed, causes joined.
        message: String,
    },
    /// The confinement that the task needs failed.
    #[error("{0}")]
    Sandbox(#[from] crate::sandbox::SandboxError),
    /// The run is being stopped.
    #[error("interrupted")]
    Stopped,
}

/// The way from an action to its effect: judged, cleared, confined, recorded, started.
pub trait Gate {
    /// Starts the action's command under its confinement.
    fn start(&self, action: Action, launch: Launch) -> LocalFuture<'_, Result<Started, ToolError>>;

    /// Starts the action's command and waits for its end.
    fn finish(
        &self,
        action: Action,
        stdin: Stdin,
        deadline: Duration,
    ) -> LocalFuture<'_, Result<(Ended, Output), ToolError>>;

    /// Clears an action that goes to a running command.
    ///
    /// # Errors
    ///
    /// The refusal, or a failed record.
    fn clear(&self, action: Action) -> Result<Cleared, ToolError>;

    /// Waits for a running command; a stop of the run ends the wait.
    fn wait<'a>(
        &'a self,
        running: &'a mut Running,
        at_most: Duration,
    ) -> LocalFuture<'a, Result<crate::sandbox::Observed, ToolError>>;

    /// Writes an event of this call.
    ///
    /// # Errors
    ///
    /// A record that can't be written is a fault.
    fn record(&self, event: Event) -> Result<(), ToolError>;

    /// Stores bytes beside the transcript.
    ///
    /// # Errors
    ///
    /// A record that can't be written is a fault.
    fn blob(&self, bytes: &[u8]) -> Result<crate::transcript::Blob, ToolError>;

    /// Records how a command ended, with its log.
    ///
    /// # Errors
    ///
    /// A record that can't be written is a fault.
    fn ended(&self, live: &Live) -> Result<(), ToolError>;

    /// Number of the next chunk of output, from 1.
    fn chunk(&self) -> u32;

    /// Number of the next patch of the attempt, from 1.
    fn patch_number(&self) -> u32;
}

/// How a command of a call is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What it reads.
    pub stdin: Stdin,
    /// When its whole tree is stopped.
    pub deadline: Duration,
    /// Session id under which it can be named.
    pub session: u32,
}

/// A command that was started.
#[derive(Debug)]
pub struct Started {
    /// The process tree.
    pub running: Running,
    /// Its log.
    pub log: PathBuf,
}

/// Something that carries out calls of one name.
pub trait ToolExecutor {
    /// Name that calls use.
    fn name(&self) -> &'static str;

    /// What the model is told.
    fn spec(&self) -> ToolSpec;

    /// How it is shown.
    fn exposure(&self) -> ToolExposure {
        ToolExposure::Direct
    }

    /// Whether several calls may run at the same time.
    fn supports_parallel(&self) -> bool {
        false
    }

    /// Carries out one call.
    fn handle<'a>(
        &'a self,
        call: &'a ToolCall,
        context: &'a StepContext,
        gate: &'a dyn Gate,
    ) -> LocalFuture<'a, Result<ToolResult, ToolError>>;
}

/// The tools of one step: what the model sees and what its calls reach, from one list.
#[derive(Clone)]
pub struct ToolRouter {
    tools: Vec<Rc<dyn ToolExecutor>>,
    specs: Vec<ToolSpec>,
}

impl ToolRouter {
    /// Builds the router of a step from the registered tools.
    pub fn build(tools: &[Rc<dyn ToolExecutor>]) -> Self {
        let shown = |tool: &&Rc<dyn ToolExecutor>| match tool.exposure() {
            ToolExposure::Direct | ToolExposure::DirectModelOnly => true,
            ToolExposure::Deferred | ToolExposure::Hidden => false,
        };
        Self {
            specs: tools.iter().filter(shown).map(|tool| tool.spec()).collect(),
            tools: tools.to_vec(),
        }
    }

    /// What the model sees, in order.
    pub fn specs(&self) -> &[ToolSpec] {
        &self.specs
    }

    /// The tool that `call` names, if it is registered.
    pub fn route(&self, call: &ToolCall) -> Option<&Rc<dyn ToolExecutor>> {
        if call.namespace.is_some() {
            return None;
        }
        self.tools.iter().find(|tool| tool.name() == call.name)
    }

    /// Words the answer to a call that names no tool.
    pub fn unknown(&self, call: &ToolCall) -> String {
        let names: Vec<&str> = self.specs.iter().map(ToolSpec::name).collect();
        let name = match &call.namespace {
            Some(namespace) => format!("{namespace}.{}", call.name),
            None => call.name.clone(),
        };
        format!(
            "unsupported call: `{}` is not a tool of this run; the tools are {}",
            crate::text::clip(&name, 200),
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        )
    }
}

/// Reads the arguments of a function call.
///
/// # Errors
///
/// A reply for broken JSON and missing or wrong arguments; a fault for a payload of the wrong kind.
fn arguments<T: DeserializeOwned>(tool: &'static str, call: &ToolCall) -> Result<T, ToolError> {
    match &call.payload {
        Payload::Function(text) => serde_json::from_str(text).map_err(|error| {
            ToolError::Reply(format!("failed to parse function arguments: {error}"))
        }),
        Payload::Freeform(_) => Err(ToolError::Fault {
            tool,
            message: "it takes function arguments, and the call carries free text".to_owned(),
        }),
    }
}

/// Resolves a path that the model wrote against the working folder, without touching the disk.
fn resolve(cwd: &Path, path: Option<&str>) -> PathBuf {
    match path {
        None | Some("") => cwd.to_path_buf(),
        Some(path) => cwd.join(path),
    }
}
