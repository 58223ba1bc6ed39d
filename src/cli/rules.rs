//! `horseman rules`: rule files without a run.
//!
//! In: parsed arguments and the files' texts. Out: text to print and an exit status. Knows nothing
//! of the command line's parser, files or terminals.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use crate::exit::Exit;
use crate::policy::check::{Programs, check as check_argv};
use crate::policy::rules::{ExampleReport, RuleError, RuleSet, load, load_unchecked};
use crate::policy::{
    Action, Decision, Evaluation, Exec, Grounds, JudgedCommand, Opaque, Policy, RuleSource,
};

/// What a command prints, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// Data.
    pub stdout: String,
    /// Remarks for people; may be empty.
    pub stderr: String,
    /// Exit status.
    pub exit: Exit,
}

/// How `rules check` writes its JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Json {
    /// On one line.
    #[default]
    Compact,
    /// Indented.
    Pretty,
}

/// `rules check`: the raw prefix match of one argv, always with status 0.
///
/// # Errors
///
/// A [`RuleError`] when a file isn't valid.
pub fn check(
    files: &[RuleSource],
    argv: &[String],
    programs: Programs<'_>,
    json: Json,
) -> Result<Printed, RuleError> {
    let report = check_argv(&load(files)?, argv, programs);
    Ok(Printed {
        stdout: to_json(&report, json),
        stderr:
            "this is the raw prefix match of one argv; `horseman rules explain` says what a run \
                 does\n"
                .to_owned(),
        exit: Exit::Done,
    })
}

fn to_json(value: &impl Serialize, json: Json) -> String {
    let text = match json {
        Json::Compact => serde_json::to_string(value),
        Json::Pretty => serde_json::to_string_pretty(value),
    };
    // Plain structs of strings always serialise.
    let mut text = text.unwrap_or_default();
    text.push('\n');
    text
}

/// `rules test`: runs every example of every rule. Status 10 when one doesn't hold.
///
/// # Errors
///
/// A [`RuleError`] when a file isn't valid for another reason than its examples.
pub fn test(files: &[RuleSource]) -> Result<Printed, RuleError> {
    let rules = load_unchecked(files)?;
    let reports = rules.run_examples();
    let wrong = reports.iter().filter(|report| !report.is_right).count();
    let mut stdout = table(&reports);
    let silent = untouched(&rules);
    if !silent.is_empty() {
        stdout.push_str("\nrules without a `match` example:\n");
        for (origin, pattern) in &silent {
            line(&mut stdout, &format!("  {origin}  {pattern}"));
        }
    }
    line(
        &mut stdout,
        &format!(
            "\n{} rules, {} examples, {wrong} wrong",
            rules.prefix.len() + rules.hosts.len() + rules.network.len(),
            reports.len()
        ),
    );
    let exit = if wrong == 0 { Exit::Done } else { Exit::NotDone };
    Ok(Printed { stdout, stderr: String::new(), exit })
}

fn untouched(rules: &RuleSet) -> Vec<(String, String)> {
    let silent = rules.prefix.iter().filter(|rule| rule.matching.is_empty());
    silent.map(|rule| (rule.origin.reference(), rule.pattern_text())).collect()
}

fn table(reports: &[ExampleReport]) -> String {
    let width = |of: fn(&ExampleReport) -> usize| reports.iter().map(of).max().unwrap_or(0);
    let rule = width(|report| report.rule.chars().count());
    let mut out = String::new();
    for report in reports {
        let result = if report.is_right { "ok   " } else { "WRONG" };
        line(
            &mut out,
            &format!("{result}  {:rule$}  {:9}  {}", report.rule, report.kind, report.example),
        );
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

/// What `rules explain` is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Shell text.
    pub text: String,
    /// What opaque text means.
    pub opaque: Opaque,
    /// Absolute folder that the text would run in, and the workspace.
    pub cwd: PathBuf,
    /// Home folder.
    pub home: Option<String>,
    /// Whether to print JSON.
    pub is_json: bool,
}

/// `rules explain`: judges shell text as a run would, and says why. Status 0 when a run would start
/// it, 10 for `prompt`, 11 for `forbidden`.
///
/// # Errors
///
/// A [`RuleError`] when a file isn't valid.
pub fn explain(files: &[RuleSource], question: &Question) -> Result<Printed, RuleError> {
    let grounds = Grounds {
        workspace: question.cwd.clone(),
        write_roots: vec![question.cwd.clone()],
        protected: Vec::new(),
    };
    let policy = Policy::load(files, question.opaque, grounds)?;
    let home = question.home.iter().map(|home| ("HOME".to_owned(), home.clone()));
    let action = Action::Exec(Exec {
        program: PathBuf::from("/bin/bash"),
        argv: vec!["bash".to_owned(), "-c".to_owned(), question.text.clone()],
        cwd: question.cwd.clone(),
        env: home.collect::<BTreeMap<_, _>>(),
        shell_text: Some(question.text.clone()),
    });
    let (evaluation, commands) = policy.explain(&action);
    let exit = match evaluation.decision {
        Decision::Allow => Exit::Done,
        Decision::Prompt => Exit::NotDone,
        Decision::Forbidden => Exit::Denied,
    };
    let stdout = if question.is_json {
        to_json(&Explanation::new(&evaluation, &commands), Json::Pretty)
    } else {
        in_words(&evaluation, &commands)
    };
    Ok(Printed { stdout, stderr: String::new(), exit })
}

/// What `rules explain --json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `allow`, `prompt` or `forbidden`.
    pub decision: &'static str,
    /// Why, one line.
    pub reason: String,
    /// Why the text can't be known before it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<String>,
    /// Commands found, in order of appearance.
    pub commands: Vec<ExplainedCommand>,
    /// Every rule that matched.
    pub rules: Vec<crate::transcript::event::Evidence>,
}

/// One command of an [`Explanation`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedCommand {
    /// How many commands and texts it stands in.
    pub depth: usize,
    /// Words.
    pub words: Vec<String>,
    /// Strictest decision of the rules that match it; absent when none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// `file:line` of the rules that match it.
    pub rules: Vec<String>,
    /// Why it can't be known before it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub opaque: Vec<String>,
}

impl Explanation {
    fn new(evaluation: &Evaluation, commands: &[JudgedCommand]) -> Self {
        let commands = commands
            .iter()
            .map(|command| ExplainedCommand {
                depth: command.depth,
                words: command.words.clone(),
                decision: command.decision.map(Decision::name),
                rules: command.evidence.iter().map(|evidence| evidence.rule.clone()).collect(),
                opaque: command.opaque.clone(),
            })
            .collect();
        Self {
            decision: evaluation.decision.name(),
            reason: evaluation.reason.clone(),
            opaque: evaluation.opaque.clone(),
            commands,
            rules: evaluation.evidence.clone(),
        }
    }
}

fn in_words(evaluation: &Evaluation, commands: &[JudgedCommand]) -> String {
    let mut out = String::new();
    for command in commands {
        let indent = "  ".repeat(command.depth);
        let words = crate::policy::rules::join(&command.words);
        let decision = match (command.decision, command.opaque.is_empty()) {
            (Some(decision), _) => decision.name(),
            (None, true) => "no rule",
            (None, false) => "opaque",
        };
        line(&mut out, &format!("{indent}{}  [{decision}]", one_line(&words)));
        for evidence in &command.evidence {
            let mut text = format!("{indent}    {} {}", evidence.rule, evidence.decision);
            if let Some(why) = &evidence.justification {
                // Writing to a string doesn't fail.
                let _ = write!(text, ": {}", one_line(why));
            }
            line(&mut out, &text);
        }
        for why in &command.opaque {
            line(&mut out, &format!("{indent}    opaque: {}", one_line(why)));
        }
    }
    line(&mut out, &format!("{}: {}", evaluation.decision.name(), one_line(&evaluation.reason)));
    out
}

/// Control characters would let a text draw its own answer on a terminal.
fn one_line(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped: String =
                if c.is_control() { c.escape_default().collect() } else { c.to_string() };
            escaped.chars().collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Json, Question, check, explain, test};
    use crate::exit::Exit;
    use crate::policy::check::Programs;
    use crate::policy::{Opaque, RuleSource};

    const RULES: &str = r#"
host_executable(name = "git", paths = ["/usr/bin/git", "~/bin/git"])
prefix_rule(pattern = ["git", ["status", "log"]], justification = "fine")
prefix_rule(pattern = ["git", "push"], decision = "prompt", justification = "network op")
prefix_rule(pattern = ["git", "push", "--force"], decision = "forbidden")
network_rule(host = "Example.com", protocol = "https", decision = "deny")
"#;

    fn files(text: &str) -> Vec<RuleSource> {
        vec![RuleSource { name: "t.rules".to_owned(), text: text.to_owned() }]
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(ToOwned::to_owned).collect()
    }

    #[test]
    fn check_prints_the_known_json() {
        let home = Programs::Resolved(Some("/home/u"));
        for (argv, programs, expected) in [
            ("hg push", Programs::AsWritten, r#"{"matchedRules":[]}"#),
            ("git -C x status", Programs::AsWritten, r#"{"matchedRules":[]}"#),
            ("/usr/bin/git log", Programs::AsWritten, r#"{"matchedRules":[]}"#),
            (
                "git push --force",
                Programs::AsWritten,
                r#"{"matchedRules":[{"prefixRuleMatch":{"matchedPrefix":["git","push"],"decision":"prompt","justification":"network op"}},{"prefixRuleMatch":{"matchedPrefix":["git","push","--force"],"decision":"forbidden"}}],"decision":"forbidden"}"#,
            ),
            (
                "/usr/bin/git status",
                home,
                r#"{"matchedRules":[{"prefixRuleMatch":{"matchedPrefix":["git","status"],"decision":"allow","resolvedProgram":"/usr/bin/git","justification":"fine"}}],"decision":"allow"}"#,
            ),
            ("/opt/git status", home, r#"{"matchedRules":[]}"#),
            (
                "/home/u/bin/git log x",
                home,
                r#"{"matchedRules":[{"prefixRuleMatch":{"matchedPrefix":["git","log"],"decision":"allow","resolvedProgram":"/home/u/bin/git","justification":"fine"}}],"decision":"allow"}"#,
            ),
        ] {
            let printed = check(&files(RULES), &words(argv), programs, Json::Compact).unwrap();
            assert_eq!(printed.stdout, format!("{expected}\n"), "{argv}");
            assert_eq!(printed.exit, Exit::Done);
        }
        let pretty = check(&files(RULES), &words("x"), Programs::AsWritten, Json::Pretty).unwrap();
        assert_eq!(pretty.stdout, "{\n  \"matchedRules\": []\n}\n");
    }

    #[test]
    fn test_prints_a_table_and_fails_on_a_wrong_example() {
        let text = "prefix_rule(pattern = [\"a\"], match = [\"a b\", \"c\"], not_match = [[\"b\"]])\n\
                    prefix_rule(pattern = [\"z\"])\n";
        let printed = test(&files(text)).unwrap();
        assert_eq!(
            printed.stdout,
            "ok     t.rules:1  match      a b\n\
             WRONG  t.rules:1  match      c\n\
             ok     t.rules:1  not_match  b\n\
             \nrules without a `match` example:\n  t.rules:2  [\"z\"]\n\
             \n2 rules, 3 examples, 1 wrong\n"
        );
        assert_eq!(printed.exit, Exit::NotDone);
        assert_eq!(test(&files(RULES)).unwrap().exit, Exit::Done);
        assert!(test(&files("prefix_rule(")).is_err());
    }

    #[test]
    fn explain_says_what_a_run_does() {
        let ask = |text: &str, opaque| {
            let question = Question {
                text: text.to_owned(),
                opaque,
                cwd: "/w".into(),
                home: Some("/home/u".to_owned()),
                is_json: false,
            };
            explain(&files(RULES), &question).unwrap()
        };
        for (text, opaque, exit) in [
            ("git status; make", Opaque::Sandbox, Exit::Done),
            ("(git push)", Opaque::Sandbox, Exit::NotDone),
            ("env git -C x push origin --force", Opaque::Sandbox, Exit::Denied),
            ("$x", Opaque::Sandbox, Exit::Done),
            ("$x", Opaque::Prompt, Exit::NotDone),
            ("$x", Opaque::Forbidden, Exit::Denied),
        ] {
            assert_eq!(ask(text, opaque).exit, exit, "{text}");
        }
        assert_eq!(
            ask("env git push\u{1b} 'a\nb'; git push", Opaque::Sandbox).stdout,
            "env git 'push\\u{1b}' 'a\\nb'  [no rule]\n  git 'push\\u{1b}' 'a\\nb'  [no rule]\n\
             git push  [prompt]\n    t.rules:4 prompt: network op\n\
             prompt: `git push` (t.rules:4): network op\n"
        );
    }
}
