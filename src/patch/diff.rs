//! Unified diffs of changes whose lines are known.
//!
//! In: old bytes and changed ranges. Out: a diff in git's form that `git apply` takes, and takes
//! back. Knows nothing of files. No difference is searched for: the hunks said where they are.

use std::fmt::Write as _;

use super::apply::Change;

/// Unchanged lines around a change.
const AROUND: usize = 3;

/// One side of a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side<'a> {
    /// Path relative to the root of the tree, with `/`.
    pub path: &'a str,
    /// Whether the file can be executed.
    pub executable: bool,
}

/// Returns the unified diff from `old`, the bytes at `from`, to the file at `to`.
///
/// A missing side is a file that isn't there: with `from` absent the file is new, with `to` absent
/// it is deleted. `changes` are in order and don't overlap. Returns nothing if nothing changes.
pub fn unified(
    from: Option<Side<'_>>,
    to: Option<Side<'_>>,
    old: &[u8],
    changes: &[Change],
) -> Vec<u8> {
    let Some(named) = to.or(from) else { return Vec::new() };
    let (old_path, new_path) = (from.unwrap_or(named).path, to.unwrap_or(named).path);
    if from == to && changes.is_empty() {
        return Vec::new();
    }
    let mut out = format!("diff --git {} {}\n", quoted("a/", old_path), quoted("b/", new_path));
    let mode = |side: Side<'_>| if side.executable { "100755" } else { "100644" };
    match (from, to) {
        (None, Some(side)) => {
            let _ = writeln!(out, "new file mode {}", mode(side));
        }
        (Some(side), None) => {
            let _ = writeln!(out, "deleted file mode {}", mode(side));
        }
        (Some(old), Some(new)) => {
            if old.executable != new.executable {
                let _ = writeln!(out, "old mode {}\nnew mode {}", mode(old), mode(new));
            }
            if old_path != new_path {
                let (from, to) = (quoted("", old_path), quoted("", new_path));
                let _ = writeln!(out, "rename from {from}\nrename to {to}");
            }
        }
        (None, None) => {}
    }
    let mut out = out.into_bytes();
    if changes.is_empty() {
        return out;
    }
    let head = |side: Option<Side<'_>>, prefix: &str| {
        side.map_or_else(|| "/dev/null".to_owned(), |side| quoted(prefix, side.path))
    };
    out.extend(format!("--- {}\n+++ {}\n", head(from, "a/"), head(to, "b/")).bytes());
    let lines: Vec<&[u8]> = old.split_inclusive(|&byte| byte == b'\n').collect();
    let mut shift = 0;
    let mut rest = changes;
    while !rest.is_empty() {
        let near = rest
            .windows(2)
            .take_while(|pair| pair[1].old.start - pair[0].old.end <= 2 * AROUND)
            .count();
        let (group, after) = rest.split_at(near + 1);
        shift = hunk(&lines, group, shift, &mut out);
        rest = after;
    }
    out
}

/// Writes one hunk; returns the new difference between new and old line numbers.
fn hunk(lines: &[&[u8]], group: &[Change], shift: isize, out: &mut Vec<u8>) -> isize {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return shift };
    let start = first.old.start.saturating_sub(AROUND);
    let end = (last.old.end + AROUND).min(lines.len());
    let added: usize = group.iter().map(|change| change.new.len()).sum();
    let removed: usize = group.iter().map(|change| change.old.len()).sum();
    let (old_len, new_len) = (end - start, end - start + added - removed);
    let number = |len: usize, start: usize| if len == 0 { start } else { start + 1 };
    out.extend(
        format!(
            "@@ -{},{old_len} +{},{new_len} @@\n",
            number(old_len, start),
            number(new_len, start.saturating_add_signed(shift)),
        )
        .bytes(),
    );
    let mut at = start;
    for change in group {
        for line in &lines[at..change.old.start] {
            push(b' ', line, out);
        }
        for line in &lines[change.old.clone()] {
            push(b'-', line, out);
        }
        for line in &change.new {
            push(b'+', line, out);
        }
        at = change.old.end;
    }
    for line in &lines[at..end] {
        push(b' ', line, out);
    }
    shift.saturating_add_unsigned(added).saturating_sub_unsigned(removed)
}

fn push(prefix: u8, line: &[u8], out: &mut Vec<u8>) {
    out.push(prefix);
    out.extend_from_slice(line);
    if !line.ends_with(b"\n") {
        out.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
}

/// The path as git writes it: in C quotes if it has quotes, backslashes, or bytes that are not
/// printable ASCII.
fn quoted(prefix: &str, path: &str) -> String {
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
    if path.bytes().all(plain) {
        return format!("{prefix}{path}");
    }
    let mut out = format!("\"{prefix}");
    for byte in path.bytes() {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            byte if plain(byte) => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push('"');
    out
}
