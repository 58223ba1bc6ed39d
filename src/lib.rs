//! horseman: a headless runner for coding agents.
//!
//! A task file is read and checked, and with the command line it becomes a [`plan`] of instances.
//! A [`session`] carries each one out in attempts, an attempt in steps: the history goes to the
//! [`model`], its items come back, and each complete tool call is written down, judged by
//! [`policy`], cleared by [`approval`], confined by the [`sandbox`], run as a [`process`], and
//! answered. What came of it is taken from the [`workspace`] as a patch and judged by a [`check`]
//! on a fresh tree. Every value is appended to the [`transcript`] before the next one is made, and
//! a [`report`] is folded from the transcript alone.
//!
//! # Proofs
//!
//! A command that was not judged, cleared and confined can't be written (P2). `Judged`, `Cleared`
//! and `Confined` have private fields, one maker each, and are neither `Clone` nor `Deserialize`.
//!
//! A judgement can't be made by hand:
//!
//! ```compile_fail,E0451
//! use horseman::policy::{Action, Evaluation, Judged};
//! fn forge(action: std::sync::Arc<Action>, evaluation: Evaluation) -> Judged {
//!     Judged { action, evaluation }
//! }
//! ```
//!
//! ```compile_fail,E0624
//! use horseman::policy::{Action, Evaluation, Judged};
//! fn forge(action: std::sync::Arc<Action>, evaluation: Evaluation) -> Judged {
//!     Judged::new(action, evaluation)
//! }
//! ```
//!
//! A clearance can't be made by hand, and can't be used twice:
//!
//! ```compile_fail,E0451
//! use horseman::approval::{Authority, Cleared};
//! use horseman::policy::Action;
//! fn forge(action: std::sync::Arc<Action>) -> Cleared {
//!     Cleared { action, by: Authority::Policy }
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn twice(cleared: horseman::approval::Cleared) -> horseman::approval::Cleared {
//!     cleared.clone()
//! }
//! ```
//!
//! A confined command can't be made from anything but a clearance:
//!
//! ```compile_fail,E0308
//! use horseman::policy::Exec;
//! use horseman::sandbox::{Confined, Sandbox};
//! fn skip(sandbox: &Sandbox, exec: Exec) -> Confined {
//!     sandbox.confine(exec).unwrap()
//! }
//! ```
//!
//! ```compile_fail,E0599
//! fn twice(confined: horseman::sandbox::Confined) -> horseman::sandbox::Confined {
//!     confined.clone()
//! }
//! ```

pub mod approval;
pub mod check;
pub mod cli;
pub mod clock;
pub mod exit;
pub mod model;
pub mod patch;
pub mod path;
pub mod plan;
pub mod policy;
pub mod process;
pub mod profile;
pub mod report;
pub mod run;
pub mod sandbox;
pub mod session;
pub mod task;
pub mod text;
pub mod tool;
pub mod transcript;
pub mod workspace;
