//! `horseman run`: plan, sessions, record, reports, exit status.
//!
//! In: arguments and surroundings. Out: the record in `--out`, the final message on stdout, and the
//! status. A list of calls; each stage lives in its own room.

use std::cell::{Cell, RefCell};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use super::args::{Color, RunArgs};
use super::host::Surroundings;
use super::load::{Loaded, load};
use super::{keys, print};
use crate::clock::Clock;
use crate::exit::Exit;
use crate::model::NetOptions;
use crate::plan::{FailureAction, Instance};
use crate::report::progress::{Grouping, Progress};
use crate::run::{Run, Signal, Stop};
use crate::session::{Batch, Equipment, Outcome, carry_out};
use crate::transcript::event::Usage;
use crate::transcript::{Event, Scope, Transcript, TranscriptError};
use crate::workspace::{RunState, state};

/// Runs the tasks of a task file.
pub(super) fn run(args: &RunArgs, surroundings: &Surroundings) -> Exit {
    if let Some(flag) = unbuilt(args) {
        print::complain_text(&format!("`{flag}` is not built yet"), None);
        return Exit::Usage;
    }
    crate::sandbox::harden_self();
    let clock = Clock::start();
    let runtime = match super::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let state = match super::fresh_state(surroundings) {
        Ok(state) => state,
        Err(exit) => return exit,
    };
    let loaded = match load(&args.plan, surroundings, (&runtime, &state, false)) {
        Ok(loaded) => loaded,
        Err(error) => return super::complain_load(&error),
    };
    for instance in &loaded.plan.instances {
        if let Err(sentence) = crate::session::validate(instance) {
            print::complain_text(&sentence, None);
            return Exit::Usage;
        }
    }
    let id = run_id(&state);
    let out = match out_folder(args, surroundings, (&loaded.plan.root, &id)) {
        Ok(out) => out,
        Err(sentence) => {
            print::complain_text(&sentence, None);
            return Exit::Usage;
        }
    };
    let transcript = match Transcript::create(&out, &id, clock) {
        Ok(transcript) => transcript,
        Err(error) => {
            print::complain(&error, None);
            return Exit::Internal;
        }
    };
    show(args, surroundings, &transcript);
    let Loaded { plan, git, source } = loaded;
    let secret_names = keys::names(&plan);
    let run = Rc::new(Run {
        plan,
        host: surroundings.host.clone(),
        clock,
        transcript,
        stop: Stop::default(),
        out,
        state: state.folder().to_path_buf(),
        secret_names,
    });
    let work = Work { run: Rc::clone(&run), git, source, net: net_options(surroundings), state };
    let local = LocalSet::new();
    let exit = local.block_on(&runtime, work.carry_out());
    // Anything that still runs is dropped here, before the reports say that nothing does; what lost
    // its reaper is found by its marker.
    drop(local);
    work.git.rest();
    crate::sandbox::end_leftovers(&run.state);
    let exit = finish((args, surroundings.is_ci()), (&run, exit), &runtime, &work);
    // A name lookup that hangs on its own thread must not hold the exit (P1).
    runtime.shutdown_background();
    exit
}

/// The flag that is asked for and not built.
fn unbuilt(args: &RunArgs) -> Option<&'static str> {
    [
        (args.shard.is_some(), "--shard"),
        (args.record.is_some(), "--record"),
        (args.replay.is_some(), "--replay"),
    ]
    .into_iter()
    .find_map(|(is_asked, flag)| is_asked.then_some(flag))
}

/// Renders the reports, applies what is to be applied, prints the final message.
fn finish(
    (args, is_ci): (&RunArgs, bool),
    (run, mut exit): (&Run, Exit),
    runtime: &Runtime,
    work: &Work,
) -> Exit {
    let report = match crate::report::write_all(&run.out, &run.plan.reports) {
        Ok(report) => report,
        Err(error) => {
            print::complain(&error, None);
            return exit.worst(Exit::Internal);
        }
    };
    if exit == Exit::Done && args.apply {
        exit = runtime.block_on(super::deliver::after_run(run, &work.git, &report));
    }
    if !args.json
        && let Some(message) = report.tasks.last().and_then(|task| task.final_message.as_ref())
    {
        let line = if message.ends_with('\n') { "" } else { "\n" };
        // A CI log takes commands from lines; what a model wrote must not be one.
        let message = if is_ci { crate::report::clean::log(message) } else { message.clone() };
        if let Err(error) = print::result(&format!("{message}{line}")) {
            print::complain_text(&format!("the final message can't be written: {error}"), None);
            exit = exit.worst(Exit::Internal);
        }
    }
    if !args.quiet || exit != Exit::Done {
        let (code, name) = (exit.code(), exit.name());
        print::note(&format!("{name} (exit {code}); record in {}", run.out.display()));
    }
    exit
}

/// A run under way.
struct Work {
    run: Rc<Run>,
    git: Rc<crate::workspace::Git>,
    source: Option<Rc<crate::workspace::Source>>,
    net: NetOptions,
    state: RunState,
}

impl Work {
    async fn carry_out(&self) -> Exit {
        let run = &self.run;
        listen(&run.stop);
        let begun = run.transcript.append(&Scope::default(), self.started());
        if let Err(error) = begun {
            return record_failed(&error);
        }
        let outcomes = self.all().await;
        let mut usage = Usage::default();
        let mut exit = Exit::Done;
        for outcome in &outcomes {
            usage += outcome.usage;
            if outcome.counts {
                exit = exit.worst(outcome.exit);
            }
        }
        let signal = run.stop.signal();
        if let Some(signal) = signal {
            exit = exit.worst(match signal {
                Signal::Interrupt => Exit::Interrupted,
                Signal::Terminate => Exit::Terminated,
            });
        }
        let completed = Event::RunCompleted {
            exit: exit.code(),
            outcome: exit.name().to_owned(),
            signal: signal.map(|signal| signal.name().to_owned()),
            usage,
        };
        let closed = run.transcript.append(&Scope::default(), completed);
        match closed.and_then(|()| run.transcript.sync()) {
            Ok(()) => exit,
            Err(error) => record_failed(&error),
        }
    }

    fn started(&self) -> Event {
        let plan = &self.run.plan;
        let lines: serde_json::Map<String, serde_json::Value> = plan
            .instances
            .iter()
            .map(|instance| (instance.id.clone(), instance.span.line.into()))
            .collect();
        Event::RunStarted {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: plan.name.clone(),
            plan_sha256: plan.digest(),
            inputs: plan.inputs.clone(),
            selected: plan.instances.iter().map(|instance| instance.id.clone()).collect(),
            operator: self.net.redacted(),
            trust_commit: plan.trust_commit.clone(),
            reports: serde_json::json!({
                "tasks": lines,
                "junit_detail": if plan.reports.junit_trace { "trace" } else { "verdict" },
            }),
            notices: plan.notices.clone(),
        }
    }

    /// Carries the instances out, as many at a time as the plan says.
    async fn all(&self) -> Vec<Outcome> {
        let batch = Batch::new(self.run.plan.budget.clone());
        let next = Cell::new(0);
        let is_over = Cell::new(false);
        let done = RefCell::new(Vec::new());
        let lane = async || {
            loop {
                let at = next.get();
                let Some(instance) = self.run.plan.instances.get(at) else { break };
                if is_over.get() || self.run.stop.signal().is_some() {
                    break;
                }
                next.set(at + 1);
                let outcome = self.one(instance, &batch).await;
                let is_red = outcome.exit != Exit::Done;
                let stops = self.run.plan.fail_fast && outcome.counts
                    || instance.failure == FailureAction::StopRun
                    || matches!(outcome.exit, Exit::Internal);
                is_over.set(is_over.get() || (is_red && stops));
                done.borrow_mut().push((at, outcome));
            }
        };
        let lanes = self.run.plan.concurrency.max(1);
        futures_util::future::join_all((0..lanes).map(|_| lane())).await;
        let mut done = done.into_inner();
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn one(&self, instance: &Instance, batch: &Batch) -> Outcome {
        let key = keys::read(&self.run, &instance.model.wire).await;
        let model = key.map_err(|why| (Exit::Provider, why)).and_then(|key| {
            crate::model::open(&instance.model, key, &self.net).map_err(|error| {
                let is_script = error.kind == crate::model::FaultKind::Script;
                let exit = if is_script { Exit::Usage } else { Exit::Provider };
                (exit, error.message)
            })
        });
        let folder = self.state.attempt_dir(&instance.id);
        let secrets = keys::of_setup(&self.run, instance).await;
        let parts = match (model, folder, secrets) {
            (Ok(model), Ok(folder), Ok(secrets)) => Ok((model, folder, secrets)),
            (Err((exit, why)), _, _) => Err((exit, "provider", why)),
            (_, Err(error), _) => Err((Exit::Setup, "workspace", error.to_string())),
            (_, _, Err(why)) => Err((Exit::Setup, "setup", why)),
        };
        match parts {
            Ok((model, folder, secrets)) => {
                let equipment = Equipment {
                    model: model.as_ref(),
                    git: &self.git,
                    source: self.source.as_ref(),
                    folder,
                    secrets,
                };
                carry_out(&self.run, instance, equipment, batch).await
            }
            Err((exit, kind, reason)) => {
                crate::session::refuse(&self.run, instance, (exit, kind, reason))
            }
        }
    }
}

fn record_failed(error: &TranscriptError) -> Exit {
    print::complain(error, None);
    Exit::Internal
}

/// Turns signals into the wish to stop; a second one changes nothing, since every wait is short.
fn listen(stop: &Stop) {
    let kinds = [
        (SignalKind::interrupt(), Signal::Interrupt),
        (SignalKind::terminate(), Signal::Terminate),
        (SignalKind::hangup(), Signal::Terminate),
    ];
    for (kind, meaning) in kinds {
        let stop = stop.clone();
        match signal(kind) {
            Ok(mut signals) => {
                tokio::task::spawn_local(async move {
                    if signals.recv().await.is_some() {
                        stop.ask(meaning);
                    }
                });
            }
            Err(error) => tracing::warn!(%error, "a signal can't be listened to"),
        }
    }
}

/// Sends records to stdout as JSONL, or as progress to stderr.
fn show(args: &RunArgs, surroundings: &Surroundings, transcript: &Transcript) {
    let is_json = args.json;
    let is_quiet = args.quiet;
    let grouping = if surroundings.env("GITHUB_ACTIONS").is_some() {
        Grouping::Folds
    } else {
        Grouping::Prefix
    };
    let is_colored = match args.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            Surroundings::is_terminal()
                && !surroundings.is_ci()
                && surroundings.env("NO_COLOR").is_none()
        }
    };
    let mut progress = Progress::new(grouping);
    let mut is_open = true;
    transcript.set_sink(Box::new(move |record, line| {
        if is_json && is_open {
            is_open = print::data(&format!("{line}\n"));
        }
        if !is_quiet {
            let text = progress.take(record);
            if !text.is_empty() {
                let text = text.trim_end_matches('\n');
                let dim = if is_colored { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
                print::note(&format!("{}{text}{}", dim.0, dim.1));
            }
        }
    }));
}

/// The operator's proxies and certificates.
fn net_options(surroundings: &Surroundings) -> NetOptions {
    let either = |name: &str| {
        let lower = name.to_lowercase();
        surroundings.env(name).or_else(|| surroundings.env(&lower)).map(str::to_owned)
    };
    NetOptions {
        https_proxy: either("HTTPS_PROXY"),
        http_proxy: surroundings.env("HTTP_PROXY").map(str::to_owned),
        no_proxy: either("NO_PROXY"),
        ssl_cert_file: surroundings.env("SSL_CERT_FILE").map(str::to_owned),
        ssl_cert_dir: surroundings.env("SSL_CERT_DIR").map(str::to_owned),
    }
}

/// The run's id is the name of its state folder, which was unused.
fn run_id(state: &RunState) -> String {
    state.folder().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The folder of the record; made with its parents. One that holds a transcript is refused.
fn out_folder(
    args: &RunArgs,
    surroundings: &Surroundings,
    (root, id): (&Path, &str),
) -> Result<PathBuf, String> {
    let failed = |path: &Path, error: &std::io::Error| {
        format!("failed to make `{}`: {error}", path.display())
    };
    let out = if let Some(out) = &args.out {
        surroundings.cwd.join(out)
    } else {
        let own = root.join(".horseman");
        let runs = own.join("runs");
        // A repository may hold these names: a symlink would lead the record out of the checkout.
        if let Some(link) = [&own, &runs].into_iter().find(|folder| folder.is_symlink()) {
            return Err(format!("`{}` is a symlink; name a folder with `--out`", link.display()));
        }
        std::fs::create_dir_all(&own).map_err(|error| failed(&own, &error))?;
        let ignore = own.join(".gitignore");
        match std::fs::File::create_new(&ignore) {
            Ok(mut file) => file.write_all(b"*\n").map_err(|error| failed(&ignore, &error))?,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&ignore, &error)),
        }
        runs.join(id)
    };
    if out.join("transcript.jsonl").exists() {
        return Err(format!("`--out`: `{}` already holds a transcript", out.display()));
    }
    std::fs::create_dir_all(&out).map_err(|error| failed(&out, &error))?;
    let out = out.canonicalize().map_err(|error| failed(&out, &error))?;
    Ok(out)
}

/// What `base` of state folders means here.
pub(super) fn state_base(surroundings: &Surroundings) -> PathBuf {
    state::base(surroundings.tmp.as_deref(), surroundings.host.uid)
}
