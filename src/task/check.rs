//! What must fit together inside one file, beyond the shape of each value.
//!
//! In: a file that was read. Out: complaints. What needs other files or flags is the plan's.

use std::collections::{BTreeMap, BTreeSet};

use super::complaint::{At, Complaints};
use super::entries::Entries;
use super::file::{IncludedFile, InputSpec, InputType, Run, TaskFile};
use super::model::{Provider, Secret, WireName};
use super::read::Spanned;
use super::value::Id;
use super::work::{
    Check, ContextFrom, ContextSpec, Defaults, Output, SetupSecret, Task, Workspace,
};

/// Checks a task file.
pub fn task_file(file: &TaskFile, complaints: &mut Complaints) {
    if file.tasks.value.is_empty() && complaints.is_empty() {
        complaints.push(file.tasks.at.complain("empty task: `tasks` must have at least one task"));
    }
    providers(file.providers.as_ref(), complaints);
    defaults(file.defaults.as_ref(), complaints);
    for spec in file.inputs.iter().flat_map(|inputs| inputs.0.values()) {
        input(spec, complaints);
    }
    run_budget(file.run.as_ref(), complaints);
    unique("task", file.tasks.value.iter().map(|task| &task.value.id), complaints);
    for task in &file.tasks.value {
        check_task(task, complaints);
    }
}

/// Silence and repetition are facts of one conversation; a limit for all of them has no meaning.
fn run_budget(run: Option<&Spanned<Run>>, complaints: &mut Complaints) {
    let Some((run, budget)) = run.and_then(|run| Some((run, run.value.budget.as_ref()?))) else {
        return;
    };
    let misplaced =
        [("idle", budget.idle.is_some()), ("repeat_calls", budget.repeat_calls.is_some())];
    for (key, _) in misplaced.iter().filter(|(_, is_there)| *is_there) {
        let at = run.at.below("budget");
        let text = format!("`{}.{key}` goes with the budget of a task", at.key);
        complaints.push(at.complain(text).with_hint(format!("write `defaults.budget.{key}`")));
    }
}

/// Checks an included file.
pub fn included_file(file: &IncludedFile, complaints: &mut Complaints) {
    providers(file.providers.as_ref(), complaints);
    defaults(file.defaults.as_ref(), complaints);
}

fn defaults(defaults: Option<&Defaults>, complaints: &mut Complaints) {
    let Some(defaults) = defaults else { return };
    checks(defaults.checks.as_deref(), complaints);
    output(defaults.output.as_ref(), complaints);
    workspace(defaults.workspace.as_ref(), complaints);
}

fn check_task(task: &Spanned<Task>, complaints: &mut Complaints) {
    let Task { prompt, prompt_file, context, .. } = &task.value;
    match (prompt, prompt_file) {
        (None, None) => complaints.push(task.at.complain(format!(
            "empty task: `{}` must have `prompt` or `prompt_file`",
            task.at.key
        ))),
        (Some(_), Some(file)) => complaints.push(file.at.complain(format!(
            "`{}` must have only one of `prompt` and `prompt_file`, got both",
            task.at.key
        ))),
        (Some(prompt), None) if prompt.value.trim().is_empty() => complaints
            .push(prompt.at.complain(format!("empty task: `{}` must have text", prompt.at.key))),
        (Some(_), None) | (None, Some(_)) => {}
    }
    for entry in context.iter().flatten() {
        check_context(entry, complaints);
    }
    checks(task.value.checks.as_deref(), complaints);
    output(task.value.output.as_ref(), complaints);
    workspace(task.value.workspace.as_ref(), complaints);
}

/// The secrets of setup steps: each has one source, and no variable has two.
fn workspace(workspace: Option<&Workspace>, complaints: &mut Complaints) {
    for step in workspace.and_then(|it| it.setup.as_ref()).into_iter().flatten() {
        let mut seen = BTreeSet::new();
        for secret in step.value.0.secrets.iter().flatten() {
            let SetupSecret { env, from } = &secret.value;
            check_secret(from, complaints);
            if !seen.insert(env.value.0.as_str()) {
                let text =
                    format!("`{}` must be given once, got `{}` twice", env.at.key, env.value.0);
                complaints.push(env.at.complain(text));
            }
        }
    }
}

fn check_context(entry: &Spanned<ContextSpec>, complaints: &mut Complaints) {
    let ContextSpec { file, run, from, .. } = &entry.value;
    let key = &entry.at.key;
    match (file, run) {
        (None, None) => {
            complaints.push(entry.at.complain(format!("`{key}` must have `file` or `run`")));
        }
        (Some(_), Some(run)) => complaints.push(
            run.at.complain(format!("`{key}` must have only one of `file` and `run`, got both")),
        ),
        (Some(_), None) | (None, Some(_)) => {}
    }
    if let (Some(_), Some(from)) = (run, from)
        && from.value == ContextFrom::Source
    {
        let text = format!("`{}: source` goes with `file`, got `run`", from.at.key);
        complaints.push(from.at.complain(text).with_hint("commands run in the workspace"));
    }
}

fn checks(checks: Option<&[Spanned<Check>]>, complaints: &mut Complaints) {
    unique("check", checks.unwrap_or_default().iter().map(|check| &check.value.id), complaints);
}

fn unique<'a>(what: &str, ids: impl Iterator<Item = &'a Spanned<Id>>, complaints: &mut Complaints) {
    let mut seen: BTreeMap<&Id, &At> = BTreeMap::new();
    for id in ids {
        if let Some(first) = seen.insert(&id.value, &id.at) {
            complaints.push(id.at.complain(format!(
                "`{}` must be the id of one {what}, got `{}` in line {} too",
                id.at.key, id.value.0, first.line
            )));
        }
    }
}

fn output(output: Option<&Spanned<Output>>, complaints: &mut Complaints) {
    let Some(output) = output else { return };
    if output.value.require_change == Some(true) && output.value.forbid_change == Some(true) {
        let key = &output.at.key;
        complaints.push(output.at.complain(format!(
            "`{key}` must have only one of `require_change` and `forbid_change`, got both"
        )));
    }
}

fn providers(providers: Option<&Entries<Id, Provider>>, complaints: &mut Complaints) {
    for provider in providers.iter().flat_map(|providers| providers.0.values()) {
        check_provider(provider, complaints);
    }
}

fn check_provider(provider: &Spanned<Provider>, complaints: &mut Complaints) {
    let Provider { wire, base_url, script, api_key, headers, retry, prices: _ } = &provider.value;
    let key = &provider.at.key;
    match wire.value {
        WireName::Script => {
            if script.is_none() {
                let at = provider.at.below("script");
                complaints.push(at.complain(format!("`{}` is missing", at.key)));
            }
            for (at, name) in [
                (base_url.as_ref().map(|it| &it.at), "base_url"),
                (api_key.as_ref().map(|it| &it.at), "api_key"),
            ] {
                let Some(at) = at else { continue };
                complaints.push(at.complain(format!("`{key}.{name}` goes with `wire: responses`")));
            }
            for (at, name) in [(headers.is_some(), "headers"), (retry.is_some(), "retry")] {
                if at {
                    let text = format!("`{key}.{name}` goes with `wire: responses`");
                    complaints.push(provider.at.complain(text));
                }
            }
        }
        WireName::Responses => {
            if let Some(script) = script {
                complaints.push(
                    script.at.complain(format!("`{}` goes with `wire: script`", script.at.key)),
                );
            }
        }
    }
    if let Some(url) = base_url {
        check_url(&url.value.0, &url.at, complaints);
    }
    for (name, value) in headers.iter().flat_map(|headers| &headers.0) {
        check_header(name, value, complaints);
    }
    if let Some(secret) = api_key {
        check_secret(secret, complaints);
    }
}

fn check_url(url: &str, at: &At, complaints: &mut Complaints) {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if host.is_empty() || url.contains(char::is_whitespace) {
        let text = format!("`{}` must be an http or https address, got `{url}`", at.key);
        complaints.push(at.complain(text));
    } else if host.contains('@') {
        let text = format!("`{}` must have no user or password in it", at.key);
        complaints.push(at.complain(text).with_hint("a key goes into `api_key`, by reference"));
    }
}

/// Headers stand in the plan and in the record, so that they must be no secret (P6).
fn check_header(name: &str, value: &Spanned<String>, complaints: &mut Complaints) {
    let lower = name.to_ascii_lowercase();
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if !name.chars().all(is_token) {
        complaints.push(value.at.complain(format!("`{name}` must be the name of an HTTP header")));
    }
    if value.value.chars().any(|c| c.is_control() && c != '\t') {
        let text = format!("`{}` must have no control characters", value.at.key);
        complaints.push(value.at.complain(text));
    }
    let is_secret = matches!(lower.as_str(), "authorization" | "proxy-authorization" | "cookie")
        || ["api-key", "apikey", "token", "secret"].iter().any(|word| lower.ends_with(word));
    if is_secret {
        let text = format!("`{}` must not hold a secret", value.at.key);
        complaints
            .push(value.at.complain(text).with_hint("a key goes into `api_key`, by reference"));
    }
}

fn check_secret(secret: &Spanned<Secret>, complaints: &mut Complaints) {
    let Secret { env, file, command } = &secret.value;
    let given = [env.is_some(), file.is_some(), command.is_some()];
    let key = &secret.at.key;
    if given.iter().filter(|is_given| **is_given).count() != 1 {
        let text = format!("`{key}` must have exactly one of `env`, `file`, `command`");
        complaints.push(secret.at.complain(text));
    }
    if let Some(command) = command
        && command.value.first().is_none_or(String::is_empty)
    {
        let text = format!("`{}` must be a program and its arguments", command.at.key);
        complaints.push(command.at.complain(text));
    }
}

fn input(spec: &Spanned<InputSpec>, complaints: &mut Complaints) {
    let InputSpec { r#type, required, default, options, min, max, pattern, .. } = &spec.value;
    let kind = r#type.value;
    let key = &spec.at.key;
    let is_number = matches!(kind, InputType::Integer | InputType::Number);
    let is_text = matches!(kind, InputType::String | InputType::Path | InputType::List);
    let mut misplaced = |at: Option<&At>, field: &str, fits: bool, with: &str| {
        if let (Some(at), false) = (at, fits) {
            complaints.push(at.complain(format!("`{key}.{field}` goes with {with}")));
        }
    };
    let is_choice = kind == InputType::Choice;
    misplaced(options.as_ref().map(|it| &it.at), "options", is_choice, "`type: choice`");
    let counts = is_number || kind == InputType::List;
    misplaced(min.as_ref().map(|it| &it.at), "min", counts, "numbers and lists");
    misplaced(max.as_ref().map(|it| &it.at), "max", counts, "numbers and lists");
    misplaced(pattern.as_ref().map(|it| &it.at), "pattern", is_text, "texts, paths and lists");
    if is_choice && options.as_ref().is_none_or(|options| options.value.is_empty()) {
        complaints.push(spec.at.complain(format!("`{key}.options` is missing")));
    }
    if let (Some(min), Some(max)) = (min, max)
        && min.value.0 > max.value.0
    {
        let text = format!("`{}` must be at most `max`, got `{}`", min.at.key, min.value.0);
        complaints.push(min.at.complain(text));
    }
    if let (Some(true), Some(default)) = (required, default) {
        let text = format!("`{key}` must have only one of `required: true` and `default`");
        complaints.push(default.at.complain(text));
    }
}
