//! Edits as data.
