//! Shapes of what isn't built yet: read, so that a typo in them is found, and refused by name.
//!
//! In: nodes. Out: values that nothing uses. Each shape moves to its own module with its feature.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::declare::{choice, object};
use super::entries::Entries;
use super::model::Secret;
use super::node::{Kind, Node};
use super::read::{Merge, Read, Reader, Spanned};
use super::union::CommandSpec;
use super::value::{Count, Id, Ident, Json, Object, Path, Text, Time, Variable};

object! {
    /// A tool server.
    pub struct McpServer {
        /// Program. Exactly one of `command` and `url`.
        pub command: Option<Text>,
        /// Its arguments.
        pub args: Option<Vec<String>>,
        /// Address.
        pub url: Option<Text>,
        /// Its environment: values, or secrets by reference.
        pub env: Option<Entries<Variable, McpValue>>,
        /// The only tools of it that are offered.
        pub tools: Option<Vec<Text>>,
        /// Whether the run ends without it. Default true.
        pub required: Option<bool>,
        /// Deadline of its start.
        pub startup_timeout: Option<Time>,
        /// Deadline of a call.
        pub call_timeout: Option<Time>,
        /// Whether it is confined. Default true.
        pub sandbox: Option<bool>,
    }
}

object! {
    /// A command at a point of a task's life.
    pub struct Hook {
        /// Point.
        pub event: Spanned<HookEvent>,
        /// What it applies to.
        pub r#match: Option<Text>,
        /// Command.
        pub run: Spanned<CommandSpec>,
        /// Deadline.
        pub timeout: Option<Time>,
        /// What its own failure means.
        pub on_error: Option<HookError>,
    }
}

choice! {
    /// Point of a task's life.
    pub enum HookEvent {
        /// The task starts.
        TaskStart = "task_start",
        /// A turn starts.
        TurnStart = "turn_start",
        /// Before a tool call.
        PreTool = "pre_tool",
        /// After a tool call.
        PostTool = "post_tool",
        /// Before a patch.
        PrePatch = "pre_patch",
        /// After a patch.
        PostPatch = "post_patch",
        /// A turn ends.
        TurnEnd = "turn_end",
        /// A check is red.
        CheckFailed = "check_failed",
        /// The task ends.
        TaskEnd = "task_end",
    }
}

choice! {
    /// What the failure of a hook means.
    pub enum HookError {
        /// No.
        Deny = "deny",
        /// Nothing.
        Ignore = "ignore",
        /// The end of the task.
        Fail = "fail",
    }
}

object! {
    /// Values that a task runs for.
    pub struct Matrix {
        /// Values by name.
        pub axes: Option<Entries<Ident, Vec<Json>>>,
        /// Cells that are added.
        pub include: Option<Vec<Object>>,
        /// Cells that are left out.
        pub exclude: Option<Vec<Object>>,
        /// Values out of a file or a command.
        pub from: Option<MatrixFrom>,
        /// Most cells.
        pub limit: Option<Count<1>>,
        /// Most cells at the same time.
        pub max_parallel: Option<Count<1>>,
    }
}

object! {
    /// Values out of a file or a command.
    pub struct MatrixFrom {
        /// File.
        pub file: Option<Path>,
        /// Command.
        pub run: Option<CommandSpec>,
        /// Name of the axis.
        pub r#as: Spanned<Ident>,
        /// Format.
        pub format: Option<MatrixFormat>,
    }
}

choice! {
    /// Format of a matrix source.
    pub enum MatrixFormat {
        /// A value a line.
        Lines = "lines",
        /// A JSON list.
        Json = "json",
        /// A JSON value a line.
        Jsonl = "jsonl",
        /// A table.
        Csv = "csv",
    }
}

object! {
    /// What is asked to be published.
    pub struct Publish {
        /// A pull request.
        pub pull_request: Option<PullRequest>,
        /// A branch.
        pub push: Option<Push>,
        /// A comment.
        pub comment: Option<Comment>,
        /// An issue.
        pub issue: Option<Issue>,
    }
}

object! {
    /// A pull request.
    pub struct PullRequest {
        /// Branch.
        pub branch: Option<Text>,
        /// Branch that it goes into.
        pub base: Option<Text>,
        /// Title.
        pub title: Option<Text>,
        /// Body.
        pub body: Option<Text>,
        /// Labels.
        pub labels: Option<Vec<Text>>,
        /// Reviewers.
        pub reviewers: Option<Vec<Text>>,
        /// Whether it is a draft. Default true.
        pub draft: Option<bool>,
        /// What is done with one that exists.
        pub if_exists: Option<IfExists>,
    }
}

choice! {
    /// What is done with a pull request that exists.
    pub enum IfExists {
        /// It is updated.
        Update = "update",
        /// Nothing.
        Skip = "skip",
        /// Publishing fails.
        Fail = "fail",
    }
}

object! {
    /// A branch.
    pub struct Push {
        /// Its name.
        pub branch: Spanned<Text>,
    }
}

object! {
    /// A comment.
    pub struct Comment {
        /// Number of the pull request or issue.
        pub number: Option<Text>,
        /// Body.
        pub body: Option<Text>,
        /// Key of a comment that is written over.
        pub sticky: Option<Text>,
        /// Most comments.
        pub max: Option<Count<1>>,
        /// What it is put on.
        pub target: Option<CommentTarget>,
    }
}

choice! {
    /// What a comment is put on.
    pub enum CommentTarget {
        /// A pull request.
        PullRequest = "pull_request",
        /// An issue.
        Issue = "issue",
    }
}

object! {
    /// An issue.
    pub struct Issue {
        /// Title.
        pub title: Option<Text>,
        /// Body.
        pub body: Option<Text>,
        /// Labels.
        pub labels: Option<Vec<Text>>,
        /// Most issues.
        pub max: Option<Count<1>>,
    }
}

object! {
    /// Reports that a check writes.
    pub struct ReportPaths {
        /// `JUnit`.
        pub junit: Option<Path>,
        /// SARIF.
        pub sarif: Option<Path>,
    }
}

object! {
    /// A collector of traces.
    pub struct Otlp {
        /// Address.
        pub endpoint: Spanned<Text>,
        /// How much is sent.
        pub content: Option<OtlpContent>,
    }
}

choice! {
    /// How much of texts is sent to a collector.
    pub enum OtlpContent {
        /// Sizes and digests.
        Metadata = "metadata",
        /// Nothing.
        None = "none",
        /// Everything.
        Full = "full",
    }
}

object! {
    /// A task that must be done first, with how its result is used.
    pub struct NeedFields {
        /// Its id.
        pub task: Spanned<Id>,
        /// Whether this one starts from its result. Default false.
        pub patch: Option<bool>,
    }
}

/// A task that must be done first: an id, or a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixNeed(pub NeedFields);

impl Read for MatrixNeed {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if matches!(node.kind, Kind::Map(_)) {
            return NeedFields::read(node, reader).map(Self);
        }
        let task = Spanned::<Id>::read(node, reader)?;
        Some(Self(NeedFields { task, patch: None }))
    }
}

impl JsonSchema for MatrixNeed {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Need".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let id = generator.subschema_for::<Id>();
        let fields = generator.subschema_for::<NeedFields>();
        json_schema!({ "oneOf": [id, fields] })
    }
}

/// A value of a server's environment: text, or a secret by reference.
#[derive(Clone, Debug, PartialEq)]
pub enum McpValue {
    /// Text.
    Text(String),
    /// A secret.
    Secret(Box<Secret>),
}

impl Merge for McpValue {}

impl Read for McpValue {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if matches!(node.kind, Kind::Map(_)) {
            return Secret::read(node, reader).map(|secret| Self::Secret(Box::new(secret)));
        }
        String::read(node, reader).map(Self::Text)
    }
}

impl JsonSchema for McpValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "McpValue".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let secret = generator.subschema_for::<Secret>();
        json_schema!({ "oneOf": [{ "type": "string" }, secret] })
    }
}
