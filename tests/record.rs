//! The record and its reports, on hand-made runs: whole, hostile, and killed after each line.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test reports")]
#![expect(clippy::disallowed_methods, reason = "a test starts xmllint by itself")]
#![expect(clippy::print_stderr, reason = "what is skipped must be told")]

#[path = "record/build.rs"]
mod build;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use build::{HOSTILE, Run, green, hostile, usage};
use horseman::plan::Reports;
use horseman::report::{self, Format, Progress, progress::Grouping, write_all};
use horseman::transcript::event::{Blob, Record};
use horseman::transcript::mask::mask;
use horseman::transcript::{self, BlobFolder, Blobs as _, verify};
use proptest::prelude::{ProptestConfig, any, prop};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

fn package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Holds `text` to the golden file `name`; `UPDATE=1` writes it instead, but never where `CI` is
/// set.
fn golden(name: &str, text: &[u8]) {
    let path = package("tests/golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        assert!(std::env::var_os("CI").is_none(), "`UPDATE` is refused where `CI` is set");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read(&path).unwrap_or_default();
    let (found, expected) = (String::from_utf8_lossy(text), String::from_utf8_lossy(&expected));
    assert!(found == expected, "{name} differs; look at it with UPDATE=1 and git diff");
}

/// Validates XML files against our schema, and against the one that `JUNIT_XSD` names. Skipped
/// without `xmllint`, unless `REQUIRE=all`.
fn validate(files: &[PathBuf]) {
    let mut schemas = vec![package("tests/record/junit.xsd")];
    schemas.extend(std::env::var_os("JUNIT_XSD").map(PathBuf::from));
    for schema in schemas {
        let run = Command::new("xmllint")
            .args(["--noout", "--nonet", "--schema"])
            .arg(&schema)
            .args(files)
            .output();
        match run {
            Ok(run) => {
                let told = String::from_utf8_lossy(&run.stderr);
                assert!(run.status.success(), "{}: {told}", schema.display());
            }
            Err(error) => {
                let required = std::env::var("REQUIRE").is_ok_and(|what| what == "all");
                assert!(!required, "xmllint can't be started: {error}");
                eprintln!("ignored: xmllint can't be started: {error}");
            }
        }
    }
}

/// All files below `dir` with their bytes.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

fn progress(run: &Run, grouping: Grouping) -> String {
    let mut progress = Progress::new(grouping);
    run.lines.iter().map(|line| progress.take(&serde_json::from_str(line).unwrap())).collect()
}

fn check_golden(name: &str, run: &Run) {
    verify(run.path()).unwrap();
    let report = write_all(run.path(), &Reports::default()).unwrap();
    for format in Format::ALL {
        let bytes = fs::read(run.path().join(format.file())).unwrap();
        assert_eq!(report::render(run.path(), format).unwrap(), bytes, "{}", format.name());
        golden(&format!("{name}/{}", format.file()), &bytes);
    }
    golden(&format!("{name}/progress.txt"), progress(run, Grouping::Folds).as_bytes());
    validate(&[run.path().join("junit.xml")]);
    let json: Value =
        serde_json::from_slice(&fs::read(run.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(json, serde_json::to_value(&report).unwrap());
}

#[test]
fn a_green_run_renders_as_committed() {
    check_golden("green", &green());
}

#[test]
fn a_hostile_run_renders_as_committed() {
    check_golden("hostile", &hostile());
}

#[test]
fn reports_and_lines_hold_to_the_published_schemas() {
    let of_report = jsonschema::validator_for(&serde_json::from_str(&report::schema()).unwrap());
    let of_line = jsonschema::validator_for(&serde_json::from_str(&transcript::schema()).unwrap());
    let (of_report, of_line) = (of_report.unwrap(), of_line.unwrap());
    for run in [green(), hostile()] {
        for count in 0..=run.lines.len() {
            run.write(count);
            let json = report::render(run.path(), Format::Json).unwrap();
            let json: Value = serde_json::from_slice(&json).unwrap();
            let complaints: Vec<_> = of_report.iter_errors(&json).map(|e| e.to_string()).collect();
            assert!(complaints.is_empty(), "{count}: {complaints:?}");
        }
        for line in &run.lines {
            assert!(of_line.is_valid(&serde_json::from_str(line).unwrap()), "{line}");
        }
    }
    assert!(!of_line.is_valid(&json!({ "v": 1 })));
}

#[test]
fn p4_a_run_killed_after_any_line_has_all_reports() {
    let run = green();
    let whole = fs::read(run.path().join("transcript.jsonl")).unwrap();
    let keep = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    let mut calls = 0;
    for count in 0..run.lines.len() {
        let end: usize = run.lines[..count].iter().map(|line| line.len() + 1).sum();
        // The next line is torn in its middle.
        let torn = end + run.lines[count].len() / 2;
        fs::write(run.path().join("transcript.jsonl"), &whole[..torn]).unwrap();
        assert!(verify(run.path()).unwrap().torn);
        let report = write_all(run.path(), &Reports::default()).unwrap();
        assert_eq!((report.exit, report.outcome.as_str()), (None, "incomplete"), "{count}");
        let error = report.error.unwrap();
        assert_eq!(error.kind, "incomplete");
        assert!(error.message.contains(&format!("after line {count}:")), "{}", error.message);
        // What was there stays there.
        assert!(report.totals.calls >= calls, "{count}");
        calls = report.totals.calls;
        let file = keep.path().join(format!("{count}.xml"));
        fs::copy(run.path().join("junit.xml"), &file).unwrap();
        files.push(file);
    }
    assert_eq!(calls, 3);
    validate(&files);
}

#[test]
fn writing_again_gives_the_same_bytes() {
    let run = green();
    write_all(run.path(), &Reports::default()).unwrap();
    let first = tree(run.path());
    for name in [
        "report.json",
        "junit.xml",
        "summary.md",
        "tasks/fix/attempt-1/patch.diff",
        "tasks/fix/attempt-2/final-message.md",
        "tasks/fix/attempt-1/calls/call-001.log",
        "tasks/fix/attempt-1/calls/call-002.log",
        "tasks/fix/attempt-2/calls/call-001.log",
    ] {
        assert!(first.contains_key(name), "{name} is missing");
    }
    // The log is what the command wrote, not what the model read of it.
    assert_eq!(first["tasks/fix/attempt-1/calls/call-001.log"], b"error: 1 failed\n");
    write_all(run.path(), &Reports::default()).unwrap();
    assert_eq!(first, tree(run.path()));
}

#[test]
fn copies_go_where_the_task_wants_them() {
    let run = green();
    let out = tempfile::tempdir().unwrap();
    let copies = Reports {
        junit: Some(out.path().join("a/junit.xml")),
        markdown: Some(out.path().join("summary.md")),
        events: Some(out.path().join("events.jsonl")),
        junit_trace: true,
    };
    write_all(run.path(), &copies).unwrap();
    let copied = tree(out.path());
    assert_eq!(copied.len(), 3);
    for (name, original) in [
        ("a/junit.xml", "junit.xml"),
        ("summary.md", "summary.md"),
        ("events.jsonl", "transcript.jsonl"),
    ] {
        assert_eq!(copied[name], fs::read(run.path().join(original)).unwrap(), "{name}");
    }
}

#[test]
fn hostile_text_is_shown_as_text() {
    let run = hostile();
    write_all(run.path(), &Reports::default()).unwrap();
    let xml = fs::read_to_string(run.path().join("junit.xml")).unwrap();
    for lacks in ["\u{1b}", "\0", "\u{7}", "[[ATTACHMENT|", "[[PROPERTY|", "\u{fffe}", "\u{202e}"] {
        assert!(!xml.contains(lacks), "{lacks:?}");
    }
    // Nothing that the model chose is in a name.
    for name in xml.split(" name=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        assert!(!name.contains("error"), "{name}");
    }
    let summary = fs::read_to_string(run.path().join("summary.md")).unwrap();
    for (number, line) in outside_code(&summary) {
        for lacks in ["<", "![", "](", "http", "@someone", "::"] {
            assert!(!line.contains(lacks), "{number}: {line}");
        }
    }
    for grouping in [Grouping::Prefix, Grouping::Folds] {
        for line in progress(&run, grouping).lines() {
            let line = line.trim_start();
            let is_ours = line == "::endgroup::" || line == "::group::fix";
            assert!(is_ours || !line.starts_with("::"), "{line}");
            assert!(!line.contains("##[") && !line.contains('\u{1b}'), "{line}");
        }
    }
    assert!(HOSTILE.contains("::error::"));
}

/// The text of a summary that is Markdown and not code, line by line.
fn outside_code(text: &str) -> Vec<(usize, String)> {
    let mut fence: Option<String> = None;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let ticks: String = line.chars().take_while(|c| *c == '`').collect();
        match &fence {
            Some(open) if line == *open => fence = None,
            Some(_) => {}
            None if ticks.len() >= 3 && line.ends_with("text") => fence = Some(ticks),
            None => lines.push((index + 1, outside_spans(line))),
        }
    }
    assert_eq!(fence, None, "a block stays open");
    lines
}

fn outside_spans(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('`') {
        out.push_str(&rest[..at]);
        let ticks = rest[at..].chars().take_while(|c| *c == '`').count();
        let body = &rest[at + ticks..];
        let close = format!(" {}", "`".repeat(ticks));
        let end = body.find(&close).unwrap_or_else(|| panic!("a span stays open: {line}"));
        rest = &body[end + close.len()..];
    }
    out + rest
}

#[test]
fn what_was_used_is_known_without_an_end() {
    // Public reports: usage and cost are lost when a run is stopped from outside.
    let mut run = Run::new();
    run.started(&["a", "b"]).task_started("a", 1).attempt(1).step(1);
    run.responded(100, 10).step(2).responded(50, 5);
    run.write(run.lines.len());
    let report = report::write::report(run.path()).unwrap();
    assert_eq!(json!(report.usage), {
        let mut sum = usage(150, 15);
        sum["reasoning_output_tokens"] = json!(3);
        sum
    });
    let attempt = &report.tasks[0].attempts[0];
    assert_eq!(attempt.last_response.unwrap().input_tokens, 50);
    assert_eq!(attempt.usage_extra["audio_tokens"], 4);
    assert_eq!((report.totals.incomplete, report.totals.skipped), (1, 1));
    // A price that isn't known is null, not 0.
    assert_eq!(report.usd, None);
}

#[test]
fn a_provider_outage_is_an_error_with_its_kind_and_no_message() {
    let mut run = Run::new();
    run.started(&["a"]).task_started("a", 1).attempt(1).step(1);
    run.add(
        "model.failed",
        json!({
            "try": 1, "kind": "auth", "status": 401, "message": "wrong key", "retried": false,
        }),
    );
    run.attempt(1).add(
        "attempt.completed",
        json!({
            "end": "provider", "reason": "auth", "verdict": "not-run", "files": [],
            "ended_processes": 0, "usage": usage(0, 0),
        }),
    );
    run.task("a").add(
        "task.completed",
        json!({
            "exit": 14, "outcome": "provider", "reason": "auth: wrong key", "kind": "auth",
            "attempts": 1, "files": [], "protected": [], "counts": true, "usage": usage(0, 0),
        }),
    );
    run.done(14, "provider");
    let report = write_all(run.path(), &Reports::default()).unwrap();
    let error = report.error.unwrap();
    assert_eq!(
        (error.kind.as_str(), error.message.as_str()),
        ("auth", "task `a`: auth: wrong key")
    );
    assert_eq!(error.hint.as_deref(), Some("check `api_key` of provider `script`"));
    assert_eq!(report.tasks[0].final_message, None);
    let xml = fs::read_to_string(run.path().join("junit.xml")).unwrap();
    assert!(xml.contains("<error type=\"auth\" message=\"auth: wrong key\">"), "{xml}");
    assert!(!xml.contains("<failure"), "{xml}");
}

#[test]
fn a_failure_that_does_not_count_is_red_and_a_signal_is_named() {
    let mut run = Run::new();
    run.started(&["a"]).task_started("a", 1).attempt(1);
    run.attempt_done("failed", "x").task_done((10, "not-done"), "no-change", "nothing changed");
    let last = run.lines.pop().unwrap();
    let event = serde_json::from_str::<Value>(&last).unwrap()["event"].take();
    let mut event = event.as_object().unwrap().clone();
    event.shift_remove("type");
    event.insert("counts".into(), json!(false));
    run.add("task.completed", Value::Object(event));
    run.outside().add(
        "run.completed",
        json!({
            "exit": 143, "outcome": "terminated", "signal": "SIGTERM", "usage": usage(1, 1),
        }),
    );
    run.write(run.lines.len());
    let report = write_all(run.path(), &Reports::default()).unwrap();
    assert_eq!((report.totals.warned, report.totals.failed), (1, 0));
    assert_eq!(report.error.unwrap().message, "the run was ended by SIGTERM");
    let xml = fs::read_to_string(run.path().join("junit.xml")).unwrap();
    assert!(xml.contains("<failure type=\"no-change\" message=\"nothing changed\">"), "{xml}");
}

/// Runs one task to its end with `change` on top of a plain `task.completed`; returns junit.xml.
fn junit_of(exit: u8, change: &Value, detail: &str) -> String {
    let mut run = Run::new();
    run.started(&["a"]).task_started("a", 1).attempt(1).step(1);
    run.denied("call-001", "git push", "open a pull request instead");
    run.attempt(1).attempt_done("passed", "x");
    let mut fields = json!({
        "exit": exit, "outcome": "x", "reason": "why", "kind": "x", "attempts": 1, "files": [],
        "protected": [], "counts": true, "usage": usage(1, 1),
    });
    fields.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    run.task("a").add("task.completed", fields).done(exit, "x");
    run.lines[0] = run.lines[0].replace("\"trace\"", &format!("\"{detail}\""));
    run.write(run.lines.len());
    write_all(run.path(), &Reports::default()).unwrap();
    validate(&[run.path().join("junit.xml")]);
    fs::read_to_string(run.path().join("junit.xml")).unwrap()
}

#[test]
fn each_broken_promise_is_red_in_its_own_case() {
    let case = |name: &str, result: &str| {
        format!("<testcase name=\"{name}\" time=\"0\" classname=\"agent.night_ly.a\">{result}")
    };
    for (exit, change, expected) in [
        (0, json!({}), case("policy", "<system-out>")),
        (0, json!({}), case("call 001 exec_command", "<skipped type=\"denied\"")),
        (11, json!({ "kind": "denied" }), case("policy", "<failure type=\"policy.denied\"")),
        (
            10,
            json!({ "protected": ["ci/x"] }),
            case("protected paths", "<failure type=\"protected\""),
        ),
        (10, json!({ "protected": ["ci/x"] }), case("policy", "<failure type=\"policy.denied\"")),
        (10, json!({ "kind": "schema" }), case("output schema", "<failure type=\"schema\"")),
        (10, json!({ "kind": "patch-size" }), case("patch size", "<failure type=\"patch-size\"")),
        (12, json!({ "kind": "budget.turns" }), "<failure type=\"budget.turns\"".to_owned()),
        (13, json!({ "kind": "idle" }), "<error type=\"idle\"".to_owned()),
        (15, json!({ "kind": "sandbox" }), "<error type=\"sandbox\"".to_owned()),
        (16, json!({ "kind": "setup" }), "<error type=\"setup\"".to_owned()),
    ] {
        let xml = junit_of(exit, &change, "trace");
        assert!(xml.contains(&expected), "{expected}\n{xml}");
        assert_eq!(xml.contains("<failure") || xml.contains("<error"), exit != 0, "{xml}");
    }
    let xml = junit_of(0, &json!({}), "verdict");
    assert!(!xml.contains("a calls") && xml.contains("name=\"policy\""), "{xml}");
}

#[test]
fn a_big_log_is_cut_and_its_size_is_told() {
    let mut run = Run::new();
    run.started(&["a"]).task_started("a", 1).attempt(1).step(1);
    let big = format!("HEAD{}TAIL", "é\n".repeat(1_000_000));
    run.command("call-001", "yes", &big, 0).checked(("unit", "final"), "failed", &big);
    run.write(run.lines.len());
    let report = write_all(run.path(), &Reports::default()).unwrap();
    let call = &report.tasks[0].attempts[0].calls[0];
    assert!(call.output.len() < 5_000 && call.output.ends_with("TAIL"));
    assert_eq!(call.process.as_ref().unwrap().output_bytes, big.len() as u64);
    let log = fs::read_to_string(run.path().join("tasks/a/attempt-1/calls/call-001.log")).unwrap();
    assert_eq!(log, big);
    assert!(fs::metadata(run.path().join("report.json")).unwrap().len() < 64 << 10);
    validate(&[run.path().join("junit.xml")]);
}

#[test]
fn p10_a_masked_record_is_a_record_again() {
    let run = green();
    let blobs = BlobFolder::new(run.path());
    let bytes = |blob: &Blob| blobs.read(blob, 0, usize::MAX);
    let masked = mask(&run.lines, &bytes, &[]);
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("blobs")).unwrap();
    for (name, bytes) in &masked.blobs {
        fs::write(dir.path().join("blobs").join(name), bytes).unwrap();
    }
    fs::write(dir.path().join("transcript.jsonl"), masked.lines.join("\n") + "\n").unwrap();
    let (before, after) = (verify(run.path()).unwrap(), verify(dir.path()).unwrap());
    assert_eq!(before, after);
    let text = masked.lines.join("\n");
    assert!(!text.contains("20261130-224000-ab12") && !text.contains("2026-11-30"));
    assert!(text.contains("\"exit_code\":101"));
}

#[test]
fn formats_that_are_not_built_are_refused_by_name() {
    let error = Format::parse("sarif").unwrap_err().to_string();
    assert_eq!(
        error,
        "report format `sarif` is not built yet; expected `json`, `junit` or `markdown`"
    );
    let error = Format::parse("xml").unwrap_err().to_string();
    assert_eq!(error, "expected report format `json`, `junit` or `markdown`, found `xml`");
    assert_eq!(Format::parse("junit").unwrap(), Format::Junit);
}

/// Any events in any order, in any scope: the fold gives a report and every format renders.
#[test]
fn p4_the_fold_is_total() {
    let run = hostile();
    let pool: Vec<Record> = green()
        .lines
        .iter()
        .chain(&run.lines)
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let pick = (any::<u16>(), 0..4_usize, 0..4_u32, 0..4_u32, any::<u64>());
    let config =
        ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&prop::collection::vec(pick, 0..60), |picks| {
        let records = picks.into_iter().map(|(at, task, attempt, call, at_ms)| {
            let record = pool[usize::from(at) % pool.len()].clone();
            Record {
                task: (task > 0).then(|| ["fix", "../x", ""][task - 1].to_owned()),
                attempt: (attempt > 0).then_some(attempt),
                call: (call > 0).then(|| format!("call-{call:03}")),
                at_ms,
                ..record
            }
        });
        let records: Vec<Record> = records.collect();
        let report = report::fold(&records, &BlobFolder::new(run.path()));
        report::json::render(&report).unwrap();
        report::junit::render(&report).unwrap();
        report::markdown::render(&report);
        let mut progress = Progress::default();
        for record in &records {
            progress.take(record);
        }
        Ok(())
    });
    outcome.unwrap();
}
