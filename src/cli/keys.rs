//! Provider keys and secrets of setup steps: read at the last moment, kept out of every record, and
//! keys out of every child (P6).
//!
//! In: where a key comes from. Out: the key, or one sentence about what is missing.

use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::approval::{self, Span};
use crate::model::Key;
use crate::plan::{Instance, KeySource, Plan, SecretPlan, Wire};
use crate::policy::Exec;
use crate::process::{Capture, Stdin};
use crate::profile::{Profile, SandboxMode};
use crate::run::{Run, Secret, record};
use crate::sandbox::{Place, Sandbox};
use crate::transcript::Scope;

/// Most bytes that are read of a key file; our choice.
const KEY_BYTES: u64 = 64 << 10;
/// Deadline of a key command; our choice.
const DEADLINE: Duration = Duration::from_mins(1);

/// Names of the variables that hold keys of any provider of the plan.
pub(super) fn names(plan: &Plan) -> Vec<String> {
    let mut names: Vec<String> = plan
        .keys
        .iter()
        .filter_map(|key| match key {
            KeySource::Env(name) => Some(name.clone()),
            KeySource::File(_) | KeySource::Command(..) => None,
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Reads the key that `wire` needs; `None` when it needs none.
///
/// # Errors
///
/// One sentence that names the variable, file or command.
pub(super) async fn read(run: &Rc<Run>, wire: &Wire) -> Result<Option<Key>, String> {
    let source = match wire {
        Wire::Script { .. } => return Ok(None),
        Wire::Responses(http) => match &http.api_key {
            None => return Ok(None),
            Some(source) => source,
        },
    };
    let (text, what) = text(run, source, "the provider's key").await?;
    Key::new(text.trim().to_owned()).map(Some).ok_or_else(|| {
        format!("the provider's key is missing: {what} is empty or has control characters")
    })
}

/// Reads the secrets of each setup step of `instance`, in order.
///
/// # Errors
///
/// One sentence that names the step, and the variable, file or command.
pub(super) async fn of_setup(
    run: &Rc<Run>,
    instance: &Instance,
) -> Result<Vec<Vec<Secret>>, String> {
    let mut all = Vec::new();
    for step in &instance.workspace.setup {
        let mut secrets = Vec::new();
        for SecretPlan { env, from } in &step.secrets {
            let of = format!("the secret `{env}` of the setup command at {}", step.span);
            let (text, what) = text(run, from, &of).await?;
            let secret = Secret::new(env, text);
            secrets.push(
                secret
                    .ok_or_else(|| format!("{of} is missing: {what} is empty or has NUL bytes"))?,
            );
        }
        all.push(secrets);
    }
    Ok(all)
}

/// The text of a secret, and what it comes from in words. `of` names it in errors.
async fn text(run: &Rc<Run>, source: &KeySource, of: &str) -> Result<(String, String), String> {
    match source {
        KeySource::Env(name) => {
            let text = run.host.env.get(name).cloned().unwrap_or_default();
            Ok((text, format!("environment variable `{name}`")))
        }
        KeySource::File(path) => {
            let text = read_key_file(path).map_err(|error| {
                format!("{of} can't be read from its key file `{}`: {error}", path.display())
            })?;
            Ok((text, format!("key file `{}`", path.display())))
        }
        KeySource::Command(argv, span) => {
            Ok((by_command(run, argv, span).await?, format!("key command at {span}")))
        }
    }
}

/// Reads a key file. It must be a regular file: a pipe could hold the run for ever (P1).
fn read_key_file(path: &Path) -> std::io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut text = String::new();
    std::fs::File::open(path)?.take(KEY_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Runs a key command of the task's author. It is not confined: it may need the operator's own
/// credentials. Its stdout is the key; its stderr is dropped, so that it can't spoil it.
async fn by_command(run: &Rc<Run>, argv: &[String], span: &Span) -> Result<String, String> {
    let failed = |why: String| format!("the key command at {span} failed: {why}");
    let folder = run.state.join("key");
    std::fs::create_dir_all(&folder).map_err(|error| failed(error.to_string()))?;
    let profile = Profile { mode: SandboxMode::DangerFullAccess, ..Profile::default() };
    let place = Place {
        workspace: folder.clone(),
        home: folder.clone(),
        tmp: folder.clone(),
        read_extra: Vec::new(),
        write_extra: Vec::new(),
        marker: run.state.to_string_lossy().into_owned(),
        is_disposable: true,
        ..Place::default()
    };
    let wrong = |error: &dyn std::error::Error| failed(record::chain(error));
    let sandbox =
        Sandbox::probe(&run.host, &profile, &place).await.map_err(|error| wrong(&error))?;
    let shell = crate::path::find_program("sh", run.host.env.get("PATH"))
        .ok_or_else(|| failed("sh is not on PATH".to_owned()))?;
    let mut words = ["sh", "-c", "exec \"$@\" 2>/dev/null", "sh"].map(str::to_owned).to_vec();
    words.extend(argv.iter().cloned());
    let exec = Exec {
        program: shell,
        argv: words,
        cwd: run.plan.root.clone(),
        env: run.host.env.clone(),
        shell_text: None,
    };
    let cleared = approval::by_task_author(exec, span.clone());
    let confined = sandbox.confine(cleared).map_err(|error| wrong(&error))?;
    let started = record::process_started("key", &confined, None);
    run.transcript.append(&Scope::default(), started).map_err(|error| wrong(&error))?;
    let finished = confined.finish(Stdin::Null, Capture::default(), DEADLINE);
    let (ended, output) = run
        .stop
        .guard(finished)
        .await
        .map_err(|_| failed("interrupted".to_owned()))?
        .map_err(|error| wrong(&error))?;
    // What it printed is the key: no log of it.
    let event = record::process_ended(&ended, None, None);
    run.transcript.append(&Scope::default(), event).map_err(|error| wrong(&error))?;
    if ended.exit_code != Some(0) {
        return Err(failed(format!("it ended with {:?}", ended.exit_code)));
    }
    String::from_utf8(output.head).map_err(|_| failed("it printed no UTF-8".to_owned()))
}
