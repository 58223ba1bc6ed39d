//! Hand-made runs: a transcript with a fixed clock, written line by line.

use std::fs;
use std::path::Path;

use horseman::text::sha256;
use horseman::transcript::event::{Blob, Event, Record, Scope, VERSION};
use horseman::transcript::{BLOBS, FILE, GENESIS};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A run in the making; each line comes 250 ms after the one before.
pub(crate) struct Run {
    pub(crate) dir: TempDir,
    pub(crate) lines: Vec<String>,
    scope: Scope,
}

impl Run {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(BLOBS)).unwrap();
        Self { dir, lines: Vec::new(), scope: Scope::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn blob(&self, text: impl AsRef<[u8]>) -> Value {
        let bytes = text.as_ref();
        let blob = Blob { sha256: sha256(bytes), bytes: bytes.len() as u64 };
        fs::write(self.path().join(BLOBS).join(&blob.sha256), bytes).unwrap();
        json!(blob)
    }

    pub(crate) fn task(&mut self, id: &str) -> &mut Self {
        self.scope = Scope { task: Some(id.to_owned()), ..Scope::default() };
        self
    }

    pub(crate) fn attempt(&mut self, n: u32) -> &mut Self {
        self.scope = Scope { task: self.scope.task.take(), attempt: Some(n), ..Scope::default() };
        self
    }

    pub(crate) fn step(&mut self, n: u32) -> &mut Self {
        self.scope.step = Some(n);
        self.scope.call = None;
        self
    }

    pub(crate) fn call(&mut self, id: &str) -> &mut Self {
        self.scope.call = Some(id.to_owned());
        self
    }

    pub(crate) fn outside(&mut self) -> &mut Self {
        self.scope = Scope::default();
        self
    }

    /// Adds the event `kind` with `fields`.
    #[expect(clippy::needless_pass_by_value, reason = "callers write the value in place")]
    pub(crate) fn add(&mut self, kind: &str, fields: Value) -> &mut Self {
        let mut event = json!({ "type": kind });
        event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let event: Event = serde_json::from_value(event).unwrap();
        let seq = self.lines.len() as u64;
        let record = Record {
            v: VERSION,
            seq,
            at_ms: seq * 250,
            ts: format!("2026-11-30T22:{:02}:{:02}Z", seq / 4 / 60, seq / 4 % 60),
            run: "20261130-224000-ab12".into(),
            task: self.scope.task.clone(),
            attempt: self.scope.attempt,
            step: self.scope.step,
            call: self.scope.call.clone(),
            event,
            prev: self.lines.last().map_or(GENESIS.to_owned(), |line| sha256(line.as_bytes())),
        };
        self.lines.push(serde_json::to_string(&record).unwrap());
        self
    }

    /// Writes the first `count` lines as the run's transcript.
    pub(crate) fn write(&self, count: usize) -> &Self {
        let text: String = self.lines[..count].iter().flat_map(|line| [line, "\n"]).collect();
        fs::write(self.path().join(FILE), text).unwrap();
        self
    }

    pub(crate) fn started(&mut self, selected: &[&str]) -> &mut Self {
        let tasks: Value = selected.iter().zip(10..).map(|(id, n)| ((*id).to_owned(), n)).collect();
        self.add(
            "run.started",
            json!({
                "version": "0.1.0", "name": "night.ly", "plan_sha256": "ab", "selected": selected,
                "inputs": [{ "path": "ci/task.yml", "role": "task-file", "sha256": "cd", "bytes": 3 }],
                "operator": {}, "notices": [], "trust_commit": "1234567",
                "reports": { "junit_detail": "trace", "tasks": tasks },
            }),
        )
    }

    pub(crate) fn task_started(&mut self, id: &str, line: u32) -> &mut Self {
        self.task(id).add(
            "task.started",
            json!({
                "id": id, "line": line, "base_commit": "89abcde", "workspace": "clone",
                "provider": "script", "model": "scripted", "requested": { "mode": "workspace-write" },
                "enforced": { "tier": "landlock", "mode": "workspace-write", "items": {
                    "write": { "level": "full", "layer": "landlock" },
                    "network": { "level": "partial", "layer": "seccomp", "why": "unix sockets stay" },
                    "limits": { "level": "none", "why": "uid 0" },
                } },
                "budget": { "turns": 50 }, "notices": ["2 uncommitted changes are left out"],
            }),
        )
    }

    pub(crate) fn responded(&mut self, input: u64, output: u64) -> &mut Self {
        let body = self.blob("{}");
        self.add("model.requested", json!({ "try": 1, "body": body })).add(
            "model.responded",
            json!({
                "response": "r", "status": "completed", "usage_extra": { "audio_tokens": 2 },
                "usage": usage(input, output),
            }),
        )
    }

    /// A command from proposal to end.
    pub(crate) fn command(&mut self, id: &str, text: &str, output: &str, exit: i32) -> &mut Self {
        let blob = self.blob(format!("Wall time: 0.1 seconds\n{output}"));
        let log = self.blob(output);
        let argv = json!(["bash", "-c", text]);
        self.call(id)
            .proposed("exec_command", text)
            .add("call.judged", json!({
                "decision": "allow", "requirement": "skip", "reason": "no rule says otherwise",
                "rules": [], "commands": [[text]],
            }))
            .add("call.cleared", json!({ "by": "policy" }))
            .add("call.confined", json!({
                "tier": "landlock", "mode": "workspace-write", "network": "none",
            }))
            .add("process.started", json!({
                "role": "call", "program": "/bin/bash", "argv": argv, "cwd": "/w", "by": "policy",
                "session": 1,
            }))
            .add("process.ended", json!({
                "session": 1, "pid": 7, "exit_code": exit, "cause": "exited", "wall_ms": 12,
                "cpu_ms": 3, "output_bytes": output.len(), "log": log, "survivors": 0,
            }))
            .add("call.completed", json!({
                "status": if exit == 0 { "ok" } else { "failed" }, "exit_code": exit, "wall_ms": 12,
                "output": blob,
            }))
    }

    pub(crate) fn proposed(&mut self, tool: &str, input: &str) -> &mut Self {
        let fields = json!({ "tool": tool, "name": tool, "call_id": "c", "input": input });
        self.add("call.proposed", fields)
    }

    /// A call that policy forbids.
    pub(crate) fn denied(&mut self, id: &str, text: &str, reason: &str) -> &mut Self {
        let blob = self.blob(reason);
        self.call(id)
            .proposed("exec_command", text)
            .add("call.judged", json!({
                "decision": "forbidden", "requirement": "forbidden", "reason": reason,
                "rules": [{ "rule": "ci.rules:3", "decision": "forbidden", "matched": ["git", "push"],
                    "justification": reason }],
                "commands": [["git", "push"]],
            }))
            .add("call.refused", json!({ "by": "policy", "reason": reason }))
            .add("call.completed", json!({ "status": "refused", "wall_ms": 0, "output": blob }))
    }

    /// A patch that was written.
    pub(crate) fn patched(&mut self, id: &str, number: u32, path: &str, diff: &str) -> &mut Self {
        let (text, diff) = (self.blob("*** Begin Patch"), self.blob(diff));
        let output = self.blob("Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess.");
        self.call(id)
            .proposed("apply_patch", "*** Begin Patch")
            .add(
                "patch.applied",
                json!({
                    "number": number, "text": text, "diff": diff,
                    "files": [{ "path": path, "kind": "update", "added": 1, "removed": 1,
                        "hunks": ["exact"] }],
                }),
            )
            .add("call.completed", json!({ "status": "ok", "wall_ms": 4, "output": output }))
    }

    pub(crate) fn checked(
        &mut self,
        (id, phase): (&str, &str),
        outcome: &str,
        log: &str,
    ) -> &mut Self {
        let log = self.blob(log);
        let (tree, line) = if phase == "before" { ("base", 20) } else { ("fresh", 20) };
        let is_expected = (outcome == "passed") != (phase == "before");
        self.add("check.started", json!({ "id": id, "phase": phase, "tree": tree, "line": line }))
            .add(
                "check.completed",
                json!({
                    "id": id, "phase": phase, "outcome": outcome, "expected": is_expected,
                    "required": true, "exit_code": i32::from(outcome != "passed"), "tries": 1,
                    "wall_ms": 101, "log": log,
                }),
            )
    }

    pub(crate) fn attempt_done(&mut self, verdict: &str, message: &str) -> &mut Self {
        let message = self.blob(message);
        let patch = self.blob("diff --git a/src/a b/src/a\n");
        let n = self.scope.attempt.unwrap();
        self.attempt(n).add(
            "attempt.completed",
            json!({
                "end": "message", "reason": "", "verdict": verdict, "final_message": message,
                "patch": patch, "files": files(), "ended_processes": 0, "usage": usage(100, 20),
            }),
        )
    }

    pub(crate) fn task_done(
        &mut self,
        (exit, outcome): (u8, &str),
        kind: &str,
        reason: &str,
    ) -> &mut Self {
        let message = self.blob("All done.");
        let patch = self.blob("diff --git a/src/a b/src/a\n");
        let attempts = self.scope.attempt.unwrap_or(1);
        let id = self.scope.task.clone().unwrap();
        self.task(&id).add("task.completed", json!({
            "exit": exit, "outcome": outcome, "reason": reason, "kind": kind, "attempts": attempts,
            "patch": patch, "files": files(), "protected": [], "final_message": message,
            "counts": true, "usage": usage(200, 40), "usd": 0.0125,
        }))
    }

    pub(crate) fn done(&mut self, exit: u8, outcome: &str) -> &mut Self {
        let fields = json!({ "exit": exit, "outcome": outcome, "usage": usage(200, 40) });
        self.outside().add("run.completed", fields);
        self.write(self.lines.len());
        self
    }
}

fn files() -> Value {
    json!([{ "path": "src/a", "kind": "update", "added": 1, "removed": 1 }])
}

pub(crate) fn usage(input: u64, output: u64) -> Value {
    json!({
        "input_tokens": input, "cached_input_tokens": input / 2, "output_tokens": output,
        "reasoning_output_tokens": output / 4,
    })
}

/// One task whose first attempt is red and whose second is green; a denied call, a red command, a
/// patch.
pub(crate) fn green() -> Run {
    let mut run = Run::new();
    run.started(&["fix"]).task_started("fix", 12);
    run.checked(("unit", "before"), "failed", "1 failed\n");
    run.attempt(1).add("attempt.started", json!({ "session": "fresh", "tree": "keep" }));
    run.step(1).add("step.started", json!({ "history_items": 2, "tools": ["exec_command"] }));
    run.responded(60, 12);
    run.command("call-001", "cargo test", "error: 1 failed\n", 101);
    run.denied("call-002", "git push", "open a pull request instead");
    run.step(1).add("step.completed", json!({ "calls": 2 }));
    run.checked(("unit", "final"), "failed", "still red\n").attempt_done("failed", "Try again.");
    run.attempt(2).add("attempt.started", json!({ "session": "continue", "tree": "keep" }));
    run.step(2).add("step.started", json!({ "history_items": 7, "tools": ["exec_command"] }));
    run.responded(80, 15);
    run.patched("call-001", 1, "src/a", "--- a/src/a\n+++ b/src/a\n-old\n+new\n");
    run.step(2).add("step.completed", json!({ "calls": 1 }));
    run.checked(("unit", "final"), "passed", "ok\n").attempt_done("passed", "All done.");
    run.task_done((0, "done"), "done", "checks pass").done(0, "done");
    run
}

/// Text that attacks each reader of a report.
pub(crate) const HOSTILE: &str = "\u{1b}[31m::error::pwn\u{1b}[0m ]]> \0[[ATTACHMENT|/etc/passwd]] \
    [[\u{7}PROPERTY|a=b]]\n::add-mask::x\n##[error]y\n![img](https://e.example/x.png) \
    <img src=x> [a](http://e.example) | `` ` ``` @someone \u{202e}rev\u{fffe}\n````\n</pre>";

/// A run in which every text that a model or tool can choose attacks the reader.
pub(crate) fn hostile() -> Run {
    let mut run = Run::new();
    run.started(&["fix", "after"]).task_started("fix", 12).attempt(1).step(1);
    run.responded(60, 12);
    run.command("call-001", HOSTILE, HOSTILE, 1);
    run.denied("call-002", HOSTILE, HOSTILE);
    run.patched("call-003", 1, HOSTILE, HOSTILE);
    let output = run.blob(HOSTILE);
    run.call("call-004")
        .add(
            "call.proposed",
            json!({
                "tool": "unknown", "name": HOSTILE, "call_id": HOSTILE, "input": HOSTILE,
            }),
        )
        .add("call.completed", json!({ "status": "reply", "wall_ms": 0, "output": output }));
    run.step(2).add(
        "model.failed",
        json!({
            "try": 1, "kind": "overloaded", "status": 503, "message": HOSTILE, "retried": false,
        }),
    );
    run.attempt(1).checked(("unit", "final"), "failed", HOSTILE).attempt_done("failed", HOSTILE);
    run.task_done((10, "not-done"), "checks", HOSTILE).done(10, "not-done");
    run
}
