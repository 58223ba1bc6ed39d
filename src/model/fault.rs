//! Faults that a provider reports: status and error object to a kind, with the provider's own text.
//!
//! In: status, headers' hint, error JSON. Out: a [`Failure`]. Pure.

use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;

use super::retry::{Failure, reset_hint, text_hint};
use super::{FaultKind, ModelError};
use crate::text::clip;

/// Most bytes of a provider's text that are kept.
const TEXT: usize = 2048;

/// Makes an error without status or hint.
pub(super) fn error(kind: FaultKind, message: impl Into<String>) -> ModelError {
    ModelError { kind, message: message.into(), status: None, retry_after: None }
}

/// The fault of an answer with `status`; `header` is what `Retry-After` says.
pub(super) fn of_status(
    status: StatusCode,
    body: &str,
    header: Option<Duration>,
    now_ms: u64,
) -> Failure {
    let parsed = serde_json::from_str::<Value>(body).unwrap_or(Value::Null);
    let (reported, text) = own_text(&parsed, body);
    let kind = kind(Some(status.as_u16()), reported, &text);
    let reason = status.canonical_reason().unwrap_or("unknown status");
    let colon = if text.is_empty() { "" } else { ": " };
    let message = format!("{} {reason}{colon}{text}", status.as_u16());
    let mut failure = with_hint(error(kind, message), (reported, &text), header, now_ms);
    failure.error.status = Some(status.as_u16());
    failure
}

/// The fault that an error object inside a stream reports.
pub(super) fn of_object(object: &Value, now_ms: u64) -> Failure {
    let (reported, text) = own_text(object, "");
    let status = reported.get("code").and_then(Value::as_u64);
    let status = status.and_then(|code| u16::try_from(code).ok());
    let name = ["code", "type"].into_iter().find_map(|key| reported.get(key)?.as_str());
    let message = match (name, text.is_empty()) {
        (Some(name), false) => format!("the provider reports `{}`: {text}", clip(name, 100)),
        (Some(name), true) => format!("the provider reports `{}`", clip(name, 100)),
        (None, false) => format!("the provider reports: {text}"),
        (None, true) => "the provider reports an error without text".to_owned(),
    };
    let kind = kind(status, reported, &text);
    let mut failure = with_hint(error(kind, message), (reported, &text), None, now_ms);
    failure.error.status = status.filter(|status| (100..600).contains(status));
    failure
}

/// Adds how long to wait, for the kinds where waiting helps.
fn with_hint(
    mut error: ModelError,
    (reported, text): (&Value, &str),
    header: Option<Duration>,
    now_ms: u64,
) -> Failure {
    let is_retryable = error.kind.is_retryable();
    let renewed = || {
        let helps = is_retryable || error.kind == FaultKind::Quota;
        reset_hint(reported, now_ms).filter(|_| helps)
    };
    let said = || text_hint(text).filter(|_| is_retryable);
    let header = header.filter(|_| is_retryable);
    error.retry_after = header.or_else(renewed).or_else(said);
    let cause = if header.is_some() { "retry-after" } else { "rate-limit" };
    Failure { error, cause }
}

/// Finds the error object of an answer and the text that a person should read.
fn own_text<'a>(answer: &'a Value, body: &str) -> (&'a Value, String) {
    let answer = answer.get(0).unwrap_or(answer);
    let reported = match answer.get("error") {
        Some(error @ Value::Object(_)) => error,
        _ => answer,
    };
    let text = ["message", "detail", "error"]
        .into_iter()
        .find_map(|key| reported.get(key)?.as_str())
        .unwrap_or_else(|| body.trim());
    (reported, clip(text, TEXT))
}

/// Decides the kind. The status goes first, but for limits of context and quota, which come under
/// several statuses.
fn kind(status: Option<u16>, reported: &Value, text: &str) -> FaultKind {
    let word = |key: &str| reported.get(key).and_then(Value::as_str).unwrap_or_default();
    let words = format!("{} {}", word("code"), word("type")).to_ascii_lowercase();
    let text = text.to_ascii_lowercase();
    let has = |any: &[&str]| any.iter().any(|part| words.contains(part));
    let says = |any: &[&str]| any.iter().any(|part| text.contains(part));
    if status.is_none_or(|status| (400..500).contains(&status)) {
        if has(&["context_length", "context_window"])
            || says(&["maximum context length", "context window", "exceeds the context"])
        {
            return FaultKind::ContextWindow;
        }
        if status == Some(402)
            || has(&["quota", "usage_limit", "usage_not_included", "credit", "billing"])
            || says(&["credit balance", "out of credits", "insufficient credits"])
        {
            return FaultKind::Quota;
        }
    }
    match status {
        Some(401 | 403) => FaultKind::Auth,
        Some(429) => FaultKind::RateLimit,
        Some(408 | 425 | 500..) => FaultKind::Overloaded,
        Some(300..400) => FaultKind::Protocol,
        Some(400..500) => FaultKind::BadRequest,
        _ if has(&["rate_limit", "too_many_requests"]) => FaultKind::RateLimit,
        _ if has(&["authentication", "api_key", "permission"]) => FaultKind::Auth,
        _ if has(&["invalid_", "not_found", "unsupported", "policy"]) => FaultKind::BadRequest,
        _ => FaultKind::Overloaded,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::StatusCode;
    use serde_json::{Value, json};

    use super::{of_object, of_status};
    use crate::model::FaultKind::{
        Auth, BadRequest, ContextWindow, Overloaded, Protocol, Quota, RateLimit,
    };

    #[test]
    fn statuses_and_codes_have_kinds_and_keep_the_providers_text() {
        for (status, body, kind, message) in [
            (401, r#"{"error":{"message":"bad key"}}"#, Auth, "401 Unauthorized: bad key"),
            (403, "", Auth, "403 Forbidden"),
            (
                400,
                r#"{"error":{"message":"no","type":"invalid_request_error"}}"#,
                BadRequest,
                "400 Bad Request: no",
            ),
            (
                400,
                r#"{"error":{"message":"long","code":"context_length_exceeded"}}"#,
                ContextWindow,
                "400 Bad Request: long",
            ),
            (
                400,
                r#"{"error":{"message":"Your credit balance is too low"}}"#,
                Quota,
                "400 Bad Request: Your credit balance is too low",
            ),
            (402, "pay", Quota, "402 Payment Required: pay"),
            (404, r#"{"detail":"Not Found"}"#, BadRequest, "404 Not Found: Not Found"),
            (413, "<html>", BadRequest, "413 Payload Too Large: <html>"),
            (
                429,
                r#"{"error":{"message":"m","type":"insufficient_quota"}}"#,
                Quota,
                "429 Too Many Requests: m",
            ),
            (
                429,
                r#"[{"error":{"message":"m","code":429}}]"#,
                RateLimit,
                "429 Too Many Requests: m",
            ),
            (500, r#"{"error":"plain"}"#, Overloaded, "500 Internal Server Error: plain"),
            (529, "busy", Overloaded, "529 unknown status: busy"),
            (307, "", Protocol, "307 Temporary Redirect"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let found = of_status(status, body, None, 0).error;
            assert_eq!((found.kind, found.message.as_str()), (kind, message), "{body}");
            assert_eq!(found.status, Some(status.as_u16()));
        }
    }

    #[test]
    fn errors_inside_a_stream_have_kinds() {
        for (object, kind, message) in [
            (
                json!({"code": "server_error", "message": "oops"}),
                Overloaded,
                "the provider reports `server_error`: oops",
            ),
            (
                json!({"code": "rate_limit_exceeded", "message": "m"}),
                RateLimit,
                "the provider reports `rate_limit_exceeded`: m",
            ),
            (
                json!({"error": {"code": 500, "message": "peg"}}),
                Overloaded,
                "the provider reports: peg",
            ),
            (
                json!({"error": {"type": "authentication_error"}}),
                Auth,
                "the provider reports `authentication_error`",
            ),
            (
                json!({"code": "invalid_prompt", "message": "m"}),
                BadRequest,
                "the provider reports `invalid_prompt`: m",
            ),
            (
                json!({"code": "context_length_exceeded", "message": "m"}),
                ContextWindow,
                "the provider reports `context_length_exceeded`: m",
            ),
            (
                json!({"code": "insufficient_quota", "message": "m"}),
                Quota,
                "the provider reports `insufficient_quota`: m",
            ),
            (Value::Null, Overloaded, "the provider reports an error without text"),
        ] {
            let found = of_object(&object, 0).error;
            assert_eq!((found.kind, found.message.as_str()), (kind, message), "{object}");
        }
    }

    #[test]
    fn hints_count_where_waiting_helps() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let limited = |body: &str, header| {
            let failure = of_status(StatusCode::TOO_MANY_REQUESTS, body, header, 0);
            (failure.error.retry_after, failure.cause)
        };
        let text = r#"{"error":{"message":"try again in 17s"}}"#;
        assert_eq!(limited(text, None), (seconds(17), "rate-limit"));
        assert_eq!(limited(text, seconds(2)), (seconds(2), "retry-after"));
        let spent = r#"{"error":{"message":"try again in 17s","code":"insufficient_quota"}}"#;
        assert_eq!(limited(spent, seconds(2)).0, None);
        let renewed = r#"{"error":{"type":"usage_limit_reached","resets_at":5}}"#;
        assert_eq!(limited(renewed, None), (seconds(5), "rate-limit"));
        assert_eq!(of_status(StatusCode::BAD_REQUEST, text, seconds(2), 0).error.retry_after, None);
    }

    #[test]
    fn a_long_text_is_clipped() {
        let found = of_status(StatusCode::BAD_GATEWAY, &"x".repeat(9000), None, 0).error;
        assert!(found.message.ends_with("… (6952 bytes more)"), "{}", found.message);
    }
}
