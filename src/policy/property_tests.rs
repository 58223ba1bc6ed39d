//! Properties: no text panics, and no rewriting of a forbidden command makes it allowed.

use proptest::prelude::*;
use proptest::sample::select;

use super::table_tests::{action, policy};
use super::{Decision, Policy};

const RULES: &str = "prefix_rule(pattern = [\"git\", \"push\"], decision = \"forbidden\")\n\
                     prefix_rule(pattern = [[\"id\", \"whoami\"]], decision = \"forbidden\")\n\
                     prefix_rule(pattern = [\"rm\", \"-rf\"], decision = \"forbidden\")\n\
                     prefix_rule(pattern = [[\"echo\", \"true\", \"env\", \"ls\", \"cat\"]])\n";

fn decision(policy: &Policy, text: &str) -> Decision {
    policy.evaluate(&action(text)).decision
}

/// One way to write the same command differently. `@` stands for the command.
const REWRITINGS: [&str; 62] = [
    "@;",
    "@ &",
    "@ # c",
    "(@)",
    "( @ )",
    "{ @; }",
    "! @",
    "@ > /dev/null",
    "@ 2>&1 >x",
    "> x @",
    "2>&1 @",
    "@ <<< x",
    "@ < /dev/null",
    "@ <<E\nE\n",
    "cat <<E\n$(@)\nE",
    "A=1 @",
    "A=1 B=2 @",
    "env @",
    "env -i A=1 @",
    "command @",
    "exec @",
    "eval @",
    "time @",
    "time -p @",
    "nohup @",
    "nice -n 1 @",
    "timeout 5 @",
    "timeout -k 1 5s @",
    "stdbuf -o0 @",
    "setsid @",
    "sudo @",
    "sudo -u x @",
    "doas @",
    "busybox @",
    "xargs @",
    "find . -exec @ \\;",
    "echo $(@)",
    "echo \"$(@)\"",
    "echo `@`",
    "cat <(@)",
    "x=$(@)",
    "true && @",
    "false || @",
    "true; @",
    "true | @",
    "@ | cat",
    "true\n@",
    "\n\n@\n",
    "if @; then :; fi",
    "if true; then @; fi",
    "while @; do :; done",
    "for i in 1; do @; done",
    "case x in x) @;; esac",
    "f() { @; }; f",
    "function f { @; }",
    "coproc @",
    "[[ -n $(@) ]]",
    "echo ${x:-$(@)}",
    "echo $((1 + $(@)))",
    "# c\n@",
    "echo 'a\nb'; @",
    "cat <<'E'\nx\nE\n@",
];

fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn hex_escapes(word: &str) -> String {
    let digits = crate::text::hex(word.as_bytes());
    digits.chars().enumerate().fold(String::new(), |mut out, (at, digit)| {
        out.push_str(if at % 2 == 0 { "\\x" } else { "" });
        out.push(digit);
        out
    })
}

/// Rewrites how one word is spelled.
fn respell(word: &str, how: u8) -> String {
    match how % 8 {
        0 => word.to_owned(),
        1 => format!("'{word}'"),
        2 => format!("\"{word}\""),
        3 => word.chars().flat_map(|c| ['\\', c]).collect(),
        4 => format!("{}\\\n{}", &word[..1], &word[1..]),
        5 => format!("$'{}'", hex_escapes(word)),
        6 => format!("{}''{}", &word[..1], &word[1..]),
        _ => format!("{}$@{}", &word[..1], &word[1..]),
    }
}

fn forbidden_commands() -> impl Strategy<Value = Vec<&'static str>> {
    select(vec![
        vec!["git", "push"],
        vec!["git", "-C", "x", "push", "--force"],
        vec!["/usr/bin/git", "--no-pager", "push"],
        vec!["id"],
        vec!["whoami", "-x"],
        vec!["rm", "-rf", "a"],
        vec!["rm", "-r", "-f", "a"],
        vec!["rm", "a", "-fr"],
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let policy = policy(RULES);
        let _: Decision = decision(&policy, &text);
    }

    #[test]
    fn no_shell_like_text_panics(
        pieces in prop::collection::vec(select(vec![
            "(", ")", "((", "))", "{", "}", "$(", "${", "`", "'", "\"", "\\", "<<E", "\nE\n", "\n",
            ";", ";;", "&", "&&", "|", "||", "<", ">", "<(", "if", "then", "fi", "for", "in", "do",
            "done", "case", "esac", "[[", "]]", "x", "git", "push", " ", " ", "=", "x=(", "$x", "*",
            "{a,b}", "{1..9}", "#", "!", "function", "coproc", "time", "$'", "eval", "bash -c", "é",
        ]), 0..60),
    ) {
        let policy = policy(RULES);
        let _: Decision = decision(&policy, &pieces.concat());
        let _: Decision = decision(&policy, &pieces.join(" "));
    }

    #[test]
    fn p2_no_rewriting_makes_a_forbidden_command_allowed(
        words in forbidden_commands(),
        spellings in prop::collection::vec(0_u8..8, 5),
        rewritings in prop::collection::vec(select(REWRITINGS.to_vec()), 0..3),
        shells in 0_u8..3,
    ) {
        let policy = policy(RULES);
        let mut text: String = words
            .iter()
            .zip(&spellings)
            .map(|(word, how)| respell(word, *how))
            .collect::<Vec<_>>()
            .join(" ");
        prop_assert_eq!(decision(&policy, &text), Decision::Forbidden, "{}", text);
        for rewriting in rewritings {
            // A wrapper takes a command, not a compound or an assignment: those go into a shell.
            // `eval` joins its words, so it gets one.
            let inner = if rewriting == "eval @" {
                single_quoted(&text)
            } else if !rewriting.starts_with('@') {
                format!("bash -c {}", single_quoted(&text))
            } else {
                format!("{{ {text}\n}}")
            };
            text = rewriting.replace('@', &inner);
            prop_assert_eq!(decision(&policy, &text), Decision::Forbidden, "{}", text);
        }
        for _ in 0..shells {
            text = format!("sh -c {}", single_quoted(&text));
        }
        prop_assert_eq!(decision(&policy, &text), Decision::Forbidden, "{}", text);
    }
}

#[test]
fn p2_each_rewriting_of_each_spelling_stays_forbidden() {
    let policy = policy(RULES);
    for rewriting in REWRITINGS {
        for command in ["git push", "'git' -C x \"push\"", "\\id", "rm -fr x"] {
            let text = rewriting.replace('@', command);
            assert_eq!(decision(&policy, &text), Decision::Forbidden, "{text}");
        }
    }
}
