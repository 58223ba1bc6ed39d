//! Queries: what every renderer asks of a report.
//!
//! In: a report. Out: answers that hold for all formats alike. Pure.

use super::fold::SKIPPED;
use super::shape::{Attempt, Call, Refused, Report, Task};
use crate::transcript::event::Level;

impl Report {
    /// The task file as the user knows it; `task file` when the record doesn't name it.
    pub fn task_file(&self) -> &str {
        let input = self.inputs.iter().find(|input| input.role == "task-file");
        input.map_or("task file", |input| &input.path)
    }

    /// Whether the run ended with every task done.
    pub fn is_done(&self) -> bool {
        self.exit == Some(0)
    }
}

impl Task {
    /// Whether the task is done.
    pub fn is_done(&self) -> bool {
        self.exit == Some(0)
    }

    /// Whether nobody can judge the work: provider, sandbox, setup, a bug, a signal, no end.
    pub fn is_error(&self) -> bool {
        match self.exit {
            None => self.outcome != SKIPPED,
            Some(exit) => matches!(exit, 1 | 2 | 14 | 15 | 16 | 130 | 143) || self.kind == "idle",
        }
    }

    /// Calls that were refused, with the attempt of each.
    pub fn denials(&self) -> impl Iterator<Item = (&Attempt, &Call, &Refused)> {
        self.attempts.iter().flat_map(|attempt| {
            attempt.calls.iter().filter_map(move |call| {
                call.refused.as_ref().map(|refused| (attempt, call, refused))
            })
        })
    }

    /// The confinement in one line: tier and mode, then what is partly or not in force.
    pub fn confinement(&self) -> String {
        let Some(enforcement) = &self.enforcement else { return "not started".to_owned() };
        let mut parts = vec![format!("{}, {}", enforcement.tier, enforcement.mode)];
        let gaps = enforcement.items.iter().filter_map(|(item, level)| match level {
            Level::Full { .. } => None,
            Level::Partial { layer, why } => Some(format!("{item} partial by {layer}: {why}")),
            Level::None { why } => Some(format!("{item} none: {why}")),
        });
        parts.extend(gaps);
        if parts.len() == 1 {
            parts.push("all in force".to_owned());
        }
        parts.join("; ")
    }

    /// Steps over all attempts.
    pub fn steps(&self) -> u64 {
        self.attempts.iter().map(|attempt| attempt.steps).sum()
    }
}
