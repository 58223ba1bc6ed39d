//! An instance: prepared, attempted, accepted or not.
//!
//! In: an instance of the plan. Out: an [`Outcome`], after `task.completed` is in the transcript.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;

use crate::check::{self, Phase, Stand, Verdict};
use crate::exit::Exit;
use crate::model::{Item, Model};
use crate::plan::{Before, FailureAction, Instance, Wire};
use crate::policy::{Grounds, Policy};
use crate::profile::SandboxMode;
use crate::run::{Run, Secret, record};
use crate::transcript::{Event, Scope};
use crate::workspace::{Git, Source};

use super::acceptance;
use super::attempt::{Attempt, Failure};
use super::budget::Ledger;
use super::stage::{Early, Stage};
use super::{Conversation, End, Footing, Ledgers, prompt};

/// The budget of the whole run, shared by its instances.
#[derive(Clone, Debug)]
pub struct Batch(Rc<RefCell<Ledger>>);

impl Batch {
    /// An untouched budget.
    pub fn new(budget: crate::plan::Budget) -> Self {
        Self(Rc::new(RefCell::new(Ledger::new(budget))))
    }
}

/// What an instance is carried out with.
pub struct Equipment<'a> {
    /// Who answers.
    pub model: &'a dyn Model,
    /// Our git.
    pub git: &'a Rc<Git>,
    /// The checkout, if it is one.
    pub source: Option<&'a Rc<Source>>,
    /// Private folder of the instance; absolute.
    pub folder: PathBuf,
    /// Secrets of each setup step, in order.
    pub secrets: Vec<Vec<Secret>>,
}

/// What came of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Exit status of this instance alone.
    pub exit: Exit,
    /// Finer kind, as reports show it.
    pub kind: String,
    /// One line.
    pub reason: String,
    /// Whether it counts towards the exit status of the run.
    pub counts: bool,
    /// Tokens used.
    pub usage: crate::transcript::event::Usage,
}

/// Carries `instance` out and writes down how it ended.
pub async fn carry_out(
    run: &Rc<Run>,
    instance: &Instance,
    mut place: Equipment<'_>,
    batch: &Batch,
) -> Outcome {
    let scope = Scope { task: Some(instance.id.clone()), ..Scope::default() };
    let own = Rc::new(RefCell::new(Ledger::new(instance.budget.clone())));
    let ledgers = Ledgers { own: Rc::clone(&own), batch: Rc::clone(&batch.0) };
    let secrets = std::mem::take(&mut place.secrets);
    let mut work = Work { run, instance, place: &place, scope, ledgers, attempts: 0, last: None };
    let early = work.carry_out(secrets).await.err();
    let mut outcome = work.outcome(early);
    outcome.usage = own.borrow().usage();
    let usd = instance.model.prices.map(|_| own.borrow().usd());
    if let Err(error) = run
        .transcript
        .append(&work.scope, completed(&outcome, work.attempts, work.last.as_ref(), usd))
    {
        outcome.exit = Exit::Internal;
        outcome.reason = record::chain(&error);
    }
    outcome
}

/// Writes down that `instance` can't begin, and how it ended therefore.
pub fn refuse(
    run: &Run,
    instance: &Instance,
    (exit, kind, reason): (Exit, &str, String),
) -> Outcome {
    let counts = counts(exit, instance.failure);
    let usage = crate::transcript::event::Usage::default();
    let mut outcome = Outcome { exit, kind: kind.to_owned(), reason, counts, usage };
    let scope = Scope { task: Some(instance.id.clone()), ..Scope::default() };
    if let Err(error) = run.transcript.append(&scope, completed(&outcome, 0, None, None)) {
        outcome.exit = Exit::Internal;
        outcome.reason = record::chain(&error);
    }
    outcome
}

/// Holds what an instance is made of to be usable: rules, script, schema. Runs nothing.
///
/// # Errors
///
/// One sentence about the first thing that is wrong.
pub fn validate(instance: &Instance) -> Result<(), String> {
    Policy::load(&instance.rules, instance.opaque, Grounds::default())
        .map_err(|error| error.to_string())?;
    if let Wire::Script { name, text } = &instance.model.wire {
        crate::model::script::Script::read(name, text).map_err(|error| record::chain(&error))?;
    }
    if let Some(schema) = &instance.output.schema {
        jsonschema::validator_for(schema).map_err(|error| {
            format!("{}: `output.schema` can't be used: {error}", instance.span)
        })?;
    }
    Ok(())
}

/// Whether a failure counts towards the exit status of the run.
fn counts(exit: Exit, action: FailureAction) -> bool {
    let always = matches!(
        exit,
        Exit::Internal | Exit::Usage | Exit::Sandbox | Exit::Interrupted | Exit::Terminated
    );
    always || action != FailureAction::Warn
}

fn completed(outcome: &Outcome, attempts: u32, last: Option<&Attempt>, usd: Option<f64>) -> Event {
    Event::TaskCompleted {
        exit: outcome.exit.code(),
        outcome: outcome.exit.name().to_owned(),
        reason: outcome.reason.clone(),
        kind: outcome.kind.clone(),
        attempts,
        patch: last.and_then(|last| last.patch.clone()),
        files: last.map(|last| last.files.clone()).unwrap_or_default(),
        protected: last.map(|last| last.protected.clone()).unwrap_or_default(),
        final_message: last.and_then(|last| last.final_message.clone()),
        counts: outcome.counts,
        usage: outcome.usage,
        usd,
    }
}

/// An instance under way.
struct Work<'a> {
    run: &'a Rc<Run>,
    instance: &'a Instance,
    place: &'a Equipment<'a>,
    scope: Scope,
    ledgers: Ledgers,
    attempts: u32,
    last: Option<Attempt>,
}

impl Work<'_> {
    async fn carry_out(&mut self, secrets: Vec<Vec<Secret>>) -> Result<(), Early> {
        let place = (self.place.source, self.place.folder.clone(), secrets);
        let with = (self.place.git, &self.scope);
        let mut stage = Stage::prepare(self.run, self.instance, place, with).await?;
        let done = match self.check_before(&mut stage).await {
            Ok(()) => self.attempt_all(&stage).await,
            Err(early) => Err(early),
        };
        let is_done = matches!(&self.last, Some(last) if last.failures.is_empty() && matches!(last.end, End::Message(_)));
        let kept = stage.close(self.attempts.max(1), is_done && done.is_ok());
        done.and(kept)
    }

    async fn attempt_all(&mut self, stage: &Stage<'_>) -> Result<(), Early> {
        let context = stage.context(&self.scope).await?;
        let policy = self.policy(stage)?;
        let footing = Footing {
            workspace: stage.workspace.root(),
            cwd: &stage.cwd,
            env: &stage.env,
            sandbox: &stage.sandbox,
            traffic: &stage.traffic,
            logs: stage.logs.clone(),
            shell: stage.shell.clone(),
            write_roots: stage.profile.write.clone(),
            watch: &stage.watch,
        };
        let new = |ledgers: &Ledgers| {
            let parts = (self.place.model, policy.clone(), ledgers.clone());
            Conversation::new(self.run, self.instance, parts, &footing)
        };
        let place = prompt::Place {
            cwd: &stage.cwd,
            enforcement: stage.sandbox.enforcement(),
            notices: stage.workspace.notices(),
        };
        let opening = prompt::opening(self.instance, &place, &context);
        let mut conversation = new(&self.ledgers);
        conversation.open(&opening);
        let retry = self.instance.retry;
        let mut feedback: Option<Item> = None;
        for number in 1..=retry.max_attempts {
            self.attempts = number;
            let scope = Scope { attempt: Some(number), ..self.scope.clone() };
            stage.traffic.enter(&scope);
            if number > 1 && retry.is_fresh_session {
                conversation = new(&self.ledgers);
                conversation.open(&opening);
            }
            if number > 1 && retry.is_tree_reset {
                stage.workspace.reset().await.map_err(Early::workspace)?;
                stage.sandbox.renew();
            }
            conversation.begin(scope.clone(), feedback.take());
            self.run.transcript.append(
                &scope,
                Event::AttemptStarted {
                    session: if retry.is_fresh_session { "fresh" } else { "continue" }.to_owned(),
                    tree: if retry.is_tree_reset { "reset" } else { "keep" }.to_owned(),
                },
            )?;
            let before = self.ledgers.own.borrow().usage();
            let end = conversation.converse().await;
            let (end, ended_processes) = match conversation.end_processes().await {
                Ok(count) => (end, count),
                Err(fault) => (fault, 0),
            };
            let left = retry.max_attempts - number;
            let (attempt, output) =
                acceptance::accept(self.run, stage, &scope, (end, left > 0)).await;
            let usage = self.ledgers.own.borrow().usage() - before;
            self.run
                .transcript
                .append(&scope, attempt.completed(ended_processes, output, usage))?;
            self.run.transcript.sync()?;
            feedback = attempt
                .feedback()
                .filter(|_| left > 0)
                .map(|reports| prompt::feedback(&reports, number, retry.max_attempts));
            self.last = Some(attempt);
            if feedback.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Runs the checks that expect something of the base.
    async fn check_before(&self, stage: &mut Stage<'_>) -> Result<(), Early> {
        let expecting = || self.instance.checks.iter().filter(|c| c.before != Before::Ignore);
        if expecting().next().is_none() {
            return Ok(());
        }
        for check in expecting() {
            let stand = Stand { sandbox: &stage.sandbox, cwd: &stage.cwd, env: &stage.env };
            let done = check::run(self.run, &self.scope, check, (Phase::Before, &stand)).await?;
            stage.put_back(&self.scope)?;
            let is_red = done.verdict != Verdict::Passed;
            if is_red != (check.before == Before::Fail) {
                let (expected, found) =
                    if is_red { ("pass", "is red") } else { ("fail", "is green") };
                return Err(Early {
                    exit: Exit::Setup,
                    kind: "before".to_owned(),
                    reason: format!(
                        "check `{}` must {expected} on the base (`before: {expected}`, {}), and it {found}",
                        check.id, check.span
                    ),
                });
            }
        }
        stage.workspace.note_untracked().await.map_err(Early::workspace)
    }

    fn policy(&self, stage: &Stage<'_>) -> Result<Policy, Early> {
        let profile = &stage.profile;
        let workspace = stage.workspace.root().to_path_buf();
        let write_roots = match profile.mode {
            SandboxMode::ReadOnly => Vec::new(),
            SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess => {
                let mut roots = vec![workspace.clone()];
                roots.extend(profile.write.iter().cloned());
                roots
            }
        };
        let grounds = Grounds { workspace, write_roots, protected: profile.protected.clone() };
        Policy::load(&self.instance.rules, self.instance.opaque, grounds).map_err(|error| Early {
            exit: Exit::Usage,
            kind: "rules".to_owned(),
            reason: error.to_string(),
        })
    }

    /// Reads the outcome from how the last attempt ended and what is wrong with its result.
    fn outcome(&self, early: Option<Early>) -> Outcome {
        let (exit, kind, reason) = match (early, &self.last) {
            (Some(early), _) => (early.exit, early.kind, early.reason),
            (None, Some(last)) => last.outcome(),
            (None, None) => {
                (Exit::Internal, "internal".to_owned(), "no attempt was made".to_owned())
            }
        };
        let counts = counts(exit, self.instance.failure);
        Outcome { exit, kind, reason, counts, usage: crate::transcript::event::Usage::default() }
    }
}

impl Conversation<'_> {
    /// Takes the opening into the history.
    fn open(&mut self, opening: &[Item]) {
        for item in opening {
            self.history.push(item.clone());
        }
    }

    /// Begins an attempt, with what the last one's verdict says.
    fn begin(&mut self, scope: Scope, feedback: Option<Item>) {
        self.scope = scope;
        self.steps = 0;
        self.calls = 0;
        self.ground.patches.set(0);
        if let Some(item) = feedback {
            self.history.push(item);
        }
    }
}

impl Attempt {
    /// What another attempt could repair, in words for the model; `None` when nothing is wrong or
    /// nothing can be repaired.
    fn feedback(&self) -> Option<Vec<String>> {
        let mut reports: Vec<String> =
            self.failures.iter().map(|failure| failure.feedback.clone()).collect();
        match &self.end {
            End::Message(_) => {}
            End::GaveUp(reason) => reports.push(format!("The attempt has no result: {reason}.")),
            End::Budget(_)
            | End::Wall
            | End::Idle(_)
            | End::Provider { .. }
            | End::Denied(_)
            | End::Sandbox(_)
            | End::Setup(_)
            | End::Stopped(_)
            | End::Internal(_) => return None,
        }
        (!reports.is_empty()).then_some(reports)
    }

    /// Exit status, kind and reason that this attempt stands for.
    fn outcome(&self) -> (Exit, String, String) {
        let (_, reason) = self.end.describe();
        let red = |reason: String| match self.failures.first() {
            Some(Failure { reason: also, .. }) => format!("{reason}; also: {also}"),
            None => reason,
        };
        match &self.end {
            End::Message(_) => match self.failures.first() {
                Some(failure) => (failure.exit, failure.kind.to_owned(), self.all_reasons()),
                None => (Exit::Done, "done".to_owned(), "done".to_owned()),
            },
            End::GaveUp(_) => (Exit::NotDone, "gave-up".to_owned(), red(reason)),
            End::Budget(spent) => (Exit::Budget, format!("budget.{}", spent.limit), red(reason)),
            End::Wall => (Exit::Timeout, "budget.wall".to_owned(), red(reason)),
            End::Idle(_) => (Exit::Timeout, "idle".to_owned(), red(reason)),
            End::Provider { kind, .. } => {
                (Exit::Provider, format!("provider.{}", kind.name()), reason)
            }
            End::Denied(_) => (Exit::Denied, "denied".to_owned(), red(reason)),
            End::Sandbox(_) => (Exit::Sandbox, "sandbox".to_owned(), reason),
            End::Setup(_) => (Exit::Setup, "workspace".to_owned(), reason),
            End::Stopped(crate::run::Signal::Interrupt) => {
                (Exit::Interrupted, "signal".to_owned(), reason)
            }
            End::Stopped(crate::run::Signal::Terminate) => {
                (Exit::Terminated, "signal".to_owned(), reason)
            }
            End::Internal(_) => (Exit::Internal, "internal".to_owned(), reason),
        }
    }

    fn all_reasons(&self) -> String {
        let reasons: Vec<&str> =
            self.failures.iter().map(|failure| failure.reason.as_str()).collect();
        reasons.join("; ")
    }
}
