//! Events that several places write alike.

use crate::process::{Cause, Ended};
use crate::sandbox::Confined;
use crate::transcript::{Blob, Event};

/// The event for a process that is about to start.
pub(crate) fn process_started(role: &str, confined: &Confined, session: Option<u32>) -> Event {
    let exec = confined.exec();
    Event::ProcessStarted {
        role: role.to_owned(),
        program: exec.program.to_string_lossy().into_owned(),
        argv: exec.argv.iter().map(|word| crate::text::clip(word, 16 << 10)).collect(),
        cwd: exec.cwd.to_string_lossy().into_owned(),
        by: confined.authority().to_string(),
        session,
    }
}

/// The event for a process that ended.
pub(crate) fn process_ended(ended: &Ended, log: Option<Blob>, session: Option<u32>) -> Event {
    let ms =
        |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Event::ProcessEnded {
        session,
        pid: ended.pid,
        exit_code: ended.exit_code,
        signal: ended.signal,
        cause: match ended.cause {
            Cause::Exited => "exited",
            Cause::TimedOut => "timed-out",
            Cause::Limit => "limit",
            Cause::Stopped => "stopped",
        }
        .to_owned(),
        wall_ms: ms(ended.wall),
        cpu_ms: ms(ended.cpu),
        output_bytes: ended.output_bytes,
        log,
        survivors: ended.survivors,
    }
}

/// An error with its causes, joined by `: `.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
