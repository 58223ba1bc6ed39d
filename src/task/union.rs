//! Unions: values that may be written in two ways, each read by hand so that its complaint says
//! what was expected.
//!
//! In: nodes. Out: one of two shapes. Knows nothing of where they stand.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::node::{Kind, Node};
use super::read::{Merge, Read, Reader, Spanned};
use super::value::{Object, Path, Text};
use super::work::SetupFields;

/// A command that prepares the workspace.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup(pub SetupFields);

/// Whether the patch of a failed attempt is kept: always, in this version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepPatch;

impl Merge for KeepPatch {}

impl Read for KeepPatch {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if bool::read(node, reader)? {
            return Some(Self);
        }
        let path = format!("{}: false", reader.path());
        reader.not_built(node, &path);
        None
    }
}

impl JsonSchema for KeepPatch {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KeepPatch".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "boolean" })
    }
}

/// A command.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandSpec {
    /// Shell text for `bash -euo pipefail -c`.
    Shell(String),
    /// Program and arguments, run without a shell.
    Argv(Vec<Spanned<String>>),
}

impl Default for CommandSpec {
    fn default() -> Self {
        Self::Shell(String::new())
    }
}

impl Merge for CommandSpec {}

impl Read for CommandSpec {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Scalar(_) => Text::read(node, reader).map(|text| Self::Shell(text.0)),
            Kind::List(values) if values.is_empty() => {
                reader.expected(node, "shell text, or a list of a program and its arguments");
                None
            }
            Kind::List(_) => {
                let argv: Vec<Spanned<String>> = Vec::read(node, reader)?;
                if argv.first().is_some_and(|program| program.value.is_empty()) {
                    reader.expected(node, "a list that starts with a program");
                    return None;
                }
                Some(Self::Argv(argv))
            }
            Kind::Map(_) => {
                reader.expected(node, "shell text, or a list of a program and its arguments");
                None
            }
        }
    }
}

impl JsonSchema for CommandSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CommandSpec".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Shell text, run with bash -euo pipefail; or a program and its arguments, run without a shell.",
            "oneOf": [
                { "type": "string", "minLength": 1 },
                { "type": "array", "minItems": 1, "items": { "type": "string" } },
            ],
        })
    }
}

impl Read for Setup {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if matches!(node.kind, Kind::Map(_)) {
            return SetupFields::read(node, reader).map(Self);
        }
        let run = Spanned::<CommandSpec>::read(node, reader)?;
        Some(Self(SetupFields { run, network: None, timeout: None, secrets: None }))
    }
}

impl JsonSchema for Setup {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Setup".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let command = generator.subschema_for::<CommandSpec>();
        let fields = generator.subschema_for::<SetupFields>();
        json_schema!({
            "description": "A command that prepares the workspace.",
            "oneOf": [command, fields],
        })
    }
}

/// Where the schema of the final message comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum SchemaSource {
    /// A file.
    File(Path),
    /// The schema itself.
    Inline(Object),
}

/// A schema is one value: it replaces the lower one.
impl Merge for SchemaSource {}

impl Read for SchemaSource {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Scalar(_) => Path::read(node, reader).map(Self::File),
            Kind::Map(_) => Object::read(node, reader).map(Self::Inline),
            Kind::List(_) => {
                reader.expected(node, "a path or a mapping");
                None
            }
        }
    }
}

impl JsonSchema for SchemaSource {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SchemaSource".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A file relative to this one, or the JSON Schema itself.",
            "oneOf": [{ "type": "string", "minLength": 1 }, { "type": "object" }],
        })
    }
}
