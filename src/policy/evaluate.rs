//! Evaluation: an action against the rules.
//!
//! In: a [`Policy`] and an [`Action`]. Out: an [`Evaluation`], the strictest over everything that
//! was found, with all evidence. Pure and total: whatever the text, there is an answer.

use std::path::{Path, PathBuf};

use super::dangerous::{self, Danger, Place};
use super::grounds::{self, resolve};
use super::matching::{Match, match_rule};
use super::shell::{Arg, Readings, Simple, Stdin, Variables, Word, read, readings};
use super::surroundings::{changes_programs, is_transparent, names_command, with_parameters};
use super::wrappers::{Inner, look_through};
use super::{Action, Decision, Evaluation, Exec, InputAction, Opaque, PatchAction, Policy, Reader};
use super::{Requirement, rules};
use crate::transcript::event::Evidence;

/// Deepest nesting of wrappers and shell texts within each other. Our choice.
const MAX_WRAPPERS: usize = 24;
/// Most commands and readings of one action. Our choice.
const MAX_JUDGED: usize = 40_000;
/// Most words of an action that are kept as evidence, and bytes of each. Our choices.
const MAX_SHOWN: usize = 400;
const MAX_WORD: usize = 400;

/// One command of an action, with what was found about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedCommand {
    /// How many commands and texts it stands in, from 0.
    pub depth: usize,
    /// Its words.
    pub words: Vec<String>,
    /// Strictest decision of the rules that match it; `None` when none does.
    pub decision: Option<Decision>,
    /// Rules that match it.
    pub evidence: Vec<Evidence>,
    /// Why it can't be known before it runs.
    pub opaque: Vec<String>,
}

/// Evaluates `action`; the second value has each command with what was found about it.
pub(super) fn evaluate(policy: &Policy, action: &Action) -> (Evaluation, Vec<JudgedCommand>) {
    match action {
        Action::Exec(exec) => judge(policy, exec, None),
        Action::Input(InputAction { pending, text, reader, exec, .. }) => match reader {
            Reader::Shell => judge(policy, exec, Some(&format!("{pending}{text}"))),
            Reader::Interpreter => {
                let mut found = Found::new(policy, exec);
                found.opaque("what an interpreter reads isn't known before it runs".to_owned());
                found.finish()
            }
            Reader::Program => {
                (allowed("input for a program that doesn't run what it reads"), Vec::new())
            }
        },
        Action::Patch(patch) => (judge_patch(policy, patch), Vec::new()),
    }
}

fn judge(policy: &Policy, exec: &Exec, input: Option<&str>) -> (Evaluation, Vec<JudgedCommand>) {
    let mut found = Found::new(policy, exec);
    if let Some(text) = input.or(exec.shell_text.as_deref()) {
        // A shell drops NUL characters of what it reads.
        found.text(&text.replace('\0', ""), Variables::default(), Mode::Plain, 0);
    } else {
        let argv: Vec<Arg> = exec.argv.iter().map(Arg::known).collect();
        found.show(&argv, 0);
        let command = Command { argv: &argv, stdin: &Stdin::Inherited, may_allow: true };
        found.command(&command, &Variables::default(), Mode::Plain, 0);
    }
    found.finish()
}

fn judge_patch(policy: &Policy, patch: &PatchAction) -> Evaluation {
    let objection = |path: &String| grounds::objection(&policy.grounds, &patch.base, path);
    let objections: Vec<String> = patch.paths.iter().filter_map(objection).collect();
    let Some(first) = objections.first() else {
        return if patch.paths.is_empty() && policy.grounds.write_roots.is_empty() {
            forbidden("the sandbox is read-only")
        } else {
            allowed("its paths lie in the writable folders")
        };
    };
    forbidden(&match objections.len() {
        1 => first.clone(),
        _ if objections.iter().all(|one| one == first) => first.clone(),
        many => format!("{first}, and {} more", many - 1),
    })
}

fn allowed(reason: &str) -> Evaluation {
    Evaluation {
        decision: Decision::Allow,
        requirement: Requirement::Skip,
        reason: reason.to_owned(),
        evidence: Vec::new(),
        commands: Vec::new(),
        opaque: None,
    }
}

fn forbidden(reason: &str) -> Evaluation {
    Evaluation {
        decision: Decision::Forbidden,
        requirement: Requirement::Forbidden { reason: reason.to_owned() },
        ..allowed(reason)
    }
}

/// How a command is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// As it stands: everything counts.
    Plain,
    /// As one of its other readings: only what asks or forbids counts.
    Reading,
}

/// A command about to be judged.
struct Command<'a> {
    argv: &'a [Arg],
    stdin: &'a Stdin,
    /// Whether an allow rule may speak of it: false with assignments that change what programs do
    /// and with redirects that write where nobody said.
    may_allow: bool,
}

/// What was found so far.
struct Found<'a> {
    policy: &'a Policy,
    home: Option<&'a str>,
    /// Folders that a command may run in: the first, and those that `cd` names.
    cwds: Vec<PathBuf>,
    evidence: Vec<(Decision, Evidence)>,
    commands: Vec<JudgedCommand>,
    /// Place in `commands` of the command that is looked at.
    current: Option<usize>,
    opaque: Vec<String>,
    /// Commands that no rule speaks of.
    unmatched: Vec<String>,
    judged: usize,
}

impl<'a> Found<'a> {
    fn new(policy: &'a Policy, exec: &'a Exec) -> Self {
        Self {
            policy,
            home: exec.env.get("HOME").map(String::as_str).filter(|home| !home.is_empty()),
            cwds: vec![exec.cwd.clone()],
            evidence: Vec::new(),
            commands: Vec::new(),
            current: None,
            opaque: Vec::new(),
            unmatched: Vec::new(),
            judged: 0,
        }
    }

    fn opaque(&mut self, why: String) {
        if let Some(current) = self.current.and_then(|at| self.commands.get_mut(at))
            && current.opaque.len() < 16
            && !current.opaque.contains(&why)
        {
            current.opaque.push(why.clone());
        }
        if self.opaque.len() < 16 && !self.opaque.contains(&why) {
            self.opaque.push(why);
        }
    }

    /// Judges every command of a shell text.
    fn text(&mut self, text: &str, variables: Variables, mode: Mode, depth: usize) {
        if depth > MAX_WRAPPERS {
            self.opaque(format!("shell texts are nested more than {MAX_WRAPPERS} deep"));
            return;
        }
        let script = read(text, variables);
        if mode == Mode::Plain {
            for fault in &script.faults {
                self.opaque(fault.clone());
            }
        }
        let is_readable = script.faults.is_empty();
        if let Some(danger) = dangerous::of_script(&script) {
            self.danger(danger);
        }
        for simple in &script.commands {
            self.simple(simple, &script.variables, mode, depth, is_readable);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one private step of `text`")]
    fn simple(
        &mut self,
        simple: &Simple,
        variables: &Variables,
        mode: Mode,
        depth: usize,
        is_readable: bool,
    ) {
        self.current = None;
        for danger in simple.redirects.iter().filter_map(dangerous::of_redirect) {
            self.danger(danger);
        }
        for assignment in simple.assignments.iter().filter(|one| names_command(&one.name)) {
            if let Some(text) = assignment.value.known() {
                self.text(&text, variables.clone(), mode, depth + 1);
            }
        }
        if simple.words.is_empty() {
            return;
        }
        let Readings { plain, others, is_cut } = readings(&simple.words, variables);
        let may_allow = is_readable
            && simple.assignments.iter().all(|one| !changes_programs(&one.name))
            && simple.redirects.iter().all(|redirect| self.is_plain_redirect(redirect));
        if mode == Mode::Plain {
            self.show(&plain, depth);
            if is_cut {
                self.opaque(format!("`{}` has too many readings", shorten(&simple.words)));
            }
        }
        let command = Command { argv: &plain, stdin: &simple.stdin, may_allow };
        self.command(&command, variables, mode, depth);
        for argv in &others {
            let command = Command { argv, stdin: &simple.stdin, may_allow: false };
            self.command(&command, variables, Mode::Reading, depth);
        }
    }

    /// Judges one command and what it starts.
    fn command(&mut self, command: &Command<'_>, variables: &Variables, mode: Mode, depth: usize) {
        let Some(program) = command.argv.first() else { return };
        self.judged += 1;
        if self.judged > MAX_JUDGED || depth > MAX_WRAPPERS {
            self.opaque("too many commands within each other".to_owned());
            return;
        }
        let is_matched = self.rules(command, mode);
        let place = Place { cwds: &self.cwds, home: self.home, grounds: &self.policy.grounds };
        if let Some(danger) = dangerous::of_command(command.argv, &place) {
            self.danger(danger);
        }
        let inner = look_through(command.argv, command.stdin);
        let is_seen_through = !inner.is_empty() && is_transparent(&program.text);
        if mode == Mode::Plain {
            if program.certain().is_none() {
                self.opaque(format!("the program `{}` isn't known before it runs", program.text));
            }
            if !is_matched && !is_seen_through {
                self.unmatched.push(program.text.clone());
            }
        }
        let current = self.current;
        for one in inner {
            self.current = current;
            match one {
                Inner::Command(argv) => {
                    if mode == Mode::Plain {
                        self.show(&argv, depth + 1);
                    }
                    let inside = Command { argv: &argv, ..*command };
                    self.command(&inside, variables, mode, depth + 1);
                }
                Inner::Text { text, parameters } => {
                    self.text(&text, with_parameters(variables, &parameters), mode, depth + 1);
                }
                Inner::Opaque(why) if mode == Mode::Plain => self.opaque(why),
                Inner::Opaque(_) => {}
            }
        }
        self.current = current;
        self.follow_cd(command.argv);
    }

    /// Holds the rules against one command. Returns whether any speaks of it.
    fn rules(&mut self, command: &Command<'_>, mode: Mode) -> bool {
        let rules = self.policy.rules.clone();
        let mut is_matched = false;
        for rule in &rules.prefix {
            let is_allow = rule.decision == Decision::Allow;
            if is_allow && (mode == Mode::Reading || !command.may_allow) {
                continue;
            }
            match match_rule(&rules, rule, command.argv, self.home) {
                Match::Possible if mode == Mode::Plain => self.opaque(format!(
                    "`{}` may come to match {} of {}",
                    shorten_args(command.argv),
                    rule.pattern_text(),
                    rule.origin.reference()
                )),
                Match::Possible | Match::None => {}
                Match::Sure(matched) => {
                    is_matched = true;
                    self.evidence(
                        rule.decision,
                        Evidence {
                            rule: rule.origin.reference(),
                            decision: rule.decision.name().to_owned(),
                            matched,
                            justification: rule.justification.clone(),
                        },
                    );
                }
            }
        }
        is_matched
    }

    fn danger(&mut self, danger: Danger) {
        self.evidence(
            Decision::Forbidden,
            Evidence {
                rule: format!("built-in:{}", danger.name),
                decision: Decision::Forbidden.name().to_owned(),
                matched: danger.words,
                justification: Some(danger.why.to_owned()),
            },
        );
    }

    fn evidence(&mut self, decision: Decision, one: Evidence) {
        if let Some(current) = self.current.and_then(|at| self.commands.get_mut(at))
            && !current.evidence.contains(&one)
        {
            current.decision = current.decision.max(Some(decision));
            current.evidence.push(one.clone());
        }
        // What forbids is never crowded out by what allows.
        let is_kept = self.evidence.len() < MAX_SHOWN
            || !self.evidence.iter().any(|(known, _)| *known >= decision);
        if is_kept && !self.evidence.iter().any(|(_, known)| *known == one) {
            self.evidence.push((decision, one));
        }
    }

    fn show(&mut self, argv: &[Arg], depth: usize) {
        self.current = None;
        if self.commands.len() < MAX_SHOWN && !argv.is_empty() {
            let words = argv.iter().take(MAX_SHOWN);
            self.current = Some(self.commands.len());
            self.commands.push(JudgedCommand {
                depth,
                words: words.map(|arg| crate::text::clip(&arg.text, MAX_WORD)).collect(),
                decision: None,
                evidence: Vec::new(),
                opaque: Vec::new(),
            });
        }
    }

    /// Later commands may run where a `cd` goes.
    fn follow_cd(&mut self, argv: &[Arg]) {
        let Some("cd" | "pushd") = argv.first().and_then(Arg::certain) else { return };
        let target = argv.iter().skip(1).find(|arg| !arg.text.starts_with('-'));
        let target = match (target, self.home) {
            (Some(target), home) => match (target.certain(), home) {
                (Some(text), Some(home)) if text == "~" || text.starts_with("~/") => {
                    format!("{home}{}", &text[1..])
                }
                (Some(text), _) => text.to_owned(),
                (None, Some(home)) if target.text.trim_matches('"').starts_with("$HOME") => {
                    format!("{home}{}", &target.text.trim_matches('"')["$HOME".len()..])
                }
                (None, _) => return,
            },
            (None, Some(home)) => home.to_owned(),
            (None, None) => return,
        };
        let next: Vec<PathBuf> = self.cwds.iter().map(|cwd| resolve(cwd, &target)).collect();
        for cwd in next {
            if self.cwds.len() < 16 && !self.cwds.contains(&cwd) {
                self.cwds.push(cwd);
            }
        }
    }

    /// Whether a redirect leaves a command plain: it reads, copies a descriptor, throws output
    /// away, or writes beneath a writable folder where nothing is protected.
    fn is_plain_redirect(&self, redirect: &super::shell::Redirect) -> bool {
        if !redirect.operator.contains('>') {
            return true;
        }
        let Some(target) = redirect.target.known() else { return false };
        let is_descriptor = redirect.operator.contains('&')
            && (target == "-" || target.chars().all(|c| c.is_ascii_digit()));
        let is_stream = ["/dev/null", "/dev/stdout", "/dev/stderr"].contains(&target.as_str());
        let cwd = self.cwds.first().map_or(Path::new("/"), PathBuf::as_path);
        let path = resolve(cwd, &target);
        is_descriptor
            || is_stream
            || grounds::objection(
                &self.policy.grounds,
                &self.policy.grounds.workspace,
                &path.to_string_lossy(),
            )
            .is_none()
    }

    /// Adds everything up.
    fn finish(self) -> (Evaluation, Vec<JudgedCommand>) {
        let Self { policy, evidence, commands, opaque, unmatched, .. } = self;
        let from_opaque = match policy.opaque {
            _ if opaque.is_empty() => Decision::Allow,
            Opaque::Sandbox => Decision::Allow,
            Opaque::Prompt => Decision::Prompt,
            Opaque::Forbidden => Decision::Forbidden,
        };
        let from_unmatched = if unmatched.is_empty() { Decision::Allow } else { policy.unmatched };
        let from_rules = evidence.iter().map(|(decision, _)| *decision).max();
        let decision = from_rules.unwrap_or(Decision::Allow).max(from_opaque).max(from_unmatched);
        let reason = if decision == Decision::Allow {
            match (opaque.first(), unmatched.is_empty(), evidence.first()) {
                (Some(why), ..) => format!("{why}; confined"),
                (None, true, Some((_, first))) => format!("allowed by {}", first.rule),
                (None, ..) => "no rule; confined".to_owned(),
            }
        } else if from_rules == Some(decision) {
            let strictest = evidence.iter().find(|(one, _)| *one == decision);
            strictest.map_or_else(String::new, |(_, one)| word(one))
        } else if from_opaque == decision {
            let why = opaque.first().map_or("", String::as_str);
            format!("{why}; write the command out, so that it can be judged")
        } else {
            format!("no rule allows `{}`", unmatched.first().map_or("", String::as_str))
        };
        let requirement = match decision {
            Decision::Allow => Requirement::Skip,
            Decision::Prompt => Requirement::NeedsApproval { reason: reason.clone() },
            Decision::Forbidden => Requirement::Forbidden { reason: reason.clone() },
        };
        let evaluation = Evaluation {
            decision,
            requirement,
            reason,
            evidence: evidence.into_iter().map(|(_, one)| one).collect(),
            commands: commands.iter().map(|command| command.words.clone()).collect(),
            opaque: (!opaque.is_empty()).then(|| opaque.join("; ")),
        };
        (evaluation, commands)
    }
}

/// A match in words: what, by which rule, and why or what instead.
fn word(evidence: &Evidence) -> String {
    let command = crate::text::clip(&rules::join(&evidence.matched), MAX_WORD);
    match &evidence.justification {
        Some(why) => format!("`{command}` ({}): {why}", evidence.rule),
        None => format!("`{command}` ({})", evidence.rule),
    }
}

fn shorten(words: &[Word]) -> String {
    let raw: Vec<&str> = words.iter().map(|word| word.raw.as_str()).collect();
    crate::text::clip(&raw.join(" "), 80)
}

fn shorten_args(argv: &[Arg]) -> String {
    let words: Vec<&str> = argv.iter().map(|arg| arg.text.as_str()).collect();
    crate::text::clip(&words.join(" "), 80)
}
