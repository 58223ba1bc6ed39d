//! How wrappers spell their options: where the command begins that they run.

use super::{Inner, join_text};
use crate::policy::shell::Arg;

/// Options of a wrapper that runs its operands as a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Short options that take a value.
    pub(super) short: &'static str,
    /// Long options that take a value as the next word.
    pub(super) long: &'static [&'static str],
    /// Operands before the command.
    pub(super) operands: usize,
    /// Whether `NAME=VALUE` may stand before the command.
    pub(super) assigns: bool,
    /// What else is special.
    pub(super) special: Special,
}

/// What is special about a wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// Nothing.
    None,
    /// These short options mean that nothing is run.
    Quiet(&'static str),
    /// This option's value is split into words: `env -S`.
    Split,
    /// This option has the operands run as shell text: `sudo -s`.
    Shell,
}

const PLAIN: Shape =
    Shape { short: "", long: &[], operands: 0, assigns: false, special: Special::None };

pub(super) const XARGS: Shape = Shape {
    short: "adEILnPs",
    long: &[
        "--arg-file",
        "--delimiter",
        "--max-lines",
        "--max-args",
        "--max-procs",
        "--max-chars",
        "--process-slot-var",
    ],
    ..PLAIN
};
pub(super) const PARALLEL: Shape = Shape {
    short: "jaNLnISdCPE",
    long: &[
        "--jobs",
        "--arg-file",
        "--max-args",
        "--delay",
        "--timeout",
        "--joblog",
        "--workdir",
        "--sshlogin",
        "--colsep",
    ],
    ..PLAIN
};
pub(super) const FLOCK: Shape = Shape {
    short: "wE",
    long: &["--timeout", "--wait", "--conflict-exit-code"],
    operands: 1,
    ..PLAIN
};
pub(super) const SSH: Shape = Shape { short: "BbcDEeFIiJLlmOoPpQRSWw", operands: 1, ..PLAIN };
pub(super) const WATCH: Shape = Shape { short: "nq", long: &["--interval", "--equexit"], ..PLAIN };
pub(super) const RUNNER: Shape = Shape {
    short: "pw",
    long: &["--package", "--from", "--with", "--python", "--spec", "--directory", "--project"],
    ..PLAIN
};

/// The shape of a wrapper whose operands are the command.
pub(super) fn shape(name: &str) -> Option<Shape> {
    Some(match name {
        "env" => Shape {
            short: "uCS",
            long: &["--unset", "--chdir", "--split-string", "--argv0"],
            assigns: true,
            special: Special::Split,
            ..PLAIN
        },
        "sudo" => Shape {
            short: "ugpCDhRrtTU",
            long: &[
                "--user",
                "--group",
                "--prompt",
                "--close-from",
                "--chdir",
                "--host",
                "--chroot",
                "--role",
                "--type",
                "--command-timeout",
                "--other-user",
            ],
            assigns: true,
            special: Special::Shell,
            ..PLAIN
        },
        "doas" => Shape { short: "uC", special: Special::Shell, ..PLAIN },
        "nice" => Shape { short: "n", long: &["--adjustment"], ..PLAIN },
        "ionice" => Shape { short: "cnpPu", long: &["--class", "--classdata"], ..PLAIN },
        "chrt" => Shape { short: "TPD", long: &["--sched-runtime"], operands: 1, ..PLAIN },
        "taskset" | "chroot" => Shape { operands: 1, ..PLAIN },
        "timeout" => {
            Shape { short: "ks", long: &["--kill-after", "--signal"], operands: 1, ..PLAIN }
        }
        "stdbuf" => Shape { short: "ioe", long: &["--input", "--output", "--error"], ..PLAIN },
        "time" => Shape { short: "fo", long: &["--format", "--output"], assigns: true, ..PLAIN },
        "exec" => Shape { short: "a", ..PLAIN },
        "command" => Shape { special: Special::Quiet("vV"), ..PLAIN },
        "strace" | "ltrace" => Shape {
            short: "abeEIoOpPsSuUX",
            long: &["--trace", "--output", "--attach", "--user"],
            ..PLAIN
        },
        "unshare" | "nsenter" => Shape {
            short: "tSGRw",
            long: &["--target", "--setuid", "--setgid", "--root", "--wd"],
            ..PLAIN
        },
        "systemd-run" => Shape {
            short: "pEHMu",
            long: &["--unit", "--property", "--setenv", "--slice", "--uid", "--gid"],
            ..PLAIN
        },
        "prlimit" | "nohup" | "setsid" | "builtin" | "noglob" | "nocorrect" | "coproc" | "-"
        | "setarch" | "linux64" | "linux32" | "fakeroot" | "catchsegv" | "dbus-run-session"
        | "xvfb-run" | "unbuffer" | "proot" | "firejail" | "pkexec" | "tini" | "dumb-init" => PLAIN,
        _ => return None,
    })
}

/// Returns the arguments after a wrapper's options and operands; `None` when nothing is run.
pub(super) fn after_options(shape: Shape, arguments: &[Arg]) -> Option<&[Arg]> {
    let mut rest = arguments;
    let mut operands = shape.operands;
    while let Some((first, tail)) = rest.split_first() {
        let text = first.text.as_str();
        if text == "--" {
            rest = tail;
            // What follows is the command, but for operands that still come first.
            return rest.get(operands..);
        }
        if is_option(text) {
            if let Special::Quiet(quiet) = shape.special
                && text[1..].chars().any(|c| quiet.contains(c))
            {
                return None;
            }
            rest = if takes_next(shape, text) { tail.get(1..).unwrap_or_default() } else { tail };
        } else if shape.assigns && is_assignment(text) {
            rest = tail;
        } else if operands > 0 {
            operands -= 1;
            rest = tail;
        } else {
            break;
        }
    }
    Some(rest)
}

/// Looks through a wrapper of this shape.
pub(super) fn apply(shape: Shape, arguments: &[Arg]) -> Vec<Inner> {
    let mut inner = Vec::new();
    let Some(command) = after_options(shape, arguments) else { return inner };
    let options = &arguments[..arguments.len() - command.len()];
    match shape.special {
        Special::Split => {
            for (at, option) in options.iter().enumerate() {
                let text = option.text.as_str();
                let value = match text {
                    "-S" | "--split-string" => options.get(at + 1).map(|value| value.text.as_str()),
                    _ => text
                        .strip_prefix("--split-string=")
                        .or_else(|| text.strip_prefix("-S").filter(|value| !value.is_empty()))
                        .or_else(|| {
                            let cluster = text.strip_prefix('-')?;
                            (cluster.ends_with('S') && !text.starts_with("--"))
                                .then(|| options.get(at + 1).or(command.first()))?
                                .map(|value| value.text.as_str())
                        }),
                };
                if let Some(value) = value {
                    let mut words: Vec<Arg> = shlex::split(value)
                        .unwrap_or_default()
                        .into_iter()
                        .map(Arg::known)
                        .collect();
                    words.extend_from_slice(command);
                    inner.extend(after_options(shape, &words).map(|c| Inner::Command(c.to_vec())));
                }
            }
        }
        Special::Shell => {
            let runs_shell = options.iter().any(|option| {
                let text = option.text.as_str();
                matches!(text, "--shell" | "--login")
                    || (is_option(text)
                        && !text.starts_with("--")
                        && text[1..].contains(['s', 'i']))
            });
            if runs_shell {
                inner.extend(join_text("sudo", command));
            }
        }
        Special::None | Special::Quiet(_) => {}
    }
    if !command.is_empty() {
        inner.push(Inner::Command(command.to_vec()));
    }
    inner
}

fn is_option(text: &str) -> bool {
    text.len() > 1 && text.starts_with('-')
}

/// Whether an option takes the next word as its value.
fn takes_next(shape: Shape, text: &str) -> bool {
    if text.starts_with("--") {
        return shape.long.contains(&text);
    }
    // In a cluster the first option with a value takes the rest of the word, if there is any.
    text[1..].find(|c| shape.short.contains(c)).is_some_and(|at| at + 2 == text.len())
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}
