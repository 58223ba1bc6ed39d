//! Items: messages, reasoning, tool calls and their outputs, as the Responses wire knows them.
//!
//! In: JSON of a provider, or text of ours. Out: typed items that keep the JSON they came as.
//! Pure.

use serde_json::value::RawValue;
use serde_json::{Value, json};

/// One item of a conversation.
#[derive(Clone, Debug)]
pub struct Item {
    /// What it is, as far as this program needs to know.
    pub kind: ItemKind,
    /// The item as JSON text, ready to be sent back: as it came, less `id` and `status`.
    pub raw: Box<RawValue>,
}

/// What an item is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// A message.
    Message {
        /// `user`, `assistant`, `developer`.
        role: String,
        /// All text parts joined.
        text: String,
        /// Refusal text, when the model refused.
        refusal: Option<String>,
    },
    /// Reasoning, opaque but for its summary.
    Reasoning {
        /// Summary parts joined.
        summary: String,
    },
    /// A function or custom tool call.
    Call(ToolCall),
    /// The output of a call.
    Output {
        /// Call that it answers.
        call_id: String,
    },
    /// Anything else, kept as it came.
    Other {
        /// Its `type`.
        kind: String,
    },
}

/// A tool call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Provider's id of the call; its output must name it.
    pub call_id: String,
    /// Tool name.
    pub name: String,
    /// Namespace of the tool, when the wire has one.
    pub namespace: Option<String>,
    /// What the model wrote.
    pub payload: Payload,
}

/// Arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// `function_call`: JSON text, perhaps broken.
    Function(String),
    /// `custom_tool_call`: free text.
    Freeform(String),
}

impl Payload {
    /// The text that the model wrote.
    pub fn text(&self) -> &str {
        match self {
            Self::Function(text) | Self::Freeform(text) => text,
        }
    }
}

impl Item {
    /// Reads one output item of a provider. Unknown types are kept as they came.
    ///
    /// # Errors
    ///
    /// A sentence when `value` is no object with a `type`, or a call lacks `call_id` or `name`.
    pub fn read(mut value: Value) -> Result<Self, String> {
        let kind = read_kind(&value)?;
        if let Value::Object(map) = &mut value {
            map.shift_remove("id");
            map.shift_remove("status");
        }
        Ok(Self { kind, raw: raw(&value) })
    }

    /// A message of `role` (`user`, `developer`) with one text part.
    pub fn message(role: &str, text: &str) -> Self {
        let value = json!({
            "type": "message", "role": role,
            "content": [{ "type": "input_text", "text": text }],
        });
        let kind =
            ItemKind::Message { role: role.to_owned(), text: text.to_owned(), refusal: None };
        Self { kind, raw: raw(&value) }
    }

    /// The output of `call`, worded for the model.
    pub fn output(call: &ToolCall, output: &str) -> Self {
        let kind = match call.payload {
            Payload::Function(_) => "function_call_output",
            Payload::Freeform(_) => "custom_tool_call_output",
        };
        let value = json!({ "type": kind, "call_id": call.call_id, "output": output });
        Self { kind: ItemKind::Output { call_id: call.call_id.clone() }, raw: raw(&value) }
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    // A `Value` always serialises; the fallback is the JSON `null`.
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn read_kind(value: &Value) -> Result<ItemKind, String> {
    let kind = text(value, "type").ok_or("an item has no `type`")?;
    let need = |key: &str| text(value, key).ok_or(format!("a `{kind}` item has no `{key}`"));
    match kind.as_str() {
        "message" => Ok(ItemKind::Message {
            role: text(value, "role").unwrap_or_else(|| "assistant".to_owned()),
            text: parts(value, "content", "text"),
            refusal: Some(parts(value, "content", "refusal")).filter(|refusal| !refusal.is_empty()),
        }),
        "reasoning" => Ok(ItemKind::Reasoning { summary: parts(value, "summary", "text") }),
        "function_call" => Ok(ItemKind::Call(ToolCall {
            call_id: need("call_id")?,
            name: need("name")?,
            namespace: text(value, "namespace"),
            payload: Payload::Function(text(value, "arguments").unwrap_or_default()),
        })),
        "custom_tool_call" => Ok(ItemKind::Call(ToolCall {
            call_id: need("call_id")?,
            name: need("name")?,
            namespace: None,
            payload: Payload::Freeform(text(value, "input").unwrap_or_default()),
        })),
        _ => Ok(ItemKind::Other { kind }),
    }
}

/// Joins the `field` of all parts in the array `key`.
fn parts(value: &Value, key: &str, field: &str) -> String {
    match value.get(key) {
        Some(Value::String(text)) if field == "text" => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get(field)?.as_str()).collect::<Vec<_>>().join("")
        }
        _ => String::new(),
    }
}
