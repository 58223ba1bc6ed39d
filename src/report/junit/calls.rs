//! The cases of a task's work: one for each tool call and each patch, in order.

use junit_report::TestCase;

use super::{Case, Verdict};
use crate::report::fold::INCOMPLETE;
use crate::report::shape::{Attempt, Call, Patch, Report, Task};

pub(super) fn cases(report: &Report, task: &Task) -> Vec<TestCase> {
    let mut cases = Vec::new();
    let mut add = |case: Case| cases.push(case.build(report, task));
    for attempt in &task.attempts {
        let prefix = prefix(attempt);
        let is_of = |patch: &&Patch, call: &Call| patch.call.as_ref() == Some(&call.id);
        for call in &attempt.calls {
            add(of_call(&prefix, call));
            for patch in attempt.patches.iter().filter(|patch| is_of(patch, call)) {
                add(of_patch(&prefix, patch));
            }
        }
        let is_stray = |patch: &&Patch| !attempt.calls.iter().any(|call| is_of(patch, call));
        for patch in attempt.patches.iter().filter(is_stray) {
            add(of_patch(&prefix, patch));
        }
    }
    cases
}

/// Numbers count from 1 in each attempt, and names must not repeat: readers keep the first only.
fn prefix(attempt: &Attempt) -> String {
    if attempt.n == 1 { String::new() } else { format!("attempt {} ", attempt.n) }
}

fn of_call(prefix: &str, call: &Call) -> Case {
    let number = call.id.strip_prefix("call-").unwrap_or(&call.id);
    let name = format!("{prefix}call {number} {}", call.tool);
    let verdict = if let Some(refused) = &call.refused {
        Verdict::Skipped { kind: "denied".to_owned(), message: refused.reason.clone() }
    } else {
        match call.status.as_str() {
            "fault" => Verdict::Error {
                kind: "fault".to_owned(),
                message: "the tool failed by a fault of the runner".to_owned(),
                text: call.output.clone(),
            },
            INCOMPLETE => Verdict::Error {
                kind: INCOMPLETE.to_owned(),
                message: "the transcript stops before its end".to_owned(),
                text: String::new(),
            },
            // A command that ended red is work, not a red test.
            _ => Verdict::Passed,
        }
    };
    Case { name, wall_ms: call.wall_ms, verdict, out: call_text(call) }
}

fn call_text(call: &Call) -> String {
    let mut lines = vec![format!("status: {}", status(call))];
    if call.name != call.tool {
        lines.push(format!("called as: {}", call.name));
    }
    lines.push(format!("input: {}", call.input));
    if let Some(decision) = &call.decision {
        let reason = call.judged.as_deref().unwrap_or_default();
        lines.push(format!("decision: {decision}: {reason}"));
    }
    for rule in &call.rules {
        let why = rule.justification.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        lines.push(format!(
            "rule: {} {} matched {}{why}",
            rule.rule,
            rule.decision,
            rule.matched.join(" ")
        ));
    }
    if let Some(opaque) = &call.opaque {
        lines.push(format!("opaque: {opaque}"));
    }
    if let Some(by) = &call.cleared_by {
        lines.push(format!("cleared by: {by}"));
    }
    if let Some(refused) = &call.refused {
        lines.push(format!("refused by {}: {}", refused.by, refused.reason));
    }
    if let Some(confined) = &call.confined {
        let (tier, mode, network) = (&confined.tier, &confined.mode, &confined.network);
        lines.push(format!("confinement: {tier}, {mode}, network {network}"));
    }
    if let Some(log) = &call.log {
        lines.push(format!("log: {} ({} bytes)", log.path, log.bytes));
    }
    lines.push(format!("output ({} bytes):\n{}", call.output_bytes, call.output));
    lines.join("\n")
}

fn status(call: &Call) -> String {
    let code = call.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
    let signal = call.signal.map(|signal| format!(", signal {signal}")).unwrap_or_default();
    format!("{}{code}{signal}, {} ms", call.status, call.wall_ms)
}

fn of_patch(prefix: &str, patch: &Patch) -> Case {
    let name = format!("{prefix}patch {:03}", patch.number);
    let mut lines = Vec::new();
    match &patch.reason {
        Some(reason) => lines.push(format!("not written: {reason}")),
        None => lines.push("written".to_owned()),
    }
    for file in &patch.files {
        let to = file.to.as_ref().map(|to| format!(" to {to}")).unwrap_or_default();
        let hunks = if file.hunks.is_empty() {
            String::new()
        } else {
            format!(" ({})", file.hunks.join(", "))
        };
        lines.push(format!(
            "{} {}{to} +{} -{}{hunks}",
            file.kind, file.path, file.added, file.removed
        ));
    }
    lines.push(patch.diff.clone());
    Case { name, wall_ms: 0, verdict: Verdict::Passed, out: lines.join("\n") }
}
