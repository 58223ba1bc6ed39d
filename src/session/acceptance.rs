//! Acceptance: what is wrong with an attempt's result, told by the result alone (P5).
//!
//! In: the end of a conversation, after every process of the agent is dead. Out: an [`Attempt`]
//! with its failures; the checks' events are in the transcript.

use serde_json::Value;

use crate::check::{self, CheckDone, Phase, Stand, Verdict};
use crate::exit::Exit;
use crate::plan::OutputPlan;
use crate::run::Run;
use crate::transcript::event::Beside;
use crate::transcript::{Blob, Scope, TranscriptError};
use crate::workspace::Change;

use super::End;
use super::attempt::{Attempt, Failure};
use super::stage::{Early, Stage};

/// Judges the result of an attempt. `may_feed_back`: whether another attempt may follow.
pub(super) async fn accept(
    run: &Run,
    stage: &Stage<'_>,
    scope: &Scope,
    (end, may_feed_back): (End, bool),
) -> (Attempt, Option<Blob>) {
    let mut attempt = Attempt {
        end,
        failures: Vec::new(),
        patch: None,
        beside: Vec::new(),
        notices: Vec::new(),
        files: Vec::new(),
        protected: Vec::new(),
        final_message: None,
    };
    let mut output = None;
    if let Err(early) = judge(run, stage, scope, (&mut attempt, &mut output, may_feed_back)).await {
        attempt.end = early.into_end(attempt.end);
    }
    (attempt, output)
}

async fn judge(
    run: &Run,
    stage: &Stage<'_>,
    scope: &Scope,
    (attempt, output, may_feed_back): (&mut Attempt, &mut Option<Blob>, bool),
) -> Result<(), Early> {
    let instance = stage.instance;
    if let End::Message(text) = &attempt.end {
        attempt.final_message = Some(run.transcript.blob(text.as_bytes())?);
    }
    if matches!(attempt.end, End::Internal(_) | End::Sandbox(_)) {
        return Ok(());
    }
    stage.put_back(scope)?;
    let change = stage.workspace.result().await.map_err(Early::workspace)?;
    attempt.patch = Some(run.transcript.blob(&change.patch)?);
    attempt.beside = beside(run, &change)?;
    attempt.notices.clone_from(&change.notices);
    attempt.files.clone_from(&change.files);
    attempt.protected = crate::workspace::touched_protected(&change, &instance.profile.protected)?;
    stage.keep_artifacts(scope, &instance.output.artifacts)?;
    if matches!(attempt.end, End::Stopped(_)) {
        return Ok(());
    }
    let mut protected = attempt.protected.clone();
    protected.extend(stage.watch.lost());
    attempt.failures.extend(wrong_change(&instance.output, &change, &protected));
    if let (Some(schema), End::Message(text)) = (&instance.output.schema, &attempt.end) {
        match validate(schema, text) {
            Ok(value) => *output = Some(run.transcript.blob(value.as_bytes())?),
            Err(reason) => attempt.failures.push(Failure {
                exit: Exit::NotDone,
                kind: "schema",
                feedback: format!(
                    "{reason}. The final message must be one JSON value that satisfies the schema, \
                     and nothing else."
                ),
                reason,
            }),
        }
    }
    if instance.checks.is_empty() {
        return Ok(());
    }
    let may_use_agent_tree = instance.checks.iter().any(|check| check.feedback_on_agent_tree);
    if may_feed_back && may_use_agent_tree && matches!(attempt.end, End::Message(_)) {
        let stand = Stand { sandbox: &stage.sandbox, cwd: &stage.cwd, env: &stage.env };
        let mut red = Vec::new();
        for check in instance.checks.iter().filter(|check| check.feedback_on_agent_tree) {
            let done = check::run(run, scope, check, (Phase::Feedback, &stand)).await?;
            stage.put_back(scope)?;
            red.extend(failure(&done));
        }
        if !red.is_empty() {
            attempt.failures.extend(red);
            return Ok(());
        }
    }
    for check in &instance.checks {
        // A tree of its own: what one check's run of the agent's code leaves can't make the next
        // one green.
        let fresh = stage.fresh(&change).await?;
        fresh.restore(stage, check).await?;
        let stand = Stand { sandbox: &fresh.sandbox, cwd: &fresh.cwd, env: &fresh.env };
        let done = check::run(run, scope, check, (Phase::Final, &stand)).await?;
        attempt.failures.extend(failure(&done));
    }
    Ok(())
}

/// Stores what belongs to the result and is not in the patch.
fn beside(run: &Run, change: &Change) -> Result<Vec<Beside>, TranscriptError> {
    let path = |path: &std::path::Path| path.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for module in &change.submodules {
        let blob = run.transcript.blob(&module.patch)?;
        found.push(Beside { kind: "submodule-patch".to_owned(), path: path(&module.path), blob });
    }
    for object in &change.lfs {
        let blob = run.transcript.blob_file(&object.content)?;
        found.push(Beside { kind: "lfs-content".to_owned(), path: path(&object.path), blob });
    }
    Ok(found)
}

/// What a red check means.
fn failure(done: &CheckDone) -> Option<Failure> {
    let how = match done.verdict {
        Verdict::Passed => return None,
        Verdict::Failed => "is red",
        Verdict::TimedOut => "had no end within its timeout",
    };
    done.is_required.then(|| Failure {
        exit: Exit::NotDone,
        kind: "checks",
        reason: format!("check `{}` {how}", done.id),
        feedback: done.feedback.clone().unwrap_or_default(),
    })
}

/// What is wrong with the change itself.
fn wrong_change(output: &OutputPlan, change: &Change, protected: &[String]) -> Vec<Failure> {
    let mut failures = Vec::new();
    let mut add = |exit, kind, reason: String| {
        failures.push(Failure { exit, kind, feedback: format!("Not accepted: {reason}."), reason });
    };
    if !protected.is_empty() {
        let paths = protected.join("`, `");
        add(
            Exit::Denied,
            "protected-paths",
            format!("the result changes protected paths: `{paths}`"),
        );
    }
    let submodules = change.submodules.iter().map(|module| module.patch.len());
    let size = submodules.sum::<usize>() as u64 + change.patch.len() as u64;
    if size > output.max_patch_bytes {
        let most = output.max_patch_bytes;
        add(
            Exit::NotDone,
            "patch-size",
            format!("the patch has {size} bytes, `output.max_patch_bytes` is {most}"),
        );
    }
    if output.require_change && change.is_empty() {
        add(
            Exit::NotDone,
            "no-change",
            "a change is required (`output.require_change`) and nothing was changed".to_owned(),
        );
    }
    if output.forbid_change && !change.is_empty() {
        add(
            Exit::NotDone,
            "forbidden-change",
            "no change is allowed (`output.forbid_change`) and files were changed".to_owned(),
        );
    }
    failures
}

/// Holds the final message to the schema; returns the JSON, as the model wrote it but compact.
fn validate(schema: &Value, text: &str) -> Result<String, String> {
    let value: Value = serde_json::from_str(text.trim())
        .map_err(|error| format!("the final message is not JSON: {error}"))?;
    let validator = jsonschema::validator_for(schema)
        .map_err(|error| format!("`output.schema` can't be used: {error}"))?;
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .take(5)
        .map(|error| {
            let place = error.instance_path().to_string();
            let place = if place.is_empty() { "/".to_owned() } else { place };
            crate::text::clip(&format!("at `{place}`: {error}"), 300)
        })
        .collect();
    if errors.is_empty() {
        return Ok(value.to_string());
    }
    Err(format!("the final message breaks the schema {}", errors.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::validate;

    #[test]
    fn the_final_message_is_held_to_its_schema() {
        let schema = json!({ "type": "object", "required": ["risk"],
            "properties": { "risk": { "enum": ["low", "high"] } } });
        assert_eq!(
            validate(&schema, " {\"risk\": \"low\"}\n").as_deref(),
            Ok("{\"risk\":\"low\"}")
        );
        assert!(validate(&schema, "done").is_err_and(|error| error.contains("not JSON")));
        assert!(validate(&schema, "{\"risk\":\"mid\"}").is_err_and(|e| e.contains("`/risk`")));
    }
}
