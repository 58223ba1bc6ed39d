//! Runs the tables of `tests/scenarios/policy`: rules, then rows of text, decision and evidence.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::{Action, Decision, Evaluation, Exec, Grounds, Opaque, Policy, RuleSource};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[expect(dead_code, reason = "read by people")]
    about: String,
    #[serde(default)]
    rules: String,
    /// A file of `policies/` instead of `rules`.
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    opaque: Option<String>,
    #[serde(default)]
    unmatched: Option<String>,
    /// Text, decision, and evidence: rules as `t:LINE`, built-in rules by name, and `opaque`.
    rows: Vec<(String, String, String)>,
}

pub(super) fn action(text: &str) -> Action {
    Action::Exec(Exec {
        program: PathBuf::from("/bin/bash"),
        argv: vec!["bash".to_owned(), "-lc".to_owned(), text.to_owned()],
        cwd: PathBuf::from("/work/tree"),
        env: BTreeMap::from([("HOME".to_owned(), "/home/agent".to_owned())]),
        shell_text: Some(text.to_owned()),
    })
}

pub(super) fn grounds() -> Grounds {
    Grounds {
        workspace: PathBuf::from("/work/tree"),
        write_roots: vec![PathBuf::from("/work/tree"), PathBuf::from("/tmp")],
        protected: vec![".git".to_owned()],
    }
}

pub(super) fn policy(rules: &str) -> Policy {
    let source = RuleSource { name: "t".to_owned(), text: rules.to_owned() };
    Policy::load(&[source], Opaque::Sandbox, grounds()).unwrap()
}

fn evidence(evaluation: &Evaluation) -> Vec<String> {
    let mut found: Vec<String> =
        evaluation.evidence.iter().map(|evidence| evidence.rule.clone()).collect();
    if evaluation.opaque.is_some() {
        found.push("opaque".to_owned());
    }
    found.sort();
    found.dedup();
    found
}

fn load(path: &Path) -> (Policy, Table) {
    let text = std::fs::read_to_string(path).unwrap();
    let table: Table = serde_yaml::from_str(&text).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let rules = table.file.as_ref().map_or_else(
        || table.rules.clone(),
        |file| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies");
            std::fs::read_to_string(folder.join(file)).unwrap()
        },
    );
    let mut policy = policy(&rules);
    policy.opaque = match table.opaque.as_deref() {
        None | Some("sandbox") => Opaque::Sandbox,
        Some("prompt") => Opaque::Prompt,
        Some("forbidden") => Opaque::Forbidden,
        Some(other) => panic!("{other}"),
    };
    policy.unmatched = match table.unmatched.as_deref() {
        None | Some("allow") => Decision::Allow,
        Some("prompt") => Decision::Prompt,
        Some("forbidden") => Decision::Forbidden,
        Some(other) => panic!("{other}"),
    };
    (policy, table)
}

fn tables() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/policy");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "yml"));
    paths.sort();
    paths
}

#[test]
fn every_row_of_every_table_holds() {
    let mut wrong = Vec::new();
    let mut rows = 0;
    for path in tables() {
        let (policy, table) = load(&path);
        for (text, decision, wanted) in &table.rows {
            rows += 1;
            let evaluation = policy.evaluate(&Arc::new(action(text)));
            let found = evidence(&evaluation).join(" ");
            let mut wanted: Vec<&str> = wanted.split_whitespace().collect();
            wanted.sort_unstable();
            if evaluation.decision.name() != decision || found != wanted.join(" ") {
                wrong.push(format!(
                    "{}: {text:?}\n   wanted {decision} [{}]\n   found  {} [{found}] {} {:?}",
                    path.file_name().unwrap().display(),
                    wanted.join(" "),
                    evaluation.decision.name(),
                    evaluation.reason,
                    evaluation.opaque,
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
    assert!(rows >= 120, "only {rows} rows");
}
