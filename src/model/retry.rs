//! Retries: whether another try follows a fault, and when.
//!
//! In: a fault, the time that is left, what the provider says about waiting. Out: a wait or an end.
//! Pure; clock and randomness come in as values.

use std::time::Duration;

use serde_json::Value;
use time::PrimitiveDateTime;
use time::macros::format_description;

use super::{FaultKind, ModelError};
use crate::plan::HttpRetry;

/// How long connections may be refused before no try follows, however many are left.
pub(super) const REFUSED: Duration = Duration::from_mins(1);

/// A fault, with where its wait comes from.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: ModelError,
    /// `backoff`, `retry-after` (the header) or `rate-limit` (the body).
    pub(super) cause: &'static str,
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self { error, cause: "backoff" }
    }
}

/// What follows a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another try after this wait.
    Wait { wait: Duration, cause: &'static str },
    /// The wait would outlast the wall budget.
    TooLong(Duration),
    /// No other try: the fault can't be repaired by one.
    Final,
    /// No other try: all are spent.
    Spent,
}

/// Counts the tries of one request.
#[derive(Debug)]
pub(super) struct Schedule {
    retry: HttpRetry,
    refused_since: Option<Duration>,
}

/// When a fault happened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Try that failed, from 1.
    pub(super) r#try: u32,
    /// Start of that try, since the request began.
    pub(super) begun: Duration,
    /// End of that try, since the request began.
    pub(super) now: Duration,
    /// What is left of the wall budget.
    pub(super) remaining: Duration,
    /// A random number from 0 up to 1.
    pub(super) jitter: f64,
}

impl Schedule {
    pub(super) fn new(retry: HttpRetry) -> Self {
        Self { retry, refused_since: None }
    }

    /// Decides what follows `failure`.
    ///
    /// A quota is waited for only when the provider says when it is renewed.
    pub(super) fn next(&mut self, failure: &Failure, at: Moment) -> Next {
        let error = &failure.error;
        let is_refused = error.kind == FaultKind::Refused;
        self.refused_since = is_refused.then(|| self.refused_since.unwrap_or(at.begun));
        let hint = error.retry_after.filter(|_| self.retry.respect_retry_after);
        let is_renewed = error.kind == FaultKind::Quota && hint.is_some();
        // A redirect stays one, however often it is followed.
        let is_moved = error.status.is_some_and(|status| (300..400).contains(&status));
        if is_moved || !(error.kind.is_retryable() || is_renewed) {
            return Next::Final;
        }
        if at.r#try >= self.retry.max_attempts {
            return Next::Spent;
        }
        let (wait, cause) = match hint {
            Some(hint) if !hint.is_zero() => (hint, failure.cause),
            _ => (self.backoff(at.r#try, at.jitter), "backoff"),
        };
        if self.refused_since.is_some_and(|since| (at.now + wait).saturating_sub(since) > REFUSED) {
            return Next::Spent;
        }
        if wait >= at.remaining { Next::TooLong(wait) } else { Next::Wait { wait, cause } }
    }

    /// Doubles from `base` up to `max`; between half of that and all of it.
    fn backoff(&self, r#try: u32, jitter: f64) -> Duration {
        let doubled = 2_u32.saturating_pow(r#try.saturating_sub(1).min(31));
        let full = self.retry.base.saturating_mul(doubled).min(self.retry.max);
        full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// Reads a `Retry-After` header: seconds, or an HTTP date relative to `now_ms` (since the epoch).
pub(super) fn header_hint(value: &str, now_ms: u64) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let format = format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    let date = PrimitiveDateTime::parse(value, format).ok()?.assume_utc();
    let at_ms = u64::try_from(date.unix_timestamp()).ok()?.checked_mul(1000)?;
    Some(until(at_ms, now_ms))
}

/// Reads when a limit is renewed out of an error object: `resets_in_seconds`, `retry_after`,
/// `resets_at` (seconds since the epoch).
pub(super) fn reset_hint(error: &Value, now_ms: u64) -> Option<Duration> {
    let seconds = |key: &str| Duration::try_from_secs_f64(error.get(key)?.as_f64()?).ok();
    if let Some(wait) = seconds("resets_in_seconds").or_else(|| seconds("retry_after")) {
        return Some(wait);
    }
    let at_ms = u64::try_from(seconds("resets_at")?.as_millis()).ok()?;
    Some(until(at_ms, now_ms))
}

fn until(at_ms: u64, now_ms: u64) -> Duration {
    Duration::from_millis(at_ms.saturating_sub(now_ms))
}

/// Finds `try again in 1m30.5s`, `retry after 20 seconds` and the like in a message.
pub(super) fn text_hint(text: &str) -> Option<Duration> {
    let lower = text.to_ascii_lowercase();
    ["try again in ", "retry after ", "retry in "].iter().find_map(|phrase| {
        let at = lower.find(phrase)? + phrase.len();
        spoken_duration(&lower[at..])
    })
}

/// Reads numbers with units, with or without blanks, up to the first word that is neither.
fn spoken_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = None;
    loop {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let Ok(number) = rest[..digits].trim_end_matches('.').parse::<f64>() else { break };
        let after = rest[digits..].trim_start();
        let length = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let seconds = match &after[..length] {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        let part = Duration::try_from_secs_f64(number * seconds).ok()?;
        total = Some(total.unwrap_or(Duration::ZERO).checked_add(part)?);
        rest = after[length..].trim_start();
    }
    total
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{Failure, Moment, Next, Schedule, header_hint, reset_hint, text_hint};
    use crate::model::{FaultKind, ModelError};
    use crate::plan::HttpRetry;

    fn failure(kind: FaultKind, retry_after: Option<u64>) -> Failure {
        let retry_after = retry_after.map(Duration::from_secs);
        let error = ModelError { kind, message: String::new(), status: None, retry_after };
        Failure { error, cause: "retry-after" }
    }

    fn at(r#try: u32) -> Moment {
        Moment {
            r#try,
            begun: Duration::ZERO,
            now: Duration::ZERO,
            remaining: Duration::from_mins(10),
            jitter: 1.0,
        }
    }

    fn wait(seconds: u64, cause: &'static str) -> Next {
        Next::Wait { wait: Duration::from_secs(seconds), cause }
    }

    #[test]
    fn hints_are_read_from_headers_bodies_and_texts() {
        let now = 784_111_770_000;
        for (header, seconds) in [
            ("17", Some(17.0)),
            (" 1.5 ", Some(1.5)),
            ("0", Some(0.0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7.0)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0.0)),
            ("-1", None),
            ("soon", None),
            ("NaN", None),
        ] {
            assert_eq!(header_hint(header, now), seconds.map(Duration::from_secs_f64), "{header}");
        }
        for (error, seconds) in [
            (json!({ "resets_in_seconds": 5, "resets_at": 1 }), Some(5)),
            (json!({ "resets_at": 784_111_775 }), Some(5)),
            (json!({ "resets_at": 3 }), Some(0)),
            (json!({ "retry_after": 2 }), Some(2)),
            (json!({ "message": "x" }), None),
            (json!(null), None),
        ] {
            assert_eq!(reset_hint(&error, now), seconds.map(Duration::from_secs), "{error}");
        }
        for (text, seconds) in [
            ("Rate limit reached. Please try again in 17s.", Some(17.0)),
            ("try again in 1.5s", Some(1.5)),
            ("Try again in 28ms. Visit", Some(0.028)),
            ("try again in 6m0s", Some(360.0)),
            ("try again in 1h 2m 3.5s now", Some(3723.5)),
            ("please retry after 20 seconds", Some(20.0)),
            ("try again in a while", None),
            ("try again in 17", None),
            ("busy", None),
        ] {
            assert_eq!(text_hint(text), seconds.map(Duration::from_secs_f64), "{text}");
        }
    }

    #[test]
    fn backoff_doubles_up_to_its_bound_and_tries_are_counted() {
        let mut schedule = Schedule::new(HttpRetry { max_attempts: 9, ..HttpRetry::default() });
        let busy = failure(FaultKind::Overloaded, None);
        for (r#try, seconds) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60)] {
            assert_eq!(schedule.next(&busy, at(r#try)), wait(seconds, "backoff"));
        }
        assert_eq!(schedule.next(&busy, at(9)), Next::Spent);
        let least = schedule.next(&busy, Moment { jitter: 0.0, ..at(2) });
        assert_eq!(least, wait(1, "backoff"));
    }

    #[test]
    fn a_hint_is_honoured_up_to_the_wall() {
        let mut schedule = Schedule::new(HttpRetry::default());
        let limited = failure(FaultKind::RateLimit, Some(120));
        assert_eq!(schedule.next(&limited, at(1)), wait(120, "retry-after"));
        let late = Moment { remaining: Duration::from_mins(2), ..at(1) };
        assert_eq!(schedule.next(&limited, late), Next::TooLong(Duration::from_mins(2)));
        let zero = failure(FaultKind::RateLimit, Some(0));
        assert_eq!(schedule.next(&zero, at(1)), wait(1, "backoff"));
        let deaf = HttpRetry { respect_retry_after: false, ..HttpRetry::default() };
        assert_eq!(Schedule::new(deaf).next(&limited, at(1)), wait(1, "backoff"));
    }

    #[test]
    fn what_time_does_not_repair_is_final() {
        let mut schedule = Schedule::new(HttpRetry::default());
        for kind in [FaultKind::Auth, FaultKind::BadRequest, FaultKind::Wall, FaultKind::Quota] {
            assert_eq!(schedule.next(&failure(kind, None), at(1)), Next::Final, "{kind:?}");
        }
        let renewed = failure(FaultKind::Quota, Some(5));
        assert_eq!(schedule.next(&renewed, at(1)), wait(5, "retry-after"));
        let mut moved = failure(FaultKind::Protocol, None);
        assert_eq!(schedule.next(&moved, at(1)), wait(1, "backoff"));
        moved.error.status = Some(307);
        assert_eq!(schedule.next(&moved, at(1)), Next::Final);
    }

    #[test]
    fn p1_refused_connections_end_after_a_minute() {
        let mut schedule = Schedule::new(HttpRetry { max_attempts: 99, ..HttpRetry::default() });
        let refused = failure(FaultKind::Refused, None);
        let moment = |r#try: u32, begun: u64, now: u64| Moment {
            begun: Duration::from_secs(begun),
            now: Duration::from_secs(now),
            ..at(r#try)
        };
        assert_eq!(schedule.next(&refused, moment(1, 100, 100)), wait(1, "backoff"));
        assert_eq!(schedule.next(&refused, moment(5, 131, 140)), wait(16, "backoff"));
        assert_eq!(schedule.next(&refused, moment(5, 131, 145)), Next::Spent);
        let busy = failure(FaultKind::Overloaded, None);
        assert_eq!(schedule.next(&busy, moment(6, 150, 150)), wait(32, "backoff"));
        assert_eq!(schedule.next(&refused, moment(1, 160, 160)), wait(1, "backoff"));
    }
}
