//! Tool specs: what the model is told about a tool, in the shapes that the Responses wire knows.
//!
//! In: names, descriptions, schemas. Out: JSON of the request's `tools`. Pure.

use serde_json::{Value, json};

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolSpec {
    /// A function with a JSON Schema for its arguments.
    Function(FunctionSpec),
    /// A tool that takes free text in a grammar.
    Freeform {
        /// Name.
        name: String,
        /// What it does.
        description: String,
        /// `lark` or `regex`.
        syntax: String,
        /// The grammar.
        definition: String,
    },
    /// Several functions under one name.
    Namespace {
        /// Name.
        name: String,
        /// What they are for.
        description: String,
        /// The functions.
        tools: Vec<FunctionSpec>,
    },
    /// Client-side search for deferred tools.
    ToolSearch {
        /// What can be found.
        description: String,
        /// Schema of the search's arguments.
        parameters: Value,
    },
    /// Web search that the provider itself carries out.
    WebSearch,
}

/// A function tool.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionSpec {
    /// Name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Whether the provider must hold the arguments to the schema.
    pub strict: bool,
    /// JSON Schema of the arguments.
    pub parameters: Value,
}

impl ToolSpec {
    /// Name that calls use; the hosted tools have fixed ones.
    pub fn name(&self) -> &str {
        match self {
            Self::Function(FunctionSpec { name, .. })
            | Self::Freeform { name, .. }
            | Self::Namespace { name, .. } => name,
            Self::ToolSearch { .. } => "tool_search",
            Self::WebSearch => "web_search",
        }
    }

    /// The spec as an element of a Responses request's `tools`.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Function(function) => function.to_json(),
            Self::Freeform { name, description, syntax, definition } => json!({
                "type": "custom", "name": name, "description": description,
                "format": { "type": "grammar", "syntax": syntax, "definition": definition },
            }),
            Self::Namespace { name, description, tools } => json!({
                "type": "namespace", "name": name, "description": description,
                "tools": tools.iter().map(FunctionSpec::to_json).collect::<Vec<_>>(),
            }),
            Self::ToolSearch { description, parameters } => json!({
                "type": "tool_search", "execution": "client",
                "description": description, "parameters": parameters,
            }),
            Self::WebSearch => json!({ "type": "web_search" }),
        }
    }
}

impl FunctionSpec {
    fn to_json(&self) -> Value {
        json!({
            "type": "function", "name": self.name, "description": self.description,
            "strict": self.strict, "parameters": self.parameters,
        })
    }
}
