//! The sandbox: where a command runs, and what is really in force.
//!
//! In: a [`Cleared`] action and the attempt's [`Profile`]. Out: [`Confined`], which alone starts a
//! process, and the [`Enforcement`]. Knows nothing of models, sessions or the transcript's files.

/// Facts of the host, read once by cli.
#[derive(Clone, Debug)]
pub struct Host {
    /// Our executable.
    pub binary: std::path::PathBuf,
    /// Home folder.
    pub home: Option<std::path::PathBuf>,
    /// The runner's environment.
    pub env: std::collections::BTreeMap<String, String>,
    /// User id.
    pub uid: u32,
}
