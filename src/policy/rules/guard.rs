//! Bounds of a rule file's text, checked before the Starlark parser sees it.
//!
//! In: text. Out: where it is too large, too deep or too long-winded. The parser and the compiler
//! recurse over what they read, so depth must be bounded before them.

/// Largest rule file, in bytes. Our choice.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of brackets. Our choice.
const MAX_BRACKETS: usize = 64;
/// Deepest indentation, in columns. Our choice.
const MAX_INDENT: usize = 200;
/// Most tokens in one expression, outer expressions included: each may be a level of recursion.
/// Our choice.
const MAX_CHAIN: usize = 4_000;
/// Most `elif` branches of a file, each a level of recursion. Our choice.
const MAX_ELIF: usize = 500;

/// Where a bound is broken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// Line, 1-based.
    pub(super) line: usize,
    /// What is wrong.
    pub(super) message: String,
}

/// Checks the bounds of `text`.
pub(super) fn check(text: &str) -> Result<(), Broken> {
    if text.len() > MAX_BYTES {
        return Err(Broken {
            line: 0,
            message: format!(
                "a rule file has at most {MAX_BYTES} bytes, this one has {}",
                text.len()
            ),
        });
    }
    Scan { bytes: text.as_bytes(), at: 0, line: 1, chains: vec![0], elifs: 0 }.run()
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    line: usize,
    chains: Vec<usize>,
    elifs: usize,
}

impl Scan<'_> {
    fn run(mut self) -> Result<(), Broken> {
        let mut is_line_start = true;
        while let Some(&byte) = self.bytes.get(self.at) {
            if is_line_start {
                is_line_start = false;
                self.indent()?;
                continue;
            }
            match byte {
                b'\n' => {
                    self.line += 1;
                    if let [only] = self.chains.as_mut_slice() {
                        *only = 0;
                        is_line_start = true;
                    }
                    self.at += 1;
                }
                b'#' => self.skip_while(|byte| byte != b'\n'),
                b'"' | b'\'' => self.string(byte),
                b'(' | b'[' | b'{' => {
                    self.count()?;
                    self.chains.push(0);
                    if self.chains.len() > MAX_BRACKETS {
                        return Err(
                            self.broken(format!("brackets are nested at most {MAX_BRACKETS} deep"))
                        );
                    }
                    self.at += 1;
                }
                b')' | b']' | b'}' => {
                    if self.chains.len() > 1 {
                        self.chains.pop();
                    }
                    self.at += 1;
                }
                b',' | b';' => {
                    if let Some(last) = self.chains.last_mut() {
                        *last = 0;
                    }
                    self.at += 1;
                }
                b'\\' if self.bytes.get(self.at + 1) == Some(&b'\n') => {
                    self.line += 1;
                    self.at += 2;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                _ if byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80 => self.word()?,
                _ => {
                    self.count()?;
                    self.at += 1;
                }
            }
        }
        Ok(())
    }

    fn indent(&mut self) -> Result<(), Broken> {
        let start = self.at;
        self.skip_while(|byte| byte == b' ' || byte == b'\t');
        if self.at - start > MAX_INDENT && self.chains.len() == 1 {
            return Err(self.broken(format!("a line is indented by at most {MAX_INDENT} columns")));
        }
        Ok(())
    }

    fn word(&mut self) -> Result<(), Broken> {
        let start = self.at;
        self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80);
        if self.bytes.get(start..self.at) == Some(b"elif".as_slice()) {
            self.elifs += 1;
            if self.elifs > MAX_ELIF {
                return Err(self.broken(format!("a file has at most {MAX_ELIF} `elif` branches")));
            }
        }
        self.count()
    }

    /// Skips a string; one that doesn't end is the parser's to complain about.
    fn string(&mut self, quote: u8) {
        let triple = [quote; 3];
        let is_triple = self.bytes[self.at..].starts_with(&triple);
        self.at += if is_triple { 3 } else { 1 };
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'\\' => {
                    if self.bytes.get(self.at + 1) == Some(&b'\n') {
                        self.line += 1;
                    }
                    self.at += 2;
                }
                b'\n' if !is_triple => return,
                _ if byte == quote && !is_triple => {
                    self.at += 1;
                    return;
                }
                _ if is_triple && self.bytes[self.at..].starts_with(&triple) => {
                    self.at += 3;
                    return;
                }
                _ => {
                    if byte == b'\n' {
                        self.line += 1;
                    }
                    self.at += 1;
                }
            }
        }
    }

    fn count(&mut self) -> Result<(), Broken> {
        if let Some(last) = self.chains.last_mut() {
            *last += 1;
        }
        if self.chains.iter().sum::<usize>() > MAX_CHAIN {
            return Err(self.broken(format!("an expression has at most {MAX_CHAIN} tokens")));
        }
        Ok(())
    }

    fn skip_while(&mut self, keep: impl Fn(u8) -> bool) {
        while self.bytes.get(self.at).is_some_and(|&byte| keep(byte)) {
            self.at += 1;
        }
    }

    fn broken(&self, message: String) -> Broken {
        Broken { line: self.line, message }
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn ordinary_files_pass() {
        let rule = "prefix_rule(pattern = [\"git\", [\"push\", \"fetch\"]])  # )))\n";
        assert_eq!(check(&rule.repeat(10_000)), Ok(()));
        assert_eq!(check("x = '''\n(((((\n'''\ny = \"[[[\\\"[[[\"\n"), Ok(()));
    }

    #[test]
    fn depth_is_bounded_however_it_is_made() {
        for (text, line) in [
            (format!("\nx = {}", "[".repeat(65)), 2),
            (format!("x = {}1", "-".repeat(5_000)), 1),
            (format!("x = 1{}", "+1".repeat(5_000)), 1),
            (format!("x = a{}", "[0]".repeat(5_000)), 1),
            (format!("if a:\n  pass\n{}", "elif a:\n  pass\n".repeat(600)), 1_003),
            (format!("{}x", " ".repeat(201)), 1),
            ("#".repeat((1 << 20) + 1), 0),
        ] {
            assert_eq!(check(&text).unwrap_err().line, line);
        }
    }
}
