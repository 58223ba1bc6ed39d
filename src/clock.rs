//! Time: the one place that reads a clock.
//!
//! In: nothing. Out: milliseconds since the start, and UTC timestamps.

use std::time::{Duration, Instant, SystemTime};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A monotonic clock that starts at zero, with the wall clock beside it for timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

/// The host's time now, to compare with the times of files.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> SystemTime {
    SystemTime::now()
}

impl Clock {
    /// Starts a clock at zero.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Monotonic time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whole milliseconds since the start, monotonic.
    pub fn at_ms(&self) -> u64 {
        u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The wall clock as RFC 3339 in UTC with milliseconds, for example
    /// `2026-11-30T22:40:00.123Z`.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn timestamp() -> String {
        let now = OffsetDateTime::from(SystemTime::now());
        let now = now.replace_millisecond(now.millisecond()).unwrap_or(now);
        now.format(&Rfc3339).unwrap_or_default()
    }

    /// Milliseconds since the epoch, wall clock.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn epoch_ms() -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }
}
