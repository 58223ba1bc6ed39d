use super::{Readings, Script, Variables, readings};

fn read(text: &str) -> Script {
    super::read(text, Variables::default())
}

fn commands(text: &str) -> Vec<String> {
    let script = read(text);
    assert_eq!(script.faults, Vec::<String>::new(), "{text}");
    script
        .commands
        .iter()
        .filter(|command| !command.words.is_empty())
        .map(|command| {
            let Readings { plain, .. } = readings(&command.words, &script.variables);
            plain.into_iter().map(|arg| arg.text).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

#[test]
fn every_simple_command_is_found() {
    for (text, expected) in [
        ("a; b && c || d | e |& f & g\nh", "a/b/c/d/e/f/g/h"),
        ("(a); { b; }; (c; (d))", "a/b/c/d"),
        ("if a; then b; elif c; then d; else e; fi", "a/b/c/d/e"),
        ("while a; do b; done; until c; do d; done", "a/b/c/d"),
        ("for x in 1 2; do a $x; done; for ((i=0;i<3;i++)); do b; done", "a $x/b"),
        ("case $x in a|b) c;; (d) e;& *) f;; esac; g", "c/e/f/g"),
        ("f() { a; }; function g { b; }; function h() (c)", "a/b/c"),
        ("a $(b \"$(c)\") `d \\`e\\`` <(f) >(g)", "c/b $(c)/"),
        ("! a; time b; time { c; }; time -p (d); coproc e; coproc N { f; }", "a/time b/c/d/e/f"),
        ("a > /dev/null; > log b; 2>&1 c d >e; { f; } >> g", "a/b/c d/f"),
        ("a # b\n# c\nd#e", "a/d#e"),
        ("cat <<E; a\nb $(c)\nE\nd", "cat/a/c/d"),
        ("cat <<'E' | a\nb $(c)\nE\nd", "cat/a/d"),
        ("cat <<-E <<F\n\tx\n\tE\ny\nF\na", "cat/a"),
        ("a \\\n  b; c\\\nd", "a b/cd"),
        ("'a' \"b\" \\c $'\\x64\\145' $\"f\"", "a b c de f"),
        ("[[ -n $(a) && ( x =~ ^(b|c)$ || y < z ) ]] && d", "a/d"),
        ("(( x = 1 + (2 << 1) )) || a; echo $((1 + $(b)))", "a/b/echo $((1 + $(b)))"),
        ("((a); b); $((c); (d))", "a/b/c/d/$((c); (d))"),
        ("x=1 y+=2 a[1]=3 b; z=(1 $(c)); d", "b/c/d"),
        ("{a,b}{c,d} {1..3} x{y}z", "ac ad bc bd 1 2 3 x{y}z"),
        ("a;b&c\n\n\n", "a/b/c"),
        ("!(a)", "a"),
        ("echo ${x:-$(a)} \"${y:-it's $(b)}\"", "a/b/echo ${x:-$(a)} \"${y:-it's $(b)}\""),
        ("if (a) then b; fi", "a/b"),
        ("a 2>b 3<c &>d <<<e {fd}>f g", "a g"),
    ] {
        let found = commands(text);
        let expected: Vec<&str> = expected.split('/').collect();
        if text.contains("`d") {
            assert_eq!(found.len(), 7, "{found:?}");
            continue;
        }
        let found: Vec<String> = found.join("/").split('/').map(ToOwned::to_owned).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn faults_are_said_and_what_follows_is_still_found() {
    for text in ["a; fi; b", "a 'x; b", "(a; b", "a && ; b", "a; echo $(b", "if a; b", "a ) b"] {
        let script = read(text);
        assert!(!script.faults.is_empty(), "{text}");
        let names: Vec<String> =
            script.commands.iter().filter_map(|c| c.words.first()?.known()).collect();
        assert!(names.contains(&"b".to_owned()), "{text}: {names:?}");
    }
}

#[test]
fn depth_and_size_are_bounded() {
    for text in [
        format!("{}git push", "(".repeat(5_000)),
        format!("{}git push", "$(".repeat(5_000)),
        format!("{}git push", "$((".repeat(5_000)),
        format!("{}git push", "\"$(".repeat(5_000)),
        format!("{}git push", "${x:-".repeat(5_000)),
        format!("{}git push", "if ".repeat(5_000)),
        format!("git push; {}", "a;".repeat(200_000)),
        format!("{}git push", "`".repeat(5_001)),
        format!("git push; {}", "{a,b}".repeat(500)),
    ] {
        let script = read(&text);
        let name = text.get(..12).unwrap_or("");
        assert!(
            script.commands.iter().any(|command| command
                .words
                .iter()
                .filter_map(super::Word::known)
                .eq(["git", "push"])),
            "{name}"
        );
    }
}

#[test]
fn readings_put_in_what_the_text_sets() {
    let script = read("g=git; p=pu; p+=sh; $g $@ ${p} $(echo x) ${q:-y} a\"$z\"b");
    let command = script.commands.last().unwrap();
    let readings = readings(&command.words, &script.variables);
    let texts: Vec<String> = readings
        .others
        .iter()
        .map(|reading| reading.iter().map(|arg| arg.text.as_str()).collect::<Vec<_>>().join(" "))
        .collect();
    assert!(texts.contains(&"git push x y ab".to_owned()), "{texts:?}");
    assert!(texts.contains(&"ab".to_owned()), "{texts:?}");
}

/// Names of commands that a second parser finds, as far as they are plain words.
fn second_opinion(text: &str) -> Option<Vec<String>> {
    let mut parser = tree_sitter::Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).unwrap();
    let tree = parser.parse(text, None)?;
    // It ends a word where a line is continued.
    if tree.root_node().has_error() || text.contains("\\\n") {
        return None;
    }
    let mut names = Vec::new();
    let mut open = vec![tree.root_node()];
    while let Some(node) = open.pop() {
        if node.kind() == "command_name"
            && node.named_child(0).is_some_and(|word| word.kind() == "word")
        {
            let name = &text[node.byte_range()];
            if !name.contains(['\\', '{', '*', '?', '[']) {
                names.push(name.to_owned());
            }
        }
        let mut cursor = node.walk();
        open.extend(node.children(&mut cursor));
    }
    Some(names)
}

/// What the second parser finds and this one doesn't, but for reserved words that it takes for
/// commands.
fn missed(text: &str) -> Vec<String> {
    let found: Vec<String> =
        read(text).commands.iter().filter_map(|command| command.words.first()?.known()).collect();
    let mut missed = second_opinion(text).unwrap_or_default();
    let reserved = ["coproc", "time", "if", "then", "fi", "for", "do", "done", "}"];
    missed.retain(|name| !found.contains(name) && !reserved.contains(&name.as_str()));
    missed
}

#[derive(serde::Deserialize)]
struct Table {
    rows: Vec<(String, String, String)>,
}

#[test]
fn a_second_parser_finds_no_command_that_this_one_misses() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/policy");
    let mut compared = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let table: Table = serde_yaml::from_str(&text).unwrap();
        for (text, ..) in &table.rows {
            compared += usize::from(second_opinion(text).is_some());
            assert_eq!(missed(text), Vec::<String>::new(), "{text}");
        }
    }
    assert!(compared > 250, "{compared}");
}
