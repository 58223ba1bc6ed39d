//! `apply_patch`: edits files by a patch, written by our own binary as a confined command.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::model::{LocalFuture, Payload, ToolCall, ToolSpec};
use crate::policy::{Action, Exec, PatchAction};
use crate::process::Stdin;
use crate::transcript::Event;
use crate::transcript::event::FileChange;

use super::{Gate, StepContext, ToolError, ToolExecutor, ToolResult, arguments};

/// Deadline of writing one patch; our choice.
const DEADLINE: Duration = Duration::from_mins(2);

/// The tool.
#[derive(Debug)]
pub struct ApplyPatch;

#[derive(Debug, Deserialize)]
struct Arguments {
    #[serde(alias = "patch")]
    input: String,
}

/// What came of a patch.
#[derive(Debug)]
pub struct PatchReply {
    is_applied: bool,
    message: String,
}

/// What our binary prints.
#[derive(Debug, Deserialize)]
struct Written {
    status: String,
    message: String,
    #[serde(default)]
    files: Vec<FileChange>,
    #[serde(default)]
    diff: String,
}

impl PatchReply {
    /// Words the reply of the tool itself.
    pub fn word(&self, wall: Duration) -> ToolResult {
        if !self.is_applied {
            return ToolResult {
                output: format!("apply_patch verification failed: {}", self.message),
                status: "failed",
                exit_code: None,
                signal: None,
                fingerprint: self.message.clone(),
            };
        }
        ToolResult {
            output: format!(
                "Exit code: 0\nWall time: {:.4} seconds\nOutput:\n{}",
                wall.as_secs_f64(),
                self.message
            ),
            status: "ok",
            exit_code: Some(0),
            signal: None,
            fingerprint: self.message.clone(),
        }
    }

    /// Words the reply for a patch that came as shell text.
    pub fn word_in_shell(&self, wall: Duration) -> ToolResult {
        let inner = self.word(wall);
        ToolResult {
            output: format!(
                "Wall time: {:.4} seconds\nOutput:\n{}",
                wall.as_secs_f64(),
                inner.output
            ),
            ..inner
        }
    }
}

impl ToolExecutor for ApplyPatch {
    fn name(&self) -> &'static str {
        "apply_patch"
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec::Freeform {
            name: self.name().to_owned(),
            description: "Edits files. The text is a patch: `*** Begin Patch`, file edits, \
                          `*** End Patch`. A file edit is `*** Add File: NAME` with `+` lines, \
                          `*** Delete File: NAME`, or `*** Update File: NAME` (optionally \
                          `*** Move to: NAME`) with hunks: `@@` or `@@ CONTEXT LINE`, then lines \
                          that start with a space, `-` or `+`. It is applied whole or not at all."
                .to_owned(),
            syntax: "lark".to_owned(),
            definition: crate::patch::GRAMMAR.to_owned(),
        }
    }

    fn handle<'a>(
        &'a self,
        call: &'a ToolCall,
        context: &'a StepContext,
        gate: &'a dyn Gate,
    ) -> LocalFuture<'a, Result<ToolResult, ToolError>> {
        Box::pin(async move {
            let clock = crate::clock::Clock::start();
            let text = match &call.payload {
                Payload::Freeform(text) => text.clone(),
                Payload::Function(_) => arguments::<Arguments>(self.name(), call)?.input,
            };
            let reply = self.apply(&text, &context.cwd, context, gate).await?;
            Ok(reply.word(clock.elapsed()))
        })
    }
}

impl ApplyPatch {
    /// Judges, confines and writes one patch whose relative paths resolve against `base`.
    ///
    /// # Errors
    ///
    /// A refusal by policy, a fault of the writer.
    pub async fn apply(
        &self,
        text: &str,
        base: &Path,
        context: &StepContext,
        gate: &dyn Gate,
    ) -> Result<PatchReply, ToolError> {
        let number = gate.patch_number();
        let blob = gate.blob(text.as_bytes())?;
        let refused = |reason: &str| {
            gate.record(Event::PatchRefused {
                number,
                reason: reason.to_owned(),
                text: blob.clone(),
            })
        };
        let patch = match crate::patch::parse(text) {
            Ok(patch) => patch,
            Err(error) => {
                let message = format!("invalid patch: {error}");
                refused(&message)?;
                return Ok(PatchReply { is_applied: false, message });
            }
        };
        let action = Action::Patch(PatchAction {
            exec: writer(base, context),
            text: text.to_owned(),
            base: base.to_path_buf(),
            paths: patch.paths().into_iter().map(str::to_owned).collect(),
        });
        let (ended, output) =
            match gate.finish(action, Stdin::Bytes(text.as_bytes().to_vec()), DEADLINE).await {
                Ok(done) => done,
                Err(error) => {
                    refused(&error.to_string())?;
                    return Err(error);
                }
            };
        let fault = |message: String| ToolError::Fault { tool: "apply_patch", message };
        let written: Written = serde_json::from_slice(&output.head).map_err(|error| {
            let text = String::from_utf8_lossy(&output.head);
            fault(format!(
                "its writer ended with {:?} and said `{}` ({error})",
                ended.exit_code,
                crate::text::clip(&text, 1_000)
            ))
        })?;
        match written.status.as_str() {
            "applied" => {
                let diff = gate.blob(written.diff.as_bytes())?;
                let event = Event::PatchApplied { number, files: written.files, text: blob, diff };
                gate.record(event)?;
                Ok(PatchReply { is_applied: true, message: written.message })
            }
            "refused" | "invalid" => {
                refused(&written.message)?;
                Ok(PatchReply { is_applied: false, message: written.message })
            }
            _ => {
                refused(&written.message)?;
                Err(fault(written.message))
            }
        }
    }
}

/// Our own binary as the command that writes the patch.
fn writer(base: &Path, context: &StepContext) -> Exec {
    let mut argv: Vec<String> =
        ["horseman", "patch", "--json", "--root"].map(str::to_owned).to_vec();
    argv.push(context.workspace.to_string_lossy().into_owned());
    argv.push("--cwd".to_owned());
    argv.push(base.to_string_lossy().into_owned());
    for glob in &context.protected {
        argv.extend(["--protected".to_owned(), glob.clone()]);
    }
    for root in &context.write_roots {
        argv.extend(["--write-root".to_owned(), root.to_string_lossy().into_owned()]);
    }
    if context.patch_overwrite {
        argv.push("--overwrite".to_owned());
    }
    Exec {
        program: context.binary.clone(),
        argv,
        cwd: context.workspace.clone(),
        env: context.env.as_ref().clone(),
        shell_text: None,
    }
}
