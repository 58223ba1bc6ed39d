//! Models: which one answers and how its provider is reached.
//!
//! In: nodes. Out: what the file says, every field optional. Knows nothing of wires.

use super::declare::{choice, object};
use super::entries::Entries;
use super::read::Spanned;
use super::value::{Amount, Count, Path, Price, Text, Time, Variable};

object! {
    /// Which model answers.
    pub struct ModelSpec {
        /// Id of the provider. May be left out when exactly one provider is defined.
        pub provider: Option<Spanned<super::value::Id>>,
        /// Name of the model as the provider knows it.
        pub name: Option<Spanned<Text>>,
        /// Effort of its reasoning. Default: the provider's.
        pub effort: Option<Effort>,
        /// Sampling temperature. Default: the provider's.
        pub temperature: Option<Price>,
        /// Bound of output tokens of one response. Default: the provider's.
        pub max_output_tokens: Option<Count<1>>,
    }
    unbuilt {
        /// Models that answer when this one doesn't.
        fallback: Vec<Self>,
    }
}

choice! {
    /// Effort of a model's reasoning.
    pub enum Effort {
        /// None.
        None = "none",
        /// Next to none.
        Minimal = "minimal",
        /// Low.
        Low = "low",
        /// Medium.
        Medium = "medium",
        /// High.
        High = "high",
        /// Higher.
        Xhigh = "xhigh",
        /// The highest.
        Max = "max",
    }
}

impl Effort {
    /// Name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

object! {
    /// How a provider is reached.
    pub struct Provider {
        /// Protocol.
        pub wire: Spanned<WireName>,
        /// Address that `/responses` is appended to. Default `https://api.openai.com/v1`.
        pub base_url: Option<Spanned<Text>>,
        /// With `wire: script`: the file of scripted steps, relative to this file.
        pub script: Option<Spanned<Path>>,
        /// Where the key comes from; exactly one of `env`, `file`, `command`.
        pub api_key: Option<Spanned<Secret>>,
        /// Headers of each request; never a secret.
        pub headers: Option<Entries<String, String>>,
        /// Retries of a model request.
        pub retry: Option<RetrySpec>,
        /// USD per million tokens, by model name; needed for `budget.usd`.
        pub prices: Option<Entries<String, PriceSpec>>,
    }
    unbuilt {
        /// Most requests and tokens in a minute.
        rate_limit: RateLimit,
    }
}

choice! {
    /// Protocol of a provider.
    pub enum WireName {
        /// The Responses stream over HTTP.
        Responses = "responses",
        /// Steps out of a file; no network.
        Script = "script",
    }
    unbuilt { "chat", "messages", "replay" }
}

object! {
    /// Where a secret comes from. The secret itself never stands in a file.
    pub struct Secret {
        /// Environment variable of the runner.
        pub env: Option<Spanned<Variable>>,
        /// File: absolute, with `~/`, or relative to this file.
        pub file: Option<Spanned<Path>>,
        /// Command that prints it: program and arguments.
        pub command: Option<Spanned<Vec<String>>>,
    }
}

object! {
    /// Retries of a model request.
    pub struct RetrySpec {
        /// Tries, the first included. Default 5.
        pub max_attempts: Option<Count<1, 100>>,
        /// First wait. Default 1s.
        pub base: Option<Spanned<Time>>,
        /// Longest wait of our own. Default 60s.
        pub max: Option<Spanned<Time>>,
        /// Whether the provider's `Retry-After` counts. Default true.
        pub respect_retry_after: Option<bool>,
    }
}

object! {
    /// Most requests and tokens in a minute.
    pub struct RateLimit {
        /// Requests.
        pub requests_per_minute: Option<Count<1>>,
        /// Tokens.
        pub tokens_per_minute: Option<Count<1>>,
    }
}

object! {
    /// USD per million tokens.
    pub struct PriceSpec {
        /// Input tokens that are not cached. Default 0.
        pub input: Option<Price>,
        /// Cached input tokens. Default: what `input` says.
        pub cached_input: Option<Price>,
        /// Output tokens. Default 0.
        pub output: Option<Price>,
    }
}

object! {
    /// What may be used up; a spent limit starts no further attempt. Checks are outside it.
    pub struct BudgetSpec {
        /// Model requests over all attempts. Default 50 for a task, none for a run.
        pub turns: Option<Count<1>>,
        /// Tool calls. Default none.
        pub tool_calls: Option<Count<1>>,
        /// Input tokens. Default none.
        pub input_tokens: Option<Count<1, { i64::MAX as u64 }>>,
        /// Output tokens. Default none.
        pub output_tokens: Option<Count<1, { i64::MAX as u64 }>>,
        /// Cost in USD; needs `prices` of the model. Default none.
        pub usd: Option<Spanned<Amount>>,
        /// Wall clock. Default 30m for a task, none for a run.
        pub wall: Option<Time>,
        /// Silence of the model's stream. Default 5m.
        pub idle: Option<Time>,
        /// The same call with the same result that many times in a row. Default 10.
        pub repeat_calls: Option<Count<2>>,
        /// Fraction of a limit at which a warning is given. Default 0.8.
        pub warn_at: Option<super::value::Fraction>,
    }
}
