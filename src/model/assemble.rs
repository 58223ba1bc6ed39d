//! Assembly: the frames of a Responses stream to one complete response.
//!
//! In: frames, in order. Out: items as they are completed, then the response; or the fault that the
//! stream reports. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fault::{error, of_object};
use super::retry::Failure;
use super::sse::Frame;
use super::{FaultKind, Item, ItemKind, Response};
use crate::text::clip;
use crate::transcript::event::Usage;

/// Most unknown event types that are counted by name.
const MOST_IGNORED: usize = 64;

/// A response in the making.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    id: String,
    entries: Vec<Entry>,
    /// Texts of message parts that came as events of their own, by output and content index.
    texts: BTreeMap<u64, BTreeMap<u64, Part>>,
    ignored: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Entry {
    index: Option<u64>,
    id: Option<String>,
    item: Item,
}

#[derive(Debug, Default)]
struct Part {
    text: String,
    is_refusal: bool,
}

/// What a frame meant.
#[derive(Debug)]
pub(super) enum Taken<'a> {
    /// Nothing that counts yet.
    Nothing,
    /// One more complete item.
    Item(&'a Item),
    /// The response is complete.
    Done(Box<Response>),
}

impl Assembly {
    /// Takes the next frame. After [`Taken::Done`] the assembly is spent.
    ///
    /// # Errors
    ///
    /// The fault that the frame reports; [`FaultKind::Protocol`] when it can't be understood.
    pub(super) fn take(&mut self, frame: &Frame, now_ms: u64) -> Result<Taken<'_>, Failure> {
        let data = frame.data.trim_ascii();
        if data.is_empty() || data == b"[DONE]" {
            return Ok(Taken::Nothing);
        }
        let value: Value = serde_json::from_slice(data)
            .map_err(|_| protocol("a data line of the stream is no JSON", data))?;
        let kind = value.get("type").and_then(Value::as_str).unwrap_or(&frame.event);
        let response = value.get("response").unwrap_or(&Value::Null);
        match kind {
            "response.output_item.done" => return self.add(&value, data),
            "response.output_text.delta" => self.push_text(&value, "delta", false),
            "response.refusal.delta" => self.push_text(&value, "delta", true),
            "response.output_text.done" => self.set_text(&value, "text", false),
            "response.refusal.done" => self.set_text(&value, "refusal", true),
            "response.completed" | "response.done" | "response.incomplete" => {
                return self.finish(response, kind, data, now_ms);
            }
            "response.failed" => {
                return Err(of_object(response.get("error").unwrap_or(response), now_ms));
            }
            "response.cancelled" => {
                return Err(
                    error(FaultKind::CutStream, "the provider cancelled the response").into()
                );
            }
            "error" => return Err(of_object(&value, now_ms)),
            _ if kind.is_empty() && value.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(of_object(&value, now_ms));
            }
            _ if is_known(kind) => self.note_id(response),
            _ => self.ignore(kind),
        }
        Ok(Taken::Nothing)
    }

    fn note_id(&mut self, response: &Value) {
        if let Some(id) = response.get("id").and_then(Value::as_str) {
            id.clone_into(&mut self.id);
        }
    }

    fn ignore(&mut self, kind: &str) {
        let kind = clip(kind, 100);
        if self.ignored.len() < MOST_IGNORED || self.ignored.contains_key(&kind) {
            *self.ignored.entry(kind).or_default() += 1;
        }
    }

    fn part(&mut self, value: &Value) -> &mut Part {
        let index = |key: &str| value.get(key).and_then(Value::as_u64).unwrap_or_default();
        let output = self.texts.entry(index("output_index")).or_default();
        output.entry(index("content_index")).or_default()
    }

    fn push_text(&mut self, value: &Value, field: &str, is_refusal: bool) {
        if let Some(text) = value.get(field).and_then(Value::as_str) {
            let part = self.part(value);
            part.text.push_str(text);
            part.is_refusal = is_refusal;
        }
    }

    fn set_text(&mut self, value: &Value, field: &str, is_refusal: bool) {
        if let Some(text) = value.get(field).and_then(Value::as_str) {
            *self.part(value) = Part { text: text.to_owned(), is_refusal };
        }
    }

    /// Adds the item of `response.output_item.done`; one that is there already is not added again.
    fn add(&mut self, value: &Value, data: &[u8]) -> Result<Taken<'_>, Failure> {
        let index = value.get("output_index").and_then(Value::as_u64);
        let entry = Entry::read(value.get("item").unwrap_or(&Value::Null), index, data)?;
        let is_there = self.entries.iter().any(|other| {
            other.is_same(&entry)
                && (other.id.is_some() || other.call_id().is_some() || other.index == index)
        });
        if is_there {
            return Ok(Taken::Nothing);
        }
        self.entries.push(entry);
        Ok(self.entries.last().map_or(Taken::Nothing, |entry| Taken::Item(&entry.item)))
    }

    fn finish(
        &mut self,
        response: &Value,
        kind: &str,
        data: &[u8],
        now_ms: u64,
    ) -> Result<Taken<'_>, Failure> {
        if let Some(object @ Value::Object(_)) = response.get("error") {
            return Err(of_object(object, now_ms));
        }
        self.note_id(response);
        let is_incomplete = kind == "response.incomplete"
            || response.get("status").and_then(Value::as_str) == Some("incomplete");
        let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
        self.merge(response, data)?;
        self.rebuild_texts();
        let (usage, usage_extra) = usage(response.get("usage").unwrap_or(&Value::Null));
        Ok(Taken::Done(Box::new(Response {
            id: std::mem::take(&mut self.id),
            items: self.entries.drain(..).map(|entry| entry.item).collect(),
            usage,
            usage_extra,
            incomplete: is_incomplete.then(|| reason.unwrap_or("unknown").to_owned()),
            ignored: std::mem::take(&mut self.ignored),
        })))
    }

    /// Brings the items into order and adds those that only the completed response has.
    fn merge(&mut self, response: &Value, data: &[u8]) -> Result<(), Failure> {
        let mut rest = std::mem::take(&mut self.entries);
        let output = response.get("output").and_then(Value::as_array);
        for (index, value) in (0..).zip(output.into_iter().flatten()) {
            let entry = Entry::read(value, Some(index), data)?;
            let place = rest
                .iter()
                .position(|other| other.is_same(&entry))
                .or_else(|| rest.iter().position(|other| other.index == Some(index)));
            match place {
                Some(place) => self.entries.push(rest.remove(place)),
                // A call that was sent twice under one id must not be made twice.
                None if self.entries.iter().any(|other| other.is_same_call(&entry)) => {}
                None => self.entries.push(entry),
            }
        }
        self.entries.append(&mut rest);
        if self.entries.iter().all(|entry| entry.index.is_some()) {
            self.entries.sort_by_key(|entry| entry.index);
        }
        Ok(())
    }

    /// Makes messages out of texts whose item never came, or came empty.
    fn rebuild_texts(&mut self) {
        let has_places = self.entries.iter().all(|entry| entry.index.is_some());
        for (index, parts) in std::mem::take(&mut self.texts) {
            if parts.values().all(|part| part.text.is_empty()) {
                continue;
            }
            let place = self.entries.iter().position(|entry| entry.index == Some(index));
            let is_missing = match place {
                Some(place) => self.entries[place].is_empty_message(),
                None => has_places,
            };
            let Some(item) = is_missing.then(|| rebuilt(&parts)).flatten() else { continue };
            if let Some(place) = place {
                self.entries[place].item = item;
            } else {
                let before = self.entries.partition_point(|entry| entry.index < Some(index));
                self.entries.insert(before, Entry { index: Some(index), id: None, item });
            }
        }
    }
}

impl Entry {
    fn read(value: &Value, index: Option<u64>, data: &[u8]) -> Result<Self, Failure> {
        let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
        match Item::read(value.clone()) {
            Ok(item) => Ok(Self { index, id, item }),
            Err(problem) => Err(protocol(&problem, data)),
        }
    }

    fn call_id(&self) -> Option<&str> {
        match &self.item.kind {
            ItemKind::Call(call) => Some(&call.call_id),
            ItemKind::Message { .. }
            | ItemKind::Reasoning { .. }
            | ItemKind::Output { .. }
            | ItemKind::Other { .. } => None,
        }
    }

    fn is_same_call(&self, other: &Self) -> bool {
        self.call_id().is_some() && self.call_id() == other.call_id()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.is_same_call(other)
            || (self.id.is_some() && self.id == other.id)
            || self.item.raw.get() == other.item.raw.get()
    }

    fn is_empty_message(&self) -> bool {
        matches!(&self.item.kind, ItemKind::Message { text, refusal: None, .. } if text.is_empty())
    }
}

fn rebuilt(parts: &BTreeMap<u64, Part>) -> Option<Item> {
    let content: Vec<_> = parts
        .values()
        .map(|part| {
            if part.is_refusal {
                json!({ "type": "refusal", "refusal": part.text })
            } else {
                json!({ "type": "output_text", "text": part.text })
            }
        })
        .collect();
    Item::read(json!({ "type": "message", "role": "assistant", "content": content })).ok()
}

fn protocol(problem: &str, data: &[u8]) -> Failure {
    let data = clip(&String::from_utf8_lossy(data), 300);
    error(FaultKind::Protocol, format!("{problem}: {data}")).into()
}

/// Whether an event type is one that this version knows and doesn't need.
fn is_known(kind: &str) -> bool {
    let known = [
        "response.created",
        "response.in_progress",
        "response.queued",
        "response.output_item.added",
        "response.content_part.added",
        "response.content_part.done",
        "response.output_text.annotation.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "keepalive",
        "ping",
    ];
    known.contains(&kind)
        || kind.starts_with("response.reasoning_")
        || kind.starts_with("response.web_search_call.")
}

/// Reads the token counts; what is missing counts zero, what is unknown is kept as it came.
fn usage(value: &Value) -> (Usage, BTreeMap<String, Value>) {
    let mut usage = Usage::default();
    let mut extra = BTreeMap::new();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    for (key, value) in value.as_object().into_iter().flatten() {
        match key.as_str() {
            "input_tokens" => usage.input_tokens = number(value),
            "output_tokens" => usage.output_tokens = number(value),
            "total_tokens" => {}
            "input_tokens_details" | "output_tokens_details" => {
                for (detail, value) in value.as_object().into_iter().flatten() {
                    match detail.as_str() {
                        "cached_tokens" => usage.cached_input_tokens = number(value),
                        "reasoning_tokens" => usage.reasoning_output_tokens = number(value),
                        _ => drop(extra.insert(format!("{key}.{detail}"), value.clone())),
                    }
                }
            }
            _ => drop(extra.insert(key.clone(), value.clone())),
        }
    }
    (usage, extra)
}
