//! Files as lines of bytes.
//!
//! In: the bytes of a file. Out: its lines with their endings, from which the same bytes can be
//! written again. Knows nothing of patches.

/// UTF-8 byte order mark.
const BOM: &[u8] = b"\xef\xbb\xbf";

/// Bytes looked at to tell UTF-16 without a byte order mark; our choice.
const PROBE: usize = 4096;

/// How a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// `\n`.
    Lf,
    /// `\r\n`.
    CrLf,
    /// Not at all: the last line of a file without a final newline.
    None,
}

impl Ending {
    pub(super) const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Lf => b"\n",
            Self::CrLf => b"\r\n",
            Self::None => b"",
        }
    }
}

/// A file, cut at line feeds and nowhere else: form feeds, U+2028 and lone carriage returns are
/// content.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    bytes: &'a [u8],
    /// Where each line starts in `bytes`; one more entry for the end.
    starts: Vec<usize>,
    /// The byte order mark, or nothing.
    pub(super) bom: &'a [u8],
}

impl<'a> Lines<'a> {
    pub(super) fn new(file: &'a [u8]) -> Self {
        let (bom, bytes) = match file.strip_prefix(BOM) {
            Some(rest) => (BOM, rest),
            None => (&file[..0], file),
        };
        let mut starts = vec![0];
        starts.extend(bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1));
        if starts.last() != Some(&bytes.len()) {
            starts.push(bytes.len());
        }
        Self { bytes, starts, bom }
    }

    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The line with its ending.
    pub(super) fn raw(&self, line: usize) -> &'a [u8] {
        self.range(line, line + 1)
    }

    /// Lines `from..to` with their endings.
    pub(super) fn range(&self, from: usize, to: usize) -> &'a [u8] {
        &self.bytes[self.starts[from]..self.starts[to]]
    }

    /// The line without its ending.
    pub(super) fn text(&self, line: usize) -> &'a [u8] {
        let raw = self.raw(line);
        &raw[..raw.len() - self.ending(line).bytes().len()]
    }

    pub(super) fn ending(&self, line: usize) -> Ending {
        let raw = self.raw(line);
        if raw.ends_with(b"\r\n") {
            Ending::CrLf
        } else if raw.ends_with(b"\n") {
            Ending::Lf
        } else {
            Ending::None
        }
    }

    /// The file's most frequent ending; LF wins a tie.
    pub(super) fn usual_ending(&self) -> Ending {
        let crlf = (0..self.len()).filter(|&line| self.ending(line) == Ending::CrLf).count();
        let lf = (0..self.len()).filter(|&line| self.ending(line) == Ending::Lf).count();
        if crlf > lf { Ending::CrLf } else { Ending::Lf }
    }

    /// Whether the file has lines, and the last of them has no ending.
    pub(super) fn is_open(&self) -> bool {
        self.len() > 0 && self.ending(self.len() - 1) == Ending::None
    }
}

/// The name of an encoding whose text can't be edited as lines of bytes, if `file` is in one.
pub(super) fn wide_encoding(file: &[u8]) -> Option<&'static str> {
    if file.starts_with(b"\xff\xfe\0\0") || file.starts_with(b"\0\0\xfe\xff") {
        return Some("UTF-32");
    }
    if file.starts_with(b"\xff\xfe") || file.starts_with(b"\xfe\xff") {
        return Some("UTF-16");
    }
    let probe = &file[..file.len().min(PROBE)];
    let nul_at = |odd: usize| {
        probe.iter().enumerate().filter(|(at, byte)| at % 2 == odd && **byte == 0).count()
    };
    let (even, odd) = (nul_at(0), nul_at(1));
    // Text in a European language has a NUL in nearly every other byte and none in between.
    let lopsided = even.min(odd) == 0 && even.max(odd) * 3 >= probe.len();
    (probe.len() >= 4 && lopsided).then_some("UTF-16 without a byte order mark")
}

/// Whether text outside ASCII can be added to `file` as UTF-8: the file is UTF-8, or has at least
/// one character of several bytes that is.
pub(super) fn takes_utf8(file: &[u8]) -> bool {
    file.is_ascii()
        || file.utf8_chunks().any(|chunk| !chunk.valid().is_ascii())
        || std::str::from_utf8(file).is_ok()
}
