//! The plan as JSON, for `horseman plan`, and digests of it.
//!
//! In: a plan. Out: JSON without secrets (a plan holds only where they come from), and digests
//! that are the same wherever the repository lies. Pure.

use std::path::Path;

use serde_json::{Value, json};

use super::{Budget, Instance, Plan};
use crate::text::sha256;

impl Plan {
    /// The complete plan as JSON; for people and for `horseman merge`.
    pub fn to_json(&self) -> Value {
        json!({
            "version": 1,
            "name": self.name,
            "digest": self.digest(),
            "task_file": self.task_file,
            "root": self.root,
            "is_git": self.is_git,
            "trust_commit": self.trust_commit,
            "concurrency": self.concurrency,
            "fail_fast": self.fail_fast,
            "budget": budget(&self.budget),
            "reports": self.reports,
            "inputs": self.inputs,
            "notices": self.notices,
            "instances": self.instances.iter().map(to_json).collect::<Vec<_>>(),
        })
    }

    /// SHA-256 in hex over what the plan does: instances, budget, order. Doesn't depend on where
    /// the repository lies, nor on where reports are copied to.
    pub fn digest(&self) -> String {
        let digests: Vec<&str> = self.instances.iter().map(|it| it.digest.as_str()).collect();
        let parts = json!({
            "name": self.name,
            "trust_commit": self.trust_commit,
            "concurrency": self.concurrency,
            "fail_fast": self.fail_fast,
            "budget": budget(&self.budget),
            "inputs": self.inputs,
            "instances": digests,
        });
        sha256(parts.to_string().as_bytes())
    }
}

/// SHA-256 in hex over everything that the instance says but the digest itself; places in files
/// below `root` count relative to it.
pub fn digest(instance: &Instance, root: &Path) -> String {
    let mut value = to_json(instance);
    if let Some(map) = value.as_object_mut() {
        map.shift_remove("digest");
    }
    relative(&mut value, &root.display().to_string());
    sha256(value.to_string().as_bytes())
}

/// A plan holds no type that can't be JSON.
fn to_json(instance: &Instance) -> Value {
    let mut value = serde_json::to_value(instance).unwrap_or(Value::Null);
    durations(&mut value);
    value
}

fn budget(budget: &Budget) -> Value {
    let mut value = serde_json::to_value(budget).unwrap_or(Value::Null);
    durations(&mut value);
    value
}

/// Writes durations as milliseconds, which is what the transcript has.
fn durations(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let part = |name: &str| map.get(name).and_then(Value::as_u64);
            if let (2, Some(secs), Some(nanos)) = (map.len(), part("secs"), part("nanos")) {
                *value = format!("{}ms", secs.saturating_mul(1000) + nanos / 1_000_000).into();
                return;
            }
            map.values_mut().for_each(durations);
        }
        Value::Array(items) => items.iter_mut().for_each(durations),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn relative(value: &mut Value, root: &str) {
    match value {
        Value::Object(map) => map.values_mut().for_each(|value| relative(value, root)),
        Value::Array(items) => items.iter_mut().for_each(|value| relative(value, root)),
        Value::String(text) => {
            if let Some(rest) = text.strip_prefix(root)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                *text = format!(".{rest}");
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
