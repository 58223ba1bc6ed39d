//! Old contents to new contents of one file.
//!
//! In: a file's bytes and the hunks for it. Out: its new bytes, the changed ranges, and each
//! hunk's place. Every line that a hunk keeps is written back from the file, not from the patch
//! (P7). Knows nothing of paths or other files.

use std::ops::Range;

use thiserror::Error;

use super::explain;
use super::lines::{Ending, Lines, takes_utf8, wide_encoding};
use super::place::{Spot, place};
use super::seek::{Index, MatchLevel};
use super::{Hunk, HunkLine};

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// New bytes.
    pub new: Vec<u8>,
    /// Place of each hunk, in order.
    pub hunks: Vec<Placed>,
    /// Changed lines, in order, not overlapping.
    pub changes: Vec<Change>,
}

/// Where a hunk was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// First old line, 1-based; for a hunk without old lines the line that it went before.
    pub line: usize,
    /// Number of old lines.
    pub len: usize,
    /// How sure the place is.
    pub level: MatchLevel,
}

/// Lines that others take the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Old lines, from 0; the byte order mark is part of the first.
    pub old: Range<usize>,
    /// New lines with their endings; the first line of a file with its byte order mark.
    pub new: Vec<Vec<u8>>,
}

/// Why hunks can't be applied to a file; worded for a model, without the file's name, at most
/// 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// A hunk has no place, or more than one.
    #[error("{0}")]
    Place(String),
    /// The file is in an encoding that can't be edited as lines of bytes.
    #[error(
        "the file is {0}; patches can only edit files in UTF-8 or another encoding that keeps ASCII"
    )]
    Encoding(&'static str),
    /// Text that would not be readable in the file's encoding.
    #[error("{0}")]
    Unwritable(String),
}

/// Applies `hunks` to `old`.
///
/// An added line takes the ending of the line it replaces, else of the kept line before it, else
/// of the line after it, else the file's most frequent ending, else LF. A file without a final
/// newline keeps none.
///
/// # Errors
///
/// [`ApplyError`], before anything is changed.
pub fn apply(old: &[u8], hunks: &[Hunk]) -> Result<Applied, ApplyError> {
    if hunks.is_empty() {
        return Ok(Applied { new: old.to_vec(), hunks: Vec::new(), changes: Vec::new() });
    }
    if let Some(name) = wide_encoding(old) {
        return Err(ApplyError::Encoding(name));
    }
    check_added(old, hunks)?;
    let index = Index::new(Lines::new(old));
    let spots = place(&index, hunks)
        .map_err(|why| ApplyError::Place(explain::misplaced(&index, hunks, &why)))?;
    let lines = &index.lines;
    let mut changes = Vec::new();
    for (hunk, spot) in hunks.iter().zip(&spots) {
        collect(lines, hunk, *spot, &mut changes);
    }
    close_last_line(lines, &mut changes);
    carry_bom(lines, &mut changes);
    let new = assemble(lines, &changes);
    if lines.len() == 0 && !lines.bom.is_empty() {
        // Alone, the byte order mark is the line that changes.
        for change in &mut changes {
            change.old.end = 1;
        }
    }
    let placed = |spot: &Spot| Placed { line: spot.start + 1, len: spot.len, level: spot.level };
    Ok(Applied { new, hunks: spots.iter().map(placed).collect(), changes })
}

/// Refuses text that a file in another encoding than UTF-8 can't take.
fn check_added(old: &[u8], hunks: &[Hunk]) -> Result<(), ApplyError> {
    if std::str::from_utf8(old).is_ok() {
        return Ok(());
    }
    let takes_utf8 = takes_utf8(old);
    for (number, hunk) in hunks.iter().enumerate() {
        for line in &hunk.lines {
            let HunkLine::Add(text) = line else { continue };
            let number = number + 1;
            let shown = explain::visible(text);
            if text.contains('\u{fffd}') {
                return Err(ApplyError::Unwritable(format!(
                    "hunk {number} adds `{shown}`, whose \\u{{fffd}} stands for bytes that are not UTF-8; \
                     change this file without rewriting such lines"
                )));
            }
            if !takes_utf8 && !text.is_ascii() {
                return Err(ApplyError::Unwritable(format!(
                    "hunk {number} adds `{shown}`, but the file is not UTF-8 and would get two encodings; \
                     write the line in ASCII, or convert the file first"
                )));
            }
        }
    }
    Ok(())
}

/// Adds the changes of one hunk.
fn collect(lines: &Lines<'_>, hunk: &Hunk, spot: Spot, changes: &mut Vec<Change>) {
    let mut at = spot.start;
    let mut start = at;
    let mut added: Vec<&str> = Vec::new();
    let end = spot.start + spot.len;
    for line in &hunk.lines {
        match line {
            HunkLine::Keep(_) => {
                push(lines, start..at, &mut added, changes);
                at = (at + 1).min(end);
                start = at;
            }
            HunkLine::Remove(_) => at = (at + 1).min(end),
            HunkLine::Add(text) => added.push(text),
        }
    }
    push(lines, start..at, &mut added, changes);
}

fn push(lines: &Lines<'_>, old: Range<usize>, added: &mut Vec<&str>, changes: &mut Vec<Change>) {
    let added = std::mem::take(added);
    if old.is_empty() && added.is_empty() {
        return;
    }
    let new: Vec<Vec<u8>> = added
        .iter()
        .enumerate()
        .map(|(number, text)| {
            let text = if old.start == 0 && number == 0 && !lines.bom.is_empty() {
                text.strip_prefix('\u{feff}').unwrap_or(text)
            } else {
                text
            };
            let ending = ending(lines, &old, number);
            [text.as_bytes(), ending.bytes()].concat()
        })
        .collect();
    // Changes that touch are one, so that the end of the file is looked at once.
    match changes.last_mut().filter(|last| last.old.end == old.start) {
        Some(last) => {
            last.old.end = old.end;
            last.new.extend(new);
        }
        None => changes.push(Change { old, new }),
    }
}

/// The ending of the added line `number` of a change.
fn ending(lines: &Lines<'_>, old: &Range<usize>, number: usize) -> Ending {
    let replaced = old.clone().nth(number).or_else(|| old.clone().last());
    let before = old.start.checked_sub(1);
    let after = Some(old.end).filter(|&line| line < lines.len());
    [replaced, before, after]
        .into_iter()
        .flatten()
        .map(|line| lines.ending(line))
        .find(|&ending| ending != Ending::None)
        .unwrap_or_else(|| lines.usual_ending())
}

/// Keeps the end of a file without final newline: a last line that others follow gets an ending,
/// and an added last line gets none.
fn close_last_line(lines: &Lines<'_>, changes: &mut Vec<Change>) {
    if !lines.is_open() {
        return;
    }
    let count = lines.len();
    let Some(last) = changes.last_mut().filter(|change| change.old.end == count) else { return };
    if last.new.is_empty() {
        return;
    }
    if last.old.is_empty() {
        let ending = ending(lines, &(count - 1..count), 0);
        last.new.insert(0, [lines.text(count - 1), ending.bytes()].concat());
        last.old.start = count - 1;
    }
    if let Some(line) = last.new.last_mut() {
        let cut = if line.ends_with(b"\r\n") { 2 } else { 1 };
        line.truncate(line.len().saturating_sub(cut));
    }
    // Without content and without ending it is no line: it made the one before it end.
    if last.new.last().is_some_and(Vec::is_empty) {
        last.new.pop();
    }
    // The kept last line may now touch the change before it.
    if let Some(mut last) = changes.pop() {
        match changes.last_mut().filter(|before| before.old.end == last.old.start) {
            Some(before) => {
                before.old.end = last.old.end;
                before.new.append(&mut last.new);
            }
            None => changes.push(last),
        }
    }
}

/// Puts the byte order mark before whatever is the first line.
fn carry_bom(lines: &Lines<'_>, changes: &mut [Change]) {
    let Some(first) = changes.first_mut().filter(|change| change.old.start == 0) else { return };
    if lines.bom.is_empty() {
        return;
    }
    // The old first line stays and loses the mark, so it is part of the change.
    let stays = first.old.is_empty() || first.new.is_empty();
    if stays && first.old.end < lines.len() {
        first.new.push(lines.raw(first.old.end).to_vec());
        first.old.end += 1;
    }
    match first.new.first_mut() {
        Some(line) => *line = [lines.bom, line].concat(),
        None => first.new.push(lines.bom.to_vec()),
    }
}

fn assemble(lines: &Lines<'_>, changes: &[Change]) -> Vec<u8> {
    let mut new = Vec::new();
    let mut at = 0;
    if changes.first().is_none_or(|change| change.old.start > 0) {
        new.extend_from_slice(lines.bom);
    }
    for change in changes {
        new.extend_from_slice(lines.range(at, change.old.start));
        for line in &change.new {
            new.extend_from_slice(line);
        }
        at = change.old.end;
    }
    new.extend_from_slice(lines.range(at, lines.len()));
    new
}
