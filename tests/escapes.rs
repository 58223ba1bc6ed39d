//! Attempts to get out, in each tier and as each user, against `horseman sandbox` on the real kernel.
//! A case that gets out must stand among the gaps of its tier, and a gap that is closed must leave
//! that list.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "this is how a test reports")]
#![expect(clippy::disallowed_methods, reason = "the harness plays the host")]

#[path = "support/escape.rs"]
mod escape;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use escape::{Case, Expected, Fixture, User};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;

/// Where a case is tried.
#[derive(Clone, Copy)]
struct Where {
    name: &'static str,
    tier: &'static str,
    user: User,
    /// Shell text before our binary is started.
    prelude: &'static str,
}

const PLACES: [Where; 4] = [
    Where { name: "namespaces", tier: "namespaces", user: User::Me, prelude: "" },
    Where { name: "namespaces-user", tier: "namespaces", user: User::Other, prelude: "" },
    Where { name: "landlock", tier: "landlock", user: User::Me, prelude: "" },
    Where { name: "landlock-user", tier: "landlock", user: User::Other, prelude: "" },
];

/// Cases that are known to get out, and why.
#[derive(Deserialize)]
struct Gaps(BTreeMap<String, BTreeMap<String, String>>);

fn main() {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/escapes");
    let gaps = fs::read_to_string(folder.join("gaps.yml")).unwrap();
    let gaps: Gaps = serde_yaml::from_str(&gaps).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    for file in ["cases.jsonl", "own.jsonl"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        cases.extend(text.lines().map(|line| serde_json::from_str(line).unwrap()));
    }
    let mut trials = Vec::new();
    for place in PLACES {
        let unmet = unmet(place);
        if let Some(reason) = &unmet {
            eprintln!("skipped: {}: {reason}", place.name);
        }
        for case in cases.clone() {
            let gap = gaps.0.get(place.name).and_then(|gaps| gaps.get(&case.id)).cloned();
            let name = format!("{}/{}", place.name, case.id);
            trials.push(
                Trial::test(name, move || judge(&case, place, gap.as_deref()))
                    .with_ignored_flag(unmet.is_some()),
            );
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Why nothing can be tried there; `None` when it can.
fn unmet(place: Where) -> Option<String> {
    let works = |command: &str| {
        Command::new("bash")
            .args(["-c", command])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let other = "setpriv --reuid 1000 --regid 1000 --clear-groups true";
    if place.user == User::Other && !works(other) {
        return Some(format!("`{other}` fails here: only root can become another user"));
    }
    let unshare = "unshare --user --map-root-user --mount --net true";
    if place.tier == "namespaces" && !works(unshare) {
        return Some(format!("`{unshare}` fails here: no user namespaces"));
    }
    None
}

fn judge(case: &Case, place: Where, gap: Option<&str>) -> Result<(), Failed> {
    let attempt = Fixture::new(place.user).attempt(case, place.tier, place.prelude);
    let report = |what: &str| {
        Err(format!(
            "{what}: {}\n$ {}\nstatus {:?}\n{}{}",
            case.technique, case.command, attempt.status, attempt.text, attempt.errors
        )
        .into())
    };
    if attempt.status == Some(125) {
        return report("the confinement can't be set up");
    }
    let is_right = attempt.got_out == (case.expected == Expected::Allowed);
    match (is_right, gap) {
        (true, None) | (false, Some(_)) => Ok(()),
        (true, Some(_)) => report("it is no gap any more"),
        (false, None) if attempt.got_out => report("it got out"),
        (false, None) => report("it does not work"),
    }
}
