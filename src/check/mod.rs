//! Acceptance checks: what decides whether a task is done (P5).
//!
//! In: a check, a tree, a confinement. Out: a [`CheckDone`], in the transcript before it is used.
//! Knows nothing of models or tools.

use std::collections::BTreeMap;
use std::path::Path;

use crate::plan::{CheckPlan, Feedback};
use crate::process::{Cause, Output};
use crate::run::{Authored, AuthoredDone, AuthoredError, Run};
use crate::sandbox::Sandbox;
use crate::tool::clip_output;
use crate::transcript::{Event, Scope};

/// When a check runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On the base, before the agent.
    Before,
    /// On the agent's tree, to feed back what is red.
    Feedback,
    /// On a fresh tree, base plus patch: the verdict.
    Final,
}

impl Phase {
    /// Name in the transcript.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Feedback => "feedback",
            Self::Final => "final",
        }
    }

    /// The tree that it runs on.
    const fn tree(self) -> &'static str {
        match self {
            Self::Before => "base",
            Self::Feedback => "agent",
            Self::Final => "fresh",
        }
    }
}

/// Where checks run.
#[derive(Debug)]
pub struct Stand<'a> {
    /// Confinement with this tree as its workspace.
    pub sandbox: &'a Sandbox,
    /// Working folder; absolute.
    pub cwd: &'a Path,
    /// Environment.
    pub env: &'a BTreeMap<String, String>,
}

/// What a check said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Exit code 0.
    Passed,
    /// Anything else.
    Failed,
    /// No end within its timeout.
    TimedOut,
}

/// A check that has run.
#[derive(Clone, Debug)]
pub struct CheckDone {
    /// Its id.
    pub id: String,
    /// What it said.
    pub verdict: Verdict,
    /// Whether it decides.
    pub is_required: bool,
    /// What the agent may read of it, if it is red.
    pub feedback: Option<String>,
}

/// Bytes of output in `feedback: tail`.
const TAIL: usize = 4 << 10;
/// Bytes of output in `feedback: full`.
const FULL: usize = 64 << 10;

/// Runs one check, with its retries.
///
/// # Errors
///
/// See [`AuthoredError`].
pub async fn run(
    run: &Run,
    scope: &Scope,
    check: &CheckPlan,
    (phase, stand): (Phase, &Stand<'_>),
) -> Result<CheckDone, AuthoredError> {
    run.transcript.append(
        scope,
        Event::CheckStarted {
            id: check.id.clone(),
            phase: phase.name().to_owned(),
            tree: phase.tree().to_owned(),
            line: check.span.line,
        },
    )?;
    let sandbox = stand.sandbox.with_network(check.network, &check.hosts);
    let authored = Authored {
        role: "check",
        command: &check.run,
        span: &check.span,
        sandbox: &sandbox,
        cwd: stand.cwd,
        env: stand.env,
        secrets: &[],
        timeout: check.timeout,
    };
    let mut tries = 0;
    let (done, verdict) = loop {
        tries += 1;
        let done = authored.run(run, scope).await?;
        let verdict = verdict(&done);
        if verdict == Verdict::Passed || tries > check.retries {
            break (done, verdict);
        }
    };
    let is_expected = match (phase, check.before) {
        (Phase::Before, crate::plan::Before::Fail) => verdict != Verdict::Passed,
        (Phase::Before, crate::plan::Before::Ignore) => true,
        (Phase::Before, crate::plan::Before::Pass) | (Phase::Feedback | Phase::Final, _) => {
            verdict == Verdict::Passed
        }
    };
    run.transcript.append(
        scope,
        Event::CheckCompleted {
            id: check.id.clone(),
            phase: phase.name().to_owned(),
            outcome: match verdict {
                Verdict::Passed => "passed",
                Verdict::Failed => "failed",
                Verdict::TimedOut => "timed-out",
            }
            .to_owned(),
            expected: is_expected,
            required: check.is_required,
            exit_code: done.ended.exit_code,
            tries,
            wall_ms: u64::try_from(done.ended.wall.as_millis()).unwrap_or(u64::MAX),
            log: done.log.clone(),
        },
    )?;
    run.transcript.sync()?;
    Ok(CheckDone {
        id: check.id.clone(),
        verdict,
        is_required: check.is_required,
        feedback: feedback(check, &done, verdict),
    })
}

fn verdict(done: &AuthoredDone) -> Verdict {
    match (done.ended.cause, done.ended.exit_code) {
        (Cause::TimedOut, _) => Verdict::TimedOut,
        (Cause::Limit, _) => Verdict::Failed,
        (_, Some(0)) => Verdict::Passed,
        (_, _) => Verdict::Failed,
    }
}

/// Words what the agent may read of a red check.
fn feedback(check: &CheckPlan, done: &AuthoredDone, verdict: Verdict) -> Option<String> {
    if verdict == Verdict::Passed {
        return None;
    }
    let how = match (verdict, done.ended.exit_code, done.ended.signal) {
        (Verdict::TimedOut, _, _) => format!("had no end within {:?}", check.timeout),
        (_, Some(code), _) => format!("exited with code {code}"),
        (_, None, Some(signal)) => format!("was ended by signal {signal}"),
        (_, None, None) => "failed".to_owned(),
    };
    let output = match check.feedback {
        Feedback::None => return Some("A hidden check is red.".to_owned()),
        Feedback::Tail => tail(&done.output),
        Feedback::Full => clip_output(&done.output, FULL),
    };
    let fenced = crate::plan::fence(&format!("output of check {}", check.id), &output, true);
    Some(format!("Check `{}` {how}.\n{fenced}", check.id))
}

fn tail(output: &Output) -> String {
    let all = if output.tail.is_empty() { &output.head } else { &output.tail };
    let from = all.len().saturating_sub(TAIL);
    let text = String::from_utf8_lossy(&all[from..]).into_owned();
    if from == 0 && output.omitted == 0 { text } else { format!("…\n{text}") }
}
