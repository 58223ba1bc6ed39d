//! Git: global options before the sub-command, and the commands that git starts.

use super::{Inner, join_text, text_of};
use crate::policy::shell::Arg;

/// Global options that take the next word as their value.
const VALUED: [&str; 9] = [
    "-C",
    "-c",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--super-prefix",
    "--config-env",
    "--attr-source",
    "--list-cmds",
];

/// Global options that change nothing about what a sub-command does.
fn is_harmless(option: &str) -> bool {
    matches!(
        option,
        "-C" | "-P"
            | "--no-pager"
            | "--literal-pathspecs"
            | "--no-optional-locks"
            | "--no-replace-objects"
    ) || (option.starts_with("-C") && option.len() > 2)
}

/// `git` with its global options cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Git {
    /// `git`, sub-command, arguments.
    pub(crate) argv: Vec<Arg>,
    /// Whether only harmless options were cut off, so that an allow rule may look at the rest.
    pub(crate) is_harmless: bool,
}

/// Cuts off global options; `None` when there are none.
pub(crate) fn without_global_options(argv: &[Arg]) -> Option<Git> {
    let (program, arguments) = argv.split_first()?;
    let (options, rest) = split(arguments);
    if options.is_empty() {
        return None;
    }
    let is_harmless = options.iter().all(|(option, _)| is_harmless(&option.text));
    let argv = std::iter::once(program).chain(rest).cloned().collect();
    Some(Git { argv, is_harmless })
}

type Options<'a> = Vec<(&'a Arg, Option<&'a Arg>)>;

fn split(arguments: &[Arg]) -> (Options<'_>, &[Arg]) {
    let mut options = Vec::new();
    let mut rest = arguments;
    while let Some((first, tail)) = rest.split_first() {
        if !first.text.starts_with('-') || first.text.len() < 2 {
            break;
        }
        let takes_value = VALUED.contains(&first.text.as_str());
        let value = tail.first().filter(|_| takes_value);
        options.push((first, value));
        rest = &tail[usize::from(value.is_some())..];
    }
    (options, rest)
}

/// Commands that git starts for these arguments.
pub(super) fn inner(arguments: &[Arg]) -> Vec<Inner> {
    let (options, rest) = split(arguments);
    let mut inner = Vec::new();
    for (option, value) in options {
        let setting = match (option.text.as_str(), value) {
            ("-c", Some(value)) => value.text.as_str(),
            (text, _) => match text.strip_prefix("-c") {
                Some(attached) if !text.starts_with("--") && !attached.is_empty() => attached,
                _ => continue,
            },
        };
        inner.extend(setting_inner(setting, rest));
    }
    let words: Vec<&str> = rest.iter().map(|arg| arg.text.as_str()).collect();
    match words.as_slice() {
        ["bisect", "run", ..] => inner.push(Inner::Command(rest[2..].to_vec())),
        ["submodule", "foreach", ..] => {
            let skip = rest[2..].iter().take_while(|arg| arg.text.starts_with('-')).count();
            inner.extend(join_text("git submodule foreach", &rest[2 + skip..]));
        }
        ["rebase", ..] => {
            for (at, word) in words.iter().enumerate() {
                if matches!(*word, "-x" | "--exec") {
                    let text = rest.get(at + 1..at + 2).unwrap_or_default();
                    inner.extend(join_text("git rebase", text));
                } else if let Some(text) = word.strip_prefix("--exec=") {
                    inner.push(text_of(text.to_owned()));
                }
            }
        }
        ["config", ..] => {
            for pair in rest[1..].windows(2) {
                if is_command_key(&pair[0].text) {
                    inner.extend(setting_inner(&format!("{}={}", pair[0].text, pair[1].text), &[]));
                }
            }
        }
        _ => {}
    }
    inner
}

fn is_command_key(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    matches!(
        key.as_str(),
        "core.pager"
            | "core.editor"
            | "core.sshcommand"
            | "core.fsmonitor"
            | "core.askpass"
            | "sequence.editor"
            | "diff.external"
            | "gpg.program"
            | "credential.helper"
            | "uploadpack.packobjectshook"
    ) || key.starts_with("alias.")
        || key.starts_with("pager.")
        || [".command", ".textconv", ".clean", ".smudge", ".process", ".driver", ".cmd", ".helper"]
            .iter()
            .any(|tail| key.ends_with(tail))
}

/// What `key=value` makes git start. An alias without `!` is a sub-command of git.
fn setting_inner(setting: &str, rest: &[Arg]) -> Vec<Inner> {
    let Some((key, value)) = setting.split_once('=') else { return Vec::new() };
    if !is_command_key(key) || value.trim().is_empty() {
        return Vec::new();
    }
    let text = value.strip_prefix('!');
    if key.to_ascii_lowercase().starts_with("alias.") && text.is_none() {
        let mut command = vec![Arg::known("git")];
        command.extend(shlex::split(value).unwrap_or_default().into_iter().map(Arg::known));
        command.extend(rest.iter().skip(1).cloned());
        return vec![Inner::Command(command)];
    }
    if matches!(value, "true" | "false" | "cat" | "store" | "cache") {
        return Vec::new();
    }
    vec![text_of(text.unwrap_or(value).to_owned())]
}
