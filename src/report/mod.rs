//! What the transcript means.
//!
//! In: a run's transcript and blobs. Out: [`Report`], and its renderings. Knows nothing of
//! sessions, models or tools; everything is a fold of the record (P4).

pub mod fold;
pub mod place;
pub mod shape;

pub use fold::fold;
pub use shape::{Report, schema};
