//! The Responses wire: one POST for each try, a stream of events back.
//!
//! In: a request, a key, the network. Out: one complete response, or a fault with its kind. Knows
//! nothing of what items mean.

use std::future::Future;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use reqwest::{Client, Method, Url};
use tokio::time::{sleep, timeout};

use super::assemble::{Assembly, Taken};
use super::client::{chain, client};
use super::fault::{error, of_object, of_status};
use super::net::without_credentials;
use super::request::responses_body;
use super::retry::{Failure, Moment, Next, Schedule, header_hint};
use super::sse::{Decoder, Frame};
use super::{
    FaultKind, Key, LocalFuture, Model, ModelError, NetOptions, Progress, Request, Response,
};
use crate::clock::Clock;
use crate::plan::{HttpPlan, HttpRetry};
use crate::text::clip;

/// Most bytes of one stream. Our choice: a hundred times the longest answers.
const STREAM: usize = 64 << 20;

/// Most bytes of an error's body that are read.
const ERROR_BODY: usize = 64 << 10;

/// How long the end of a body may take after the response is complete; it frees the connection for
/// the next step.
const DRAIN: Duration = Duration::from_millis(50);

/// A provider that speaks the Responses stream.
#[derive(Debug)]
pub struct Responses {
    client: Client,
    url: Url,
    headers: HeaderMap,
    key: Option<Key>,
    retry: HttpRetry,
}

impl Responses {
    /// Sets the provider up; nothing is sent.
    ///
    /// # Errors
    ///
    /// [`FaultKind::BadRequest`] when the base URL, a header, a proxy or a certificate file is
    /// wrong, or when an `https` URL is asked for on a host without trusted roots.
    pub fn new(plan: &HttpPlan, key: Option<Key>, net: &NetOptions) -> Result<Self, ModelError> {
        let url = endpoint(&plan.base_url)?;
        let headers = headers(plan, key.as_ref())?;
        let client = client(&url, net)?;
        Ok(Self { client, url, headers, key, retry: plan.retry })
    }

    async fn answer(
        &self,
        request: Request<'_>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Response, ModelError> {
        let patience =
            Patience { clock: Clock::start(), idle: request.idle, total: request.remaining };
        let mut post = reqwest::Request::new(Method::POST, self.url.clone());
        self.headers.clone_into(post.headers_mut());
        *post.body_mut() = Some(responses_body(&request).into());
        let mut schedule = Schedule::new(self.retry);
        for r#try in 1.. {
            let body = post.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
            progress(Progress::Requested { r#try, body });
            let begun = patience.clock.elapsed();
            let mut failure = match self.attempt(&post, &patience, progress).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            let message = &mut failure.error.message;
            *message = self.redact(message);
            let next = schedule.next(
                &failure,
                Moment {
                    r#try,
                    begun,
                    now: patience.clock.elapsed(),
                    remaining: patience.left(),
                    jitter: jitter(),
                },
            );
            let mut error = failure.error;
            let (wait, cause) = match next {
                Next::Wait { wait, cause } => (wait, cause),
                Next::Final | Next::Spent => {
                    progress(Progress::Failed { r#try, error: &error, retried: false });
                    return Err(error);
                }
                Next::TooLong(wait) => {
                    let left = patience.left();
                    error.message = format!(
                        "{}; the wall limit falls into the wait before the next try ({wait:.1?} \
                         needed, {left:.1?} left)",
                        error.message
                    );
                    progress(Progress::Failed { r#try, error: &error, retried: false });
                    return Err(error);
                }
            };
            progress(Progress::Failed { r#try, error: &error, retried: true });
            progress(Progress::Waiting { r#try, wait, cause });
            sleep(wait).await;
        }
        Err(error(FaultKind::Protocol, "the number of tries overflowed"))
    }

    /// One try.
    async fn attempt(
        &self,
        post: &reqwest::Request,
        patience: &Patience,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Response, Failure> {
        let Some(post) = post.try_clone() else {
            return Err(error(FaultKind::BadRequest, "the request can't be repeated").into());
        };
        let sent = patience.on("no answer", self.client.execute(post)).await?;
        let answer = sent.map_err(|failed| self.broken(failed))?;
        if !answer.status().is_success() {
            return Err(reported(answer, patience).await);
        }
        let kind = answer.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        match kind.map(str::to_owned) {
            Some(kind) if !kind.starts_with("text/event-stream") => {
                Err(no_stream(answer, &kind, patience).await)
            }
            _ => self.stream(answer, patience, progress).await,
        }
    }

    /// Reads the stream up to the complete response.
    async fn stream(
        &self,
        mut answer: reqwest::Response,
        patience: &Patience,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Response, Failure> {
        let mut decoder = Decoder::default();
        let mut assembly = Assembly::default();
        let mut bytes = 0;
        let mut is_open = true;
        while is_open {
            let chunk = patience.on("the stream stayed silent", answer.chunk()).await?;
            let chunk = chunk.map_err(|failed| {
                let cause = chain(&failed.without_url());
                error(FaultKind::CutStream, format!("the stream broke: {cause}"))
            })?;
            let frames = if let Some(chunk) = chunk {
                bytes += chunk.len();
                decoder.push(&chunk)
            } else {
                is_open = false;
                decoder.finish().into_iter().collect()
            };
            if bytes > STREAM {
                return Err(error(FaultKind::Protocol, "the stream exceeds 64 MiB").into());
            }
            for frame in frames {
                match assembly.take(&self.without_key(frame), Clock::epoch_ms()) {
                    Ok(Taken::Nothing) => {}
                    Ok(Taken::Item(item)) => progress(Progress::Item(item)),
                    Ok(Taken::Done(response)) => {
                        drain(answer).await;
                        return Ok(*response);
                    }
                    // The last frame may be a torn one: then the cut is the fault.
                    Err(failure) if !is_open && failure.error.kind == FaultKind::Protocol => break,
                    Err(failure) => return Err(failure),
                }
            }
        }
        Err(cut(&decoder))
    }

    /// A provider that echoes the key must not get it into history and transcript (P6).
    fn without_key(&self, frame: Frame) -> Frame {
        match &self.key {
            Some(key) if key.is_in(&frame.data) => {
                let data = key.redact(&String::from_utf8_lossy(&frame.data)).into_bytes();
                Frame { data, ..frame }
            }
            _ => frame,
        }
    }

    fn redact(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.redact(text))
    }

    /// The fault of a request that got no answer.
    fn broken(&self, failed: reqwest::Error) -> ModelError {
        let is_connect = failed.is_connect();
        let is_builder = failed.is_builder();
        let cause = chain(&failed.without_url());
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default().unwrap_or_default();
        if is_connect {
            error(FaultKind::Refused, format!("no connection to `{host}:{port}`: {cause}"))
        } else if is_builder {
            error(FaultKind::BadRequest, format!("the request can't be made: {cause}"))
        } else {
            error(
                FaultKind::CutStream,
                format!("`{host}:{port}` broke off before it answered: {cause}"),
            )
        }
    }
}

impl Model for Responses {
    fn sample<'a>(
        &'a self,
        request: Request<'a>,
        progress: &'a mut dyn FnMut(Progress<'_>),
    ) -> LocalFuture<'a, Result<Response, ModelError>> {
        Box::pin(self.answer(request, progress))
    }
}

/// How long a request may wait: for any sign of life, and in all.
struct Patience {
    clock: Clock,
    idle: Duration,
    total: Duration,
}

impl Patience {
    fn left(&self) -> Duration {
        self.total.saturating_sub(self.clock.elapsed())
    }

    /// Waits for `future`, but not longer than both limits allow.
    async fn on<T>(&self, silence: &str, future: impl Future<Output = T>) -> Result<T, ModelError> {
        let left = self.left();
        timeout(self.idle.min(left), future).await.map_err(|_| {
            if left <= self.idle {
                error(FaultKind::Wall, "the wall limit fell into a request to the model")
            } else {
                error(FaultKind::Idle, format!("{silence} for {:?}", self.idle))
            }
        })
    }
}

/// A random number from 0 up to 1: spreads clients that failed together.
fn jitter() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// Appends `/responses` to the path of `base`; a query stays.
fn endpoint(base: &str) -> Result<Url, ModelError> {
    let shown = without_credentials(base);
    let invalid = || {
        let message = format!("`base_url` must be an http or https URL, got `{shown}`");
        error(FaultKind::BadRequest, message)
    };
    let mut url = Url::parse(base).map_err(|_| invalid())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(invalid());
    }
    let path = format!("{}/responses", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

fn headers(plan: &HttpPlan, key: Option<&Key>) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    for (name, value) in &plan.headers {
        let bad = |what: &str| error(FaultKind::BadRequest, format!("header `{name}`: {what}"));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("no header name"))?;
        let value = HeaderValue::from_str(value).map_err(|_| bad("no header value"))?;
        headers.insert(name, value);
    }
    if let Some(key) = key {
        let mut value = HeaderValue::from_bytes(&key.bearer()).map_err(|_| {
            error(FaultKind::Auth, "the key holds characters that no header can carry")
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// The fault of an answer with another status than success.
async fn reported(answer: reqwest::Response, patience: &Patience) -> Failure {
    let status = answer.status();
    let text = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let hint = text(RETRY_AFTER).and_then(|value| header_hint(value, Clock::epoch_ms()));
    let location = text(LOCATION).map(without_credentials);
    let body = error_body(answer, patience).await;
    let mut failure = of_status(status, &body, hint, Clock::epoch_ms());
    if let (true, Some(location)) = (status.is_redirection(), location) {
        failure.error.message = format!(
            "{}; redirects are not followed, it names `{}`",
            failure.error.message,
            clip(&location, 300)
        );
    }
    failure
}

/// The fault of a success that is no stream; an error object in it counts.
async fn no_stream(answer: reqwest::Response, kind: &str, patience: &Patience) -> Failure {
    let body = error_body(answer, patience).await;
    if let Some(failure) = error_object(&body) {
        return failure;
    }
    let (kind, body) = (clip(kind, 100), clip(body.trim(), 300));
    let message = format!("expected `text/event-stream`, got `{kind}`: {body}");
    error(FaultKind::Protocol, message).into()
}

/// The fault of a stream that ended too early.
fn cut(decoder: &Decoder) -> Failure {
    let message = "the stream ended before the response was complete";
    match decoder.stray() {
        Some(stray) => error_object(stray).unwrap_or_else(|| {
            let stray = clip(stray, 300);
            error(FaultKind::CutStream, format!("{message}; it says: {stray}")).into()
        }),
        None => error(FaultKind::CutStream, message).into(),
    }
}

fn error_object(text: &str) -> Option<Failure> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let is_error = value.get("error").is_some_and(|error| !error.is_null());
    is_error.then(|| of_object(&value, Clock::epoch_ms()))
}

/// The start of a body; what can't be read in time is left out.
async fn error_body(mut answer: reqwest::Response, patience: &Patience) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < ERROR_BODY {
        match patience.on("the body stayed silent", answer.chunk()).await {
            Ok(Ok(Some(chunk))) => bytes.extend_from_slice(&chunk),
            Ok(Ok(None) | Err(_)) | Err(_) => break,
        }
    }
    bytes.truncate(ERROR_BODY);
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn drain(mut answer: reqwest::Response) {
    let rest = async { while let Ok(Some(_)) = answer.chunk().await {} };
    // Late or never: then the next step makes a connection of its own.
    drop(timeout(DRAIN, rest).await);
}
