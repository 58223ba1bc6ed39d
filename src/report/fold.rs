//! The fold: a transcript becomes a report (P4).
//!
//! In: records, and the blobs that they name. Out: [`Report`]. Pure and total: a transcript that
//! stops anywhere, or holds events in an order that no run writes, folds to what is there.

mod attempt;
mod finish;

use std::collections::BTreeMap;

use serde_json::Value;

use super::shape::{Artifact, Attempt, Check, Process, Report, Task, VERSION};
use crate::transcript::event::{Blob, Event, Record};
use crate::transcript::read::Blobs;

/// `outcome` of a run or task that has no end.
pub const INCOMPLETE: &str = "incomplete";

/// `outcome` of a task that never started.
pub const SKIPPED: &str = "skipped";

/// Bytes kept of a call's input, its output, and a diff.
const EXCERPT: usize = 4 << 10;

/// Bytes kept of a check's log.
const LOG_EXCERPT: usize = 16 << 10;

/// Bytes kept of a final message.
const MESSAGE: usize = 64 << 10;

/// Folds `records` into a report.
pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>, blobs: &dyn Blobs) -> Report {
    let mut fold = Fold::new(blobs);
    for record in records {
        fold.take(record);
    }
    fold.finish()
}

/// A report in the making.
struct Fold<'b> {
    blobs: &'b dyn Blobs,
    report: Report,
    /// Instance id to its place among the tasks and what only the fold needs.
    tasks: BTreeMap<String, Open>,
    first_ms: Option<u64>,
    last_ms: u64,
}

/// What the fold knows of a task beside its report.
#[derive(Default)]
struct Open {
    index: usize,
    started: bool,
    first_ms: Option<u64>,
    last_ms: u64,
    completed: bool,
    /// Processes that are no checks, with the attempt and the call that they belong to.
    processes: Vec<OpenProcess>,
    /// Attempts that ended in order.
    attempts_done: Vec<u32>,
}

struct OpenProcess {
    attempt: Option<u32>,
    call: Option<String>,
    is_ended: bool,
    process: Process,
}

impl<'b> Fold<'b> {
    fn new(blobs: &'b dyn Blobs) -> Self {
        let report = Report {
            schema_version: VERSION,
            outcome: INCOMPLETE.to_owned(),
            junit_detail: "trace".to_owned(),
            ..Report::default()
        };
        Self { blobs, report, tasks: BTreeMap::new(), first_ms: None, last_ms: 0 }
    }

    fn take(&mut self, record: &Record) {
        self.first_ms.get_or_insert(record.at_ms);
        self.last_ms = self.last_ms.max(record.at_ms);
        self.report.lines += 1;
        self.report.run.clone_from(&record.run);
        self.report.started.get_or_insert_with(|| record.ts.clone());
        self.report.ended = Some(record.ts.clone());
        if let Some(id) = &record.task {
            self.open(id);
            if let Some(open) = self.tasks.get_mut(id) {
                open.first_ms.get_or_insert(record.at_ms);
                open.last_ms = open.last_ms.max(record.at_ms);
                let task = &mut self.report.tasks[open.index];
                task.started.get_or_insert_with(|| record.ts.clone());
            }
        }
        if let Event::RunCompleted { exit, outcome, signal, usage } = &record.event {
            self.report.exit = Some(*exit);
            self.report.outcome.clone_from(outcome);
            self.report.signal.clone_from(signal);
            self.report.usage = *usage;
        }
        self.run_started(&record.event);
        self.task_started(record);
        self.task_completed(record);
        self.attempt_event(record);
    }

    /// Makes the task `id` known.
    fn open(&mut self, id: &str) {
        if !self.tasks.contains_key(id) {
            let index = self.report.tasks.len();
            self.report.tasks.push(Task {
                id: id.to_owned(),
                task: id.to_owned(),
                counts: true,
                ..Task::default()
            });
            self.tasks.insert(id.to_owned(), Open { index, ..Open::default() });
        }
    }

    fn run_started(&mut self, event: &Event) {
        let Event::RunStarted {
            version,
            name,
            plan_sha256,
            inputs,
            selected,
            operator,
            trust_commit,
            reports,
            notices,
        } = event
        else {
            return;
        };
        self.report.version.clone_from(version);
        self.report.name.clone_from(name);
        self.report.plan_sha256.clone_from(plan_sha256);
        self.report.inputs.clone_from(inputs);
        self.report.operator.clone_from(operator);
        self.report.trust_commit.clone_from(trust_commit);
        self.report.notices.clone_from(notices);
        if let Some(detail) = reports.get("junit_detail").and_then(Value::as_str) {
            detail.clone_into(&mut self.report.junit_detail);
        }
        for id in selected {
            self.open(id);
            let line = reports.get("tasks").and_then(|tasks| tasks.get(id)).and_then(Value::as_u64);
            if let (Some(open), Some(line)) = (self.tasks.get(id), line) {
                self.report.tasks[open.index].line = u32::try_from(line).unwrap_or_default();
            }
        }
    }

    fn task_started(&mut self, record: &Record) {
        let Some(open) = record.task.as_ref().and_then(|id| self.tasks.get_mut(id)) else { return };
        let Event::TaskStarted {
            id,
            line,
            base_commit,
            workspace,
            target,
            provider,
            model,
            requested,
            enforced,
            budget,
            notices,
        } = &record.event
        else {
            return;
        };
        open.started = true;
        let task = &mut self.report.tasks[open.index];
        task.task.clone_from(id);
        task.line = *line;
        task.base_commit.clone_from(base_commit);
        task.workspace.clone_from(workspace);
        task.target.clone_from(target);
        task.provider.clone_from(provider);
        task.model.clone_from(model);
        task.requested.clone_from(requested);
        task.enforcement = Some(enforced.clone());
        task.budget.clone_from(budget);
        task.notices.clone_from(notices);
    }

    fn task_completed(&mut self, record: &Record) {
        let Some(open) = record.task.as_ref().and_then(|id| self.tasks.get_mut(id)) else { return };
        let Event::TaskCompleted {
            exit,
            outcome,
            reason,
            kind,
            attempts,
            patch,
            files,
            protected,
            final_message,
            counts,
            usage,
            usd,
        } = &record.event
        else {
            return;
        };
        open.completed = true;
        let task = &mut self.report.tasks[open.index];
        task.exit = Some(*exit);
        task.outcome.clone_from(outcome);
        task.reason.clone_from(reason);
        task.kind.clone_from(kind);
        let path =
            format!("{}/patch.diff", crate::path::attempt_folder(&task.id, (*attempts).max(1)));
        task.patch = patch.as_ref().map(|blob| artifact(blob, path));
        task.files.clone_from(files);
        task.protected.clone_from(protected);
        task.final_message = final_message.as_ref().and_then(|blob| message(self.blobs, blob));
        task.counts = *counts;
        task.usage = *usage;
        task.usd = *usd;
    }
}

/// The attempt `n` of `task`, made known if need be; without a number the last one.
fn attempt_mut(task: &mut Task, n: Option<u32>) -> &mut Attempt {
    let n = n.or(task.attempts.last().map(|attempt| attempt.n)).unwrap_or(1);
    let at = task.attempts.iter().rposition(|attempt| attempt.n == n).unwrap_or_else(|| {
        task.attempts.push(Attempt { n, ..Attempt::default() });
        task.attempts.len() - 1
    });
    &mut task.attempts[at]
}

fn artifact(blob: &Blob, path: String) -> Artifact {
    Artifact { sha256: blob.sha256.clone(), bytes: blob.bytes, path }
}

/// The text of `blob`, head and tail within `most` bytes, with the number of bytes left out.
fn excerpt(blobs: &dyn Blobs, blob: &Blob, most: usize) -> String {
    let unreadable = || format!("(blob {} can't be read)", blob.sha256);
    let text = |bytes: Option<Vec<u8>>| {
        bytes.map_or_else(unreadable, |bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    if blob.bytes <= most as u64 {
        return text(blobs.read(blob, 0, most));
    }
    let half = most / 2;
    let head = text(blobs.read(blob, 0, half));
    let tail = text(blobs.read(blob, blob.bytes - half as u64, half));
    let omitted = blob.bytes - 2 * half as u64;
    format!("{head}\n… {omitted} bytes omitted …\n{tail}")
}

/// A final message: its head.
fn message(blobs: &dyn Blobs, blob: &Blob) -> Option<String> {
    let bytes = blobs.read(blob, 0, MESSAGE)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if blob.bytes > MESSAGE as u64 {
        // The cut may have gone through a character.
        let end = text.trim_end_matches('\u{fffd}').len();
        text.truncate(end);
        let more = blob.bytes.saturating_sub(end as u64);
        text = format!("{text}… ({more} bytes more)");
    }
    Some(text)
}

/// The check of `checks` that has begun and not ended.
fn open_check<'c>(checks: &'c mut [Check], id: &str, phase: &str) -> Option<&'c mut Check> {
    checks
        .iter_mut()
        .rev()
        .find(|check| check.id == id && check.phase == phase && check.outcome == INCOMPLETE)
}
