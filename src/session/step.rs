//! A step: one sampling request, and the tool calls of its response.
//!
//! In: the history. Out: the same history, longer by the response and one output for each call, in
//! call order; or the reason why the conversation is over.

use std::rc::Rc;

use futures_util::stream::{self, StreamExt as _};

use crate::model::{
    FaultKind, Item, ItemKind, ModelError, Progress, Request, Response, ToolCall, ToolSpec,
};
use crate::tool::{StepContext, ToolRouter};
use crate::transcript::{Event, Scope, TranscriptError};

use super::call::{CallEnd, Done};
use crate::run::{Run, record};

use super::{Conversation, End};

/// What a step led to.
pub(super) enum Next {
    /// The model has been answered and goes on.
    Again,
    /// The conversation is over.
    Over(End),
}

/// Calls of one response that run at the same time; our choice. A response may hold thousands.
const AT_ONCE: usize = 8;
/// Items over this size lie beside the transcript.
const INLINE: usize = 64 << 10;

impl Conversation<'_> {
    /// Carries out one step.
    pub(super) async fn step(&mut self) -> Next {
        self.steps += 1;
        let scope = Scope { step: Some(self.steps), ..self.scope.clone() };
        let router = ToolRouter::build(&self.tools);
        let names = router.specs().iter().map(|spec| spec.name().to_owned()).collect();
        let started =
            Event::StepStarted { history_items: self.history.items().len() as u64, tools: names };
        if let Err(error) = self.run.transcript.append(&scope, started) {
            return Next::Over(End::fault(&error));
        }
        let response = match self.sample(&scope, router.specs()).await {
            Ok(response) => response,
            Err(end) => return Next::Over(end),
        };
        match self.receive(&scope, &response) {
            Ok(()) => {}
            Err(error) => return Next::Over(End::fault(&error)),
        }
        let calls: Vec<ToolCall> = response
            .items
            .iter()
            .filter_map(|item| match &item.kind {
                ItemKind::Call(call) => Some(call.clone()),
                ItemKind::Message { .. }
                | ItemKind::Reasoning { .. }
                | ItemKind::Output { .. }
                | ItemKind::Other { .. } => None,
            })
            .collect();
        let next = if response.incomplete.is_some() || calls.is_empty() {
            // Calls of a response that was cut short are not carried out; each has its output all
            // the same, or the history could not be sent again.
            for call in &calls {
                self.history.push(Item::output(call, "not run: the response was cut short"));
            }
            Next::Over(final_message(&response))
        } else {
            let context = self.context();
            self.carry_out(&scope, &router, &context, &calls).await
        };
        let completed = Event::StepCompleted { calls: u32::try_from(calls.len()).unwrap_or(0) };
        match self.run.transcript.append(&scope, completed) {
            Ok(()) => next,
            Err(error) => Next::Over(End::fault(&error)),
        }
    }

    /// Asks the model, within the wall budget and until the run is stopped.
    async fn sample(&mut self, scope: &Scope, tools: &[ToolSpec]) -> Result<Response, End> {
        let plan = &self.instance.model;
        let mut most_output = plan.max_output_tokens;
        if let Some(prices) = plan.prices
            && let Some(afford) = self.affordable_output(prices)
        {
            if afford < LEAST_OUTPUT {
                return Err(End::Budget(self.usd_spent()));
            }
            most_output = Some(most_output.unwrap_or(u64::MAX).min(afford));
        }
        let request = Request {
            model: &plan.name,
            effort: plan.effort.as_deref(),
            max_output_tokens: most_output.filter(|&most| most < u64::from(u32::MAX)),
            temperature: plan.temperature,
            items: self.history.items(),
            encoded: self.history.encoded(),
            tools,
            schema: self.instance.output.schema.as_ref(),
            cache_key: &self.cache_key,
            remaining: self.remaining(),
            idle: self.instance.budget.idle,
        };
        let run = Rc::clone(&self.run);
        let mut failed: Option<TranscriptError> = None;
        let mut write = |progress: Progress<'_>| {
            if failed.is_none() {
                failed = tell(&run, scope, &progress).err();
            }
        };
        self.ledgers.turn();
        let sampled = run.stop.guard(self.model.sample(request, &mut write)).await;
        let response = match sampled {
            Err(stopped) => return Err(End::Stopped(stopped.0)),
            Ok(Err(error)) => return Err(End::from_model(error)),
            Ok(Ok(response)) => response,
        };
        if let Some(error) = failed {
            return Err(End::fault(&error));
        }
        self.ledgers.respond(response.usage, plan.prices);
        Ok(response)
    }

    /// Writes a response down and takes it into the history.
    fn receive(&mut self, scope: &Scope, response: &Response) -> Result<(), TranscriptError> {
        let responded = Event::ModelResponded {
            response: response.id.clone(),
            usage: response.usage,
            usage_extra: response.usage_extra.clone(),
            status: response
                .incomplete
                .as_ref()
                .map_or_else(|| "completed".to_owned(), |reason| format!("incomplete: {reason}")),
            ignored: response.ignored.clone(),
        };
        self.run.transcript.append(scope, responded)?;
        for item in &response.items {
            self.run.transcript.append(scope, self.received(item)?)?;
            self.history.push(item.clone());
        }
        for spent in self.ledgers.warnings() {
            let (limit, used, of) = (spent.limit.to_owned(), spent.used, spent.of);
            self.run.transcript.append(scope, Event::BudgetWarned { limit, used, of })?;
        }
        Ok(())
    }

    fn received(&self, item: &Item) -> Result<Event, TranscriptError> {
        let text = item.raw.get();
        if text.len() > INLINE {
            let blob = self.run.transcript.blob(text.as_bytes())?;
            return Ok(Event::ItemReceived { item: None, blob: Some(blob) });
        }
        Ok(Event::ItemReceived { item: serde_json::from_str(text).ok(), blob: None })
    }

    /// Carries out the calls of a response: neighbours that may overlap do, all others one by one.
    /// Every call gets exactly one output, in call order.
    async fn carry_out(
        &mut self,
        scope: &Scope,
        router: &ToolRouter,
        context: &StepContext,
        calls: &[ToolCall],
    ) -> Next {
        let mut over: Option<End> = None;
        let mut rest = calls;
        while !rest.is_empty() {
            let is_parallel =
                |call: &ToolCall| router.route(call).is_some_and(|tool| tool.supports_parallel());
            let alike = rest.iter().take_while(|call| is_parallel(call)).count().max(1);
            let (batch, later) = rest.split_at(alike);
            rest = later;
            let mut running = Vec::new();
            for call in batch {
                self.calls += 1;
                let id = format!("call-{:03}", self.calls);
                let scope = Scope { call: Some(id), ..scope.clone() };
                let spent = if over.is_some() { None } else { self.ledgers.call() };
                let skip = match (&over, &spent) {
                    (None, None) => None,
                    (Some(end), _) => Some(end.as_skip()),
                    (None, Some(spent)) => Some(format!("the budget of {} is spent", spent.limit)),
                };
                if let (None, Some(spent)) = (&over, spent) {
                    over = Some(End::Budget(spent));
                }
                running.push((scope, call, skip));
            }
            let ground = &self.ground;
            let calls = running.into_iter().map(|(scope, call, skip)| {
                super::call::run(ground, router, context, (scope, call, skip))
            });
            let mut done: Vec<Done> = stream::iter(calls).buffered(AT_ONCE).collect().await;
            match self.put_back(scope).await {
                Ok(None) => {}
                Ok(Some(said)) => {
                    if let Some(last) = done.last_mut() {
                        last.output = format!("{}\n[{said}]", last.output);
                    }
                }
                Err(end) => over = over.or(Some(end)),
            }
            for (call, done) in batch.iter().zip(done) {
                self.history.push(Item::output(call, &done.output));
                over = over.or(self.settle(call, done));
            }
        }
        over.map_or(Next::Again, Next::Over)
    }

    /// Puts protected paths back that the calls changed; what the model is told about it. Whoever
    /// changed them may still be running, so every process of the attempt is ended first.
    async fn put_back(&mut self, scope: &Scope) -> Result<Option<String>, End> {
        let is_touched = self.watch.is_touched().map_err(|early| End::Setup(early.reason))?;
        if !is_touched {
            return Ok(None);
        }
        let count = self.end_processes().await?;
        let said = self.watch.put_back(scope).map_err(|early| End::Setup(early.reason))?;
        let ended = if count > 0 { "; running commands were ended" } else { "" };
        Ok(said.map(|said| format!("{said}{ended}")))
    }

    /// Counts what a finished call means for the conversation.
    fn settle(&mut self, call: &ToolCall, done: Done) -> Option<End> {
        match done.end {
            CallEnd::Fault(message) => return Some(End::Internal(message)),
            CallEnd::Sandbox(message) => return Some(End::Sandbox(message)),
            CallEnd::Stopped => {
                return Some(self.run.stop.signal().map_or_else(
                    || End::Internal("a call was interrupted without a signal".to_owned()),
                    End::Stopped,
                ));
            }
            CallEnd::Skipped => return None,
            CallEnd::Refused(reason) => {
                self.denials += 1;
                self.denials_in_a_row += 1;
                if let Some(end) = self.denied(&reason) {
                    return Some(end);
                }
            }
            CallEnd::Answered => self.denials_in_a_row = 0,
        }
        let payload = call.payload.text();
        let fingerprint = crate::text::sha256(
            format!("{}\0{payload}\0{}", call.name, done.fingerprint).as_bytes(),
        );
        self.ledgers.repeat(fingerprint).map(End::Budget)
    }

    /// Whether another denial ends the conversation.
    fn denied(&self, reason: &str) -> Option<End> {
        if self.instance.on_denied_fail {
            return Some(End::Denied(format!("a denial is fatal for this task: {reason}")));
        }
        if let Some(most) = self.instance.max_denials
            && self.denials > most
        {
            return Some(End::Denied(format!(
                "{} denials, `permissions.max_denials` is {most}; the last one: {reason}",
                self.denials
            )));
        }
        (self.denials_in_a_row >= DENIALS_IN_A_ROW).then(|| {
            End::Denied(format!("{DENIALS_IN_A_ROW} denials in a row; the last one: {reason}"))
        })
    }
}

/// Denied calls in a row after which the conversation ends; our choice: a model that still tries
/// after ten answers doesn't listen.
const DENIALS_IN_A_ROW: u32 = 10;

/// Fewest output tokens that make a request worth its cost; our choice.
const LEAST_OUTPUT: u64 = 16;

/// Writes down what happens to a request.
fn tell(run: &Run, scope: &Scope, progress: &Progress<'_>) -> Result<(), TranscriptError> {
    let event = match *progress {
        Progress::Item(_) => return Ok(()),
        Progress::Requested { r#try, body } => {
            Event::ModelRequested { r#try, body: run.transcript.blob(body)? }
        }
        Progress::Failed { r#try, error, retried } => Event::ModelFailed {
            r#try,
            kind: error.kind.name().to_owned(),
            status: error.status,
            message: error.message.clone(),
            retried,
        },
        Progress::Waiting { r#try, wait, cause } => Event::ModelWaited {
            r#try,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            cause: cause.to_owned(),
        },
    };
    run.transcript.append(scope, event)
}

/// Reads the end of the conversation from a response without calls.
fn final_message(response: &Response) -> End {
    if let Some(reason) = &response.incomplete {
        return End::GaveUp(format!("the response is incomplete: {reason}"));
    }
    let mut message = None;
    for item in &response.items {
        if let ItemKind::Message { role, text, refusal } = &item.kind
            && role == "assistant"
        {
            if let Some(refusal) = refusal {
                let refusal = crate::text::clip(refusal, 500);
                return End::GaveUp(format!("the model refused: {refusal}"));
            }
            message = Some(text.clone());
        }
    }
    match message {
        Some(text) if !text.trim().is_empty() => End::Message(text),
        Some(_) | None => End::GaveUp("the final message is empty".to_owned()),
    }
}

impl End {
    /// The end that a failed request means.
    pub(super) fn from_model(error: ModelError) -> Self {
        match error.kind {
            FaultKind::Idle => Self::Idle(error.message),
            FaultKind::Wall => Self::Wall,
            FaultKind::Auth
            | FaultKind::Quota
            | FaultKind::RateLimit
            | FaultKind::Overloaded
            | FaultKind::BadRequest
            | FaultKind::ContextWindow
            | FaultKind::CutStream
            | FaultKind::Refused
            | FaultKind::Protocol
            | FaultKind::Script => Self::Provider { kind: error.kind, message: error.message },
        }
    }

    /// A record that can't be written.
    pub(super) fn fault(error: &TranscriptError) -> Self {
        Self::Internal(record::chain(error))
    }
}
