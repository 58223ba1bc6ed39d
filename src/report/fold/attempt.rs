//! What happens within an attempt: steps, model, calls, processes, patches, checks, limits.

use serde_json::Value;

use super::{
    EXCERPT, Fold, INCOMPLETE, LOG_EXCERPT, Open, OpenProcess, artifact, attempt_mut, excerpt,
    open_check,
};
use crate::path::component;
use crate::report::clean;
use crate::report::progress::protected;
use crate::report::shape::{
    AskedHost, Attempt, BesidePatch, Call, Check, Confinement, Fault, Limit, Patch, Process,
    Refused, Task,
};
use crate::transcript::event::{Event, Record};
use crate::transcript::read::Blobs;

impl Fold<'_> {
    pub(super) fn attempt_event(&mut self, record: &Record) {
        let Some(open) = record.task.as_ref().and_then(|id| self.tasks.get_mut(id)) else { return };
        let task = &mut self.report.tasks[open.index];
        match &record.event {
            Event::AttemptStarted { session, tree } => {
                let attempt = attempt_mut(task, record.attempt);
                attempt.session.clone_from(session);
                attempt.tree.clone_from(tree);
            }
            Event::AttemptCompleted { .. } => attempt_completed(task, open, record),
            Event::StepStarted { .. } => attempt_mut(task, record.attempt).steps += 1,
            Event::ModelRequested { .. }
            | Event::ModelResponded { .. }
            | Event::ModelWaited { .. }
            | Event::ModelFailed { .. } => model(attempt_mut(task, record.attempt), record),
            Event::CallProposed { .. }
            | Event::CallJudged { .. }
            | Event::CallCleared { .. }
            | Event::CallRefused { .. }
            | Event::CallConfined { .. } => {
                call(call_mut(attempt_mut(task, record.attempt), record), record, self.blobs);
            }
            Event::CallCompleted { status, exit_code, signal, wall_ms, output } => {
                let id = task.id.clone();
                let attempt = attempt_mut(task, record.attempt);
                let n = attempt.n;
                let call = call_mut(attempt, record);
                call.status.clone_from(status);
                call.exit_code = *exit_code;
                call.signal = *signal;
                call.wall_ms = *wall_ms;
                call.output = excerpt(self.blobs, output, EXCERPT);
                call.output_bytes = output.bytes;
                call.log = Some(artifact(output, crate::path::call_log(&id, n, &call.id)));
            }
            Event::ProcessStarted { .. } => process_started(open, record),
            Event::ProcessEnded { .. } => process_ended(open, record),
            Event::PatchApplied { .. } | Event::PatchRefused { .. } => {
                let attempt = attempt_mut(task, record.attempt);
                attempt.patches.extend(patch(record, self.blobs));
            }
            Event::CheckStarted { .. } | Event::CheckCompleted { .. } => {
                check(task, record, self.blobs);
            }
            Event::ProtectedRestored { paths, lost } => {
                task.notices.push(protected(paths, lost));
            }
            Event::BudgetWarned { limit, used, of } => {
                limits(attempt_mut(task, record.attempt), (limit, *used, *of), false);
            }
            Event::BudgetExhausted { limit, used, of } => {
                limits(attempt_mut(task, record.attempt), (limit, *used, *of), true);
            }
            Event::NetworkRequested { host, port, decision, rule, .. } => {
                asked(task, (host, *port), (decision, rule));
            }
            // A step's end and items add nothing to a report; the others were handled before.
            Event::StepCompleted { .. }
            | Event::ItemReceived { .. }
            | Event::RunStarted { .. }
            | Event::RunCompleted { .. }
            | Event::TaskStarted { .. }
            | Event::TaskCompleted { .. } => {}
        }
    }
}

fn asked(task: &mut Task, (host, port): (&str, u16), (decision, rule): (&str, &str)) {
    let is_same = |known: &&mut AskedHost| {
        known.host == host && known.port == port && known.decision == decision && known.rule == rule
    };
    if let Some(known) = task.hosts.iter_mut().find(is_same) {
        known.count += 1;
        return;
    }
    task.hosts.push(AskedHost {
        host: host.to_owned(),
        port,
        decision: decision.to_owned(),
        rule: rule.to_owned(),
        count: 1,
    });
}

fn attempt_completed(task: &mut Task, open: &mut Open, record: &Record) {
    let Event::AttemptCompleted {
        end,
        reason,
        verdict,
        final_message,
        patch,
        beside,
        notices,
        output,
        files,
        ended_processes,
        usage,
    } = &record.event
    else {
        return;
    };
    let id = task.id.clone();
    let attempt = attempt_mut(task, record.attempt);
    let folder = crate::path::attempt_folder(&id, attempt.n);
    let file = |name: &str| format!("{folder}/{name}");
    attempt.end.clone_from(end);
    attempt.reason.clone_from(reason);
    attempt.verdict.clone_from(verdict);
    attempt.final_message =
        final_message.as_ref().map(|blob| artifact(blob, file("final-message.md")));
    attempt.patch = patch.as_ref().map(|blob| artifact(blob, file("patch.diff")));
    attempt.output = output.as_ref().map(|blob| artifact(blob, file("output.json")));
    attempt.beside = beside
        .iter()
        .map(|part| {
            let name = component(&part.path);
            BesidePatch {
                kind: part.kind.clone(),
                of: part.path.clone(),
                file: artifact(&part.blob, file(&format!("{}/{name}", part.kind))),
            }
        })
        .collect();
    attempt.notices.clone_from(notices);
    attempt.files.clone_from(files);
    attempt.ended_processes = *ended_processes;
    attempt.usage = *usage;
    open.attempts_done.push(attempt.n);
}

fn model(attempt: &mut Attempt, record: &Record) {
    let event = &record.event;
    if let Event::ModelRequested { .. } = event {
        attempt.requests += 1;
    } else if let Event::ModelResponded { usage, usage_extra, .. } = event {
        // Counts until the attempt's own total is there, so that a killed run shows what it
        // cost.
        attempt.usage += *usage;
        attempt.last_response = Some(*usage);
        for (name, value) in usage_extra {
            let sum = attempt.usage_extra.get(name).and_then(Value::as_u64).zip(value.as_u64());
            let value = match sum {
                Some((left, right)) => Value::from(left.saturating_add(right)),
                None => value.clone(),
            };
            attempt.usage_extra.insert(name.clone(), value);
        }
    } else if let Event::ModelWaited { wait_ms, .. } = event {
        attempt.waited_ms = attempt.waited_ms.saturating_add(*wait_ms);
    } else if let Event::ModelFailed { r#try, kind, status, message, retried } = event {
        attempt.faults.push(Fault {
            step: record.step,
            r#try: *r#try,
            kind: kind.clone(),
            status: *status,
            message: message.clone(),
            retried: *retried,
        });
    }
}

/// The call that `record` belongs to, made known if need be.
fn call_mut<'a>(attempt: &'a mut Attempt, record: &Record) -> &'a mut Call {
    let id = record.call.as_deref().unwrap_or("call-unknown");
    // From the end: an event belongs to one of the latest calls.
    let at = attempt.calls.iter().rposition(|call| call.id == id).unwrap_or_else(|| {
        attempt.calls.push(Call {
            id: id.to_owned(),
            step: record.step,
            tool: "unknown".to_owned(),
            status: INCOMPLETE.to_owned(),
            ..Call::default()
        });
        attempt.calls.len() - 1
    });
    &mut attempt.calls[at]
}

fn call(call: &mut Call, record: &Record, blobs: &dyn Blobs) {
    let event = &record.event;
    if let Event::CallProposed { tool, name, input, blob, .. } = event {
        call.tool.clone_from(tool);
        call.name.clone_from(name);
        call.input = match (input, blob) {
            (Some(input), _) => clean::middle(input, EXCERPT),
            (None, Some(blob)) => excerpt(blobs, blob, EXCERPT),
            (None, None) => String::new(),
        };
    } else if let Event::CallJudged { decision, requirement, reason, rules, opaque, .. } = event {
        call.decision = Some(decision.clone());
        call.requirement = Some(requirement.clone());
        call.judged = Some(reason.clone());
        call.rules.clone_from(rules);
        call.opaque.clone_from(opaque);
    } else if let Event::CallCleared { by } = event {
        call.cleared_by = Some(by.clone());
    } else if let Event::CallRefused { by, reason } = event {
        call.refused = Some(Refused { by: by.clone(), reason: reason.clone() });
    } else if let Event::CallConfined { tier, mode, network } = event {
        call.confined =
            Some(Confinement { tier: tier.clone(), mode: mode.clone(), network: network.clone() });
    }
}

fn process_started(open: &mut Open, record: &Record) {
    let Event::ProcessStarted { role, argv, cwd, by, session, .. } = &record.event else { return };
    open.processes.push(OpenProcess {
        attempt: record.attempt,
        call: record.call.clone(),
        is_ended: false,
        process: Process {
            role: role.clone(),
            argv: argv.iter().map(|word| clean::middle(word, EXCERPT)).collect(),
            cwd: cwd.clone(),
            by: by.clone(),
            session: *session,
            ..Process::default()
        },
    });
}

/// Finds the process that ended: by its session id, which is unique in an attempt; else it is the
/// one that started last in the same scope.
fn process_ended(open: &mut Open, record: &Record) {
    let Event::ProcessEnded {
        session,
        pid: _,
        exit_code,
        signal,
        cause,
        wall_ms,
        cpu_ms,
        output_bytes,
        log,
        survivors,
    } = &record.event
    else {
        return;
    };
    let found = open.processes.iter_mut().rev().find(|candidate| {
        !candidate.is_ended
            && match session {
                Some(_) => {
                    candidate.process.session == *session && candidate.attempt == record.attempt
                }
                None => candidate.process.session.is_none() && candidate.call == record.call,
            }
    });
    let Some(found) = found else { return };
    found.is_ended = true;
    let process = &mut found.process;
    process.cause = Some(cause.clone());
    process.exit_code = *exit_code;
    process.signal = *signal;
    process.wall_ms = *wall_ms;
    process.cpu_ms = *cpu_ms;
    process.output_bytes = *output_bytes;
    process.log.clone_from(log);
    process.survivors = *survivors;
}

fn patch(record: &Record, blobs: &dyn Blobs) -> Option<Patch> {
    let mut patch = Patch { call: record.call.clone(), ..Patch::default() };
    let shown = if let Event::PatchApplied { number, files, text: _, diff } = &record.event {
        patch.number = *number;
        patch.applied = true;
        patch.files.clone_from(files);
        diff
    } else if let Event::PatchRefused { number, reason, text } = &record.event {
        patch.number = *number;
        patch.reason = Some(reason.clone());
        text
    } else {
        return None;
    };
    patch.diff = excerpt(blobs, shown, EXCERPT);
    patch.diff_bytes = shown.bytes;
    Some(patch)
}

fn check(task: &mut Task, record: &Record, blobs: &dyn Blobs) {
    let (Event::CheckStarted { id, phase, .. } | Event::CheckCompleted { id, phase, .. }) =
        &record.event
    else {
        return;
    };
    let is_baseline = phase == "before";
    let n = if is_baseline { None } else { Some(attempt_mut(task, record.attempt).n) };
    let checks = match n {
        None => &mut task.baselines,
        Some(_) => &mut attempt_mut(task, n).checks,
    };
    if matches!(record.event, Event::CheckStarted { .. }) || open_check(checks, id, phase).is_none()
    {
        checks.push(Check {
            id: id.clone(),
            attempt: n,
            phase: phase.clone(),
            outcome: INCOMPLETE.to_owned(),
            required: true,
            ..Check::default()
        });
    }
    let Some(check) = open_check(checks, id, phase) else { return };
    if let Event::CheckStarted { tree, line, .. } = &record.event {
        check.tree.clone_from(tree);
        check.line = *line;
    }
    if let Event::CheckCompleted {
        outcome,
        expected,
        required,
        exit_code,
        tries,
        wall_ms,
        log,
        ..
    } = &record.event
    {
        check.outcome.clone_from(outcome);
        check.expected = *expected;
        check.required = *required;
        check.exit_code = *exit_code;
        check.tries = *tries;
        check.wall_ms = *wall_ms;
        check.log = excerpt(blobs, log, LOG_EXCERPT);
        check.log_blob = Some(log.clone());
    }
}

fn limits(attempt: &mut Attempt, (limit, used, of): (&str, f64, f64), exhausted: bool) {
    attempt.limits.retain(|known| known.limit != limit);
    attempt.limits.push(Limit { limit: limit.to_owned(), used, of, exhausted });
}
