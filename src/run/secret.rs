//! A secret of one setup step, and its way out of what is kept.
//!
//! In: the text that a variable, a file or a command gave. Out: the value for one environment, and
//! bytes without it. Pure.

use std::fmt;

use crate::text::find;

/// What stands where a secret stood.
const CUT: &[u8] = b"[secret]";

/// Shortest line of a secret of several lines that is cut out by itself; ours: a shorter one would
/// be found everywhere.
const LINE: usize = 8;

/// A secret. Its `Debug` shows its variable alone, and its bytes are overwritten when it is dropped.
pub struct Secret {
    name: String,
    value: Vec<u8>,
}

impl Secret {
    /// Takes a secret for the variable `name`; blanks and line ends around it are no part of it.
    /// `None` when nothing is left, or what no environment can hold.
    pub fn new(name: &str, text: String) -> Option<Self> {
        let whole = Self { name: name.to_owned(), value: text.into_bytes() };
        let value = whole.value.trim_ascii().to_vec();
        let is_fit = !value.is_empty() && !value.contains(&0);
        is_fit.then(|| Self { name: name.to_owned(), value })
    }

    /// The variable that holds it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its text, for the environment of the one step.
    pub(crate) fn expose(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }

    /// What must not be kept: the whole, and the longer lines of one that has several.
    pub(crate) fn parts(&self) -> Vec<&[u8]> {
        let mut parts = vec![self.value.as_slice()];
        let lines = self.value.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        parts.extend(lines.filter(|line| line.len() >= LINE && *line != self.value));
        parts
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secret({})", self.name)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.value.fill(0);
        // Without a reader the compiler may leave the overwriting out.
        std::hint::black_box(&self.value);
    }
}

/// `bytes` with `[secret]` in place of each secret. A form that a program made of one, such as
/// base64, is not found.
pub(crate) fn cut(bytes: Vec<u8>, secrets: &[Secret]) -> Vec<u8> {
    let mut bytes = bytes;
    for part in secrets.iter().flat_map(Secret::parts) {
        let Some(mut at) = find(&bytes, part) else { continue };
        let mut clean = Vec::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        loop {
            clean.extend_from_slice(&rest[..at]);
            clean.extend_from_slice(CUT);
            rest = &rest[at + part.len()..];
            match find(rest, part) {
                Some(next) => at = next,
                None => break,
            }
        }
        clean.extend_from_slice(rest);
        bytes = clean;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{Secret, cut};

    #[test]
    fn a_secret_is_cut_out_whole_and_line_by_line() {
        let secrets = [
            Secret::new("A", " tok-en\n".to_owned()).unwrap(),
            Secret::new("B", "-----BEGIN-----\nabcdefgh\nx\n".to_owned()).unwrap(),
        ];
        let said = b"tok-tok-en abcdefgh x tok-en".to_vec();
        assert_eq!(cut(said, &secrets), b"tok-[secret] [secret] x [secret]");
        assert_eq!(cut(b"nothing".to_vec(), &secrets), b"nothing");
        assert_eq!(format!("{:?}", secrets[0]), "Secret(A)");
        assert!(Secret::new("C", " \n".to_owned()).is_none());
        assert!(Secret::new("C", "a\0b".to_owned()).is_none());
    }
}
