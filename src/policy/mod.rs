//! Policy: what is allowed.
//!
//! In: rules, and an [`Action`]. Out: [`Judged`], with every rule that matched as evidence.
//! Pure: names neither files, processes nor the runtime; rule sources come in as text.

pub mod action;
pub mod check;
mod dangerous;
mod evaluate;
mod grounds;
pub mod hosts;
pub mod judged;
mod matching;
pub mod rules;
mod shell;
mod surroundings;
mod wrappers;

use std::path::PathBuf;
use std::sync::Arc;

pub use action::{Action, Exec, InputAction, PatchAction, Reader};
pub use evaluate::JudgedCommand;
pub use judged::Judged;
pub use rules::{RuleError, RuleSet};

use crate::transcript::event::Evidence;

/// A policy's answer, ordered by strictness: the strictest match wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decision {
    /// May run.
    Allow,
    /// Needs an approver.
    Prompt,
    /// Never runs.
    Forbidden,
}

impl Decision {
    /// Name in rules, events and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Prompt => "prompt",
            Self::Forbidden => "forbidden",
        }
    }
}

/// What follows from an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// No approval needed.
    Skip,
    /// An approver must say yes.
    NeedsApproval {
        /// Why.
        reason: String,
    },
    /// No one may say yes.
    Forbidden {
        /// Why.
        reason: String,
    },
}

/// Policy's answer to one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Strictest decision over all commands of the action.
    pub decision: Decision,
    /// What follows.
    pub requirement: Requirement,
    /// Why, one line.
    pub reason: String,
    /// Every rule that matched.
    pub evidence: Vec<Evidence>,
    /// Simple commands found, in order of appearance.
    pub commands: Vec<Vec<String>>,
    /// Why the text can't be known before it runs.
    pub opaque: Option<String>,
}

/// What policy must know of an attempt's confinement; all paths absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grounds {
    /// Working tree that relative paths of patches resolve against.
    pub workspace: PathBuf,
    /// Folders that a patch may change; empty in `read-only`.
    pub write_roots: Vec<PathBuf>,
    /// Globs of protected paths, relative to the workspace.
    pub protected: Vec<String>,
}

/// A rule file's text.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct RuleSource {
    /// Name for errors and evidence, for example `policies/ci.rules`.
    pub name: String,
    /// Starlark text.
    pub text: String,
}

/// What to do with text that can't be known before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Opaque {
    /// Confinement is enough.
    #[default]
    Sandbox,
    /// Ask an approver.
    Prompt,
    /// Refuse.
    Forbidden,
}

impl Policy {
    /// Judges `action`: the only maker of a [`Judged`].
    pub fn judge(&self, action: Arc<Action>) -> Judged {
        let evaluation = self.evaluate(&action);
        Judged::new(action, evaluation)
    }
}

/// Loaded rules and what they are applied with.
#[derive(Clone, Debug)]
pub struct Policy {
    /// What opaque text means.
    pub opaque: Opaque,
    /// Roots and protected paths.
    pub grounds: Grounds,
    /// What holds for a command that no rule matches. Default `allow`: it runs confined.
    pub unmatched: Decision,
    rules: Arc<RuleSet>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            opaque: Opaque::default(),
            grounds: Grounds::default(),
            unmatched: Decision::Allow,
            rules: Arc::default(),
        }
    }
}

impl Policy {
    /// Loads `sources` in order and runs their examples. An allow rule never lifts confinement.
    ///
    /// # Errors
    ///
    /// A [`RuleError`] for the first source that isn't valid or has an example that doesn't hold,
    /// and for a protected path that isn't a glob. Nothing of a policy that has an error is used.
    pub fn load(
        sources: &[RuleSource],
        opaque: Opaque,
        grounds: Grounds,
    ) -> Result<Self, RuleError> {
        grounds::check(&grounds)?;
        let rules = Arc::new(rules::load(sources)?);
        Ok(Self { opaque, grounds, unmatched: Decision::Allow, rules })
    }

    /// The loaded rules.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
    }

    /// Evaluates `action`; pure and total. The strictest decision over all matches of all commands
    /// wins, and every match is kept as evidence.
    pub fn evaluate(&self, action: &Action) -> Evaluation {
        evaluate::evaluate(self, action).0
    }

    /// Evaluates `action` and says what was found about each of its commands.
    pub fn explain(&self, action: &Action) -> (Evaluation, Vec<JudgedCommand>) {
        evaluate::evaluate(self, action)
    }
}

#[cfg(test)]
mod action_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod table_tests;
