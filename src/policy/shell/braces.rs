//! Brace expansion: `{a,b}` and `{1..3}`, before anything else is expanded.

use super::Part;
use super::word::Atom;

/// Most words that one word may become. Our choice; beyond it the word counts as known only when it
/// runs.
const MAX_WORDS: usize = 256;

/// Expands the braces of one word. `{` without a match, or with nothing to choose from, stands for
/// itself.
pub(super) fn expand(atoms: Vec<Atom>) -> Vec<Vec<Atom>> {
    if !atoms.contains(&Atom::Bare('{')) {
        return vec![atoms];
    }
    let mut done = Vec::new();
    // Words still to look at, each with the place up to which its braces are settled.
    let mut open = vec![(atoms, 0)];
    while let Some((word, from)) = open.pop() {
        if done.len() + open.len() > MAX_WORDS || word.len() > MAX_WORDS * 64 {
            return vec![vec![Atom::Part(Part::Dynamic { is_quoted: false })]];
        }
        match first_choice(&word, from) {
            None => done.push(word),
            Some(Choice::Literal { after }) => open.push((word, after)),
            Some(Choice::Many { start, end, pieces }) => {
                for piece in pieces.into_iter().rev() {
                    let mut next = word[..start].to_vec();
                    next.extend(piece);
                    next.extend_from_slice(&word[end..]);
                    open.push((next, start));
                }
            }
        }
    }
    done
}

enum Choice {
    Literal { after: usize },
    Many { start: usize, end: usize, pieces: Vec<Vec<Atom>> },
}

fn first_choice(word: &[Atom], from: usize) -> Option<Choice> {
    let start = from + word.get(from..)?.iter().position(|atom| *atom == Atom::Bare('{'))?;
    let literal = Some(Choice::Literal { after: start + 1 });
    let mut level = 0_u32;
    let mut cuts = vec![start];
    for (at, atom) in word.iter().enumerate().skip(start) {
        match atom {
            Atom::Bare('{') => level += 1,
            Atom::Bare(',') if level == 1 => cuts.push(at),
            Atom::Bare('}') => {
                level -= 1;
                if level == 0 {
                    cuts.push(at);
                    let pieces = if cuts.len() > 2 {
                        cuts.windows(2).map(|cut| word[cut[0] + 1..cut[1]].to_vec()).collect()
                    } else if let Some(pieces) = sequence(&word[start + 1..at]) {
                        pieces
                    } else {
                        return literal;
                    };
                    return Some(Choice::Many { start, end: at + 1, pieces });
                }
            }
            Atom::Bare(_) | Atom::Quoted(_) | Atom::Empty | Atom::Part(_) => {}
        }
    }
    literal
}

/// `1..3` or `a..c`, with an optional step.
fn sequence(inside: &[Atom]) -> Option<Vec<Vec<Atom>>> {
    let text: Option<String> = inside
        .iter()
        .map(|atom| match atom {
            Atom::Bare(c) => Some(*c),
            Atom::Quoted(_) | Atom::Empty | Atom::Part(_) => None,
        })
        .collect();
    let text = text?;
    let mut ends = text.split("..");
    let (first, last) = (ends.next()?, ends.next()?);
    let step = ends.next().map_or(Some(1), |step| step.parse::<i64>().ok())?;
    let step = step.unsigned_abs().max(1);
    if ends.next().is_some() {
        return None;
    }
    let spell: fn(i64) -> Option<String>;
    let numbers = first.parse::<i64>().ok().zip(last.parse::<i64>().ok());
    let (first, last) = if let Some(numbers) = numbers {
        spell = |value| Some(value.to_string());
        numbers
    } else {
        spell = |value| char::from_u32(u32::try_from(value).ok()?).map(String::from);
        (single(first)?, single(last)?)
    };
    let count = first.abs_diff(last) / step;
    if count >= MAX_WORDS as u64 {
        return Some(vec![vec![Atom::Part(Part::Dynamic { is_quoted: false })]]);
    }
    (0..=count)
        .map(|index| {
            let offset = i64::try_from(index * step).ok()?;
            let value = if first <= last { first + offset } else { first - offset };
            Some(spell(value)?.chars().map(Atom::Bare).collect())
        })
        .collect()
}

fn single(text: &str) -> Option<i64> {
    let mut chars = text.chars();
    let only = chars.next().filter(char::is_ascii_alphabetic)?;
    chars.next().is_none().then(|| i64::from(u32::from(only)))
}
