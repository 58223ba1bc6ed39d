//! Instances: each task of the file, complete.
//!
//! In: a task over its defaults, inputs, profiles, providers. Out: [`Instance`]s. What a field
//! means when it is left out is decided here and nowhere else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::inputs::Inputs;
use super::parts::{Texts, acceptance, context_entry, output, prompt, retry};
use super::profile::{Permits, Places};
use super::sources::{Base, Sources};
use super::{
    Budget, FailureAction, Instance, KeySource, PlanRequest, ProjectDocs, WorkspaceKind,
    WorkspacePlan, profile, span,
};
use crate::policy::RuleSource;
use crate::task::file::Run;
use crate::task::model::BudgetSpec;
use crate::task::work::{Action, Docs, Task};
use crate::task::{At, Permissions, Spanned, TaskFile};

/// Where no limit is set: ten years.
pub const UNBOUNDED: Duration = Duration::from_hours(87_600);

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
        let prompt = prompt(&task, &texts, sources);
        let context = task.context.iter().flatten();
        let context = context.filter_map(|entry| context_entry(entry, &texts, sources)).collect();
        let workspace = self.workspace(task.workspace.as_ref(), (at, &texts), sources);
        let model = self.model(task.model.as_ref(), at, sources);
        let permits = self.permits(&task, sources);
        let checks = task.checks.iter().flatten();
        let checks = checks.map(|check| acceptance(check, &texts, sources)).collect();
        let output = output(task.output.as_ref(), sources);
        let (workspace, model) = (workspace?, model?);
        self.priced(&task, &model, sources);
        let (mut permits, rules) = permits?;
        secrets_stay(&workspace, &permits, (at, sources));
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
            docs: Vec::new(),
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
            WorkspaceKind::Copy | WorkspaceKind::InPlace | WorkspaceKind::Overlay => {
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

/// What a setup step gets as a secret is passed to no other command.
fn secrets_stay(
    workspace: &WorkspacePlan,
    permits: &Permits,
    (at, sources): (&At, &mut Sources<'_>),
) {
    for step in &workspace.setup {
        for secret in &step.secrets {
            let KeySource::Env(name) = &secret.from else { continue };
            if permits.profile.env.pass.contains(name) {
                let at = at.below("permissions.env.pass");
                let text = format!(
                    "`{name}` is a secret of the setup command at {}: no other command gets it",
                    step.span
                );
                sources.complaints.push(at.complain(text));
            }
        }
    }
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
