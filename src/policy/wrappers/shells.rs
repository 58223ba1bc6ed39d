//! Shells and interpreters: programs that run a text they are given.

use super::{Inner, text_of};
use crate::policy::shell::{Arg, Stdin};

const SHELLS: [&str; 11] =
    ["sh", "bash", "zsh", "dash", "ksh", "mksh", "ash", "fish", "rbash", "yash", "posh"];

/// Whether `name` is a shell.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name.trim_start_matches('-'))
}

/// Whether `name` runs programs in a language that isn't read here.
pub(super) fn is_interpreter(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(
        stem,
        "python"
            | "pypy"
            | "perl"
            | "ruby"
            | "node"
            | "nodejs"
            | "deno"
            | "bun"
            | "php"
            | "lua"
            | "luajit"
            | "tclsh"
            | "expect"
            | "osascript"
            | "Rscript"
            | "awk"
            | "gawk"
            | "mawk"
            | "nawk"
    )
}

/// Whether a path stands for stdin.
pub(super) fn is_stdin_file(path: &str) -> bool {
    matches!(path, "-" | "/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0")
}

/// A shell's text: after `-c`, from a here-document, or unknown.
pub(super) fn shell(name: &str, arguments: &[Arg], stdin: &Stdin) -> Vec<Inner> {
    let unknown =
        |what: &str| vec![Inner::Opaque(format!("{what} of `{name}` isn't known before it runs"))];
    let mut rest = arguments;
    let (mut takes_text, mut reads_stdin) = (false, false);
    while let Some((first, tail)) = rest.split_first() {
        let text = first.text.as_str();
        if text == "--" || text == "-" {
            rest = tail;
            break;
        }
        if !(text.starts_with('-') || text.starts_with('+')) || text.len() < 2 {
            break;
        }
        if first.certain().is_none() {
            return unknown("an option");
        }
        rest = tail;
        let takes_value = if text.starts_with("--") {
            if text == "--command" {
                takes_text = true;
            }
            matches!(text, "--rcfile" | "--init-file" | "--init-command")
        } else {
            takes_text |= text.starts_with('-') && text.contains('c');
            reads_stdin |= text.starts_with('-') && text.contains('s');
            text.ends_with(['o', 'O'])
        };
        if takes_value {
            rest = tail.get(1..).unwrap_or_default();
        }
    }
    if takes_text {
        return match rest.split_first() {
            None => Vec::new(),
            Some((text, parameters)) => match text.certain() {
                Some(text) => {
                    vec![Inner::Text { text: text.to_owned(), parameters: parameters.to_vec() }]
                }
                None => unknown("the text"),
            },
        };
    }
    let reads_stdin = reads_stdin || rest.first().is_none_or(|file| is_stdin_file(&file.text));
    match (reads_stdin, stdin) {
        (true, Stdin::Text(text)) => vec![text_of(text.clone())],
        (true, Stdin::Unknown) => unknown("the stdin"),
        (true, Stdin::Inherited) => Vec::new(),
        (false, _) => match rest.first() {
            Some(file) if file.certain().is_none() => unknown("the script"),
            _ => Vec::new(),
        },
    }
}

/// An interpreter's program text isn't read: given on the command line or on stdin it is opaque.
/// A script file is ordinary work.
pub(super) fn interpreter(name: &str, arguments: &[Arg], stdin: &Stdin) -> Vec<Inner> {
    let opaque = |what: &str| vec![Inner::Opaque(format!("`{name}` runs {what}"))];
    if name.ends_with("awk") {
        let calls = arguments.iter().any(|arg| {
            let text = arg.text.as_str();
            text.contains("system") || text.contains('|') || text.contains("@load")
        });
        return if calls { opaque("a program that may start commands") } else { Vec::new() };
    }
    for arg in arguments {
        let text = arg.text.as_str();
        if is_stdin_file(text) {
            break;
        }
        if !text.starts_with('-') {
            return match name {
                "deno" | "bun" if matches!(text, "eval" | "repl") => {
                    opaque("a text from the command line")
                }
                _ if arg.certain().is_none() => opaque("a script that isn't known before it runs"),
                _ => Vec::new(),
            };
        }
        if arg.certain().is_none() {
            return opaque("with an option that isn't known before it runs");
        }
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        let is_code = match stem {
            "python" | "pypy" => !text.starts_with("--") && text[1..].contains('c'),
            "perl" | "ruby" => !text.starts_with("--") && text[1..].contains(['e', 'E']),
            "node" | "nodejs" => {
                matches!(text, "--eval" | "--print" | "-e" | "-p" | "-pe")
                    || text.starts_with("--eval=")
                    || text.starts_with("--print=")
            }
            "php" => matches!(text, "-r" | "-B" | "-R" | "-E"),
            "lua" | "luajit" | "Rscript" | "osascript" => text == "-e",
            "expect" => text.starts_with("-c"),
            _ => false,
        };
        if is_code {
            return opaque("a text from the command line");
        }
        let is_answer = matches!(text, "--version" | "-V" | "--help" | "-v" | "-h")
            || (matches!(stem, "python" | "pypy") && text == "-m");
        if is_answer {
            return Vec::new();
        }
    }
    match stdin {
        Stdin::Inherited => Vec::new(),
        Stdin::Text(_) | Stdin::Unknown => opaque("what it reads"),
    }
}
