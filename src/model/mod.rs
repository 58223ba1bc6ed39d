//! The model: who answers.
//!
//! In: the encoded history and the tool specs. Out: complete items and usage, or a fault with its
//! kind. Knows nothing of tools' behaviour, policy or the transcript.

mod assemble;
mod client;
mod fault;
pub mod item;
pub mod key;
pub mod net;
mod request;
pub mod responses;
mod retry;
pub mod script;
pub mod spec;
mod sse;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

pub use item::{Item, ItemKind, Payload, ToolCall};
pub use key::Key;
pub use net::NetOptions;
pub use responses::Responses;
pub use script::{Script, ScriptError};
pub use spec::{FunctionSpec, ToolSpec};

use crate::plan::{ModelPlan, Wire};
use crate::transcript::event::Usage;

/// A future on this thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// One sampling request: everything that the model is told.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Name of the model.
    pub model: &'a str,
    /// `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`; absent: the provider's default.
    pub effort: Option<&'a str>,
    /// Upper bound of output tokens.
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The history, item by item.
    pub items: &'a [Item],
    /// The same history as JSON items joined by commas, without brackets; only ever appended to.
    pub encoded: &'a str,
    /// Tools, in order.
    pub tools: &'a [ToolSpec],
    /// Schema of the final message.
    pub schema: Option<&'a Value>,
    /// Stable key of the conversation for the provider's prompt cache.
    pub cache_key: &'a str,
    /// What is left of the wall budget; no wait may exceed it.
    pub remaining: Duration,
    /// Longest silence of the stream before it is cut.
    pub idle: Duration,
}

/// A complete response.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// Provider's id.
    pub id: String,
    /// Items, in order.
    pub items: Vec<Item>,
    /// Tokens.
    pub usage: Usage,
    /// Usage figures that this version doesn't know.
    pub usage_extra: BTreeMap<String, Value>,
    /// Reason of an incomplete response; the items before it stand.
    pub incomplete: Option<String>,
    /// Stream event types that this version doesn't know, with their counts.
    pub ignored: BTreeMap<String, u64>,
}

/// What happens while a request is under way.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A try goes out.
    Requested {
        /// Try, from 1.
        r#try: u32,
        /// Request body.
        body: &'a [u8],
    },
    /// A try failed.
    Failed {
        /// Try, from 1.
        r#try: u32,
        /// The fault.
        error: &'a ModelError,
        /// Whether another try follows.
        retried: bool,
    },
    /// A wait before the next try.
    Waiting {
        /// Try that failed, from 1.
        r#try: u32,
        /// Planned wait.
        wait: Duration,
        /// `backoff`, `retry-after`, `rate-limit`.
        cause: &'static str,
    },
    /// A complete item of a response that may still fail: for live display only.
    Item(&'a Item),
}

/// Who answers.
pub trait Model {
    /// Sends `request`, retries what can be retried, and returns one complete response.
    ///
    /// Nothing of an incomplete stream is returned. Each try, wait and fault is told to `progress`
    /// before it takes effect.
    ///
    /// # Errors
    ///
    /// The last fault, when no try is left or the fault can't be repaired by trying again.
    fn sample<'a>(
        &'a self,
        request: Request<'a>,
        progress: &'a mut dyn FnMut(Progress<'_>),
    ) -> LocalFuture<'a, Result<Response, ModelError>>;
}

/// Kinds of faults; the kind decides whether another try makes sense and what the run's end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// 401, 403: key missing or refused.
    Auth,
    /// Quota or credits spent.
    Quota,
    /// 429: too many requests.
    RateLimit,
    /// 5xx.
    Overloaded,
    /// Another 4xx: this request can't succeed.
    BadRequest,
    /// The history is too long for the model.
    ContextWindow,
    /// The stream ended before the response was complete.
    CutStream,
    /// The stream stayed silent for longer than `idle`.
    Idle,
    /// No connection.
    Refused,
    /// The answer makes no sense.
    Protocol,
    /// The wall budget ran out while waiting.
    Wall,
    /// A scripted expectation was not met, or the script is spent.
    Script,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 12] = [
        Self::Auth,
        Self::Quota,
        Self::RateLimit,
        Self::Overloaded,
        Self::BadRequest,
        Self::ContextWindow,
        Self::CutStream,
        Self::Idle,
        Self::Refused,
        Self::Protocol,
        Self::Wall,
        Self::Script,
    ];

    /// The kind that the transcript calls `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether the same request may succeed later.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Overloaded
            | Self::CutStream
            | Self::Idle
            | Self::Refused
            | Self::Protocol => true,
            Self::Auth
            | Self::Quota
            | Self::BadRequest
            | Self::ContextWindow
            | Self::Wall
            | Self::Script => false,
        }
    }

    /// Name in the transcript.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::RateLimit => "rate-limit",
            Self::Overloaded => "overloaded",
            Self::BadRequest => "bad-request",
            Self::ContextWindow => "context-window",
            Self::CutStream => "cut-stream",
            Self::Idle => "idle",
            Self::Refused => "refused",
            Self::Protocol => "protocol",
            Self::Wall => "wall",
            Self::Script => "script",
        }
    }
}

/// Why a request failed.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct ModelError {
    /// Kind.
    pub kind: FaultKind,
    /// What happened, with the provider's own text.
    pub message: String,
    /// HTTP status.
    pub status: Option<u16>,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
}

/// Makes the model that `plan` names. A [`Script`] keeps its place, so it is opened once for all
/// attempts of an instance.
///
/// # Errors
///
/// [`FaultKind::Script`] for a script that can't be read; the errors of [`Responses::new`].
pub fn open(
    plan: &ModelPlan,
    key: Option<Key>,
    net: &NetOptions,
) -> Result<Box<dyn Model>, ModelError> {
    match &plan.wire {
        Wire::Responses(http) => Ok(Box::new(Responses::new(http, key, net)?)),
        Wire::Script { name, text } => match Script::read(name, text) {
            Ok(script) => Ok(Box::new(script)),
            Err(problem) => Err(fault::error(FaultKind::Script, problem.to_string())),
        },
    }
}
