//! Task files as data: each `tests/scenarios/task/NAME.yml` beside what becomes of it.
//!
//! A file with `NAME.err` must be refused with exactly that text, one with `NAME.plan.json` must
//! give exactly that plan. What isn't the task file itself comes from lines at its top:
//!
//! ```text
//! # about: one sentence
//! # input: name=value          # env: NAME=value      # select: id      # flag: model=NAME
//! # trusted: path = text       # checkout: path = text                  # no-git
//! # check                      # permissions: the file is one for `horseman sandbox`
//! ```
//!
//! Files that are named by a task lie under `tests/scenarios/task/repo/`; `trusted:` and
//! `checkout:` lay single files over it (`\n` is a line end, `-` alone is no file). `UPDATE=1`
//! writes what is found, and is refused in CI.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test: what can't be had ends it"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use horseman::plan::{self, Files, PlanRequest};
use horseman::task::{self, At};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

const HEAD: &str = "1111111111111111111111111111111111111111";
const TRUST: &str = "2222222222222222222222222222222222222222";

/// What the lines at the top of a case say.
#[derive(Default)]
struct Case {
    request: PlanRequest,
    trusted: BTreeMap<String, String>,
    checkout: BTreeMap<String, String>,
    is_permissions: bool,
}

impl Files for Case {
    fn trusted(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        read(&self.trusted, path)
    }

    fn checkout(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        read(&self.checkout, path)
    }

    fn resolve(&self, revision: &str) -> Result<String, String> {
        match revision {
            "HEAD" => Ok(HEAD.to_owned()),
            "main" => Ok(TRUST.to_owned()),
            _ => Err("no such commit".to_owned()),
        }
    }
}

fn read(over: &BTreeMap<String, String>, path: &str) -> Result<Option<Vec<u8>>, String> {
    match over.get(path).map(String::as_str) {
        Some("-") => Ok(None),
        Some("!") => Err("it is a folder".to_owned()),
        Some(text) => Ok(Some(text.replace("\\n", "\n").into_bytes())),
        None => Ok(fs::read(folder().join("repo").join(path)).ok()),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/task")
}

fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').expect("a case says NAME=VALUE");
    (name.trim().to_owned(), value.trim().to_owned())
}

fn case(name: &str, text: &str) -> Case {
    let mut case = Case {
        request: PlanRequest {
            task_file: PathBuf::from(format!("tasks/{name}.yml")),
            text: text.to_owned(),
            trust_commit: Some(TRUST.to_owned()),
            task_file_commit: Some(TRUST.to_owned()),
            root: PathBuf::from("/repo"),
            task_dir: "tasks".to_owned(),
            is_git: true,
            env: BTreeMap::from([("HOME".to_owned(), "/home/user".to_owned())]),
            ..PlanRequest::default()
        },
        ..Case::default()
    };
    for line in text.lines().map_while(|line| line.strip_prefix("# ")) {
        let (word, rest) = line.split_once(':').unwrap_or((line, ""));
        match word {
            "about" => {}
            "input" => case.request.inputs.push(pair(rest)),
            "env" => case.request.env.extend([pair(rest)]),
            "select" => case.request.select.push(rest.trim().to_owned()),
            "trusted" => case.trusted.extend([pair(rest)]),
            "checkout" => case.checkout.extend([pair(rest)]),
            "permissions" => case.is_permissions = true,
            "check" => case.request.is_check = true,
            "no-home" => case.request.env.clear(),
            "no-git" => {
                case.request.is_git = false;
                case.request.trust_commit = None;
                case.request.task_file_commit = None;
            }
            "flag" => match pair(rest) {
                (name, value) if name == "model" => case.request.model = Some(value),
                (name, value) if name == "provider" => case.request.provider = Some(value),
                (name, value) if name == "concurrency" => {
                    case.request.concurrency = value.parse().ok();
                }
                (name, _) => panic!("{name} is no flag of a case"),
            },
            word => panic!("{word} is no word of a case"),
        }
    }
    case
}

/// The plan as JSON, or the complaints with the exit status.
fn outcome(name: &str, text: &str) -> Result<String, String> {
    let case = case(name, text);
    let pretty = |value: &Value| format!("{value:#}\n");
    let found = if case.is_permissions {
        let home = case.request.env.get("HOME").map(PathBuf::from);
        let places = plan::profile::Places {
            workspace: Some(Path::new("/workspace")),
            home: home.as_deref(),
        };
        task::read_permissions(&format!("{name}.yml"), text)
            .and_then(|it| plan::profile::resolve(&it, &task::entries::Entries::default(), places))
            .map(|permits| {
                pretty(&serde_json::to_value(&permits.profile).expect("a profile is JSON"))
            })
    } else {
        plan::make(&case.request, &case).map(|plan| pretty(&plan.to_json()))
    };
    found.map_err(|complaints| format!("{complaints}\nexit: {}\n", complaints.exit().code()))
}

fn run(path: &Path, is_update: bool) -> Result<(), Failed> {
    let name = path.file_stem().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
    let text = fs::read_to_string(path)?;
    if !text.starts_with("# about: ") {
        return Err("the case doesn't start with `# about: …`".into());
    }
    let (found, wanted, other) = match outcome(&name, &text) {
        Ok(json) => (json, path.with_extension("plan.json"), path.with_extension("err")),
        Err(text) => (text, path.with_extension("err"), path.with_extension("plan.json")),
    };
    if is_update {
        if other.exists() {
            fs::remove_file(&other)?;
        }
        fs::write(&wanted, &found)?;
    }
    let expected = fs::read_to_string(&wanted).unwrap_or_default();
    if other.exists() || expected != found {
        return Err(
            format!("expected in {}:\n{expected}\nfound:\n{found}", wanted.display()).into()
        );
    }
    Ok(())
}

/// The committed schema is what the types say, and every good case validates against it.
fn schema(is_update: bool) -> Result<(), Failed> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/task/task.v1.schema.json");
    let found = format!("{:#}\n", task::schema());
    if is_update {
        fs::write(&path, &found)?;
    }
    if fs::read_to_string(&path)? != found {
        return Err("src/task/task.v1.schema.json differs from the types; run with UPDATE=1".into());
    }
    Ok(())
}

fn validates(path: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let instance: Value = serde_yaml::from_str(&text)?;
    let validator = jsonschema::validator_for(&task::schema())?;
    let errors: Vec<String> = validator
        .iter_errors(&instance)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n").into()) }
}

/// Cutting a file anywhere, or putting a foreign character in, gives complaints and no panic.
fn torn(text: &str) -> Result<(), Failed> {
    for (at, _) in text.char_indices().step_by(37) {
        for middle in ["", "\0", "{", "&a *a ", "\t", ": |\n"] {
            let torn = format!("{}{middle}{}", &text[..at], &text[at..]);
            let cut = format!("{}{middle}", &text[..at]);
            for text in [torn, cut] {
                if task::read("t.yml", &text).is_err_and(|complaints| complaints.is_empty()) {
                    return Err("refused without a complaint".into());
                }
            }
        }
    }
    Ok(())
}

fn trials(is_update: bool) -> Vec<Trial> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder())
        .expect("the folder of cases is there")
        .map(|entry| entry.expect("an entry can be read").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yml"))
        .collect();
    paths.sort();
    let mut trials = vec![
        Trial::test("schema", move || schema(is_update)),
        Trial::test("limits", limits),
        Trial::test("shell", shell),
        Trial::test("digests", digests),
    ];
    for path in paths {
        let name = path.file_stem().map(|it| it.to_string_lossy().into_owned()).unwrap_or_default();
        let is_permissions = name.starts_with("permissions-file");
        let is_good = path.with_extension("plan.json").exists();
        if (is_good || name.starts_with("example-")) && !is_permissions {
            let path = path.clone();
            trials.push(Trial::test(format!("{name}::schema"), move || validates(&path)));
        }
        if name.starts_with("example-") {
            let path = path.clone();
            trials.push(Trial::test(format!("{name}::torn"), move || {
                torn(&fs::read_to_string(&path)?)
            }));
        }
        trials.push(Trial::test(name, move || run(&path, is_update)));
    }
    trials
}

/// Where the repository lies changes no digest, so that shards on two machines agree.
fn digests() -> Result<(), Failed> {
    let text = fs::read_to_string(folder().join("everything-built.yml"))?;
    let mut digests = Vec::new();
    for root in ["/repo", "/elsewhere/checkout"] {
        let mut case = case("everything-built", &text);
        case.request.root = PathBuf::from(root);
        let plan = plan::make(&case.request, &case).map_err(|it| it.to_string())?;
        digests.push((plan.digest(), plan.instances.into_iter().map(|it| it.digest).collect()));
    }
    let other: (String, Vec<String>) = digests.remove(0);
    if digests != [other] {
        return Err("the digests differ".into());
    }
    Ok(())
}

/// Texts in which `@` stands for a value.
const AROUND: &[&str] = &[
    "@",
    "'@'",
    "\"@\"",
    "x@y",
    "$(echo @)",
    "\"$(echo @)\"",
    "\"$(echo \"@\")\"",
    "`echo @`",
    "$'@'",
    "$'\\'@'",
    "'\\'@",
    "\"\\\"@\"",
    "# @",
    "a#@",
    "# '\necho \"@\"",
    "# \"\necho \"@\"",
    "<<E\n@\nE",
    "<<'E'\n@\nE",
    "<<<@",
    "<<<\"@\"",
    "${x:-@}",
    "${x:-\"@\"}",
    "\"${x:-'@'}\"",
    "$((1 << 2)) @",
    ">/dev/null; echo \"@\"",
    "\\@",
    "\\\\@",
    "\\\"@\\\"",
    "\"a\"\"@\"",
    "$\"@\"",
    "\"$x\"'\"'@'\"'",
    "(@)",
    "'# '@",
    "\"# \"@\"\"",
    ";#'\n@",
    "&&echo \"@\"",
    "{ echo @; }",
    "$@",
    "$$'\\' '@",
    "$'\\\\'@",
    "<<\\E\n@\nE",
    "\"a\\\\\"@",
    "'@",
];

/// Values that a shell must not run.
const VALUES: &[&str] = &[
    "$(touch run)",
    "`touch run`",
    "'; touch run; '",
    "\"; touch run; \"",
    "\n touch run\n",
    "E\ntouch run\n",
    "\\'; touch run #",
    "\\\"; touch run #",
    "& touch run &",
    "x' $(touch run) '",
    ")\"; touch run; \"(",
    "}\"; touch run; \"{",
    "!touch run",
    "# \ntouch run",
];

/// Whatever stands around a value, a shell runs nothing that the value says.
#[expect(clippy::disallowed_methods, reason = "the shell itself is the judge of quoting")]
fn shell() -> Result<(), Failed> {
    let dir = tempfile::tempdir()?;
    let mut placed = 0;
    for text in AROUND {
        for value in VALUES {
            let text = format!("echo {}", text.replace('@', "\u{0}0\u{0}"));
            let Ok(command) = plan::shell::put_in(&text, &[vec![(*value).to_owned()]]) else {
                continue;
            };
            placed += 1;
            std::process::Command::new("bash")
                .args(["-c", &command])
                .current_dir(dir.path())
                .stdin(std::process::Stdio::null())
                .output()?;
            if dir.path().join("run").exists() {
                return Err(format!("a value ran: {command}").into());
            }
        }
    }
    if placed < 10 * VALUES.len() {
        return Err(format!("only {placed} values were put in").into());
    }
    Ok(())
}

/// Size, depth, values and aliases are bounded.
fn limits() -> Result<(), Failed> {
    let deep = format!("version: 1\nx: {}{}", "[".repeat(100), "]".repeat(100));
    let long = format!("version: 1\nname: {}", "a".repeat(1 << 20));
    let wide = format!("version: 1\ntasks: [{}]", "1,".repeat(100_001));
    let mut bomb = "a0: &a0 [1, 1]\n".to_owned();
    for level in 1..40 {
        let below = level - 1;
        writeln!(bomb, "a{level}: &a{level} [*a{below}, *a{below}]")?;
    }
    let mut chain = "a0: &a0 [1]\n".to_owned();
    for level in 1..80 {
        let below = level - 1;
        writeln!(chain, "a{level}: &a{level} [*a{below}]")?;
    }
    for (text, words) in [
        (deep, "nested at most 64 levels"),
        (long, "at most 1048576 bytes"),
        (wide, "at most 100000 values"),
        (bomb, "at most 100000 values"),
        (chain, "nested at most 64 levels"),
        ("a: &a [*a]".to_owned(), "alias"),
        ("a: *b".to_owned(), "not YAML"),
        ("--- {}\n--- {}".to_owned(), "one YAML document"),
        ("a: !!str 1".to_owned(), "tags"),
        (String::new(), "empty task"),
        (" \n# only a comment\n".to_owned(), "empty task"),
        ("---\n".to_owned(), "must be a mapping, got nothing"),
    ] {
        let complaints = task::read("t.yml", &text).expect_err("it is refused");
        if !complaints.to_string().contains(words) {
            return Err(format!("expected `{words}` in: {complaints}").into());
        }
    }
    let at = At::whole("t.yml");
    assert_eq!(at.complain("x").to_string(), "t.yml: x");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "UPDATE and CI are the interface of this harness")]
fn main() -> ExitCode {
    let is_update = std::env::var_os("UPDATE").is_some();
    if is_update && std::env::var_os("CI").is_some() {
        eprintln!("UPDATE is refused in CI");
        return ExitCode::FAILURE;
    }
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials(is_update)).exit_code()
}
