//! Events: everything that can stand in a transcript line, as data.
//!
//! In: values made elsewhere. Out: serde types; the published schema is generated from them.
//! Knows nothing of files, sessions or reports. Longer than other files: the events are one closed
//! list, and the schema reads best beside it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

/// Version of the line format; `v` of every line.
pub const VERSION: u32 = 1;

/// One line of `transcript.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Version of the line format: 1.
    pub v: u32,
    /// Number of the line, from 0.
    pub seq: u64,
    /// Milliseconds since the run started, monotonic.
    pub at_ms: u64,
    /// Wall clock, RFC 3339, UTC.
    pub ts: String,
    /// Id of the run.
    pub run: String,
    /// Instance that the event belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Attempt at the instance, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Step of the attempt, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// Tool call of the attempt, `call-001`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// What happened.
    pub event: Event,
    /// SHA-256 in hex of the previous line's bytes without newline; 64 zeros on line 0.
    pub prev: String,
}

/// Where an event belongs; goes into the envelope of its line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Instance id.
    pub task: Option<String>,
    /// Attempt, from 1.
    pub attempt: Option<u32>,
    /// Step, from 1.
    pub step: Option<u32>,
    /// Call, `call-001`.
    pub call: Option<String>,
}

/// Bytes that lie beside the transcript as `blobs/<sha256>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Blob {
    /// SHA-256 in hex; the file's name.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// One input that decides what a run does (P8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputFile {
    /// Path as the user knows it, relative to the repository where possible.
    pub path: String,
    /// `task-file`, `include`, `rules`, `prompt`, `project-doc`, `schema`, `script`, `context`.
    pub role: String,
    /// Commit that it was read from; absent for files of the checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// SHA-256 of its bytes in hex.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Tokens of one or more model requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Input tokens, cached ones included.
    pub input_tokens: u64,
    /// Input tokens served from the provider's cache.
    pub cached_input_tokens: u64,
    /// Output tokens, reasoning ones included.
    pub output_tokens: u64,
    /// Output tokens spent on reasoning.
    pub reasoning_output_tokens: u64,
}

impl std::ops::Sub for Usage {
    type Output = Self;

    /// What was used between `other` and `self`, an earlier and a later reading of one counter.
    fn sub(self, other: Self) -> Self {
        let less = u64::saturating_sub;
        Self {
            input_tokens: less(self.input_tokens, other.input_tokens),
            cached_input_tokens: less(self.cached_input_tokens, other.cached_input_tokens),
            output_tokens: less(self.output_tokens, other.output_tokens),
            reasoning_output_tokens: less(
                self.reasoning_output_tokens,
                other.reasoning_output_tokens,
            ),
        }
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_input_tokens =
            self.cached_input_tokens.saturating_add(other.cached_input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.reasoning_output_tokens =
            self.reasoning_output_tokens.saturating_add(other.reasoning_output_tokens);
    }
}

/// How much of one policy item is really in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "level", rename_all = "kebab-case")]
pub enum Level {
    /// In force, by this layer.
    Full {
        /// What enforces it: `landlock`, `seccomp`, `rlimit`, `environment`, `disposable clone`, …
        layer: String,
    },
    /// In force with a gap.
    Partial {
        /// What enforces it.
        layer: String,
        /// The gap, one sentence.
        why: String,
    },
    /// Not in force.
    None {
        /// The reason, one sentence.
        why: String,
    },
}

/// What is in force for an attempt: one level for each policy item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Enforcement {
    /// `landlock` or `none`.
    pub tier: String,
    /// `read-only`, `workspace-write`, `danger-full-access`.
    pub mode: String,
    /// Policy item (`write`, `read`, `network`, `secrets`, …) to what is in force.
    pub items: BTreeMap<String, Level>,
}

/// A rule that matched, as evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// `file:line` of the rule, or `built-in:NAME`.
    pub rule: String,
    /// `allow`, `prompt` or `forbidden`.
    pub decision: String,
    /// Words of the command that matched.
    pub matched: Vec<String>,
    /// The rule's justification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub justification: Option<String>,
}

/// One changed file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// Path relative to the workspace.
    pub path: String,
    /// `add`, `update`, `delete`, `move`.
    pub kind: String,
    /// New path of a move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Lines added.
    #[serde(default)]
    pub added: u64,
    /// Lines removed.
    #[serde(default)]
    pub removed: u64,
    /// How sure each hunk's place was: `exact`, `trailing-blanks`, `outer-blanks`, `normalised`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hunks: Vec<String>,
}

/// A part of a result that git can't put into the patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Beside {
    /// `submodule-patch` or `lfs-content`.
    pub kind: String,
    /// Path relative to the workspace.
    pub path: String,
    /// The bytes.
    pub blob: Blob,
}

/// What happened. `type` is a `noun.past_participle`; types are added, never renamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Event {
    /// Always the first line.
    #[serde(rename = "run.started")]
    RunStarted {
        /// Version of this program.
        version: String,
        /// Name of the run, from the task file.
        name: String,
        /// Digest of the plan.
        plan_sha256: String,
        /// Every input with its digest.
        inputs: Vec<InputFile>,
        /// Instance ids that were selected, in order.
        selected: Vec<String>,
        /// Operator's proxy and certificate variables, credentials cut out.
        operator: BTreeMap<String, String>,
        /// Commit that rules, includes, docs and restored files come from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trust_commit: Option<String>,
        /// What the reports need to know of the plan: `{junit_detail, tasks}`, with `trace` or
        /// `verdict`, and a map from instance id to its line in the task file.
        reports: Value,
        /// Things a person should know, one sentence each.
        notices: Vec<String>,
    },
    /// Last line of a run that ended in order.
    #[serde(rename = "run.completed")]
    RunCompleted {
        /// Exit status.
        exit: u8,
        /// Its name.
        outcome: String,
        /// Signal that ended the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<String>,
        /// Tokens of all instances.
        usage: Usage,
    },
    /// The instance begins; written after the probe and before any command of the task.
    #[serde(rename = "task.started")]
    TaskStarted {
        /// Id of the task in the file.
        id: String,
        /// Line of the task in the task file.
        line: u32,
        /// Commit that the work starts from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base_commit: Option<String>,
        /// `clone`, `copy`, `in-place`.
        workspace: String,
        /// Folder that the result's patch belongs onto; absolute.
        #[serde(default)]
        target: String,
        /// Provider id and model name.
        provider: String,
        /// Name of the model.
        model: String,
        /// Confinement that the task asked for: the resolved permission profile.
        requested: Value,
        /// Confinement that is in force.
        enforced: Enforcement,
        /// Limits of the instance.
        budget: Value,
        /// Things a person should know, one sentence each (left-out changes, shallow history, …).
        notices: Vec<String>,
    },
    /// The instance is over.
    #[serde(rename = "task.completed")]
    TaskCompleted {
        /// Exit status of this instance alone.
        exit: u8,
        /// Its name.
        outcome: String,
        /// Why, one line; the same text that reports show.
        reason: String,
        /// Finer kind for reports: `checks`, `budget.turns`, `no-change`, `schema`, `idle`, …
        kind: String,
        /// Attempts made.
        attempts: u32,
        /// Result against the base.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<Blob>,
        /// Files in the patch.
        files: Vec<FileChange>,
        /// Protected paths that the result touched.
        protected: Vec<String>,
        /// Final message of the last attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        final_message: Option<Blob>,
        /// Whether the failure counts towards the exit status (`on_failure.action`).
        counts: bool,
        /// Tokens of the instance.
        usage: Usage,
        /// Cost in USD, when prices are known.
        #[serde(
            default,
            skip_serializing_if = "Option::is_none",
            deserialize_with = "float_or_none"
        )]
        usd: Option<f64>,
    },
    /// One attempt begins.
    #[serde(rename = "attempt.started")]
    AttemptStarted {
        /// `continue` or `fresh`.
        session: String,
        /// `keep` or `reset`.
        tree: String,
    },
    /// One attempt is over; its checks have run.
    #[serde(rename = "attempt.completed")]
    AttemptCompleted {
        /// How the model's work ended: `message`, `gave-up`, `budget`, `timeout`, `provider`, …
        end: String,
        /// Detail, one line.
        reason: String,
        /// Verdict of the checks: `passed`, `failed`, `not-run`.
        verdict: String,
        /// Final message of the attempt.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        final_message: Option<Blob>,
        /// The attempt's result against the base.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<Blob>,
        /// What belongs to the result and is not in the patch: patches of submodules, contents of
        /// LFS files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        beside: Vec<Beside>,
        /// Things about the result that a person should know, one sentence each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notices: Vec<String>,
        /// Validated output as JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Blob>,
        /// Files in the patch.
        files: Vec<FileChange>,
        /// Processes that had outlived their calls and were ended now.
        ended_processes: u32,
        /// Tokens of the attempt.
        usage: Usage,
    },
    /// One sampling request and its calls begin.
    #[serde(rename = "step.started")]
    StepStarted {
        /// Items in the history.
        history_items: u64,
        /// Names of the tools that the model sees.
        tools: Vec<String>,
    },
    /// All calls of the step have their outputs.
    #[serde(rename = "step.completed")]
    StepCompleted {
        /// Calls in the step.
        calls: u32,
    },
    /// A request goes out.
    #[serde(rename = "model.requested")]
    ModelRequested {
        /// Try, from 1.
        r#try: u32,
        /// Request body.
        body: Blob,
    },
    /// A complete response is there.
    #[serde(rename = "model.responded")]
    ModelResponded {
        /// Provider's id of the response.
        response: String,
        /// Tokens of this response alone.
        usage: Usage,
        /// Other usage figures of the provider, as they came.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        usage_extra: BTreeMap<String, Value>,
        /// `completed` or `incomplete: REASON`.
        status: String,
        /// Stream event types that this version doesn't know, with their counts.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        ignored: BTreeMap<String, u64>,
    },
    /// A wait before the next try.
    #[serde(rename = "model.waited")]
    ModelWaited {
        /// Try that failed, from 1.
        r#try: u32,
        /// Planned wait in milliseconds.
        wait_ms: u64,
        /// `backoff`, `retry-after`, `rate-limit`.
        cause: String,
    },
    /// A try failed.
    #[serde(rename = "model.failed")]
    ModelFailed {
        /// Try, from 1.
        r#try: u32,
        /// `auth`, `quota`, `rate-limit`, `overloaded`, `bad-request`, `context-window`,
        /// `cut-stream`, `idle`, `refused`, `protocol`.
        kind: String,
        /// HTTP status.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// Provider's own text, clipped.
        message: String,
        /// Whether another try follows.
        retried: bool,
    },
    /// An item of a complete response.
    #[serde(rename = "item.received")]
    ItemReceived {
        /// The item as it came; a large one lies in `blob` instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item: Option<Value>,
        /// The item as it came, when it doesn't fit a line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<Blob>,
    },
    /// The model asks for a tool call; written before anything is done about it.
    #[serde(rename = "call.proposed")]
    CallProposed {
        /// Registered name, or `unknown`.
        tool: String,
        /// Name as the model wrote it.
        name: String,
        /// Provider's call id.
        call_id: String,
        /// `function` or `freeform`.
        #[serde(default)]
        form: String,
        /// Arguments or input as the model wrote them; a large one lies in `blob` instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<String>,
        /// Arguments or input, when it doesn't fit a line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<Blob>,
    },
    /// Policy's answer.
    #[serde(rename = "call.judged")]
    CallJudged {
        /// `allow`, `prompt` or `forbidden`.
        decision: String,
        /// `skip`, `needs-approval` or `forbidden`.
        requirement: String,
        /// Why, one line.
        reason: String,
        /// Rules that matched.
        rules: Vec<Evidence>,
        /// Simple commands found in the text.
        commands: Vec<Vec<String>>,
        /// Why the text can't be known before it runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<String>,
    },
    /// Somebody cleared the action.
    #[serde(rename = "call.cleared")]
    CallCleared {
        /// `policy`, `approver NAME`, `task-author FILE:LINE`, `runner GIT-OPERATION`.
        by: String,
    },
    /// The action will not happen.
    #[serde(rename = "call.refused")]
    CallRefused {
        /// `policy`, `approval`, `hook`.
        by: String,
        /// What the model is told.
        reason: String,
    },
    /// The command is confined and about to start.
    #[serde(rename = "call.confined")]
    CallConfined {
        /// Tier in force for this command.
        tier: String,
        /// Mode.
        mode: String,
        /// Whether the network is reachable.
        network: String,
    },
    /// A command asks for a host outside; written before anything is sent there. Of an instance's
    /// denials the first thousand of each confinement are written.
    #[serde(rename = "network.requested")]
    NetworkRequested {
        /// Name in lower-case A-labels, or address.
        host: String,
        /// Port; 53 for a lookup.
        port: u16,
        /// `http`, `https` (CONNECT), `socks5_tcp`, `dns` (denials alone) or `forward`.
        protocol: String,
        /// `allow` or `deny`.
        decision: String,
        /// The pattern and its key, `file:line` of a rule, or why nothing allows it.
        rule: String,
        /// Address that the name was looked up to; absent for denials, and behind the operator's
        /// own proxy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    /// A call has its output.
    #[serde(rename = "call.completed")]
    CallCompleted {
        /// `ok`, `failed`, `running`, `refused`, `reply`, `timed-out`, `interrupted`, `skipped`, `fault`.
        status: String,
        /// Exit code of the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Signal that ended the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// Wall time in milliseconds.
        wall_ms: u64,
        /// What the model reads.
        output: Blob,
    },
    /// A process is about to start.
    #[serde(rename = "process.started")]
    ProcessStarted {
        /// `call`, `setup`, `check`, `context`, `git`, `key`.
        role: String,
        /// Resolved program.
        program: String,
        /// Arguments, the program's name included.
        argv: Vec<String>,
        /// Working folder.
        cwd: String,
        /// Who cleared it.
        by: String,
        /// Session id that `write_stdin` uses, for commands of calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u32>,
    },
    /// A process ended.
    #[serde(rename = "process.ended")]
    ProcessEnded {
        /// Session id of commands of calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u32>,
        /// Process id.
        pid: u32,
        /// Exit code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Signal number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// `exited`, `timed-out`, `stopped`.
        cause: String,
        /// Wall time in milliseconds.
        wall_ms: u64,
        /// User and system time in milliseconds.
        cpu_ms: u64,
        /// Bytes that it wrote to stdout and stderr.
        output_bytes: u64,
        /// Log with the kept bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<Blob>,
        /// Descendants alive when it ended.
        survivors: u32,
    },
    /// A patch was written.
    #[serde(rename = "patch.applied")]
    PatchApplied {
        /// Number of the patch in the attempt, from 1.
        number: u32,
        /// Files changed.
        files: Vec<FileChange>,
        /// Patch text as the model wrote it.
        text: Blob,
        /// Unified diff of the change.
        diff: Blob,
    },
    /// A patch was not written.
    #[serde(rename = "patch.refused")]
    PatchRefused {
        /// Number of the patch in the attempt, from 1.
        number: u32,
        /// Why, as the model reads it.
        reason: String,
        /// Patch text as the model wrote it.
        text: Blob,
    },
    /// Protected paths that no layer holds were changed, and put back.
    #[serde(rename = "protected.restored")]
    ProtectedRestored {
        /// As they were again; relative to the workspace where they lie in it.
        paths: Vec<String>,
        /// Changed for good: too large to be kept.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lost: Vec<String>,
    },
    /// A check is about to run.
    #[serde(rename = "check.started")]
    CheckStarted {
        /// Id in the task file.
        id: String,
        /// `before`, `feedback`, `final`.
        phase: String,
        /// `agent`, `fresh`, `base`.
        tree: String,
        /// Line of the check in the task file.
        line: u32,
    },
    /// A check has run.
    #[serde(rename = "check.completed")]
    CheckCompleted {
        /// Id in the task file.
        id: String,
        /// `before`, `feedback`, `final`.
        phase: String,
        /// `passed`, `failed`, `timed-out`.
        outcome: String,
        /// Whether this is what the task expects (`before: fail` expects `failed`).
        expected: bool,
        /// Whether the check decides the verdict.
        required: bool,
        /// Exit code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Tries used, from 1.
        tries: u32,
        /// Wall time in milliseconds of the last try.
        wall_ms: u64,
        /// Log of the last try.
        log: Blob,
    },
    /// A limit is nearly spent.
    #[serde(rename = "budget.warned")]
    BudgetWarned {
        /// `turns`, `tool_calls`, `input_tokens`, `output_tokens`, `usd`, `wall`.
        limit: String,
        /// Used so far.
        #[serde(deserialize_with = "float")]
        used: f64,
        /// The limit.
        #[serde(deserialize_with = "float")]
        of: f64,
    },
    /// A limit is spent.
    #[serde(rename = "budget.exhausted")]
    BudgetExhausted {
        /// `turns`, `tool_calls`, `input_tokens`, `output_tokens`, `usd`, `wall`, `repeat_calls`.
        limit: String,
        /// Used so far.
        #[serde(deserialize_with = "float")]
        used: f64,
        /// The limit.
        #[serde(deserialize_with = "float")]
        of: f64,
    },
}

/// Reads a float of an [`Event`]. A tagged enum buffers its fields, and where any crate of the
/// build asks `serde_json` for arbitrary precision, a buffered float is a map to `f64`'s reader.
fn float<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let number = Number::deserialize(from)?;
    number.as_f64().ok_or_else(|| D::Error::custom(format!("expected a float, found {number}")))
}

fn float_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    Option::<Number>::deserialize(from).map(|number| number.and_then(|number| number.as_f64()))
}

#[cfg(test)]
mod tests {
    use super::Event;

    #[test]
    fn floats_come_back_as_they_were_written() {
        for (used, of) in [(1.5, 2.0), (0.1 + 0.2, 1e-9), (3.0, 1e15)] {
            let event = Event::BudgetWarned { limit: "usd".into(), used, of };
            let text = serde_json::to_string(&event).unwrap();
            assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event, "{text}");
        }
        let missing = r#"{"type":"budget.warned","limit":"usd","used":"x","of":1}"#;
        assert!(serde_json::from_str::<Event>(missing).is_err());
    }
}
