//! Server-sent events: bytes to frames.
//!
//! In: the bytes of a body, cut anywhere. Out: frames with their data. Pure; knows nothing of what
//! the data means.

/// One event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    /// The `event:` field, perhaps empty.
    pub(super) event: String,
    /// The `data:` fields, joined by newlines.
    pub(super) data: Vec<u8>,
}

/// Splits a body into frames. Lines end with LF, CR LF or CR; comments and unknown fields yield
/// nothing.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    line: Vec<u8>,
    frame: Frame,
    has_data: bool,
    ended_with_cr: bool,
    is_begun: bool,
    stray: Option<String>,
}

/// Longest stray line that is kept, in bytes.
const STRAY: usize = 4096;

impl Decoder {
    /// Takes the next bytes and returns the frames that they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut rest = bytes;
        while let Some((&first, tail)) = rest.split_first() {
            if std::mem::take(&mut self.ended_with_cr) && first == b'\n' {
                rest = tail;
                continue;
            }
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.line.extend_from_slice(rest);
                break;
            };
            self.line.extend_from_slice(&rest[..end]);
            self.ended_with_cr = rest[end] == b'\r';
            frames.extend(self.end_line());
            rest = &rest[end + 1..];
        }
        frames
    }

    /// Ends the body. A last frame counts even without the empty line after it.
    pub(super) fn finish(&mut self) -> Option<Frame> {
        if !self.line.is_empty() {
            let frame = self.end_line();
            debug_assert!(frame.is_none(), "a line with content completes no frame");
        }
        self.end_frame()
    }

    /// The first line that is no field of an event, as a hint when the body is none.
    pub(super) fn stray(&self) -> Option<&str> {
        self.stray.as_deref()
    }

    fn end_line(&mut self) -> Option<Frame> {
        let mut line = std::mem::take(&mut self.line);
        if !std::mem::replace(&mut self.is_begun, true) && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3);
        }
        if line.is_empty() {
            return self.end_frame();
        }
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"data" => {
                if self.has_data {
                    self.frame.data.push(b'\n');
                }
                self.frame.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.frame.event = String::from_utf8_lossy(value).into_owned(),
            b"" | b"id" | b"retry" => {}
            _ if self.stray.is_none() => {
                let shown = &line[..line.len().min(STRAY)];
                self.stray = Some(String::from_utf8_lossy(shown).into_owned());
            }
            _ => {}
        }
        None
    }

    /// An event without data is none.
    fn end_frame(&mut self) -> Option<Frame> {
        let frame = std::mem::take(&mut self.frame);
        std::mem::take(&mut self.has_data).then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::{Decoder, Frame};

    fn frames(chunks: &[&[u8]]) -> Vec<Frame> {
        let mut decoder = Decoder::default();
        let mut frames: Vec<_> = chunks.iter().flat_map(|chunk| decoder.push(chunk)).collect();
        frames.extend(decoder.finish());
        frames
    }

    fn frame(event: &str, data: &str) -> Frame {
        Frame { event: event.to_owned(), data: data.as_bytes().to_vec() }
    }

    #[test]
    fn lines_fields_and_comments_are_read() {
        for (text, expected) in [
            ("data: a\n\n", vec![frame("", "a")]),
            ("data:a\n\ndata:  b\n\n", vec![frame("", "a"), frame("", " b")]),
            ("event: x\ndata: a\ndata: b\n\n", vec![frame("x", "a\nb")]),
            ("event: x\n\ndata: a\n\n", vec![frame("", "a")]),
            (": keep-alive\n\nid: 3\nretry: 5\ndata: a\n\n", vec![frame("", "a")]),
            (
                "data: a\r\n\r\ndata: b\r\rdata: c\n\n",
                vec![frame("", "a"), frame("", "b"), frame("", "c")],
            ),
            ("\u{feff}data: ä\n\n", vec![frame("", "ä")]),
            ("data\n\n", vec![frame("", "")]),
            ("data: last", vec![frame("", "last")]),
            ("data: last\n", vec![frame("", "last")]),
            ("\n\n\n", vec![]),
        ] {
            assert_eq!(frames(&[text.as_bytes()]), expected, "{text:?}");
            for cut in 0..=text.len() {
                let (head, tail) = text.as_bytes().split_at(cut);
                assert_eq!(frames(&[head, tail]), expected, "{text:?} cut at {cut}");
            }
            let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
            assert_eq!(frames(&bytes), expected, "{text:?} byte by byte");
        }
    }

    #[test]
    fn the_first_stray_line_is_kept() {
        let mut decoder = Decoder::default();
        assert!(decoder.push(b"{\"error\": 1}\n<html>\n").is_empty());
        assert_eq!(decoder.finish(), None);
        assert_eq!(decoder.stray(), Some("{\"error\": 1}"));
    }

    proptest::proptest! {
        #[test]
        fn cuts_change_nothing(text in "([a-z:\\[ \r\n]|data: |\n\n){0,60}", size in 1_usize..7) {
            let chunks: Vec<_> = text.as_bytes().chunks(size).collect();
            proptest::prop_assert_eq!(frames(&chunks), frames(&[text.as_bytes()]));
        }
    }
}
