//! The scripted model: says what a file says, and checks what it is told before it answers.
//!
//! In: the YAML text of a script. Out: the items of its steps, in order; a fault when what the
//! model was told is not what the script expects. Knows nothing of HTTP.
//!
//! # Format
//!
//! A script is a list of steps; each request takes the next one. All keys are optional.
//!
//! ```yaml
//! - reasoning: look around first          # a reasoning item with this summary
//!   say: I'll list the files.             # an assistant message
//!   calls:                                # tool calls; ids count `call_1`, `call_2`, … over the file
//!     - { tool: exec_command, arguments: { cmd: ls } }
//!     - { tool: exec_command, raw: '{"cmd": ' }        # arguments as text, perhaps broken
//!     - { tool: my_grammar, input: free text, id: c9 } # a freeform call
//!   usage: { input_tokens: 10, cached_input_tokens: 0, output_tokens: 5, reasoning_output_tokens: 0 }
//! - expect:                               # what the model must have been told
//!     contains: [the prompt]              # in a message to the model or an output of a call
//!     lacks: [the key]
//!     output: [{ call: call_1, contains: [README.md], lacks: [secret] }, { call: c9, equals: done }]
//!     tools: [exec_command, write_stdin]  # exactly these, in this order
//!     tools_lack: [web_search]
//!     items: 7                            # length of the history
//!     model: some-model
//!     schema: false                       # whether a schema for the final message was sent
//!   patch: |                              # a freeform call of `apply_patch`
//!     *** Begin Patch
//!     …
//! - fault: { kind: overloaded, message: too busy, status: 503, retry_after: 10ms }
//! - delay: 50ms                           # silence before the answer
//!   items: [{ type: some_item, field: 1 }]             # output items as they come
//!   refusal: I can't do that.             # a message that refuses
//!   incomplete: max_output_tokens         # the response is cut short for this reason
//! ```
//!
//! The items of a step come in the order reasoning, say, refusal, calls, patch, items. `usage`
//! defaults to zeros. A `fault` has one of the kinds of [`FaultKind`] and excludes everything but
//! `expect` and `delay`; when its kind can be retried and a step is left, that step answers the next
//! try. `retry_after` is really waited for; without it the next try follows at once. A `delay`
//! beyond the request's `idle` is an `idle` fault, one beyond the wall budget a `wall` fault.

mod expect;
mod read;

use std::cell::Cell;
use std::time::Duration;

use thiserror::Error;

use self::expect::Told;
use self::read::Step;
use super::fault::error;
use super::request::recorded_body;
use super::{FaultKind, LocalFuture, Model, ModelError, Progress, Request, Response};
use crate::clock::Clock;

/// A model that says what a file says. It keeps its place over all attempts of an instance.
#[derive(Debug)]
pub struct Script {
    name: String,
    steps: Vec<Step>,
    next: Cell<usize>,
}

/// Why a script can't be used.
#[derive(Debug, Error)]
pub enum ScriptError {
    /// No YAML, or keys and values that a script doesn't have.
    #[error("`{name}:{line}:{column}`: {problem}")]
    Shape {
        /// Script as the user named it.
        name: String,
        /// Line, 1-based.
        line: u32,
        /// Column, 1-based.
        column: u32,
        /// What is wrong.
        problem: String,
    },
    /// A step that contradicts itself.
    #[error("`{name}:{line}`: step {step}: {problem}")]
    Step {
        /// Script as the user named it.
        name: String,
        /// Line of the step, 1-based.
        line: u32,
        /// Number of the step, 1-based.
        step: usize,
        /// What is wrong.
        problem: String,
    },
    /// A script that says nothing.
    #[error("`{name}`: expected a list of steps, found none")]
    Empty {
        /// Script as the user named it.
        name: String,
    },
}

impl Script {
    /// Reads a script; `name` is how errors call it.
    ///
    /// # Errors
    ///
    /// A [`ScriptError`] for anything that the format doesn't have, with the line.
    pub fn read(name: &str, text: &str) -> Result<Self, ScriptError> {
        let steps = read::steps(name, text)?;
        Ok(Self { name: name.to_owned(), steps, next: Cell::new(0) })
    }

    /// Steps that were not asked for yet.
    pub fn steps_left(&self) -> usize {
        self.steps.len() - self.next.get()
    }

    async fn answer(
        &self,
        request: Request<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Response, ModelError> {
        let clock = Clock::start();
        let body = recorded_body(&request);
        let mut r#try = 1;
        loop {
            progress(Progress::Requested { r#try, body: &body });
            let remaining = request.remaining.saturating_sub(clock.elapsed());
            let error = match self.step(&request, remaining).await {
                Ok(response) => {
                    response.items.iter().for_each(|item| progress(Progress::Item(item)));
                    return Ok(response);
                }
                Err(error) => error,
            };
            let remaining = request.remaining.saturating_sub(clock.elapsed());
            let wait = error.retry_after.unwrap_or_default();
            let retried = error.kind.is_retryable() && self.steps_left() > 0 && wait < remaining;
            progress(Progress::Failed { r#try, error: &error, retried });
            if !retried {
                return Err(error);
            }
            if !wait.is_zero() {
                progress(Progress::Waiting { r#try, wait, cause: "retry-after" });
                tokio::time::sleep(wait).await;
            }
            r#try += 1;
        }
    }

    /// Takes the next step: checks what was told, waits, then answers or fails.
    async fn step(
        &self,
        request: &Request<'_>,
        remaining: Duration,
    ) -> Result<Response, ModelError> {
        let place = self.next.get();
        let Some(step) = self.steps.get(place) else {
            let problem = format!("asked for step {} of {}", place + 1, self.steps.len());
            return Err(error(FaultKind::Script, format!("script `{}`: {problem}", self.name)));
        };
        self.next.set(place + 1);
        if let Some(expect) = &step.expect {
            let told = Told::read(request).map_err(|problem| error(FaultKind::Script, problem))?;
            expect.check(&told).map_err(|unmet| {
                let at = format!("script `{}:{}`: step {}", self.name, expect.line, place + 1);
                error(FaultKind::Script, format!("{at}: {unmet}"))
            })?;
        }
        let limit = request.idle.min(remaining);
        tokio::time::sleep(step.delay.min(limit)).await;
        if step.delay > limit {
            return Err(if request.idle <= remaining {
                error(FaultKind::Idle, format!("the model was silent for {:?}", request.idle))
            } else {
                error(FaultKind::Wall, "the wall budget ran out while the model was silent")
            });
        }
        match &step.fault {
            Some(error) => Err(ModelError {
                kind: error.kind,
                message: error.message.clone(),
                status: error.status,
                retry_after: error.retry_after,
            }),
            None => Ok(Response {
                id: format!("resp_{}", place + 1),
                items: step.items.clone(),
                usage: step.usage,
                incomplete: step.incomplete.clone(),
                ..Response::default()
            }),
        }
    }
}

impl Model for Script {
    fn sample<'a>(
        &'a self,
        request: Request<'a>,
        progress: &'a mut dyn FnMut(Progress<'_>),
    ) -> LocalFuture<'a, Result<Response, ModelError>> {
        Box::pin(self.answer(request, progress))
    }
}

#[cfg(test)]
mod tests;
