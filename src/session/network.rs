//! Network: what the proxy of a confinement decides, written down before it happens.
//!
//! In: its notes. Out: a line of the transcript each, and what calls are told of denials.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::sync::mpsc;

use crate::run::Run;
use crate::sandbox::{Note, Sandbox};
use crate::transcript::{Event, Scope};

/// Most denials that one call is told of; our choice.
const TOLD: usize = 8;

/// What was decided since the last look.
#[derive(Debug, Default)]
pub(super) struct Requests {
    denials: RefCell<Vec<String>>,
}

impl Requests {
    /// Writes down what `sandbox` decides from now on, and all that is made from it.
    pub(super) fn follow(run: &Rc<Run>, scope: &Scope, sandbox: &Sandbox) -> Rc<Self> {
        let (sender, mut notes) = mpsc::unbounded_channel::<Note>();
        sandbox.report_requests(sender);
        let requests = Rc::new(Self::default());
        let (run, scope, kept) = (Rc::clone(run), scope.clone(), Rc::clone(&requests));
        tokio::task::spawn_local(async move {
            while let Some(note) = notes.recv().await {
                let requested = &note.requested;
                let event = Event::NetworkRequested {
                    host: requested.target.host.to_string(),
                    port: requested.target.port,
                    protocol: requested.protocol.name().to_owned(),
                    decision: if requested.is_allowed { "allow" } else { "deny" }.to_owned(),
                    rule: requested.rule.clone(),
                    address: requested.address.map(|address| address.to_string()),
                };
                if !requested.is_allowed {
                    let line = format!("network: denied {} ({})", requested.target, requested.rule);
                    kept.deny(line);
                }
                // What can't be written down doesn't happen: the note is dropped.
                if run.transcript.append(&scope, event).is_err() {
                    return;
                }
                // A connection that is gone meanwhile needs no answer.
                let _ = note.written.send(());
            }
        });
        requests
    }

    fn deny(&self, line: String) {
        let mut denials = self.denials.borrow_mut();
        if denials.len() < TOLD && !denials.contains(&line) {
            denials.push(line);
        }
    }

    /// Lines for the call that has just ended; empty when nothing was denied.
    pub(super) fn told(&self) -> String {
        let lines = self.denials.take();
        lines.iter().flat_map(|line| ["\n", line.as_str()]).collect()
    }
}
