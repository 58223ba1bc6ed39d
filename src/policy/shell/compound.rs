//! Compound commands: what opens, what closes, and what stands inside.

use super::parse::{Fault, Read, Reader};
use super::{Assignment, Function, Part, Simple, Word, readings};

impl Reader<'_> {
    /// One command of a pipeline.
    pub(super) fn command(&mut self) -> Read<()> {
        loop {
            self.blanks();
            if self.looking_at("!") && matches!(self.peek_second(), Some(' ' | '\t' | '(' | '\n')) {
                self.at += 1;
            } else if !self.take_time() {
                break;
            }
        }
        let first = self.script.commands.len();
        if self.looking_at("((") && self.arithmetic()? {
            return self.trailing_redirects(first);
        }
        if self.take("(") {
            self.list()?;
            self.close("(", ")")?;
            return self.trailing_redirects(first);
        }
        match self.keyword() {
            "if" => self.if_command()?,
            "while" | "until" => self.loop_command()?,
            "for" | "select" => self.for_command()?,
            "case" => self.case_command()?,
            "{" => self.group()?,
            "[[" => self.condition()?,
            "function" => return self.function_command(),
            "coproc" => return self.coproc_command(),
            _ => return self.simple(),
        }
        self.trailing_redirects(first)
    }

    /// Takes the word `time` where it stands before a compound; before a simple command it is left
    /// as a wrapper like any other.
    fn take_time(&mut self) -> bool {
        if self.keyword() != "time" {
            return false;
        }
        let start = self.at;
        self.at += "time".len();
        self.blanks();
        if self.take_keyword("-p") {
            self.blanks();
        }
        let opens = self.looking_at("(")
            || matches!(
                self.keyword(),
                "{" | "if"
                    | "while"
                    | "until"
                    | "for"
                    | "select"
                    | "case"
                    | "[["
                    | "!"
                    | "time"
                    | "coproc"
            );
        if !opens {
            self.at = start;
        }
        opens
    }

    fn close(&mut self, opened_by: &str, closer: &str) -> Read<()> {
        self.newlines();
        if self.take(closer) {
            return Ok(());
        }
        let found = self.found();
        Err(Fault(format!("`{opened_by}` needs `{closer}`, found {found}")))
    }

    fn group(&mut self) -> Read<()> {
        self.at += 1;
        self.list()?;
        self.close("{", "}")
    }

    fn if_command(&mut self) -> Read<()> {
        self.at += "if".len();
        self.list()?;
        self.expect_keyword("then", "if")?;
        self.list()?;
        loop {
            self.newlines();
            if self.take_keyword("elif") {
                self.list()?;
                self.expect_keyword("then", "elif")?;
                self.list()?;
            } else if self.take_keyword("else") {
                self.list()?;
            } else {
                return self.expect_keyword("fi", "if");
            }
        }
    }

    fn loop_command(&mut self) -> Read<()> {
        self.at += self.keyword().len();
        self.list()?;
        self.do_group("while")
    }

    fn do_group(&mut self, opened_by: &str) -> Read<()> {
        self.newlines();
        if self.keyword() == "{" {
            return self.group();
        }
        self.expect_keyword("do", opened_by)?;
        self.list()?;
        self.expect_keyword("done", opened_by)
    }

    fn for_command(&mut self) -> Read<()> {
        self.at += self.keyword().len();
        self.blanks();
        if self.looking_at("((") {
            if !self.arithmetic()? {
                return Err(Fault("`for ((` needs `))`".to_owned()));
            }
            self.blanks();
            self.take(";");
            return self.do_group("for");
        }
        let name = self.keyword();
        if name.is_empty() {
            return Err(Fault("`for` needs a name".to_owned()));
        }
        self.at += name.len();
        self.newlines();
        if self.take_keyword("in") {
            let mut words = Vec::new();
            loop {
                self.blanks();
                if matches!(self.peek(), None | Some('\n' | ';' | '&' | '|' | ')' | '(')) {
                    break;
                }
                let start = self.at;
                words.extend(self.words()?);
                if self.at == start {
                    let found = self.found();
                    return Err(Fault(format!("unexpected {found} in `for`")));
                }
            }
            let mut values = Vec::new();
            for word in &words {
                let one = readings(std::slice::from_ref(word), &self.script.variables);
                values.extend(one.split_words());
            }
            self.script.variables.add(name, &values);
        }
        self.blanks();
        self.take(";");
        self.do_group("for")
    }

    fn case_command(&mut self) -> Read<()> {
        self.at += "case".len();
        self.blanks();
        self.words()?;
        self.expect_keyword("in", "case")?;
        loop {
            self.newlines();
            if self.take_keyword("esac") {
                return Ok(());
            }
            self.take("(");
            loop {
                self.blanks();
                let start = self.at;
                self.words()?;
                self.blanks();
                if self.take("|") {
                    continue;
                }
                if self.take(")") {
                    break;
                }
                if self.at == start || !self.looking_at(")") {
                    let found = self.found();
                    return Err(Fault(format!("a pattern of `case` needs `)`, found {found}")));
                }
            }
            self.list()?;
            self.blanks();
            if !(self.take(";;&") || self.take(";;") || self.take(";&")) {
                return self.expect_keyword("esac", "case");
            }
        }
    }

    /// `[[ … ]]`: nothing in it is a command, but for what its words substitute.
    fn condition(&mut self) -> Read<()> {
        self.at += "[[".len();
        loop {
            self.newlines();
            if self.take_keyword("]]") {
                return Ok(());
            }
            if self.take("&&") || self.take("||") {
                continue;
            }
            if self.take("=~") {
                self.blanks();
                self.regex()?;
                continue;
            }
            if matches!(self.peek(), Some('(' | ')' | '<' | '>')) && !self.looking_at("<(") {
                self.step();
                continue;
            }
            let start = self.at;
            self.words()?;
            if self.at == start {
                let found = self.found();
                return Err(Fault(format!("`[[` needs `]]`, found {found}")));
            }
        }
    }

    /// The right side of `=~`: parentheses and bars belong to it.
    fn regex(&mut self) -> Read<()> {
        let mut open = 0_u32;
        loop {
            match self.peek() {
                None | Some('\n') => return Ok(()),
                Some(' ' | '\t') if open == 0 => return Ok(()),
                Some('(') => open += 1,
                Some(')') => open = open.saturating_sub(1),
                Some('\'' | '"' | '$' | '`' | '\\') => {
                    self.word_piece(&mut Vec::new())?;
                    continue;
                }
                Some(_) => {}
            }
            self.step();
        }
    }

    fn function_command(&mut self) -> Read<()> {
        self.at += "function".len();
        self.blanks();
        let name = self.words()?.first().and_then(Word::known).unwrap_or_default();
        self.blanks();
        self.function_body(&name)
    }

    /// From the `()` of a definition on. What the body does is judged where it is defined.
    pub(super) fn function_body(&mut self, name: &str) -> Read<()> {
        if self.take("(") {
            self.blanks();
            self.close("(", ")")?;
        }
        self.newlines();
        let first = self.script.commands.len();
        self.deeper(Self::command)?;
        let body = first..self.script.commands.len();
        self.script.functions.push(Function { name: name.to_owned(), body });
        Ok(())
    }

    fn coproc_command(&mut self) -> Read<()> {
        self.at += "coproc".len();
        self.blanks();
        let name = self.keyword();
        let after = self.rest()[name.len()..].trim_start_matches([' ', '\t']);
        let opens = ["(", "{ ", "{\n", "if ", "while ", "until ", "for ", "case ", "[[ "];
        let is_name = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && opens.iter().any(|open| after.starts_with(open));
        let compound = ["if", "while", "until", "for", "select", "case", "function"];
        if is_name && !compound.contains(&name) {
            self.at += name.len();
        }
        self.deeper(Self::command)
    }

    /// `((…))`. False, and nothing taken, when it is two subshells after all.
    pub(super) fn arithmetic(&mut self) -> Read<bool> {
        let start = self.at;
        if self.is_unbalanced || self.not_arithmetic.contains(&start) {
            return Ok(false);
        }
        let commands = self.script.commands.len();
        let heredocs = self.heredocs.len();
        self.at += 2;
        let mut open = 2_u32;
        let is_arithmetic = self.deeper(|reader| {
            loop {
                match reader.peek() {
                    None => {
                        reader.is_unbalanced = true;
                        return Ok(false);
                    }
                    Some('(') => open += 1,
                    Some(')') => {
                        open -= 1;
                        if open == 1 {
                            reader.step();
                            return Ok(reader.take(")"));
                        }
                    }
                    Some('$' | '`' | '"' | '\\') => {
                        reader.word_piece(&mut Vec::new())?;
                        continue;
                    }
                    Some(_) => {}
                }
                reader.step();
            }
        })?;
        if !is_arithmetic {
            self.not_arithmetic.insert(start);
            self.at = start;
            self.script.commands.truncate(commands);
            self.heredocs.truncate(heredocs);
        }
        Ok(is_arithmetic)
    }

    /// `NAME=(…)`: its words are values, not commands.
    pub(super) fn array(&mut self, name: &str) -> Read<()> {
        self.at += 1;
        let mut values = Vec::new();
        loop {
            self.newlines();
            if self.take(")") {
                break;
            }
            let start = self.at;
            let words = self.words()?;
            if self.at == start {
                let found = self.found();
                return Err(Fault(format!("`{name}=(` needs `)`, found {found}")));
            }
            for word in &words {
                values.extend(
                    readings(std::slice::from_ref(word), &self.script.variables).split_words(),
                );
            }
        }
        let joined = values.join(" ");
        values.push(joined);
        self.script.variables.add(name, &values);
        let value = Word {
            parts: vec![Part::Dynamic { is_quoted: false }],
            raw: String::new(),
            is_quoted: false,
        };
        let assignments = vec![Assignment { name: name.to_owned(), value }];
        self.script.commands.push(Simple { assignments, ..Simple::default() });
        Ok(())
    }
}
