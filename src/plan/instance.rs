//! Instances: what is meant. Everything is decided: absolute paths, texts, rules, limits.
//!
//! In: made by [`plan::make`](super::make) alone. Out: plain data for session, workspace and check.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::approval::Span;
use crate::policy::{Opaque, RuleSource};
use crate::profile::Profile;
use crate::transcript::event::InputFile;

/// The whole run, decided.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the run.
    pub name: String,
    /// Task file as the user named it.
    pub task_file: PathBuf,
    /// Repository root, or the task file's folder without git; absolute.
    pub root: PathBuf,
    /// Whether `root` is a git checkout.
    pub is_git: bool,
    /// Commit that rules, includes, project docs and restored files come from; `None`: the work
    /// commit without git, that is the files of the checkout.
    pub trust_commit: Option<String>,
    /// Instances in order; after `--select`.
    pub instances: Vec<Instance>,
    /// Instances at the same time.
    pub concurrency: usize,
    /// Whether the first failure ends the run.
    pub fail_fast: bool,
    /// Budget of all instances together.
    pub budget: Budget,
    /// Where the keys of all providers come from, those of unselected ones too: no command gets
    /// one (P6). Sources of setup secrets are among them: a command gets none but by its step.
    pub keys: Vec<KeySource>,
    /// Extra copies of reports.
    pub reports: Reports,
    /// Every input with its digest.
    pub inputs: Vec<InputFile>,
    /// Things a person should know.
    pub notices: Vec<String>,
}

/// Where reports are copied to, and how detailed `JUnit` is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reports {
    /// `JUnit` copy; absolute.
    pub junit: Option<PathBuf>,
    /// Summary copy; absolute.
    pub markdown: Option<PathBuf>,
    /// Transcript copy; absolute.
    pub events: Option<PathBuf>,
    /// Whether `JUnit` has a case for each call and patch. Default true.
    pub junit_trace: bool,
}

/// One task to carry out.
#[derive(Clone, Debug, Serialize)]
pub struct Instance {
    /// Id; with a matrix later: task id and cell.
    pub id: String,
    /// Id of the task in the file.
    pub task: String,
    /// Where the task stands.
    pub span: Span,
    /// What it is for.
    pub description: String,
    /// Tags that `--select` knows as well.
    pub tags: Vec<String>,
    /// Prompt, rendered.
    pub prompt: String,
    /// Extra developer instructions.
    pub instructions: Option<String>,
    /// Context entries, rendered.
    pub context: Vec<Context>,
    /// Which commit project docs come from.
    pub project_docs: ProjectDocs,
    /// Project docs (`AGENTS.md`), from the root down to the working folder.
    pub docs: Vec<ProjectDoc>,
    /// Workspace.
    pub workspace: WorkspacePlan,
    /// Model.
    pub model: ModelPlan,
    /// Permission profile, resolved but for the workspace's own path.
    pub profile: Profile,
    /// `.rules` files in order, with their text.
    pub rules: Vec<RuleSource>,
    /// What opaque commands mean.
    pub opaque: Opaque,
    /// Tool names offered; `None`: all built-in ones.
    pub tools_allow: Option<Vec<String>>,
    /// Tool names left out.
    pub tools_deny: Vec<String>,
    /// Whether a denial fails the task.
    pub on_denied_fail: bool,
    /// Most denials before the task fails.
    pub max_denials: Option<u32>,
    /// Whether `Add File` and a move may replace an existing file.
    pub patch_overwrite: bool,
    /// Budget of the instance.
    pub budget: Budget,
    /// Checks.
    pub checks: Vec<CheckPlan>,
    /// Attempts.
    pub retry: RetryPlan,
    /// What the result must be.
    pub output: OutputPlan,
    /// Whether a failure counts towards the exit status.
    pub failure: FailureAction,
    /// Digest of all of the above, hex.
    pub digest: String,
}

/// One `AGENTS.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProjectDoc {
    /// Path relative to the repository root.
    pub path: String,
    /// Its text, within the budget of all docs.
    pub text: String,
}

/// What a failed task does to the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureAction {
    /// It is red and counts.
    #[default]
    Fail,
    /// It is red in reports and doesn't count, except for 1, 2 and 15.
    Warn,
    /// It counts and no further instance starts.
    StopRun,
}

/// A context entry of the prompt.
#[derive(Clone, Debug, Serialize)]
pub struct Context {
    /// Title.
    pub title: String,
    /// Where the text comes from.
    pub source: ContextSource,
    /// Most bytes. Default 64 KiB.
    pub max_bytes: usize,
    /// Whether the text comes from somebody who is not trusted. Default true.
    pub is_untrusted: bool,
    /// Where the entry stands.
    pub span: Span,
}

/// Where a context entry's text comes from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContextSource {
    /// A file of the workspace, relative.
    WorkspaceFile(String),
    /// A file of the checkout, already read; not capped yet.
    Text(String),
    /// A command, run confined in the workspace after setup.
    Command(Command),
}

/// A command that the task's author wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Shell text for `bash -euo pipefail -c`.
    Shell(String),
    /// Arguments, run without a shell.
    Argv(Vec<String>),
}

/// Which commit project docs come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProjectDocs {
    /// The trusted commit.
    #[default]
    Base,
    /// The work commit.
    Head,
    /// None.
    None,
}

/// How the workspace is made.
#[derive(Clone, Debug, Serialize)]
pub struct WorkspacePlan {
    /// Kind.
    pub kind: WorkspaceKind,
    /// Commit to work on, resolved; `None` without git.
    pub commit: Option<String>,
    /// Folder to copy, lay over or work in (absolute) for all kinds but `clone`; for `clone` the folder
    /// inside it that is the working folder (relative, empty for the root).
    pub path: PathBuf,
    /// Sparse checkout patterns (cone mode folders).
    pub sparse: Vec<String>,
    /// Setup commands.
    pub setup: Vec<SetupPlan>,
    /// Cache folders.
    pub caches: Vec<CachePlan>,
    /// When the workspace is kept.
    pub keep: Keep,
    /// Whether uncommitted changes of the source come along.
    pub carry_dirty: bool,
}

/// Kind of workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceKind {
    /// A disposable clone that borrows the source's objects.
    #[default]
    Clone,
    /// A copy of a folder.
    Copy,
    /// The folder itself.
    InPlace,
    /// The folder, ignored files too, under changes that lie elsewhere.
    Overlay,
}

impl WorkspaceKind {
    /// Name in task files, events and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Copy => "copy",
            Self::InPlace => "in-place",
            Self::Overlay => "overlay",
        }
    }
}

/// One setup command.
#[derive(Clone, Debug, Serialize)]
pub struct SetupPlan {
    /// Command.
    pub run: Command,
    /// Whether the network is reachable.
    pub network: crate::profile::Network,
    /// What of it, when it is a list.
    pub hosts: crate::profile::Hosts,
    /// Deadline. Default 30 minutes.
    pub timeout: Duration,
    /// Secrets that exist in this step only.
    pub secrets: Vec<SecretPlan>,
    /// Where it stands.
    pub span: Span,
}

/// A secret of one setup command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecretPlan {
    /// Variable that holds it.
    pub env: String,
    /// Where it comes from; never the secret itself.
    pub from: KeySource,
}

/// One cache folder.
#[derive(Clone, Debug, Serialize)]
pub struct CachePlan {
    /// Path inside the workspace, or below the private home with `~/`.
    pub path: String,
    /// Folder of the host; absolute.
    pub from: PathBuf,
    /// Whether it is a private writable copy (default) or read where it lies.
    pub is_private_copy: bool,
}

/// When the workspace is kept, in `--out`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// Never.
    Never,
    /// When the task fails.
    #[default]
    OnFailure,
    /// Always.
    Always,
}

/// Which model answers.
#[derive(Clone, Debug, Serialize)]
pub struct ModelPlan {
    /// Provider id.
    pub provider: String,
    /// Name of the model.
    pub name: String,
    /// Effort.
    pub effort: Option<String>,
    /// Temperature.
    pub temperature: Option<f64>,
    /// Bound of output tokens.
    pub max_output_tokens: Option<u64>,
    /// How the provider is reached.
    pub wire: Wire,
    /// USD per million tokens.
    pub prices: Option<Prices>,
}

/// How a provider is reached.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// The Responses stream over HTTP.
    Responses(HttpPlan),
    /// Scripted steps; the text of the file.
    Script {
        /// Name for errors.
        name: String,
        /// YAML text.
        text: String,
    },
}

/// An HTTP provider.
#[derive(Clone, Debug, Serialize)]
pub struct HttpPlan {
    /// Base URL; `/responses` is appended.
    pub base_url: String,
    /// Where the key comes from; never the key itself.
    pub api_key: Option<KeySource>,
    /// Extra headers.
    pub headers: BTreeMap<String, String>,
    /// Retries.
    pub retry: HttpRetry,
}

/// Where a provider's key comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeySource {
    /// Environment variable of the runner.
    Env(String),
    /// File; absolute.
    File(PathBuf),
    /// Command that prints it, with where it stands.
    Command(Vec<String>, Span),
}

/// Retries of model requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HttpRetry {
    /// Tries, the first included. Default 5.
    pub max_attempts: u32,
    /// First wait. Default 1 s.
    pub base: Duration,
    /// Longest wait of our own. Default 60 s.
    pub max: Duration,
    /// Whether the provider's `Retry-After` counts. Default true.
    pub respect_retry_after: bool,
}

impl Default for HttpRetry {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base: Duration::from_secs(1),
            max: Duration::from_mins(1),
            respect_retry_after: true,
        }
    }
}

/// USD per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Prices {
    /// Input tokens that are not cached.
    pub input: f64,
    /// Cached input tokens.
    pub cached_input: f64,
    /// Output tokens.
    pub output: f64,
}

/// What may be used up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Budget {
    /// Steps over all attempts. Default 50.
    pub turns: Option<u64>,
    /// Tool calls.
    pub tool_calls: Option<u64>,
    /// Input tokens.
    pub input_tokens: Option<u64>,
    /// Output tokens.
    pub output_tokens: Option<u64>,
    /// Cost.
    pub usd: Option<f64>,
    /// Wall clock. Default 30 minutes.
    pub wall: Duration,
    /// Silence of the model's stream. Default 5 minutes.
    pub idle: Duration,
    /// The same call with the same result that many times in a row. Default 10.
    pub repeat_calls: u64,
    /// Fraction at which a warning is given. Default 0.8.
    pub warn_at: f64,
}

/// One acceptance check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckPlan {
    /// Id.
    pub id: String,
    /// Command.
    pub run: Command,
    /// Deadline of one try. Default 10 minutes.
    pub timeout: Duration,
    /// What it must do on the base.
    pub before: Before,
    /// What of its output the agent sees.
    pub feedback: Feedback,
    /// Globs put back from the trusted commit first; `None`: the profile's protected paths.
    pub restore: Option<Vec<String>>,
    /// Whether it decides the verdict. Default true.
    pub is_required: bool,
    /// More tries after a red one.
    pub retries: u32,
    /// Network.
    pub network: crate::profile::Network,
    /// What of it, when it is a list.
    pub hosts: crate::profile::Hosts,
    /// Whether feedback rounds may use the agent's tree.
    pub feedback_on_agent_tree: bool,
    /// Where it stands.
    pub span: Span,
}

/// What a check must do on the base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Before {
    /// Anything; it isn't run.
    #[default]
    Ignore,
    /// Pass.
    Pass,
    /// Fail.
    Fail,
}

/// What of a check's output the agent sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feedback {
    /// Nothing.
    None,
    /// The last 4 KiB.
    #[default]
    Tail,
    /// Head and tail within 64 KiB.
    Full,
}

/// Attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RetryPlan {
    /// Attempts, the first included. Default 1.
    pub max_attempts: u32,
    /// Whether the conversation goes on (default) or starts anew.
    pub is_fresh_session: bool,
    /// Whether the tree goes back to the state after setup.
    pub is_tree_reset: bool,
}

/// What the result must be.
#[derive(Clone, Debug, Serialize)]
pub struct OutputPlan {
    /// JSON Schema of the final message.
    pub schema: Option<Value>,
    /// Largest patch in bytes. Default 1 MiB.
    pub max_patch_bytes: u64,
    /// Whether there must be a change.
    pub require_change: bool,
    /// Whether there must be none.
    pub forbid_change: bool,
    /// Ignored or built files that are kept and go into the patch's folder; globs.
    pub artifacts: Vec<String>,
}
