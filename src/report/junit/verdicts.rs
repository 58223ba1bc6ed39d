//! The cases of a task's verdict: the task, its checks, policy, and what the result must be.

use junit_report::TestCase;

use super::{Case, Verdict, is_skipped, place};
use crate::report::clean::count;
use crate::report::shape::{Check, KIND_PATCH_SIZE, KIND_SCHEMA, Report, Task};

pub(super) fn cases(report: &Report, task: &Task) -> Vec<TestCase> {
    if is_skipped(task) {
        let verdict = Verdict::Skipped { kind: task.kind.clone(), message: task.reason.clone() };
        let case = Case { name: "task".to_owned(), wall_ms: 0, verdict, out: String::new() };
        return vec![case.build(report, task)];
    }
    let mut cases = vec![whole(report, task).build(report, task)];
    for check in &task.baselines {
        let name = format!("baseline {}", check.id);
        let verdict = baseline(report, check);
        let case = Case { name, wall_ms: check.wall_ms, verdict, out: check.log.clone() };
        cases.push(case.build(report, task));
    }
    for check in &task.checks {
        let name = format!("check {}", check.id);
        let verdict = final_check(report, check);
        let out = earlier(task, check);
        cases.push(Case { name, wall_ms: check.wall_ms, verdict, out }.build(report, task));
    }
    for case in [policy(report, task), protected(report, task), patch_size(report, task)] {
        cases.push(case.build(report, task));
    }
    cases.extend(output_schema(report, task).map(|case| case.build(report, task)));
    cases
}

/// The overall verdict. Its time is what the task's checks leave, so that the suite's time is the
/// task's.
fn whole(report: &Report, task: &Task) -> Case {
    let checks = task.checks.iter().chain(&task.baselines);
    let of_checks = checks.fold(0_u64, |sum, check| sum.saturating_add(check.wall_ms));
    let (kind, message) = (task.kind.clone(), task.reason.clone());
    let verdict = if task.is_done() {
        Verdict::Passed
    } else if task.is_error() {
        Verdict::Error { kind, message, text: why(report, task) }
    } else {
        Verdict::Failure { kind, message, text: why(report, task) }
    };
    let wall_ms = task.wall_ms.saturating_sub(of_checks);
    Case { name: "task".to_owned(), wall_ms, verdict, out: story(task) }
}

/// Why a task isn't done.
fn why(report: &Report, task: &Task) -> String {
    let mut lines = vec![task.reason.clone(), place(report, task)];
    if !task.counts {
        lines.push("this failure doesn't count towards the exit status".to_owned());
    }
    for check in task.checks.iter().filter(|check| check.outcome != "passed") {
        lines.push(format!("check {}: {}", check.id, how(check)));
    }
    for attempt in &task.attempts {
        for fault in attempt.faults.iter().filter(|fault| !fault.retried) {
            lines.push(format!("attempt {}: {}: {}", attempt.n, fault.kind, fault.message));
        }
    }
    for command in task.commands.iter().filter(|command| command.exit_code != Some(0)) {
        lines.push(format!(
            "{} command {}: {}",
            command.role,
            command.argv.join(" "),
            match (command.exit_code, command.signal) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "no end recorded".to_owned(),
            }
        ));
    }
    lines.join("\n")
}

/// What happened, attempt by attempt, and the final message.
fn story(task: &Task) -> String {
    let mut lines: Vec<String> = task
        .attempts
        .iter()
        .map(|attempt| {
            format!(
                "attempt {}: {}, {}, patches {}; ended by {}; checks {}{}",
                attempt.n,
                count(attempt.steps, "step"),
                count(attempt.calls.len() as u64, "call"),
                attempt.patches.len(),
                attempt.end,
                attempt.verdict,
                if attempt.reason.is_empty() {
                    String::new()
                } else {
                    format!(": {}", attempt.reason)
                },
            )
        })
        .collect();
    for file in &task.files {
        let to = file.to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
        lines.push(format!("{} {}{to} +{} -{}", file.kind, file.path, file.added, file.removed));
    }
    if let Some(message) = &task.final_message {
        lines.push(format!("final message:\n{message}"));
    }
    lines.join("\n")
}

fn baseline(report: &Report, check: &Check) -> Verdict {
    if check.expected {
        return Verdict::Passed;
    }
    let message = match check.outcome.as_str() {
        crate::report::fold::INCOMPLETE => "the transcript stops before its end".to_owned(),
        outcome => format!("{outcome} on the base, which the task doesn't expect"),
    };
    failed(report, check, "baseline", message)
}

fn final_check(report: &Report, check: &Check) -> Verdict {
    match check.outcome.as_str() {
        "passed" => Verdict::Passed,
        crate::report::fold::INCOMPLETE => Verdict::Error {
            kind: check.outcome.clone(),
            message: "the transcript stops before its end".to_owned(),
            text: check.log.clone(),
        },
        // It doesn't decide the verdict, so it must not turn a green run's report red.
        _ if !check.required => Verdict::Skipped {
            kind: "not-required".to_owned(),
            message: format!("{}; the check isn't required", how(check)),
        },
        _ => failed(report, check, "checks", how(check)),
    }
}

fn failed(report: &Report, check: &Check, kind: &str, message: String) -> Verdict {
    let text = format!("{message}\nat {}:{}\n{}", report.task_file(), check.line, check.log);
    Verdict::Failure { kind: kind.to_owned(), message, text }
}

fn how(check: &Check) -> String {
    let code = check.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
    let tries =
        if check.tries > 1 { format!(" after {} tries", check.tries) } else { String::new() };
    format!("{}{code}{tries}", check.outcome)
}

/// Red verdicts of the same check in earlier attempts, then the log of a green one.
fn earlier(task: &Task, last: &Check) -> String {
    let mut parts: Vec<String> = task
        .attempts
        .iter()
        .flat_map(|attempt| &attempt.checks)
        .filter(|check| check.id == last.id && check.phase == "final" && *check != last)
        .filter(|check| check.outcome != "passed")
        .map(|check| {
            let n = check.attempt.unwrap_or_default();
            format!("attempt {n}: {}\n{}", how(check), check.log)
        })
        .collect();
    if last.outcome == "passed" || !last.required {
        parts.push(last.log.clone());
    }
    parts.join("\n")
}

fn policy(report: &Report, task: &Task) -> Case {
    let denials: Vec<String> = task
        .denials()
        .map(|(attempt, call, refused)| {
            let rules: Vec<&str> = call
                .rules
                .iter()
                .filter(|rule| rule.decision != "allow")
                .map(|rule| rule.rule.as_str())
                .collect();
            let rules =
                if rules.is_empty() { String::new() } else { format!(" ({})", rules.join(", ")) };
            format!(
                "attempt {} {} {}: denied by {}{rules}: {}",
                attempt.n, call.id, call.tool, refused.by, refused.reason
            )
        })
        .collect();
    let out = denials.join("\n");
    let message = if task.exit == Some(11) {
        Some(task.reason.clone())
    } else if task.protected.is_empty() {
        None
    } else {
        Some(format!("the result touches protected paths: {}", task.protected.join(", ")))
    };
    let verdict = match message {
        None => Verdict::Passed,
        Some(message) => Verdict::Failure {
            kind: "policy.denied".to_owned(),
            text: format!("{message}\n{}\n{out}", place(report, task)),
            message,
        },
    };
    Case { name: "policy".to_owned(), wall_ms: 0, verdict, out }
}

fn protected(report: &Report, task: &Task) -> Case {
    let verdict = if task.protected.is_empty() {
        Verdict::Passed
    } else {
        Verdict::Failure {
            kind: "protected".to_owned(),
            message: format!("touched: {}", count(task.protected.len() as u64, "protected path")),
            text: format!("{}\n{}", task.protected.join("\n"), place(report, task)),
        }
    };
    Case { name: "protected paths".to_owned(), wall_ms: 0, verdict, out: String::new() }
}

fn patch_size(report: &Report, task: &Task) -> Case {
    let verdict = if task.kind == KIND_PATCH_SIZE {
        Verdict::Failure {
            kind: KIND_PATCH_SIZE.to_owned(),
            message: task.reason.clone(),
            text: place(report, task),
        }
    } else {
        Verdict::Passed
    };
    let size = task.patch.as_ref().map_or(0, |patch| patch.bytes);
    Case { name: "patch size".to_owned(), wall_ms: 0, verdict, out: format!("{size} bytes") }
}

/// Only a task that has a schema has the case: it shows by a validated output, or by the breach.
fn output_schema(report: &Report, task: &Task) -> Option<Case> {
    let output = task.attempts.last().and_then(|attempt| attempt.output.as_ref());
    let (verdict, out) = if task.kind == KIND_SCHEMA {
        let verdict = Verdict::Failure {
            kind: KIND_SCHEMA.to_owned(),
            message: task.reason.clone(),
            text: place(report, task),
        };
        (verdict, task.final_message.clone().unwrap_or_default())
    } else {
        (Verdict::Passed, output?.path.clone())
    };
    Some(Case { name: "output schema".to_owned(), wall_ms: 0, verdict, out })
}
