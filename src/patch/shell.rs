//! Patches inside shell text.
//!
//! In: the text of a shell command. Out: the patch in it, if the command is nothing but an
//! `apply_patch` call. Knows nothing of running shells: whatever is not recognised whole is
//! ordinary shell text and is judged as such.

/// A patch found in shell text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extracted {
    /// Patch text as `apply_patch` would read it.
    pub patch: String,
    /// Folder of a leading `cd DIR &&`, as written after quotes are removed.
    pub cd: Option<String>,
}

/// Finds the patch in `shell_text` if the text is exactly one of these, `applypatch` included:
///
/// ```text
/// apply_patch <<'EOF'            cd DIR && apply_patch <<'EOF'        apply_patch 'PATCH'
/// PATCH                          PATCH
/// EOF                            EOF
/// ```
///
/// Returns `None` for anything more, and wherever a shell would expand something: an unquoted tag
/// with `$`, `` ` `` or `\` in the patch, a folder with `~`, `$` or a glob.
pub fn extract(shell_text: &str) -> Option<Extracted> {
    let text = shell_text.trim_start();
    let (cd, text) = match command(text, "cd") {
        Some(rest) => {
            let (folder, rest) = word(rest)?;
            // `cd -` and options name no folder.
            if folder.is_empty() || folder.starts_with('-') {
                return None;
            }
            (Some(folder), rest.trim_start_matches(BLANKS).strip_prefix("&&")?.trim_start())
        }
        None => (None, text),
    };
    let rest = command(text, "apply_patch").or_else(|| command(text, "applypatch"))?;
    let patch = if let Some(rest) = rest.strip_prefix("<<") {
        heredoc(rest)?
    } else {
        let (patch, rest) = word(rest)?;
        let is_patch = patch.trim_start().starts_with("*** Begin Patch");
        (is_patch && rest.trim().is_empty()).then_some(patch)?
    };
    Some(Extracted { patch, cd })
}

const BLANKS: [char; 2] = [' ', '\t'];

/// What follows the command `name` and its blanks.
fn command<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(name)?;
    let arguments = rest.trim_start_matches(BLANKS);
    (arguments.len() < rest.len() || arguments.starts_with("<<")).then_some(arguments)
}

/// The body of a here-document, from behind its `<<`, if nothing else is in the command.
fn heredoc(text: &str) -> Option<String> {
    let (opener, body) = text.split_once('\n')?;
    let opener = opener.trim();
    let quoted =
        ['\'', '"'].iter().find_map(|&quote| opener.strip_prefix(quote)?.strip_suffix(quote));
    let tag = quoted.unwrap_or(opener);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '!');
    if tag.is_empty() || !tag.chars().all(plain) {
        return None;
    }
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        if line.trim_end_matches(['\n', '\r']) == tag {
            let (patch, rest) = (&body[..at], &body[at + line.len()..]);
            let expands = quoted.is_none() && patch.contains(['$', '`', '\\']);
            return (rest.trim().is_empty() && !expands).then(|| patch.to_owned());
        }
        at += line.len();
    }
    None
}

/// Reads one shell word that needs no expansion; returns it without quotes, and what follows.
fn word(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut rest = text;
    loop {
        let Some(first) = rest.chars().next() else { break };
        match first {
            '\'' => {
                let (inner, after) = rest[1..].split_once('\'')?;
                out.push_str(inner);
                rest = after;
            }
            '"' => rest = double_quoted(&rest[1..], &mut out)?,
            '\\' => {
                let escaped = rest[1..].chars().next().filter(|&c| c != '\n')?;
                out.push(escaped);
                rest = &rest[1 + escaped.len_utf8()..];
            }
            c if c.is_alphanumeric() || "_-./,:@%+=".contains(c) => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
            ' ' | '\t' | '\n' | '&' => break,
            _ => return None,
        }
    }
    (rest.len() < text.len()).then_some((out, rest))
}

/// Reads to the closing `"`; returns what follows it.
fn double_quoted<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some(&text[at + 1..]),
            '$' | '`' => return None,
            '\\' => match chars.next()?.1 {
                '\n' => {}
                escaped @ ('"' | '$' | '`' | '\\') => out.push(escaped),
                other => out.extend(['\\', other]),
            },
            c => out.push(c),
        }
    }
    None
}
