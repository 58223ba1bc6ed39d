//! Expectations: what the model must have been told before it answers.
//!
//! In: a request. Out: nothing, or the first expectation that is not met, in words. Pure.

use serde::Deserialize;
use serde_json::Value;

use crate::model::Request;
use crate::text::clip;

/// Most bytes of a text that an unmet expectation shows.
const SHOWN: usize = 600;

/// What a step expects.
#[derive(Debug)]
pub(super) struct Expect {
    /// Where it stands, 1-based.
    pub(super) line: u32,
    what: RawExpect,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawExpect {
    #[serde(default)]
    contains: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
    #[serde(default)]
    output: Vec<RawOutput>,
    tools: Option<Vec<String>>,
    #[serde(default)]
    tools_lack: Vec<String>,
    items: Option<usize>,
    model: Option<String>,
    schema: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawOutput {
    call: String,
    #[serde(default)]
    contains: Vec<String>,
    #[serde(default)]
    lacks: Vec<String>,
    equals: Option<String>,
}

/// What a request tells the model.
pub(super) struct Told<'a> {
    model: &'a str,
    items: usize,
    tools: Vec<&'a str>,
    has_schema: bool,
    /// Texts of messages that are not the model's own.
    messages: Vec<String>,
    /// Call ids and texts of outputs.
    outputs: Vec<(String, String)>,
}

impl<'a> Told<'a> {
    /// Decodes the history of `request`.
    pub(super) fn read(request: &Request<'a>) -> Result<Self, String> {
        let items: Vec<Value> = serde_json::from_str(&format!("[{}]", request.encoded))
            .map_err(|error| format!("the encoded history is no JSON: {error}"))?;
        let field = |item: &Value, key: &str| item[key].as_str().unwrap_or_default().to_owned();
        let mut messages = Vec::new();
        let mut outputs = Vec::new();
        for item in &items {
            if item.get("call_id").is_some() && item.get("output").is_some() {
                outputs.push((field(item, "call_id"), text(&item["output"])));
            } else if field(item, "type") == "message" && field(item, "role") != "assistant" {
                messages.push(text(&item["content"]));
            }
        }
        Ok(Self {
            model: request.model,
            items: items.len(),
            tools: request.tools.iter().map(super::super::ToolSpec::name).collect(),
            has_schema: request.schema.is_some(),
            messages,
            outputs,
        })
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let outputs = self.outputs.iter().map(|(_, text)| text.as_str());
        self.messages.iter().map(String::as_str).chain(outputs)
    }
}

/// The text of a message's content or a call's output: a string, or parts with `text`.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let parts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            parts.collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

impl Expect {
    /// Takes an expectation, unless it can't fail.
    pub(super) fn check_shape(raw: &RawExpect, line: u32) -> Result<Self, String> {
        let empty = raw.output.iter().find(|output| {
            output.contains.is_empty() && output.lacks.is_empty() && output.equals.is_none()
        });
        if let Some(output) = empty {
            let call = &output.call;
            return Err(format!("`output` of `{call}` needs `contains`, `lacks` or `equals`"));
        }
        Ok(Self { line, what: raw.clone() })
    }

    /// Returns the first expectation that `told` doesn't meet.
    pub(super) fn check(&self, told: &Told<'_>) -> Result<(), String> {
        let what = &self.what;
        same("model", what.model.as_deref(), &told.model)?;
        same("items", what.items, &told.items)?;
        same("schema", what.schema, &told.has_schema)?;
        if let Some(tools) = &what.tools
            && *tools != told.tools
        {
            let (wanted, found) = (tools.join(", "), told.tools.join(", "));
            return Err(format!("expected tools `{wanted}`, found `{found}`"));
        }
        if let Some(tool) = what.tools_lack.iter().find(|tool| told.tools.contains(&tool.as_str()))
        {
            return Err(format!("expected no tool `{tool}`, found it"));
        }
        for wanted in &what.contains {
            if !told.texts().any(|text| text.contains(wanted.as_str())) {
                let all: Vec<_> = told.texts().collect();
                let found = clip(&all.join("\n---\n"), SHOWN);
                return Err(format!("expected a text with `{wanted}`, found:\n{found}"));
            }
        }
        for unwanted in &what.lacks {
            if let Some(text) = told.texts().find(|text| text.contains(unwanted.as_str())) {
                let found = clip(text, SHOWN);
                return Err(format!("expected no text with `{unwanted}`, found:\n{found}"));
            }
        }
        what.output.iter().try_for_each(|output| output.check(told))
    }
}

fn same<T: PartialEq + std::fmt::Display>(
    what: &str,
    wanted: Option<T>,
    found: &T,
) -> Result<(), String> {
    match wanted {
        Some(wanted) if wanted != *found => {
            Err(format!("expected {what} `{wanted}`, found `{found}`"))
        }
        _ => Ok(()),
    }
}

impl RawOutput {
    fn check(&self, told: &Told<'_>) -> Result<(), String> {
        let call = &self.call;
        let found: Vec<_> = told.outputs.iter().filter(|(id, _)| id == call).collect();
        let [(_, text)] = found.as_slice() else {
            let ids: Vec<_> = told.outputs.iter().map(|(id, _)| id.as_str()).collect();
            let (count, ids) = (found.len(), ids.join(", "));
            return Err(format!(
                "expected one output of `{call}`, found {count}; there are outputs of: {ids}"
            ));
        };
        let complain = |wanted: String| {
            let found = clip(text, SHOWN);
            Err(format!("expected the output of `{call}` to {wanted}, found:\n{found}"))
        };
        if let Some(wanted) = self.contains.iter().find(|wanted| !text.contains(wanted.as_str())) {
            return complain(format!("contain `{wanted}`"));
        }
        if let Some(unwanted) = self.lacks.iter().find(|unwanted| text.contains(unwanted.as_str()))
        {
            return complain(format!("lack `{unwanted}`"));
        }
        match &self.equals {
            Some(equals) if equals != text => complain(format!("equal `{}`", clip(equals, SHOWN))),
            _ => Ok(()),
        }
    }
}
