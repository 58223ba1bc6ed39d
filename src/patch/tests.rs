//! Tests of the pure part that need no files: chunks, shell text, random edits, sizes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::shell::{Extracted, extract};
use super::*;

#[test]
fn the_text_can_be_cut_anywhere() {
    let text = "```\n*** Begin Patch\r\n*** Add File: ä.txt\n+ö\n+\n*** Update File: b\n*** Move to: c\n\
                @@ fn x\n@@ -1,2 +1,2 @@ y\n a\n-b\n+c\n\n*** End of File\n*** Delete File: d\n*** End Patch\n```\n";
    let whole = parse(text).unwrap();
    assert_eq!(whole.paths(), ["ä.txt", "b", "c", "d"]);
    for at in 0..=text.len() {
        let mut parser = Parser::new();
        parser.push(&text.as_bytes()[..at]);
        parser.push(&text.as_bytes()[at..]);
        assert_eq!(parser.progress(), Progress { edits: 3, added: 3, removed: 1 });
        assert_eq!(parser.finish().unwrap(), whole, "cut at byte {at}");
    }
    let mut parser = Parser::new();
    for byte in text.bytes() {
        parser.push(&[byte]);
    }
    assert_eq!(parser.finish().unwrap(), whole);
}

#[test]
fn progress_is_known_before_the_end() {
    let mut parser = Parser::new();
    parser.push(b"*** Begin Patch\n*** Add File: a\n+1\n+2\n*** Upd");
    assert_eq!(parser.progress(), Progress { edits: 1, added: 2, removed: 0 });
    parser.push(b"ate File: b\n@@\n-1\n");
    assert_eq!(parser.progress(), Progress { edits: 2, added: 2, removed: 1 });
    let error = parser.finish().unwrap_err();
    assert_eq!(error.to_string(), "line 8: expected `*** End Patch`, found the end of the text");
}

#[test]
fn hunks_as_data() {
    let text = "*** Begin Patch\n*** Update File: a\n@@ class A:\n@@   def f():\n x\n-y\n+z\n*** End of File\n*** End Patch";
    let patch = parse(text).unwrap();
    let EditKind::Update { to: None, hunks } = &patch.edits[0].kind else { panic!("{patch:?}") };
    let context = |text: &str| Context { text: text.to_owned(), hint: false };
    assert_eq!(
        hunks[..],
        [Hunk {
            line: 3,
            contexts: vec![context("class A:"), context("  def f():")],
            lines: vec![
                HunkLine::Keep("x".to_owned()),
                HunkLine::Remove("y".to_owned()),
                HunkLine::Add("z".to_owned())
            ],
            end_of_file: true,
        }]
    );
}

#[test]
fn shell_text_that_is_a_patch() {
    let patch = "*** Begin Patch\n*** Delete File: it's\n*** End Patch\n";
    let body = patch.replace('\'', "'\\''");
    let quoted = patch.replace('\'', "'\"'\"'");
    for (text, cd) in [
        (format!("apply_patch <<'EOF'\n{patch}EOF\n"), None),
        (format!("apply_patch <<'EOF'\n{patch}EOF"), None),
        (format!("  apply_patch << \"PATCH\"  \n{patch}PATCH\n\n"), None),
        (format!("applypatch <<EOF\n{patch}EOF\n"), None),
        (format!("apply_patch<<'E'\n{patch}E"), None),
        (format!("cd sub/dir && apply_patch <<'EOF'\n{patch}EOF\n"), Some("sub/dir")),
        (format!("cd 'my dir' &&\napply_patch <<'EOF'\n{patch}EOF\n"), Some("my dir")),
        (format!("cd my\\ dir&&apply_patch <<'EOF'\n{patch}EOF\n"), Some("my dir")),
        (format!("apply_patch '{body}'"), None),
        (format!("apply_patch '{quoted}'\n"), None),
        (format!("apply_patch \"{patch}\""), None),
        (format!("cd /a/b && apply_patch '{body}'"), Some("/a/b")),
    ] {
        let wanted = Extracted { patch: patch.to_owned(), cd: cd.map(str::to_owned) };
        assert_eq!(extract(&text), Some(wanted), "{text}");
    }
}

/// P2: what is more than a patch is judged as shell text.
#[test]
fn p2_shell_text_that_is_more_than_a_patch() {
    let patch = "*** Begin Patch\n*** Add File: a\n+$(id)\n*** End Patch\n";
    for text in [
        format!("apply_patch <<'EOF'\n{patch}EOF\nrm -rf x\n"),
        format!("apply_patch <<'EOF' && id\n{patch}EOF\n"),
        format!("apply_patch <<'EOF'; id\n{patch}EOF\n"),
        format!("apply_patch <<'EOF' > out\n{patch}EOF\n"),
        format!("apply_patch <<EOF\n{patch}EOF\n"),
        format!("apply_patch <<-'EOF'\n{patch}EOF\n"),
        format!("apply_patch <<<'{patch}'"),
        format!("apply_patch <<'EOF'\n{patch}"),
        format!("id; apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("cd a; apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("cd a || apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("cd $HOME && apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("cd ~ && apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("cd - && apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("cd && apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("cd a b && apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("cd `id` && apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("cd a && cd b && apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("X=1 apply_patch <<'EOF'\n{patch}EOF\n"),
        format!("apply_patch \"{patch}\""),
        format!("apply_patch '{patch}' && id"),
        format!("apply_patch '{patch}' &"),
        format!("apply_patch $'{patch}'"),
        "apply_patch patch.txt".to_owned(),
        "apply_patch".to_owned(),
        "apply_patches <<'EOF'\nEOF\n".to_owned(),
        "cat <<'EOF'\nEOF\n".to_owned(),
        String::new(),
    ] {
        assert_eq!(extract(&text), None, "{text}");
    }
}

#[test]
fn invisible_characters_are_shown() {
    assert_eq!(
        visible("a\tb\r \u{a0}\u{200b}“x”  "),
        "a\\tb\\r \\u{a0}\\u{200b}\\u{201c}x\\u{201d}\\x20\\x20"
    );
}

fn hunk(lines: Vec<HunkLine>) -> Hunk {
    Hunk { line: 1, lines, ..Hunk::default() }
}

#[test]
fn a_large_file_with_many_hunks_is_read_once() {
    let line = |number: usize| format!("line {number} {}", "x".repeat(90));
    let file: String = (0..100_000).map(|number| line(number) + "\n}\n").collect();
    let hunks: Vec<Hunk> = (0..1_000)
        .map(|number| {
            hunk(vec![
                HunkLine::Keep("}".to_owned()),
                HunkLine::Remove(line(number * 100 + 7)),
                HunkLine::Add("new".to_owned()),
                HunkLine::Keep("}".to_owned()),
            ])
        })
        .collect();
    let clock = crate::clock::Clock::start();
    let applied = apply(file.as_bytes(), &hunks).unwrap();
    assert_eq!(applied.changes.len(), 1_000);
    // Repeated lines everywhere are the worst case of a naive search.
    let same = "}\n".repeat(100_000);
    let pattern = hunk(vec![HunkLine::Remove("}".to_owned()); 20_000]);
    let error = apply(same.as_bytes(), &[pattern]).unwrap_err().to_string();
    assert!(error.contains("80001 more") || error.contains("and 79993 more"), "{error}");
    let took = clock.elapsed();
    assert!(took < std::time::Duration::from_secs(10), "{took:?} without optimisation");
}

#[test]
fn errors_are_bounded() {
    let long = "ä\t".repeat(50_000);
    let file = format!("{long}\n").repeat(3);
    let wanted = HunkLine::Remove(format!("{long}x"));
    for lines in [vec![wanted.clone()], vec![wanted; 500]] {
        let error = apply(file.as_bytes(), &[hunk(lines)]).unwrap_err().to_string();
        assert!(error.len() <= 4096, "{} bytes", error.len());
    }
}

/// A line of a file: content that a patch can name, and an ending.
fn any_line() -> impl Strategy<Value = (String, bool)> {
    let content = prop_oneof![
        "[ab]{0,2}",
        "[ \t]{0,3}[a-c{}]{0,4}[ \t]{0,2}",
        "[a-z\u{e4}\u{2011}\u{a0}\u{2028}\u{c}]{0,8}",
        Just("*** End Patch".to_owned()),
        Just("@@".to_owned()),
    ];
    (content, any::<bool>())
}

/// Lines with whether they end in CRLF; for each line, and the end, whether it goes and what is
/// added before it; whether the last line is open; whether there is a byte order mark.
type Edited = (Vec<(String, bool)>, Vec<(bool, Vec<String>)>, bool, bool);

/// What happens to each line, and what comes before it.
fn any_edit() -> impl Strategy<Value = Edited> {
    proptest::collection::vec(any_line(), 0..30).prop_flat_map(|lines| {
        let count = lines.len() + 1;
        let added = proptest::collection::vec("[a-z +@*-]{0,6}", 0..3);
        let edits = proptest::collection::vec((prop::bool::weighted(0.2), added), count);
        (Just(lines), edits, any::<bool>(), any::<bool>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// P7: one hunk over the whole file is exact, so the result is known without the code under
    /// test: kept lines to the byte, added lines where they were put.
    #[test]
    fn p7_a_random_edit_applies_exactly((lines, edits, open, bom) in any_edit()) {
        let mut file = String::from(if bom { "\u{feff}" } else { "" });
        for (number, (content, crlf)) in lines.iter().enumerate() {
            file.push_str(content);
            if !(open && number + 1 == lines.len()) || content.is_empty() {
                file.push_str(if *crlf { "\r\n" } else { "\n" });
            }
        }
        let mut body = String::from("*** Begin Patch\n*** Update File: f\n@@\n");
        let mut wanted = Vec::new();
        for (number, (removed, added)) in edits.iter().enumerate() {
            for line in added {
                let _ = writeln!(body, "+{line}");
                wanted.push(line.clone());
            }
            if let Some((content, _)) = lines.get(number) {
                let _ = writeln!(body, "{}{content}", if *removed { '-' } else { ' ' });
                if !removed {
                    wanted.push(content.clone());
                }
            }
        }
        body.push_str("*** End Patch\n");
        let patch = parse(&body);
        // Without any line there is no hunk.
        prop_assume!(!lines.is_empty() || !wanted.is_empty());
        let patch = patch.unwrap();
        let existing = Existing { bytes: file.clone().into_bytes(), executable: false };
        let files = BTreeMap::from([("f".to_owned(), existing)]);
        let staged = stage(&patch, &files, &Rules::default()).unwrap();
        let new = staged.files[0].new.clone().unwrap();
        let text = String::from_utf8(new.clone()).unwrap();
        let text = if let Some(rest) = text.strip_prefix('\u{feff}') {
            prop_assert!(bom);
            rest
        } else {
            prop_assert!(!bom);
            text.as_str()
        };
        let found: Vec<&str> = text
            .split_inclusive('\n')
            .map(|line| line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line)))
            .collect();
        // In a file without a final newline an added empty last line is that newline.
        if open && wanted.last().is_some_and(String::is_empty) && found.len() < wanted.len() {
            wanted.pop();
        }
        prop_assert_eq!(found, wanted);
        // Kept lines keep their endings: a line that is in both with another ending was rewritten.
        prop_assert_eq!(undo(&staged.diff, &new), file.into_bytes());
    }

    /// No text panics, whatever it is.
    #[test]
    fn any_text_is_parsed_or_refused(text in "(\\*\\*\\* (Begin Patch|End Patch|Add File: a|Update File: b|Move to: c|Delete File: d|End of File)|@@( -1 \\+1 @@)?| |\\+|-|x|\\r|```|<<'E'|E|\u{feff}|\\PC|\n){0,40}") {
        if let Ok(patch) = parse(&text) {
            let files = BTreeMap::from(["b", "d"].map(|key| {
                (key.to_owned(), Existing { bytes: b"x\n\nx\r\ny".to_vec(), executable: true })
            }));
            drop(stage(&patch, &files, &Rules { overwrite: true, ..Rules::default() }));
        }
        drop(extract(&text));
    }

    /// No file panics, whatever its bytes.
    #[test]
    fn any_file_is_changed_or_refused(file in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(0u8), Just(b'a'), any::<u8>()], 0..200), old in "[a\\r\\t ]{0,3}", end in any::<bool>()) {
        let lines = vec![HunkLine::Remove(old.clone()), HunkLine::Add("b".to_owned()), HunkLine::Keep(old)];
        let hunk = Hunk { end_of_file: end, ..hunk(lines) };
        if let Err(error) = apply(&file, &[hunk]) {
            prop_assert!(error.to_string().len() <= 4096);
        }
    }
}

/// Takes a diff of one file back: reads it as text, knows nothing of how it was made.
fn undo(diff: &[u8], new: &[u8]) -> Vec<u8> {
    if diff.is_empty() {
        return new.to_vec();
    }
    let new: Vec<&[u8]> = new.split_inclusive(|&byte| byte == b'\n').collect();
    let mut out: Vec<u8> = Vec::new();
    let mut at = 0;
    let mut lines = diff.split_inclusive(|&byte| byte == b'\n').skip(3).peekable();
    while let Some(line) = lines.next() {
        if line.starts_with(b"@@ ") {
            let head = std::str::from_utf8(line).unwrap();
            let range = head.split(' ').nth(2).unwrap().trim_start_matches('+');
            let (start, len) = range.split_once(',').unwrap();
            let start: usize = start.parse().unwrap();
            let start = if len == "0" { start } else { start - 1 };
            for line in &new[at..start] {
                out.extend_from_slice(line);
            }
            at = start;
            continue;
        }
        let open = lines.peek().is_some_and(|next| next.starts_with(b"\\"));
        let content = if open { &line[1..line.len() - 1] } else { &line[1..] };
        match line[0] {
            b' ' => {
                assert_eq!(content, new[at]);
                out.extend_from_slice(content);
                at += 1;
            }
            b'+' => {
                assert_eq!(content, new[at]);
                at += 1;
            }
            b'-' => out.extend_from_slice(content),
            b'\\' => {}
            other => panic!("{other}"),
        }
    }
    for line in &new[at..] {
        out.extend_from_slice(line);
    }
    out
}
