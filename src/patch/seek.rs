//! Where lines stand in a file, at four levels of likeness.
//!
//! In: the lines of a file, and a run of lines to find. Out: every place of it. Knows nothing of
//! hunks. Each level numbers equal lines once, so that a search compares numbers and starts at
//! the rarest line: a file of 100,000 lines is read once for each level, not once for each hunk.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;

use super::lines::Lines;

/// How sure a hunk's place is: what had to be left out of account to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MatchLevel {
    /// Nothing; line endings are never compared.
    Exact,
    /// Blanks at line ends.
    TrailingBlanks,
    /// Blanks at both ends of lines.
    OuterBlanks,
    /// Also the look of characters: dashes, quotes, spaces, invisible characters.
    Normalised,
}

impl MatchLevel {
    /// From the strictest to the laxest.
    pub const ALL: [Self; 4] =
        [Self::Exact, Self::TrailingBlanks, Self::OuterBlanks, Self::Normalised];

    /// The name in the transcript.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::TrailingBlanks => "trailing-blanks",
            Self::OuterBlanks => "outer-blanks",
            Self::Normalised => "normalised",
        }
    }
}

/// What is compared of `line` at `level`.
pub(super) fn key(level: MatchLevel, line: &[u8]) -> Cow<'_, [u8]> {
    match level {
        MatchLevel::Exact => Cow::Borrowed(line),
        MatchLevel::TrailingBlanks => Cow::Borrowed(trim_end(line)),
        MatchLevel::OuterBlanks => Cow::Borrowed(trim(line)),
        MatchLevel::Normalised if line.is_ascii() => Cow::Borrowed(trim(line)),
        MatchLevel::Normalised => {
            let mut out = String::with_capacity(line.len());
            for c in String::from_utf8_lossy(line).chars() {
                push_look_alike(&mut out, c);
            }
            Cow::Owned(trim(out.as_bytes()).to_vec())
        }
    }
}

pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

pub(super) fn trim(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|&byte| !is_blank(byte)).unwrap_or(line.len());
    trim_end(&line[start..])
}

fn trim_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|&byte| !is_blank(byte)).map_or(0, |at| at + 1);
    &line[..end]
}

/// Appends the plain form of `c`.
fn push_look_alike(out: &mut String, c: char) {
    match c {
        '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}' => {
            out.push('-');
        }
        '\u{2018}'..='\u{201b}' | '\u{2032}' | '\u{02bc}' | '\u{ff07}' => out.push('\''),
        '\u{201c}'..='\u{201f}' | '\u{2033}' | '\u{ff02}' => out.push('"'),
        '\u{00a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => {
            out.push(' ');
        }
        '\u{00ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => {}
        '\u{2026}' => out.push_str("..."),
        other => out.push(other),
    }
}

/// The lines of one file at one level.
#[derive(Debug)]
struct Table<'a> {
    ids: Vec<usize>,
    known: HashMap<Cow<'a, [u8]>, usize>,
    places: Vec<Vec<usize>>,
}

impl<'a> Table<'a> {
    fn new(lines: &Lines<'a>, level: MatchLevel) -> Self {
        let mut table = Self {
            ids: Vec::with_capacity(lines.len()),
            known: HashMap::new(),
            places: Vec::new(),
        };
        for line in 0..lines.len() {
            let next = table.places.len();
            let id = *table.known.entry(key(level, lines.text(line))).or_insert(next);
            if id == next {
                table.places.push(Vec::new());
            }
            table.places[id].push(line);
            table.ids.push(id);
        }
        table
    }
}

/// Finds runs of lines in one file.
#[derive(Debug)]
pub(super) struct Index<'a> {
    pub(super) lines: Lines<'a>,
    tables: [OnceCell<Table<'a>>; 4],
}

impl<'a> Index<'a> {
    pub(super) fn new(lines: Lines<'a>) -> Self {
        Self { lines, tables: [const { OnceCell::new() }; 4] }
    }

    fn table(&self, level: MatchLevel) -> &Table<'a> {
        self.tables[level as usize].get_or_init(|| Table::new(&self.lines, level))
    }

    /// Places of one line, in order.
    pub(super) fn line(&self, text: &str, level: MatchLevel) -> &[usize] {
        let table = self.table(level);
        let id = table.known.get(key(level, text.as_bytes()).as_ref());
        id.map_or(&[], |&id| table.places[id].as_slice())
    }

    /// Every line where `pattern` starts, from line `from` on, in order. An empty pattern is
    /// nowhere.
    pub(super) fn find(&self, pattern: &[&str], level: MatchLevel, from: usize) -> Vec<usize> {
        let table = self.table(level);
        let mut ids = Vec::with_capacity(pattern.len());
        for text in pattern {
            match table.known.get(key(level, text.as_bytes()).as_ref()) {
                Some(&id) => ids.push(id),
                None => return Vec::new(),
            }
        }
        let Some((offset, rarest)) = ids
            .iter()
            .enumerate()
            .min_by_key(|(_, id)| table.places[**id].len())
            .map(|(offset, &id)| (offset, &table.places[id]))
        else {
            return Vec::new();
        };
        if rarest.len().saturating_mul(ids.len()) > 4 * table.ids.len() {
            return runs(&table.ids, &ids, from);
        }
        rarest
            .iter()
            .filter_map(|&line| line.checked_sub(offset))
            .filter(|&start| start >= from)
            .filter(|&start| table.ids.get(start..start + ids.len()) == Some(&ids[..]))
            .collect()
    }
}

/// Every start of `pattern` in `text` from `from` on, in linear time whatever repeats
/// (Knuth, Morris and Pratt).
fn runs(text: &[usize], pattern: &[usize], from: usize) -> Vec<usize> {
    let mut border = vec![0; pattern.len()];
    let mut length = 0;
    for at in 1..pattern.len() {
        while length > 0 && pattern[at] != pattern[length] {
            length = border[length - 1];
        }
        length += usize::from(pattern[at] == pattern[length]);
        border[at] = length;
    }
    let mut found = Vec::new();
    let mut length = 0;
    for (at, id) in text.iter().enumerate().skip(from) {
        while length > 0 && pattern[length] != *id {
            length = border[length - 1];
        }
        length += usize::from(pattern[length] == *id);
        if length == pattern.len() {
            found.push(at + 1 - length);
            length = border[length - 1];
        }
    }
    found
}
