//! `junit.xml`: the report as test cases, in the dialect that CI readers agree on.
//!
//! In: a report. Out: XML that the XSD of Jenkins' xunit plugin allows. Pure. Names hold nothing
//! that a model chose, so that dashboards can compare runs.

mod calls;
mod verdicts;

use junit_report::{Duration, OffsetDateTime, ReportBuilder, TestCase, TestResult, TestSuite};
use thiserror::Error;
use time::format_description::well_known::Rfc3339;

use super::shape::{Report, Task};
use super::{clean, fold};

/// Bytes kept of a case's text; readers have caps of their own.
const CASE_CAP: usize = 64 << 10;

/// Bytes kept of a message; readers show it in one line.
const MESSAGE_CAP: usize = 500;

/// The XML writer failed.
#[derive(Debug, Error)]
#[error("failed to write XML: {0}")]
pub struct JunitError(String);

/// Renders `report`.
///
/// # Errors
///
/// [`JunitError`] when the XML writer fails, which it doesn't do in memory.
pub fn render(report: &Report) -> Result<Vec<u8>, JunitError> {
    let mut builder = ReportBuilder::new();
    for task in &report.tasks {
        builder.add_testsuite(suite(report, task));
        if report.junit_detail != "verdict"
            && let Some(suite) = calls_suite(report, task)
        {
            builder.add_testsuite(suite);
        }
    }
    let mut xml = Vec::new();
    builder.build().write_xml(&mut xml).map_err(|error| JunitError(error.to_string()))?;
    xml.push(b'\n');
    Ok(xml)
}

fn suite(report: &Report, task: &Task) -> TestSuite {
    let cases = verdicts::cases(report, task);
    let mut suite = named_suite(&clean::line(&task.id, MESSAGE_CAP), report, task, cases);
    suite.set_system_out(&body(&properties(report, task)));
    suite
}

fn calls_suite(report: &Report, task: &Task) -> Option<TestSuite> {
    let cases = calls::cases(report, task);
    let name = format!("{} calls", clean::line(&task.id, MESSAGE_CAP));
    (!cases.is_empty()).then(|| named_suite(&name, report, task, cases))
}

fn named_suite(name: &str, report: &Report, task: &Task, cases: Vec<TestCase>) -> TestSuite {
    let started = task.started.as_ref().or(report.started.as_ref());
    let timestamp = started.and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok());
    let mut suite = TestSuite::new(name);
    suite.package = classname(report, task);
    suite.set_timestamp(timestamp.unwrap_or(OffsetDateTime::UNIX_EPOCH));
    suite.add_testcases(cases);
    settle_time(&mut suite);
    suite
}

/// The writer prints a suite's time as a binary fraction, and a few sums of milliseconds come out
/// with 16 decimals, which the XSD forbids; then the first case gets a millisecond more.
fn settle_time(suite: &mut TestSuite) {
    for _ in 0..10 {
        let text = suite.time().as_seconds_f64().to_string();
        let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        if decimals <= 3 {
            return;
        }
        if let Some(case) = suite.testcases.first_mut() {
            case.time += Duration::MILLISECOND;
        }
    }
}

/// `agent.RUN.TASK`; a dot inside a value would read as another level.
fn classname(report: &Report, task: &Task) -> String {
    let value = |text: &str| clean::line(text, MESSAGE_CAP).replace('.', "_");
    format!("agent.{}.{}", value(&report.name), value(&task.id))
}

/// What a case says.
enum Verdict {
    Passed,
    Skipped { kind: String, message: String },
    Failure { kind: String, message: String, text: String },
    Error { kind: String, message: String, text: String },
}

/// One case in the making.
struct Case {
    name: String,
    wall_ms: u64,
    verdict: Verdict,
    out: String,
}

impl Case {
    fn build(self, report: &Report, task: &Task) -> TestCase {
        let millis = i64::try_from(self.wall_ms.min(1 << 40)).unwrap_or_default();
        let mut case = TestCase::success(
            &clean::line(&self.name, MESSAGE_CAP),
            Duration::milliseconds(millis),
        );
        let line = |text: &str| clean::xml(&clean::line(text, MESSAGE_CAP));
        let cause = |text: &str| Some(body(text)).filter(|text| !text.is_empty());
        case.result = match self.verdict {
            Verdict::Passed => TestResult::Success,
            Verdict::Skipped { kind, message } => TestResult::SkippedWithCause {
                type_: line(&kind),
                message: line(&message),
                cause: None,
            },
            Verdict::Failure { kind, message, text } => TestResult::Failure {
                type_: line(&kind),
                message: line(&message),
                cause: cause(&text),
            },
            Verdict::Error { kind, message, text } => TestResult::Error {
                type_: line(&kind),
                message: line(&message),
                cause: cause(&text),
            },
        };
        case.set_classname(&classname(report, task));
        if !self.out.is_empty() {
            case.set_system_out(&body(&self.out));
        }
        case
    }
}

/// Text of an element: safe, and within the cap.
fn body(text: &str) -> String {
    clean::xml(&clean::middle(text, CASE_CAP))
}

/// What the XSD has no place for at a case: lines of `key=value`.
fn properties(report: &Report, task: &Task) -> String {
    let mut lines = Vec::new();
    let mut add = |key: &str, value: &str| {
        if !value.is_empty() {
            lines.push(format!("{key}={}", clean::line(value, MESSAGE_CAP)));
        }
    };
    add("run", &report.run);
    add("outcome", &task.outcome);
    add("attempts", &task.attempts.len().to_string());
    add("provider", &task.provider);
    add("model", &task.model);
    add("workspace", &task.workspace);
    add("base_commit", task.base_commit.as_deref().unwrap_or_default());
    add("confinement", &task.confinement());
    add("policy.denials", &task.denials().count().to_string());
    add("turns", &task.steps().to_string());
    add("input_tokens", &task.usage.input_tokens.to_string());
    add("cached_input_tokens", &task.usage.cached_input_tokens.to_string());
    add("output_tokens", &task.usage.output_tokens.to_string());
    add("usd", &task.usd.map(|usd| usd.to_string()).unwrap_or_default());
    if let Some(patch) = &task.patch {
        add("patch", &patch.path);
        add("patch_sha256", &patch.sha256);
    }
    for attempt in &task.attempts {
        let files = [&attempt.final_message, &attempt.output, &attempt.patch];
        for artifact in files.into_iter().flatten() {
            add("file", &artifact.path);
        }
    }
    lines.join("\n")
}

/// Where the task stands.
fn place(report: &Report, task: &Task) -> String {
    format!("at {}:{}", report.task_file(), task.line)
}

/// Whether a task never started.
fn is_skipped(task: &Task) -> bool {
    task.outcome == fold::SKIPPED
}

#[cfg(test)]
mod tests {
    use junit_report::{Duration, TestCase, TestSuite};

    use super::settle_time;

    #[test]
    fn a_suites_time_has_at_most_three_decimals() {
        for millis in (0..5_000).chain(1_000_000..1_001_000).chain([86_400_001]) {
            let mut suite = TestSuite::new("x");
            suite.add_testcase(TestCase::success("a", Duration::milliseconds(millis)));
            settle_time(&mut suite);
            let text = suite.time().as_seconds_f64().to_string();
            let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
            assert!(decimals <= 3, "{millis}: {text}");
            assert!((suite.time().whole_milliseconds() - i128::from(millis)).abs() < 3);
        }
    }
}
