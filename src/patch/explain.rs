//! Errors that a model can repair: what was expected, what stands there, what to do next.
//!
//! In: why a hunk has no place. Out: bounded text. Knows nothing of paths.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::place::Misplaced;
use super::seek::{Index, MatchLevel, key};
use super::{Hunk, HunkLine};
use crate::text::clip;

/// Bytes of one error, at most; our choice.
const BYTES: usize = 4_000;

/// Characters of a quoted line before and after the place of interest; our choice.
const AROUND: usize = 70;

/// Places that are listed; our choice.
const LISTED: usize = 8;

/// Places of one line that may vote for a candidate; lines with more say little. Our choice.
const VOTES: usize = 64;

/// Lines that are compared by likeness when no line is equal; our choice.
const COMPARED: usize = 20_000;

/// Returns `text` with invisible characters as escapes: `\t`, `\r`, `\u{a0}`, and blanks at the
/// end as `\x20`.
pub fn visible(text: &str) -> String {
    let kept = text.trim_end_matches(' ');
    let mut out = String::with_capacity(text.len());
    for c in kept.chars() {
        let invisible = matches!(c,
            '\u{a0}' | '\u{ad}' | '\u{2000}'..='\u{200f}' | '\u{2010}'..='\u{201f}'
            | '\u{2026}' | '\u{2028}'..='\u{202f}' | '\u{2032}' | '\u{2033}' | '\u{205f}'..='\u{206f}'
            | '\u{2212}' | '\u{3000}' | '\u{fe58}' | '\u{fe63}' | '\u{feff}' | '\u{ff0d}' | '\u{fffd}');
        match c {
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || invisible => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    for _ in kept.len()..text.len() {
        out.push_str("\\x20");
    }
    out
}

/// Says why a hunk has no place.
pub(super) fn misplaced(index: &Index<'_>, hunks: &[Hunk], why: &Misplaced) -> String {
    let total = hunks.len();
    let name = |number: usize| {
        let line = hunks.get(number).map_or(0, |hunk| hunk.line);
        format!("hunk {} of {total} (line {line} of the patch)", number + 1)
    };
    let text = match why {
        Misplaced::Nowhere { hunk, from } => {
            let detail = hunks.get(*hunk).map(|hunk| nowhere(index, hunk, *from));
            format!("{} does not match; {}", name(*hunk), detail.unwrap_or_default())
        }
        Misplaced::Before { hunk, places, from } => format!(
            "{} matches only at {}, but the hunk before it ends at line {from}; \
             put the hunks in the order of the file, without overlap",
            name(*hunk),
            list(places)
        ),
        Misplaced::NotAtEnd { hunk, places } => format!(
            "{} has `*** End of File`, but matches only before the end, at {} of {} lines; \
             leave the marker out, or name the last lines of the file",
            name(*hunk),
            list(places),
            index.lines.len()
        ),
        Misplaced::NoContext { hunk, context } => {
            let context = hunks
                .get(*hunk)
                .and_then(|hunk| hunk.contexts.get(*context))
                .map(|c| c.text.as_str());
            let context = context.unwrap_or_default();
            let like = alike(index, context).map_or_else(String::new, |line| {
                format!("; the most similar is line {}: `{}`", line + 1, shown(index, line, 0))
            });
            format!(
                "{}: no line of the file is, or starts with, `{}`{like}; \
                 write a whole line of the file after `@@`, or leave it out",
                name(*hunk),
                window(context, 0)
            )
        }
        Misplaced::Many { hunk, places, len } => {
            // A hunk without old lines goes before its place, so its context is the line above.
            let (what, places) = if *len == 0 {
                let above = places.iter().map(|place| place.saturating_sub(1)).collect();
                ("its context stands", above)
            } else {
                ("its old lines stand", places.clone())
            };
            format!(
                "{} has more than one place: {what} at {}; \
                 add unchanged lines before or after, or a line `@@ LINE` that stands above the right one",
                name(*hunk),
                list(&places)
            )
        }
    };
    clip(&text, BYTES)
}

fn list(places: &[usize]) -> String {
    let mut out = String::from(if places.len() == 1 { "line " } else { "lines " });
    for (number, place) in places.iter().take(LISTED).enumerate() {
        if number > 0 {
            out.push_str(", ");
        }
        out.push_str(&(place + 1).to_string());
    }
    if places.len() > LISTED {
        let _ = write!(out, " and {} more", places.len() - LISTED);
    }
    out
}

fn nowhere(index: &Index<'_>, hunk: &Hunk, from: usize) -> String {
    let old: Vec<&str> = hunk.old_lines().collect();
    if index.lines.len() == 0 {
        return "the file is empty; use lines that start with `+` only".to_owned();
    }
    if index.lines.len() == 1 && index.lines.text(0).contains(&b'\r') {
        return "the lines of the file end in carriage returns alone, so that it is one line here; \
                convert its line endings first"
            .to_owned();
    }
    let Some(start) = best_place(index, &old, from) else {
        let first = old.iter().find(|line| !line.trim().is_empty()).copied().unwrap_or_default();
        return format!("no line of the file is like `{}`; read the file again", window(first, 0));
    };
    let mut out = compare(index, &old, start);
    if already_there(index, hunk) {
        out.push_str("; the lines that it adds are already in the file: it may be applied already");
    }
    out
}

/// Describes the first line in which `old` differs from the file at `start`.
fn compare(index: &Index<'_>, old: &[&str], start: usize) -> String {
    let lines = &index.lines;
    let same = |offset: usize| {
        lines.len() > start + offset
            && key(MatchLevel::Normalised, lines.text(start + offset))
                == key(MatchLevel::Normalised, old[offset].as_bytes())
    };
    let equal = (0..old.len()).filter(|&offset| same(offset)).count();
    let first = (0..old.len()).find(|&offset| !same(offset)).unwrap_or(0);
    let at = start + first;
    let mut out = format!(
        "the closest place is line {} ({equal} of {} lines are equal)",
        start + 1,
        old.len()
    );
    if at >= lines.len() {
        let _ = write!(
            out,
            ", where the file ends before line {} of the hunk's old lines\nexpected: `{}`\nfound:    the end of the file",
            first + 1,
            window(old[first], 0)
        );
    } else {
        let found = String::from_utf8_lossy(lines.text(at));
        let common = old[first].chars().zip(found.chars()).take_while(|(a, b)| a == b).count();
        let _ = write!(
            out,
            "; the first difference is at line {} of the file, character {}\nexpected: `{}`\nfound:    `{}`",
            at + 1,
            common + 1,
            window(old[first], common),
            window(&found, common)
        );
    }
    let end = (start + old.len()).min(lines.len());
    let which = if end <= start + 1 {
        format!("line {end}")
    } else {
        format!("lines {} to {end}", start + 1)
    };
    let _ = write!(
        out,
        "\nread {which} of the file and send the hunk again with the lines as they are"
    );
    out
}

/// The start that most lines of `old` agree on.
fn best_place(index: &Index<'_>, old: &[&str], from: usize) -> Option<usize> {
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for (offset, line) in old.iter().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let places = index.line(line, MatchLevel::Normalised);
        if places.len() > VOTES {
            continue;
        }
        for start in places.iter().filter_map(|place| place.checked_sub(offset)) {
            *votes.entry(start).or_default() += 1;
        }
    }
    let winner = votes
        .into_iter()
        // Most votes, then after the hunk before, then first in the file.
        .max_by_key(|&(start, count)| (count, start >= from, std::cmp::Reverse(start)))
        .map(|(start, _)| start);
    winner.or_else(|| {
        let (offset, line) = old.iter().enumerate().max_by_key(|(_, line)| line.trim().len())?;
        Some(alike(index, line)?.saturating_sub(offset))
    })
}

/// The line of the file that is most like `text`, if one is like it at all.
fn alike(index: &Index<'_>, text: &str) -> Option<usize> {
    let wanted = pairs(text.trim().as_bytes());
    if wanted.is_empty() {
        return None;
    }
    (0..index.lines.len().min(COMPARED))
        .filter_map(|line| {
            let found = pairs(index.lines.text(line).trim_ascii());
            let shared: usize = wanted
                .iter()
                .map(|(pair, count)| (*count).min(found.get(pair).copied().unwrap_or(0)))
                .sum();
            let all: usize = wanted.values().sum::<usize>() + found.values().sum::<usize>();
            // At least half of the byte pairs in common.
            (shared * 4 >= all).then(|| (shared * 2_000 / all.max(1), line))
        })
        .max_by_key(|&(score, line)| (score, std::cmp::Reverse(line)))
        .map(|(_, line)| line)
}

fn pairs(text: &[u8]) -> HashMap<[u8; 2], usize> {
    let mut out = HashMap::new();
    for pair in text[..text.len().min(400)].windows(2) {
        *out.entry([pair[0], pair[1]]).or_default() += 1;
    }
    out
}

/// Whether the hunk's new lines stand in the file as they are.
fn already_there(index: &Index<'_>, hunk: &Hunk) -> bool {
    let new: Vec<&str> = hunk
        .lines
        .iter()
        .filter_map(|line| match line {
            HunkLine::Keep(text) | HunkLine::Add(text) => Some(text.as_str()),
            HunkLine::Remove(_) => None,
        })
        .collect();
    hunk.lines.iter().any(|line| matches!(line, HunkLine::Add(_)))
        && !index.find(&new, MatchLevel::Normalised, 0).is_empty()
}

fn shown(index: &Index<'_>, line: usize, at: usize) -> String {
    window(&String::from_utf8_lossy(index.lines.text(line)), at)
}

/// The characters of `text` around character `at`, invisible ones as escapes.
fn window(text: &str, at: usize) -> String {
    let start = at.saturating_sub(AROUND);
    let mut out = String::new();
    if start > 0 {
        out.push('…');
    }
    let part: String = text.chars().skip(start).take(2 * AROUND).collect();
    let more = text.chars().nth(start + 2 * AROUND).is_some();
    out.push_str(&visible(&part));
    if more {
        out.push('…');
    }
    out
}
