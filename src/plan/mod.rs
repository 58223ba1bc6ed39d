//! The plan: what is meant.
//!
//! In: a task file, flags, the runner's environment, and [`Files`] for everything that the file
//! names. Out: a complete [`Plan`], or every complaint. Knows nothing of git, sandboxes, models or
//! the terminal.

pub mod build;
pub mod fence;
pub mod inputs;
pub mod instance;
pub mod json;
pub mod parts;
pub mod place;
pub mod profile;
pub mod shell;
pub mod sources;
pub mod template;
pub mod wire;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use fence::{cap, fence};
pub use instance::*;
pub use sources::Files;

use crate::approval::Span;
use crate::task::file::JunitDetail;
use crate::task::{At, Complaints, Spanned, TaskFile, value};
use crate::text::nearest;
use inputs::Given;
use sources::{Base, Sources};

/// What a plan is made of, but for the files that the task file names.
#[derive(Clone, Debug, Default)]
pub struct PlanRequest {
    /// Task file as the user named it; places in complaints carry this name.
    pub task_file: PathBuf,
    /// Its text.
    pub text: String,
    /// Commit that the text was read from; `None`: the checkout.
    pub task_file_commit: Option<String>,
    /// `--input K=V`, in order.
    pub inputs: Vec<(String, String)>,
    /// `--select`: ids or tags; empty selects all.
    pub select: Vec<String>,
    /// `--model`: name for every task.
    pub model: Option<String>,
    /// `--provider`: id for every task.
    pub provider: Option<String>,
    /// `--concurrency`.
    pub concurrency: Option<usize>,
    /// Commit that [`Files::trusted`] reads from, resolved; `None` without git.
    pub trust_commit: Option<String>,
    /// The runner's environment, for `inputs.*.env` and HOME.
    pub env: BTreeMap<String, String>,
    /// Repository root, or the task file's folder without git; absolute.
    pub root: PathBuf,
    /// Folder of the task file, relative to `root`; empty for `root` itself.
    pub task_dir: String,
    /// Whether `root` is a git checkout.
    pub is_git: bool,
    /// Whether this is `horseman check`: inputs that must be given may be missing.
    pub is_check: bool,
}

/// Makes the plan: flags over task over defaults over profile over built-in.
///
/// # Errors
///
/// Every complaint about task file, included files, flags and files that are named. When nothing
/// else is wrong and `--select` names no task, [`Complaints::is_nothing_selected`] is set.
pub fn make(request: &PlanRequest, files: &dyn Files) -> Result<Plan, Complaints> {
    let name = request.task_file.display().to_string();
    let file = crate::task::read(&name, &request.text)?;
    let mut sources = Sources::new(request, files);
    let base = sources.base(&file);
    let given = Given { flags: &request.inputs, env: &request.env, is_check: request.is_check };
    let inputs = inputs::resolve(file.inputs.as_ref(), given, &mut sources.complaints);
    profiles(&base, request, &mut sources);
    let maker = build::Maker { request, file: &file, base: &base, inputs: &inputs };
    let instances = maker.instances(&mut sources);
    let secrets = base.providers.0.values().filter_map(|provider| provider.value.api_key.as_ref());
    let mut keys: Vec<KeySource> =
        secrets.filter_map(|secret| wire::key(secret, &mut sources)).collect();
    let steps = instances.iter().flat_map(|instance| &instance.workspace.setup);
    keys.extend(steps.flat_map(|step| &step.secrets).map(|secret| secret.from.clone()));
    let budget = build::run_budget(file.run.as_ref().map(|run| &run.value));
    let reports = reports(&file, request, &mut sources);
    if sources.complaints.is_empty() && instances.is_empty() {
        let at = &file.tasks.at;
        sources.complaints.push(at.complain("empty task: `tasks` must have at least one task"));
    }
    let complaints = std::mem::take(&mut sources.complaints);
    let instances = complaints.or(instances)?;
    let run = file.run.map(|run| run.value).unwrap_or_default();
    let file_concurrency = run.concurrency.and_then(|it| usize::try_from(it.0).ok());
    Ok(Plan {
        name: file.name.map_or_else(|| stem(request), |name| name.value.0),
        task_file: request.task_file.clone(),
        root: request.root.clone(),
        is_git: request.is_git,
        trust_commit: request.trust_commit.clone(),
        instances: select(instances, &request.select)?,
        concurrency: request.concurrency.or(file_concurrency).unwrap_or(1).max(1),
        fail_fast: run.fail_fast.unwrap_or(false),
        budget,
        keys,
        reports,
        inputs: sources.inputs,
        notices: sources.notices,
    })
}

/// The commit that the task file wants to be judged by (`trust.ref`), as it is written.
pub fn trust_ref(file: &TaskFile) -> Option<&Spanned<value::Text>> {
    file.trust.as_ref().and_then(|trust| trust.r#ref.as_ref())
}

fn stem(request: &PlanRequest) -> String {
    request.task_file.file_stem().map_or_else(String::new, |it| it.to_string_lossy().into_owned())
}

/// Resolves every profile once, so that one that no task uses is checked as well.
fn profiles(base: &Base, request: &PlanRequest, sources: &mut Sources<'_>) {
    for (id, profile) in &base.profiles.0 {
        if profile::BUILT_IN.contains(&id.0.as_str()) {
            sources.note(format!(
                "the profile `{}` of `{}` replaces the built-in one",
                id.0, profile.at.file
            ));
        }
        let home = build::home(request);
        let places = profile::Places { workspace: None, home: home.as_deref() };
        let named = crate::task::Permissions {
            extends: Some(Spanned { value: id.clone(), at: profile.at.clone() }),
            ..crate::task::Permissions::default()
        };
        if let Err(complaints) = profile::resolve(&named, &base.profiles, places) {
            sources.complaints.extend(complaints);
        }
    }
}

fn reports(file: &TaskFile, request: &PlanRequest, sources: &mut Sources<'_>) -> Reports {
    let spec = file.reports.clone().unwrap_or_default();
    let mut path = |path: Option<Spanned<value::Path>>| {
        let path = path?;
        sources.locate(&path.at, &path.value.0).map(|path| request.root.join(path))
    };
    Reports {
        junit: path(spec.junit),
        markdown: path(spec.markdown),
        events: path(spec.events),
        junit_trace: spec.junit_detail.unwrap_or_default() == JunitDetail::Trace,
    }
}

/// Keeps the instances whose id or tag is named.
fn select(instances: Vec<Instance>, names: &[String]) -> Result<Vec<Instance>, Complaints> {
    if names.is_empty() {
        return Ok(instances);
    }
    let knows = |instance: &Instance, name: &String| {
        instance.id == *name || instance.task == *name || instance.tags.contains(name)
    };
    let mut complaints = Complaints::default();
    for name in names {
        if instances.iter().any(|instance| knows(instance, name)) {
            continue;
        }
        let known = instances.iter().flat_map(|instance| {
            std::iter::once(instance.id.as_str()).chain(instance.tags.iter().map(String::as_str))
        });
        let known: Vec<&str> = known.collect();
        let complaint = At::default().complain(format!("`--select {name}` is no id and no tag"));
        complaints.push(match nearest(name, known.iter().copied()) {
            Some(near) => complaint.with_hint(format!("did you mean `{near}`?")),
            None => complaint.with_hint(format!("ids and tags: {}", known.join(", "))),
        });
    }
    complaints.is_nothing_selected = complaints.list.len() == names.len();
    let chosen = instances.into_iter().filter(|it| names.iter().any(|name| knows(it, name)));
    complaints.or(chosen.collect())
}

/// The place as events and reports carry it.
pub(crate) fn span(at: &At) -> Span {
    Span { file: at.file.to_string(), line: at.line, column: at.column }
}
