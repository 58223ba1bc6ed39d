//! A call: from what the model wrote to the one output it reads.

use crate::model::{Payload, ToolCall};
use crate::tool::{StepContext, ToolError, ToolResult, ToolRouter};
use crate::transcript::{Event, Scope, TranscriptError};

use super::gate::{CallGate, Ground};
use super::traffic;
use crate::run::record;

/// A finished call.
pub(super) struct Done {
    /// What the model reads.
    pub(super) output: String,
    /// What stays the same when the same call has the same result.
    pub(super) fingerprint: String,
    /// What it means for the conversation.
    pub(super) end: CallEnd,
}

/// What a finished call means for the conversation.
pub(super) enum CallEnd {
    /// The model was answered.
    Answered,
    /// Policy or approval said no.
    Refused(String),
    /// It was not begun: the conversation is over.
    Skipped,
    /// Nobody in the run can repair it.
    Fault(String),
    /// The confinement failed.
    Sandbox(String),
    /// The run is being stopped.
    Stopped,
}

/// Inputs over this size lie beside the transcript.
const INLINE: usize = 16 << 10;

/// Carries out one call, or skips it for the given reason.
pub(super) async fn run(
    ground: &Ground,
    router: &ToolRouter,
    context: &StepContext,
    (scope, call, skip): (Scope, &ToolCall, Option<String>),
) -> Done {
    let clock = crate::clock::Clock::start();
    let gate = CallGate { ground, scope };
    if let Err(error) = propose(&gate, router, call) {
        return failed(&record::chain(&error));
    }
    ground.traffic.begin_call(&gate.scope);
    let result = match (skip, router.route(call)) {
        (Some(reason), _) => Err(Skip(reason)),
        (None, None) => Ok(Err(ToolError::Reply(router.unknown(call)))),
        (None, Some(tool)) => Ok(tool.handle(call, context, &gate).await),
    };
    let denials = ground.traffic.end_call(&gate.scope);
    let (mut result, end) = match result {
        Err(Skip(reason)) => {
            (ToolResult::text("skipped", format!("not run: {reason}")), CallEnd::Skipped)
        }
        Ok(Ok(result)) => (result, CallEnd::Answered),
        Ok(Err(error)) => word(error),
    };
    let hint = traffic::hint(ground.sandbox.network(), &result.output);
    let hint = hint.filter(|_| result.exit_code.is_some_and(|code| code != 0));
    for line in denials.iter().map(String::as_str).chain(hint) {
        if !result.output.ends_with('\n') {
            result.output.push('\n');
        }
        result.output.push_str(line);
    }
    let completed = gate.ground.run.transcript.blob(result.output.as_bytes()).and_then(|output| {
        let event = Event::CallCompleted {
            status: result.status.to_owned(),
            exit_code: result.exit_code,
            signal: result.signal,
            wall_ms: clock.at_ms(),
            output,
        };
        gate.ground.run.transcript.append(&gate.scope, event)
    });
    match completed {
        Ok(()) => Done { output: result.output, fingerprint: result.fingerprint, end },
        Err(error) => failed(&record::chain(&error)),
    }
}

/// Why a call is not begun.
struct Skip(String);

/// Words an error for the model and says what it means.
fn word(error: ToolError) -> (ToolResult, CallEnd) {
    match error {
        ToolError::Reply(text) => (ToolResult::text("reply", text), CallEnd::Answered),
        ToolError::Refused(refusal) => {
            (ToolResult::text("refused", refusal.reason.clone()), CallEnd::Refused(refusal.reason))
        }
        ToolError::Stopped => (
            ToolResult::text("interrupted", "interrupted: the run is being stopped".to_owned()),
            CallEnd::Stopped,
        ),
        ToolError::Sandbox(error) => {
            let message = record::chain(&error);
            (fault_text(), CallEnd::Sandbox(message))
        }
        ToolError::Fault { .. } => {
            let message = record::chain(&error);
            (fault_text(), CallEnd::Fault(message))
        }
    }
}

/// What stands as the output of a call that failed for a reason which is not the model's.
fn fault_text() -> ToolResult {
    ToolResult::text("fault", "the call could not be carried out; the run ends".to_owned())
}

fn failed(message: &str) -> Done {
    Done {
        output: fault_text().output,
        fingerprint: String::new(),
        end: CallEnd::Fault(message.to_owned()),
    }
}

/// Writes down what the model asks for.
fn propose(
    gate: &CallGate<'_>,
    router: &ToolRouter,
    call: &ToolCall,
) -> Result<(), TranscriptError> {
    let transcript = &gate.ground.run.transcript;
    let text = call.payload.text();
    let is_small = text.len() <= INLINE;
    let event = Event::CallProposed {
        tool: router.route(call).map_or("unknown", |tool| tool.name()).to_owned(),
        name: crate::text::clip(&call.name, 200),
        call_id: call.call_id.clone(),
        form: match call.payload {
            Payload::Function(_) => "function",
            Payload::Freeform(_) => "freeform",
        }
        .to_owned(),
        input: is_small.then(|| text.to_owned()),
        blob: if is_small { None } else { Some(transcript.blob(text.as_bytes())?) },
    };
    transcript.append(&gate.scope, event)
}
