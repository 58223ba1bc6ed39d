//! Simple commands: assignments, words and redirects, in any order that a shell takes.

use super::heredoc::Pending;
use super::parse::{Fault, Read, Reader};
use super::{Assignment, Part, Redirect, Simple, Stdin, Word, readings};

/// Redirect operators, longest first.
const OPERATORS: [&str; 12] =
    ["<<<", "<<-", "&>>", "<<", "<>", "<&", ">>", ">&", ">|", "&>", "<", ">"];

impl Reader<'_> {
    /// A simple command, or the definition `name() …`.
    pub(super) fn simple(&mut self) -> Read<()> {
        let mut command = Simple::default();
        let first_heredoc = self.heredocs.len();
        loop {
            self.blanks();
            match self.peek() {
                None | Some('\n' | ';' | '|' | ')') => break,
                Some('&') if !self.looking_at("&>") => break,
                Some('(') => {
                    if command.words.len() == 1
                        && command.assignments.is_empty()
                        && command.redirects.is_empty()
                    {
                        let name = command.words[0].known().unwrap_or_default();
                        return self.function_body(&name);
                    }
                    return Err(Fault("unexpected `(`".to_owned()));
                }
                Some(_) => {}
            }
            if let Some(redirect) = self.redirect()? {
                command.redirects.push(redirect);
                continue;
            }
            let start = self.at;
            let words = self.words()?;
            if self.at == start {
                let found = self.found();
                return Err(Fault(format!("unexpected {found}")));
            }
            for word in words {
                match assignment(&word) {
                    Some(assignment) if command.words.is_empty() => {
                        command.assignments.push(assignment);
                    }
                    _ => command.words.push(word),
                }
            }
        }
        if command == Simple::default() {
            let found = self.found();
            return Err(Fault(format!("expected a command, found {found}")));
        }
        self.finish(command, first_heredoc);
        Ok(())
    }

    /// Puts a command into the script and ties its here-documents to it.
    pub(super) fn finish(&mut self, mut command: Simple, first_heredoc: usize) {
        if let Some(stdin) = stdin_of(&command) {
            command.stdin = stdin;
        }
        self.note_variables(&command);
        let index = self.script.commands.len();
        for pending in self.heredocs.iter_mut().skip(first_heredoc) {
            pending.owner = Some(index);
        }
        self.script.commands.push(command);
    }

    /// A redirect, if one stands here.
    pub(super) fn redirect(&mut self) -> Read<Option<Redirect>> {
        let rest = self.rest();
        let descriptor = if rest.starts_with('{') {
            rest.find('}').filter(|&end| {
                end > 1
                    && rest[1..end].chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                    && rest[end + 1..].starts_with(['<', '>'])
            })
        } else {
            rest.find(|c: char| !c.is_ascii_digit())
                .filter(|&end| end > 0 && rest[end..].starts_with(['<', '>']))
                .map(|end| end - 1)
        };
        let skip = descriptor.map_or(0, |end| end + 1);
        let Some(operator) =
            OPERATORS.into_iter().find(|operator| rest[skip..].starts_with(operator))
        else {
            return Ok(None);
        };
        // `<(` and `>(` begin a word.
        if matches!(operator, "<" | ">") && rest[skip + 1..].starts_with('(') {
            return Ok(None);
        }
        self.at += skip + operator.len();
        self.blanks();
        if matches!(operator, "<<" | "<<-") {
            let (delimiter, is_literal) = self.heredoc_delimiter()?;
            let target = Word::literal(&delimiter);
            self.heredocs.push(Pending {
                delimiter,
                strips_tabs: operator == "<<-",
                is_literal,
                owner: None,
            });
            return Ok(Some(Redirect { operator: operator.to_owned(), target }));
        }
        let start = self.at;
        let mut words = self.words()?;
        if self.at == start {
            let found = self.found();
            return Err(Fault(format!("`{operator}` needs a file, found {found}")));
        }
        let target = if words.len() == 1 {
            words.remove(0)
        } else {
            let raw = self.text[start..self.at].to_owned();
            Word { parts: vec![Part::Dynamic { is_quoted: false }], raw, is_quoted: false }
        };
        Ok(Some(Redirect { operator: operator.to_owned(), target }))
    }

    /// Redirects after a compound; they belong to no command of their own.
    pub(super) fn trailing_redirects(&mut self, first: usize) -> Read<()> {
        let first_heredoc = self.heredocs.len();
        let mut command = Simple::default();
        loop {
            self.blanks();
            match self.redirect()? {
                Some(redirect) => command.redirects.push(redirect),
                None => break,
            }
        }
        if command.redirects.is_empty() {
            return Ok(());
        }
        if let Some(stdin) = stdin_of(&command) {
            let last = self.script.commands.len();
            for inner in &mut self.script.commands[first.min(last)..last] {
                if inner.stdin == Stdin::Inherited {
                    inner.stdin = stdin.clone();
                }
            }
        }
        self.finish(command, first_heredoc);
        Ok(())
    }

    fn note_variables(&mut self, command: &Simple) {
        let declares = command.words.first().and_then(Word::known).is_some_and(|name| {
            matches!(name.as_str(), "export" | "declare" | "local" | "readonly" | "typeset")
        });
        let declared: Vec<Assignment> = if declares {
            command.words.iter().skip(1).filter_map(assignment).collect()
        } else {
            Vec::new()
        };
        for Assignment { name, value } in command.assignments.iter().chain(&declared) {
            let values = readings(std::slice::from_ref(value), &self.script.variables);
            let values = values.single_words();
            let is_append = value.raw.starts_with(&format!("{name}+="));
            if is_append {
                self.script.variables.append(name, &values);
            } else {
                self.script.variables.add(name, &values);
            }
        }
    }
}

/// Where redirects take stdin from, if they do.
fn stdin_of(command: &Simple) -> Option<Stdin> {
    command.redirects.iter().rev().find_map(|redirect| match redirect.operator.as_str() {
        "<<<" => Some(redirect.target.known().map_or(Stdin::Unknown, Stdin::Text)),
        "<" | "<>" | "<&" | "<<" | "<<-" => Some(Stdin::Unknown),
        _ => None,
    })
}

/// Splits `NAME=VALUE`, `NAME+=VALUE` and `NAME[…]=VALUE`.
fn assignment(word: &Word) -> Option<Assignment> {
    let length = word
        .raw
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|&length| length > 0 && !word.raw.starts_with(|c: char| c.is_ascii_digit()))?;
    let name = &word.raw[..length];
    let mut rest = &word.raw[length..];
    if rest.starts_with('[') {
        rest = &rest[rest.find("]=").or_else(|| rest.find("]+="))? + 1..];
    }
    let operator = ["=", "+="].into_iter().find(|operator| rest.starts_with(operator))?;
    let cut = word.raw.len() - rest.len() + operator.len();
    // The name and the sign are unquoted text, so they are the first characters of the parts.
    let mut left = cut;
    let mut parts = Vec::new();
    for part in &word.parts {
        match part {
            Part::Text(text) | Part::Glob(text) if left > 0 => {
                let gone = left.min(text.len());
                left -= gone;
                if let Some(tail) = text.get(gone..).filter(|tail| !tail.is_empty()) {
                    parts.push(Part::Text(tail.to_owned()));
                }
            }
            // A value isn't expanded as a pattern.
            Part::Glob(text) => parts.push(Part::Text(text.clone())),
            other @ (Part::Text(_)
            | Part::Parameter { .. }
            | Part::Substitution { .. }
            | Part::Dynamic { .. }) => parts.push(other.clone()),
        }
    }
    let value = Word { parts, raw: word.raw.clone(), is_quoted: true };
    Some(Assignment { name: name.to_owned(), value })
}
