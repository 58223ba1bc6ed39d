//! The gate: the one way from a tool's action to its effect.
//!
//! In: an [`Action`]. Out: a started command, or a refusal; each stage is in the transcript before
//! the next one begins (P2, P4).

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::approval::{self, Cleared, Refusal};
use crate::model::LocalFuture;
use crate::policy::{Action, Policy, Requirement};
use crate::process::{Capture, Ended, Output, Stdin};
use crate::sandbox::{Confined, Observed, Running, Sandbox, SandboxError};
use crate::tool::{Gate, Launch, Live, Started, ToolError};
use crate::transcript::{Blob, Event, Scope};

use super::traffic::Traffic;
use crate::run::{Run, record};

/// Output window of the patch writer's answer, which holds the whole diff.
const PATCH_WINDOW: usize = 32 << 20;

/// What the gates of all calls of an attempt share.
pub(super) struct Ground {
    /// The run.
    pub(super) run: Rc<Run>,
    /// Loaded rules.
    pub(super) policy: Policy,
    /// The attempt's confinement.
    pub(super) sandbox: Sandbox,
    /// What commands ask of the network.
    pub(super) traffic: Rc<Traffic>,
    /// Folder of logs; outside every writable root.
    pub(super) logs: PathBuf,
    /// Chunks of output so far.
    pub(super) chunks: Cell<u32>,
    /// Patches so far.
    pub(super) patches: Cell<u32>,
    /// Logs so far.
    pub(super) started: Cell<u32>,
}

/// The gate of one call.
pub(super) struct CallGate<'a> {
    /// What all gates share.
    pub(super) ground: &'a Ground,
    /// Where the call's events belong.
    pub(super) scope: Scope,
}

fn next(counter: &Cell<u32>) -> u32 {
    counter.set(counter.get() + 1);
    counter.get()
}

impl CallGate<'_> {
    fn write(&self, event: Event) -> Result<(), ToolError> {
        self.ground.run.transcript.append(&self.scope, event).map_err(|error| fault(&error))
    }

    /// Judges and clears `action`, and writes both down.
    fn pass(&self, action: Action) -> Result<Cleared, ToolError> {
        let judged = self.ground.policy.judge(Arc::new(action));
        let evaluation = judged.evaluation();
        self.write(Event::CallJudged {
            decision: evaluation.decision.name().to_owned(),
            requirement: match evaluation.requirement {
                Requirement::Skip => "skip",
                Requirement::NeedsApproval { .. } => "needs-approval",
                Requirement::Forbidden { .. } => "forbidden",
            }
            .to_owned(),
            reason: evaluation.reason.clone(),
            rules: evaluation.evidence.clone(),
            commands: evaluation.commands.clone(),
            opaque: evaluation.opaque.clone(),
        })?;
        match approval::clear(judged) {
            Ok(cleared) => {
                self.write(Event::CallCleared { by: cleared.authority().to_string() })?;
                Ok(cleared)
            }
            Err(Refusal { by, reason }) => {
                self.write(Event::CallRefused { by: by.to_owned(), reason: reason.clone() })?;
                Err(ToolError::Refused(Refusal { by, reason }))
            }
        }
    }

    /// Confines what is cleared and writes down what is about to start.
    fn confine(&self, cleared: Cleared, session: Option<u32>) -> Result<Confined, ToolError> {
        let confined = self.ground.sandbox.confine(cleared)?;
        self.write(Event::CallConfined {
            tier: confined.tier().to_owned(),
            mode: self.ground.sandbox.enforcement().mode.clone(),
            network: confined.network().name().to_owned(),
        })?;
        self.write(record::process_started("call", &confined, session))?;
        Ok(confined)
    }
}

impl Gate for CallGate<'_> {
    fn start(&self, action: Action, launch: Launch) -> LocalFuture<'_, Result<Started, ToolError>> {
        Box::pin(async move {
            let Launch { stdin, deadline, session } = launch;
            let confined = self.confine(self.pass(action)?, Some(session))?;
            let log = self.ground.logs.join(format!("{:04}.log", next(&self.ground.started)));
            let capture = Capture { log: Some(log.clone()), ..Capture::default() };
            let running = confined.start(stdin, capture, Some(deadline)).await.map_err(worded)?;
            Ok(Started { running, log })
        })
    }

    fn finish(
        &self,
        action: Action,
        stdin: Stdin,
        deadline: Duration,
    ) -> LocalFuture<'_, Result<(Ended, Output), ToolError>> {
        Box::pin(async move {
            let confined = self.confine(self.pass(action)?, None)?;
            let capture = Capture { window: PATCH_WINDOW, ..Capture::default() };
            let (ended, output) = self
                .ground
                .run
                .stop
                .guard(confined.finish(stdin, capture, deadline))
                .await
                .map_err(|_| ToolError::Stopped)??;
            self.write(record::process_ended(&ended, None, None))?;
            Ok((ended, output))
        })
    }

    fn clear(&self, action: Action) -> Result<Cleared, ToolError> {
        self.pass(action)
    }

    fn wait<'a>(
        &'a self,
        running: &'a mut Running,
        at_most: Duration,
    ) -> LocalFuture<'a, Result<Observed, ToolError>> {
        Box::pin(async move {
            let observed = self.ground.run.stop.guard(running.wait(at_most)).await;
            Ok(observed.map_err(|_| ToolError::Stopped)??)
        })
    }

    fn record(&self, event: Event) -> Result<(), ToolError> {
        self.write(event)
    }

    fn blob(&self, bytes: &[u8]) -> Result<Blob, ToolError> {
        self.ground.run.transcript.blob(bytes).map_err(|error| fault(&error))
    }

    fn ended(&self, live: &Live) -> Result<(), ToolError> {
        let Some(ended) = live.running.ended() else { return Ok(()) };
        let log = self.ground.run.transcript.blob_file(&live.log).map_err(|error| fault(&error))?;
        self.write(record::process_ended(ended, Some(log), Some(live.session)))
    }

    fn chunk(&self) -> u32 {
        next(&self.ground.chunks)
    }

    fn patch_number(&self) -> u32 {
        next(&self.ground.patches)
    }
}

/// What is wrong with the command itself is an answer; a fault of the confinement never is.
fn worded(error: SandboxError) -> ToolError {
    if error.is_about_command() {
        ToolError::Reply(format!("not started: {}", record::chain(&error)))
    } else {
        ToolError::Sandbox(error)
    }
}

/// A record that can't be written ends the run.
fn fault(error: &dyn std::error::Error) -> ToolError {
    ToolError::Fault { tool: "transcript", message: record::chain(error) }
}
