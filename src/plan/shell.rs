//! Shell text with values put in: each value becomes data wherever it stands.
//!
//! In: shell text with marks for values, and the values. Out: shell text in which each value is
//! quoted, or the reason why one can't be. Pure; knows nothing of templates.

/// Stands before and after the number of a value; can't occur in shell text.
pub const MARK: char = '\0';

/// Where in shell text a value stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Bare,
    Single,
    AnsiC,
    Double,
    Comment,
}

/// Puts `values` in where `text` has their numbers between [`MARK`]s, quoted.
///
/// # Errors
///
/// A sentence when a value that needs quotes stands where ours would mean something else: inside
/// quotes, a comment or a here-document, or after something that makes that undecidable here.
pub fn put_in(text: &str, values: &[Vec<String>]) -> Result<String, String> {
    let mut scan =
        Scan { state: State::Bare, at_word: true, is_unclear: false, angles: 0, last: '\n' };
    let mut out = String::with_capacity(text.len());
    let mut pieces = text.split(MARK);
    if let Some(first) = pieces.next() {
        scan.read(first);
        out.push_str(first);
    }
    while let Some(number) = pieces.next() {
        let value = number.parse::<usize>().ok().and_then(|number| values.get(number));
        let (Some(value), Some(rest)) = (value, pieces.next()) else {
            return Err(
                "a template must not take values apart that it puts into a command".to_owned()
            );
        };
        let placed = scan.place(value)?;
        if !placed.is_empty() {
            scan.at_word = false;
            scan.last = 'x';
        }
        out.push_str(&placed);
        scan.read(rest);
        out.push_str(rest);
    }
    Ok(out)
}

struct Scan {
    state: State,
    at_word: bool,
    /// Whether quotes can't be followed any more: expansions inside double quotes, backquotes,
    /// here-documents.
    is_unclear: bool,
    /// How many `<` stand directly before.
    angles: usize,
    last: char,
}

impl Scan {
    fn place(&mut self, value: &[String]) -> Result<String, String> {
        self.end_of_angles();
        if self.state != State::Single && self.last == '$' {
            return Err(
                "a `$` stands before a value, which would make it the name of a variable; \
                write `{{ … }}`, not `${{ … }}`"
                    .to_owned(),
            );
        }
        let is_single = value.len() == 1;
        let is_inert = |text: &String| text.chars().all(is_inert);
        if is_single && value.iter().all(|text| !text.is_empty() && is_inert(text)) {
            return Ok(value.concat());
        }
        if self.is_unclear || self.state != State::Bare {
            return Err("a value stands inside quotes, a comment, a here-document or a nested \
                expansion; take it out: values are quoted already"
                .to_owned());
        }
        let mut words = Vec::with_capacity(value.len());
        for word in value {
            let quoted =
                shlex::try_quote(word).map_err(|_| "a value has a NUL byte in it".to_owned())?;
            words.push(quoted.into_owned());
        }
        Ok(words.join(" "))
    }

    fn read(&mut self, text: &str) {
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            let next = letters.peek().copied();
            match self.state {
                State::Bare => {
                    self.bare(letter, next);
                    if letter == '\\' {
                        self.escape(letters.next());
                        continue;
                    }
                }
                State::AnsiC | State::Double if letter == '\\' => {
                    self.escape(letters.next());
                    continue;
                }
                State::Single | State::AnsiC if letter == '\'' => self.state = State::Bare,
                State::Double if letter == '"' => self.state = State::Bare,
                State::Double if letter == '`' => self.is_unclear = true,
                State::Double if letter == '$' && matches!(next, Some('(' | '{')) => {
                    self.is_unclear = true;
                }
                State::Comment if letter == '\n' => {
                    self.state = State::Bare;
                    self.at_word = true;
                }
                State::Single | State::AnsiC | State::Double | State::Comment => {}
            }
            self.last = letter;
        }
    }

    /// Takes the letter after a backslash; none means that the backslash stands before a value and
    /// would take our first quote.
    fn escape(&mut self, letter: Option<char>) {
        self.is_unclear |= letter.is_none();
        self.last = 'x';
    }

    fn bare(&mut self, letter: char, next: Option<char>) {
        if letter == '<' {
            self.angles += 1;
        } else {
            self.end_of_angles();
        }
        match letter {
            '\'' if self.last == '$' => self.state = State::AnsiC,
            '\'' => self.state = State::Single,
            '"' => self.state = State::Double,
            '#' if self.at_word => self.state = State::Comment,
            '`' => self.is_unclear = true,
            // `$$'` is a process id and a plain quote, not `$'`.
            '$' if matches!(next, Some('{' | '$')) => self.is_unclear = true,
            _ => {}
        }
        self.at_word =
            letter.is_whitespace() || matches!(letter, ';' | '&' | '|' | '(' | ')' | '<' | '>');
    }

    /// Two `<` begin a here-document; three are a here-string, which is an ordinary word.
    fn end_of_angles(&mut self) {
        self.is_unclear |= self.angles == 2;
        self.angles = 0;
    }
}

/// Characters that mean themselves in every quoting of a shell.
fn is_inert(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "_./:@%+,-".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::put_in;

    fn put(text: &str, value: &str) -> Result<String, String> {
        put_in(&text.replace('@', "\u{0}0\u{0}"), &[vec![value.to_owned()]])
    }

    #[test]
    fn a_value_is_one_word() {
        assert_eq!(put("echo @", "a b").as_deref(), Ok("echo 'a b'"));
        assert_eq!(put("echo x@y", "$(id)").as_deref(), Ok("echo x'$(id)'y"));
        assert_eq!(put("echo @", "").as_deref(), Ok("echo ''"));
        assert_eq!(put("echo @", "it's").as_deref(), Ok("echo \"it's\""));
        assert_eq!(put("git diff @...HEAD", "abc123").as_deref(), Ok("git diff abc123...HEAD"));
        assert_eq!(put("echo '@'", "abc").as_deref(), Ok("echo 'abc'"));
        assert_eq!(put("cat <<<@", "a b").as_deref(), Ok("cat <<<'a b'"));
        assert_eq!(put("echo $(cat @)", "a b").as_deref(), Ok("echo $(cat 'a b')"));
    }

    #[test]
    fn a_value_inside_quotes_is_refused() {
        for text in [
            "echo \\@",
            "echo $@",
            "echo $$'\\' '@",
            "echo \"@\"",
            "echo '@'",
            "echo $'it\\'s @'",
            "echo \"$(echo \"@\")\"",
            "echo `echo @`",
            "cat <<EOF\n@\nEOF",
            "echo ${x:-\"@\"}",
            "# @",
            "# say \"\necho \"@\"",
            "echo \"\\\"@\"",
        ] {
            assert!(put(text, "$(id)").is_err(), "{text}");
        }
        assert!(put("echo # it's\necho @", "a b").is_ok());
        assert!(put("echo \\' @", "a b").is_ok());
    }

    #[test]
    fn a_list_is_many_words() {
        let value = vec!["a b".to_owned(), "c".to_owned()];
        assert_eq!(put_in("ls \u{0}0\u{0}", &[value]).as_deref(), Ok("ls 'a b' c"));
        assert_eq!(put_in("ls \u{0}0\u{0}", &[vec![]]).as_deref(), Ok("ls "));
    }

    #[test]
    fn a_torn_mark_is_refused() {
        assert!(put_in("ls \u{0}0", &[vec![]]).is_err());
        assert!(put_in("ls \u{0}x\u{0}", &[vec![]]).is_err());
    }
}
