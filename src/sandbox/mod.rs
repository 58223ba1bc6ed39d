//! The sandbox: where a command runs, and what is really in force.
//!
//! In: a [`Cleared`] action and the attempt's [`Profile`]. Out: [`Confined`], which alone starts a
//! process, and the [`Enforcement`]. Knows nothing of models, sessions or the transcript's files.
