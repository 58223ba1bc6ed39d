//! The transcript: what happened, line by line, chained by digests (P4).
//!
//! In: events with their scope, and bytes that don't fit a line. Out: `transcript.jsonl`, `blobs/`.
//! Knows nothing of sessions, models or reports.

pub mod append;
pub mod chain;
pub mod event;
pub mod mask;
pub mod read;

pub use append::{Sink, Transcript, TranscriptError};
pub use chain::{Verified, VerifyError, verify};
pub use event::{Blob, Event, Record, Scope};
pub use read::{BlobFolder, Blobs, Lines, ReadError, read};

/// Name of the transcript inside a run's folder.
pub const FILE: &str = "transcript.jsonl";

/// Name of the folder beside it that holds the blobs.
pub const BLOBS: &str = "blobs";

/// `prev` of line 0.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The published JSON Schema of a transcript's line, as text that ends with a newline.
pub fn schema() -> String {
    published::<Record>("A line of horseman's transcript, version 1")
}

/// The JSON Schema of `T` under `title`, as it is published.
pub(crate) fn published<T: schemars::JsonSchema>(title: &str) -> String {
    let mut schema = schemars::schema_for!(T);
    schema.insert("title".to_owned(), title.into());
    format!("{:#}\n", schema.to_value())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::Path;

    /// Holds a generated file to the committed one at `path`, relative to the package; `UPDATE=1`
    /// writes it instead, but never where `CI` is set.
    #[expect(clippy::disallowed_methods, reason = "tests take their orders from the environment")]
    pub(crate) fn assert_committed(path: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        if std::env::var_os("UPDATE").is_some() {
            assert!(std::env::var_os("CI").is_none(), "`UPDATE` is refused where `CI` is set");
            fs::write(&path, text).unwrap();
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == text, "{} differs; run the test with UPDATE=1", path.display());
    }

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        assert_committed("src/transcript/transcript.v1.schema.json", &super::schema());
    }
}
