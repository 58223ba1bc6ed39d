//! Request bodies: the encoded history with everything around it.
//!
//! In: a [`Request`]. Out: JSON bytes; the history is copied, never encoded again. Pure.

use serde_json::{Value, json};

use super::{Request, ToolSpec};

/// The body of a Responses request.
pub(super) fn responses_body(request: &Request<'_>) -> Vec<u8> {
    let mut body = Body::new(request);
    if !request.tools.is_empty() {
        body.field("tools", &tools(request));
        body.field("tool_choice", &json!("auto"));
        body.field("parallel_tool_calls", &json!(true));
    }
    if let Some(effort) = request.effort {
        body.field("reasoning", &json!({ "effort": effort }));
    }
    body.field("store", &json!(false));
    body.field("stream", &json!(true));
    body.field("include", &json!(["reasoning.encrypted_content"]));
    body.field("prompt_cache_key", &json!(request.cache_key));
    if let Some(schema) = request.schema {
        let format =
            json!({ "type": "json_schema", "name": "output", "strict": true, "schema": schema });
        body.field("text", &json!({ "format": format }));
    }
    if let Some(most) = request.max_output_tokens {
        body.field("max_output_tokens", &json!(most));
    }
    if let Some(temperature) = request.temperature {
        body.field("temperature", &json!(temperature));
    }
    body.finish()
}

/// What a scripted model was told, as the record shows it: nothing that differs between two equal
/// runs (P10), so no cache key.
pub(super) fn recorded_body(request: &Request<'_>) -> Vec<u8> {
    let mut body = Body::new(request);
    body.field("tools", &tools(request));
    if let Some(schema) = request.schema {
        body.field("schema", schema);
    }
    body.finish()
}

fn tools(request: &Request<'_>) -> Value {
    request.tools.iter().map(ToolSpec::to_json).collect()
}

/// A JSON object in the making.
struct Body(String);

impl Body {
    fn new(request: &Request<'_>) -> Self {
        let mut text = String::with_capacity(request.encoded.len() + 4096);
        text.push_str("{\"model\":");
        text.push_str(&json!(request.model).to_string());
        text.push_str(",\"input\":[");
        text.push_str(request.encoded);
        text.push(']');
        Self(text)
    }

    fn field(&mut self, name: &str, value: &Value) {
        self.0.push_str(",\"");
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(&value.to_string());
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.push('}');
        self.0.into_bytes()
    }
}
