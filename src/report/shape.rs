//! The report's shape: what a run came to, as data.
//!
//! In: made by [`fold`](super::fold::fold) alone. Out: serde types; the published schema is
//! generated from them. Knows nothing of any output format.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::transcript::event::{Blob, Enforcement, Evidence, FileChange, InputFile, Usage};

/// Version of the report's shape; `schema_version`.
pub const VERSION: u32 = 1;

/// `kind` of a task whose final message breaks its schema.
pub const KIND_SCHEMA: &str = "schema";

/// `kind` of a task whose result is larger than `output.max_patch_bytes`.
pub const KIND_PATCH_SIZE: &str = "patch-size";

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// Version of this shape: 1.
    pub schema_version: u32,
    /// Id of the run.
    pub run: String,
    /// Name of the run, from the task file.
    pub name: String,
    /// Version of the program that ran it.
    pub version: String,
    /// Exit status; null when the transcript stops before the run ended.
    pub exit: Option<u8>,
    /// Name of the exit status, or `incomplete` when the transcript stops before the run ended.
    pub outcome: String,
    /// Signal that ended the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Wall clock of the first line, RFC 3339, UTC.
    pub started: Option<String>,
    /// Wall clock of the last line, RFC 3339, UTC.
    pub ended: Option<String>,
    /// Milliseconds from the first line to the last.
    pub wall_ms: u64,
    /// Counts.
    pub totals: Totals,
    /// Tokens of all tasks.
    pub usage: Usage,
    /// Cost of all tasks in USD; null when the price of one is unknown.
    pub usd: Option<f64>,
    /// What went wrong; absent when the exit status is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
    /// Digest of the plan.
    pub plan_sha256: String,
    /// Commit that rules, includes, docs and restored files come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust_commit: Option<String>,
    /// Every input with its digest.
    pub inputs: Vec<InputFile>,
    /// Operator's proxy and certificate variables, credentials cut out.
    pub operator: BTreeMap<String, String>,
    /// Things a person should know, one sentence each.
    pub notices: Vec<String>,
    /// `trace` or `verdict`: whether `JUnit` has a case for each call and patch.
    pub junit_detail: String,
    /// Lines in the transcript.
    pub lines: u64,
    /// Tasks in the order in which they were selected.
    pub tasks: Vec<Task>,
}

/// Counts over all tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Totals {
    /// Tasks selected.
    pub tasks: u64,
    /// Tasks that are done, with green checks.
    pub passed: u64,
    /// Tasks that failed and count.
    pub failed: u64,
    /// Tasks that failed and don't count (`on_failure.action: warn`).
    pub warned: u64,
    /// Tasks that never started.
    pub skipped: u64,
    /// Tasks that started and have no end.
    pub incomplete: u64,
    /// Attempts.
    pub attempts: u64,
    /// Steps.
    pub steps: u64,
    /// Tool calls.
    pub calls: u64,
    /// Calls that were refused.
    pub denied: u64,
    /// Patches that were written.
    pub patches: u64,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Problem {
    /// Kind, as in a task's `kind`; `signal` and `incomplete` for the run as a whole.
    pub kind: String,
    /// One line.
    pub message: String,
    /// The one obvious remedy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A host that commands asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AskedHost {
    /// Host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `allow` or `deny`.
    pub decision: String,
    /// The rule.
    pub rule: String,
    /// How often.
    pub count: u32,
}

/// One instance of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Task {
    /// Instance id.
    pub id: String,
    /// Id of the task in the file.
    pub task: String,
    /// Line of the task in the task file; 0 when unknown.
    pub line: u32,
    /// Name of the exit status; `skipped` when it never started, `incomplete` when it has no end.
    pub outcome: String,
    /// Exit status of this instance alone.
    pub exit: Option<u8>,
    /// Finer kind: `checks`, `budget.turns`, `no-change`, `schema`, `idle`, …
    pub kind: String,
    /// Why, one line.
    pub reason: String,
    /// Whether a failure counts towards the run's exit status.
    pub counts: bool,
    /// Provider's id.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// `clone`, `copy`, `in-place`.
    pub workspace: String,
    /// Folder that the result belongs onto; absolute.
    pub target: String,
    /// Commit that the work started from.
    pub base_commit: Option<String>,
    /// Confinement that the task asked for.
    pub requested: Value,
    /// Confinement that was in force; null when it never started.
    pub enforcement: Option<Enforcement>,
    /// Limits.
    pub budget: Value,
    /// Things a person should know, one sentence each.
    pub notices: Vec<String>,
    /// Result against the base.
    pub patch: Option<Artifact>,
    /// Files in the result.
    pub files: Vec<FileChange>,
    /// Protected paths that the result touched.
    pub protected: Vec<String>,
    /// Final message of the last attempt, at most 64 KiB; null when there was none.
    pub final_message: Option<String>,
    /// Final verdict of each check: the last one of the last attempt that has it.
    pub checks: Vec<Check>,
    /// Checks on the base, before the work.
    pub baselines: Vec<Check>,
    /// Commands of the task's author that are no checks: setup, context, keys; and git of ours
    /// where it failed.
    pub commands: Vec<Process>,
    /// Hosts that commands asked for, in the order in which they were first asked for.
    pub hosts: Vec<AskedHost>,
    /// Attempts.
    pub attempts: Vec<Attempt>,
    /// Tokens.
    pub usage: Usage,
    /// Cost in USD; null when prices are unknown.
    pub usd: Option<f64>,
    /// Milliseconds from its first line to its last.
    pub wall_ms: u64,
    /// Wall clock of its first line, RFC 3339, UTC.
    pub started: Option<String>,
}

/// One attempt at a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Attempt {
    /// Number, from 1.
    pub n: u32,
    /// How the model's work ended: `message`, `gave-up`, `budget`, …; `incomplete` when the
    /// transcript stops before.
    pub end: String,
    /// Detail, one line.
    pub reason: String,
    /// Verdict of the checks: `passed`, `failed`, `not-run`.
    pub verdict: String,
    /// `continue` or `fresh`.
    pub session: String,
    /// `keep` or `reset`.
    pub tree: String,
    /// Steps.
    pub steps: u64,
    /// Model requests that went out, failed tries included.
    pub requests: u64,
    /// Milliseconds waited before further tries, as planned.
    pub waited_ms: u64,
    /// Failed tries of model requests.
    pub faults: Vec<Fault>,
    /// Limits that were nearly or wholly spent.
    pub limits: Vec<Limit>,
    /// Calls, in order.
    pub calls: Vec<Call>,
    /// Patches, in order.
    pub patches: Vec<Patch>,
    /// Checks of feedback rounds and of the verdict, in order.
    pub checks: Vec<Check>,
    /// Result against the base.
    pub patch: Option<Artifact>,
    /// What belongs to the result and is not in the patch.
    pub beside: Vec<BesidePatch>,
    /// Things about the result that a person should know.
    pub notices: Vec<String>,
    /// Final message.
    pub final_message: Option<Artifact>,
    /// Validated output.
    pub output: Option<Artifact>,
    /// Files in the result.
    pub files: Vec<FileChange>,
    /// Processes that had outlived their calls and were ended.
    pub ended_processes: u32,
    /// Tokens.
    pub usage: Usage,
    /// Tokens of the last response alone: how full the context was.
    pub last_response: Option<Usage>,
    /// The provider's other usage figures; numbers are added up, else the last one stands.
    pub usage_extra: BTreeMap<String, Value>,
}

/// A part of a result that git can't put into the patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct BesidePatch {
    /// `submodule-patch` or `lfs-content`.
    pub kind: String,
    /// Path relative to the workspace.
    pub of: String,
    /// Where it lies.
    pub file: Artifact,
}

/// A file of the run's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Artifact {
    /// SHA-256 in hex.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Path relative to the run's folder.
    pub path: String,
}

/// A failed try of a model request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fault {
    /// Step.
    pub step: Option<u32>,
    /// Try, from 1.
    pub r#try: u32,
    /// `auth`, `quota`, `rate-limit`, …
    pub kind: String,
    /// HTTP status.
    pub status: Option<u16>,
    /// Provider's own text, clipped.
    pub message: String,
    /// Whether another try followed.
    pub retried: bool,
}

/// A limit that was nearly or wholly spent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Limit {
    /// `turns`, `tool_calls`, `wall`, …
    pub limit: String,
    /// Used when it was noticed.
    pub used: f64,
    /// The limit.
    pub of: f64,
    /// Whether it is wholly spent.
    pub exhausted: bool,
}

/// One tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Call {
    /// `call-001`.
    pub id: String,
    /// Step.
    pub step: Option<u32>,
    /// Registered name, or `unknown`.
    pub tool: String,
    /// Name as the model wrote it.
    pub name: String,
    /// Arguments or input as the model wrote them, head and tail within 4 KiB.
    pub input: String,
    /// Policy's decision: `allow`, `prompt` or `forbidden`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// `skip`, `needs-approval` or `forbidden`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirement: Option<String>,
    /// Policy's reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judged: Option<String>,
    /// Rules that matched.
    pub rules: Vec<Evidence>,
    /// Why the text couldn't be known before it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<String>,
    /// Who cleared it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cleared_by: Option<String>,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// Confinement of its command: tier, mode and network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confined: Option<Confinement>,
    /// `ok`, `failed`, `running`, `refused`, `reply`, `timed-out`, `interrupted`, `fault`;
    /// `incomplete` when the transcript stops before its end.
    pub status: String,
    /// Exit code of the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that ended the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
    /// What the model read, head and tail within 4 KiB.
    pub output: String,
    /// Size in bytes of what the model read.
    pub output_bytes: u64,
    /// Its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// The full log, or what the model read where there is no log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Artifact>,
}

/// Why a call was not done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refused {
    /// `policy`, `approval`, `hook`.
    pub by: String,
    /// What the model was told.
    pub reason: String,
}

/// Confinement of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Confinement {
    /// Tier.
    pub tier: String,
    /// Mode.
    pub mode: String,
    /// Network.
    pub network: String,
}

/// One process that is not ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Process {
    /// `call`, `setup`, `context`, `git`, `key`.
    pub role: String,
    /// Arguments, the program's name included.
    pub argv: Vec<String>,
    /// Working folder.
    pub cwd: String,
    /// Who cleared it.
    pub by: String,
    /// Session id that `write_stdin` uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    /// How it ended: `exited`, `timed-out`, `stopped`; null when its end isn't recorded.
    pub cause: Option<String>,
    /// Exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Wall time in milliseconds.
    pub wall_ms: u64,
    /// User and system time in milliseconds.
    pub cpu_ms: u64,
    /// Bytes that it wrote.
    pub output_bytes: u64,
    /// Log with the kept bytes, among the blobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Blob>,
    /// Descendants alive when it ended.
    pub survivors: u32,
}

/// One patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Patch {
    /// Number in the attempt, from 1.
    pub number: u32,
    /// Call that brought it.
    pub call: Option<String>,
    /// Whether it was written.
    pub applied: bool,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Files changed.
    pub files: Vec<FileChange>,
    /// The change as a unified diff, or the text as the model wrote it when it wasn't written;
    /// head and tail within 4 KiB.
    pub diff: String,
    /// Size in bytes of all of it.
    pub diff_bytes: u64,
}

/// One run of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Check {
    /// Id in the task file.
    pub id: String,
    /// Attempt; null on the base.
    pub attempt: Option<u32>,
    /// `before`, `feedback`, `final`.
    pub phase: String,
    /// `agent`, `fresh`, `base`.
    pub tree: String,
    /// Line in the task file; 0 when unknown.
    pub line: u32,
    /// `passed`, `failed`, `timed-out`; `incomplete` when the transcript stops before its end.
    pub outcome: String,
    /// Whether this is what the task expects.
    pub expected: bool,
    /// Whether it decides the verdict.
    pub required: bool,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Tries used.
    pub tries: u32,
    /// Wall time in milliseconds of the last try.
    pub wall_ms: u64,
    /// Log of the last try, head and tail within 16 KiB.
    pub log: String,
    /// The whole log, among the blobs.
    pub log_blob: Option<Blob>,
}

/// The published JSON Schema of `report.json`, as text that ends with a newline.
pub fn schema() -> String {
    crate::transcript::published::<Report>("horseman's report.json, version 1")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let path = "src/report/report.v1.schema.json";
        crate::transcript::tests::assert_committed(path, &super::schema());
    }
}
