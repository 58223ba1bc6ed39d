//! Permissions: what a task asks to be allowed.
//!
//! In: nodes. Out: what the file says, every field optional; `plan::profile` decides the rest.
//! Knows nothing of enforcement.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::declare::{choice, object};
use super::entries::Entries;
use super::model::ModelSpec;
use super::network::NetworkAccess;
use super::node::{Kind, Node};
use super::read::{Merge, Read, Reader, Spanned};
use super::value::{Count, Id, Path, Size, Text, Time, Variable};

object! {
    /// What an attempt may do. A field that is left out comes from `extends`, then from the
    /// built-in default.
    pub struct Permissions {
        /// Profile that this one starts from: one of the file's `permission_profiles`, or
        /// `read-only`, `workspace-write`, `danger-full-access`, `ci`, `maintenance`.
        pub extends: Option<Spanned<Id>>,
        /// Mode. Default `workspace-write`.
        pub sandbox: Option<Mode>,
        /// Whether a missing sandbox ends the run with status 15. Default true.
        pub require_sandbox: Option<bool>,
        /// Who answers what needs approval. `never` refuses it. Default `never`.
        pub approval: Option<Approval>,
        /// What of the network is reachable. Default `none`.
        pub network: Option<NetworkAccess>,
        /// Writable folders beside the workspace: absolute, with `~/`, or relative to the workspace.
        pub write: Option<Vec<Spanned<Path>>>,
        /// Readable roots beside the system's; left out: everything but `deny_read`.
        pub read: Option<Vec<Spanned<Path>>>,
        /// Files and folders that must not be readable: absolute, with `~/`, or globs relative to
        /// the workspace.
        pub deny_read: Option<Vec<Spanned<Path>>>,
        /// Paths, relative to the workspace, that the result must not change; globs, or names that
        /// cover the file or the whole folder. `.git`, `.horseman`, `.codex`, `.agents`, `.claude`,
        /// the task file and its rules are protected always.
        pub protected_paths: Option<Vec<Spanned<Path>>>,
        /// Rule files, relative to this file.
        pub rules: Option<Vec<Spanned<Path>>>,
        /// Whether an allow rule also lifts confinement. Default `sandboxed`: it doesn't.
        pub allow_rules: Option<AllowRules>,
        /// What commands that can't be read before they run mean. Default `sandbox`.
        pub opaque: Option<OpaqueMeans>,
        /// Whether each `execve` inside a command is judged. Default `auto`: where it can be had.
        pub exec_guard: Option<ExecGuard>,
        /// Which tier confines. Default `auto`: the strongest that works here; a name is exactly
        /// that one, else status 15.
        pub tier: Option<TierName>,
        /// Limits of each command's processes.
        pub limits: Option<LimitSpec>,
        /// Whether Add File and a move may replace an existing file. Default `deny`.
        pub patch_overwrite: Option<Overwrite>,
        /// Tools that the model is offered.
        pub tools: Option<ToolSelection>,
        /// Environment of commands.
        pub env: Option<EnvSpec>,
        /// Whether a denial fails the task. Default `continue`.
        pub on_denied: Option<OnDenied>,
        /// Most denials before the task fails. Default none.
        pub max_denials: Option<Count<0>>,
        /// Names of enforcement items that may be missing. `protected` is then looked at after each
        /// command and put back.
        pub degraded: Option<Vec<Spanned<Text>>>,
    }
    unbuilt {
        /// The reviewer of `approval: guardian`.
        guardian: Guardian,
        /// Unix sockets that are reachable.
        unix_sockets: Vec<Text>,
    }
}

object! {
    /// The reviewer of `approval: guardian`.
    pub struct Guardian {
        /// Its model.
        pub model: Option<ModelSpec>,
        /// Deadline of one review.
        pub timeout: Option<Time>,
        /// What a failed review means.
        pub on_error: Option<GuardianError>,
        /// Most reviews.
        pub max_calls: Option<Count<0>>,
    }
}

object! {
    /// Limits of each command's processes.
    pub struct LimitSpec {
        /// Processes and threads. Default 4096.
        pub processes: Option<Count<1>>,
        /// Address space of one process. Default none.
        pub memory: Option<Size>,
        /// Open files of one process. Default none.
        pub open_files: Option<Count<1>>,
        /// Largest file that a process may write. Default none.
        pub file_size: Option<Size>,
        /// Processor time of one process, rounded up to seconds. Default none.
        pub cpu: Option<Time>,
        /// Bytes in the private temporary folder, and in `/dev/shm`. Default 2GiB.
        pub tmp_size: Option<Size>,
    }
}

object! {
    /// Tools that the model is offered, by name.
    pub struct ToolSelection {
        /// Only these; an empty list offers none. Default: all built-in ones.
        pub allow: Option<Vec<Spanned<Text>>>,
        /// Not these.
        pub deny: Option<Vec<Spanned<Text>>>,
    }
}

object! {
    /// Environment of commands.
    pub struct EnvSpec {
        /// What comes from the runner's own: `none`, `core` (a short list), or `all` but provider
        /// keys. Default `core`.
        pub inherit: Option<InheritFrom>,
        /// Whether variables that name toolchain places are passed. Default true.
        pub toolchains: Option<bool>,
        /// Names that are passed as well.
        pub pass: Option<Vec<Spanned<Variable>>>,
        /// Values that are set last.
        pub set: Option<Entries<Variable, String>>,
    }
}

choice! {
    /// Sandbox mode.
    pub enum Mode {
        /// Writes into the workspace, `write` and private folders.
        WorkspaceWrite = "workspace-write",
        /// Writes only into private folders.
        ReadOnly = "read-only",
        /// No confinement at all.
        DangerFullAccess = "danger-full-access",
    }
}

choice! {
    /// Who answers what needs approval.
    pub enum Approval {
        /// Nobody: it is refused.
        Never = "never",
    }
    unbuilt { "guardian" }
}

choice! {
    /// What a failed review of the guardian means.
    pub enum GuardianError {
        /// No.
        Deny = "deny",
        /// The end of the attempt.
        Abort = "abort",
    }
}

choice! {
    /// Whether an allow rule also lifts confinement.
    pub enum AllowRules {
        /// It doesn't.
        Sandboxed = "sandboxed",
    }
    unbuilt { "bypass" }
}

choice! {
    /// What commands that can't be read before they run mean.
    pub enum OpaqueMeans {
        /// Confinement is enough.
        Sandbox = "sandbox",
        /// They need approval.
        Prompt = "prompt",
        /// They are refused.
        Forbidden = "forbidden",
    }
}

choice! {
    /// Whether each `execve` inside a command is judged.
    pub enum ExecGuard {
        /// Where it can be had.
        Auto = "auto",
        /// No.
        Disabled = "disabled",
    }
    unbuilt { "required" }
}

choice! {
    /// Which tier confines.
    pub enum TierName {
        /// The strongest that works here.
        Auto = "auto",
        /// Namespaces, nothing less.
        Namespaces = "namespaces",
        /// Landlock and seccomp, exactly.
        Landlock = "landlock",
    }
}

choice! {
    /// Whether an existing file may be replaced.
    pub enum Overwrite {
        /// It may not.
        Deny = "deny",
        /// It may.
        Allow = "allow",
    }
}

choice! {
    /// What commands inherit from the runner's environment.
    pub enum InheritFrom {
        /// A short list.
        Core = "core",
        /// Nothing.
        None = "none",
        /// Everything but provider keys.
        All = "all",
    }
}

choice! {
    /// Whether a denial fails the task.
    pub enum OnDenied {
        /// The model is told, and goes on.
        Continue = "continue",
        /// It does.
        Fail = "fail",
    }
}

/// The `permissions` of a task: a profile's id, or a mapping.
#[derive(Clone, Debug, PartialEq)]
pub enum PermissionsRef {
    /// A profile, as it is.
    Profile(Spanned<Id>),
    /// Fields, perhaps over a profile.
    Fields(Box<Permissions>),
}

impl PermissionsRef {
    /// The same as fields.
    #[must_use]
    pub fn into_fields(self) -> Permissions {
        match self {
            Self::Profile(id) => Permissions { extends: Some(id), ..Permissions::default() },
            Self::Fields(fields) => *fields,
        }
    }
}

/// A profile's id replaces what `defaults` say; fields are laid over it.
impl Merge for PermissionsRef {
    fn over(self, lower: Self) -> Self {
        match self {
            Self::Profile(_) => self,
            Self::Fields(fields) => Self::Fields(Box::new((*fields).over(lower.into_fields()))),
        }
    }
}

impl Read for PermissionsRef {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Scalar(_) => Spanned::<Id>::read(node, reader).map(Self::Profile),
            Kind::Map(_) => {
                Permissions::read(node, reader).map(|fields| Self::Fields(Box::new(fields)))
            }
            Kind::List(_) => {
                reader.expected(node, "a profile's id or a mapping");
                None
            }
        }
    }
}

impl JsonSchema for PermissionsRef {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PermissionsRef".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let id = generator.subschema_for::<Id>();
        let fields = generator.subschema_for::<Permissions>();
        json_schema!({
            "description": "A profile's id, or fields of which those left out come from `extends`.",
            "oneOf": [id, fields],
        })
    }
}
