//! Built-in rules: what no task can mean.
//!
//! In: one command, or one text. Out: the name of the built-in rule that it breaks, with a reason.
//! A short list on purpose: deleting inside a disposable workspace is ordinary work.

use std::path::{Path, PathBuf};

use super::Grounds;
use super::grounds::resolve;
use super::rules::basename;
use super::shell::{Arg, ArgKind, Redirect, Script, Word};

/// A broken built-in rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Danger {
    /// Name; evidence says `built-in:NAME`.
    pub(super) name: &'static str,
    /// Words that matched.
    pub(super) words: Vec<String>,
    /// Why.
    pub(super) why: &'static str,
}

/// Where a command stands.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    /// Folders that it may run in.
    pub(super) cwds: &'a [PathBuf],
    /// Home folder, if there is one.
    pub(super) home: Option<&'a str>,
    /// Workspace and writable folders.
    pub(super) grounds: &'a Grounds,
}

/// Looks at one command.
pub(super) fn of_command(argv: &[Arg], place: &Place<'_>) -> Option<Danger> {
    let program = argv.first()?;
    let name = basename(&program.text);
    let arguments = &argv[1..];
    let danger = |name, words: &[&Arg], why| {
        let words = std::iter::once(program).chain(words.iter().copied());
        Some(Danger { name, words: words.map(|arg| arg.text.clone()).collect(), why })
    };
    match name {
        "rm" | "chmod" | "chown" | "chgrp" if is_recursive(arguments) => {
            let target = operands(arguments).find(|target| is_broad(target, place))?;
            if name == "rm" {
                danger(
                    "delete-broad",
                    &[target],
                    "deletes everything in a folder outside of the workspace; delete what you made, \
                     by its name",
                )
            } else {
                danger(
                    "permissions-broad",
                    &[target],
                    "changes owner or mode of a whole folder outside of the workspace; change single \
                     files of the workspace",
                )
            }
        }
        "find" if arguments.iter().any(|arg| arg.text == "-delete") => {
            let starts = arguments.iter().take_while(|arg| !arg.text.starts_with(['-', '(', '!']));
            let target = starts.into_iter().find(|target| is_broad(target, place))?;
            danger(
                "delete-broad",
                &[target],
                "deletes in a folder outside of the workspace; delete what you made, by its name",
            )
        }
        "dd" => {
            let target = arguments.iter().find(|arg| {
                arg.text.strip_prefix("of=").is_some_and(|path| is_device(&clean(path)))
            })?;
            danger(
                "device-write",
                &[target],
                "writes to a device; write to a file of the workspace",
            )
        }
        "mkfs" => danger("make-file-system", &[], "makes a file system"),
        _ if name.starts_with("mkfs.") => danger("make-file-system", &[], "makes a file system"),
        "tee" => {
            let target = arguments.iter().find(|arg| is_device(&clean(&arg.text)))?;
            danger(
                "device-write",
                &[target],
                "writes to a device; write to a file of the workspace",
            )
        }
        _ => None,
    }
}

/// Looks at where a command's output goes.
pub(super) fn of_redirect(redirect: &Redirect) -> Option<Danger> {
    let target = redirect.target.known()?;
    let writes = redirect.operator.contains('>');
    (writes && is_device(&clean(&target))).then(|| Danger {
        name: "device-write",
        words: vec![redirect.operator.clone(), target],
        why: "writes to a device; write to a file of the workspace",
    })
}

/// Looks for functions that do nothing but start themselves more than once.
pub(super) fn of_script(script: &Script) -> Option<Danger> {
    script.functions.iter().find_map(|function| {
        let body = script.commands.get(function.body.clone())?;
        let names: Vec<Option<String>> = body
            .iter()
            .filter(|command| !command.words.is_empty())
            .map(|command| command.words.first().and_then(Word::known))
            .collect();
        let is_bomb = names.len() > 1
            && names.iter().all(|name| name.as_deref() == Some(function.name.as_str()));
        is_bomb.then(|| Danger {
            name: "fork-bomb",
            words: vec![function.name.clone()],
            why: "starts itself without end",
        })
    })
}

/// Whether options ask for whole trees.
fn is_recursive(arguments: &[Arg]) -> bool {
    arguments.iter().take_while(|arg| arg.text != "--").any(|arg| {
        let text = arg.text.as_str();
        // Long options may be cut short.
        (text.len() > 3 && "--recursive".starts_with(text))
            || (text.starts_with('-') && !text.starts_with("--") && text.contains(['r', 'R']))
    })
}

fn operands(arguments: &[Arg]) -> impl Iterator<Item = &Arg> {
    let end = arguments.iter().position(|arg| arg.text == "--").unwrap_or(arguments.len());
    arguments.iter().enumerate().filter_map(move |(at, arg)| {
        (at > end || (at < end && !arg.text.starts_with('-'))).then_some(arg)
    })
}

/// Whether a target is a whole folder outside of the workspace: the root, a folder of the root,
/// the home folder, or a folder that the workspace lies in.
fn is_broad(target: &Arg, place: &Place<'_>) -> bool {
    let text = target.text.as_str();
    let home = place.home.unwrap_or("/root");
    let expanded = if target.kind == ArgKind::Unknown {
        let Some(rest) = ["$HOME", "${HOME}", "\"$HOME\"", "\"${HOME}\""].iter().find_map(|name| {
            text.strip_prefix(name).or_else(|| {
                let inner = text.strip_prefix('"')?.strip_suffix('"')?;
                inner.strip_prefix(*name)
            })
        }) else {
            return false;
        };
        format!("{home}{rest}")
    } else if text == "~" || text.starts_with("~/") {
        format!("{home}{}", &text[1..])
    } else if text.starts_with('~') && !text.contains('/') {
        return true;
    } else {
        text.to_owned()
    };
    place.cwds.iter().any(|cwd| {
        let is_pattern = target.kind != ArgKind::Known && expanded.contains(['*', '?', '[']);
        let mut path = resolve(cwd, &expanded);
        if is_pattern || path.to_string_lossy().contains('*') {
            while path.to_string_lossy().contains(['*', '?', '[']) && path.pop() {}
        }
        let is_root = path == Path::new("/");
        let is_home = place.home.is_some_and(|home| resolve(Path::new("/"), home) == path);
        let holds_home = place
            .home
            .is_some_and(|home| home != "/" && resolve(Path::new("/"), home).starts_with(&path));
        let workspace = &place.grounds.workspace;
        let holds_workspace = *workspace != path && workspace.starts_with(&path);
        let is_ours = place
            .grounds
            .write_roots
            .iter()
            .any(|root| root != Path::new("/") && path.starts_with(root));
        let is_top = path.components().count() == 2;
        is_root || is_home || holds_workspace || (!is_ours && (holds_home || is_top))
    })
}

fn clean(path: &str) -> String {
    resolve(Path::new("/"), path).to_string_lossy().into_owned()
}

/// Whether a path is a device that keeps or controls something.
fn is_device(path: &str) -> bool {
    let Some(name) = path.strip_prefix("/dev/") else { return false };
    let harmless =
        ["null", "zero", "full", "tty", "stdin", "stdout", "stderr", "random", "urandom", "ptmx"];
    !(harmless.contains(&name)
        || ["fd/", "pts/", "shm/", "tcp/", "udp/"].iter().any(|folder| name.starts_with(folder)))
}
