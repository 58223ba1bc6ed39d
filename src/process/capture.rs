//! Capture: what is kept of a command's output.
//!
//! In: chunks as they are read. Out: a bounded head and tail with counts of what lies between, and
//! the full log in a file up to its cap. Memory: at most twice the window.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use super::{Capture, Output};

/// Output that is being collected.
#[derive(Debug)]
pub(crate) struct Sink {
    window: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    omitted: u64,
    omitted_lines: u64,
    /// Bytes since the start.
    total: u64,
    log: Option<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    room: u64,
    dropped: u64,
}

impl Sink {
    /// Opens the log, if there is to be one; an existing file is emptied.
    pub(crate) fn new(capture: &Capture) -> io::Result<Self> {
        let log = match &capture.log {
            Some(path) => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).truncate(true).mode(0o600);
                let file = options.custom_flags(nix::libc::O_NOFOLLOW).open(path)?;
                Some(Log { file, room: capture.log_cap, dropped: 0 })
            }
            None => None,
        };
        Ok(Self {
            window: capture.window,
            head: Vec::new(),
            tail: VecDeque::new(),
            omitted: 0,
            omitted_lines: 0,
            total: 0,
            log,
        })
    }

    /// Takes a chunk in.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.total += chunk.len() as u64;
        if let Some(log) = &mut self.log {
            log.push(chunk);
        }
        let room = self.window.saturating_sub(self.head.len()).min(chunk.len());
        // Once something went to the tail, the head is closed: order matters more than room.
        let room = if self.tail.is_empty() && self.omitted == 0 { room } else { 0 };
        let (head, rest) = chunk.split_at(room);
        self.head.extend_from_slice(head);
        let skipped = rest.len().saturating_sub(self.window);
        let (lost, kept) = rest.split_at(skipped);
        if !lost.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            let (front, back) = tail.as_slices();
            self.omit(front);
            self.omit(back);
            self.omit(lost);
        }
        self.tail.extend(kept);
        let excess = self.tail.len().saturating_sub(self.window);
        if excess > 0 {
            self.omitted += excess as u64;
            let lines = self.tail.drain(..excess).filter(|&byte| byte == b'\n').count();
            self.omitted_lines += lines as u64;
        }
    }

    fn omit(&mut self, bytes: &[u8]) {
        self.omitted += bytes.len() as u64;
        self.omitted_lines += bytes.split(|&byte| byte == b'\n').skip(1).count() as u64;
    }

    /// Returns what came since the last look.
    pub(crate) fn take(&mut self) -> Output {
        let mut head = std::mem::take(&mut self.head);
        let mut tail = Vec::from(std::mem::take(&mut self.tail));
        let omitted = std::mem::take(&mut self.omitted);
        if omitted == 0 {
            head.append(&mut tail);
        }
        Output { head, omitted, omitted_lines: std::mem::take(&mut self.omitted_lines), tail }
    }

    /// Bytes since the start, kept or not.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Closes the log; a truncated one says how many bytes are missing.
    pub(crate) fn close_log(&mut self) {
        if let Some(mut log) = self.log.take()
            && log.dropped > 0
        {
            drop(writeln!(log.file, "\n[{} bytes more were not kept]", log.dropped));
        }
    }
}

impl Log {
    fn push(&mut self, chunk: &[u8]) {
        let most = usize::try_from(self.room).unwrap_or(usize::MAX).min(chunk.len());
        let (kept, lost) = chunk.split_at(most);
        self.dropped += lost.len() as u64;
        self.room -= kept.len() as u64;
        if !kept.is_empty() && self.file.write_all(kept).is_err() {
            // A full disk must not end the command: the rest of the log is dropped and counted.
            self.dropped += kept.len() as u64;
            self.room = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Capture, Sink};

    fn sink(window: usize) -> Sink {
        Sink::new(&Capture { window, log_cap: 0, ..Capture::default() }).unwrap()
    }

    #[test]
    fn head_and_tail_are_kept_whatever_the_chunks() {
        let text: Vec<u8> = (0..100).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        for size in [1, 2, 7, 9, 50, 290] {
            let mut sink = sink(8);
            text.chunks(size).for_each(|chunk| sink.push(chunk));
            let output = sink.take();
            assert_eq!(output.head, b"0\n1\n2\n3\n", "chunks of {size}");
            assert_eq!(output.tail, b"7\n98\n99\n"[..].to_vec(), "chunks of {size}");
            assert_eq!(output.omitted, 290 - 16, "chunks of {size}");
            assert_eq!(output.omitted_lines, 93, "chunks of {size}");
            assert_eq!(sink.total(), 290);
        }
    }

    #[test]
    fn nothing_omitted_is_one_piece() {
        let mut sink = sink(4);
        sink.push(b"abc");
        sink.push(b"defgh");
        assert_eq!(sink.take().head, b"abcdefgh");
        sink.push(b"x");
        let output = sink.take();
        assert_eq!((output.head, output.omitted), (b"x".to_vec(), 0));
        assert_eq!(sink.take().head, b"");
    }

    #[test]
    fn a_cut_log_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let capture = Capture { window: 1, log: Some(path.clone()), log_cap: 5, stdout: None };
        let mut sink = Sink::new(&capture).unwrap();
        sink.push(b"abc");
        sink.push(b"defgh");
        sink.close_log();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "abcde\n[3 bytes more were not kept]\n");
    }
}
