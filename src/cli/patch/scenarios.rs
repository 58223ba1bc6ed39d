//! The scenarios of `tests/scenarios/patch`, each a folder of data.
//!
//! `patch.txt` is the text; `input.json` and `expected.json` map a path to what stands there: text,
//! `{"latin1": "…"}` for bytes, `{"link": "…"}`, `{"same": "PATH"}` for a hard link, and `mode` beside
//! either; `error.txt` is the whole message, with `{root}` for the workspace. Without
//! `expected.json` nothing may change. `options.json` has the options that differ from the default
//! and `message` for the whole message of a success.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{PatchOptions, PatchOutcome, run};
use crate::exit::Exit;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    overwrite: bool,
    check_only: bool,
    protected: Vec<String>,
    roots: Vec<String>,
    cwd: Option<String>,
    message: Option<String>,
    levels: Option<Vec<String>>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/patch")
}

fn read_json(path: &Path) -> Option<Value> {
    let text = fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn bytes(value: &Value) -> Vec<u8> {
    if let Value::String(text) = value {
        return text.clone().into_bytes();
    }
    match (value.get("text"), value.get("latin1")) {
        (Some(Value::String(text)), _) => text.clone().into_bytes(),
        (_, Some(Value::String(text))) => {
            text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
        }
        _ => panic!("{value} has neither text nor latin1"),
    }
}

fn build(root: &Path, tree: &Value) {
    for (name, value) in tree.as_object().unwrap() {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if name.ends_with('/') {
            fs::create_dir_all(&path).unwrap();
        } else if let Some(target) = value.get("link") {
            symlink(target.as_str().unwrap(), &path).unwrap();
        } else if let Some(target) = value.get("same") {
            fs::hard_link(root.join(target.as_str().unwrap()), &path).unwrap();
        } else {
            fs::write(&path, bytes(value)).unwrap();
            if let Some(mode) = value.get("mode") {
                let mode = u32::from_str_radix(mode.as_str().unwrap(), 8).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

/// Everything below `root`: bytes and mode of files, targets of links, folders.
pub(super) fn snapshot(root: &Path) -> BTreeMap<String, (Vec<u8>, u32)> {
    let mut out = BTreeMap::new();
    let mut rest = vec![root.to_owned()];
    while let Some(folder) = rest.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if stat.is_dir() {
                rest.push(path);
                out.insert(format!("{name}/"), (Vec::new(), 0));
            } else if stat.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                out.insert(name, (target.into_os_string().into_encoded_bytes(), 0));
            } else {
                out.insert(name, (fs::read(&path).unwrap(), stat.mode() & 0o7777));
            }
        }
    }
    out
}

/// The expected tree over the old one: what is named is as named, `null` is gone.
fn expected(
    before: &BTreeMap<String, (Vec<u8>, u32)>,
    tree: &Value,
) -> BTreeMap<String, (Vec<u8>, u32)> {
    let mut out = before.clone();
    for (name, value) in tree.as_object().unwrap() {
        if value.is_null() {
            out.remove(name);
            continue;
        }
        let mode = value.get("mode").map_or_else(
            || before.get(name).map_or(0o644, |file| file.1),
            |mode| u32::from_str_radix(mode.as_str().unwrap(), 8).unwrap(),
        );
        out.insert(name.clone(), (bytes(value), mode));
        for parent in
            Path::new(name).ancestors().skip(1).filter(|path| !path.as_os_str().is_empty())
        {
            out.insert(format!("{}/", parent.display()), (Vec::new(), 0));
        }
    }
    out
}

fn check(scenario: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let input = read_json(&scenario.join("input.json")).unwrap_or_else(|| json!({}));
    build(&root, &input);
    let options: Options = read_json(&scenario.join("options.json"))
        .map(|value| serde_json::from_value(value).unwrap())
        .unwrap_or_default();
    let before = snapshot(&root);
    let text = fs::read_to_string(scenario.join("patch.txt")).unwrap();
    let text = text.replace("{root}", root.to_str().unwrap());
    let workspace = root.join("work");
    let patch_options = PatchOptions {
        cwd: options.cwd.as_ref().map_or_else(|| workspace.clone(), |cwd| workspace.join(cwd)),
        root: Some(workspace),
        check_only: options.check_only,
        overwrite: options.overwrite,
        protected: options.protected,
        roots: options.roots.iter().map(|path| root.join(path)).collect(),
        json: false,
    };
    let outcome = run(&patch_options, text.as_bytes());
    let after = snapshot(&root);
    let expected_tree = read_json(&scenario.join("expected.json"));
    let wanted = match &expected_tree {
        Some(tree) => expected(&before, tree),
        None => before,
    };
    if after != wanted {
        return Err(format!(
            "tree differs\nwanted {:?}\nfound  {:?}\n{}",
            show(&wanted),
            show(&after),
            outcome.report.message
        ));
    }
    let levels = options.levels.as_ref();
    check_outcome(scenario, &outcome, options.message.as_ref(), levels, &root)
}

fn check_outcome(
    scenario: &Path,
    outcome: &PatchOutcome,
    message: Option<&String>,
    levels: Option<&Vec<String>>,
    root: &Path,
) -> Result<(), String> {
    let found = outcome.report.message.replace(root.to_str().unwrap(), "{root}");
    let file = scenario.join("error.txt");
    if let Some(wanted) = fs::read_to_string(&file).ok().as_ref().or(message) {
        if wanted.trim_end() != found.trim_end() {
            return Err(format!("message differs\nwanted {wanted}\nfound  {found}"));
        }
    } else if outcome.exit != Exit::Done {
        return Err(format!("not applied: {found}"));
    }
    if file.exists() == (outcome.exit == Exit::Done) {
        return Err(format!("exit {:?}: {found}", outcome.exit));
    }
    let all: Vec<&String> = outcome.report.files.iter().flat_map(|file| &file.hunks).collect();
    if let Some(levels) = levels
        && all != levels.iter().collect::<Vec<_>>()
    {
        return Err(format!("levels {all:?}, wanted {levels:?}"));
    }
    Ok(())
}

fn show(tree: &BTreeMap<String, (Vec<u8>, u32)>) -> Vec<String> {
    tree.iter()
        .map(|(name, (bytes, mode))| format!("{name} {mode:o} {}", bytes.escape_ascii()))
        .collect()
}

fn for_each(check: fn(&Path) -> Result<(), String>) {
    let mut scenarios: Vec<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    scenarios.sort();
    assert!(!scenarios.is_empty());
    let failures: Vec<String> = scenarios
        .iter()
        .filter_map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            check(path).err().map(|error| format!("{name}: {error}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn p7_every_scenario_ends_as_written() {
    for_each(check);
}

/// The diff must turn the tree after the patch into the tree before it, to the byte.
fn check_backwards(scenario: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    build(&root, &read_json(&scenario.join("input.json")).unwrap());
    let options: Options = read_json(&scenario.join("options.json"))
        .map(|value| serde_json::from_value(value).unwrap())
        .unwrap_or_default();
    // A diff of another root has no common base, and `git apply` takes no diff of an empty change.
    if !options.roots.is_empty() || options.check_only {
        return Ok(());
    }
    let work = root.join("work");
    let before = snapshot(&work);
    let text = fs::read_to_string(scenario.join("patch.txt")).unwrap();
    let text = text.replace("{root}", root.to_str().unwrap());
    let patch_options = PatchOptions {
        cwd: work.join(options.cwd.unwrap_or_default()),
        root: Some(work.clone()),
        overwrite: options.overwrite,
        protected: options.protected,
        ..PatchOptions::default()
    };
    let staged = super::write(&patch_options, text.as_bytes(), &super::Disk::default());
    let diff = staged.map(|staged| staged.diff).unwrap_or_default();
    if diff.is_empty() {
        return Ok(());
    }
    let file = root.join("diff");
    fs::write(&file, &diff).unwrap();
    #[expect(clippy::disallowed_methods, reason = "git is the judge of a diff")]
    let output = std::process::Command::new("git")
        .args(["apply", "-R", "--whitespace=nowarn"])
        .arg(&file)
        .current_dir(&work)
        .env("GIT_CEILING_DIRECTORIES", &root)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{error}\n{}", diff.escape_ascii()));
    }
    // git keeps no empty folders and only the executable bit.
    let files = |tree: BTreeMap<String, (Vec<u8>, u32)>| -> BTreeMap<String, (Vec<u8>, bool)> {
        tree.into_iter()
            .filter(|(name, _)| !name.ends_with('/'))
            .map(|(name, (bytes, mode))| (name, (bytes, mode & 0o100 != 0)))
            .collect()
    };
    let (wanted, found) = (files(before), files(snapshot(&work)));
    if wanted == found {
        return Ok(());
    }
    Err(format!("wanted {wanted:?}\nfound  {found:?}\n{}", diff.escape_ascii()))
}

#[test]
fn p7_every_diff_applies_backwards() {
    for_each(check_backwards);
}
