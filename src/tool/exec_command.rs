//! `exec_command`: runs shell text under the attempt's confinement.
//!
//! A call waits for its yield time; a command that outlives it keeps running under a session id
//! until it ends, is polled, or reaches its deadline.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::approval::Refusal;
use crate::clock::Clock;
use crate::model::{FunctionSpec, LocalFuture, ToolCall, ToolSpec};
use crate::policy::{Action, Exec, Reader};
use crate::process::Stdin;
use crate::sandbox::Observed;

use super::output::{ExecReply, Standing};
use super::{
    ApplyPatch, DEFAULT_OUTPUT_TOKENS, Gate, Launch, Live, Started, StepContext, Store, ToolError,
    ToolExecutor, ToolResult, arguments, resolve,
};

/// Yield time of a call that names none.
pub(super) const YIELD: Duration = Duration::from_secs(10);
/// Shortest yield time.
const YIELD_MIN: Duration = Duration::from_millis(250);
/// Longest yield time, so that a build costs one turn.
const YIELD_MAX: Duration = Duration::from_mins(5);

/// The tool.
#[derive(Debug)]
pub struct ExecCommand {
    /// Live commands of the attempt, shared with `write_stdin`.
    pub store: Rc<RefCell<Store>>,
    /// For wall times.
    pub clock: Clock,
}

#[derive(Debug, Deserialize)]
struct Arguments {
    cmd: String,
    workdir: Option<String>,
    shell: Option<String>,
    #[serde(default)]
    login: bool,
    #[serde(default)]
    tty: bool,
    yield_time_ms: Option<i64>,
    timeout_ms: Option<i64>,
    max_output_tokens: Option<usize>,
    sandbox_permissions: Option<String>,
}

/// Clamps a yield time that a model wrote.
pub(super) fn yield_time(milliseconds: Option<i64>, default: Duration) -> Duration {
    milliseconds.map_or(default, |milliseconds| {
        Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0)).clamp(YIELD_MIN, YIELD_MAX)
    })
}

impl ToolExecutor for ExecCommand {
    fn name(&self) -> &'static str {
        "exec_command"
    }

    fn supports_parallel(&self) -> bool {
        true
    }

    fn spec(&self) -> ToolSpec {
        ToolSpec::Function(FunctionSpec {
            name: self.name().to_owned(),
            description: "Runs shell text and returns its output (stdout and stderr in order). \
                          Returns as soon as the command ends; one that is still running after \
                          yield_time_ms keeps running under a session id for write_stdin. There is \
                          no terminal and stdin is empty unless tty is true."
                .to_owned(),
            strict: false,
            parameters: json!({
                "type": "object",
                "properties": {
                    "cmd": { "type": "string", "description": "Shell text to run." },
                    "workdir": {
                        "type": "string",
                        "description": "Working folder; the default is the workspace's.",
                    },
                    "shell": { "type": "string", "description": "Shell; the default is bash." },
                    "login": {
                        "type": "boolean",
                        "description": "Whether the shell reads login files. Default false.",
                    },
                    "tty": {
                        "type": "boolean",
                        "description": "Keeps stdin open as a pipe, so that write_stdin can feed \
                                        it. No terminal is allocated. Default false.",
                    },
                    "yield_time_ms": {
                        "type": "number",
                        "description": "How long to wait for the command before it goes on in the \
                                        background: 250 to 300000, default 10000.",
                    },
                    "timeout_ms": {
                        "type": "number",
                        "description": "Deadline after which the command and all its descendants \
                                        are stopped. The default is what is left of the task's time.",
                    },
                    "max_output_tokens": {
                        "type": "number",
                        "description": "Most tokens of output to return; default and maximum 10000.",
                    },
                },
                "required": ["cmd"],
            }),
        })
    }

    fn handle<'a>(
        &'a self,
        call: &'a ToolCall,
        context: &'a StepContext,
        gate: &'a dyn Gate,
    ) -> LocalFuture<'a, Result<ToolResult, ToolError>> {
        Box::pin(async move {
            let arguments: Arguments = arguments(self.name(), call)?;
            if arguments.sandbox_permissions.as_deref() == Some("require_escalated") {
                return Err(ToolError::Refused(Refusal {
                    by: "approval",
                    reason:
                        "not run: escalated permissions were asked for and the approval policy \
                             is `never`; run it without them, or go on without it"
                            .to_owned(),
                }));
            }
            if let Some(found) = crate::patch::shell::extract(&arguments.cmd) {
                let start = self.clock.elapsed();
                let base = resolve(&context.cwd, arguments.workdir.as_deref());
                let base = resolve(&base, found.cd.as_deref());
                let reply = ApplyPatch.apply(&found.patch, &base, context, gate).await?;
                let wall = self.clock.elapsed().saturating_sub(start);
                return Ok(reply.word_in_shell(wall));
            }
            self.run(arguments, context, gate).await
        })
    }
}

impl ExecCommand {
    async fn run(
        &self,
        arguments: Arguments,
        context: &StepContext,
        gate: &dyn Gate,
    ) -> Result<ToolResult, ToolError> {
        let exec = exec(&arguments, context)?;
        let stdin = if arguments.tty { Stdin::Open } else { Stdin::Null };
        let deadline = arguments
            .timeout_ms
            .map_or(context.remaining, |ms| {
                Duration::from_millis(u64::try_from(ms).unwrap_or(0)).max(Duration::from_millis(1))
            })
            .min(context.remaining);
        let chunk = gate.chunk();
        let start = self.clock.elapsed();
        let session = self.store.borrow_mut().next_id();
        let Started { running, log } =
            gate.start(Action::Exec(exec.clone()), Launch { stdin, deadline, session }).await?;
        let mut live = Live {
            session,
            running,
            reader: reader(&arguments.cmd),
            exec,
            has_stdin: arguments.tty,
            log,
            is_recorded: false,
            pending: String::new(),
        };
        let wait = yield_time(arguments.yield_time_ms, YIELD);
        let observed = gate.wait(&mut live.running, wait).await;
        let max_tokens = arguments.max_output_tokens.unwrap_or(DEFAULT_OUTPUT_TOKENS);
        let look = Look { chunk, start, max_tokens };
        self.store.borrow_mut().look(live, observed, look, (&self.clock, gate))
    }
}

/// When and how much of a command's output is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Number of the chunk.
    pub(super) chunk: u32,
    /// When the wait began.
    pub(super) start: Duration,
    /// Most tokens to return.
    pub(super) max_tokens: usize,
}

impl Store {
    /// Words what was observed, records an end, and keeps what still lives.
    pub(super) fn look(
        &mut self,
        mut live: Live,
        observed: Result<Observed, ToolError>,
        look: Look,
        (clock, gate): (&Clock, &dyn Gate),
    ) -> Result<ToolResult, ToolError> {
        let observed = match observed {
            Ok(observed) => observed,
            Err(error) => {
                self.insert(live);
                return Err(error);
            }
        };
        let output = live.running.take_output();
        let wall = clock.elapsed().saturating_sub(look.start);
        let (standing, survivors) = match &observed {
            Observed::Ended(ended) => (Standing::Ended(ended), ended.survivors),
            Observed::StillRunning => (Standing::Running(live.session), 0),
        };
        let reply = ExecReply {
            chunk: look.chunk,
            wall,
            standing,
            output: &output,
            max_tokens: look.max_tokens,
            survivors,
        };
        let result = reply.word();
        if let Observed::Ended(_) = observed
            && !live.is_recorded
        {
            live.is_recorded = true;
            gate.ended(&live)?;
        }
        self.insert(live);
        Ok(result)
    }
}

fn exec(arguments: &Arguments, context: &StepContext) -> Result<Exec, ToolError> {
    let cwd = resolve(&context.cwd, arguments.workdir.as_deref());
    if !cwd.is_dir() {
        return Err(ToolError::Reply(format!(
            "workdir `{}` is not a folder; the working folder is `{}`",
            crate::text::clip(&cwd.to_string_lossy(), 500),
            context.cwd.display()
        )));
    }
    if arguments.cmd.contains('\0') {
        return Err(ToolError::Reply("`cmd` contains a NUL character".to_owned()));
    }
    let program = match arguments.shell.as_deref() {
        None | Some("" | "bash") => context.shell.clone(),
        Some(shell) => find_shell(shell, context)?,
    };
    let name = program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    let flag = if arguments.login { "-lc" } else { "-c" };
    Ok(Exec {
        argv: vec![name, flag.to_owned(), arguments.cmd.clone()],
        program,
        cwd,
        env: context.env.as_ref().clone(),
        shell_text: Some(arguments.cmd.clone()),
    })
}

/// Finds the shell that the model names. Only programs that read what the policy judged are ones: a
/// text that is harmless for a shell may be a program for `python3 -c`.
fn find_shell(asked: &str, context: &StepContext) -> Result<PathBuf, ToolError> {
    let name = asked.rsplit('/').next().unwrap_or(asked);
    let known = JUDGED_SHELLS.contains(&name);
    let found = known.then(|| crate::path::find_program(name, context.env.get("PATH"))).flatten();
    found.ok_or_else(|| {
        let asked = crate::text::clip(asked, 100);
        let names = JUDGED_SHELLS.join("`, `");
        ToolError::Reply(format!("no shell `{asked}` here; a shell is one of `{names}`"))
    })
}

/// Shells whose language the policy reads.
const JUDGED_SHELLS: [&str; 5] = ["bash", "sh", "dash", "ash", "ksh"];
/// Shells: what they read is judged like shell text.
const SHELLS: [&str; 7] = ["bash", "sh", "dash", "zsh", "ksh", "ash", "fish"];
/// Interpreters: what they read is opaque.
const INTERPRETERS: [&str; 22] = [
    "python", "python2", "python3", "node", "deno", "bun", "perl", "ruby", "irb", "php", "lua",
    "psql", "mysql", "sqlite3", "ghci", "julia", "gdb", "lldb", "jshell", "scala", "R", "octave",
];

/// What reads the stdin of `text`: the strictest of all programs that its words name.
fn reader(text: &str) -> Reader {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '-';
    let words = || text.split(|c| !is_word(c)).filter(|word| !word.is_empty());
    let is_interpreter = |word: &str| {
        INTERPRETERS.iter().any(|known| {
            word.strip_prefix(known)
                .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
        })
    };
    if words().any(|word| SHELLS.contains(&word)) {
        Reader::Shell
    } else if words().any(is_interpreter) {
        Reader::Interpreter
    } else {
        Reader::Program
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{YIELD, YIELD_MAX, YIELD_MIN, reader, yield_time};
    use crate::policy::Reader;

    #[test]
    fn yield_times_are_clamped() {
        assert_eq!(yield_time(None, YIELD), YIELD);
        assert_eq!(yield_time(Some(-1), YIELD), YIELD_MIN);
        assert_eq!(yield_time(Some(1_000), YIELD), Duration::from_secs(1));
        assert_eq!(yield_time(Some(i64::MAX), YIELD), YIELD_MAX);
    }

    #[test]
    fn what_reads_stdin_is_told_by_the_words() {
        assert_eq!(reader("cat"), Reader::Program);
        assert_eq!(reader("/bin/sh"), Reader::Shell);
        assert_eq!(reader("cat | bash -s"), Reader::Shell);
        assert_eq!(reader("python3.12 -i"), Reader::Interpreter);
        assert_eq!(reader("cat finish.txt"), Reader::Program);
    }
}
