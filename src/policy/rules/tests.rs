use super::{RuleSet, load};
use crate::policy::{Decision, RuleSource};

fn source(text: &str) -> Vec<RuleSource> {
    vec![RuleSource { name: "a.rules".to_owned(), text: text.to_owned() }]
}

fn loaded(text: &str) -> RuleSet {
    load(&source(text)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn files_of_users_load() {
    let rules = loaded(
        r#"
TOOLS = ["rg", "fd"]

def deny(name, why = "no"):
    prefix_rule(pattern = [name], decision = "forbidden", justification = why)

for tool in TOOLS:
    prefix_rule([tool], "allow")
[deny(x) for x in ["a", "b"] if x != "b"]
if len(TOOLS) > 1:
    deny(f"{TOOLS[0]}x", why = "%s" % "y")
prefix_rule(
    pattern = ("git", ("log", "show")),
    match = [["git", "log"], "git show 'a b'"],
    not_match = ["git push"],
)
host_executable(name = "git", paths = ["/usr/bin/git", "~/bin/git", "/usr/bin/git"])
network_rule(host = "Example.com.", protocol = "https_connect", decision = "deny")
network_rule(host = "[::1]:80", protocol = "socks5_udp", decision = "prompt", justification = "x")
"#,
    );
    let patterns: Vec<String> = rules.prefix.iter().map(super::PrefixRule::pattern_text).collect();
    assert_eq!(
        patterns,
        ["[\"rg\"]", "[\"fd\"]", "[\"a\"]", "[\"rgx\"]", "[\"git\", [\"log\", \"show\"]]"]
    );
    assert_eq!(rules.prefix[3].justification.as_deref(), Some("y"));
    assert_eq!(rules.prefix[4].origin.reference(), "a.rules:12");
    assert_eq!(rules.prefix[4].decision, Decision::Allow);
    assert_eq!(rules.hosts[0].paths, ["/usr/bin/git", "~/bin/git"]);
    assert_eq!(
        (rules.network[0].host.as_str(), rules.network[1].host.as_str()),
        ("example.com", "::1")
    );
    assert_eq!(rules.network[0].decision, Decision::Forbidden);
    assert_eq!(rules.network[0].protocol, "https");
}

#[test]
fn the_published_policies_load_with_their_examples() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rules") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let rules = loaded(&text);
        for rule in &rules.prefix {
            assert!(!rule.matching.is_empty(), "{}", rule.origin.reference());
            let asks = rule.decision != Decision::Allow;
            assert!(!asks || rule.justification.is_some(), "{}", rule.origin.reference());
        }
        count += 1;
    }
    assert_eq!(count, 3);
}

fn complains(rows: &[(&str, &str, &str)]) {
    for (text, place, message) in rows {
        let error = load(&source(text)).unwrap_err();
        let said = error.to_string();
        assert!(!said.contains("unknown") && !said.contains("Traceback"), "{said}");
        let (head, _) = said.split_once('\n').unwrap_or((&said, ""));
        let wanted = if place.is_empty() { "a.rules: " } else { &format!("a.rules:{place}: ") };
        assert!(head.starts_with(wanted), "{text}\n{said}");
        assert!(message.is_empty() || head.ends_with(&format!(": {message}")), "{text}\n{said}");
    }
}

#[test]
fn complaints_name_place_and_remedy() {
    complains(&[
        ("\n  \nnosuch(1)", "3:1", "variable `nosuch` not found"),
        ("x = 1\nprefix_rule(pattern = [)", "2:24", ""),
        ("load('x', 'y')", "1:1", ""),
        ("print('x')", "1:1", "variable `print` not found, did you mean `int`?"),
        ("prefix_rule()", "1:1", ""),
        ("prefix_rule(pattern = ['a'], nosuch = 1)", "1:1", ""),
        (
            "x = [\n  prefix_rule(pattern = [])]",
            "2:3",
            "`pattern` must have at least one word, got `[]`",
        ),
        ("prefix_rule(pattern = 'a')", "1:1", "`pattern` must be a list of words, got `\"a\"`"),
        (
            "prefix_rule(pattern = [1])",
            "1:1",
            "an element of `pattern` must be a string or a list of strings, got `1`",
        ),
        (
            "prefix_rule(pattern = ['a', []])",
            "1:1",
            "a list of alternatives in `pattern` must have at least one word, got `[]`",
        ),
        (
            "prefix_rule(pattern = ['a'], decision = 'Allow')",
            "1:1",
            "`decision` must be `allow`, `prompt` or `forbidden`, got `Allow`",
        ),
        (
            "prefix_rule(pattern = ['a'], justification = ' ')",
            "1:1",
            "`justification` must say something when it is given, got an empty string",
        ),
        (
            "prefix_rule(pattern = ['a'], match = 'a')",
            "1:1",
            "`match` must be a list of commands, got `\"a\"`",
        ),
        (
            "prefix_rule(pattern = ['a'], match = [\"a 'b\"])",
            "1:1",
            "an example in `match` must be one command with closed quotes, got `a 'b`",
        ),
        (
            "prefix_rule(pattern = ['a'], match = [''])",
            "1:1",
            "an example in `match` must have at least one word",
        ),
        (
            "prefix_rule(pattern = ['tmux capture-pane'], match = ['tmux capture-pane'])",
            "1:1",
            "example `tmux capture-pane` of `match` must match [\"tmux capture-pane\"], and doesn't",
        ),
        (
            "prefix_rule(pattern = ['a'], not_match = [['a', 'b c']])",
            "1:1",
            "example `a 'b c'` of `not_match` must not match [\"a\"], and does",
        ),
    ]);
}

#[test]
fn complaints_about_hosts_and_limits_name_place_and_remedy() {
    complains(&[
        (
            "host_executable(name = '/usr/bin/git', paths = [])",
            "1:1",
            "`name` must be the bare name of a program, got `/usr/bin/git`",
        ),
        (
            "host_executable(name = 'git', paths = ['git'])",
            "1:1",
            "a path in `paths` must be absolute or begin with `~/`, got `git`",
        ),
        (
            "host_executable(name = 'git', paths = ['/usr/bin/hg'])",
            "1:1",
            "a path in `paths` must end in `/git`, got `/usr/bin/hg`",
        ),
        (
            "network_rule(host = '*.a', protocol = 'http', decision = 'allow')",
            "1:1",
            "`host` must be one host, without wildcards, got `*.a`",
        ),
        (
            "network_rule(host = 'http://a', protocol = 'http', decision = 'allow')",
            "1:1",
            "`host` must be a host name or an IP address without scheme or path, got `http://a`",
        ),
        (
            "network_rule(host = 'a', protocol = 'ftp', decision = 'allow')",
            "1:1",
            "`protocol` must be one of `http`, `https`, `socks5_tcp`, `socks5_udp`, got `ftp`",
        ),
        ("fail('Not here')", "1:1", "not here"),
        ("def f():\n  f()\nf()", "2:3", "calls are nested more than 50 deep"),
        (
            "def f(n):\n  for x in range(n):\n    pass\nf(100000000)",
            "",
            "evaluation takes more than 2000000 calls and loop iterations",
        ),
        (
            "x = []\nfor y in range(1000000):\n  x.append('a%d' % y * 100)",
            "",
            "evaluation takes more than 67108864 bytes",
        ),
    ]);
}

#[test]
fn a_complaint_shows_the_line() {
    let error = load(&source("x = 1\nif x:\n  prefix_rule(pattern = [])\n")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a.rules:3:3: `pattern` must have at least one word, got `[]`\n   |\n 3 |   prefix_rule(pattern = [])\n   |   ^"
    );
    let error = load(&source(&"#".repeat((1 << 20) + 1))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a.rules: a rule file has at most 1048576 bytes, this one has 1048577"
    );
}

#[test]
fn deep_text_is_refused_and_not_a_crash() {
    for text in [
        "[".repeat(100_000),
        format!("x = {}1", "-".repeat(100_000)),
        format!("x = {}1", "not ".repeat(100_000)),
        format!("x = 1{}", " + 1".repeat(3_000)),
        format!("x = {}{}", "[".repeat(60), "]".repeat(60)),
        format!("x = {}1", "-".repeat(3_900)),
        format!("x = {}1", "lambda: ".repeat(1_500)),
        format!("if 1:\n  pass\n{}", "elif 1:\n  pass\n".repeat(490)),
    ] {
        // Whatever the answer is, there is one.
        drop(load(&source(&text)));
    }
}
