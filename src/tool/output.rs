//! Wording of command output: bounded text with totals, in the shape that models know.
//!
//! In: captured bytes and how the command stands. Out: text. Pure.

use std::time::Duration;

use crate::process::{Cause, Ended, Output};
use crate::text::{ceil_char_boundary, floor_char_boundary};

use super::ToolResult;

/// Tokens of output that a call returns unless it asks for fewer; 4 bytes each. The number that
/// models of this field are used to.
pub const DEFAULT_OUTPUT_TOKENS: usize = 10_000;

/// Bytes of one token, for estimates.
const TOKEN: usize = 4;

/// Longest line that the model sees whole, in bytes; our choice, so that one minified file can't
/// fill the window.
const LINE: usize = 4_096;

/// How a command stands when its call returns.
#[derive(Clone, Copy, Debug)]
pub enum Standing<'a> {
    /// It ended.
    Ended(&'a Ended),
    /// It lives on under this id.
    Running(u32),
}

/// Everything that a reply of `exec_command` or `write_stdin` says.
#[derive(Debug)]
pub struct ExecReply<'a> {
    /// Number of this chunk of output.
    pub chunk: u32,
    /// Wall time of the wait.
    pub wall: Duration,
    /// How the command stands.
    pub standing: Standing<'a>,
    /// Output since the last look.
    pub output: &'a Output,
    /// Most tokens to return.
    pub max_tokens: usize,
    /// Background processes alive after the main process ended.
    pub survivors: u32,
}

impl ExecReply<'_> {
    /// Words the reply.
    pub fn word(&self) -> ToolResult {
        let total = self.output.head.len() + self.output.tail.len();
        let total = u64::try_from(total).unwrap_or(u64::MAX).saturating_add(self.output.omitted);
        let tokens = total.div_ceil(TOKEN as u64);
        let status = self.standing_text();
        let text = self.body();
        let mut output = format!(
            "Chunk ID: {:06}\nWall time: {:.4} seconds\n{status}\n",
            self.chunk,
            self.wall.as_secs_f64()
        );
        let ended = match self.standing {
            Standing::Ended(ended) => Some(ended),
            Standing::Running(_) => None,
        };
        if ended.is_some() && self.survivors > 0 {
            let count = self.survivors.to_string();
            for part in ["Background processes still running: ", &count] {
                output.push_str(part);
            }
            output.push_str(" (they end with the attempt)\n");
        }
        let count = tokens.to_string();
        for part in ["Original token count: ", &count, "\nOutput:\n", &text] {
            output.push_str(part);
        }
        ToolResult {
            output,
            status: match ended {
                None => "running",
                Some(ended) if ended.cause == Cause::TimedOut => "timed-out",
                Some(ended) if ended.exit_code == Some(0) => "ok",
                Some(_) => "failed",
            },
            exit_code: ended.and_then(|ended| ended.exit_code),
            signal: ended.and_then(|ended| ended.signal),
            fingerprint: format!("{status}\n{text}"),
        }
    }

    fn standing_text(&self) -> String {
        match self.standing {
            Standing::Running(session) => format!("Process running with session ID {session}"),
            Standing::Ended(ended) if ended.cause == Cause::TimedOut => {
                "Process reached its deadline and was stopped with all its descendants".to_owned()
            }
            Standing::Ended(ended) if ended.cause == Cause::Limit => {
                "Process was stopped with all its descendants: its temporary folder takes more than \
                 permissions.limits.tmp_size"
                    .to_owned()
            }
            Standing::Ended(Ended { exit_code: Some(code), .. }) => {
                format!("Process exited with code {code}")
            }
            Standing::Ended(Ended { signal: Some(signal), .. }) => {
                format!("Process was ended by signal {signal}")
            }
            Standing::Ended(_) => "Process ended".to_owned(),
        }
    }

    fn body(&self) -> String {
        if self.output.head.contains(&0) || self.output.tail.contains(&0) {
            let mut kept = self.output.head.clone();
            kept.extend_from_slice(&self.output.tail);
            let total = (kept.len() as u64).saturating_add(self.output.omitted);
            return format!(
                "[binary output: {total} bytes, not shown; SHA-256 of the {} kept bytes is {}]",
                kept.len(),
                crate::text::sha256(&kept)
            );
        }
        clip_output(self.output, self.max_tokens.min(DEFAULT_OUTPUT_TOKENS) * TOKEN)
    }
}

/// Cuts output to `most` bytes: first and last halves, long lines shortened, totals said.
pub fn clip_output(output: &Output, most: usize) -> String {
    let head = shorten_lines(&String::from_utf8_lossy(&output.head));
    let tail = shorten_lines(&String::from_utf8_lossy(&output.tail));
    let kept = head.len() + tail.len();
    if output.omitted == 0 && kept <= most {
        return head + &tail;
    }
    let raw = (output.head.len() + output.tail.len()) as u64 + output.omitted;
    let count = |bytes: &[u8]| bytes.split(|&byte| byte == b'\n').count() as u64 - 1;
    let lines = count(&output.head) + count(&output.tail) + output.omitted_lines;
    let half = most / 2;
    let (first, last) = if output.omitted == 0 {
        let all = head + &tail;
        let cut = floor_char_boundary(&all, half.min(all.len()));
        let from = ceil_char_boundary(&all, all.len().saturating_sub(half).max(cut));
        (all[..cut].to_owned(), all[from..].to_owned())
    } else {
        let cut = floor_char_boundary(&head, half.min(head.len()));
        let from = ceil_char_boundary(&tail, tail.len().saturating_sub(half));
        (head[..cut].to_owned(), tail[from..].to_owned())
    };
    let shown = (first.len() + last.len()) as u64;
    let lost = raw.saturating_sub(shown).div_ceil(TOKEN as u64);
    format!(
        "Warning: truncated output (original token count: {}; {raw} bytes)\nTotal output lines: {lines}\n\n\
         {first}…{lost} tokens truncated…{last}",
        raw.div_ceil(TOKEN as u64)
    )
}

/// Shortens lines over [`LINE`] bytes and says by how much.
fn shorten_lines(text: &str) -> String {
    if text.lines().all(|line| line.len() <= LINE) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let body = line.strip_suffix('\n').unwrap_or(line);
        if body.len() <= LINE {
            out.push_str(line);
            continue;
        }
        let cut = floor_char_boundary(body, LINE / 2);
        let from = ceil_char_boundary(body, body.len() - LINE / 2);
        let gone = (from - cut).to_string();
        for part in [&body[..cut], "…", &gone, " bytes of this line omitted…", &line[from..]] {
            out.push_str(part);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{LINE, clip_output};
    use crate::process::Output;

    fn output(head: &str) -> Output {
        Output { head: head.as_bytes().to_vec(), ..Output::default() }
    }

    #[test]
    fn short_output_is_whole() {
        assert_eq!(clip_output(&output("a\nb\n"), 100), "a\nb\n");
    }

    #[test]
    fn long_output_keeps_head_and_tail_and_says_the_totals() {
        let text = clip_output(&output(&"line\n".repeat(1_000)), 100);
        assert!(text.starts_with("Warning: truncated output (original token count: 1250; 5000 bytes)\nTotal output lines: 1000\n\nline\n"), "{text}");
        assert!(text.ends_with("line\n"));
        assert!(text.contains("…1225 tokens truncated…"), "{text}");
    }

    #[test]
    fn one_long_line_is_shortened_in_the_middle() {
        let text = clip_output(&output(&format!("{}\nend\n", "x".repeat(LINE * 2))), 40_000);
        assert!(text.contains("bytes of this line omitted"), "{}", text.len());
        assert!(text.ends_with("\nend\n"));
    }

    #[test]
    fn invalid_utf8_becomes_replacement_characters() {
        let output = Output { head: vec![0xed, 0xa0, 0xbd, b'\n'], ..Output::default() };
        assert!(clip_output(&output, 100).contains('\u{fffd}'));
    }
}
