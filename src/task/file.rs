//! The task file: everything that the user may say, at the top level.
//!
//! In: nodes. Out: [`TaskFile`], or the like for an included file. Knows nothing of what follows
//! from it.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::declare::{choice, object};
use super::entries::Entries;
use super::model::{BudgetSpec, Provider};
use super::node::{Kind, Node};
use super::permissions::Permissions;
use super::read::{Merge, Read, Reader, Spanned, found};
use super::unbuilt::{McpServer, Otlp};
use super::value::{Count, Digest, Id, Ident, Json, Number, Path, Pattern, Text, Variable};
use super::work::{Defaults, Task};

object! {
    /// A horseman task file, version 1.
    pub struct TaskFile {
        /// Version of the format: 1.
        pub version: Spanned<Version>,
        /// Name of the run. Default: the file's name without its ending.
        pub name: Option<Spanned<Id>>,
        /// What it is for.
        pub description: Option<String>,
        /// Commit that judges.
        pub trust: Option<Trust>,
        /// Files that this one builds on; what this one says wins, then what stands later.
        pub include: Option<Vec<Spanned<Include>>>,
        /// Values from the command line or the environment.
        pub inputs: Option<Entries<Ident, InputSpec>>,
        /// How the tasks run.
        pub run: Option<Spanned<Run>>,
        /// Providers of models.
        pub providers: Option<Entries<Id, Provider>>,
        /// Named permissions.
        pub permission_profiles: Option<Entries<Id, Permissions>>,
        /// What tasks have when they don't say otherwise.
        pub defaults: Option<Defaults>,
        /// Copies of reports.
        pub reports: Option<ReportSpec>,
        /// The tasks, in order.
        pub tasks: Spanned<Vec<Spanned<Task>>>,
    }
    unbuilt {
        /// Tool servers.
        mcp_servers: Entries<Id, McpServer>,
    }
}

object! {
    /// A file that task files include.
    pub struct IncludedFile {
        /// Version of the format: 1.
        pub version: Option<Version>,
        /// What it is for.
        pub description: Option<String>,
        /// Files that this one builds on.
        pub include: Option<Vec<Spanned<Include>>>,
        /// Providers of models.
        pub providers: Option<Entries<Id, Provider>>,
        /// Named permissions.
        pub permission_profiles: Option<Entries<Id, Permissions>>,
        /// What tasks have when they don't say otherwise.
        pub defaults: Option<Defaults>,
    }
    unbuilt {
        /// Tool servers.
        mcp_servers: Entries<Id, McpServer>,
    }
}

object! {
    /// Commit that judges.
    pub struct Trust {
        /// Commit that rules, includes, project docs and restored files come from. Default: the
        /// one that is worked on.
        pub r#ref: Option<Spanned<Text>>,
    }
}

object! {
    /// An included file with its digest.
    pub struct IncludeFields {
        /// File, relative to this one.
        pub file: Spanned<Path>,
        /// SHA-256 that it must have.
        pub sha256: Option<Digest>,
    }
}

/// An included file: a path, or a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Include(pub IncludeFields);

object! {
    /// A value from the command line or the environment.
    pub struct InputSpec {
        /// Type.
        pub r#type: Spanned<InputType>,
        /// What it is for.
        pub description: Option<String>,
        /// Whether it must be given. Default false.
        pub required: Option<bool>,
        /// Value when none is given.
        pub default: Option<Spanned<Json>>,
        /// Variable that it is read from when it isn't on the command line.
        pub env: Option<Variable>,
        /// The only values, for `choice`.
        pub options: Option<Spanned<Vec<Spanned<Json>>>>,
        /// Least number, or least length of a list.
        pub min: Option<Spanned<Number>>,
        /// Largest number, or largest length of a list.
        pub max: Option<Spanned<Number>>,
        /// Regular expression that the text must match somewhere; anchors are yours.
        pub pattern: Option<Spanned<Pattern>>,
        /// Whether the value may be believed. An untrusted one is fenced in prompts and has no
        /// place in commands, titles and names of commits. Default `trusted`.
        pub trust: Option<InputTrust>,
    }
}

choice! {
    /// Type of an input.
    pub enum InputType {
        /// Text.
        String = "string",
        /// A whole number.
        Integer = "integer",
        /// A number.
        Number = "number",
        /// `true` or `false`.
        Boolean = "boolean",
        /// One of `options`.
        Choice = "choice",
        /// A path.
        Path = "path",
        /// Texts; on the command line with commas between them.
        List = "list",
    }
}

choice! {
    /// Whether an input may be believed.
    pub enum InputTrust {
        /// It may.
        Trusted = "trusted",
        /// It may not.
        Untrusted = "untrusted",
    }
}

object! {
    /// How the tasks run.
    pub struct Run {
        /// Tasks at the same time. Default 1.
        pub concurrency: Option<Count<1, 1024>>,
        /// Whether the first failure ends the run. Default false.
        pub fail_fast: Option<bool>,
        /// What all tasks together may use up. Default: nothing bounds them together.
        pub budget: Option<BudgetSpec>,
    }
    unbuilt {
        /// Versions of this program that may run the file.
        require_version: Text,
    }
}

object! {
    /// Copies of reports; relative to this file.
    pub struct ReportSpec {
        /// `JUnit`.
        pub junit: Option<Spanned<Path>>,
        /// Whether `JUnit` has a case for each call and patch. Default `trace`: it does.
        pub junit_detail: Option<JunitDetail>,
        /// Summary.
        pub markdown: Option<Spanned<Path>>,
        /// Transcript.
        pub events: Option<Spanned<Path>>,
    }
    unbuilt {
        /// SARIF.
        sarif: Path,
        /// Page for people.
        html: Path,
        /// Trajectory.
        atif: Path,
        /// Collector of traces.
        otlp: Otlp,
    }
}

choice! {
    /// How detailed `JUnit` is.
    pub enum JunitDetail {
        /// A case for each call and patch.
        Trace = "trace",
        /// Verdicts only.
        Verdict = "verdict",
    }
}

/// The one version of the format that this program reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version;

impl Merge for Version {}

impl Read for Version {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Scalar(scalar) if scalar.is_plain && scalar.text == "1" => Some(Self),
            Kind::Scalar(_) | Kind::List(_) | Kind::Map(_) => {
                let newer = found(node).trim_matches('`').parse::<u64>().is_ok_and(|it| it > 1);
                reader.expected(node, "1");
                if let (true, Some(last)) = (newer, reader.complaints.last_mut()) {
                    last.hint = Some("a newer horseman reads that version".to_owned());
                }
                None
            }
        }
    }
}

impl JsonSchema for Version {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": 1 })
    }
}

impl Merge for Include {}

impl Read for Include {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if matches!(node.kind, Kind::Map(_)) {
            return IncludeFields::read(node, reader).map(Self);
        }
        let file = Spanned::<Path>::read(node, reader)?;
        Some(Self(IncludeFields { file, sha256: None }))
    }
}

impl JsonSchema for Include {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Include".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let path = generator.subschema_for::<Path>();
        let fields = generator.subschema_for::<IncludeFields>();
        json_schema!({
            "description": "A file that this one builds on: a path, or a path with its digest.",
            "oneOf": [path, fields],
        })
    }
}
