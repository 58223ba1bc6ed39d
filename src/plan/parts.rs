//! Parts of an instance that need no more than the task, its texts and its files.
//!
//! In: prompt, context, checks, output as written. Out: the same, complete.

use std::time::Duration;

use super::inputs::Inputs;
use super::sources::Sources;
use super::template::{self, Place};
use super::{
    Before, CheckPlan, Command, Context, ContextSource, Feedback, OutputPlan, RetryPlan, profile,
    span,
};
use crate::task::union::{CommandSpec, SchemaSource};
use crate::task::work::{
    BeforeMust, Check, CheckTree, ContextFrom, ContextSpec, ContextTrust, FeedbackPart, Output,
    Retry, RetrySession, RetryTree, Task,
};
use crate::task::{At, Spanned, value};

/// Most bytes of a context entry.
const CONTEXT_BYTES: u64 = 64 << 10;
/// Largest patch.
const PATCH_BYTES: u64 = 1 << 20;
/// Deadline of one try of a check.
const CHECK_TIMEOUT: Duration = Duration::from_mins(10);

/// How the texts of one task are rendered.
pub(super) struct Texts<'a> {
    pub(super) inputs: &'a Inputs,
    pub(super) is_template: bool,
}

impl Texts<'_> {
    pub(super) fn render(
        &self,
        text: &str,
        at: &At,
        place: Place,
        sources: &mut Sources<'_>,
    ) -> String {
        if !self.is_template {
            return text.to_owned();
        }
        template::render(text, at, self.inputs, place).unwrap_or_else(|complaint| {
            sources.complaints.push(complaint);
            String::new()
        })
    }

    pub(super) fn command(
        &self,
        command: &Spanned<CommandSpec>,
        sources: &mut Sources<'_>,
    ) -> Command {
        match &command.value {
            CommandSpec::Shell(text) => {
                Command::Shell(self.render(text, &command.at, Place::Shell, sources))
            }
            CommandSpec::Argv(argv) => Command::Argv(
                argv.iter()
                    .map(|word| self.render(&word.value, &word.at, Place::Argument, sources))
                    .collect(),
            ),
        }
    }
}

pub(super) fn prompt(task: &Task, texts: &Texts<'_>, sources: &mut Sources<'_>) -> Option<String> {
    if let Some(prompt) = &task.prompt {
        return Some(texts.render(&prompt.value, &prompt.at, Place::Prompt, sources));
    }
    let file = task.prompt_file.as_ref()?;
    let source = sources.trusted(&file.at, &file.value.0, "prompt")?;
    if source.text.trim().is_empty() {
        let text = format!("empty task: `{}` must name a file with text", file.at.key);
        sources.complaints.push(file.at.complain(text));
        return None;
    }
    let at = At {
        file: source.name.into(),
        line: 1,
        column: 1,
        key: file.at.key.clone(),
        text: Some((1, 1)),
    };
    Some(texts.render(&source.text, &at, Place::Prompt, sources))
}

pub(super) fn context_entry(
    entry: &Spanned<ContextSpec>,
    texts: &Texts<'_>,
    sources: &mut Sources<'_>,
) -> Option<Context> {
    let ContextSpec { file, run, title, max_bytes, trust, from } = &entry.value;
    let max_bytes = max_bytes.map_or(CONTEXT_BYTES, |it| it.0);
    let (source, default) = if let Some(run) = run {
        let command = texts.command(run, sources);
        let title = match &command {
            Command::Shell(text) => text.lines().next().unwrap_or_default().to_owned(),
            Command::Argv(argv) => argv.join(" "),
        };
        (ContextSource::Command(command), title)
    } else {
        let file = file.as_ref()?;
        let from = from.as_ref().map(|from| from.value).unwrap_or_default();
        let source = match from {
            ContextFrom::Workspace => {
                ContextSource::WorkspaceFile(within(file, "the workspace", sources)?)
            }
            ContextFrom::Source => {
                ContextSource::Text(sources.checkout(&file.at, &file.value.0)?.text)
            }
        };
        (source, file.value.0.clone())
    };
    let title = match title {
        Some(title) => texts.render(&title.value.0, &title.at, Place::Plain, sources),
        None => default,
    };
    Some(Context {
        title,
        source,
        max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
        is_untrusted: trust.unwrap_or_default() == ContextTrust::Untrusted,
        span: span(&entry.at),
    })
}

pub(super) fn acceptance(
    check: &Spanned<Check>,
    texts: &Texts<'_>,
    sources: &mut Sources<'_>,
) -> CheckPlan {
    let spec = &check.value;
    let restore = spec.restore.as_ref().map(|paths| {
        let inside = paths.iter().filter_map(|path| within(path, "the repository", sources));
        inside.flat_map(|path| profile::covering(&path)).collect()
    });
    let (network, hosts) = profile::network(spec.network.clone().unwrap_or_default());
    CheckPlan {
        id: spec.id.value.0.clone(),
        run: texts.command(&spec.run, sources),
        timeout: spec.timeout.map_or(CHECK_TIMEOUT, |it| it.0),
        before: match spec.before.unwrap_or_default() {
            BeforeMust::Ignore => Before::Ignore,
            BeforeMust::Pass => Before::Pass,
            BeforeMust::Fail => Before::Fail,
        },
        feedback: match spec.feedback.unwrap_or_default() {
            FeedbackPart::Tail => Feedback::Tail,
            FeedbackPart::None => Feedback::None,
            FeedbackPart::Full => Feedback::Full,
        },
        restore,
        is_required: spec.required.unwrap_or(true),
        retries: spec.retries.and_then(|it| u32::try_from(it.0).ok()).unwrap_or(0),
        network,
        hosts,
        feedback_on_agent_tree: spec.tree == Some(CheckTree::Agent),
        span: span(&check.at),
    }
}

pub(super) fn output(
    spec: Option<&Spanned<Output>>,
    sources: &mut Sources<'_>,
) -> Option<OutputPlan> {
    let blank = Output::default();
    let output = spec.map_or(&blank, |spec| &spec.value);
    if output.require_change == Some(true)
        && output.forbid_change == Some(true)
        && let Some(spec) = spec
    {
        let text = format!(
            "`{}` must have only one of `require_change` and `forbid_change`, got both",
            spec.at.key
        );
        sources.complaints.push(spec.at.complain(text));
    }
    let schema = match &output.schema {
        None => None,
        Some(source) => Some(schema(source, sources)?),
    };
    let artifacts = output.artifacts.iter().flatten();
    let artifacts = artifacts.filter_map(|path| within(path, "the workspace", sources));
    Some(OutputPlan {
        schema,
        max_patch_bytes: output.max_patch_bytes.map_or(PATCH_BYTES, |it| it.0),
        require_change: output.require_change.unwrap_or(false),
        forbid_change: output.forbid_change.unwrap_or(false),
        artifacts: artifacts.collect(),
    })
}

fn schema(source: &Spanned<SchemaSource>, sources: &mut Sources<'_>) -> Option<serde_json::Value> {
    let value = match &source.value {
        SchemaSource::Inline(schema) => schema.0.clone(),
        SchemaSource::File(path) => {
            let file = sources.trusted(&source.at, &path.0, "schema")?;
            match serde_json::from_str(&file.text) {
                Ok(value) => value,
                Err(error) => {
                    let text =
                        format!("`{}` must name JSON, got `{}`: {error}", source.at.key, path.0);
                    sources.complaints.push(source.at.complain(text));
                    return None;
                }
            }
        }
    };
    if let Err(error) = jsonschema::validator_for(&value) {
        let text = format!("`{}` must be a JSON Schema: {error}", source.at.key);
        sources.complaints.push(source.at.complain(text));
        return None;
    }
    Some(value)
}

pub(super) fn retry(spec: Option<&Retry>) -> RetryPlan {
    let attempts = spec.and_then(|it| it.max_attempts).and_then(|it| u32::try_from(it.0).ok());
    RetryPlan {
        max_attempts: attempts.unwrap_or(1),
        is_fresh_session: spec.and_then(|it| it.session) == Some(RetrySession::Fresh),
        is_tree_reset: spec.and_then(|it| it.tree) == Some(RetryTree::Reset),
    }
}

/// A path relative to `what` that stays inside.
pub(super) fn within(
    path: &Spanned<value::Path>,
    what: &str,
    sources: &mut Sources<'_>,
) -> Option<String> {
    let inside = super::sources::inside("", &path.value.0);
    if inside.is_none() {
        let text = format!("`{}` must stay inside {what}, got `{}`", path.at.key, path.value.0);
        sources.complaints.push(path.at.complain(text));
    }
    inside
}
