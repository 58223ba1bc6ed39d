//! Reading a script: YAML to checked steps.
//!
//! In: text. Out: steps with their items made, or the line of what is wrong. Pure.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use serde_yaml::Spanned;

use super::ScriptError;
use super::expect::{Expect, RawExpect};
use crate::model::{FaultKind, Item};
use crate::text::parse_duration;
use crate::transcript::event::Usage;

/// One answer.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) expect: Option<Expect>,
    pub(super) items: Vec<Item>,
    pub(super) usage: Usage,
    pub(super) incomplete: Option<String>,
    pub(super) fault: Option<Fault>,
    pub(super) delay: Duration,
}

/// A scripted fault.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) message: String,
    pub(super) status: Option<u16>,
    pub(super) retry_after: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawStep {
    expect: Option<Spanned<RawExpect>>,
    reasoning: Option<String>,
    say: Option<String>,
    refusal: Option<String>,
    #[serde(default)]
    calls: Vec<RawCall>,
    patch: Option<String>,
    #[serde(default)]
    items: Vec<Value>,
    usage: Option<RawUsage>,
    incomplete: Option<String>,
    fault: Option<RawFault>,
    delay: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    tool: String,
    id: Option<String>,
    arguments: Option<Map<String, Value>>,
    raw: Option<String>,
    input: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_field_names, reason = "the names of the wire's usage figures")]
struct RawUsage {
    input_tokens: u64,
    cached_input_tokens: u64,
    output_tokens: u64,
    reasoning_output_tokens: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFault {
    kind: String,
    message: Option<String>,
    status: Option<u16>,
    retry_after: Option<String>,
}

/// Reads all steps of a script.
pub(super) fn steps(name: &str, text: &str) -> Result<Vec<Step>, ScriptError> {
    let options = serde_yaml::options! { with_snippet: false };
    let raw: Vec<Spanned<RawStep>> =
        serde_yaml::from_str_with_options(text, options).map_err(|error| shape(name, &error))?;
    if raw.is_empty() {
        return Err(ScriptError::Empty { name: name.to_owned() });
    }
    let mut calls = 0;
    raw.into_iter()
        .enumerate()
        .map(|(index, step)| {
            let line = line(step.referenced.line());
            check(step.value, &mut calls).map_err(|problem| ScriptError::Step {
                name: name.to_owned(),
                line,
                step: index + 1,
                problem,
            })
        })
        .collect()
}

fn line(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn shape(name: &str, error: &serde_yaml::Error) -> ScriptError {
    let at = error.location();
    let place = format!(" at line {}", at.map_or(0, |at| at.line()));
    let problem = error.without_snippet().to_string();
    // The place stands in front already.
    let problem = problem.rsplit_once(&place).map_or(problem.as_str(), |(what, _)| what);
    ScriptError::Shape {
        name: name.to_owned(),
        line: at.map_or(1, |at| line(at.line())),
        column: at.map_or(1, |at| line(at.column())),
        problem: problem.trim().to_owned(),
    }
}

fn check(raw: RawStep, calls: &mut u32) -> Result<Step, String> {
    let fault = raw.fault.as_ref().map(check_fault).transpose()?;
    let delay = raw.delay.as_deref().map(|text| duration("delay", text)).transpose()?;
    let expect = raw
        .expect
        .as_ref()
        .map(|expect| Expect::check_shape(&expect.value, line(expect.referenced.line())))
        .transpose()?;
    let usage = raw.usage.as_ref().map(RawUsage::usage).unwrap_or_default();
    let incomplete = raw.incomplete.clone();
    let has_usage = raw.usage.is_some();
    let items = items(raw, calls)?;
    if fault.is_some() && (!items.is_empty() || incomplete.is_some() || has_usage) {
        return Err("`fault` excludes everything but `expect` and `delay`".to_owned());
    }
    Ok(Step { expect, items, usage, incomplete, fault, delay: delay.unwrap_or_default() })
}

impl RawUsage {
    fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input_tokens,
            cached_input_tokens: self.cached_input_tokens,
            output_tokens: self.output_tokens,
            reasoning_output_tokens: self.reasoning_output_tokens,
        }
    }
}

fn check_fault(raw: &RawFault) -> Result<Fault, String> {
    let kind = FaultKind::from_name(&raw.kind).ok_or_else(|| {
        let names: Vec<_> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("`fault.kind` must be one of {}, got `{}`", names.join(", "), raw.kind)
    })?;
    let retry_after = raw.retry_after.as_deref().map(|text| duration("fault.retry_after", text));
    Ok(Fault {
        kind,
        message: raw.message.clone().unwrap_or_else(|| format!("scripted fault `{}`", raw.kind)),
        status: raw.status,
        retry_after: retry_after.transpose()?,
    })
}

fn duration(key: &str, text: &str) -> Result<Duration, String> {
    parse_duration(text)
        .ok_or_else(|| format!("`{key}` must be a duration such as `250ms`, got `{text}`"))
}

/// Makes the items of a step, in the order that the format promises.
fn items(raw: RawStep, calls: &mut u32) -> Result<Vec<Item>, String> {
    let mut values = Vec::new();
    if let Some(text) = raw.reasoning {
        values.push(
            json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": text }] }),
        );
    }
    if let Some(text) = raw.say {
        values.push(message(&json!({ "type": "output_text", "text": text })));
    }
    if let Some(refusal) = raw.refusal {
        values.push(message(&json!({ "type": "refusal", "refusal": refusal })));
    }
    for call in raw.calls {
        values.push(call_item(call, calls)?);
    }
    if let Some(input) = raw.patch {
        values.push(json!({
            "type": "custom_tool_call", "call_id": next_id(calls), "name": "apply_patch",
            "input": input,
        }));
    }
    values.extend(raw.items);
    values.into_iter().map(Item::read).collect()
}

fn message(part: &Value) -> Value {
    json!({ "type": "message", "role": "assistant", "content": [part] })
}

fn next_id(calls: &mut u32) -> String {
    *calls += 1;
    format!("call_{calls}")
}

fn call_item(call: RawCall, calls: &mut u32) -> Result<Value, String> {
    let RawCall { tool, id, arguments, raw, input } = call;
    let id = id.unwrap_or_else(|| next_id(calls));
    let function = |arguments: String| json!({ "type": "function_call", "call_id": id, "name": tool, "arguments": arguments });
    match (arguments, raw, input) {
        (None, None, None) => Ok(function("{}".to_owned())),
        (Some(map), None, None) => Ok(function(Value::Object(map).to_string())),
        (None, Some(text), None) => Ok(function(text)),
        (None, None, Some(input)) => {
            Ok(json!({ "type": "custom_tool_call", "call_id": id, "name": tool, "input": input }))
        }
        _ => Err(format!("call of `{tool}`: `arguments`, `raw` and `input` exclude each other")),
    }
}
