//! horseman: a headless runner for coding agents.

pub mod approval;
pub mod cli;
pub mod clock;
pub mod exit;
pub mod model;
pub mod patch;
pub mod plan;
pub mod policy;
pub mod process;
pub mod profile;
pub mod report;
pub mod sandbox;
pub mod task;
pub mod text;
pub mod transcript;
pub mod workspace;
