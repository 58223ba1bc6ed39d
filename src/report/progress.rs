//! Progress: what a person sees of a run while it goes on.
//!
//! In: records, one by one. Out: plain lines for stderr, safe for the log of a CI job. Knows
//! nothing of terminals or of who prints.

use std::collections::BTreeMap;

use super::clean;
use crate::transcript::event::{Event, Record};

/// Bytes of a command or reason within a line.
const CLIP: usize = 160;

/// Bytes of a tool's name, which the model chooses when there is no such tool.
const NAME: usize = 40;

/// How lines of several tasks are kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// Each line begins with the task's id.
    #[default]
    Prefix,
    /// The job's log gets a foldable group for each stretch of lines of one task, in the form of
    /// GitHub Actions; the task's end stands outside of it.
    Folds,
}

/// Lines of a run's progress.
#[derive(Debug, Default)]
pub struct Progress {
    grouping: Grouping,
    /// Task whose group is open.
    group: Option<String>,
    /// Commands of calls, so that their end can name them.
    calls: BTreeMap<(String, String), String>,
    /// Latest line of each running task.
    running: BTreeMap<String, String>,
}

impl Progress {
    /// Progress whose lines are kept apart by `grouping`.
    pub fn new(grouping: Grouping) -> Self {
        Self { grouping, ..Self::default() }
    }

    /// Returns the text to print for `record`, lines with newlines; empty when there is nothing to
    /// say.
    pub fn take(&mut self, record: &Record) -> String {
        let Some(words) = self.words(record) else { return String::new() };
        let words = clean::log(&clean::line(&words, 4 * CLIP));
        let task = record.task.as_ref().map(|id| clean::line(id, CLIP));
        let is_end = matches!(record.event, Event::TaskCompleted { .. });
        match &task {
            Some(task) if is_end => {
                self.running.remove(task);
            }
            Some(task) => {
                self.running.insert(task.clone(), words.clone());
            }
            None => {}
        }
        let mut out = String::new();
        if self.grouping == Grouping::Folds {
            let group = task.clone().filter(|_| !is_end);
            if group != self.group {
                if self.group.is_some() {
                    out.push_str("::endgroup::\n");
                }
                if let Some(task) = &group {
                    out.extend(["::group::", task, "\n"]);
                }
                self.group = group;
            }
        }
        let prefix = task.map(|task| format!("[{task}] ")).unwrap_or_default();
        out.extend([&prefix, &words, "\n"]);
        out
    }

    /// Latest line of each task that runs, for a display that redraws itself.
    pub fn running(&self) -> impl Iterator<Item = (&str, &str)> {
        self.running.iter().map(|(task, line)| (task.as_str(), line.as_str()))
    }

    fn words(&mut self, record: &Record) -> Option<String> {
        run_words(record).or_else(|| self.call_words(record)).or_else(|| attempt_words(record))
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "most events are not worth a line")]
    fn call_words(&mut self, record: &Record) -> Option<String> {
        let key = (record.task.clone().unwrap_or_default(), record.call.clone()?);
        let id = &key.1;
        match &record.event {
            Event::CallProposed { name, input, .. } => {
                let input = input.as_deref().unwrap_or("(large input)");
                let what = format!("{} {}", clean::line(name, NAME), clean::line(input, CLIP));
                let words = format!("{id} {what}");
                self.calls.insert(key, what);
                Some(words)
            }
            Event::CallRefused { by, reason } => {
                Some(format!("{id} denied by {by}: {}", clean::line(reason, CLIP)))
            }
            Event::CallCompleted { status, exit_code, signal, wall_ms, .. } => {
                let what = self.calls.remove(&key).unwrap_or_default();
                let code = exit_code.map(|code| format!(" exit {code}")).unwrap_or_default();
                let signal = signal.map(|signal| format!(" signal {signal}")).unwrap_or_default();
                Some(format!("{} {status}{code}{signal} ({wall_ms} ms): {what}", key.1))
            }
            Event::PatchApplied { files, .. } => {
                let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
                Some(format!("{id} changed {}", clean::line(&paths.join(", "), CLIP)))
            }
            Event::PatchRefused { reason, .. } => {
                Some(format!("{id} patch not written: {}", clean::line(reason, CLIP)))
            }
            _ => None,
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most events are not worth a line")]
fn run_words(record: &Record) -> Option<String> {
    match &record.event {
        Event::RunStarted { version, name, selected, notices, .. } => {
            let tasks = clean::count(selected.len() as u64, "task");
            let mut words = format!("horseman {version}: run {} of {name}, {tasks}", record.run);
            for notice in notices {
                words.push_str("; note: ");
                words.push_str(notice);
            }
            Some(words)
        }
        Event::RunCompleted { exit, outcome, signal, usage } => {
            let signal = signal.as_ref().map(|signal| format!(" by {signal}")).unwrap_or_default();
            Some(format!(
                "{outcome}{signal} (exit {exit}), {} + {} tokens",
                usage.input_tokens, usage.output_tokens
            ))
        }
        Event::TaskStarted { provider, model, enforced, notices, .. } => {
            let mut words = format!(
                "started with {provider} / {model}, confined by {} as {}",
                enforced.tier, enforced.mode
            );
            for notice in notices {
                words.push_str("; note: ");
                words.push_str(notice);
            }
            Some(words)
        }
        Event::TaskCompleted { exit, outcome, reason, .. } => {
            Some(format!("{outcome} (exit {exit}): {}", clean::line(reason, CLIP)))
        }
        _ => None,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "most events are not worth a line")]
fn attempt_words(record: &Record) -> Option<String> {
    match &record.event {
        Event::AttemptStarted { .. } => {
            record.attempt.filter(|&n| n > 1).map(|n| format!("attempt {n}"))
        }
        Event::StepStarted { .. } => record.step.map(|step| format!("step {step}")),
        Event::ModelWaited { wait_ms, cause, .. } => {
            Some(format!("waiting {wait_ms} ms for the model ({cause})"))
        }
        Event::ModelFailed { kind, message, retried, .. } => {
            let then = if *retried { "trying again" } else { "giving up" };
            Some(format!("model {kind}, {then}: {}", clean::line(message, CLIP)))
        }
        Event::ProcessStarted { role, argv, .. }
            if matches!(role.as_str(), "setup" | "context") =>
        {
            Some(format!("{role}: {}", clean::line(&argv.join(" "), CLIP)))
        }
        Event::CheckStarted { id, phase, .. } => Some(format!("check {id} ({phase})")),
        Event::CheckCompleted { id, phase, outcome, exit_code, wall_ms, .. } => {
            let code = exit_code.map(|code| format!(", exit {code}")).unwrap_or_default();
            Some(format!("check {id} ({phase}) {outcome}{code} ({wall_ms} ms)"))
        }
        Event::ProtectedRestored { paths, lost } => Some(protected(paths, lost)),
        Event::BudgetWarned { limit, used, of } => {
            Some(format!("budget {limit}: {used} of {of} used"))
        }
        Event::BudgetExhausted { limit, used, of } => {
            Some(format!("budget {limit} is spent: {used} of {of}"))
        }
        _ => None,
    }
}
/// What happened to protected paths that no layer held.
pub(super) fn protected(paths: &[String], lost: &[String]) -> String {
    let list = |paths: &[String]| clean::line(&paths.join(", "), CLIP);
    let mut parts = Vec::new();
    if !paths.is_empty() {
        parts.push(format!("protected paths changed and put back: {}", list(paths)));
    }
    if !lost.is_empty() {
        parts.push(format!("protected paths changed for good: {}", list(lost)));
    }
    parts.join("; ")
}
