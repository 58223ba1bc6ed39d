//! Bodies of HTTP/1 messages: where they end.
//!
//! In: bytes behind a head. Out: the bytes that go on, until the end and not further. Pure. Chunks
//! are written anew, without extensions and trailers, so that nothing hides in them.

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With an empty chunk: RFC 9112 §7.1.
    Chunked,
    /// With the connection.
    Close,
}

/// Most bytes of the line before a chunk; ours.
const LINE: usize = 1 << 10;
/// Most bytes of trailers; ours.
const TRAILERS: usize = 16 << 10;

/// Follows a body to its end.
#[derive(Clone, Debug)]
pub(super) struct Body {
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    Close,
    /// In the line before a chunk, of which so much is there.
    Size(Vec<u8>),
    /// In a chunk with so much left.
    Chunk(u64),
    /// In the line break behind a chunk, of which so much was seen.
    Break(usize),
    /// In the trailers: bytes seen, bytes of this line.
    Trailers(usize, Vec<u8>),
    Done,
}

/// The chunks are not chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl Body {
    pub(super) fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size(Vec::new()),
            Framing::Close => State::Close,
        };
        Self { state }
    }

    /// Whether its end was seen.
    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the connection may end here.
    pub(super) fn may_close(&self) -> bool {
        matches!(self.state, State::Close | State::Done)
    }

    /// Takes what belongs to it from `bytes`; returns how much that is, and appends what goes on to
    /// `out`.
    pub(super) fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Broken> {
        let mut rest = bytes;
        while !rest.is_empty() && self.state != State::Done {
            match &mut self.state {
                State::Close => {
                    out.extend(rest);
                    rest = &[];
                }
                State::Length(left) | State::Chunk(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    let (taken, after) = rest.split_at(count);
                    out.extend(taken);
                    rest = after;
                    *left -= count as u64;
                    if *left == 0 {
                        let is_chunk = matches!(self.state, State::Chunk(_));
                        self.state = if is_chunk { State::Break(0) } else { State::Done };
                    }
                }
                State::Break(seen) => {
                    if rest[0] != b"\r\n"[*seen] {
                        return Err(Broken);
                    }
                    rest = &rest[1..];
                    *seen += 1;
                    if *seen == 2 {
                        out.extend(b"\r\n");
                        self.state = State::Size(Vec::new());
                    }
                }
                State::Size(line) => {
                    if take_line(&mut rest, line, LINE)? {
                        let size = size(line)?;
                        self.state = if size == 0 {
                            State::Trailers(0, Vec::new())
                        } else {
                            out.extend(format!("{size:x}\r\n").bytes());
                            State::Chunk(size)
                        };
                    }
                }
                State::Trailers(seen, line) => {
                    if take_line(&mut rest, line, TRAILERS)? {
                        *seen += line.len();
                        if line == b"\r\n" {
                            out.extend(b"0\r\n\r\n");
                            self.state = State::Done;
                        } else if *seen > TRAILERS {
                            return Err(Broken);
                        } else {
                            line.clear();
                        }
                    }
                }
                State::Done => {}
            }
        }
        Ok(bytes.len() - rest.len())
    }
}

/// Moves bytes up to a line feed; whether it was there, behind a carriage return.
fn take_line(rest: &mut &[u8], line: &mut Vec<u8>, most: usize) -> Result<bool, Broken> {
    let end = rest.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
    let (taken, after) = rest.split_at(end.unwrap_or(rest.len()));
    line.extend(taken);
    *rest = after;
    if line.len() > most || (end.is_some() && !line.ends_with(b"\r\n")) {
        return Err(Broken);
    }
    Ok(end.is_some())
}

/// The size that a chunk's line names.
fn size(line: &[u8]) -> Result<u64, Broken> {
    let text = line.strip_suffix(b"\r\n").ok_or(Broken)?;
    let digits = text.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let is_hex = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    // A bare carriage return in an extension is a line break for some readers.
    if !is_hex || text.contains(&b'\r') {
        return Err(Broken);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Broken)?;
    u64::from_str_radix(digits, 16).map_err(|_| Broken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Body, Broken, Framing};

    fn fed(framing: Framing, bytes: &[u8]) -> Result<(String, usize, bool), Broken> {
        let mut body = Body::new(framing);
        let mut out = Vec::new();
        let used = body.feed(bytes, &mut out)?;
        Ok((String::from_utf8_lossy(&out).into_owned(), used, body.is_done()))
    }

    #[test]
    fn a_body_ends_where_it_says() {
        assert_eq!(fed(Framing::Length(3), b"abcdef"), Ok(("abc".to_owned(), 3, true)));
        assert_eq!(fed(Framing::Length(0), b"abc"), Ok((String::new(), 0, true)));
        assert_eq!(fed(Framing::Close, b"abc"), Ok(("abc".to_owned(), 3, false)));
        assert_eq!(
            fed(Framing::Chunked, b"003;x=y\r\nabc\r\n0\r\nT: u\r\n\r\nGET /"),
            Ok(("3\r\nabc\r\n0\r\n\r\n".to_owned(), 25, true))
        );
    }

    #[test]
    fn chunks_that_are_none_are_refused() {
        for bytes in [
            &b"3\nabc\r\n"[..],
            b"3\r\nabcd\r\n",
            b"-3\r\nabc",
            b"0x3\r\nabc",
            b" 3\r\nabc",
            b"\r\n",
            b"3;a\rb\r\nabc",
            b"ffffffffffffffff\r\n",
            b"0\r\nx\n\r\n",
        ] {
            assert_eq!(fed(Framing::Chunked, bytes), Err(Broken), "{}", bytes.escape_ascii());
        }
        assert_eq!(fed(Framing::Chunked, &[b'1'; 2000]), Err(Broken));
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(cuts in proptest::collection::vec(1_usize..9, 1..40)) {
            let bytes = b"4\r\nwiki\r\n5;q\r\npedia\r\n0\r\nA: b\r\n\r\n";
            let mut body = Body::new(Framing::Chunked);
            let (mut out, mut at) = (Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(bytes.len());
                at += body.feed(&bytes[at..end], &mut out).unwrap();
                if body.is_done() {
                    break;
                }
            }
            prop_assert_eq!(at, bytes.len());
            prop_assert_eq!(out, b"4\r\nwiki\r\n5\r\npedia\r\n0\r\n\r\n".to_vec());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            drop(fed(Framing::Chunked, &bytes));
        }
    }
}
