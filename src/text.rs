//! Text: clipping, digests and durations, the same way everywhere.
//!
//! In: bytes and strings. Out: bounded, printable strings. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of `bytes` in lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Returns `bytes` in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        if write!(out, "{byte:02x}").is_err() {
            out.clear();
        }
        out
    })
}

/// Cuts `text` to at most `most` bytes at a character border and says how many bytes are gone.
pub fn clip(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = floor_char_boundary(text, most);
    format!("{}… ({} bytes more)", &text[..end], text.len() - end)
}

/// The largest character border of `text` that is at most `index`.
pub fn floor_char_boundary(text: &str, index: usize) -> usize {
    if index >= text.len() {
        return text.len();
    }
    (0..=index).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// The smallest character border of `text` that is at least `index`.
pub fn ceil_char_boundary(text: &str, index: usize) -> usize {
    (index..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len())
}

/// Reads a duration such as `90s`, `1h30m` or `250ms`: numbers with a unit of `ms s m h`, joined.
///
/// Returns `None` for anything else, for zero units, and for more than 10 years.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|&at| at > 0)?;
        let number: u64 = rest[..digits].parse().ok()?;
        let units = &rest[digits..];
        let (unit, length) = if units.starts_with("ms") {
            (1, 2)
        } else if units.starts_with('s') {
            (1_000, 1)
        } else if units.starts_with('m') {
            (60_000, 1)
        } else if units.starts_with('h') {
            (3_600_000, 1)
        } else {
            return None;
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(unit)?))?;
        rest = &units[length..];
    }
    (total <= Duration::from_hours(87_600)).then_some(total)
}

/// Reads a size such as `64KiB`, `2GiB`, `10MB` or `4096` (bytes).
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let unit: u64 = match text[digits..].trim_start() {
        "" | "B" => 1,
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Returns the candidate that is most like `word`, if one is alike enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len().max(word.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Where `part`, which isn't empty, first stands in `bytes`.
pub fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    let first = *part.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|&byte| byte == first) {
        let start = from + at;
        if bytes[start..].starts_with(part) {
            return Some(start);
        }
        from = start + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{clip, nearest, parse_duration, parse_size, sha256};

    #[test]
    fn durations_and_sizes_have_units() {
        assert_eq!(parse_duration("1h30m"), Some(Duration::from_mins(90)));
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        for bad in ["", "20", "s", "1d", "-1s", "1.5s", "1s ", "999999999999999999h"] {
            assert_eq!(parse_duration(bad), None, "{bad}");
        }
        assert_eq!(parse_size("64KiB"), Some(65_536));
        assert_eq!(parse_size("12"), Some(12));
        assert_eq!(parse_size("x"), None);
    }

    #[test]
    fn clipping_keeps_characters_whole() {
        assert_eq!(clip("äöü", 3), "ä… (4 bytes more)");
        assert_eq!(clip("abc", 3), "abc");
    }

    #[test]
    fn a_typo_finds_its_key() {
        assert_eq!(nearest("netowrk", ["network", "write"]), Some("network"));
        assert_eq!(nearest("zzz", ["network", "write"]), None);
    }

    #[test]
    fn digests_are_lower_case_hex() {
        assert_eq!(&sha256(b"")[..8], "e3b0c442");
    }
}
