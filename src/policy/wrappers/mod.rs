//! Wrappers: what a command starts besides itself.
//!
//! In: the arguments of one command. Out: the commands, shell texts and unknowns inside it. Pure;
//! looks one level deep, the caller goes on. Knows nothing of rules.

mod git;
mod shells;
mod table;

pub(crate) use git::without_global_options;

use super::rules::basename;
use super::shell::{Arg, Stdin};

/// Something that a command starts besides itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    /// Another command.
    Command(Vec<Arg>),
    /// Shell text, with the positional parameters that it is given.
    Text {
        /// Text.
        text: String,
        /// `$0`, `$1`, and so on.
        parameters: Vec<Arg>,
    },
    /// Something that can't be known before it runs.
    Opaque(String),
}

/// Returns what `argv` starts besides its own program.
pub(crate) fn look_through(argv: &[Arg], stdin: &Stdin) -> Vec<Inner> {
    let Some(name) = argv.first().and_then(Arg::certain) else { return Vec::new() };
    let name = basename(name);
    let arguments = &argv[1..];
    if let Some(shape) = table::shape(name) {
        return table::apply(shape, arguments);
    }
    match name {
        _ if shells::is_shell(name) => shells::shell(name, arguments, stdin),
        _ if shells::is_interpreter(name) => shells::interpreter(name, arguments, stdin),
        "git" => git::inner(arguments),
        "find" | "fd" | "fdfind" => find(arguments),
        "xargs" => xargs(arguments, stdin),
        "parallel" => parallel(arguments),
        "eval" | "trap" | "alias" => texts(name, arguments),
        "source" | "." => source(arguments, stdin),
        "busybox" | "toybox" => vec![Inner::Command(arguments.to_vec())],
        "su" | "runuser" | "script" | "flock" => text_option(name, arguments),
        "watch" | "ssh" => joined(name, arguments),
        "npx" | "bunx" | "uvx" | "pipx" | "npm" | "pnpm" | "yarn" | "uv" | "cargo" | "poetry"
        | "bundle" => runner(name, arguments),
        "at" | "batch" => match stdin {
            Stdin::Text(text) => vec![text_of(text.clone())],
            Stdin::Inherited | Stdin::Unknown => {
                vec![Inner::Opaque(format!("`{name}` runs what it reads"))]
            }
        },
        _ => Vec::new(),
    }
}

fn text_of(text: String) -> Inner {
    Inner::Text { text, parameters: Vec::new() }
}

/// Joins arguments to the text that they are read as, or says that they aren't known.
fn join_text(name: &str, arguments: &[Arg]) -> Option<Inner> {
    if arguments.is_empty() {
        return None;
    }
    let words: Option<Vec<&str>> = arguments.iter().map(Arg::certain).collect();
    Some(match words {
        Some(words) => text_of(words.join(" ")),
        None => Inner::Opaque(format!("the text that `{name}` runs isn't known before it runs")),
    })
}

/// `eval` joins its arguments; `trap` runs the first; `alias` keeps a text for later.
fn texts(name: &str, arguments: &[Arg]) -> Vec<Inner> {
    let plain = match arguments.first().and_then(Arg::certain) {
        Some("--") => &arguments[1..],
        _ => arguments,
    };
    match name {
        "eval" => join_text(name, plain).into_iter().collect(),
        "trap" => join_text(name, plain.get(..1).unwrap_or_default()).into_iter().collect(),
        _ => plain
            .iter()
            .filter_map(|arg| Some(text_of(arg.text.split_once('=')?.1.to_owned())))
            .collect(),
    }
}

/// A sourced file is a script like any other, unless it is made up on the spot.
fn source(arguments: &[Arg], stdin: &Stdin) -> Vec<Inner> {
    match (arguments.first(), stdin) {
        (Some(file), _) if file.certain().is_none() => {
            vec![Inner::Opaque("a sourced file isn't known before it runs".to_owned())]
        }
        (Some(file), Stdin::Text(text)) if shells::is_stdin_file(&file.text) => {
            vec![text_of(text.clone())]
        }
        (Some(file), Stdin::Unknown) if shells::is_stdin_file(&file.text) => {
            vec![Inner::Opaque("a sourced file isn't known before it runs".to_owned())]
        }
        _ => Vec::new(),
    }
}

/// `find … -exec CMD ;`: each action is a command with file names in it.
fn find(arguments: &[Arg]) -> Vec<Inner> {
    let mut inner = Vec::new();
    let mut rest = arguments;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let is_action = matches!(
            first.text.as_str(),
            "-exec" | "-execdir" | "-ok" | "-okdir" | "-x" | "-X" | "--exec" | "--exec-batch"
        );
        if !is_action {
            continue;
        }
        let end = tail.iter().position(|arg| matches!(arg.text.as_str(), ";" | "+"));
        let command = &tail[..end.unwrap_or(tail.len())];
        inner.push(Inner::Command(
            command
                .iter()
                .map(
                    |arg| {
                        if arg.text.contains("{}") { Arg::unknown(&arg.text) } else { arg.clone() }
                    },
                )
                .collect(),
        ));
        rest = end.map_or(&[], |end| &tail[end + 1..]);
    }
    inner
}

/// `xargs CMD`: the command with what it reads behind it, or in place of the `-I` mark.
fn xargs(arguments: &[Arg], stdin: &Stdin) -> Vec<Inner> {
    let mark = replace_mark(arguments);
    let Some(command) = table::after_options(table::XARGS, arguments) else { return Vec::new() };
    if command.is_empty() {
        return Vec::new();
    }
    let read: Vec<Arg> = match stdin {
        Stdin::Text(text) => text.split_whitespace().map(Arg::known).collect(),
        Stdin::Inherited | Stdin::Unknown => vec![Arg::unknown("…")],
    };
    let Some(mark) = mark else {
        let mut command = command.to_vec();
        command.extend(read);
        return vec![Inner::Command(command)];
    };
    read.into_iter()
        .take(64)
        .map(|one| {
            let command = command
                .iter()
                .map(|arg| {
                    if !arg.text.contains(&mark) {
                        return arg.clone();
                    }
                    let text = arg.text.replace(&mark, &one.text);
                    Arg { text, kind: if one.certain().is_some() { arg.kind } else { one.kind } }
                })
                .collect();
            Inner::Command(command)
        })
        .collect()
}

fn replace_mark(arguments: &[Arg]) -> Option<String> {
    let mut rest = arguments.iter();
    while let Some(arg) = rest.next() {
        let text = arg.text.as_str();
        match text {
            "-I" => return rest.next().map(|mark| mark.text.clone()),
            "-i" | "--replace" => return Some("{}".to_owned()),
            _ => {}
        }
        if let Some(mark) = text
            .strip_prefix("--replace=")
            .or_else(|| text.strip_prefix("-I"))
            .or_else(|| text.strip_prefix("-i").filter(|mark| !mark.is_empty()))
        {
            return Some(mark.to_owned());
        }
        if !text.starts_with('-') {
            return None;
        }
    }
    None
}

/// `parallel CMD ::: VALUES`.
fn parallel(arguments: &[Arg]) -> Vec<Inner> {
    let Some(command) = table::after_options(table::PARALLEL, arguments) else {
        return Vec::new();
    };
    let end = command.iter().position(|arg| arg.text.starts_with(":::"));
    let (command, values) = command.split_at(end.unwrap_or(command.len()));
    if command.is_empty() {
        return values
            .iter()
            .filter(|value| !value.text.starts_with(":::"))
            .filter_map(|value| join_text("parallel", std::slice::from_ref(value)))
            .collect();
    }
    let mut with_unknown = command.to_vec();
    with_unknown.push(Arg::unknown("…"));
    let mut inner = vec![Inner::Command(with_unknown)];
    inner.extend(join_text("parallel", command));
    for value in values.iter().filter(|value| !value.text.starts_with(":::")).take(64) {
        let mut one = command.to_vec();
        one.push(value.clone());
        inner.push(Inner::Command(one));
    }
    inner
}

/// Programs that take a shell text with `-c`, and may take a command otherwise.
fn text_option(name: &str, arguments: &[Arg]) -> Vec<Inner> {
    let mut inner = Vec::new();
    for (at, arg) in arguments.iter().enumerate() {
        let text = arg.text.as_str();
        let is_cluster = text.starts_with('-')
            && !text.starts_with("--")
            && text.ends_with('c')
            && text[1..].chars().all(|c| c.is_ascii_alphabetic());
        if is_cluster || matches!(text, "--command" | "--session-command") {
            inner.extend(join_text(name, arguments.get(at + 1..at + 2).unwrap_or_default()));
            break;
        }
        if let Some(text) = text.strip_prefix("--command=") {
            inner.push(text_of(text.to_owned()));
            break;
        }
    }
    if name == "flock"
        && inner.is_empty()
        && let Some(command) = table::after_options(table::FLOCK, arguments)
    {
        inner.push(Inner::Command(command.to_vec()));
    }
    inner
}

/// Programs that join their operands to a shell text.
fn joined(name: &str, arguments: &[Arg]) -> Vec<Inner> {
    let shape = if name == "ssh" { table::SSH } else { table::WATCH };
    let Some(command) = table::after_options(shape, arguments) else { return Vec::new() };
    join_text(name, command).into_iter().collect()
}

/// Package managers that run a program: `npx`, `uv run`, `cargo +toolchain`, and the like.
fn runner(name: &str, arguments: &[Arg]) -> Vec<Inner> {
    let words: Vec<&str> = arguments.iter().map(|arg| arg.text.as_str()).collect();
    let skip = match (name, words.as_slice()) {
        ("npx" | "bunx" | "uvx", _) => 0,
        ("pipx" | "uv" | "poetry", ["run", ..])
        | ("npm" | "pnpm" | "yarn" | "bundle", ["exec" | "x" | "dlx", ..]) => 1,
        ("uv", ["tool", "run", ..]) => 2,
        ("cargo", [toolchain, ..]) if toolchain.starts_with('+') => {
            let mut command = vec![Arg::known("cargo")];
            command.extend_from_slice(&arguments[1..]);
            return vec![Inner::Command(command)];
        }
        _ => return Vec::new(),
    };
    let rest = &arguments[skip..];
    let mut inner = Vec::new();
    for (at, arg) in rest.iter().enumerate() {
        if matches!(arg.text.as_str(), "-c" | "--call") {
            inner.extend(join_text(name, rest.get(at + 1..at + 2).unwrap_or_default()));
        }
    }
    if let Some(command) = table::after_options(table::RUNNER, rest)
        && !command.is_empty()
    {
        inner.push(Inner::Command(command.to_vec()));
    }
    inner
}
