use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::table_tests::{grounds, policy};
use super::{
    Action, Decision, Evaluation, Exec, Grounds, InputAction, Opaque, PatchAction, Policy, Reader,
    Requirement, RuleSource,
};

const RULES: &str = "prefix_rule(pattern = [\"git\", \"push\"], decision = \"forbidden\")\n";

fn exec(argv: &[&str]) -> Exec {
    Exec {
        program: PathBuf::from("/usr/bin").join(argv[0]),
        argv: argv.iter().map(|&word| word.to_owned()).collect(),
        cwd: PathBuf::from("/work/tree"),
        env: BTreeMap::new(),
        shell_text: None,
    }
}

fn patch(grounds: Grounds, paths: &[&str]) -> Evaluation {
    let policy = Policy::load(&[], Opaque::Sandbox, grounds).unwrap();
    policy.evaluate(&Action::Patch(PatchAction {
        exec: exec(&["horseman", "patch"]),
        text: String::new(),
        base: PathBuf::from("/work/tree"),
        paths: paths.iter().map(|&path| path.to_owned()).collect(),
    }))
}

fn input(text: &str, reader: Reader, opaque: Opaque) -> Evaluation {
    let policy = Policy { opaque, ..policy(RULES) };
    let exec = exec(&["bash"]);
    policy.evaluate(&Action::Input(InputAction {
        session: 1,
        pending: String::new(),
        text: text.to_owned(),
        reader,
        exec,
    }))
}

#[test]
fn p2_a_patch_stays_in_the_writable_folders() {
    let inside = patch(grounds(), &["src/a.rs", "/work/tree/b", "/tmp/x"]);
    assert_eq!((inside.decision, inside.requirement), (Decision::Allow, Requirement::Skip));
    let outside = patch(grounds(), &["a", "../b"]);
    assert_eq!(outside.decision, Decision::Forbidden);
    assert_eq!(outside.reason, "`../b` is outside of the writable folders `/work/tree`, `/tmp`");
    let protected = patch(grounds(), &["a/../.GIT/hooks/pre-commit", "/etc/x"]);
    assert_eq!(protected.reason, "`a/../.GIT/hooks/pre-commit` is protected by `.git`, and 1 more");
    let none = Grounds { write_roots: Vec::new(), ..grounds() };
    for paths in [&["a"][..], &["a", "b"], &[]] {
        let read_only = patch(none.clone(), paths);
        assert_eq!(read_only.decision, Decision::Forbidden);
        assert_eq!(read_only.reason, "the sandbox is read-only");
    }
}

#[test]
fn p2_input_is_judged_by_what_reads_it() {
    for (text, reader, opaque, decision) in [
        ("git push\n", Reader::Shell, Opaque::Sandbox, Decision::Forbidden),
        ("gi\0t push\n", Reader::Shell, Opaque::Sandbox, Decision::Forbidden),
        ("make\n", Reader::Shell, Opaque::Forbidden, Decision::Allow),
        ("git push\n", Reader::Program, Opaque::Forbidden, Decision::Allow),
        ("git push\n", Reader::Interpreter, Opaque::Sandbox, Decision::Allow),
        ("print(1)\n", Reader::Interpreter, Opaque::Prompt, Decision::Prompt),
        ("print(1)\n", Reader::Interpreter, Opaque::Forbidden, Decision::Forbidden),
    ] {
        let evaluation = input(text, reader, opaque);
        assert_eq!(evaluation.decision, decision, "{text:?} {reader:?} {opaque:?}");
        assert_eq!(evaluation.opaque.is_some(), reader == Reader::Interpreter);
    }
}

#[test]
fn an_argv_is_judged_without_a_shell() {
    let policy = policy(RULES);
    for (argv, decision) in [
        (&["git", "push"][..], Decision::Forbidden),
        (&["env", "A=1", "git", "-C", "x", "push"], Decision::Forbidden),
        (&["bash", "-c", "git push"], Decision::Forbidden),
        (&["echo", "git push"], Decision::Allow),
        (&["echo", "$(git push)"], Decision::Allow),
    ] {
        let evaluation = policy.evaluate(&Action::Exec(exec(argv)));
        assert_eq!(evaluation.decision, decision, "{argv:?}");
    }
}

#[test]
fn the_answer_says_why_with_every_command() {
    let policy = policy(
        "prefix_rule(pattern = [\"git\", \"push\"], decision = \"prompt\", justification = \"say where\")\n\
         prefix_rule(pattern = [\"git\", \"push\", \"-f\"], decision = \"forbidden\")\n\
         prefix_rule(pattern = [\"ls\"])\n",
    );
    let judge = |text: &str| policy.evaluate(&super::table_tests::action(text));
    let found = judge("ls && env git push -f 'a b' | $X");
    assert_eq!(
        found.commands,
        [&["ls"][..], &["env", "git", "push", "-f", "a b"], &["git", "push", "-f", "a b"], &["$X"]]
    );
    assert_eq!(found.reason, "`git push -f` (t:2)");
    assert_eq!(found.requirement, Requirement::Forbidden { reason: found.reason.clone() });
    assert_eq!(found.opaque.as_deref(), Some("the program `$X` isn't known before it runs"));
    let rules: Vec<&str> = found.evidence.iter().map(|one| one.rule.as_str()).collect();
    assert_eq!(rules, ["t:3", "t:1", "t:2"]);
    assert_eq!(judge("git push").reason, "`git push` (t:1): say where");
    assert_eq!(
        judge("git push").requirement,
        Requirement::NeedsApproval { reason: "`git push` (t:1): say where".to_owned() }
    );
    assert_eq!(judge("make").reason, "no rule; confined");
    assert_eq!(judge("ls").reason, "allowed by t:3");
    assert_eq!(judge("ls; make").reason, "no rule; confined");
}

#[test]
fn a_later_file_does_not_loosen_an_earlier_one() {
    let source = |name: &str, decision: &str| RuleSource {
        name: name.to_owned(),
        text: format!("prefix_rule(pattern = [\"x\"], decision = \"{decision}\")"),
    };
    let sources = [source("a", "forbidden"), source("b", "allow")];
    let policy = Policy::load(&sources, Opaque::Sandbox, grounds()).unwrap();
    let evaluation = policy.judge(Arc::new(Action::Exec(exec(&["x"])))).evaluation().clone();
    assert_eq!(evaluation.decision, Decision::Forbidden);
    assert_eq!(evaluation.evidence.len(), 2);
}

#[test]
fn a_policy_that_is_not_understood_is_refused() {
    let bad = Grounds { protected: vec!["a[".to_owned()], ..grounds() };
    assert!(Policy::load(&[], Opaque::Sandbox, bad).is_err());
    let source = |text: &str| RuleSource { name: "a".to_owned(), text: text.to_owned() };
    let sources = [source("prefix_rule(pattern = [\"x\"])"), source("prefix_rule(")];
    assert!(Policy::load(&sources, Opaque::Sandbox, grounds()).is_err());
}
