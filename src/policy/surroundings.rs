//! Surroundings of a command: wrappers that add nothing, variables that change what runs.
//!
//! In: names. Out: what is known about them; tables. Pure.

use super::rules::basename;
use super::shell::{Arg, Variables};

/// Wrappers that add nothing to what they wrap: a rule for what is inside is enough.
pub(super) fn is_transparent(program: &str) -> bool {
    matches!(
        basename(program),
        "env"
            | "nice"
            | "ionice"
            | "nohup"
            | "timeout"
            | "stdbuf"
            | "setsid"
            | "time"
            | "command"
            | "builtin"
            | "exec"
            | "noglob"
            | "sh"
            | "bash"
            | "zsh"
            | "dash"
            | "ksh"
            | "ash"
            | "busybox"
            | "eval"
    )
}

/// Variables whose value is a command that other programs start.
pub(super) fn names_command(name: &str) -> bool {
    matches!(
        name,
        "GIT_SSH_COMMAND"
            | "GIT_SSH"
            | "GIT_EDITOR"
            | "GIT_SEQUENCE_EDITOR"
            | "GIT_PAGER"
            | "GIT_EXTERNAL_DIFF"
            | "GIT_ASKPASS"
            | "GIT_PROXY_COMMAND"
            | "SSH_ASKPASS"
            | "PAGER"
            | "MANPAGER"
            | "EDITOR"
            | "VISUAL"
            | "BROWSER"
            | "PROMPT_COMMAND"
            | "LESSOPEN"
            | "RUSTC_WRAPPER"
            | "RUSTC"
    )
}

/// Variables that change which program runs or what it loads.
pub(super) fn changes_programs(name: &str) -> bool {
    names_command(name)
        || matches!(
            name,
            "PATH"
                | "ENV"
                | "BASH_ENV"
                | "SHELLOPTS"
                | "BASHOPTS"
                | "IFS"
                | "CDPATH"
                | "HOME"
                | "NODE_OPTIONS"
                | "NODE_PATH"
                | "PERL5LIB"
                | "PERL5OPT"
                | "RUBYLIB"
                | "RUBYOPT"
                | "JAVA_TOOL_OPTIONS"
                | "_JAVA_OPTIONS"
                | "CLASSPATH"
                | "GOFLAGS"
                | "MAKEFLAGS"
                | "CC"
                | "CXX"
                | "LD"
                | "RUSTFLAGS"
                | "RUSTC_BOOTSTRAP"
                | "SHELL"
        )
        || ["LD_", "DYLD_", "GIT_", "PYTHON", "BASH_FUNC_", "CARGO_", "npm_config_", "NPM_CONFIG_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// The variables of a text that is given positional parameters.
pub(super) fn with_parameters(variables: &Variables, parameters: &[Arg]) -> Variables {
    let mut variables = variables.clone();
    let words: Vec<&str> = parameters.iter().filter_map(Arg::certain).collect();
    for (at, word) in words.iter().enumerate().take(10) {
        variables.add(&at.to_string(), &[(*word).to_owned()]);
    }
    if let Some(all) = words.get(1..).filter(|all| !all.is_empty()) {
        variables.add("@", &[all.join(" ")]);
        variables.add("*", &[all.join(" ")]);
    }
    variables
}
