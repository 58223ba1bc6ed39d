//! Which model answers an instance, and how its provider is reached.
//!
//! In: the task's `model`, the providers, `--model` and `--provider`. Out: a [`ModelPlan`].

use std::collections::BTreeMap;

use super::build::Maker;
use super::sources::Sources;
use super::{HttpPlan, HttpRetry, KeySource, ModelPlan, Prices, Wire, span};
use crate::task::entries::Entries;
use crate::task::model::PriceSpec;
use crate::task::model::{ModelSpec, Provider, RetrySpec, Secret, WireName};
use crate::task::value::Id;
use crate::task::{At, Spanned};
use crate::text::nearest;

/// Address of a provider that names none.
pub const BASE_URL: &str = "https://api.openai.com/v1";

impl Maker<'_> {
    /// Decides which model answers, and how.
    pub(super) fn model(
        &self,
        spec: Option<&Spanned<ModelSpec>>,
        task: &At,
        sources: &mut Sources<'_>,
    ) -> Option<ModelPlan> {
        let at = spec.map_or_else(|| task.below("model"), |spec| spec.at.clone());
        let blank = ModelSpec::default();
        let spec = spec.map_or(&blank, |spec| &spec.value);
        let (id, provider) = self.provider(spec, &at, sources)?;
        let flag = self.request.model.clone();
        let name = flag.or_else(|| spec.name.as_ref().map(|name| name.value.0.clone()));
        let is_script = provider.value.wire.value == WireName::Script;
        let Some(name) = name.or_else(|| is_script.then(|| "script".to_owned())) else {
            let at = at.below("name");
            sources.complaints.push(at.complain(format!("`{}` is missing", at.key)));
            return None;
        };
        Some(ModelPlan {
            provider: id.0.clone(),
            effort: spec.effort.map(|effort| effort.name().to_owned()),
            temperature: spec.temperature.map(|it| it.0),
            max_output_tokens: spec.max_output_tokens.map(|it| it.0),
            wire: wire(provider, sources)?,
            prices: provider.value.prices.as_ref().and_then(|prices| price(prices, &name)),
            name,
        })
    }

    fn provider<'a>(
        &'a self,
        spec: &ModelSpec,
        at: &At,
        sources: &mut Sources<'_>,
    ) -> Option<(&'a Id, &'a Spanned<Provider>)> {
        let providers = &self.base.providers.0;
        let flag = self.request.provider.as_ref().map(|id| (Id(id.clone()), At::default()));
        let wanted = flag.or_else(|| spec.provider.clone().map(|id| (id.value, id.at)));
        let Some((id, at)) = wanted else {
            let mut all = providers.iter();
            return match (all.next(), all.next()) {
                (Some(only), None) => Some(only),
                (None, _) => {
                    let complaint = at.complain("no provider is defined, and every task needs one");
                    let hint = "write one under `providers`";
                    sources.complaints.push(complaint.with_hint(hint));
                    None
                }
                (Some(_), Some(_)) => {
                    let at = at.below("provider");
                    let text = format!("`{}` is missing and more than one is defined", at.key);
                    sources.complaints.push(at.complain(text));
                    None
                }
            };
        };
        let found = providers.get_key_value(&id);
        if found.is_none() {
            let place = if at.key.is_empty() { "--provider" } else { at.key.as_str() };
            let text = format!("`{place}` must name a provider, got `{}`", id.0);
            let names: Vec<&str> = providers.keys().map(|id| id.0.as_str()).collect();
            let complaint = at.complain(text);
            sources.complaints.push(match nearest(&id.0, names.iter().copied()) {
                Some(near) => complaint.with_hint(format!("did you mean `{near}`?")),
                None if names.is_empty() => complaint.with_hint("none is defined"),
                None => complaint.with_hint(format!("providers: {}", names.join(", "))),
            });
        }
        found
    }
}

fn wire(provider: &Spanned<Provider>, sources: &mut Sources<'_>) -> Option<Wire> {
    let spec = &provider.value;
    match spec.wire.value {
        WireName::Script => {
            let script = spec.script.as_ref()?;
            let source = sources.trusted(&script.at, &script.value.0, "script")?;
            Some(Wire::Script { name: source.name, text: source.text })
        }
        WireName::Responses => {
            let url = spec.base_url.as_ref().map_or(BASE_URL, |url| &url.value.0);
            let headers = spec.headers.iter().flat_map(|headers| &headers.0);
            let headers = headers.map(|(name, value)| (name.clone(), value.value.clone()));
            let api_key = match &spec.api_key {
                Some(secret) => Some(key(secret, sources)?),
                None => None,
            };
            Some(Wire::Responses(HttpPlan {
                base_url: url.trim_end_matches('/').to_owned(),
                api_key,
                headers: headers.collect::<BTreeMap<_, _>>(),
                retry: retry(spec.retry.as_ref()),
            }))
        }
    }
}

/// Where a provider's key comes from.
pub(super) fn key(secret: &Spanned<Secret>, sources: &mut Sources<'_>) -> Option<KeySource> {
    let Secret { env, file, command } = &secret.value;
    if let Some(name) = env {
        return Some(KeySource::Env(name.value.0.clone()));
    }
    if let Some(path) = file {
        return sources.host_path(&path.at, &path.value.0).map(KeySource::File);
    }
    let command = command.as_ref()?;
    Some(KeySource::Command(command.value.clone(), span(&command.at)))
}

fn retry(spec: Option<&RetrySpec>) -> HttpRetry {
    let default = HttpRetry::default();
    let Some(spec) = spec else { return default };
    let attempts = spec.max_attempts.and_then(|most| u32::try_from(most.0).ok());
    HttpRetry {
        max_attempts: attempts.unwrap_or(default.max_attempts),
        base: spec.base.as_ref().map_or(default.base, |base| base.value.0),
        max: spec.max.as_ref().map_or(default.max, |max| max.value.0),
        respect_retry_after: spec.respect_retry_after.unwrap_or(default.respect_retry_after),
    }
}

fn price(prices: &Entries<String, PriceSpec>, model: &str) -> Option<Prices> {
    let spec = &prices.0.get(model)?.value;
    let input = spec.input.map_or(0.0, |it| it.0);
    Some(Prices {
        input,
        cached_input: spec.cached_input.map_or(input, |it| it.0),
        output: spec.output.map_or(0.0, |it| it.0),
    })
}
