//! `write_stdin`: feeds or polls a command that outlived its call.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::clock::Clock;
use crate::model::{FunctionSpec, LocalFuture, ToolCall, ToolSpec};
use crate::policy::{Action, InputAction};

use super::exec_command::{Look, yield_time};
use super::{
    DEFAULT_OUTPUT_TOKENS, Gate, Live, StepContext, Store, ToolError, ToolExecutor, ToolResult,
    arguments,
};

/// Yield time after input: an interactive program answers at once.
const AFTER_INPUT: Duration = Duration::from_millis(250);
/// Yield time of a poll.
const POLL: Duration = Duration::from_secs(5);
/// Longest line that is kept to be judged together with what follows it, in bytes.
const PENDING: usize = 64 << 10;
/// Ctrl-C.
const INTERRUPT: char = '\u{3}';
/// Ctrl-D.
const END: char = '\u{4}';

/// The tool.
#[derive(Debug)]
pub struct WriteStdin {
    /// Live commands of the attempt, shared with `exec_command`.
    pub store: Rc<RefCell<Store>>,
    /// For wall times.
    pub clock: Clock,
}

#[derive(Debug, Deserialize)]
struct Arguments {
    session_id: u32,
    #[serde(default)]
    chars: String,
    yield_time_ms: Option<i64>,
    max_output_tokens: Option<usize>,
}

impl ToolExecutor for WriteStdin {
    fn name(&self) -> &'static str {
        "write_stdin"
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec::Function(FunctionSpec {
            name: self.name().to_owned(),
            description: "Writes to a running exec_command session and returns its new output. \
                          Empty chars poll. \\u0003 interrupts it; \\u0004 at the end closes its \
                          stdin."
                .to_owned(),
            strict: false,
            parameters: json!({
                "type": "object",
                "properties": {
                    "session_id": { "type": "number", "description": "Id of the running session." },
                    "chars": { "type": "string", "description": "Text to write; may be empty." },
                    "yield_time_ms": {
                        "type": "number",
                        "description": "How long to wait for output: 250 to 300000, default 250 \
                                        after input and 5000 for a poll.",
                    },
                    "max_output_tokens": {
                        "type": "number",
                        "description": "Most tokens of output to return; default and maximum 10000.",
                    },
                },
                "required": ["session_id"],
            }),
        })
    }

    fn handle<'a>(
        &'a self,
        call: &'a ToolCall,
        _context: &'a StepContext,
        gate: &'a dyn Gate,
    ) -> LocalFuture<'a, Result<ToolResult, ToolError>> {
        Box::pin(async move {
            let arguments: Arguments = arguments(self.name(), call)?;
            let session = arguments.session_id;
            let Some(mut live) = self.store.borrow_mut().take(session) else {
                let ids = self.store.borrow().ids();
                return Err(ToolError::Reply(format!(
                    "write_stdin failed: Unknown process id {session}; known ids: {ids:?}"
                )));
            };
            let chunk = gate.chunk();
            let start = self.clock.elapsed();
            if live.running.ended().is_none()
                && let Err(error) = feed(&mut live, &arguments.chars, gate).await
            {
                self.store.borrow_mut().insert(live);
                return Err(error);
            }
            let default = if arguments.chars.is_empty() { POLL } else { AFTER_INPUT };
            let wait = yield_time(arguments.yield_time_ms, default);
            let observed = gate.wait(&mut live.running, wait).await;
            let max_tokens = arguments.max_output_tokens.unwrap_or(DEFAULT_OUTPUT_TOKENS);
            let look = Look { chunk, start, max_tokens };
            self.store.borrow_mut().look(live, observed, look, (&self.clock, gate))
        })
    }
}

/// Carries out what `chars` say: an interrupt, text, an end of file.
async fn feed(live: &mut Live, chars: &str, gate: &dyn Gate) -> Result<(), ToolError> {
    let text: String = chars.chars().filter(|&c| c != INTERRUPT && c != END).collect();
    if !text.is_empty() {
        if !live.has_stdin {
            return Err(ToolError::Reply(
                "write_stdin failed: stdin is closed for this session; rerun exec_command with \
                 tty=true to keep stdin open"
                    .to_owned(),
            ));
        }
        // A line may come in pieces; it is judged as what the reader will have read.
        let judged = format!("{}{text}", live.pending);
        if judged.len() > PENDING {
            return Err(ToolError::Reply(format!(
                "write_stdin failed: a line of over {PENDING} bytes can't be judged; write it in \
                 shorter lines"
            )));
        }
        let action = Action::Input(InputAction {
            session: live.session,
            pending: live.pending.clone(),
            text,
            reader: live.reader,
            exec: live.exec.clone(),
        });
        let cleared = gate.clear(action)?;
        live.running.write(cleared).await?;
        judged.rsplit('\n').next().unwrap_or_default().clone_into(&mut live.pending);
    }
    if chars.contains(INTERRUPT) {
        live.running.interrupt();
    }
    if chars.ends_with(END) {
        live.running.close_stdin();
        live.has_stdin = false;
    }
    Ok(())
}
