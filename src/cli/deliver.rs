//! Delivering: the patches of a finished run onto a checkout.
//!
//! In: a run's report. Out: an exit status, after base, digest and protected paths were verified.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::apply::{ApplyOptions, OtherBase, apply};
use super::args::ApplyArgs;
use super::host::Surroundings;
use super::print;
use crate::exit::Exit;
use crate::report::shape::{Report, Task};
use crate::run::Run;
use crate::workspace::Git;

/// `horseman apply RUN_DIR`.
pub(super) fn command(args: &ApplyArgs, surroundings: &Surroundings) -> Exit {
    let report = match crate::transcript::verify(&args.run_dir) {
        Ok(_) => crate::report::write::report(&args.run_dir),
        Err(error) => {
            print::complain(&error, None);
            return Exit::NotDone;
        }
    };
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            print::complain(&error, None);
            return Exit::Usage;
        }
    };
    let task = match pick(&report, args.task.as_deref()) {
        Ok(task) => task,
        Err(sentence) => {
            print::complain_text(&sentence, None);
            return Exit::Usage;
        }
    };
    let state = match super::fresh_state(surroundings) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let marker = state.folder().to_string_lossy().into_owned();
    let git = match Git::new(&surroundings.host, state.folder(), &marker) {
        Ok(git) => Rc::new(git),
        Err(error) => {
            print::complain(&error, None);
            return Exit::Setup;
        }
    };
    let to =
        args.to.as_ref().map_or_else(|| target(task, surroundings), |to| surroundings.cwd.join(to));
    let how = How {
        on_other_base: if args.three_way { OtherBase::Merge } else { OtherBase::Refuse },
        commit: args.commit.then(|| message(&report, task)),
    };
    runtime.block_on(put(&git, (&args.run_dir, task), &to, how))
}

/// Where a patch belongs that no `--to` names: the same folder below the working folder's checkout
/// when the run's own folder is gone, else the run's own.
fn target(task: &Task, surroundings: &Surroundings) -> PathBuf {
    let own = PathBuf::from(&task.target);
    if own.is_dir() { own } else { surroundings.cwd.clone() }
}

/// `run --apply`: every task's patch onto the folder that it belongs to.
pub(super) async fn after_run(run: &Run, git: &Rc<Git>, report: &Report) -> Exit {
    let mut exit = Exit::Done;
    for task in report.tasks.iter().filter(|task| task.exit == Some(0)) {
        let how = How { on_other_base: OtherBase::Refuse, commit: None };
        let to = PathBuf::from(&task.target);
        exit = exit.worst(put(git, (&run.out, task), &to, how).await);
    }
    exit
}

/// The task that is meant.
fn pick<'a>(report: &'a Report, id: Option<&str>) -> Result<&'a Task, String> {
    let with_patch = || report.tasks.iter().filter(|task| task.patch.is_some());
    match id {
        Some(id) => {
            report.tasks.iter().find(|task| task.id == id || task.task == id).ok_or_else(|| {
                let ids: Vec<&str> = report.tasks.iter().map(|task| task.id.as_str()).collect();
                format!("the run has no task `{id}`; it has `{}`", ids.join("`, `"))
            })
        }
        None if with_patch().count() > 1 => {
            Err("the run has several patches; name one with `--task`".to_owned())
        }
        None => with_patch().next().ok_or_else(|| "the run left no patch".to_owned()),
    }
}

/// How a patch is put.
struct How {
    on_other_base: OtherBase,
    commit: Option<String>,
}

async fn put(git: &Rc<Git>, (dir, task): (&Path, &Task), to: &Path, how: How) -> Exit {
    let Some(patch) = &task.patch else { return Exit::Done };
    if task.exit != Some(0) {
        let (id, outcome, reason) = (&task.id, &task.outcome, &task.reason);
        let sentence =
            format!("task `{id}` is {outcome}, not done ({reason}); its patch is not applied");
        let hint = format!("apply it by hand: git apply {}", dir.join(&patch.path).display());
        print::complain_text(&sentence, Some(&hint));
        return Exit::NotDone;
    }
    let beside: Vec<&str> = task
        .attempts
        .last()
        .map(|attempt| attempt.beside.iter().map(|part| part.file.path.as_str()).collect())
        .unwrap_or_default();
    if !beside.is_empty() {
        print::complain_text(
            &format!(
                "the result of `{}` changes submodules or LFS files, which are not applied here; \
                 their parts lie in the run's folder: {}",
                task.id,
                beside.join(", ")
            ),
            None,
        );
        return Exit::NotDone;
    }
    let blob = dir.join("blobs").join(&patch.sha256);
    let bytes = match std::fs::read(&blob) {
        Ok(bytes) => bytes,
        Err(error) => {
            print::complain_text(&format!("failed to read `{}`: {error}", blob.display()), None);
            return Exit::NotDone;
        }
    };
    if task.workspace == "in-place" {
        for file in &task.files {
            print::note(&format!("changed in place: {}", file.path));
        }
        return Exit::Done;
    }
    let options = ApplyOptions {
        sha256: Some(patch.sha256.clone()),
        protected: protected(task),
        on_other_base: how.on_other_base,
        commit: how.commit,
    };
    match apply(git, &bytes, to, &options).await {
        Ok(applied) => {
            for file in &applied.files {
                print::note(&format!("applied: {} {}", file.kind, file.path));
            }
            if let Some(commit) = applied.commit {
                print::note(&format!("committed: {commit}"));
            }
            Exit::Done
        }
        Err(error) => {
            print::complain(&error, None);
            Exit::NotDone
        }
    }
}

/// Globs that the run protected; they hold for its patch always.
fn protected(task: &Task) -> Vec<String> {
    task.requested
        .get("protected")
        .and_then(|globs| serde_json::from_value(globs.clone()).ok())
        .unwrap_or_default()
}

/// Message of a commit, from the run.
fn message(report: &Report, task: &Task) -> String {
    let said = task.final_message.as_deref().unwrap_or_default();
    let clean = crate::report::clean::plain(said);
    format!("{}: {}\n\n{}\n\nRun: {}\n", report.name, task.id, clean.trim(), report.run)
}
