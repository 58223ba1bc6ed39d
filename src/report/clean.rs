//! Clean text: what a model or a tool wrote, made harmless for each output format.
//!
//! In: any text. Out: text that is shown as text: no escape sequences, no markup, no commands to a
//! CI system. Pure.

/// Drops terminal escape sequences, control characters but tab and newline, characters that XML
/// 1.0 forbids, and marks that turn the direction of text; line ends become `\n`.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\u{9b}' => skip_sequence(&mut chars),
            '\r' => {
                if chars.peek() != Some(&'\n') {
                    out.push('\n');
                }
            }
            '\n' | '\t' => out.push(c),
            c if c.is_control() || is_hidden(c) => {}
            c => out.push(c),
        }
    }
    out
}

/// Characters that XML forbids, and marks that turn the direction of text.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{fffe}'
            | '\u{ffff}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{061c}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Skips what follows an escape character: a sequence (`ESC [`), a string (`ESC ]`, `P`, `X`, `^`,
/// `_`) up to its end, or one character.
fn skip_escape(chars: &mut Chars<'_>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_sequence(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            // An unfinished string ends with its line, so that it can't swallow the rest.
            while let Some(&c) = chars.peek() {
                if c == '\n' {
                    return;
                }
                chars.next();
                if c == '\u{7}' || c == '\u{9c}' {
                    return;
                }
                if c == '\u{1b}' {
                    chars.next_if_eq(&'\\');
                    return;
                }
            }
        }
        Some(c) if *c != '\n' && *c != '\u{1b}' => {
            chars.next();
        }
        _ => {}
    }
}

/// Skips parameters and the final character of a control sequence.
fn skip_sequence(chars: &mut Chars<'_>) {
    while chars.next_if(|c| matches!(c, '\u{20}'..='\u{3f}')).is_some() {}
    chars.next_if(|c| matches!(c, '\u{40}'..='\u{7e}'));
}

/// One line of plain text of at most `most` bytes; inner line ends become blanks.
pub fn line(text: &str, most: usize) -> String {
    let plain = plain(text);
    let words: Vec<&str> = plain.split(['\n', '\t']).map(str::trim).collect();
    let joined = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    crate::text::clip(&joined, most)
}

/// `text`, head and tail within `most` bytes, with the number of bytes left out.
pub fn middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = crate::text::floor_char_boundary(text, most / 2);
    let tail = crate::text::ceil_char_boundary(text, text.len() - most / 2);
    format!("{}\n… {} bytes omitted …\n{}", &text[..head], tail - head, &text[tail..])
}

/// `count` with its noun: `1 call`, `2 calls`.
pub fn count(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Text for an XML document that test reports are read from: plain, and without what ends a CDATA
/// section or commands the reader to attach files or set properties.
pub fn xml(text: &str) -> String {
    let mut out = plain(text).replace("]]>", "]] >");
    for word in ["ATTACHMENT", "PROPERTY"] {
        out = break_brackets(&out, word);
    }
    out
}

/// Puts a blank between the brackets of `[[WORD`, in any case.
fn break_brackets(text: &str, word: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("[[") {
        let after = &rest[at + 2..];
        let next = after.trim_start();
        let is_command =
            next.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        out.push_str(&rest[..=at]);
        if is_command {
            out.push(' ');
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out
}

/// Text for the log of a CI job: plain, and without commands to the CI system: `::name::` at the
/// start of a line, and `##[name]`, `##vso[`, `##teamcity[` anywhere.
pub fn log(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (index, line) in plain(text).split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let indent = line.len() - line.trim_start().len();
        out.push_str(&line[..indent]);
        let rest = &line[indent..];
        let rest = match rest.strip_prefix("::") {
            Some(after) => format!(": :{after}"),
            None => rest.to_owned(),
        };
        out.push_str(&break_hashes(&rest));
    }
    out
}

/// Puts a blank between the hashes of `##[`, `##vso[`, `##teamcity[` and the like; headings stay.
fn break_hashes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("##") {
        let after = rest[at + 2..].trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        out.push_str(&rest[..=at]);
        if after.starts_with('[') {
            out.push(' ');
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out
}

/// Untrusted text within a line of Markdown, tables included: a code span, which knows no images,
/// links, mentions or HTML. At most `most` bytes of it.
pub fn code_span(text: &str, most: usize) -> String {
    // A pipe would end the table's cell, also inside a code span.
    let text = log(&line(text, most)).replace('|', "¦");
    if text.is_empty() {
        return "–".to_owned();
    }
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    // Blanks beside the fence are dropped by the reader, one on each side.
    format!("{fence} {text} {fence}")
}

/// Untrusted text as a block of Markdown: fenced code, whose fence the text can't contain.
pub fn code_block(text: &str) -> String {
    let text = log(text);
    let fence = "`".repeat((longest_run(&text, '`') + 1).max(3));
    let text = text.trim_end_matches('\n');
    format!("{fence}text\n{text}\n{fence}\n")
}

fn longest_run(text: &str, of: char) -> usize {
    text.split(|c| c != of).map(str::len).max().unwrap_or(0) / of.len_utf8()
}

#[cfg(test)]
mod tests {
    use super::{code_block, code_span, line, log, middle, plain, xml};

    #[test]
    fn clipping_keeps_head_and_tail_and_says_what_is_gone() {
        assert_eq!(middle("abc", 3), "abc");
        assert_eq!(middle("aäöüz", 4), "a\n… 6 bytes omitted …\nz");
        assert_eq!(middle("abcdef", 4), "ab\n… 2 bytes omitted …\nef");
    }

    #[test]
    fn escape_sequences_and_controls_are_dropped() {
        for (text, expected) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("\u{1b}]8;;http://a\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}[?2004h$ ", "$ "),
            ("\u{1b}]unfinished\nkept", "\nkept"),
            ("\u{9b}1mx", "x"),
            ("a\0b\u{7}c\u{8}\u{7f}", "abc"),
            ("1\r\n2\r3", "1\n2\n3"),
            ("\u{202e}evil\u{2066}", "evil"),
            ("\u{fffe}\u{ffff}é😀", "é😀"),
            ("\u{1b}", ""),
        ] {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }

    #[test]
    fn xml_text_holds_no_commands_to_its_readers() {
        for (text, expected) in [
            ("a]]>b", "a]] >b"),
            ("]\u{1b}[0m]>", "]] >"),
            ("[[ATTACHMENT|/etc/passwd]]", "[ [ATTACHMENT|/etc/passwd]]"),
            ("[[ attachment|x]]", "[ [ attachment|x]]"),
            ("[[\0PROPERTY|a=b]]", "[ [PROPERTY|a=b]]"),
            ("[[[PROPERTY|", "[[ [PROPERTY|"),
            ("if [[ -f x ]]; then", "if [[ -f x ]]; then"),
        ] {
            assert_eq!(xml(text), expected, "{text:?}");
        }
    }

    #[test]
    fn log_text_holds_no_workflow_commands() {
        for (text, expected) in [
            ("::error::x", ": :error::x"),
            ("ok\n  ::set-output name=a::b", "ok\n  : :set-output name=a::b"),
            ("\u{1b}[0m::stop-commands::t", ": :stop-commands::t"),
            ("a\r::debug::x", "a\n: :debug::x"),
            ("x ##[error]y ##vso[task]", "x # #[error]y # #vso[task]"),
            ("std::fs::read", "std::fs::read"),
            ("## Heading", "## Heading"),
            ("###[warning]", "## #[warning]"),
        ] {
            assert_eq!(log(text), expected, "{text:?}");
        }
    }

    #[test]
    fn markdown_text_stays_inside_its_code() {
        assert_eq!(code_span("![x](http://a/b)", 99), "` ![x](http://a/b) `");
        assert_eq!(code_span("a``b|c\nd", 99), "``` a``b¦c d ```");
        assert_eq!(code_span(" \n", 99), "–");
        assert_eq!(code_block("x\n```\n<img>\n"), "````text\nx\n```\n<img>\n````\n");
        assert_eq!(line("a\n\n b\tc", 99), "a b c");
    }
}
