//! The end of the fold: what follows from all lines together.

use super::{Fold, INCOMPLETE, Open, SKIPPED, artifact, message};
use crate::report::shape::{Check, Problem, Report, Task, Totals};
use crate::transcript::event::{Blob, Usage};
use crate::transcript::read::Blobs;

impl Fold<'_> {
    pub(super) fn finish(mut self) -> Report {
        let first_ms = self.first_ms.unwrap_or_default();
        self.report.wall_ms = self.last_ms - first_ms;
        for open in self.tasks.values_mut() {
            let task = &mut self.report.tasks[open.index];
            finish_task(task, open, self.blobs);
        }
        let mut report = self.report;
        report.totals = totals(&report.tasks);
        if report.exit.is_none() {
            let mut usage = Usage::default();
            report.tasks.iter().for_each(|task| usage += task.usage);
            report.usage = usage;
        }
        let ran = report.tasks.iter().filter(|task| task.outcome != SKIPPED);
        report.usd = ran.map(|task| task.usd).sum();
        report.error = problem(&report);
        report
    }
}

fn finish_task(task: &mut Task, open: &mut Open, blobs: &dyn Blobs) {
    task.attempts.sort_by_key(|attempt| attempt.n);
    for attempt in &mut task.attempts {
        if !open.attempts_done.contains(&attempt.n) {
            INCOMPLETE.clone_into(&mut attempt.end);
            "not-run".clone_into(&mut attempt.verdict);
        }
    }
    for ended in open.processes.drain(..) {
        let attempt = task.attempts.iter_mut().find(|attempt| Some(attempt.n) == ended.attempt);
        let call = attempt.zip(ended.call.as_deref()).and_then(|(attempt, id)| {
            let n = attempt.n;
            attempt.calls.iter_mut().find(|call| call.id == id).map(|call| (n, call))
        });
        let process = ended.process;
        match call {
            Some((n, call)) => {
                if let Some(log) = &process.log {
                    call.log = Some(artifact(log, crate::path::call_log(&task.id, n, &call.id)));
                }
                call.process = Some(process);
            }
            None if is_told(&process.role, process.exit_code) => task.commands.push(process),
            None => {}
        }
    }
    if !open.completed {
        unfinished(task, open, blobs);
    }
    task.checks = verdicts(task);
    task.wall_ms = open.last_ms - open.first_ms.unwrap_or_default();
}

/// Whether a process outside of calls is worth a line: checks have their own, our own git is
/// routine unless it fails.
fn is_told(role: &str, exit_code: Option<i32>) -> bool {
    match role {
        "check" => false,
        "git" => exit_code.is_some_and(|code| code != 0),
        _ => true,
    }
}

/// What can be said of a task that has no end.
fn unfinished(task: &mut Task, open: &Open, blobs: &dyn Blobs) {
    let mut usage = Usage::default();
    task.attempts.iter().for_each(|attempt| usage += attempt.usage);
    task.usage = usage;
    if open.first_ms.is_none() && !open.started {
        SKIPPED.clone_into(&mut task.outcome);
        SKIPPED.clone_into(&mut task.kind);
        "the run ended before this task started".clone_into(&mut task.reason);
        return;
    }
    INCOMPLETE.clone_into(&mut task.outcome);
    INCOMPLETE.clone_into(&mut task.kind);
    "the transcript stops before this task ended".clone_into(&mut task.reason);
    if let Some(last) = task.attempts.last() {
        task.patch.clone_from(&last.patch);
        task.files.clone_from(&last.files);
        task.final_message = last.final_message.as_ref().and_then(|artifact| {
            message(blobs, &Blob { sha256: artifact.sha256.clone(), bytes: artifact.bytes })
        });
    }
}

/// The final verdict of each check, in the order of their first appearance.
fn verdicts(task: &Task) -> Vec<Check> {
    let mut last: Vec<Check> = Vec::new();
    let all = task.attempts.iter().flat_map(|attempt| &attempt.checks);
    for check in all.filter(|check| check.phase == "final") {
        match last.iter_mut().find(|known| known.id == check.id) {
            Some(known) => known.clone_from(check),
            None => last.push(check.clone()),
        }
    }
    last
}

fn totals(tasks: &[Task]) -> Totals {
    let mut totals = Totals { tasks: tasks.len() as u64, ..Totals::default() };
    for task in tasks {
        let place = match task.exit {
            Some(0) => &mut totals.passed,
            Some(_) if task.counts => &mut totals.failed,
            Some(_) => &mut totals.warned,
            None if task.outcome == SKIPPED => &mut totals.skipped,
            None => &mut totals.incomplete,
        };
        *place += 1;
        totals.denied += task.denials().count() as u64;
        totals.attempts += task.attempts.len() as u64;
        totals.steps += task.steps();
        for attempt in &task.attempts {
            totals.calls += attempt.calls.len() as u64;
            totals.patches += attempt.patches.iter().filter(|patch| patch.applied).count() as u64;
        }
    }
    totals
}

/// What went wrong with the run as a whole: the first task that gave it its exit status.
fn problem(report: &Report) -> Option<Problem> {
    let Some(exit) = report.exit else {
        return Some(Problem {
            kind: INCOMPLETE.to_owned(),
            message: format!(
                "the transcript stops after line {}: the run was killed or still goes on",
                report.lines
            ),
            hint: None,
        });
    };
    if exit == 0 {
        return None;
    }
    if let Some(signal) = &report.signal {
        let message = format!("the run was ended by {signal}");
        return Some(Problem { kind: "signal".to_owned(), message, hint: None });
    }
    let task = report
        .tasks
        .iter()
        .find(|task| task.exit == Some(exit))
        .or_else(|| report.tasks.iter().find(|task| task.exit.is_some_and(|exit| exit != 0)));
    Some(match task {
        Some(task) => Problem {
            kind: task.kind.clone(),
            message: format!("task `{}`: {}", task.id, task.reason),
            hint: hint(task),
        },
        None => Problem {
            kind: report.outcome.clone(),
            message: format!("the run ended with status {exit}"),
            hint: None,
        },
    })
}

/// The one obvious remedy.
fn hint(task: &Task) -> Option<String> {
    let fault = task.attempts.last().and_then(|attempt| attempt.faults.last());
    let fault = fault.filter(|_| task.exit == Some(14)).map(|fault| fault.kind.as_str());
    match (task.exit?, fault.unwrap_or(&task.kind)) {
        (14, "auth") => Some(format!("check `api_key` of provider `{}`", task.provider)),
        (15, _) => Some("`horseman doctor` says what this host can enforce".to_owned()),
        (12 | 13, kind) => {
            let limit = kind.strip_prefix("budget.")?;
            Some(format!("raise `budget.{limit}` if the task needs more"))
        }
        _ => None,
    }
}
