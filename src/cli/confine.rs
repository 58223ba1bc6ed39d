//! `horseman sandbox` and `horseman doctor`: from arguments to profiles.

use std::path::Path;
use std::process::ExitCode;

use super::args::{DoctorArgs, PlanArgs, SandboxArgs};
use super::host::Surroundings;
use super::{doctor, load, print, sandbox};
use crate::exit::Exit;
use crate::plan::WorkspaceKind;
use crate::plan::profile::{Places, built_in, resolve};
use crate::profile::{Profile, Tier};
use crate::run::record::chain;
use crate::task::Complaints;
use crate::task::entries::Entries;

/// Runs one command confined; its exit status is the command's.
pub(super) fn command(args: &SandboxArgs, surroundings: &Surroundings) -> ExitCode {
    let unconfined = |sentence: &str| {
        print::complain_text(sentence, None);
        ExitCode::from(sandbox::UNCONFINED)
    };
    let workspace = args.workspace.as_deref().unwrap_or(Path::new("."));
    let workspace = match surroundings.cwd.join(workspace).canonicalize() {
        Ok(workspace) if workspace.is_dir() => workspace,
        Ok(file) => return unconfined(&format!("`{}` is not a folder", file.display())),
        Err(error) => {
            return unconfined(&format!("workspace `{}`: {error}", workspace.display()));
        }
    };
    let mut profile = match profile(args, surroundings, &workspace) {
        Ok(profile) => profile,
        Err(sentence) => return unconfined(&sentence),
    };
    profile.tier = match args.tier.as_str() {
        "auto" => profile.tier,
        "namespaces" => Tier::Namespaces,
        "landlock" => Tier::Landlock,
        other => {
            let sentence =
                format!("`--tier` must be `auto`, `namespaces` or `landlock`, got `{other}`");
            return unconfined(&sentence);
        }
    };
    crate::sandbox::harden_self();
    let Ok(state) = super::fresh_state(surroundings) else {
        return ExitCode::from(sandbox::UNCONFINED);
    };
    let request = sandbox::Request {
        profile,
        workspace,
        argv: args.command.clone(),
        state: state.folder().to_path_buf(),
    };
    let Ok(runtime) = super::runtime() else {
        return ExitCode::from(sandbox::UNCONFINED);
    };
    let ran = runtime.block_on(sandbox::run(&surroundings.host, &request, &[]));
    // A reader of stdin may still wait for its next line; it must not hold the exit.
    runtime.shutdown_background();
    match ran {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            print::complain(&error, error.hint());
            ExitCode::from(error.status())
        }
    }
}

/// The profile that `--permissions` names: none, a built-in one, or a file.
fn profile(
    args: &SandboxArgs,
    surroundings: &Surroundings,
    workspace: &Path,
) -> Result<Profile, String> {
    let Some(named) = &args.permissions else {
        print::note(
            "note: no path of the workspace is protected; name `--permissions` for a profile",
        );
        return Ok(sandbox::default_profile());
    };
    let is_file =
        named.contains('/') || [".yml", ".yaml"].iter().any(|extension| named.ends_with(extension));
    let permissions = if is_file {
        let text = std::fs::read_to_string(surroundings.cwd.join(named))
            .map_err(|error| format!("permissions file `{named}`: {error}"))?;
        crate::task::read_permissions(named, &text).map_err(|complaints| complaints.to_string())?
    } else {
        built_in(named).ok_or_else(|| {
            format!(
                "`--permissions` must be read-only, workspace-write, danger-full-access, ci, \
                 maintenance or a file (a value with `/` or ending in `.yml`), got `{named}`"
            )
        })?
    };
    let home = surroundings.host.home.as_deref();
    let places = Places { workspace: Some(workspace), home };
    let resolved: Result<_, Complaints> = resolve(&permissions, &Entries::default(), places);
    resolved.map(|permits| permits.profile).map_err(|complaints| complaints.to_string())
}

/// Says what this host can enforce; with a task file, what each of its tasks needs.
pub(super) fn diagnose(args: &DoctorArgs, surroundings: &Surroundings) -> Exit {
    let state = match super::fresh_state(surroundings) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let mut wanted = vec![("default".to_owned(), sandbox::default_profile(), true)];
    if let Some(file) = &args.task_file {
        let plan = PlanArgs {
            task_file: file.clone(),
            inputs: Vec::new(),
            select: Vec::new(),
            trust_ref: None,
            model: None,
            provider: None,
            concurrency: None,
        };
        match load::load(&plan, surroundings, (&runtime, &state, true)) {
            Ok(loaded) => {
                wanted = loaded
                    .plan
                    .instances
                    .into_iter()
                    .map(|instance| {
                        let is_disposable = instance.workspace.kind != WorkspaceKind::InPlace;
                        (instance.id, instance.profile, is_disposable)
                    })
                    .collect();
            }
            Err(error) => return super::complain_load(&error),
        }
    }
    let mut exit = Exit::Done;
    let mut all = serde_json::Map::new();
    for (name, profile, is_disposable) in wanted {
        let diagnosed = runtime.block_on(doctor::diagnose(
            &surroundings.host,
            (&profile, is_disposable),
            state.folder(),
        ));
        let diagnosis = match diagnosed {
            Ok(diagnosis) => diagnosis,
            Err(error) => {
                print::complain_text(&chain(&error), None);
                return Exit::Sandbox;
            }
        };
        exit = exit.worst(diagnosis.exit());
        if args.json {
            all.insert(name, serde_json::to_value(&diagnosis).unwrap_or_default());
        } else {
            let title =
                if args.task_file.is_some() { format!("task {name}\n") } else { String::new() };
            print::data(&format!("{title}{}", diagnosis.table()));
        }
    }
    if args.json {
        let value = match args.task_file {
            Some(_) => serde_json::Value::Object(all),
            None => all.remove("default").unwrap_or_default(),
        };
        print::data(&format!("{value:#}\n"));
    }
    exit
}
