//! Each example of `examples/` is run as its header says, and ends with the status that it names.
#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![expect(
    clippy::disallowed_methods,
    reason = "a test runs programs with an environment of its own"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Example and exit status.
const STATUSES: [(&str, i32); 6] = [
    ("01-fix-a-failing-test", 0),
    ("02-pull-request", 0),
    ("03-forbidden-command", 0),
    ("04-a-check-stays-red", 10),
    ("05-budget", 12),
    ("06-confinement", 0),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")
}

/// A program with an environment of its own, below `home`.
fn command(program: impl AsRef<std::ffi::OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("LANG", "C.UTF-8");
    let tmp = home.join("tmp");
    fs::create_dir_all(&tmp).unwrap();
    command.env("HOME", home).env("TMPDIR", tmp).env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the task file of a folder; the record lies in `out` of `home`.
fn run(home: &Path, folder: &Path, args: &[&str]) -> Output {
    let mut command = command(env!("CARGO_BIN_EXE_horseman"), home);
    command.current_dir(folder).arg("run").args(args).arg("--out").arg(home.join("out"));
    command.output().unwrap()
}

fn report(home: &Path) -> Value {
    horseman::transcript::verify(&home.join("out")).unwrap();
    serde_json::from_slice(&fs::read(home.join("out/report.json")).unwrap()).unwrap()
}

/// Runs an example in a copy of its folder, and compares the status with the one in the table.
fn ends(name: &str) -> (tempfile::TempDir, Value) {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("example");
    succeed(command("cp", temp.path()).arg("-r").arg(examples().join(name)).arg(&folder));
    let output = run(temp.path(), &folder, &["task.yml"]);
    let expected = STATUSES.iter().find(|(example, _)| *example == name).unwrap().1;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(expected), "{name}: {stderr}");
    let report = report(temp.path());
    assert_eq!(report["exit"], expected);
    (temp, report)
}

fn patch(home: &Path, task: &str) -> String {
    let path = format!("out/tasks/{task}/attempt-1/patch.diff");
    fs::read_to_string(home.join(path)).unwrap_or_default()
}

fn transcript(home: &Path) -> String {
    fs::read_to_string(home.join("out/transcript.jsonl")).unwrap()
}

#[test]
fn the_table_has_every_example() {
    let found: BTreeSet<String> = fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    let table: BTreeSet<String> = STATUSES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, table);
}

#[test]
fn a_failing_test_is_fixed() {
    let (temp, _) = ends("01-fix-a-failing-test");
    assert!(patch(temp.path(), "fix").contains("+while read -r number ||"));
    assert!(transcript(temp.path()).contains(r#""phase":"before""#));
}

#[test]
fn a_pull_request_is_fixed_and_does_not_judge_itself() {
    let temp = tempfile::tempdir().unwrap();
    let home = temp.path();
    let repository = home.join("repository");
    let script = examples().join("02-pull-request/make-repository.sh");
    succeed(command("bash", home).arg(script).arg(&repository));
    let own_tests = fs::read_to_string(repository.join("tests/greet.sh")).unwrap();
    assert_eq!(own_tests, "exit 0\n", "the pull request's own test is green by construction");

    let output = run(home, &repository, &["--trust-ref", "main", "--apply", "agent/task.yml"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");

    // The first attempt changed nothing: by the pull request's test it would have been green.
    let report = report(home);
    let attempts = report["tasks"][0]["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 2, "{report}");
    let first = attempts[0].to_string();
    assert!(first.contains("no name: Hello, !") && attempts[0]["verdict"] == "failed", "{first}");
    // The patch is on the checkout, and the pull request's test is as it was.
    let greet = fs::read_to_string(repository.join("greet.sh")).unwrap();
    assert!(greet.contains("${1:-world}"), "{greet}");
    assert_eq!(fs::read_to_string(repository.join("tests/greet.sh")).unwrap(), own_tests);
    let status = succeed(command("git", home).args(["status", "--short"]).current_dir(&repository));
    assert_eq!(status.trim(), "M greet.sh");
    let trusted =
        succeed(command("git", home).args(["rev-parse", "main"]).current_dir(&repository));
    assert!(transcript(home).contains(&format!(r#""trust_commit":"{}""#, trusted.trim())));
}

#[test]
fn a_forbidden_command_is_survived() {
    let (temp, _) = ends("03-forbidden-command");
    assert!(patch(temp.path(), "note").contains("+second line"));
    assert!(transcript(temp.path()).contains("call.refused"));
}

#[test]
fn a_red_check_decides() {
    let (_temp, report) = ends("04-a-check-stays-red");
    assert_eq!(report["tasks"][0]["outcome"], "not-done");
}

#[test]
fn a_spent_budget_counts_though_the_check_is_green() {
    let (temp, _) = ends("05-budget");
    let transcript = transcript(temp.path());
    assert!(transcript.contains("budget.exhausted"));
    assert!(transcript.contains(r#""outcome":"passed""#));
}

#[test]
fn what_the_sandbox_denies_is_worked_around() {
    let (temp, _) = ends("06-confinement");
    assert!(patch(temp.path(), "report").contains("size.txt"));
    assert!(!Path::new("/usr/horseman-example").exists());
}
