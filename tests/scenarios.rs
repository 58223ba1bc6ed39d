//! Black-box scenarios: one file, one trial. Each runs the real binary against a real repository,
//! in the real sandbox, and compares what it leaves. `UPDATE` is not needed: expectations are parts.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "this is how a test reports")]
#![expect(clippy::disallowed_methods, reason = "the harness plays the user and waits on a clock")]

#[expect(dead_code, reason = "the wire tests use all of it")]
#[path = "support/responses_server.rs"]
mod responses_server;
#[path = "support/scenario.rs"]
mod scenario;

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut trials: Vec<Trial> = ["run", "refuse", "wires"]
        .iter()
        .flat_map(|folder| files(&root.join(folder)))
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap().with_extension("");
            let unmet = scenario::unmet(&path);
            if let Some(reason) = &unmet {
                eprintln!("skipped: {}: {reason}", name.display());
            }
            Trial::test(name.to_string_lossy(), move || trial(&path))
                .with_ignored_flag(unmet.is_some())
        })
        .collect();
    trials.sort_by(|left, right| left.name().cmp(right.name()));
    libtest_mimic::run(&arguments, trials).exit();
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yml"))
        .collect()
}

fn trial(path: &Path) -> Result<(), Failed> {
    scenario::run(path).map_err(Failed::from)
}
