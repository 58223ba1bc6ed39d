//! The command line: the only reader of arguments and surroundings, the only printer.
//!
//! In: arguments. Out: an exit status. Each command is a call into the room that does it.

pub mod apply;
mod args;
mod confine;
mod deliver;
pub mod doctor;
mod host;
mod judge;
mod keys;
mod load;
pub mod patch;
mod print;
pub mod rules;
mod run;
pub mod sandbox;

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use tokio::runtime::{Builder, Runtime};

use self::args::{Cli, Command, PatchArgs, PlanArgs, SchemaName};
use self::host::Surroundings;
use self::load::{LoadError, Loaded};
use crate::clock::Clock;
use crate::exit::Exit;
use crate::workspace::RunState;

/// Carries out the command that `args` name; the first one is the program.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            drop(error.print());
            return code.into();
        }
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::WARN)
        .without_time()
        .init();
    match Surroundings::read() {
        Ok(surroundings) => dispatch(cli.command, &surroundings),
        Err(sentence) => {
            print::complain_text(&sentence, None);
            Exit::Internal.into()
        }
    }
}

fn dispatch(command: Command, surroundings: &Surroundings) -> ExitCode {
    let exit = match command {
        Command::Run(args) => run::run(&args, surroundings),
        Command::Check(args) => check(&args, surroundings),
        Command::Plan(args) => plan(&args, surroundings),
        Command::Apply(args) => deliver::command(&args, surroundings),
        Command::Verify { run_dir } => verify(&run_dir),
        Command::Report { run_dir, format } => report(&run_dir, &format),
        Command::Schema { which } => {
            print::data(&match which {
                SchemaName::Task => format!("{:#}\n", crate::task::schema()),
                SchemaName::Transcript => crate::transcript::schema(),
                SchemaName::Report => crate::report::schema(),
            });
            Exit::Done
        }
        Command::Patch(args) => patch(&args, surroundings),
        Command::Exec(_) => later("exec"),
        Command::Resume(_) => later("resume"),
        Command::Publish(_) => later("publish"),
        Command::Init(_) => later("init"),
        Command::Merge(_) => later("merge"),
        Command::Rules(command) => judge::command(&command, surroundings),
        Command::Doctor(args) => confine::diagnose(&args, surroundings),
        Command::Sandbox(args) => return confine::command(&args, surroundings),
    };
    exit.into()
}

fn later(command: &str) -> Exit {
    print::complain_text(&format!("`horseman {command}` is not built yet"), None);
    Exit::Usage
}

/// The runtime of a command: one thread, since nothing here computes for long.
fn runtime() -> Result<Runtime, Exit> {
    Builder::new_current_thread().enable_all().build().map_err(|error| {
        print::complain_text(&format!("the runtime can't be started: {error}"), None);
        Exit::Internal
    })
}

/// Clears what killed runs left, and makes the state folder of this one.
fn fresh_state(surroundings: &Surroundings) -> Result<RunState, Exit> {
    let base = run::state_base(surroundings);
    let failed = |error: &dyn std::error::Error| {
        print::complain(error, Some("name another folder for temporary files with TMPDIR"));
        Exit::Internal
    };
    let swept = crate::workspace::sweep(&base, &crate::sandbox::end_leftovers);
    for dead in swept.map_err(|error| failed(&error))? {
        let folder = dead.folder.display();
        let processes = dead.processes;
        print::note(&match dead.failure {
            None => format!("cleared what a killed run left: {folder}, {processes} processes"),
            Some(error) => format!("what a killed run left at {folder} can't be cleared: {error}"),
        });
    }
    let id = format!("{:x}-{:06x}", Clock::epoch_ms(), std::process::id());
    RunState::create(&base, &id).map_err(|error| failed(&error))
}

/// Prints why there is no plan.
fn complain_load(error: &LoadError) -> Exit {
    match error {
        LoadError::Complaints(complaints) => {
            print::note(&complaints.to_string());
            complaints.exit()
        }
        LoadError::Usage(sentence, hint) => {
            print::complain_text(sentence, *hint);
            Exit::Usage
        }
        LoadError::Sandbox(sentence) => {
            print::complain_text(sentence, None);
            Exit::Sandbox
        }
    }
}

fn with_plan(
    args: &PlanArgs,
    surroundings: &Surroundings,
    is_check: bool,
    then: impl Fn(&Loaded) -> Exit,
) -> Exit {
    let state = match fresh_state(surroundings) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match load::load(args, surroundings, (&runtime, &state, is_check)) {
        Ok(loaded) => then(&loaded),
        Err(error) => complain_load(&error),
    }
}

fn check(args: &PlanArgs, surroundings: &Surroundings) -> Exit {
    with_plan(args, surroundings, true, |loaded| {
        let mut exit = Exit::Done;
        for instance in &loaded.plan.instances {
            if let Err(sentence) = crate::session::validate(instance) {
                print::complain_text(&sentence, None);
                exit = Exit::Usage;
            }
        }
        for notice in &loaded.plan.notices {
            print::note(&format!("note: {notice}"));
        }
        if exit == Exit::Done {
            let count = loaded.plan.instances.len();
            print::note(&format!("{}: valid, {count} to run", args.task_file.display()));
        }
        exit
    })
}

fn plan(args: &PlanArgs, surroundings: &Surroundings) -> Exit {
    with_plan(args, surroundings, false, |loaded| {
        let text = serde_json::to_string_pretty(&loaded.plan.to_json()).unwrap_or_default();
        print::data(&format!("{text}\n"));
        Exit::Done
    })
}

fn verify(run_dir: &Path) -> Exit {
    match crate::transcript::verify(run_dir) {
        Ok(verified) => {
            let state = match (verified.complete, verified.torn) {
                (true, _) => "complete",
                (false, true) => "the run was killed; the last line is torn",
                (false, false) => "the run was killed",
            };
            print::data(&format!(
                "{} lines, {} blobs: chain and digests hold; {state}\n",
                verified.lines, verified.blobs
            ));
            Exit::Done
        }
        Err(error) => {
            print::complain(&error, None);
            Exit::NotDone
        }
    }
}

fn report(run_dir: &Path, format: &str) -> Exit {
    let rendered = crate::report::Format::parse(format)
        .and_then(|format| crate::report::render(run_dir, format));
    match rendered {
        Ok(bytes) => {
            print::data(&String::from_utf8_lossy(&bytes));
            Exit::Done
        }
        Err(error) => {
            print::complain(&error, None);
            Exit::Usage
        }
    }
}

fn patch(args: &PatchArgs, surroundings: &Surroundings) -> Exit {
    let mut text = Vec::new();
    if let Err(error) = std::io::stdin().lock().read_to_end(&mut text) {
        print::complain_text(&format!("stdin can't be read: {error}"), None);
        return Exit::Usage;
    }
    let at = |path: &Path| surroundings.cwd.join(path);
    let options = patch::PatchOptions {
        cwd: args.cwd.as_deref().map_or_else(|| surroundings.cwd.clone(), at),
        root: args.root.as_deref().map(at),
        check_only: args.check,
        json: args.json,
        overwrite: args.overwrite,
        protected: args.protected.clone(),
        roots: args.write_root.iter().map(|root| at(root)).collect(),
    };
    let outcome = patch::run(&options, &text);
    print::data(&outcome.stdout);
    if !outcome.stderr.is_empty() {
        print::note(outcome.stderr.trim_end());
    }
    outcome.exit
}
