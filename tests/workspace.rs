//! Workspaces against real git, in repositories made for each test.
#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]

#[path = "workspace/support.rs"]
mod support;

#[path = "workspace/apply.rs"]
mod apply;
#[path = "workspace/change.rs"]
mod change;
#[path = "workspace/fresh.rs"]
mod fresh;
#[path = "workspace/prepare.rs"]
mod prepare;
#[path = "workspace/source.rs"]
mod source;
#[path = "workspace/state.rs"]
mod state;
