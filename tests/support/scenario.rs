//! A scenario: files, a task, a model or a server, a command; then what must be there afterwards.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::responses_server::{self, Answer, End, Part, Reply};

/// One scenario file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    /// One sentence, present tense.
    #[serde(rename = "about")]
    _about: String,
    /// Public report that it came from.
    #[serde(default, rename = "from")]
    _from: Option<String>,
    /// Files of the repository, committed; `$NAME` placeholders are filled in.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Files that are executable.
    #[serde(default)]
    executable: Vec<String>,
    /// Whether the folder is a git repository. Default true.
    #[serde(default = "yes")]
    git: bool,
    /// Shell text that is run in the repository after the first commit.
    #[serde(default)]
    prepare: String,
    /// The task file, as `task.yml`, committed.
    #[serde(default)]
    task: Option<String>,
    /// The scripted model, as `model.yml`, committed.
    #[serde(default)]
    script: Option<Value>,
    /// A Responses server on loopback; its address is `$BASE_URL`.
    #[serde(default)]
    server: Option<Vec<Planned>>,
    /// Arguments; the default runs `task.yml` into `$OUT`.
    #[serde(default)]
    args: Option<Vec<String>>,
    /// Shell text that runs instead of the command, with `$HORSEMAN` and `$OUT`; it ends at the
    /// first failure, and its exit status is the scenario's.
    #[serde(default)]
    drive: Option<String>,
    /// What the host must let us do; see [`unmet`].
    #[serde(default, rename = "needs")]
    _needs: Vec<String>,
    /// Folder below the repository in which the command runs.
    #[serde(default)]
    cwd: String,
    /// More environment.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// `null` (default), `open` (a pipe that nobody writes to), or text.
    #[serde(default)]
    stdin: Option<String>,
    /// A signal, and the transcript text after which it is sent.
    #[serde(default)]
    signal: Option<Signal>,
    /// Whether two runs must leave the same masked transcript. Default true.
    #[serde(default = "yes")]
    repeatable: bool,
    then: Then,
}

fn yes() -> bool {
    true
}

/// What the server does with one request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Planned {
    /// A final message.
    say: Option<String>,
    /// Function calls.
    calls: Vec<PlannedCall>,
    /// A freeform `apply_patch` call.
    patch: Option<String>,
    /// Items as they are sent.
    items: Vec<Value>,
    /// Another status than 200, with this body.
    status: Option<u16>,
    headers: BTreeMap<String, String>,
    body: String,
    /// Token counts as they are sent, instead of 100 in (40 cached) and 10 out (5 reasoning).
    usage: Option<Value>,
    /// The stream breaks off inside its last item.
    cut: bool,
    /// No answer, ever.
    silent: bool,
    /// The stream is silent after its first item.
    stalls: bool,
    /// The connection is closed without an answer.
    dropped: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedCall {
    tool: String,
    id: String,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(default)]
    raw: Option<String>,
}

impl Planned {
    fn reply(&self) -> Reply {
        if self.silent {
            return Reply::Silent;
        }
        if self.dropped {
            return Reply::Drop;
        }
        let mut headers: Vec<(String, String)> = self.headers.clone().into_iter().collect();
        if let Some(status) = self.status {
            let parts = vec![Part::Bytes(self.body.clone().into_bytes())];
            return Reply::Answer(Answer { status, headers, parts, end: End::Complete });
        }
        headers.push(("content-type".to_owned(), "text/event-stream".to_owned()));
        let mut text = String::new();
        let mut event = |name: &str, mut data: Value| {
            data["type"] = name.into();
            write!(text, "event: {name}\ndata: {data}\n\n").unwrap();
        };
        event("response.created", json!({ "response": { "id": "resp_1" } }));
        for item in self.all_items() {
            event("response.output_item.done", json!({ "item": item }));
        }
        let counts = json!({ "input_tokens": 100, "output_tokens": 10, "total_tokens": 110,
            "input_tokens_details": { "cached_tokens": 40 },
            "output_tokens_details": { "reasoning_tokens": 5 } });
        let usage = self.usage.clone().unwrap_or(counts);
        if self.stalls {
            let parts = vec![Part::Bytes(text.into_bytes())];
            return Reply::Answer(Answer { status: 200, headers, parts, end: End::Open });
        }
        if self.cut {
            let half = text.len() - 10;
            let parts = vec![Part::Bytes(text.as_bytes()[..half].to_vec())];
            return Reply::Answer(Answer { status: 200, headers, parts, end: End::Cut });
        }
        event("response.completed", json!({ "response": { "id": "resp_1", "usage": usage } }));
        let parts = vec![Part::Bytes(text.into_bytes())];
        Reply::Answer(Answer { status: 200, headers, parts, end: End::Complete })
    }

    fn all_items(&self) -> Vec<Value> {
        let mut items = self.items.clone();
        if let Some(text) = &self.say {
            items.push(json!({ "type": "message", "role": "assistant", "id": "msg_1",
                "content": [{ "type": "output_text", "text": text }] }));
        }
        for call in &self.calls {
            let arguments = call
                .raw
                .clone()
                .unwrap_or_else(|| call.arguments.clone().unwrap_or_default().to_string());
            items.push(json!({ "type": "function_call", "id": format!("fc_{}", call.id), "call_id": call.id,
                "name": call.tool, "arguments": arguments }));
        }
        if let Some(patch) = &self.patch {
            items.push(json!({ "type": "custom_tool_call", "id": "ct_1", "call_id": "patch",
                "name": "apply_patch", "input": patch }));
        }
        items
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signal {
    name: String,
    after: String,
}

/// What must be there afterwards.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Then {
    exit: i32,
    #[serde(default)]
    stdout: Option<String>,
    #[serde(default)]
    stdout_contains: Vec<String>,
    #[serde(default)]
    stderr_contains: Vec<String>,
    #[serde(default)]
    stderr_lacks: Vec<String>,
    /// Files of the repository: text, or null for none.
    #[serde(default)]
    files: BTreeMap<String, Option<String>>,
    /// Files of the record: every text must be in there.
    #[serde(default)]
    out_contains: BTreeMap<String, Vec<String>>,
    /// Files of the record: no text may be in there.
    #[serde(default)]
    out_lacks: BTreeMap<String, Vec<String>>,
    /// Events in this order; others may lie between. Objects match by the keys they name.
    #[serde(default)]
    transcript: Vec<Value>,
    /// Events that must not be there.
    #[serde(default)]
    transcript_lacks: Vec<Value>,
    /// Parts of report.json.
    #[serde(default)]
    report: Option<Value>,
    /// Whether there is no record at all (exits 2 and 3).
    #[serde(default)]
    no_record: bool,
    /// Number of requests that the server saw.
    #[serde(default)]
    requests: Option<usize>,
    /// Texts that some request to the server must hold.
    #[serde(default)]
    requests_contain: Vec<String>,
    /// Shell text that must succeed in the repository; `$OUT` and the like are set.
    #[serde(default)]
    shell: Option<String>,
}

/// The longest that a command may take: every wait has a deadline (P1).
const DEADLINE: Duration = Duration::from_mins(1);

/// Runs one scenario file; an error says what differs.
pub(crate) fn run(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let scenario: Scenario = serde_yaml::from_str(&text).map_err(|error| error.to_string())?;
    let first = Stage::make(&scenario)?;
    let left = first.act(&scenario)?;
    first
        .check(&scenario.then, &left)
        .and_then(|()| first.check_end(&scenario))
        .map_err(|error| format!("{error}\n{}", left.show(&first)))?;
    first.check_clean()?;
    // The address of a server is part of the plan and differs each time.
    let is_alike =
        scenario.signal.is_none() && scenario.server.is_none() && scenario.drive.is_none();
    if scenario.repeatable && is_alike && !scenario.then.no_record {
        let second = Stage::make(&scenario)?;
        second.act(&scenario)?;
        compare(&first, &second)?;
    }
    Ok(())
}

/// What the scenario needs and this host does not have; the reason why it is skipped.
pub(crate) fn unmet(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Needs {
        #[serde(default)]
        needs: Vec<String>,
    }
    let text = fs::read_to_string(path).ok()?;
    let Needs { needs } = serde_yaml::from_str(&text).ok()?;
    needs.iter().find_map(|need| {
        let probe = match need.as_str() {
            // In a mount namespace of its own, so that the probe leaves nothing.
            "tmpfs" => "unshare --mount mount -t tmpfs -o size=1m none /mnt",
            "namespaces" => "unshare --user --map-root-user --mount --net true",
            "uid-drop" => "setpriv --reuid 65534 --regid 65534 --clear-groups true",
            _ => return Some(format!("`{need}` is not a need that is known")),
        };
        let is_met = Command::new("sh")
            .args(["-c", probe])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        (!is_met).then(|| format!("needs `{need}`, and `{probe}` fails here"))
    })
}

/// Folders of one run.
struct Stage {
    _root: tempfile::TempDir,
    root: PathBuf,
    repository: PathBuf,
    out: PathBuf,
    tmp: PathBuf,
    home: PathBuf,
    server: Option<responses_server::Server>,
}

/// What a command left.
struct Left {
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

impl Left {
    fn show(&self, stage: &Stage) -> String {
        let transcript = fs::read_to_string(stage.out.join("transcript.jsonl")).unwrap_or_default();
        format!(
            "status: {:?}\nstdout: {}\nstderr: {}\ntranscript:\n{transcript}",
            self.status, self.stdout, self.stderr
        )
    }
}

impl Stage {
    fn make(scenario: &Scenario) -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("scenario-").tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let folder = |name: &str| {
            let folder = root.join(name);
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let stage = Self {
            repository: folder("repository"),
            tmp: folder("tmp"),
            home: folder("home"),
            out: root.join("out"),
            server: scenario.server.as_ref().map(|planned| {
                let replies = planned.iter().map(Planned::reply).collect();
                responses_server::Server::start(replies).unwrap()
            }),
            root,
            _root: dir,
        };
        let mut files = scenario.files.clone();
        if let Some(task) = &scenario.task {
            files.insert("task.yml".to_owned(), task.clone());
        }
        if let Some(script) = &scenario.script {
            files.insert("model.yml".to_owned(), script.to_string());
        }
        for (name, text) in files {
            let target = stage.repository.join(&name);
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::write(&target, stage.fill(&text)).unwrap();
            if scenario.executable.contains(&name) {
                fs::set_permissions(&target, fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        if scenario.git {
            stage.shell(
                "git init -q -b main && git add -A && git commit -q --allow-empty -m base",
            )?;
        }
        if !scenario.prepare.is_empty() {
            stage.shell(&scenario.prepare)?;
        }
        Ok(stage)
    }

    /// Fills `$REPO`, `$OUT`, `$TMP`, `$HOME` and `$BASE_URL` in.
    fn fill(&self, text: &str) -> String {
        let url = self.server.as_ref().map(responses_server::Server::url).unwrap_or_default();
        [
            ("$REPO", &self.repository),
            ("$OUT", &self.out),
            ("$TMP", &self.tmp),
            ("$HOME", &self.home),
        ]
        .iter()
        .fold(text.replace("$BASE_URL", &url), |text, (name, path)| {
            text.replace(name, &path.to_string_lossy())
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.repository);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", &self.home).env("TMPDIR", &self.tmp).env("LANG", "C.UTF-8");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "demo");
            command.env(format!("GIT_{who}_EMAIL"), "demo@example.invalid");
            command.env(format!("GIT_{who}_DATE"), "2026-01-01T00:00:00Z");
        }
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    fn shell(&self, text: &str) -> Result<(), String> {
        let output = self
            .command("bash")
            .args(["-euo", "pipefail", "-c", &self.fill(text)])
            .env("OUT", &self.out)
            .env("HORSEMAN", env!("CARGO_BIN_EXE_horseman"))
            .output()
            .unwrap();
        if output.status.success() {
            return Ok(());
        }
        Err(format!(
            "`{text}` failed: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ))
    }

    fn act(&self, scenario: &Scenario) -> Result<Left, String> {
        let default = ["run", "task.yml", "--out", "$OUT"].map(str::to_owned).to_vec();
        let args = scenario.args.clone().unwrap_or(default);
        let mut command = match &scenario.drive {
            None => {
                let mut command = self.command(env!("CARGO_BIN_EXE_horseman"));
                command.args(args.iter().map(|arg| self.fill(arg)));
                command
            }
            Some(text) => {
                let mut command = self.command("bash");
                command.args(["-euo", "pipefail", "-c", &self.fill(text)]).env("OUT", &self.out);
                command.env("HORSEMAN", env!("CARGO_BIN_EXE_horseman"));
                command
            }
        };
        command.current_dir(self.repository.join(&scenario.cwd));
        for (name, value) in &scenario.env {
            command.env(name, self.fill(value));
        }
        let has_input = scenario.stdin.as_deref().is_some_and(|stdin| stdin != "null");
        command.stdin(if has_input { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Held open until the end when nobody is to write.
        let mut stdin = child.stdin.take();
        if let Some(text) = scenario.stdin.as_deref().filter(|text| *text != "open")
            && let Some(mut pipe) = stdin.take()
        {
            pipe.write_all(self.fill(text).as_bytes()).unwrap();
        }
        if let Some(signal) = &scenario.signal
            && let Err(error) = self.signal(&child, signal)
        {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(error);
        }
        let left = finish(child)?;
        drop(stdin);
        Ok(left)
    }

    fn signal(&self, child: &Child, signal: &Signal) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let path = self.out.join("transcript.jsonl");
            let transcript = fs::read_to_string(path).unwrap_or_default();
            if transcript.contains(&signal.after) {
                break;
            }
            if start.elapsed() > DEADLINE {
                return Err(format!("`{}` never came", signal.after));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // The command that the last event announces needs a moment to be there.
        std::thread::sleep(Duration::from_millis(300));
        let status = Command::new("kill")
            .args([format!("-{}", signal.name), child.id().to_string()])
            .status()
            .unwrap();
        if status.success() { Ok(()) } else { Err("kill failed".to_owned()) }
    }

    fn check(&self, then: &Then, left: &Left) -> Result<(), String> {
        use std::os::unix::process::ExitStatusExt as _;
        let code = left.status.code().or(left.status.signal().map(|signal| 128 + signal));
        if code != Some(then.exit) {
            return Err(format!("exit: expected {}, got {code:?}", then.exit));
        }
        if let Some(expected) = &then.stdout
            && self.fill(expected) != left.stdout
        {
            return Err(format!("stdout: expected {expected:?}, got {:?}", left.stdout));
        }
        contains("stdout", &left.stdout, &self.fill_all(&then.stdout_contains))?;
        contains("stderr", &left.stderr, &self.fill_all(&then.stderr_contains))?;
        lacks("stderr", &left.stderr, &self.fill_all(&then.stderr_lacks))?;
        if left.stderr.contains("panicked") {
            return Err("it panicked".to_owned());
        }
        self.check_files(then)?;
        let expects_record = !then.transcript.is_empty()
            || !then.transcript_lacks.is_empty()
            || then.report.is_some();
        if then.no_record {
            if self.out.exists() {
                return Err("there is a record, expected none".to_owned());
            }
        } else if self.out.exists() {
            self.check_record(then)?;
        } else if expects_record {
            return Err("there is no record".to_owned());
        }
        self.check_server(then)?;
        then.shell.as_deref().map_or(Ok(()), |text| self.shell(text))
    }

    fn fill_all(&self, texts: &[String]) -> Vec<String> {
        texts.iter().map(|text| self.fill(text)).collect()
    }

    fn check_files(&self, then: &Then) -> Result<(), String> {
        for (name, expected) in &then.files {
            let path = self.repository.join(name);
            let found = fs::read(&path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into());
            if found != *expected {
                return Err(format!("file `{name}`: expected {expected:?}, got {found:?}"));
            }
        }
        for (name, expected) in &then.out_contains {
            let text =
                fs::read_to_string(self.out.join(name)).map_err(|e| format!("{name}: {e}"))?;
            contains(name, &text, &self.fill_all(expected))?;
        }
        for (name, expected) in &then.out_lacks {
            let text =
                fs::read_to_string(self.out.join(name)).map_err(|e| format!("{name}: {e}"))?;
            lacks(name, &text, &self.fill_all(expected))?;
        }
        Ok(())
    }

    fn check_record(&self, then: &Then) -> Result<(), String> {
        let records = self.records();
        let mut next = 0;
        for expected in &then.transcript {
            let found = records[next..].iter().position(|record| is_part(expected, record));
            next += found.ok_or(format!("transcript: no {expected} after line {next}"))? + 1;
        }
        for unexpected in &then.transcript_lacks {
            if let Some(record) = records.iter().find(|record| is_part(unexpected, record)) {
                return Err(format!("transcript: {record} must not be there"));
            }
        }
        horseman::transcript::verify(&self.out).map_err(|error| format!("verify: {error}"))?;
        if let Some(expected) = &then.report {
            let text = fs::read_to_string(self.out.join("report.json")).unwrap_or_default();
            let report: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            if !is_part(expected, &report) {
                return Err(format!("report: expected {expected}, got {report}"));
            }
        }
        Ok(())
    }

    /// What holds for every end of `run`, whatever else a scenario expects: no record after 2 and 3,
    /// else all reports, one terminal event as the last with the status that the process had, and
    /// one completion for each call.
    fn check_end(&self, scenario: &Scenario) -> Result<(), String> {
        let is_run = scenario
            .args
            .as_ref()
            .is_none_or(|args| args[0] == "run" && args.contains(&"$OUT".to_owned()));
        if !is_run || scenario.drive.is_some() || is_void(scenario) {
            return Ok(());
        }
        if matches!(scenario.then.exit, 2 | 3) {
            return if self.out.exists() {
                Err("2 and 3 leave no record".to_owned())
            } else {
                Ok(())
            };
        }
        for name in ["transcript.jsonl", "report.json", "junit.xml", "summary.md"] {
            if !self.out.join(name).is_file() {
                return Err(format!("the record has no `{name}`"));
            }
        }
        let records = self.records();
        let ends = records.iter().filter(|record| record["type"] == "run.completed").count();
        let last = records.last().cloned().unwrap_or_default();
        if ends != 1 || last["type"] != "run.completed" || last["exit"] != scenario.then.exit {
            return Err(format!("expected one run.completed, at the end, with the status: {last}"));
        }
        let count = |name: &str| {
            let mut calls = BTreeMap::new();
            for record in records.iter().filter(|record| record["type"] == name) {
                let key = [&record["task"], &record["attempt"], &record["call"]];
                *calls.entry(format!("{key:?}")).or_insert(0) += 1;
            }
            calls
        };
        let (proposed, completed) = (count("call.proposed"), count("call.completed"));
        if proposed != completed || proposed.values().any(|times| *times != 1) {
            return Err(format!("calls: proposed {proposed:?}, completed {completed:?}"));
        }
        Ok(())
    }

    fn check_server(&self, then: &Then) -> Result<(), String> {
        let Some(server) = &self.server else { return Ok(()) };
        let requests = server.asked();
        if let Some(expected) = then.requests
            && requests.len() != expected
        {
            return Err(format!("requests: expected {expected}, got {}", requests.len()));
        }
        let all: String = requests
            .iter()
            .map(|request| String::from_utf8_lossy(&request.body).into_owned() + "\n")
            .collect();
        contains("requests", &all, &self.fill_all(&then.requests_contain))
    }

    /// The events with their envelope, the way expectations name them.
    fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.out.join("transcript.jsonl")).unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .map(|mut record| {
                let mut event = record["event"].take();
                for key in ["task", "attempt", "step", "call"] {
                    if let Some(value) = record.get(key) {
                        event[key] = value.clone();
                    }
                }
                event
            })
            .collect()
    }

    /// Nothing may be left: no process, no state folder (P9).
    fn check_clean(&self) -> Result<(), String> {
        let marker = self.root.to_string_lossy().into_owned();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
            let text = String::from_utf8_lossy(&environ);
            if text.contains("HORSEMAN_STATE=") && text.contains(&marker) {
                let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                return Err(format!("left over: {}", String::from_utf8_lossy(&command)));
            }
        }
        for base in fs::read_dir(&self.tmp).unwrap().flatten() {
            let left: Vec<String> = fs::read_dir(base.path())
                .map(|entries| entries.flatten().map(|e| e.path().display().to_string()).collect())
                .unwrap_or_default();
            if !left.is_empty() {
                return Err(format!("left over: {left:?}"));
            }
        }
        Ok(())
    }
}

/// Whether `prepare` put the record's folder there, so that it says nothing of this run.
fn is_void(scenario: &Scenario) -> bool {
    scenario.prepare.contains("$OUT")
}

fn finish(mut child: Child) -> Result<Left, String> {
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let out = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let err = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > DEADLINE {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("no end within {DEADLINE:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Left { status, stdout: text(out.join().unwrap()), stderr: text(err.join().unwrap()) })
}

fn contains(what: &str, text: &str, expected: &[String]) -> Result<(), String> {
    expected.iter().try_for_each(|part| {
        if text.contains(part.as_str()) { Ok(()) } else { Err(format!("{what} lacks {part:?}")) }
    })
}

fn lacks(what: &str, text: &str, unexpected: &[String]) -> Result<(), String> {
    unexpected.iter().try_for_each(|part| {
        if text.contains(part.as_str()) { Err(format!("{what} holds {part:?}")) } else { Ok(()) }
    })
}

/// Whether `part` is in `whole`: objects by the keys they name, arrays in order, a text that
/// starts with `~` by what follows.
fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => part.iter().all(|(key, value)| {
            let found = whole.get(key).unwrap_or(&Value::Null);
            is_part(value, found)
        }),
        (Value::Array(part), Value::Array(whole)) => {
            let mut rest = whole.iter();
            part.iter().all(|value| rest.any(|found| is_part(value, found)))
        }
        (Value::String(part), Value::String(whole)) => {
            part.strip_prefix('~').map_or(part == whole, |part| whole.contains(part))
        }
        (Value::Number(part), Value::Number(whole)) => part.as_f64() == whole.as_f64(),
        _ => part == whole,
    }
}

/// The line without the one fact of the host that other tests change while this one runs: whether
/// a unix socket lies within reach.
fn without_host(line: &str) -> String {
    let mut record: Value = serde_json::from_str(line).unwrap_or_default();
    match record.pointer_mut("/event/enforced/items/unix-sockets") {
        Some(item) => {
            *item = Value::Null;
            record.to_string()
        }
        None => line.to_owned(),
    }
}

/// Both runs must have left the same transcript but for the published mask (P10).
fn compare(first: &Stage, second: &Stage) -> Result<(), String> {
    let [left, right] = [first, second].map(|stage| {
        let text = fs::read_to_string(stage.out.join("transcript.jsonl")).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(without_host).collect();
        let blobs = stage.out.join("blobs");
        let place = horseman::transcript::mask::Place {
            path: stage.root.to_string_lossy().into_owned(),
            name: "<root>".to_owned(),
        };
        horseman::transcript::mask::mask(
            &lines,
            &|blob| fs::read(blobs.join(&blob.sha256)).ok(),
            &[place],
        )
    });
    for (at, (left, right)) in left.lines.iter().zip(&right.lines).enumerate() {
        if left != right {
            return Err(format!("two runs differ in line {at}:\n{left}\n{right}"));
        }
    }
    if left.lines.len() == right.lines.len() { Ok(()) } else { Err("two runs differ".to_owned()) }
}
