//! Work: what a task is, where it happens and when it counts as done.
//!
//! In: nodes. Out: what the file says, every field but ids optional. Knows nothing of defaults.

use super::declare::{choice, object};
use super::model::{BudgetSpec, ModelSpec, Secret};
use super::network::NetworkAccess;
use super::permissions::PermissionsRef;
use super::read::{Merge as _, Spanned};
use super::unbuilt::{Hook, Matrix, MatrixNeed, Publish, ReportPaths};
use super::union::{CommandSpec, KeepPatch, SchemaSource, Setup};
use super::value::{Count, Id, Path, Size, Text, Time, Variable};

/// Declares `Task` and `Defaults` with the fields that both have.
macro_rules! task_objects {
    ( $( $(#[doc = $about:literal])* pub $field:ident : $type:ty, )* unbuilt {
        $( $(#[doc = $unbuilt_about:literal])* $unbuilt:ident : $unbuilt_type:ty, )*
    } ) => {
        object! {
            /// What tasks have when they don't say otherwise: mappings are merged key by key, lists
            /// and values are replaced.
            pub struct Defaults {
                $( $(#[doc = $about])* pub $field: $type, )*
            }
            unbuilt { $( $(#[doc = $unbuilt_about])* $unbuilt: $unbuilt_type, )* }
        }

        object! {
            /// One task.
            pub struct Task {
                /// Id, unique in the file.
                pub id: Spanned<Id>,
                /// What it is for.
                pub description: Option<String>,
                /// Words that `--select` knows as well.
                pub tags: Option<Vec<Spanned<Id>>>,
                /// What the model is asked to do. Exactly one of `prompt` and `prompt_file`.
                pub prompt: Option<Spanned<String>>,
                /// File with the prompt, relative to this file.
                pub prompt_file: Option<Spanned<Path>>,
                /// Whether the texts of the task are templates. Default true.
                pub template: Option<bool>,
                /// Texts added to the prompt, fenced.
                pub context: Option<Vec<Spanned<ContextSpec>>>,
                $( $(#[doc = $about])* pub $field: $type, )*
            }
            unbuilt {
                /// Tasks that must be done first.
                needs: Vec<MatrixNeed>,
                /// Expression that says whether the task runs.
                r#if: String,
                /// Values that the task runs for.
                matrix: Matrix,
                $( $(#[doc = $unbuilt_about])* $unbuilt: $unbuilt_type, )*
            }
        }

        impl Task {
            /// Lays the task over `defaults`.
            #[must_use]
            pub fn with_defaults(self, defaults: &Defaults) -> Self {
                Self {
                    $( $field: self.$field.over(defaults.$field.clone()), )*
                    ..self
                }
            }
        }
    };
}

task_objects! {
    /// Which model answers.
    pub model: Option<Spanned<ModelSpec>>,
    /// Extra instructions of the developer role; no template.
    pub instructions: Option<String>,
    /// Commit that AGENTS.md files come from. Default `base`: the trusted commit.
    pub project_docs: Option<Docs>,
    /// Where the work happens.
    pub workspace: Option<Workspace>,
    /// What the attempt may do: a profile's id, or a mapping.
    pub permissions: Option<Spanned<PermissionsRef>>,
    /// What may be used up, over all attempts.
    pub budget: Option<BudgetSpec>,
    /// Commands that decide whether the task is done.
    pub checks: Option<Vec<Spanned<Check>>>,
    /// Further attempts after red checks.
    pub retry: Option<Retry>,
    /// What the result must be.
    pub output: Option<Spanned<Output>>,
    /// What a failure does to the run.
    pub on_failure: Option<OnFailure>,
    unbuilt {
        /// MCP servers that the task may use.
        mcp: Vec<Id>,
        /// Skills that the task may use.
        skills: Vec<Text>,
        /// Most subagents.
        subagents: Count<0>,
        /// Commands at points of the life of a task.
        hooks: Vec<Hook>,
        /// What is asked to be published.
        publish: Publish,
    }
}

object! {
    /// A text added to the prompt, fenced. Exactly one of `file` and `run`.
    pub struct ContextSpec {
        /// File: relative to the workspace, or with `from: source` to this file.
        pub file: Option<Spanned<Path>>,
        /// Command whose output it is; runs confined in the workspace, after setup.
        pub run: Option<Spanned<CommandSpec>>,
        /// Title. Default: the file or the command.
        pub title: Option<Spanned<Text>>,
        /// Most bytes. Default 64KiB.
        pub max_bytes: Option<Size>,
        /// Whether the text may be believed. Default `untrusted`.
        pub trust: Option<ContextTrust>,
        /// Whether `file` is read in the workspace or in the checkout. Default `workspace`.
        pub from: Option<Spanned<ContextFrom>>,
    }
}

choice! {
    /// Whether a context text may be believed.
    pub enum ContextTrust {
        /// It may not.
        Untrusted = "untrusted",
        /// It may.
        Trusted = "trusted",
    }
}

choice! {
    /// Where a context file is read.
    pub enum ContextFrom {
        /// In the workspace.
        Workspace = "workspace",
        /// In the checkout.
        Source = "source",
    }
}

choice! {
    /// Commit that project docs come from.
    pub enum Docs {
        /// The trusted commit.
        Base = "base",
        /// The work commit.
        Head = "head",
        /// Nowhere.
        None = "none",
    }
}

object! {
    /// Where the work happens.
    pub struct Workspace {
        /// Kind. Default `clone`; without git `copy`.
        pub kind: Option<Spanned<Kinds>>,
        /// Commit to work on. Default `HEAD`.
        pub r#ref: Option<Spanned<Text>>,
        /// For `copy`, `overlay` and `in-place` the folder to use, relative to this file; for `clone` the
        /// folder inside it that is the working folder.
        pub path: Option<Spanned<Path>>,
        /// Folders of a sparse checkout. Default: everything.
        pub sparse: Option<Vec<Spanned<Path>>>,
        /// Commands that prepare it.
        pub setup: Option<Vec<Spanned<Setup>>>,
        /// What of the network setup commands reach. Default `none`.
        pub setup_network: Option<NetworkAccess>,
        /// When it is kept. Default `on-failure`.
        pub keep: Option<KeepWhen>,
        /// Whether uncommitted changes of the source come along. Default `ignore`.
        pub dirty: Option<Spanned<Dirty>>,
        /// Folders of the host that are put in.
        pub caches: Option<Vec<Spanned<Cache>>>,
    }
}

choice! {
    /// Kind of workspace.
    pub enum Kinds {
        /// A disposable clone.
        Clone = "clone",
        /// A copy of a folder.
        Copy = "copy",
        /// The folder itself.
        InPlace = "in-place",
        /// The folder with all that is in it, ignored files too, under changes that lie elsewhere.
        Overlay = "overlay",
    }
    unbuilt { "worktree" }
}

choice! {
    /// When a workspace is kept.
    pub enum KeepWhen {
        /// When the task fails.
        OnFailure = "on-failure",
        /// Never.
        Never = "never",
        /// Always.
        Always = "always",
    }
}

choice! {
    /// Whether uncommitted changes come along.
    pub enum Dirty {
        /// They don't.
        Ignore = "ignore",
        /// They do.
        Carry = "carry",
    }
}

object! {
    /// A folder of the host that is put into the workspace.
    pub struct Cache {
        /// Path inside the workspace, or below the private home with `~/`.
        pub path: Spanned<Path>,
        /// Folder of the host: absolute, with `~/`, or relative to this file.
        pub from: Spanned<Path>,
        /// How. Default `rw-private`: a private copy.
        pub mode: Option<CacheMode>,
    }
}

choice! {
    /// How a cache is put in.
    pub enum CacheMode {
        /// A private copy that may be written.
        RwPrivate = "rw-private",
        /// Read where it lies.
        Ro = "ro",
    }
}

object! {
    /// A command that prepares the workspace, with its own network and deadline.
    pub struct SetupFields {
        /// Command.
        pub run: Spanned<CommandSpec>,
        /// What of the network it reaches. Default: what `setup_network` says.
        pub network: Option<NetworkAccess>,
        /// Deadline. Default 30m.
        pub timeout: Option<Time>,
        /// Secrets that exist in this step only.
        pub secrets: Option<Vec<Spanned<SetupSecret>>>,
    }
}

object! {
    /// A secret that exists in one setup step.
    pub struct SetupSecret {
        /// Variable that it gets.
        pub env: Spanned<Variable>,
        /// Where it comes from; exactly one of `env`, `file`, `command`.
        pub from: Spanned<Secret>,
    }
}

object! {
    /// A command that decides whether the task is done.
    pub struct Check {
        /// Id, unique in the task.
        pub id: Spanned<Id>,
        /// Command; status 0 is green.
        pub run: Spanned<CommandSpec>,
        /// Deadline of one try. Default 10m.
        pub timeout: Option<Time>,
        /// What it must do on the untouched tree. Default `ignore`: it isn't run there.
        pub before: Option<BeforeMust>,
        /// What of its output the model sees when it tries again. Default `tail`.
        pub feedback: Option<FeedbackPart>,
        /// Globs that are put back from the trusted commit first. Default: `protected_paths`.
        pub restore: Option<Vec<Spanned<Path>>>,
        /// Whether it decides. Default true.
        pub required: Option<bool>,
        /// What of the network it reaches. Default `none`.
        pub network: Option<NetworkAccess>,
        /// More tries after a red one. Default 0.
        pub retries: Option<Count<0, 20>>,
        /// Tree of feedback rounds; the verdict is always given on a fresh one. Default `fresh`.
        pub tree: Option<CheckTree>,
    }
    unbuilt {
        /// Reports that it writes.
        report: ReportPaths,
    }
}

choice! {
    /// What a check must do on the untouched tree.
    pub enum BeforeMust {
        /// Anything.
        Ignore = "ignore",
        /// Pass.
        Pass = "pass",
        /// Fail.
        Fail = "fail",
    }
}

choice! {
    /// What of a check's output the model sees.
    pub enum FeedbackPart {
        /// The end.
        Tail = "tail",
        /// Nothing.
        None = "none",
        /// Head and tail.
        Full = "full",
    }
}

choice! {
    /// Tree that feedback rounds of a check use.
    pub enum CheckTree {
        /// Base plus patch.
        Fresh = "fresh",
        /// The agent's own.
        Agent = "agent",
    }
}

object! {
    /// Further attempts after red checks.
    pub struct Retry {
        /// Attempts, the first included. Default 1.
        pub max_attempts: Option<Count<1, 20>>,
        /// Whether the conversation goes on. Default `continue`.
        pub session: Option<RetrySession>,
        /// Whether the tree stays. Default `keep`.
        pub tree: Option<RetryTree>,
    }
    unbuilt {
        /// Models of later attempts.
        escalate: Vec<ModelSpec>,
    }
}

choice! {
    /// Conversation of a further attempt.
    pub enum RetrySession {
        /// It goes on.
        Continue = "continue",
        /// It starts anew.
        Fresh = "fresh",
    }
    unbuilt { "fresh-with-summary" }
}

choice! {
    /// Tree of a further attempt.
    pub enum RetryTree {
        /// It stays.
        Keep = "keep",
        /// It goes back to the state after setup.
        Reset = "reset",
    }
}

object! {
    /// What the result must be.
    pub struct Output {
        /// JSON Schema of the final message: a file relative to this one, or a mapping.
        pub schema: Option<Spanned<SchemaSource>>,
        /// Largest patch. Default 1MiB.
        pub max_patch_bytes: Option<Size>,
        /// Whether there must be a change. Default false.
        pub require_change: Option<bool>,
        /// Whether there must be none. Default false.
        pub forbid_change: Option<bool>,
        /// Globs of ignored or built files that are kept.
        pub artifacts: Option<Vec<Spanned<Path>>>,
    }
}

object! {
    /// What a failure does to the run.
    pub struct OnFailure {
        /// Whether it counts. Default `fail`.
        pub action: Option<Action>,
        /// Whether tasks that need this one run. Default `skip`.
        pub dependents: Option<Dependents>,
        /// Whether the patch of a failed attempt is kept. Default true.
        pub keep_patch: Option<KeepPatch>,
    }
    unbuilt {
        /// Commands that run then.
        run: Vec<CommandSpec>,
    }
}

choice! {
    /// Whether a failure counts.
    pub enum Action {
        /// It does.
        Fail = "fail",
        /// It is red in reports and doesn't.
        Warn = "warn",
        /// It does, and no further task starts.
        StopRun = "stop-run",
    }
}

choice! {
    /// Whether tasks that need a failed one run.
    pub enum Dependents {
        /// They don't.
        Skip = "skip",
    }
    unbuilt { "run" }
}
