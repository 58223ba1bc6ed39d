//! Exit statuses: what the end of a process means to the script that started it.
//!
//! In: how a run ended. Out: a number that README, `--help` and the tests check against this table.

use std::process::ExitCode;

/// How a command of this program ended. The numbers are a contract; all others are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Exit {
    /// Every selected task is done and its checks pass.
    Done = 0,
    /// A bug in this program.
    Internal = 1,
    /// Command line, task file, rules or schema is wrong; nothing was run.
    Usage = 2,
    /// Nothing was selected.
    Nothing = 3,
    /// A check is red, the output breaks its schema, a required change is missing, or the model
    /// gave up.
    NotDone = 10,
    /// A denial that the task says is fatal, or the denial circuit breaker opened.
    Denied = 11,
    /// A turn, token, cost, tool-call or repeat limit is spent.
    Budget = 12,
    /// Wall clock spent, or the last try of a model request stayed silent.
    Timeout = 13,
    /// Model or network unavailable after retries; authentication, quota.
    Provider = 14,
    /// The required confinement can't be enforced here.
    Sandbox = 15,
    /// Workspace preparation or a `before:` expectation failed.
    Setup = 16,
    /// A merge with missing instances.
    Partial = 17,
    /// Interrupted by SIGINT.
    Interrupted = 130,
    /// Ended by SIGTERM.
    Terminated = 143,
}

impl Exit {
    /// Every status, in the order of the published table.
    pub const ALL: [Self; 14] = [
        Self::Done,
        Self::Internal,
        Self::Usage,
        Self::Nothing,
        Self::NotDone,
        Self::Denied,
        Self::Budget,
        Self::Timeout,
        Self::Provider,
        Self::Sandbox,
        Self::Setup,
        Self::Partial,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// The number that the process exits with.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name that reports print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Internal => "internal",
            Self::Usage => "usage",
            Self::Nothing => "nothing",
            Self::NotDone => "not-done",
            Self::Denied => "denied",
            Self::Budget => "budget",
            Self::Timeout => "timeout",
            Self::Provider => "provider",
            Self::Sandbox => "sandbox",
            Self::Setup => "setup",
            Self::Partial => "partial",
            Self::Interrupted => "interrupted",
            Self::Terminated => "terminated",
        }
    }

    /// One sentence for `--help` and the README.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "every selected task is done and its checks pass",
            Self::Internal => "a bug in this program",
            Self::Usage => "command line, task file, rules or schema is wrong; nothing was run",
            Self::Nothing => "nothing was selected",
            Self::NotDone => {
                "a check is red, the output breaks its schema, a required change is missing, or the model gave up"
            }
            Self::Denied => "a denial that the task says is fatal, or too many denials",
            Self::Budget => "a turn, token, cost, tool-call or repeat limit is spent",
            Self::Timeout => "wall clock spent, or the model stayed silent",
            Self::Provider => "model or network unavailable after retries; authentication, quota",
            Self::Sandbox => "the required confinement can't be enforced here",
            Self::Setup => "workspace preparation or a `before:` expectation of a check failed",
            Self::Partial => "a merge with missing instances",
            Self::Interrupted => "interrupted by SIGINT: children gone, transcript closed",
            Self::Terminated => "ended by SIGTERM: children gone, transcript closed",
        }
    }

    /// Place in the order in which the end of a run is chosen: lower wins.
    const fn rank(self) -> u8 {
        match self {
            Self::Interrupted | Self::Terminated => 0,
            Self::Internal => 1,
            Self::Usage => 2,
            Self::Sandbox => 3,
            Self::Provider => 4,
            Self::Setup => 5,
            Self::Denied => 6,
            Self::Budget => 7,
            Self::Timeout => 8,
            Self::NotDone => 9,
            Self::Partial => 10,
            Self::Nothing => 11,
            Self::Done => 12,
        }
    }

    /// Returns the status of a run in which both `self` and `other` happened.
    #[must_use]
    pub const fn worst(self, other: Self) -> Self {
        if other.rank() < self.rank() { other } else { self }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn p5_the_worst_status_wins() {
        for (left, right, worst) in [
            (Exit::Done, Exit::NotDone, Exit::NotDone),
            (Exit::NotDone, Exit::Budget, Exit::Budget),
            (Exit::Timeout, Exit::Budget, Exit::Budget),
            (Exit::Provider, Exit::Setup, Exit::Provider),
            (Exit::Sandbox, Exit::Provider, Exit::Sandbox),
            (Exit::Internal, Exit::Terminated, Exit::Terminated),
        ] {
            assert_eq!(left.worst(right), worst);
            assert_eq!(right.worst(left), worst);
        }
    }
}
