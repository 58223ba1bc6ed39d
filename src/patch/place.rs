//! The place of each hunk in a file.
//!
//! In: an index of the file's lines, and hunks in order. Out: one place for each hunk, or why
//! there is none or more than one. Knows nothing of what the hunks add.

use super::lines::Lines;
use super::seek::{Index, MatchLevel, is_blank, key, trim};
use super::{Context, Hunk};

/// Above this number of anchors their blocks are not measured, so that a context such as `}` in a
/// huge file stays cheap; the nearest places are taken instead. Our choice.
const MANY_ANCHORS: usize = 1_000;

/// Where a hunk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// First old line, from 0; for a hunk without old lines the line that it goes before.
    pub(super) start: usize,
    /// Number of old lines in the file.
    pub(super) len: usize,
    pub(super) level: MatchLevel,
}

/// Why a hunk has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Misplaced {
    /// The file has no such lines.
    Nowhere {
        hunk: usize,
        /// First line that was searched.
        from: usize,
    },
    /// The file has such lines only before the end of the hunk before it.
    Before { hunk: usize, places: Vec<usize>, from: usize },
    /// The file has such lines, but not at its end.
    NotAtEnd { hunk: usize, places: Vec<usize> },
    /// The file has no line like this context.
    NoContext { hunk: usize, context: usize },
    /// More than one place is equally good.
    Many { hunk: usize, places: Vec<usize>, len: usize },
}

/// Every place a hunk can have.
struct Candidates {
    starts: Vec<usize>,
    len: usize,
    level: MatchLevel,
}

/// Finds the place of each hunk.
///
/// Hunks lie in file order. A hunk with several places is placed by its neighbours where only one
/// of the places lies between them.
pub(super) fn place(index: &Index<'_>, hunks: &[Hunk]) -> Result<Vec<Spot>, Misplaced> {
    let mut all = Vec::with_capacity(hunks.len());
    let mut from = 0;
    for (number, hunk) in hunks.iter().enumerate() {
        let found = candidates(index, hunk, number, from)?;
        let Some(first) = found.starts.first() else {
            return Err(missing(index, hunk, number, from));
        };
        from = first + found.len;
        all.push(found);
    }
    let mut limit = index.lines.len();
    for found in all.iter_mut().rev() {
        let len = found.len;
        found.starts.retain(|start| start + len <= limit);
        limit = found.starts.last().copied().unwrap_or(limit);
    }
    let mut spots = Vec::with_capacity(all.len());
    for (number, found) in all.into_iter().enumerate() {
        let Candidates { starts, len, level } = found;
        match starts.as_slice() {
            [start] => spots.push(Spot { start: *start, len, level }),
            _ => return Err(Misplaced::Many { hunk: number, places: starts, len }),
        }
    }
    Ok(spots)
}

fn candidates(
    index: &Index<'_>,
    hunk: &Hunk,
    number: usize,
    from: usize,
) -> Result<Candidates, Misplaced> {
    let anchors = anchors(index, &hunk.contexts)
        .map_err(|context| Misplaced::NoContext { hunk: number, context })?;
    let pattern: Vec<&str> = hunk.old_lines().collect();
    if pattern.is_empty() {
        let starts = match anchors {
            Some(lines) => lines.iter().map(|line| line + 1).filter(|&at| at >= from).collect(),
            None => vec![index.lines.len()],
        };
        return Ok(Candidates { starts, len: 0, level: MatchLevel::Exact });
    }
    let mut pattern = pattern.as_slice();
    loop {
        for level in MatchLevel::ALL {
            let mut starts = index.find(pattern, level, from);
            if hunk.end_of_file {
                keep_last(&index.lines, &mut starts, pattern.len());
            }
            if let Some(anchors) = &anchors {
                starts = narrow(&index.lines, anchors, &starts);
            }
            if !starts.is_empty() {
                return Ok(Candidates { starts, len: pattern.len(), level });
            }
        }
        // A blank line after the last one is often layout of the patch, or a file's end that was
        // taken for a line.
        match (pattern, hunk.lines.last()) {
            ([shorter @ .., last], Some(super::HunkLine::Keep(_)))
                if last.is_empty() && !shorter.is_empty() =>
            {
                pattern = shorter;
            }
            _ => return Ok(Candidates { starts: Vec::new(), len: 0, level: MatchLevel::Exact }),
        }
    }
}

/// Why `hunk` is not found from line `from` on.
fn missing(index: &Index<'_>, hunk: &Hunk, number: usize, from: usize) -> Misplaced {
    let pattern: Vec<&str> = hunk.old_lines().collect();
    for level in MatchLevel::ALL {
        let places = index.find(&pattern, level, 0);
        if places.is_empty() {
            continue;
        }
        return if places.iter().any(|&start| start >= from) && hunk.end_of_file {
            Misplaced::NotAtEnd { hunk: number, places }
        } else if places.iter().any(|&start| start >= from) {
            Misplaced::Nowhere { hunk: number, from }
        } else {
            Misplaced::Before { hunk: number, places, from }
        };
    }
    Misplaced::Nowhere { hunk: number, from }
}

/// Keeps the last of `starts` if nothing but blank lines follows it.
fn keep_last(lines: &Lines<'_>, starts: &mut Vec<usize>, len: usize) {
    let last = starts
        .last()
        .copied()
        .filter(|start| (start + len..lines.len()).all(|line| trim(lines.text(line)).is_empty()));
    starts.retain(|&start| Some(start) == last);
}

/// The lines that the innermost context can mean; `None` without contexts.
fn anchors(index: &Index<'_>, contexts: &[Context]) -> Result<Option<Vec<usize>>, usize> {
    let mut anchors: Option<Vec<usize>> = None;
    for (number, context) in contexts.iter().enumerate() {
        let lines = context_lines(index, &context.text);
        let lines = match &anchors {
            // An inner context stands after the outer one's line, not on it.
            Some(outer) => {
                let after: Vec<usize> = outer.iter().map(|line| line + 1).collect();
                narrow(&index.lines, &after, &lines)
            }
            None => lines,
        };
        if lines.is_empty() {
            if context.hint {
                continue;
            }
            return Err(number);
        }
        anchors = Some(lines);
    }
    Ok(anchors)
}

/// The lines that are like `text` at the strictest level that has any, or else begin like it.
fn context_lines(index: &Index<'_>, text: &str) -> Vec<usize> {
    for level in MatchLevel::ALL {
        let lines = index.line(text, level);
        if !lines.is_empty() {
            return lines.to_vec();
        }
    }
    let start = key(MatchLevel::Normalised, text.as_bytes());
    (0..index.lines.len())
        .filter(|&line| key(MatchLevel::Normalised, index.lines.text(line)).starts_with(&start))
        .collect()
}

/// The `places` that belong to an anchor: those in an anchor's block, else the nearest after each.
/// A place on the anchor itself belongs to it, because models repeat a context as first line.
fn narrow(lines: &Lines<'_>, anchors: &[usize], places: &[usize]) -> Vec<usize> {
    let mut chosen = Vec::new();
    if anchors.len() <= MANY_ANCHORS {
        for &anchor in anchors {
            let end = block_end(lines, anchor);
            let first = places.partition_point(|&place| place < anchor);
            chosen.extend(places[first..].iter().take_while(|&&place| place < end));
        }
    }
    if chosen.is_empty() {
        for &anchor in anchors {
            let first = places.partition_point(|&place| place < anchor);
            chosen.extend(places.get(first));
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// The first line after `anchor` that is not indented deeper, closing and opening brackets apart.
fn block_end(lines: &Lines<'_>, anchor: usize) -> usize {
    if anchor >= lines.len() {
        return anchor;
    }
    let indent = |line: usize| lines.text(line).iter().take_while(|&&byte| is_blank(byte)).count();
    let own = indent(anchor);
    (anchor + 1..lines.len())
        .find(|&line| {
            let text = trim(lines.text(line));
            let bracket = text.first().is_some_and(|byte| b"{}()[]".contains(byte));
            !text.is_empty() && indent(line) <= own && !bracket
        })
        .unwrap_or(lines.len())
}
