//! What the transcript means.
