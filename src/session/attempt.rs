//! An attempt: one conversation, the end of its processes, and what is accepted of its result.
//!
//! In: a prepared stage. Out: an [`Attempt`]; its events are in the transcript.

use crate::process::Ended;
use crate::run::record;
use crate::tool::Live;
use crate::transcript::event::{Beside, FileChange};
use crate::transcript::{Blob, Event, TranscriptError};

use super::{Conversation, End};

/// What is left of an attempt when it is over.
#[derive(Debug)]
pub(super) struct Attempt {
    /// How the conversation ended.
    pub(super) end: End,
    /// What is wrong with the result; empty: accepted.
    pub(super) failures: Vec<Failure>,
    /// The result against the base.
    pub(super) patch: Option<Blob>,
    /// What belongs to the result beside the patch.
    pub(super) beside: Vec<Beside>,
    /// Things about the result that a person should know.
    pub(super) notices: Vec<String>,
    /// Files in it.
    pub(super) files: Vec<FileChange>,
    /// Protected paths that it touches.
    pub(super) protected: Vec<String>,
    /// Final message.
    pub(super) final_message: Option<Blob>,
}

/// One thing that is wrong with a result.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// Exit status that it stands for.
    pub(super) exit: crate::exit::Exit,
    /// Kind in reports.
    pub(super) kind: &'static str,
    /// One line.
    pub(super) reason: String,
    /// What the agent may read of it.
    pub(super) feedback: String,
}

impl Conversation<'_> {
    /// Ends every process of the attempt and writes their ends down; says how many there were.
    pub(super) async fn end_processes(&mut self) -> Result<u32, End> {
        let mut count = 0;
        let live = self.store.borrow_mut().drain();
        for mut live in live {
            let was_running = live.running.ended().is_none();
            count += live.running.survivors().await + u32::from(was_running);
            let ended = live.running.stop().await;
            let ended = ended.map_err(|error| End::Sandbox(record::chain(&error)))?;
            if was_running && !live.is_recorded {
                self.write_end(&live, &ended).map_err(|error| End::fault(&error))?;
            }
        }
        Ok(count)
    }

    fn write_end(&self, live: &Live, ended: &Ended) -> Result<(), TranscriptError> {
        let log = self.run.transcript.blob_file(&live.log)?;
        let event = record::process_ended(ended, Some(log), Some(live.session));
        self.run.transcript.append(&self.scope, event)
    }
}

impl Attempt {
    /// The event that closes the attempt.
    pub(super) fn completed(
        &self,
        ended_processes: u32,
        output: Option<Blob>,
        usage: crate::transcript::event::Usage,
    ) -> Event {
        let (end, reason) = self.end.describe();
        Event::AttemptCompleted {
            end: end.to_owned(),
            reason,
            verdict: match (&self.end, self.failures.is_empty()) {
                (End::Stopped(_) | End::Internal(_) | End::Sandbox(_) | End::Setup(_), _) => {
                    "not-run"
                }
                (_, true) => "passed",
                (_, false) => "failed",
            }
            .to_owned(),
            final_message: self.final_message.clone(),
            patch: self.patch.clone(),
            beside: self.beside.clone(),
            notices: self.notices.clone(),
            output,
            files: self.files.clone(),
            ended_processes,
            usage,
        }
    }
}

impl End {
    /// Name and one line, for events and reports.
    pub(super) fn describe(&self) -> (&'static str, String) {
        match self {
            Self::Message(_) => ("message", "the model wrote its final message".to_owned()),
            Self::GaveUp(reason) => ("gave-up", reason.clone()),
            Self::Budget(spent) => (
                "budget",
                format!("`budget.{}` is spent: {} of {}", spent.limit, spent.used, spent.of),
            ),
            Self::Wall => ("timeout", "`budget.wall` is spent".to_owned()),
            Self::Idle(message) => ("idle", message.clone()),
            Self::Provider { kind, message } => ("provider", format!("{}: {message}", kind.name())),
            Self::Denied(reason) => ("denied", reason.clone()),
            Self::Sandbox(message) => ("sandbox", message.clone()),
            Self::Setup(message) => ("setup", message.clone()),
            Self::Stopped(signal) => ("signal", format!("interrupted by {}", signal.name())),
            Self::Internal(message) => ("internal", message.clone()),
        }
    }
}
