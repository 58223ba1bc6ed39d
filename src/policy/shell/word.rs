//! Words: quotes, escapes, expansions and substitutions.

use std::iter::Peekable;
use std::str::Chars;

use super::parse::{Fault, Read, Reader, printed_by};
use super::{Part, Word, braces};

/// A word's character or part, before braces are expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    /// An unquoted character.
    Bare(char),
    /// A quoted character.
    Quoted(char),
    /// Quotes with nothing in them.
    Empty,
    /// Anything that isn't a character.
    Part(Part),
}

impl Reader<'_> {
    /// One word of the text, as the words that its braces make of it. Takes nothing and returns
    /// nothing where no word begins.
    pub(super) fn words(&mut self) -> Read<Vec<Word>> {
        let start = self.at;
        let mut atoms = Vec::new();
        while self.word_continues(&atoms) {
            if self.looking_at("(") {
                let name: Option<String> = array_name(&atoms);
                match name {
                    Some(name) => {
                        self.deeper(|reader| reader.array(&name))?;
                        atoms.push(Atom::Part(Part::Dynamic { is_quoted: false }));
                    }
                    None => self.extended_pattern(&mut atoms)?,
                }
                continue;
            }
            self.word_piece(&mut atoms)?;
        }
        if self.at == start {
            return Ok(Vec::new());
        }
        let raw = &self.text[start..self.at];
        Ok(braces::expand(atoms).into_iter().map(|atoms| to_word(atoms, raw)).collect())
    }

    fn word_continues(&self, atoms: &[Atom]) -> bool {
        match self.peek() {
            None | Some(' ' | '\t' | '\n' | ';' | '&' | '|' | ')') => false,
            Some('<' | '>') => self.peek_second() == Some('('),
            Some('(') => {
                array_name(atoms).is_some()
                    || matches!(atoms.last(), Some(Atom::Bare('?' | '*' | '+' | '@' | '!')))
            }
            Some(_) => true,
        }
    }

    /// One piece of a word: a character, quotes, or an expansion.
    pub(super) fn word_piece(&mut self, atoms: &mut Vec<Atom>) -> Read<()> {
        match self.peek() {
            Some('\\') => {
                self.step();
                match self.step() {
                    Some('\n') => {}
                    Some(next) => atoms.push(Atom::Quoted(next)),
                    None => atoms.push(Atom::Quoted('\\')),
                }
            }
            Some('\'') => self.single_quotes(atoms)?,
            Some('"') => self.double_quotes(atoms)?,
            Some('$') => self.dollar(atoms, false)?,
            Some('`') => self.backquotes(atoms, false)?,
            Some('<' | '>') if self.peek_second() == Some('(') => {
                self.at += 1;
                self.substitution()?;
                atoms.push(Atom::Part(Part::Dynamic { is_quoted: true }));
            }
            _ => {
                if let Some(next) = self.step() {
                    atoms.push(Atom::Bare(next));
                }
            }
        }
        Ok(())
    }

    fn single_quotes(&mut self, atoms: &mut Vec<Atom>) -> Read<()> {
        self.at += 1;
        let Some(length) = self.rest().find('\'') else {
            return Err(Fault("a `'` is not closed".to_owned()));
        };
        atoms.push(Atom::Empty);
        atoms.extend(self.rest()[..length].chars().map(Atom::Quoted));
        self.at += length + 1;
        Ok(())
    }

    fn double_quotes(&mut self, atoms: &mut Vec<Atom>) -> Read<()> {
        self.at += 1;
        let start = self.at;
        atoms.push(Atom::Empty);
        self.deeper(|reader| {
            loop {
                match reader.peek() {
                    None => {
                        // What stands in quotes that never close is read as commands instead.
                        reader.at = start;
                        return Err(Fault("a `\"` is not closed".to_owned()));
                    }
                    Some('"') => {
                        reader.at += 1;
                        return Ok(());
                    }
                    Some('\\') => {
                        reader.step();
                        match reader.peek() {
                            Some('\n') => {
                                reader.step();
                            }
                            Some(next @ ('$' | '`' | '"' | '\\')) => {
                                reader.step();
                                atoms.push(Atom::Quoted(next));
                            }
                            _ => atoms.push(Atom::Quoted('\\')),
                        }
                    }
                    Some('$') => reader.dollar(atoms, true)?,
                    Some('`') => reader.backquotes(atoms, true)?,
                    Some(_) => atoms.extend(reader.step().map(Atom::Quoted)),
                }
            }
        })
    }

    /// Whatever begins with `$`.
    pub(super) fn dollar(&mut self, atoms: &mut Vec<Atom>, is_quoted: bool) -> Read<()> {
        self.at += 1;
        match self.peek() {
            Some('(') => {
                if self.looking_at("((") && self.arithmetic()? {
                    atoms.push(Atom::Part(Part::Dynamic { is_quoted: true }));
                    return Ok(());
                }
                let value = self.substitution()?;
                atoms.push(Atom::Part(Part::Substitution { value, is_quoted }));
            }
            Some('{') => self.braced_parameter(atoms, is_quoted)?,
            Some('[') => {
                self.at += 1;
                self.deeper(|reader| reader.until(']', true))?;
                atoms.push(Atom::Part(Part::Dynamic { is_quoted: true }));
            }
            Some('\'') if !is_quoted => self.ansi_quotes(atoms)?,
            Some('"') if !is_quoted => self.double_quotes(atoms)?,
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let rest = self.rest();
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                let name = rest[..end.unwrap_or(rest.len())].to_owned();
                self.at += name.len();
                atoms.push(Atom::Part(Part::Parameter { name, alternative: None, is_quoted }));
            }
            Some(c @ ('0'..='9' | '@' | '*' | '#' | '?' | '$' | '!' | '-')) => {
                self.at += 1;
                let name = c.to_string();
                // `"$@"` is no word at all when there is nothing in it.
                let is_quoted = is_quoted && c != '@';
                atoms.push(Atom::Part(Part::Parameter { name, alternative: None, is_quoted }));
            }
            _ => atoms.push(if is_quoted { Atom::Quoted('$') } else { Atom::Bare('$') }),
        }
        Ok(())
    }

    /// From the `(` of `$(` or `<(` on. Returns what it prints, when that can be told.
    fn substitution(&mut self) -> Read<Option<String>> {
        self.at += 1;
        let first = self.script.commands.len();
        self.deeper(|reader| {
            reader.list()?;
            reader.newlines();
            if reader.take(")") {
                return Ok(());
            }
            let found = reader.found();
            Err(Fault(format!("`$(` needs `)`, found {found}")))
        })?;
        Ok(printed_by(&self.script.commands[first..]))
    }

    fn backquotes(&mut self, atoms: &mut Vec<Atom>, is_quoted: bool) -> Read<()> {
        self.at += 1;
        let start = self.at;
        let mut inner = String::new();
        loop {
            match self.step() {
                None => {
                    self.at = start;
                    return Err(Fault("a backquote is not closed".to_owned()));
                }
                Some('`') => break,
                Some('\\') => match self.step() {
                    Some(next @ ('`' | '\\' | '$')) => inner.push(next),
                    Some('"') if is_quoted => inner.push('"'),
                    Some(next) => {
                        inner.push('\\');
                        inner.push(next);
                    }
                    None => inner.push('\\'),
                },
                Some(next) => inner.push(next),
            }
        }
        let first = self.script.commands.len();
        self.deeper(|reader| {
            let mut nested = Reader::new(&inner, reader.depth);
            nested.script.variables = std::mem::take(&mut reader.script.variables);
            nested.script();
            reader.script.variables = nested.script.variables;
            reader.script.commands.append(&mut nested.script.commands);
            for fault in nested.script.faults {
                reader.fault(fault);
            }
            Ok(())
        })?;
        let value = printed_by(&self.script.commands[first..]);
        atoms.push(Atom::Part(Part::Substitution { value, is_quoted }));
        Ok(())
    }

    /// From the `{` of `${` on.
    fn braced_parameter(&mut self, atoms: &mut Vec<Atom>, is_quoted: bool) -> Read<()> {
        self.at += 1;
        let is_indirect = self.looking_at("!") || (self.looking_at("#") && !self.looking_at("#}"));
        if is_indirect {
            self.at += 1;
        }
        let rest = self.rest();
        let length = match rest.chars().next() {
            Some('@' | '*' | '#' | '?' | '$' | '!' | '-') => 1,
            _ => {
                rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len())
            }
        };
        let name = rest[..length].to_owned();
        self.at += length;
        let has_subscript = self.take("[");
        if has_subscript {
            self.deeper(|reader| reader.until(']', false))?;
        }
        if self.take("}") {
            let is_quoted = is_quoted && name != "@" && !has_subscript;
            atoms.push(Atom::Part(if is_indirect || name.is_empty() {
                Part::Dynamic { is_quoted }
            } else {
                Part::Parameter { name, alternative: None, is_quoted }
            }));
            return Ok(());
        }
        let operator = [":-", ":=", ":+", ":?", "-", "=", "+", "?"]
            .into_iter()
            .find(|operator| self.looking_at(operator));
        self.at += operator.map_or(0, str::len);
        // In double quotes a `'` is a character of its own for these operators, and a quote for
        // the others.
        let keeps_quotes = is_quoted && operator.is_some();
        let mut inside = Vec::new();
        let start = self.at;
        self.deeper(|reader| {
            loop {
                match reader.peek() {
                    None => {
                        reader.at = start;
                        return Err(Fault("`${` needs `}`".to_owned()));
                    }
                    Some('}') => {
                        reader.at += 1;
                        return Ok(());
                    }
                    Some('\'') if keeps_quotes => inside.extend(reader.step().map(Atom::Quoted)),
                    Some('$') => reader.dollar(&mut inside, is_quoted)?,
                    Some(_) => reader.word_piece(&mut inside)?,
                }
            }
        })?;
        let alternative = operator
            .filter(|operator| !operator.ends_with('?'))
            .and_then(|_| to_word(inside, "").known());
        atoms.push(Atom::Part(if is_indirect || operator.is_none() {
            Part::Dynamic { is_quoted }
        } else {
            Part::Parameter { name, alternative, is_quoted }
        }));
        Ok(())
    }

    /// Takes everything up to an unquoted `end`.
    fn until(&mut self, end: char, nests: bool) -> Read<()> {
        let mut open = 1_u32;
        loop {
            match self.peek() {
                None => return Err(Fault(format!("expected `{end}`, found the end of the text"))),
                Some('[') if nests => open += 1,
                Some(found) if found == end => {
                    open -= 1;
                    if open == 0 {
                        self.step();
                        return Ok(());
                    }
                }
                Some('\'' | '"' | '$' | '`' | '\\') => {
                    self.word_piece(&mut Vec::new())?;
                    continue;
                }
                Some(_) => {}
            }
            self.step();
        }
    }

    /// `$'…'` with the escapes of ANSI C.
    fn ansi_quotes(&mut self, atoms: &mut Vec<Atom>) -> Read<()> {
        self.at += 1;
        let mut raw = String::new();
        loop {
            match self.step() {
                None => return Err(Fault("a `$'` is not closed".to_owned())),
                Some('\'') => break,
                Some('\\') => {
                    raw.push('\\');
                    raw.extend(self.step());
                }
                Some(next) => raw.push(next),
            }
        }
        atoms.push(Atom::Empty);
        let mut chars = raw.chars().peekable();
        while let Some(next) = chars.next() {
            if next != '\\' {
                atoms.push(Atom::Quoted(next));
                continue;
            }
            match escape(&mut chars) {
                // A NUL ends the string.
                Some('\0') => break,
                decoded => atoms.extend(decoded.map(Atom::Quoted)),
            }
        }
        Ok(())
    }

    /// `?(…)` and the like: a pattern, known only when it runs.
    fn extended_pattern(&mut self, atoms: &mut Vec<Atom>) -> Read<()> {
        atoms.pop();
        self.at += 1;
        self.deeper(|reader| {
            let mut open = 1_u32;
            loop {
                match reader.peek() {
                    None | Some('\n') => return Err(Fault("unexpected `(`".to_owned())),
                    Some('(') => open += 1,
                    Some(')') => {
                        open -= 1;
                        if open == 0 {
                            reader.step();
                            return Ok(());
                        }
                    }
                    Some('\'' | '"' | '$' | '`' | '\\') => {
                        reader.word_piece(&mut Vec::new())?;
                        continue;
                    }
                    Some(_) => {}
                }
                reader.step();
            }
        })?;
        atoms.push(Atom::Part(Part::Glob("*".to_owned())));
        Ok(())
    }
}

/// The name in `NAME=` or `NAME+=`, when that is all there is so far.
fn array_name(atoms: &[Atom]) -> Option<String> {
    let text: Option<String> = atoms
        .iter()
        .map(|atom| match atom {
            Atom::Bare(c) => Some(*c),
            Atom::Quoted(_) | Atom::Empty | Atom::Part(_) => None,
        })
        .collect();
    let text = text?;
    let name = text.strip_suffix('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| name.to_owned())
}

/// Decodes what follows a backslash in ANSI C quotes.
pub(super) fn escape(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    let next = chars.next()?;
    let mut number = |radix: u32, most: usize, first: Option<char>| {
        let mut value = first.and_then(|c| c.to_digit(radix)).unwrap_or(0);
        let mut taken = usize::from(first.is_some());
        while taken < most {
            let Some(digit) = chars.peek().and_then(|c| c.to_digit(radix)) else { break };
            chars.next();
            value = value.wrapping_mul(radix).wrapping_add(digit);
            taken += 1;
        }
        value
    };
    Some(match next {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'e' | 'E' => '\u{1b}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        digit @ '0'..='7' => char::from_u32(number(8, 3, Some(digit)) & 0xff)?,
        'x' => char::from_u32(number(16, 2, None) & 0xff)?,
        'u' => char::from_u32(number(16, 4, None))?,
        'U' => char::from_u32(number(16, 8, None))?,
        'c' => char::from_u32(u32::from(chars.next()?) & 0x1f)?,
        other => other,
    })
}

pub(super) fn to_word(atoms: Vec<Atom>, raw: &str) -> Word {
    let mut word = Word { raw: raw.to_owned(), ..Word::default() };
    let push = |word: &mut Word, c: char, is_glob: bool| match (word.parts.last_mut(), is_glob) {
        (Some(Part::Text(text)), false) | (Some(Part::Glob(text)), true) => text.push(c),
        (_, false) => word.parts.push(Part::Text(c.to_string())),
        (_, true) => word.parts.push(Part::Glob(c.to_string())),
    };
    // `[` alone, the command, is no pattern.
    let closes = atoms.iter().rposition(|atom| *atom == Atom::Bare(']')).unwrap_or(0);
    for (at, atom) in atoms.into_iter().enumerate() {
        match atom {
            Atom::Bare(c) => {
                push(&mut word, c, matches!(c, '*' | '?') || (c == '[' && at < closes));
            }
            Atom::Quoted(c) => {
                word.is_quoted = true;
                push(&mut word, c, false);
            }
            Atom::Empty => word.is_quoted = true,
            Atom::Part(part) => word.parts.push(part),
        }
    }
    word
}
