//! The workspace: where the work happens, and what came of it.
