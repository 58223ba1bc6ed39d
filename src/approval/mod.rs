//! Approval: who may say yes.
//!
//! In: a [`Judged`] action, a command that the task's author or the operator wrote down, or a git
//! operation of ours. Out: the same action [`Cleared`], or a [`Refusal`]. Knows nothing of the
//! sandbox, the model's wire format, or the transcript.

pub mod cleared;

use std::sync::Arc;

pub use cleared::{Authority, Cleared, GitOperation, Span};

use crate::policy::{Action, Exec, Judged, Requirement};

/// Why an action will not happen, as the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// `policy` or `approval`.
    pub by: &'static str,
    /// What the model is told.
    pub reason: String,
}

/// Clears a judged action, or refuses it. Approval policy `never`: what needs an approver is
/// refused, with the reason and what would have been needed.
///
/// # Errors
///
/// A [`Refusal`] for `prompt` and `forbidden`.
pub fn clear(judged: Judged) -> Result<Cleared, Refusal> {
    let (action, evaluation) = judged.into_parts();
    match evaluation.requirement {
        Requirement::Skip => Ok(Cleared::new(action, Authority::Policy)),
        Requirement::NeedsApproval { reason } => Err(Refusal {
            by: "approval",
            reason: format!(
                "not run: {reason}; this needs approval and the approval policy is `never`. \
                 Do not try to reach the same effect another way; go on without it, or say in the \
                 final message that it was needed"
            ),
        }),
        Requirement::Forbidden { reason } => Err(Refusal {
            by: "policy",
            reason: format!(
                "not run: forbidden by policy: {reason}. Do not try to reach the same effect \
                 another way"
            ),
        }),
    }
}

/// Clears a command that the task's author wrote down: setup, context, checks, key commands.
pub fn by_task_author(exec: Exec, span: Span) -> Cleared {
    Cleared::new(Arc::new(Action::Exec(exec)), Authority::TaskAuthor(span))
}

/// Clears a command that the person at the command line wrote down.
pub fn by_operator(exec: Exec) -> Cleared {
    Cleared::new(Arc::new(Action::Exec(exec)), Authority::Operator)
}

/// Clears one of this program's own git commands.
pub fn by_runner(exec: Exec, operation: GitOperation) -> Cleared {
    Cleared::new(Arc::new(Action::Exec(exec)), Authority::Runner(operation))
}
