//! Instances: each task of the file, complete.
//!
//! In: a task over its defaults, inputs, profiles, providers. Out: [`Instance`]s. What a field
//! means when it is left out is decided here and nowhere else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::inputs::Inputs;
use super::profile::{Permits, Places};
use super::sources::{Base, Sources};
use super::template::{self, Place};
use super::{
    Before, Budget, CachePlan, CheckPlan, Command, Context, ContextSource, FailureAction, Feedback,
    Instance, Keep, OutputPlan, PlanRequest, ProjectDocs, RetryPlan, SetupPlan, WorkspaceKind,
    WorkspacePlan, profile, span,
};
use crate::policy::RuleSource;
use crate::task::file::Run;
use crate::task::model::BudgetSpec;
use crate::task::work::{
    Action, BeforeMust, Cache, CacheMode, Check, CheckTree, CommandSpec, ContextFrom, ContextSpec,
    ContextTrust, Dirty, Docs, FeedbackPart, KeepWhen, Kinds, Output, Retry, RetrySession,
    RetryTree, SchemaSource, Setup, Task, Workspace,
};
use crate::task::{At, Permissions, Spanned, TaskFile, value};

/// Where no limit is set: ten years.
pub const UNBOUNDED: Duration = Duration::from_hours(87_600);

/// Most bytes of a context entry.
const CONTEXT_BYTES: u64 = 64 << 10;
/// Largest patch.
const PATCH_BYTES: u64 = 1 << 20;
/// Deadline of a setup command.
const SETUP_TIMEOUT: Duration = Duration::from_mins(30);
/// Deadline of one try of a check.
const CHECK_TIMEOUT: Duration = Duration::from_mins(10);

/// What every instance is made with.
pub(super) struct Maker<'a> {
    pub(super) request: &'a PlanRequest,
    pub(super) file: &'a TaskFile,
    pub(super) base: &'a Base,
    pub(super) inputs: &'a Inputs,
}

/// HOME, if it is an absolute path.
pub(super) fn home(request: &PlanRequest) -> Option<PathBuf> {
    request.env.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// The budget of all instances together; nothing bounds them when the file doesn't.
pub(super) fn run_budget(run: Option<&Run>) -> Budget {
    let blank = BudgetSpec::default();
    let spec = run.and_then(|run| run.budget.as_ref()).unwrap_or(&blank);
    Budget {
        wall: spec.wall.map_or(UNBOUNDED, |it| it.0),
        idle: UNBOUNDED,
        repeat_calls: u64::MAX,
        turns: spec.turns.map(|it| it.0),
        ..budget(Some(spec))
    }
}

fn budget(spec: Option<&BudgetSpec>) -> Budget {
    let blank = BudgetSpec::default();
    let spec = spec.unwrap_or(&blank);
    Budget {
        turns: Some(spec.turns.map_or(50, |it| it.0)),
        tool_calls: spec.tool_calls.map(|it| it.0),
        input_tokens: spec.input_tokens.map(|it| it.0),
        output_tokens: spec.output_tokens.map(|it| it.0),
        usd: spec.usd.as_ref().map(|it| it.value.0),
        wall: spec.wall.map_or(Duration::from_mins(30), |it| it.0),
        idle: spec.idle.map_or(Duration::from_mins(5), |it| it.0),
        repeat_calls: spec.repeat_calls.map_or(10, |it| it.0),
        warn_at: spec.warn_at.map_or(0.8, |it| it.0),
    }
}

/// How the texts of one task are rendered.
struct Texts<'a> {
    inputs: &'a Inputs,
    is_template: bool,
}

impl Texts<'_> {
    fn render(&self, text: &str, at: &At, place: Place, sources: &mut Sources<'_>) -> String {
        if !self.is_template {
            return text.to_owned();
        }
        template::render(text, at, self.inputs, place).unwrap_or_else(|complaint| {
            sources.complaints.push(complaint);
            String::new()
        })
    }

    fn command(&self, command: &Spanned<CommandSpec>, sources: &mut Sources<'_>) -> Command {
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

impl Maker<'_> {
    /// Every task of the file, in order; complaints go to `sources`.
    pub(super) fn instances(&self, sources: &mut Sources<'_>) -> Vec<Instance> {
        let tasks = self.file.tasks.value.iter();
        tasks.filter_map(|task| self.instance(task, sources)).collect()
    }

    fn instance(&self, spec: &Spanned<Task>, sources: &mut Sources<'_>) -> Option<Instance> {
        let at = &spec.at;
        let task = spec.value.clone().with_defaults(&self.base.defaults);
        let texts = Texts { inputs: self.inputs, is_template: task.template.unwrap_or(true) };
        let prompt = self.prompt(&task, &texts, sources);
        let context = task.context.iter().flatten();
        let context = context.filter_map(|entry| self.context(entry, &texts, sources)).collect();
        let workspace = self.workspace(task.workspace.as_ref(), (at, &texts), sources);
        let model = self.model(task.model.as_ref(), at, sources);
        let permits = self.permits(&task, sources);
        let checks = task.checks.iter().flatten();
        let checks = checks.map(|check| self.check(check, &texts, sources)).collect();
        let output = self.output(task.output.as_ref(), sources);
        let (workspace, model) = (workspace?, model?);
        self.priced(&task, &model, sources);
        let (mut permits, rules) = permits?;
        self.protect(&mut permits, &workspace, sources);
        let mut instance = Instance {
            id: task.id.value.0.clone(),
            task: task.id.value.0,
            span: span(at),
            description: task.description.unwrap_or_default(),
            tags: task.tags.iter().flatten().map(|tag| tag.value.0.clone()).collect(),
            prompt: prompt?,
            instructions: task.instructions,
            context,
            project_docs: match task.project_docs.unwrap_or_default() {
                Docs::Base => ProjectDocs::Base,
                Docs::Head => ProjectDocs::Head,
                Docs::None => ProjectDocs::None,
            },
            workspace,
            model,
            profile: permits.profile,
            rules,
            opaque: permits.opaque,
            tools_allow: permits.tools_allow,
            tools_deny: permits.tools_deny,
            on_denied_fail: permits.on_denied_fail,
            max_denials: permits.max_denials,
            patch_overwrite: permits.patch_overwrite,
            budget: budget(task.budget.as_ref()),
            checks,
            retry: retry(task.retry.as_ref()),
            output: output?,
            failure: match task.on_failure.and_then(|it| it.action).unwrap_or_default() {
                Action::Fail => FailureAction::Fail,
                Action::Warn => FailureAction::Warn,
                Action::StopRun => FailureAction::StopRun,
            },
            digest: String::new(),
        };
        instance.digest = super::json::digest(&instance, &self.request.root);
        Some(instance)
    }

    fn prompt(&self, task: &Task, texts: &Texts<'_>, sources: &mut Sources<'_>) -> Option<String> {
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

    fn context(
        &self,
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

    fn workspace(
        &self,
        spec: Option<&Workspace>,
        (task, texts): (&At, &Texts<'_>),
        sources: &mut Sources<'_>,
    ) -> Option<WorkspacePlan> {
        let blank = Workspace::default();
        let spec = spec.unwrap_or(&blank);
        let kind = self.kind(spec, sources);
        let path = self.working_folder(spec, kind, sources);
        let commit = self.commit(spec, (task, texts), sources);
        let setup_network = spec.setup_network.unwrap_or_default();
        let setup = spec.setup.iter().flatten().map(|setup| {
            let Setup(fields) = &setup.value;
            SetupPlan {
                run: texts.command(&fields.run, sources),
                network: profile::network(fields.network.unwrap_or(setup_network)),
                timeout: fields.timeout.map_or(SETUP_TIMEOUT, |it| it.0),
                span: span(&setup.at),
            }
        });
        let setup = setup.collect();
        let caches = spec.caches.iter().flatten();
        let caches = caches.filter_map(|cache| cache_plan(cache, sources)).collect();
        let sparse = spec.sparse.iter().flatten();
        let sparse = sparse.filter_map(|path| within(path, "the repository", sources)).collect();
        Some(WorkspacePlan {
            kind,
            commit: commit?,
            path: path?,
            sparse,
            setup,
            caches,
            keep: match spec.keep.unwrap_or_default() {
                KeepWhen::OnFailure => Keep::OnFailure,
                KeepWhen::Never => Keep::Never,
                KeepWhen::Always => Keep::Always,
            },
            carry_dirty: spec.dirty.as_ref().is_some_and(|dirty| dirty.value == Dirty::Carry),
        })
    }

    fn kind(&self, spec: &Workspace, sources: &mut Sources<'_>) -> WorkspaceKind {
        let Some(kind) = &spec.kind else {
            if self.request.is_git {
                return WorkspaceKind::Clone;
            }
            sources.note("there is no git repository here: the workspace is a copy".to_owned());
            return WorkspaceKind::Copy;
        };
        match kind.value {
            Kinds::Clone if !self.request.is_git => {
                let text = format!("`{}: clone` needs a git repository", kind.at.key);
                let hint = "`copy` and `in-place` work without one";
                sources.complaints.push(kind.at.complain(text).with_hint(hint));
                WorkspaceKind::Clone
            }
            Kinds::Clone => WorkspaceKind::Clone,
            Kinds::Copy => WorkspaceKind::Copy,
            Kinds::InPlace => WorkspaceKind::InPlace,
        }
    }

    /// The folder to use, or inside a clone the working folder.
    fn working_folder(
        &self,
        spec: &Workspace,
        kind: WorkspaceKind,
        sources: &mut Sources<'_>,
    ) -> Option<PathBuf> {
        if kind != WorkspaceKind::Clone {
            let misplaced = [
                spec.r#ref.as_ref().map(|it| &it.at),
                spec.dirty.as_ref().map(|it| &it.at),
                spec.sparse.iter().flatten().next().map(|it| &it.at),
            ];
            for at in misplaced.into_iter().flatten() {
                let text =
                    format!("`{}` goes with `kind: clone`, got `kind: {}`", at.key, kind.name());
                sources.complaints.push(at.complain(text));
            }
        }
        match (&spec.path, kind) {
            (None, WorkspaceKind::Clone) => Some(PathBuf::new()),
            (Some(path), WorkspaceKind::Clone) => {
                within(path, "the repository", sources).map(PathBuf::from)
            }
            (None, WorkspaceKind::Copy | WorkspaceKind::InPlace) => Some(self.request.root.clone()),
            (Some(path), WorkspaceKind::Copy | WorkspaceKind::InPlace) => {
                let inside = sources.locate(&path.at, &path.value.0)?;
                Some(join(&self.request.root, &inside))
            }
        }
    }

    /// `Some(None)` without git; `None` after a complaint.
    fn commit(
        &self,
        spec: &Workspace,
        (task, texts): (&At, &Texts<'_>),
        sources: &mut Sources<'_>,
    ) -> Option<Option<String>> {
        if !self.request.is_git {
            return Some(None);
        }
        let Some(revision) = &spec.r#ref else {
            return sources.resolve(&task.below("workspace.ref"), "HEAD").map(Some);
        };
        let before = sources.complaints.list.len();
        let text = texts.render(&revision.value.0, &revision.at, Place::Plain, sources);
        if sources.complaints.list.len() > before {
            return None;
        }
        sources.resolve(&revision.at, text.trim()).map(Some)
    }

    /// What the task asks to be allowed, and the text of its rules.
    fn permits(
        &self,
        task: &Task,
        sources: &mut Sources<'_>,
    ) -> Option<(Permits, Vec<RuleSource>)> {
        let fields = task.permissions.clone().map(|it| it.value.into_fields());
        let fields: Permissions = fields.unwrap_or_default();
        let home = home(self.request);
        let places = Places { workspace: None, home: home.as_deref() };
        let permits = match profile::resolve(&fields, &self.base.profiles, places) {
            Ok(permits) => permits,
            Err(complaints) => {
                sources.complaints.extend(complaints);
                return None;
            }
        };
        self.keys_stay(&fields, &permits, sources);
        let mut rules = Vec::new();
        let mut is_complete = true;
        for rule in &permits.rules {
            match sources.trusted(&rule.at, &rule.value.0, "rules") {
                Some(source) => rules.push(RuleSource { name: source.name, text: source.text }),
                None => is_complete = false,
            }
        }
        is_complete.then_some((permits, rules))
    }

    /// A provider's key is passed to no command (P6).
    fn keys_stay(&self, fields: &Permissions, permits: &Permits, sources: &mut Sources<'_>) {
        let keys = self.base.providers.0.iter().filter_map(|(id, provider)| {
            Some((id, &provider.value.api_key.as_ref()?.value.env.as_ref()?.value.0))
        });
        for (id, key) in keys {
            if !permits.profile.env.pass.contains(key) {
                continue;
            }
            let passed = fields.env.as_ref().and_then(|env| env.pass.as_ref());
            let at = passed.into_iter().flatten().find(|name| name.value.0 == *key);
            let at = at.map_or_else(|| At::whole("permissions"), |name| name.at.clone());
            let text = format!("`{key}` is the key of provider `{}`: no command gets it", id.0);
            sources.complaints.push(at.complain(text));
        }
    }

    /// Protects the files that judge: the task file, what it includes, rules.
    fn protect(&self, permits: &mut Permits, workspace: &WorkspacePlan, sources: &mut Sources<'_>) {
        let mut files = vec![sources.task_path().to_owned()];
        files.extend(self.base.files.iter().cloned());
        for rule in &permits.rules {
            files.extend(sources.locate(&rule.at, &rule.value.0));
        }
        let folder = match workspace.kind {
            WorkspaceKind::Clone => String::new(),
            WorkspaceKind::Copy | WorkspaceKind::InPlace => {
                let below = workspace.path.strip_prefix(&self.request.root);
                below.map_or_else(|_| String::new(), |below| below.display().to_string())
            }
        };
        for file in files {
            let below = Path::new(&file).strip_prefix(&folder);
            let Ok(below) = below.map(|below| below.display().to_string()) else { continue };
            let escaped = escape(&below);
            if !escaped.is_empty() && !permits.profile.protected.contains(&escaped) {
                permits.profile.protected.push(escaped);
            }
        }
    }

    fn check(
        &self,
        check: &Spanned<Check>,
        texts: &Texts<'_>,
        sources: &mut Sources<'_>,
    ) -> CheckPlan {
        let spec = &check.value;
        let restore = spec.restore.as_ref().map(|paths| {
            let inside = paths.iter().filter_map(|path| within(path, "the repository", sources));
            inside.flat_map(|path| profile::covering(&path)).collect()
        });
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
            network: profile::network(spec.network.unwrap_or_default()),
            feedback_on_agent_tree: spec.tree == Some(CheckTree::Agent),
            span: span(&check.at),
        }
    }

    fn output(
        &self,
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

    /// A cost limit without prices could never be kept.
    fn priced(&self, task: &Task, model: &super::ModelPlan, sources: &mut Sources<'_>) {
        let run = self.file.run.as_ref().and_then(|run| run.value.budget.as_ref());
        let limits = [task.budget.as_ref(), run].into_iter().flatten();
        for usd in limits.filter_map(|budget| budget.usd.as_ref()) {
            if model.prices.is_none() {
                let text = format!(
                    "`{}` needs the prices of model `{}`, and provider `{}` has none",
                    usd.at.key, model.name, model.provider
                );
                let hint = format!("write `providers.{}.prices`", model.provider);
                sources.complaints.push(usd.at.complain(text).with_hint(hint));
            }
        }
    }
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

fn retry(spec: Option<&Retry>) -> RetryPlan {
    let attempts = spec.and_then(|it| it.max_attempts).and_then(|it| u32::try_from(it.0).ok());
    RetryPlan {
        max_attempts: attempts.unwrap_or(1),
        is_fresh_session: spec.and_then(|it| it.session) == Some(RetrySession::Fresh),
        is_tree_reset: spec.and_then(|it| it.tree) == Some(RetryTree::Reset),
    }
}

fn cache_plan(cache: &Spanned<Cache>, sources: &mut Sources<'_>) -> Option<CachePlan> {
    let Cache { path, from, mode } = &cache.value;
    let (prefix, rest) = match path.value.0.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", path.value.0.as_str()),
    };
    let inside = super::sources::inside("", rest).filter(|inside| !inside.is_empty());
    if inside.is_none() {
        let text = format!(
            "`{}` must be inside the workspace or `~/`, got `{}`",
            path.at.key, path.value.0
        );
        sources.complaints.push(path.at.complain(text));
    }
    let from = sources.host_path(&from.at, &from.value.0);
    Some(CachePlan {
        path: format!("{prefix}{}", inside?),
        from: from?,
        is_private_copy: mode.unwrap_or_default() == CacheMode::RwPrivate,
    })
}

/// A path relative to `what` that stays inside.
fn within(path: &Spanned<value::Path>, what: &str, sources: &mut Sources<'_>) -> Option<String> {
    let inside = super::sources::inside("", &path.value.0);
    if inside.is_none() {
        let text = format!("`{}` must stay inside {what}, got `{}`", path.at.key, path.value.0);
        sources.complaints.push(path.at.complain(text));
    }
    inside
}

fn join(root: &Path, inside: &str) -> PathBuf {
    if inside.is_empty() { root.to_owned() } else { root.join(inside) }
}

/// A file's name as a glob that matches it alone.
fn escape(path: &str) -> String {
    path.chars().fold(String::with_capacity(path.len()), |mut out, letter| {
        if matches!(letter, '*' | '?' | '[' | ']' | '{' | '}' | '\\') {
            out.push('[');
            out.push(letter);
            out.push(']');
        } else {
            out.push(letter);
        }
        out
    })
}
