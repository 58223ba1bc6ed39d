//! The reader's core: position, bounds, lists and pipelines, and how it goes on after a fault.

use std::collections::BTreeSet;

use super::heredoc::Pending;
use super::{MAX_COMMANDS, MAX_DEPTH, MAX_TEXT, Part, Script, Simple, Stdin, Variables};

/// Reads `text`; `variables` are set before it runs.
pub(crate) fn read(text: &str, variables: Variables) -> Script {
    let mut reader = Reader::new(text, 0);
    reader.script.variables = variables;
    if text.len() > MAX_TEXT {
        reader.fault(format!("the text has {} bytes, more than {MAX_TEXT}", text.len()));
    }
    reader.script();
    reader.script
}

/// Something that a shell would not accept, or that is out of bounds.
#[derive(Debug)]
pub(super) struct Fault(pub(super) String);

pub(super) type Read<T> = Result<T, Fault>;

/// Words that end a list when they stand where a command could.
const CLOSERS: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];

/// Steps for each byte of text, at most. A step is one character looked at; text that is read once
/// takes one or two.
const STEPS_PER_BYTE: usize = 32;

pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) depth: usize,
    pub(super) heredocs: Vec<Pending>,
    pub(super) script: Script,
    /// Places where `((` turned out to open two subshells.
    pub(super) not_arithmetic: BTreeSet<usize>,
    /// Whether parentheses were seen not to close: looking for `))` again would take the whole rest
    /// each time.
    pub(super) is_unbalanced: bool,
    fuel: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, depth: usize) -> Self {
        Self {
            text,
            at: 0,
            depth,
            heredocs: Vec::new(),
            script: Script::default(),
            not_arithmetic: BTreeSet::new(),
            is_unbalanced: false,
            fuel: text.len().saturating_mul(STEPS_PER_BYTE).saturating_add(4_096),
        }
    }

    /// Reads the whole text; after a fault it goes on where the fault was, so that nothing after
    /// it stays unjudged.
    pub(super) fn script(&mut self) {
        while self.at < self.text.len() {
            let before = self.at;
            let depth = self.depth;
            match self.list() {
                Ok(()) if self.at >= self.text.len() => break,
                Ok(()) => {
                    let found = self.found();
                    self.fault(format!("unexpected {found}"));
                    self.skip_token();
                }
                Err(Fault(why)) => {
                    self.fault(why);
                    self.depth = depth;
                    self.heredocs.clear();
                }
            }
            if self.at == before {
                self.step();
            }
            if self.fuel == 0 || self.script.commands.len() >= MAX_COMMANDS {
                self.fault("the text takes too long to read".to_owned());
                break;
            }
        }
    }

    pub(super) fn fault(&mut self, why: String) {
        // One line says it; hundreds would only fill the record.
        if self.script.faults.len() < 8 && !self.script.faults.contains(&why) {
            self.script.faults.push(why);
        }
    }

    // ---- characters ----

    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn peek_second(&self) -> Option<char> {
        self.rest().chars().nth(1)
    }

    pub(super) fn looking_at(&self, what: &str) -> bool {
        self.rest().starts_with(what)
    }

    /// Takes one character.
    pub(super) fn step(&mut self) -> Option<char> {
        let next = self.peek()?;
        if self.fuel == 0 {
            self.at = self.text.len();
            return None;
        }
        self.fuel -= 1;
        self.at += next.len_utf8();
        Some(next)
    }

    pub(super) fn take(&mut self, what: &str) -> bool {
        let is_there = self.looking_at(what);
        if is_there {
            self.at += what.len();
        }
        is_there
    }

    /// Runs `inside` one level deeper.
    pub(super) fn deeper<T>(&mut self, inside: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= MAX_DEPTH {
            return Err(Fault(format!("the text is nested more than {MAX_DEPTH} deep")));
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    /// Blanks, line continuations and a comment.
    pub(super) fn blanks(&mut self) {
        loop {
            if self.take(" ") || self.take("\t") || self.take("\\\n") {
                continue;
            }
            if self.looking_at("#") {
                let length = self.rest().find('\n').unwrap_or(self.rest().len());
                self.at += length;
            }
            return;
        }
    }

    /// Blanks, comments and newlines; a newline brings the bodies of pending here-documents.
    pub(super) fn newlines(&mut self) {
        loop {
            self.blanks();
            if !self.newline() {
                return;
            }
        }
    }

    pub(super) fn newline(&mut self) -> bool {
        let is_there = self.take("\n");
        if is_there {
            self.read_heredocs();
        }
        is_there
    }

    /// The unquoted run of characters up to a blank or an operator.
    pub(super) fn keyword(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find([' ', '\t', '\n', ';', '&', '|', '(', ')', '<', '>']);
        &rest[..end.unwrap_or(rest.len())]
    }

    pub(super) fn take_keyword(&mut self, word: &str) -> bool {
        let is_there = self.keyword() == word;
        if is_there {
            self.at += word.len();
        }
        is_there
    }

    pub(super) fn expect_keyword(&mut self, word: &str, opened_by: &str) -> Read<()> {
        self.newlines();
        if self.take_keyword(word) {
            Ok(())
        } else {
            let found = self.found();
            Err(Fault(format!("`{opened_by}` needs `{word}`, found {found}")))
        }
    }

    /// What stands here, for a message.
    pub(super) fn found(&self) -> String {
        match self.keyword() {
            "" => match self.peek() {
                Some('\n') => "the end of a line".to_owned(),
                Some(other) => format!("`{other}`"),
                None => "the end of the text".to_owned(),
            },
            word => format!("`{}`", crate::text::clip(word, 40)),
        }
    }

    fn skip_token(&mut self) {
        let word = self.keyword();
        if CLOSERS.contains(&word) {
            self.at += word.len();
        } else {
            self.step();
        }
    }

    // ---- lists and pipelines ----

    /// A list of pipelines, up to something that closes it. Doesn't take what closes it.
    pub(super) fn list(&mut self) -> Read<()> {
        loop {
            self.newlines();
            if self.closes_list() {
                return Ok(());
            }
            self.pipeline()?;
            self.blanks();
            if self.take("&&") || self.take("||") || self.newline() {
                continue;
            }
            if self.looking_at(";;") || self.looking_at(";&") {
                return Ok(());
            }
            if self.take(";") || self.take("&") || self.closes_list() || self.starts_command() {
                continue;
            }
            let found = self.found();
            return Err(Fault(format!("unexpected {found}")));
        }
    }

    fn closes_list(&self) -> bool {
        matches!(self.peek(), None | Some(')' | ';' | '&' | '|')) && !self.looking_at("&>")
            || CLOSERS.contains(&self.keyword())
    }

    /// Whether a command can follow a compound without a separator, as in `if (a) then`.
    fn starts_command(&self) -> bool {
        self.peek().is_some_and(|next| next.is_alphanumeric() || next == '{')
    }

    fn pipeline(&mut self) -> Read<()> {
        let mut feed: Option<Stdin> = None;
        loop {
            let first = self.script.commands.len();
            self.deeper(Self::command)?;
            let last = self.script.commands.len();
            if let Some(stdin) = &feed {
                for command in &mut self.script.commands[first..last] {
                    if command.stdin == Stdin::Inherited {
                        command.stdin = stdin.clone();
                    }
                }
            }
            self.blanks();
            if self.looking_at("||") || !(self.take("|&") || self.take("|")) {
                return Ok(());
            }
            let printed = printed_by(&self.script.commands[first..last]);
            feed = Some(printed.map_or(Stdin::Unknown, Stdin::Text));
            self.newlines();
        }
    }
}

/// What commands print, when they are one `echo` or `printf` of known words.
pub(super) fn printed_by(commands: &[Simple]) -> Option<String> {
    let [command] = commands else { return None };
    if !command.redirects.is_empty() {
        return None;
    }
    let words: Option<Vec<String>> = command.words.iter().map(printable).collect();
    let words = words?;
    let (name, arguments) = words.split_first()?;
    match name.as_str() {
        "echo" => {
            let plain: Vec<&str> = arguments
                .iter()
                .map(String::as_str)
                .skip_while(|word| matches!(*word, "-n" | "-e" | "-E" | "-ne" | "-en"))
                .collect();
            Some(plain.join(" "))
        }
        "printf" => {
            let (format, values) = arguments.split_first()?;
            Some(print_format(format, values))
        }
        _ => None,
    }
}

fn printable(word: &super::Word) -> Option<String> {
    word.parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Substitution { value, .. } => value.as_deref(),
            Part::Glob(_) | Part::Parameter { .. } | Part::Dynamic { .. } => None,
        })
        .collect()
}

/// `printf` with `%s` and the escapes that matter for words.
fn print_format(format: &str, values: &[String]) -> String {
    let mut out = String::new();
    let mut values = values.iter();
    loop {
        let before = values.len();
        let mut chars = format.chars().peekable();
        while let Some(c) = chars.next() {
            match (c, chars.peek()) {
                ('%', Some('s' | 'b' | 'q' | 'd')) => {
                    chars.next();
                    out.push_str(values.next().map_or("", String::as_str));
                }
                ('%', Some('%')) => {
                    chars.next();
                    out.push('%');
                }
                ('\\', Some('n')) => {
                    chars.next();
                    out.push('\n');
                }
                ('\\', Some('t')) => {
                    chars.next();
                    out.push(' ');
                }
                ('\\', Some(_)) => out.extend(super::word::escape(&mut chars)),
                _ => out.push(c),
            }
        }
        if values.len() == 0 || values.len() == before {
            return out;
        }
    }
}
