//! What the transcript means.
//!
//! In: a run's transcript and blobs. Out: [`Report`], and its renderings. Knows nothing of
//! sessions, models or tools; everything is a fold of the record (P4).

pub mod clean;
pub mod fold;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod progress;
mod query;
pub mod shape;
pub mod write;

pub use fold::fold;
pub use progress::Progress;
pub use shape::{Report, schema};
pub use write::{Format, ReportError, render, write_all};
