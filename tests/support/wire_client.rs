//! One request to a model, with what it tells on the way.
//!
//! In: a model and a setting. Out: the result, the progress as short texts, the time it took.

use std::collections::BTreeMap;
use std::time::Duration;

use horseman::clock::Clock;
use horseman::model::{Item, Model, ModelError, Progress, Request, Response, ToolSpec};
use horseman::plan::{HttpPlan, HttpRetry};
use serde_json::Value;

/// What differs between requests.
pub(crate) struct Setting<'a> {
    pub(crate) idle: Duration,
    pub(crate) remaining: Duration,
    pub(crate) encoded: Option<&'a str>,
    pub(crate) schema: Option<&'a Value>,
    pub(crate) effort: Option<&'a str>,
}

impl Default for Setting<'_> {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(5),
            remaining: Duration::from_secs(20),
            encoded: None,
            schema: None,
            effort: None,
        }
    }
}

/// What a request gave.
pub(crate) struct Sampled {
    pub(crate) result: Result<Response, ModelError>,
    /// `requested 1`, `failed 1 KIND retried`, `waits backoff`, …; items are left out.
    pub(crate) told: Vec<String>,
    pub(crate) took: Duration,
}

/// A provider without a key, with waits of milliseconds.
pub(crate) fn http_plan(base_url: &str) -> HttpPlan {
    HttpPlan {
        base_url: base_url.to_owned(),
        api_key: None,
        headers: BTreeMap::new(),
        retry: HttpRetry {
            base: Duration::from_millis(4),
            max: Duration::from_millis(20),
            ..HttpRetry::default()
        },
    }
}

/// Sends one request.
pub(crate) fn sample(model: &dyn Model, setting: &Setting<'_>) -> Sampled {
    runtime().block_on(ask(model, setting))
}

/// Sends several requests in a row on one runtime.
pub(crate) fn sample_times(model: &dyn Model, times: usize) -> Vec<Sampled> {
    runtime().block_on(async {
        let mut all = Vec::new();
        for _ in 0..times {
            all.push(ask(model, &Setting::default()).await);
        }
        all
    })
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn ask(model: &dyn Model, setting: &Setting<'_>) -> Sampled {
    let item = Item::message("user", "go");
    let request = Request {
        model: "some-model",
        effort: setting.effort,
        max_output_tokens: Some(100),
        temperature: Some(0.5),
        items: std::slice::from_ref(&item),
        encoded: setting.encoded.unwrap_or(item.raw.get()),
        tools: &[ToolSpec::WebSearch],
        schema: setting.schema,
        cache_key: "cache",
        remaining: setting.remaining,
        idle: setting.idle,
    };
    let mut told = Vec::new();
    let mut progress = |event: Progress<'_>| match event {
        Progress::Requested { r#try, .. } => told.push(format!("requested {try}")),
        Progress::Failed { r#try, error, retried } => {
            let end = if retried { "retried" } else { "final" };
            told.push(format!("failed {try} {} {end}", error.kind.name()));
        }
        Progress::Waiting { cause: "backoff", .. } => told.push("waits backoff".to_owned()),
        Progress::Waiting { wait, cause, .. } => told.push(format!("waits {cause} {wait:?}")),
        Progress::Item(_) => {}
    };
    let clock = Clock::start();
    let result = model.sample(request, &mut progress).await;
    Sampled { result, told, took: clock.elapsed() }
}
