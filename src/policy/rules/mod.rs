//! Rules: what a `.rules` file says, as data.
//!
//! In: Starlark text, through [`load`]. Out: a [`RuleSet`] with where each rule stands. Pure.
//! Knows nothing of shell text, wrappers or actions.

mod builtins;
mod error;
mod examples;
mod guard;
mod load;
mod network;

pub use error::RuleError;
pub use examples::ExampleReport;
pub(crate) use examples::join;
pub use load::load;
pub(crate) use load::load_unchecked;

use super::Decision;

/// Everything that the loaded files say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    /// Prefix rules, in order of files and calls.
    pub prefix: Vec<PrefixRule>,
    /// Which paths a program name may be resolved from.
    pub hosts: Vec<HostExecutable>,
    /// Network rules; they hold where the profile lists hosts.
    pub network: Vec<NetworkRule>,
}

/// Where a rule stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Name of the file.
    pub file: String,
    /// Line of the call, 1-based.
    pub line: u32,
    /// Column of the call, 1-based, in characters.
    pub column: u32,
    /// The line's text.
    pub snippet: String,
}

impl Origin {
    /// `file:line`, as evidence names a rule.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// One `prefix_rule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixRule {
    /// Words that a command must begin with; each is a list of alternatives.
    pub pattern: Vec<Vec<String>>,
    /// What follows from a match.
    pub decision: Decision,
    /// Why, and what to do instead; the model reads it.
    pub justification: Option<String>,
    /// Commands that the rule must match.
    pub matching: Vec<Vec<String>>,
    /// Commands that the rule must not match.
    pub not_matching: Vec<Vec<String>>,
    /// Where it stands.
    pub origin: Origin,
}

/// One `host_executable`: a name means these paths and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostExecutable {
    /// Bare name.
    pub name: String,
    /// Absolute paths, or paths that begin with `~/`.
    pub paths: Vec<String>,
    /// Where it stands.
    pub origin: Origin,
}

/// One `network_rule`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkRule {
    /// Host name or IP literal, lower case.
    pub host: String,
    /// `http`, `https`, `socks5_tcp` or `socks5_udp`.
    pub protocol: String,
    /// What follows; `deny` is `forbidden`.
    pub decision: Decision,
    /// Why.
    pub justification: Option<String>,
    /// Where it stands.
    pub origin: Origin,
}

impl PrefixRule {
    /// Returns the words of `argv` that the pattern matches, word by word from the first.
    pub fn matched_prefix<'a>(&self, argv: &'a [String]) -> Option<&'a [String]> {
        let head = argv.get(..self.pattern.len())?;
        let matches = self
            .pattern
            .iter()
            .zip(head)
            .all(|(alternatives, word)| alternatives.iter().any(|wanted| wanted == word));
        matches.then_some(head)
    }

    /// The pattern as it would be written.
    pub fn pattern_text(&self) -> String {
        let words: Vec<String> = self
            .pattern
            .iter()
            .map(|alternatives| match alternatives.as_slice() {
                [word] => format!("\"{word}\""),
                many => {
                    let quoted: Vec<String> =
                        many.iter().map(|word| format!("\"{word}\"")).collect();
                    format!("[{}]", quoted.join(", "))
                }
            })
            .collect();
        format!("[{}]", words.join(", "))
    }
}

impl RuleSet {
    /// Whether `path` may stand for the bare `name`: true unless a `host_executable` of that name
    /// lists other paths. `home` resolves `~/`.
    pub fn is_host_path(&self, name: &str, path: &str, home: Option<&str>) -> bool {
        let mut declared = self.hosts.iter().filter(|host| host.name == name).peekable();
        if declared.peek().is_none() {
            return true;
        }
        declared.any(|host| {
            host.paths.iter().any(|listed| match (listed.strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => {
                    path.strip_prefix(home.trim_end_matches('/'))
                        .and_then(|tail| tail.strip_prefix('/'))
                        == Some(rest)
                }
                _ => listed == path,
            })
        })
    }
}

/// Last component of a path.
pub(crate) fn basename(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
