//! The stage: the workspace, the confinement and the environment that an instance's attempts share.
//!
//! In: an instance. Out: a tree after setup, probed and recorded confinement; or the reason why the
//! instance can't begin.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::exit::Exit;
use crate::plan::{ContextSource, Instance, Keep, KeySource, WorkspaceKind, fence};
use crate::profile::{Network, Profile, SandboxMode};
use crate::run::{Authored, AuthoredError, Run, Secret, Signal, record};
use crate::sandbox::{Place, Sandbox, SandboxError, environment};
use crate::tool::clip_output;
use crate::transcript::event::{Enforcement, Level};
use crate::transcript::{Event, Scope, TranscriptError};
use crate::workspace::{Change, Fresh, Git, Source, Workspace, WorkspaceError};

use super::End;
use super::traffic::{Traffic, host_rules};
use super::watch::Watch;

/// Most bytes taken of a context command's output before the entry's own cap; our choice.
const CONTEXT_OUTPUT: usize = 1 << 20;
/// Most bytes read of a context file before the entry's own cap; our choice.
const CONTEXT_FILE: u64 = 16 << 20;
/// Deadline of one context command; our choice.
const CONTEXT: std::time::Duration = std::time::Duration::from_mins(2);

/// Why an instance is over before its work could be judged.
#[derive(Clone, Debug)]
pub(super) struct Early {
    /// Exit status.
    pub(super) exit: Exit,
    /// Kind in reports.
    pub(super) kind: String,
    /// One line.
    pub(super) reason: String,
}

/// What attempts share.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    pub(super) run: Rc<Run>,
    pub(super) instance: &'a Instance,
    pub(super) profile: Profile,
    pub(super) workspace: Workspace,
    pub(super) sandbox: Sandbox,
    pub(super) traffic: Rc<Traffic>,
    pub(super) env: Rc<BTreeMap<String, String>>,
    pub(super) cwd: PathBuf,
    pub(super) logs: PathBuf,
    pub(super) shell: PathBuf,
    pub(super) watch: Rc<Watch>,
}

/// The tree of the final verdict, with the confinement that belongs to it.
pub(super) struct FreshStage {
    tree: Fresh,
    pub(super) sandbox: Sandbox,
    pub(super) cwd: PathBuf,
    pub(super) env: Rc<BTreeMap<String, String>>,
}

impl<'a> Stage<'a> {
    /// Makes the workspace, probes the confinement, writes `task.started`, and runs setup.
    pub(super) async fn prepare(
        run: &Rc<Run>,
        instance: &'a Instance,
        (source, folder, secrets): (Option<&Rc<Source>>, PathBuf, Vec<Vec<Secret>>),
        (git, scope): (&Rc<Git>, &Scope),
    ) -> Result<Self, Early> {
        let prepared =
            run.stop.guard(Workspace::prepare(git, source, &instance.workspace, &folder)).await;
        let workspace = prepared
            .map_err(|stopped| Early::stopped(stopped.0))?
            .map_err(|error| Early { kind: "workspace".to_owned(), ..Early::workspace(error) })?;
        let profile = grounded(instance, (run, source), workspace.root());
        let mut read_extra = workspace.read_extra().to_vec();
        read_extra.push(run.host.binary.clone());
        let place = Place {
            workspace: workspace.root().to_path_buf(),
            home: workspace.home(),
            tmp: workspace.tmp(),
            read_extra,
            marker: run.state.to_string_lossy().into_owned(),
            is_disposable: workspace.is_disposable(),
            git: workspace.git_folders(),
            overlay: workspace.overlay(),
            ..Place::default()
        };
        let probed = Sandbox::probe(&run.host, &profile, &place).await;
        let enforced = match &probed {
            Ok(sandbox) => sandbox.enforcement().clone(),
            Err(error) => unenforced(instance, error),
        };
        let mut notices = workspace.notices().to_vec();
        notices.extend(degraded(&profile, &enforced));
        run.transcript.append(scope, started(run, instance, &profile, (enforced, notices)))?;
        let sandbox = probed?;
        hold_hosts(instance, &sandbox)?;
        let (traffic, record) = Traffic::begin(run, instance, scope);
        let sandbox = record.map_or(sandbox.clone(), |record| sandbox.with_record(record));
        let env = environment(&profile.env, &run.host, &place, &run.secret_names);
        let shell = ["bash", "sh"]
            .iter()
            .find_map(|name| crate::path::find_program(name, env.get("PATH")))
            .ok_or_else(|| Early::setup("shell", "neither bash nor sh is on PATH"))?;
        let logs = folder.join("logs");
        std::fs::create_dir_all(&logs)
            .map_err(|error| Early::setup("workspace", format!("{}: {error}", logs.display())))?;
        let cwd = workspace.workdir();
        let (run, env) = (Rc::clone(run), Rc::new(env));
        let paths = sandbox.watched()?;
        let watch = Rc::new(Watch::begin(&run, (workspace.root(), &folder), &paths)?);
        let mut stage = Self {
            run,
            instance,
            profile,
            workspace,
            sandbox,
            traffic,
            env,
            cwd,
            logs,
            shell,
            watch,
        };
        stage.set_up(scope, secrets).await?;
        Ok(stage)
    }

    /// Gathers the context entries, fenced.
    pub(super) async fn context(&self, scope: &Scope) -> Result<Vec<String>, Early> {
        let mut entries = Vec::new();
        for entry in &self.instance.context {
            let text = match &entry.source {
                ContextSource::Text(text) => text.clone(),
                ContextSource::WorkspaceFile(path) => self.context_file(path, &entry.span)?,
                ContextSource::Command(command) => {
                    let authored = Authored {
                        role: "context",
                        command,
                        span: &entry.span,
                        sandbox: &self.sandbox,
                        cwd: &self.cwd,
                        env: &self.env,
                        secrets: &[],
                        timeout: CONTEXT,
                    };
                    let done = authored.run(&self.run, scope).await?;
                    self.put_back(scope)?;
                    if done.ended.exit_code != Some(0) {
                        let output = clip_output(&done.output, 2_000);
                        let how = ending(&done.ended);
                        let text = format!("context command at {} {how}: {output}", entry.span);
                        return Err(Early::setup("context", text));
                    }
                    clip_output(&done.output, CONTEXT_OUTPUT)
                }
            };
            let text = crate::plan::cap(&text, entry.max_bytes);
            entries.push(fence(&entry.title, &text, entry.is_untrusted));
        }
        Ok(entries)
    }

    /// Reads a context file of the workspace; a symlink out of it is refused.
    fn context_file(&self, path: &str, span: &crate::approval::Span) -> Result<String, Early> {
        let root = self.workspace.root();
        let wrong =
            |why: String| Early::setup("context", format!("context file `{path}` ({span}): {why}"));
        let file = if self.workspace.overlay().is_some() {
            let why = "it is not there, or a symlink leads to it";
            let found =
                self.workspace.find(Path::new(path)).ok_or_else(|| wrong(why.to_owned()))?;
            found.0
        } else {
            let file = root.join(path).canonicalize().map_err(|error| wrong(error.to_string()))?;
            let root = root.canonicalize().map_err(|error| wrong(error.to_string()))?;
            if !file.starts_with(&root) {
                return Err(wrong("it lies outside the workspace".to_owned()));
            }
            file
        };
        let facts = file.symlink_metadata().map_err(|error| wrong(error.to_string()))?;
        if !facts.is_file() {
            // Opening a pipe would wait for somebody who writes to it (P1).
            return Err(wrong("it is not a regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        std::fs::File::open(&file)
            .and_then(|file| file.take(CONTEXT_FILE).read_to_end(&mut bytes))
            .map_err(|error| wrong(error.to_string()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Makes the fresh tree of the verdict: base plus patch, its own home and temporary folder.
    pub(super) async fn fresh(&self, change: &Change) -> Result<FreshStage, Early> {
        let tree = self.workspace.fresh(change).await?;
        Ok(FreshStage {
            sandbox: self.sandbox.with_workspace(tree.root.clone()),
            cwd: tree.workdir.clone(),
            env: Rc::clone(&self.env),
            tree,
        })
    }

    /// Keeps the files that the task lists as artefacts, in the record's folder.
    pub(super) fn keep_artifacts(&self, scope: &Scope, globs: &[String]) -> Result<(), Early> {
        if globs.is_empty() {
            return Ok(());
        }
        let to = self.attempt_folder(scope.attempt.unwrap_or(1)).join("artifacts");
        self.workspace.artifacts(globs, &to)?;
        Ok(())
    }

    fn attempt_folder(&self, attempt: u32) -> PathBuf {
        let instance = crate::path::component(&self.instance.id);
        self.run.out.join("tasks").join(instance).join(format!("attempt-{attempt}"))
    }

    /// Keeps the workspace where the task asks for it.
    pub(super) fn close(self, attempt: u32, is_done: bool) -> Result<(), Early> {
        let keeps = match self.instance.workspace.keep {
            Keep::Never => false,
            Keep::OnFailure => !is_done,
            Keep::Always => true,
        };
        if keeps {
            let to = self.attempt_folder(attempt).join("workspace");
            self.workspace.keep(&to)?;
        }
        Ok(())
    }
}

impl FreshStage {
    /// Puts the files back that `check` is to be judged with.
    pub(super) async fn restore(
        &self,
        stage: &Stage<'_>,
        check: &crate::plan::CheckPlan,
    ) -> Result<(), Early> {
        let protected = &stage.instance.profile.protected;
        let globs = check.restore.as_ref().unwrap_or(protected);
        let commit = stage.run.plan.trust_commit.as_deref();
        let commit = commit.or(stage.instance.workspace.commit.as_deref());
        stage.workspace.restore(&self.tree, globs, commit).await?;
        Ok(())
    }
}

/// Holds the hosts of setup steps and checks to be enforceable (P3).
fn hold_hosts(instance: &Instance, sandbox: &Sandbox) -> Result<(), SandboxError> {
    let setup = instance.workspace.setup.iter().map(|step| (step.network, &step.hosts));
    let checks = instance.checks.iter().map(|check| (check.network, &check.hosts));
    let mut listed = setup.chain(checks).filter(|(network, _)| *network == Network::Listed);
    listed.try_for_each(|(network, hosts)| sandbox.with_network(network, hosts).check_hosts())
}

/// The profile with its relative roots below the workspace, and with what no command may read:
/// state and record of runs, where the agent's tree waits while its result is judged (P5), and the
/// configuration of the checkout, where CI leaves its token.
fn grounded(
    instance: &Instance,
    (run, source): (&Run, Option<&Rc<Source>>),
    root: &Path,
) -> Profile {
    let profile = &instance.profile;
    let below = |paths: &[PathBuf]| paths.iter().map(|path| root.join(path)).collect();
    let mut deny_read = profile.deny_read.clone();
    if profile.mode != SandboxMode::DangerFullAccess {
        let mut hidden = vec![run.state.parent().unwrap_or(&run.state).to_path_buf()];
        if !run.out.starts_with(root) {
            hidden.push(run.out.clone());
        }
        hidden.extend(run.plan.keys.iter().filter_map(|key| match key {
            KeySource::File(path) => Some(path.clone()),
            KeySource::Env(_) | KeySource::Command(..) => None,
        }));
        if let Some(source) = source
            && instance.workspace.kind != WorkspaceKind::InPlace
        {
            // An overlay shows a configuration of its own in its place.
            let is_shown = |folder: &&Path| {
                instance.workspace.kind == WorkspaceKind::Overlay && **folder == root.join(".git")
            };
            let folders = [source.git_dir(), source.common_dir()];
            for folder in folders.into_iter().filter(|folder| !is_shown(folder)) {
                hidden.extend(["config", "config.worktree"].map(|name| folder.join(name)));
            }
        }
        deny_read.extend(hidden.iter().map(|path| path.to_string_lossy().into_owned()));
    }
    let mut hosts = profile.hosts.clone();
    if profile.network == Network::Listed {
        hosts.rules = host_rules(instance);
    }
    Profile {
        hosts,
        write: below(&profile.write),
        read: profile.read.as_deref().map(below),
        deny_read,
        ..profile.clone()
    }
}

/// How a command ended, in words.
pub(super) fn ending(ended: &crate::process::Ended) -> String {
    match (ended.cause, ended.exit_code, ended.signal) {
        (crate::process::Cause::TimedOut, _, _) => "had no end within its timeout".to_owned(),
        (crate::process::Cause::Limit, _, _) => {
            "took more of the temporary folder than permissions.limits.tmp_size".to_owned()
        }
        (_, Some(code), _) => format!("exited with code {code}"),
        (_, None, Some(signal)) => format!("was ended by signal {signal}"),
        (_, None, None) => "was stopped".to_owned(),
    }
}

/// What stands as the enforcement of a task whose confinement can't be had.
fn unenforced(instance: &Instance, error: &SandboxError) -> Enforcement {
    let why = record::chain(error);
    Enforcement {
        tier: "none".to_owned(),
        mode: instance.profile.mode.name().to_owned(),
        items: BTreeMap::from([("all".to_owned(), Level::None { why })]),
    }
}

fn started(
    run: &Run,
    instance: &Instance,
    profile: &Profile,
    (enforced, notices): (Enforcement, Vec<String>),
) -> Event {
    let target = match instance.workspace.kind {
        WorkspaceKind::Clone => &run.plan.root,
        WorkspaceKind::Copy | WorkspaceKind::InPlace | WorkspaceKind::Overlay => {
            &instance.workspace.path
        }
    };
    let json = |value: Result<serde_json::Value, serde_json::Error>| value.unwrap_or_default();
    Event::TaskStarted {
        id: instance.task.clone(),
        line: instance.span.line,
        base_commit: instance.workspace.commit.clone(),
        workspace: instance.workspace.kind.name().to_owned(),
        target: target.to_string_lossy().into_owned(),
        provider: instance.model.provider.clone(),
        model: instance.model.name.clone(),
        requested: json(serde_json::to_value(profile)),
        enforced,
        budget: json(serde_json::to_value(&instance.budget)),
        notices,
    }
}

/// One sentence for each item that may be missing and isn't fully in force.
fn degraded(profile: &Profile, enforced: &Enforcement) -> Vec<String> {
    let why = |item: &String| match enforced.items.get(item)? {
        Level::Full { .. } => None,
        Level::Partial { why, .. } | Level::None { why } => Some(format!("`{item}`: {why}")),
    };
    profile.degraded.iter().filter_map(why).collect()
}

impl Early {
    pub(super) fn setup(kind: &str, reason: impl Into<String>) -> Self {
        Self { exit: Exit::Setup, kind: kind.to_owned(), reason: reason.into() }
    }

    pub(super) fn stopped(signal: Signal) -> Self {
        Self {
            exit: match signal {
                Signal::Interrupt => Exit::Interrupted,
                Signal::Terminate => Exit::Terminated,
            },
            kind: "signal".to_owned(),
            reason: format!("interrupted by {}", signal.name()),
        }
    }

    pub(super) fn workspace(error: WorkspaceError) -> Self {
        error.into()
    }

    /// The end of an attempt whose result could not be judged; an end that already says more stays.
    pub(super) fn into_end(self, end: End) -> End {
        match (self.exit, end) {
            (_, end @ (End::Internal(_) | End::Sandbox(_) | End::Stopped(_))) => end,
            (Exit::Interrupted, _) => End::Stopped(Signal::Interrupt),
            (Exit::Terminated, _) => End::Stopped(Signal::Terminate),
            (Exit::Sandbox, _) => End::Sandbox(self.reason),
            (Exit::Setup, _) => End::Setup(self.reason),
            (Exit::NotDone, _) => End::GaveUp(self.reason),
            (_, _) => End::Internal(self.reason),
        }
    }
}

impl From<WorkspaceError> for Early {
    fn from(error: WorkspaceError) -> Self {
        if matches!(error, WorkspaceError::TooLarge { .. }) {
            let reason = record::chain(&error);
            return Self { exit: Exit::NotDone, kind: "patch-size".to_owned(), reason };
        }
        let exit = if error.is_confinement() { Exit::Sandbox } else { Exit::Setup };
        Self { exit, kind: "workspace".to_owned(), reason: record::chain(&error) }
    }
}

impl From<SandboxError> for Early {
    fn from(error: SandboxError) -> Self {
        let mut reason = record::chain(&error);
        if let Some(hint) = error.hint() {
            reason = format!("{reason} (hint: {hint})");
        }
        Self { exit: Exit::Sandbox, kind: "sandbox".to_owned(), reason }
    }
}

impl From<TranscriptError> for Early {
    fn from(error: TranscriptError) -> Self {
        let reason = record::chain(&error);
        Self { exit: Exit::Internal, kind: "record".to_owned(), reason }
    }
}

impl From<AuthoredError> for Early {
    fn from(error: AuthoredError) -> Self {
        match error {
            AuthoredError::Stopped(signal) => Self::stopped(signal),
            AuthoredError::Sandbox(error) => error.into(),
            AuthoredError::Record(error) => error.into(),
            AuthoredError::Log { .. } => Self::setup("command", record::chain(&error)),
        }
    }
}
