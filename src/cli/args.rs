//! Arguments: the command line as clap reads it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Runs coding agents in CI: a task file in, judged and confined work, a verifiable record out.
#[derive(Debug, Parser)]
#[command(name = "horseman", version, max_term_width = 100, after_help = EXIT_HELP)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// The table of exit statuses; a test holds it equal to `exit.rs`.
const EXIT_HELP: &str = "Exit status:
    0  done         every selected task is done and its checks pass
    1  internal     a bug in this program
    2  usage        command line, task file, rules or schema is wrong; nothing was run
    3  nothing      nothing was selected
   10  not-done     a check is red, the output breaks its schema, a required change is missing, or the model gave up
   11  denied       a denial that the task says is fatal, or too many denials
   12  budget       a turn, token, cost, tool-call or repeat limit is spent
   13  timeout      wall clock spent, or the model stayed silent
   14  provider     model or network unavailable after retries; authentication, quota
   15  sandbox      the required confinement can't be enforced here
   16  setup        workspace preparation or a `before:` expectation of a check failed
   17  partial      a merge with missing instances
  130  interrupted  interrupted by SIGINT: children gone, transcript closed
  143  terminated   ended by SIGTERM: children gone, transcript closed";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Runs the tasks of a task file
    Run(Box<RunArgs>),
    /// Validates a task file with its rules and schemas; runs nothing
    Check(PlanArgs),
    /// Prints the expanded plan as JSON; runs nothing
    Plan(PlanArgs),
    /// Puts a finished run's patch onto a checkout
    Apply(ApplyArgs),
    /// Checks the chain and the digests of a finished run
    Verify {
        /// Folder of the run
        run_dir: PathBuf,
    },
    /// Renders a report of a finished run again
    Report {
        /// Folder of the run
        run_dir: PathBuf,
        /// json, junit or markdown
        #[arg(long)]
        format: String,
    },
    /// Prints a published JSON Schema
    Schema {
        /// Which one
        which: SchemaName,
    },
    /// Works with `.rules` files
    #[command(subcommand)]
    Rules(RulesCommand),
    /// Runs one command confined exactly as a tool call would be
    Sandbox(SandboxArgs),
    /// Says what this host can enforce, by which layer, and why not
    Doctor(DoctorArgs),
    /// Applies one `apply_patch` text from stdin
    Patch(PatchArgs),
    /// One prompt without a task file (not built yet)
    #[command(hide = true)]
    Exec(Later),
    /// Continues an interrupted run (not built yet)
    #[command(hide = true)]
    Resume(Later),
    /// Carries out what the task asked to publish (not built yet)
    #[command(hide = true)]
    Publish(Later),
    /// Writes a first task file for this repository (not built yet)
    #[command(hide = true)]
    Init(Later),
    /// Joins the results of shards (not built yet)
    #[command(hide = true)]
    Merge(Later),
}

/// Arguments of a command that isn't built yet.
#[derive(Debug, Args)]
pub(super) struct Later {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

/// What decides a plan.
#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    /// Task file
    pub(super) task_file: PathBuf,
    /// Value of an input, NAME=VALUE; may be given again
    #[arg(long = "input", value_name = "K=V")]
    pub(super) inputs: Vec<String>,
    /// Task id or tag to run; may be given again
    #[arg(long, value_name = "ID")]
    pub(super) select: Vec<String>,
    /// Commit that task file, rules, includes, project docs and restored files come from
    #[arg(long, value_name = "REV")]
    pub(super) trust_ref: Option<String>,
    /// Model instead of the one in the task file
    #[arg(long, value_name = "NAME")]
    pub(super) model: Option<String>,
    /// Provider instead of the one in the task file
    #[arg(long, value_name = "ID")]
    pub(super) provider: Option<String>,
    /// Instances at the same time
    #[arg(long, value_name = "N")]
    pub(super) concurrency: Option<u32>,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) plan: PlanArgs,
    /// Folder for the record; the default is `.horseman/runs/<run-id>` of the repository
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// On success, puts the patches onto the checkout
    #[arg(long)]
    pub(super) apply: bool,
    /// Share of the instances (not built yet)
    #[arg(long, value_name = "HOW:I/N", hide = true)]
    pub(super) shard: Option<String>,
    /// Records the model's answers (not built yet)
    #[arg(long, value_name = "FILE", hide = true)]
    pub(super) record: Option<PathBuf>,
    /// Plays recorded answers (not built yet)
    #[arg(long, value_name = "FILE", hide = true)]
    pub(super) replay: Option<PathBuf>,
    /// Prints the transcript's lines on stdout as they are written
    #[arg(long)]
    pub(super) json: bool,
    /// Prints no progress
    #[arg(long)]
    pub(super) quiet: bool,
    /// Colour of progress lines
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    pub(super) color: Color,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SchemaName {
    /// The task file
    Task,
    /// A line of the transcript
    Transcript,
    /// report.json
    Report,
}

#[derive(Debug, Args)]
pub(super) struct ApplyArgs {
    /// Folder of the run
    pub(super) run_dir: PathBuf,
    /// Task whose patch is meant, when the run has several
    #[arg(long, value_name = "ID")]
    pub(super) task: Option<String>,
    /// Checkout to put it onto; the default is the working folder's
    #[arg(long, value_name = "DIR")]
    pub(super) to: Option<PathBuf>,
    /// Merges where the base has moved on
    #[arg(long = "3way")]
    pub(super) three_way: bool,
    /// Commits the result with a message from the run
    #[arg(long)]
    pub(super) commit: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum RulesCommand {
    /// Evaluates one argv by raw prefix match
    Check {
        /// Rules file; may be given again
        #[arg(short = 'r', long = "rules", value_name = "FILE", required = true)]
        rules: Vec<PathBuf>,
        /// Prints indented JSON
        #[arg(long)]
        pretty: bool,
        /// Tries an absolute program as its name, where a `host_executable` allows it
        #[arg(long)]
        resolve_host_executables: bool,
        /// Command with its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<String>,
    },
    /// Evaluates shell text exactly as a run would, and says why
    Explain {
        /// Rules file; may be given again
        #[arg(short = 'r', long = "rules", value_name = "FILE")]
        rules: Vec<PathBuf>,
        /// What text means that can't be known before it runs
        #[arg(long, default_value = "sandbox")]
        opaque: String,
        /// Prints JSON
        #[arg(long)]
        json: bool,
        /// Shell text
        text: String,
    },
    /// Runs the examples of rules files
    Test {
        /// Rules files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Judges a recorded run under other rules (not built yet)
    #[command(hide = true)]
    Replay(Later),
}

#[derive(Debug, Args)]
pub(super) struct SandboxArgs {
    /// Built-in profile, or a YAML file with permissions
    #[arg(long, value_name = "NAME/FILE")]
    pub(super) permissions: Option<String>,
    /// Workspace; the default is the working folder
    #[arg(long, value_name = "DIR")]
    pub(super) workspace: Option<PathBuf>,
    /// auto, namespaces or landlock
    #[arg(long, value_name = "TIER", default_value = "auto")]
    pub(super) tier: String,
    /// Command with its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub(super) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Prints JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Task file whose needs are checked
    pub(super) task_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct PatchArgs {
    /// Verifies and writes nothing
    #[arg(long)]
    pub(super) check: bool,
    /// Folder that relative paths resolve against; the default is the working folder
    #[arg(long, value_name = "DIR")]
    pub(super) cwd: Option<PathBuf>,
    /// Folder that nothing may be written outside of; the default is `--cwd`
    #[arg(long, value_name = "DIR")]
    pub(super) root: Option<PathBuf>,
    /// Another folder that may be written to; may be given again
    #[arg(long, value_name = "DIR")]
    pub(super) write_root: Vec<PathBuf>,
    /// Glob of protected paths; may be given again
    #[arg(long, value_name = "GLOB")]
    pub(super) protected: Vec<String>,
    /// Lets `Add File` and a move replace an existing file
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Prints one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::{Cli, EXIT_HELP};
    use crate::exit::Exit;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_shows_the_table_of_exit_statuses() {
        let lines: Vec<&str> = EXIT_HELP.lines().skip(1).collect();
        let table: Vec<String> = Exit::ALL
            .iter()
            .map(|exit| format!("{:>5}  {:<11}  {}", exit.code(), exit.name(), exit.meaning()))
            .collect();
        assert_eq!(lines, table);
    }
}
