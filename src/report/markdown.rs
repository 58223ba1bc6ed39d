//! `summary.md`: the report for the summary of a CI step.
//!
//! In: a report. Out: Markdown in which everything that a model or a tool wrote is code, so that
//! it can hold no images, links, mentions or HTML. Pure.

use std::fmt::Write as _;

use super::clean::{code_block, code_span, count, middle};
use super::fold;
use super::shape::{Check, Report, Task};

/// Bytes of a text inside a table or a list.
const SPAN: usize = 300;

/// Bytes of a final message; a step's summary may have 1 MiB in all.
const MESSAGE: usize = 4 << 10;

/// Bytes of a red check's log.
const LOG: usize = 2 << 10;

/// Files listed for a task.
const FILES: usize = 50;

/// Denials listed for a task.
const DENIALS: usize = 20;

/// Bytes of the whole summary; a reader drops one of more than 1 MiB.
const WHOLE: usize = 900 << 10;

/// Renders `report`.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    head(&mut out, report);
    table(&mut out, report);
    let mut left_out = 0;
    for task in report.tasks.iter().filter(|task| task.outcome != fold::SKIPPED) {
        let section = section(report, task);
        if out.len() + section.len() > WHOLE {
            left_out += 1;
        } else {
            out.push_str(&section);
        }
    }
    if left_out > 0 {
        put(&mut out, &format!("\n{left_out} more tasks are left out here; see `report.json`."));
    }
    out
}

fn put(out: &mut String, line: &str) {
    out.push_str(line);
    out.push('\n');
}

fn head(out: &mut String, report: &Report) {
    let mark = if report.is_done() { "✅" } else { "❌" };
    let status = match report.exit {
        Some(exit) => format!("{} (exit {exit})", known(&report.outcome)),
        None => "incomplete".to_owned(),
    };
    put(out, &format!("## {mark} {}: {status}\n", code_span(&report.name, SPAN)));
    if let Some(error) = &report.error {
        put(out, &format!("**{}**: {}\n", known(&error.kind), code_span(&error.message, SPAN)));
        if let Some(hint) = &error.hint {
            put(out, &format!("Hint: {}\n", code_span(hint, SPAN)));
        }
    }
    let totals = &report.totals;
    let mut counts = vec![format!("{} of {} done", totals.passed, count(totals.tasks, "task"))];
    for (number, what) in [
        (totals.failed, "failed"),
        (totals.warned, "failed without counting"),
        (totals.skipped, "skipped"),
        (totals.incomplete, "incomplete"),
    ] {
        if number > 0 {
            counts.push(format!("{number} {what}"));
        }
    }
    if totals.denied > 0 {
        counts.push(format!("{} denied", count(totals.denied, "call")));
    }
    counts.push(count(totals.steps, "step"));
    counts.push(count(totals.calls, "call"));
    counts.push(tokens(report.usage.input_tokens, report.usage.output_tokens));
    counts.extend(report.usd.map(dollars));
    counts.push(seconds(report.wall_ms));
    put(out, &format!("{}. Run {}.\n", counts.join(", "), code_span(&report.run, SPAN)));
    for notice in &report.notices {
        put(out, &format!("- {}", code_span(notice, SPAN)));
    }
    if !report.notices.is_empty() {
        out.push('\n');
    }
}

fn table(out: &mut String, report: &Report) {
    put(out, "| task | verdict | reason | checks | changes | usage |");
    put(out, "|---|---|---|---|---|---|");
    for task in &report.tasks {
        put(
            out,
            &format!(
                "| {} | {} | {} | {} | {} | {} |",
                code_span(&task.id, SPAN),
                verdict(task),
                code_span(&task.reason, SPAN),
                checks(task),
                changes(task),
                usage(task),
            ),
        );
    }
}

fn verdict(task: &Task) -> String {
    let mark = match task.exit {
        Some(0) => "✅",
        None if task.outcome == fold::SKIPPED => "⏭️",
        Some(_) if !task.counts => "⚠️",
        Some(_) | None => "❌",
    };
    format!("{mark} {}", known(&task.outcome))
}

/// A word from a closed list of ours, in case the transcript is not ours: letters, digits, `-._`.
fn known(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) && !word.contains("..") {
        word.to_owned()
    } else {
        code_span(word, SPAN)
    }
}

fn checks(task: &Task) -> String {
    if task.checks.is_empty() {
        return "–".to_owned();
    }
    let green = task.checks.iter().filter(|check| check.outcome == "passed").count();
    let red: Vec<String> = task
        .checks
        .iter()
        .filter(|check| check.outcome != "passed")
        .map(|check| code_span(&check.id, SPAN))
        .collect();
    let red = if red.is_empty() { String::new() } else { format!(", red: {}", red.join(", ")) };
    format!("{green} of {} green{red}", task.checks.len())
}

fn changes(task: &Task) -> String {
    if task.files.is_empty() {
        return "none".to_owned();
    }
    let (added, removed) = task.files.iter().fold((0_u64, 0_u64), |(added, removed), file| {
        (added.saturating_add(file.added), removed.saturating_add(file.removed))
    });
    format!("{}, +{added} −{removed}", count(task.files.len() as u64, "file"))
}

fn usage(task: &Task) -> String {
    let mut parts = vec![
        count(task.steps(), "step"),
        tokens(task.usage.input_tokens, task.usage.output_tokens),
    ];
    parts.extend(task.usd.map(dollars));
    parts.push(seconds(task.wall_ms));
    parts.join(", ")
}

fn tokens(input: u64, output: u64) -> String {
    format!("{input} + {output} tokens")
}

fn dollars(usd: f64) -> String {
    format!("{usd:.4} USD")
}

/// Milliseconds as seconds with one decimal.
fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1000, millis % 1000 / 100)
}

fn section(report: &Report, task: &Task) -> String {
    let mut out = String::new();
    put(&mut out, &format!("\n### {}\n", code_span(&task.id, SPAN)));
    let model = format!("{} / {}", task.provider, task.model);
    put(&mut out, &format!("- Model: {}", code_span(&model, SPAN)));
    put(&mut out, &format!("- Confinement: {}", code_span(&task.confinement(), 4 * SPAN)));
    put(&mut out, &format!("- Attempts: {}", task.attempts.len()));
    for notice in &task.notices {
        put(&mut out, &format!("- Note: {}", code_span(notice, SPAN)));
    }
    if let Some(patch) = &task.patch {
        let text = format!("- Patch: {}, {} bytes", code_span(&patch.path, SPAN), patch.bytes);
        put(&mut out, &text);
    }
    if !task.protected.is_empty() {
        let paths = code_span(&task.protected.join(", "), SPAN);
        put(&mut out, &format!("- Protected paths were touched: {paths}"));
    }
    files(&mut out, task);
    denials(&mut out, task);
    for check in task.baselines.iter().filter(|check| !check.expected) {
        red(&mut out, report, check, "Baseline");
    }
    for check in task.checks.iter().filter(|check| check.outcome != "passed") {
        red(&mut out, report, check, "Check");
    }
    if let Some(message) = task.final_message.as_ref().filter(|text| !text.trim().is_empty()) {
        put(&mut out, "\nFinal message:\n");
        out.push_str(&code_block(&middle(message, MESSAGE)));
    }
    out
}

fn files(out: &mut String, task: &Task) {
    for file in task.files.iter().take(FILES) {
        let to = file.to.as_ref().map(|to| format!(" → {}", code_span(to, SPAN)));
        put(
            out,
            &format!(
                "- {} {}{} +{} −{}",
                known(&file.kind),
                code_span(&file.path, SPAN),
                to.unwrap_or_default(),
                file.added,
                file.removed
            ),
        );
    }
    if task.files.len() > FILES {
        put(out, &format!("- and {} more files", task.files.len() - FILES));
    }
}

fn denials(out: &mut String, task: &Task) {
    let denials: Vec<_> = task.denials().collect();
    if denials.is_empty() {
        return;
    }
    put(out, &format!("\n{} denied:\n", count(denials.len() as u64, "call")));
    for (attempt, call, refused) in denials.iter().take(DENIALS) {
        put(
            out,
            &format!(
                "- attempt {} {} {} by {}: {}",
                attempt.n,
                code_span(&call.id, SPAN),
                code_span(&call.input, SPAN),
                known(&refused.by),
                code_span(&refused.reason, SPAN)
            ),
        );
    }
    if denials.len() > DENIALS {
        put(out, &format!("- and {} more", denials.len() - DENIALS));
    }
}

fn red(out: &mut String, report: &Report, check: &Check, what: &str) {
    let mut line = format!("\n{what} {} {}", code_span(&check.id, SPAN), known(&check.outcome));
    if let Some(code) = check.exit_code {
        // A string takes any write.
        let _ = write!(line, ", exit code {code}");
    }
    let place = format!("{}:{}", report.task_file(), check.line);
    put(out, &format!("{line} ({}):\n", code_span(&place, SPAN)));
    out.push_str(&code_block(&middle(&check.log, LOG)));
}
