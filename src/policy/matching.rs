//! Matching: does a rule speak of this command?
//!
//! In: a rule and the arguments of one command. Out: the words that matched. An allow rule matches
//! word by word, and only what is certain. A rule that asks or forbids also sees through how the
//! command is spelled: options in another place or order, git's global options, unknown words that
//! may be nothing.

use super::Decision;
use super::rules::{PrefixRule, RuleSet, basename};
use super::shell::{Arg, ArgKind};
use super::wrappers::without_global_options;

/// How a rule and a command meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// The rule matches these words.
    Sure(Vec<String>),
    /// It would match if an unknown word came to be what the pattern says.
    Possible,
    /// It doesn't match.
    None,
}

/// Matches `rule` against `argv`. `home` resolves `~/` in `host_executable` paths.
pub(super) fn match_rule(
    rules: &RuleSet,
    rule: &PrefixRule,
    argv: &[Arg],
    home: Option<&str>,
) -> Match {
    let is_strict = rule.decision != Decision::Allow;
    let mut best = Match::None;
    for spelling in spellings(rules, argv, is_strict, home) {
        let found = if is_strict { strict(rule, &spelling) } else { exact(rule, &spelling) };
        match found {
            Match::Sure(_) => return found,
            Match::Possible => best = found,
            Match::None => {}
        }
    }
    best
}

/// The command as written, by the bare name of its program, and without git's global options.
fn spellings(rules: &RuleSet, argv: &[Arg], is_strict: bool, home: Option<&str>) -> Vec<Vec<Arg>> {
    let mut all = vec![argv.to_vec()];
    let Some(program) = argv.first() else { return all };
    let name = basename(&program.text);
    let is_path =
        if is_strict { program.text.contains('/') } else { program.text.starts_with('/') };
    if is_path && program.kind == ArgKind::Known && rules.is_host_path(name, &program.text, home) {
        let mut named = argv.to_vec();
        named[0] = Arg::known(name);
        all.push(named);
    }
    for at in 0..all.len() {
        if all[at][0].certain() == Some("git")
            && let Some(git) = without_global_options(&all[at])
            && (is_strict || git.is_harmless)
        {
            all.push(git.argv);
        }
    }
    all
}

fn exact(rule: &PrefixRule, argv: &[Arg]) -> Match {
    let words: Option<Vec<String>> =
        argv.iter().map(|arg| arg.certain().map(ToOwned::to_owned)).collect();
    let matched = words.as_deref().and_then(|words| rule.matched_prefix(words));
    matched.map_or(Match::None, |words| Match::Sure(words.to_vec()))
}

fn strict(rule: &PrefixRule, argv: &[Arg]) -> Match {
    let Some((program, arguments)) = argv.split_first() else { return Match::None };
    let Some((first, rest)) = rule.pattern.split_first() else { return Match::None };
    match program.kind {
        ArgKind::Known if first.contains(&program.text) => {}
        ArgKind::Known | ArgKind::Unknown => return Match::None,
        // An unknown program is opaque as such; a pattern may name this one.
        ArgKind::Glob => {
            return if covers_any(&program.text, first) { Match::Possible } else { Match::None };
        }
    }
    let name = basename(&program.text);
    let walk = Walk {
        arguments,
        clusters: clusters(name, arguments),
        stops_at_operand: stops_at_operand(name),
    };
    let mut matched = vec![program.text.clone()];
    match walk.follow(rest, 0, &mut matched) {
        Step::Sure => Match::Sure(matched),
        Step::Possible => Match::Possible,
        Step::No => Match::None,
    }
}

/// Programs whose operands begin another program's arguments.
fn stops_at_operand(name: &str) -> bool {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(
        stem,
        "python"
            | "node"
            | "ruby"
            | "perl"
            | "php"
            | "bash"
            | "sh"
            | "zsh"
            | "dash"
            | "env"
            | "sudo"
            | "timeout"
            | "nice"
            | "xargs"
            | "find"
            | "docker"
            | "podman"
            | "kubectl"
            | "npx"
            | "uvx"
            | "deno"
            | "bun"
    )
}

/// Letters of the short options of programs that read them as clusters, with long spellings.
fn clusters(name: &str, arguments: &[Arg]) -> Option<Vec<(char, String)>> {
    let is_clustered = matches!(
        name,
        "rm" | "cp"
            | "mv"
            | "ln"
            | "chmod"
            | "chown"
            | "chgrp"
            | "git"
            | "mkdir"
            | "tar"
            | "curl"
            | "wget"
            | "ssh"
            | "scp"
            | "rsync"
            | "ls"
    );
    is_clustered.then(|| {
        arguments
            .iter()
            .take_while(|arg| arg.text != "--")
            .filter(|arg| arg.kind == ArgKind::Known)
            .flat_map(|arg| {
                let letters: Vec<char> = match arg.text.as_str() {
                    "--recursive" => vec!['r'],
                    "--force" => vec!['f'],
                    text if text.starts_with("--") || !text.starts_with('-') => Vec::new(),
                    text => text.chars().skip(1).map(|c| fold_letter(name, c)).collect(),
                };
                letters.into_iter().map(|letter| (letter, arg.text.clone()))
            })
            .collect()
    })
}

/// `-R` is `-r` for `rm` and `cp`.
fn fold_letter(name: &str, letter: char) -> char {
    if letter == 'R' && matches!(name, "rm" | "cp") { 'r' } else { letter }
}

/// The letters of a pattern's word that is a cluster.
fn wanted_letters(word: &str) -> Option<Vec<char>> {
    match word {
        "--recursive" => return Some(vec!['r']),
        "--force" => return Some(vec!['f']),
        _ => {}
    }
    let letters = word.strip_prefix('-')?;
    (!letters.is_empty() && letters.len() <= 4 && letters.chars().all(|c| c.is_ascii_alphabetic()))
        .then(|| letters.chars().map(|c| if c == 'R' { 'r' } else { c }).collect())
}

enum Step {
    Sure,
    Possible,
    No,
}

struct Walk<'a> {
    arguments: &'a [Arg],
    clusters: Option<Vec<(char, String)>>,
    stops_at_operand: bool,
}

impl Walk<'_> {
    /// Follows the rest of a pattern through the arguments from `at` on.
    fn follow(&self, pattern: &[Vec<String>], at: usize, matched: &mut Vec<String>) -> Step {
        let Some((wanted, rest)) = pattern.split_first() else { return Step::Sure };
        let kept = matched.len();
        let mut is_possible = false;
        let mut try_step = |step: Step, matched: &mut Vec<String>| match step {
            Step::Sure => true,
            Step::Possible => {
                is_possible = true;
                matched.truncate(kept);
                false
            }
            Step::No => {
                matched.truncate(kept);
                false
            }
        };
        if wanted.iter().any(|word| is_option(word)) {
            let step = self.follow_option(wanted, rest, at, matched);
            if try_step(step, matched) {
                return Step::Sure;
            }
        }
        let mut next = at;
        while let Some(arg) = self.arguments.get(next) {
            match arg.kind {
                ArgKind::Known if wanted.contains(&arg.text) => {
                    matched.push(arg.text.clone());
                    let step = self.follow(rest, next + 1, matched);
                    if try_step(step, matched) {
                        return Step::Sure;
                    }
                    break;
                }
                ArgKind::Unknown => return Step::Possible,
                ArgKind::Glob if covers_any(&arg.text, wanted) => return Step::Possible,
                ArgKind::Known if is_option(&arg.text) && arg.text != "--" => {
                    // An option may take the next word as its value.
                    let after = self.arguments.get(next + 1);
                    let may_be_value = !arg.text.contains('=')
                        && after.is_some_and(|value| {
                            value.kind == ArgKind::Known
                                && !is_option(&value.text)
                                && !wanted.contains(&value.text)
                        });
                    next += if may_be_value { 2 } else { 1 };
                }
                ArgKind::Known | ArgKind::Glob => break,
            }
        }
        if is_possible { Step::Possible } else { Step::No }
    }

    /// An option of the pattern may stand anywhere before `--`.
    fn follow_option(
        &self,
        wanted: &[String],
        rest: &[Vec<String>],
        at: usize,
        matched: &mut Vec<String>,
    ) -> Step {
        let kept = matched.len();
        let mut is_possible = false;
        for (index, arg) in self.arguments.iter().enumerate().skip(at) {
            match arg.kind {
                ArgKind::Unknown => is_possible = true,
                ArgKind::Glob => {}
                ArgKind::Known => {
                    if wanted.contains(&arg.text) {
                        matched.push(arg.text.clone());
                        for from in [index + 1, at] {
                            match self.follow(rest, from, matched) {
                                Step::Sure => return Step::Sure,
                                Step::Possible => is_possible = true,
                                Step::No => {}
                            }
                            matched.truncate(kept + 1);
                        }
                        matched.truncate(kept);
                    }
                    if arg.text == "--" || (self.stops_at_operand && !is_option(&arg.text)) {
                        break;
                    }
                }
            }
        }
        if let Some(clusters) = &self.clusters {
            for word in wanted {
                let Some(letters) = wanted_letters(word) else { continue };
                let words: Option<Vec<&String>> = letters
                    .iter()
                    .map(|wanted| {
                        clusters.iter().find(|(letter, _)| letter == wanted).map(|(_, word)| word)
                    })
                    .collect();
                let Some(mut words) = words else { continue };
                words.dedup();
                matched.extend(words.into_iter().cloned());
                if let Step::Sure = self.follow(rest, at, matched) {
                    return Step::Sure;
                }
                matched.truncate(kept);
            }
        }
        if is_possible { Step::Possible } else { Step::No }
    }
}

fn is_option(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// Whether a pattern of file names covers one of `words`.
fn covers_any(pattern: &str, words: &[String]) -> bool {
    let name = basename(pattern);
    globset::Glob::new(name).map_or(true, |glob| {
        let matcher = glob.compile_matcher();
        words.iter().any(|word| matcher.is_match(word))
    })
}
