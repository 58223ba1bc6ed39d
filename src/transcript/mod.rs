//! The transcript: what happened, line by line, chained by digests (P4).
//!
//! In: events with their scope, and bytes that don't fit a line. Out: `transcript.jsonl`, `blobs/`.
//! Knows nothing of sessions, models or reports.

pub mod event;

pub use event::{Blob, Event, Record, Scope};
