//! Here-documents: bodies are data, but for the expansions in them.

use super::Stdin;
use super::parse::{Fault, Read, Reader};

/// A here-document whose body is still to come.
pub(super) struct Pending {
    /// Line that ends it.
    pub(super) delimiter: String,
    /// Whether leading tabs go away.
    pub(super) strips_tabs: bool,
    /// Whether nothing in it is expanded.
    pub(super) is_literal: bool,
    /// Command that reads it.
    pub(super) owner: Option<usize>,
}

impl Reader<'_> {
    /// The delimiter after `<<`, and whether it is quoted.
    pub(super) fn heredoc_delimiter(&mut self) -> Read<(String, bool)> {
        let mut delimiter = String::new();
        let mut is_literal = false;
        loop {
            match self.peek() {
                None | Some(' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>') => break,
                Some(quote @ ('\'' | '"')) => {
                    is_literal = true;
                    self.step();
                    let Some(length) = self.rest().find(quote) else {
                        return Err(Fault(format!("a `{quote}` is not closed")));
                    };
                    delimiter.push_str(&self.rest()[..length]);
                    self.at += length + 1;
                }
                Some('\\') => {
                    is_literal = true;
                    self.step();
                    delimiter.extend(self.step());
                }
                Some(_) => delimiter.extend(self.step()),
            }
        }
        if delimiter.is_empty() && !is_literal {
            let found = self.found();
            return Err(Fault(format!("`<<` needs a delimiter, found {found}")));
        }
        Ok((delimiter, is_literal))
    }

    /// Reads the bodies of pending here-documents; stands at the beginning of a line.
    pub(super) fn read_heredocs(&mut self) {
        for pending in std::mem::take(&mut self.heredocs) {
            let start = self.at;
            let mut end = self.text.len();
            let mut next = self.text.len();
            let mut at = start;
            while at < self.text.len() {
                let line_end = self.text[at..].find('\n').map_or(self.text.len(), |end| at + end);
                let line = &self.text[at..line_end];
                let line = if pending.strips_tabs { line.trim_start_matches('\t') } else { line };
                if line == pending.delimiter {
                    end = at;
                    next = (line_end + 1).min(self.text.len());
                    break;
                }
                at = line_end + 1;
            }
            self.at = next;
            let body = &self.text[start..end];
            if !pending.is_literal {
                self.scan_body(body);
            }
            let body = if pending.is_literal { body.to_owned() } else { unescape(body) };
            if let Some(owner) = pending.owner.and_then(|at| self.script.commands.get_mut(at)) {
                let first = owner.redirects.iter().rev().find(|redirect| {
                    matches!(redirect.operator.as_str(), "<" | "<>" | "<&" | "<<" | "<<-" | "<<<")
                });
                let is_last = first.is_some_and(|redirect| {
                    redirect.target.known().as_deref() == Some(pending.delimiter.as_str())
                });
                if is_last {
                    owner.stdin = Stdin::Text(body);
                }
            }
        }
    }

    /// Finds what a body substitutes.
    fn scan_body(&mut self, body: &str) {
        let mut nested = Reader::new(body, self.depth + 1);
        nested.script.variables = std::mem::take(&mut self.script.variables);
        let mut atoms = Vec::new();
        while let Some(next) = nested.peek() {
            let read = match next {
                '\\' => {
                    nested.step();
                    nested.step();
                    Ok(())
                }
                '$' => nested.dollar(&mut atoms, true),
                '`' => nested.word_piece(&mut atoms),
                _ => {
                    nested.step();
                    Ok(())
                }
            };
            if let Err(Fault(why)) = read {
                nested.fault(why);
                nested.depth = self.depth + 1;
            }
        }
        self.script.variables = nested.script.variables;
        // The command that reads the body keeps its place in the list.
        self.script.commands.append(&mut nested.script.commands);
        for fault in nested.script.faults {
            self.fault(fault);
        }
    }
}

fn unescape(body: &str) -> String {
    let mut out = String::with_capacity(body.len());
    let mut chars = body.chars().peekable();
    while let Some(next) = chars.next() {
        match (next, chars.peek()) {
            ('\\', Some('\n')) => {
                chars.next();
            }
            ('\\', Some(&after @ ('$' | '`' | '\\'))) => {
                chars.next();
                out.push(after);
            }
            _ => out.push(next),
        }
    }
    out
}
