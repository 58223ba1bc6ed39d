//! The transcript: what happened, line by line, chained by digests (P4).
//!
//! In: events with their scope, and bytes that don't fit a line. Out: `transcript.jsonl`, `blobs/`.
//! Knows nothing of sessions, models or reports.

pub mod append;
pub mod event;

pub use append::{Sink, Transcript, TranscriptError};
pub use event::{Blob, Event, Record, Scope};

/// Name of the transcript inside a run's folder.
pub const FILE: &str = "transcript.jsonl";

/// Name of the folder beside it that holds the blobs.
pub const BLOBS: &str = "blobs";

/// `prev` of line 0.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";
