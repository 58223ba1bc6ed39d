//! The proof that policy has seen an action.
//!
//! In: an action and its evaluation, from [`Policy::judge`](super::Policy::judge) alone. Out: a
//! value that can't be made, cloned or read from anywhere else (P2).

use std::sync::Arc;

use super::{Action, Evaluation};

/// An action with policy's answer. Only [`Policy::judge`](super::Policy::judge) makes one.
#[derive(Debug)]
pub struct Judged {
    action: Arc<Action>,
    evaluation: Evaluation,
}

impl Judged {
    pub(super) fn new(action: Arc<Action>, evaluation: Evaluation) -> Self {
        Self { action, evaluation }
    }

    /// The action.
    pub fn action(&self) -> &Arc<Action> {
        &self.action
    }

    /// Policy's answer with its evidence.
    pub fn evaluation(&self) -> &Evaluation {
        &self.evaluation
    }

    /// Takes the proof apart; it is spent.
    pub(crate) fn into_parts(self) -> (Arc<Action>, Evaluation) {
        (self.action, self.evaluation)
    }
}
