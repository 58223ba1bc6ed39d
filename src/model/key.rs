//! The provider's key: a secret that can be sent and nothing else (P6).
//!
//! In: the text that an environment variable, a file or a command gave. Out: the header value, and
//! a filter that takes the key out of any text. Pure.

use std::fmt;

/// What stands where a key stood.
const CUT: &str = "[key]";

/// A provider's key. It has no `Display`, its `Debug` shows nothing of it, and its bytes are
/// overwritten when it is dropped.
pub struct Key(Vec<u8>);

impl Key {
    /// Takes a key; blanks and line ends around it are not part of it.
    ///
    /// Returns `None` when nothing is left: an empty key is a missing key.
    pub fn new(text: String) -> Option<Self> {
        let whole = Self(text.into_bytes());
        let trimmed = whole.0.trim_ascii();
        (!trimmed.is_empty()).then(|| Self(trimmed.to_vec()))
    }

    /// The value of an `Authorization` header.
    pub(super) fn bearer(&self) -> Vec<u8> {
        [b"Bearer ".as_slice(), &self.0].concat()
    }

    /// Replaces every occurrence of the key in `text` by `[key]`.
    pub fn redact(&self, text: &str) -> String {
        match std::str::from_utf8(&self.0) {
            Ok(key) if text.contains(key) => text.replace(key, CUT),
            _ => text.to_owned(),
        }
    }

    /// Whether the key occurs in `bytes`.
    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        bytes.windows(self.0.len()).any(|window| window == self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Key(..)")
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without a reader the compiler may leave the overwriting out.
        std::hint::black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn p6_a_key_is_cut_out_of_texts_and_never_shown() {
        let key = Key::new(" sk-secret\r\n".to_owned()).unwrap();
        assert_eq!(key.redact("bad key sk-secret (sk-secret)"), "bad key [key] ([key])");
        assert_eq!(key.redact("nothing here"), "nothing here");
        assert_eq!(format!("{key:?}"), "Key(..)");
        assert_eq!(key.bearer(), b"Bearer sk-secret");
        assert!(key.is_in(b"x sk-secret y"));
        assert!(!key.is_in(b"sk"));
        assert!(Key::new(" \n".to_owned()).is_none());
    }
}
