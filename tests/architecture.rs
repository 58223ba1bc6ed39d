//! The import table: which room may know which. ARCHITECTURE.md shows the same table in prose.
#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]

use std::fs;
use std::path::{Path, PathBuf};

/// A room, and the rooms that it may import beside `exit`, `clock`, `path` and `text`.
const ALLOWED: [(&str, &[&str]); 16] = [
    ("transcript", &[]),
    ("profile", &[]),
    ("process", &[]),
    ("patch", &[]),
    ("model", &["transcript", "plan", "approval"]),
    ("policy", &["transcript"]),
    ("approval", &["policy"]),
    ("sandbox", &["approval", "policy", "process", "profile", "transcript"]),
    ("task", &["approval", "policy", "profile"]),
    ("plan", &["task", "approval", "policy", "profile", "transcript"]),
    ("run", &["plan", "approval", "policy", "process", "sandbox", "transcript"]),
    ("workspace", &["plan", "approval", "policy", "process", "sandbox", "transcript"]),
    ("tool", &["approval", "model", "patch", "policy", "process", "sandbox", "transcript"]),
    ("check", &["plan", "process", "run", "sandbox", "tool", "transcript"]),
    (
        "session",
        &[
            "approval",
            "check",
            "model",
            "plan",
            "policy",
            "process",
            "profile",
            "run",
            "sandbox",
            "tool",
            "transcript",
            "workspace",
        ],
    ),
    ("report", &["plan", "transcript"]),
];

/// Rooms that may touch neither files, processes, the network nor the runtime.
const PURE: [&str; 8] = [
    "policy",
    "patch",
    "profile.rs",
    "report/fold",
    "report/junit",
    "report/markdown.rs",
    "model/sse.rs",
    "model/retry.rs",
];

/// Makers of clearances, and the only files that may name them.
const MAKERS: [(&str, &[&str]); 3] = [
    ("approval::by_runner(", &["workspace/git"]),
    ("approval::by_task_author(", &["run/authored.rs", "cli/keys.rs"]),
    ("approval::by_operator(", &["cli/sandbox.rs"]),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every Rust file below `folder`, with its path relative to `src` and its text without tests.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(next) = open.pop() {
        if next.is_dir() {
            open.extend(fs::read_dir(&next).unwrap().map(|entry| entry.unwrap().path()));
        } else if next.extension().is_some_and(|extension| extension == "rs") {
            let name = next.strip_prefix(source()).unwrap().to_string_lossy().into_owned();
            if name.ends_with("tests.rs") {
                continue;
            }
            let text = fs::read_to_string(&next).unwrap();
            let code = text.split("#[cfg(test)]\nmod").next().unwrap_or_default().to_owned();
            found.push((name, code));
        }
    }
    found.sort();
    found
}

/// Code without comments.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn room(name: &str) -> String {
    name.split('/').next().unwrap().trim_end_matches(".rs").to_owned()
}

#[test]
fn rooms_import_only_what_the_table_allows() {
    let free = ["exit", "clock", "path", "text"];
    let mut wrong = Vec::new();
    for (name, text) in files(&source()) {
        let from = room(&name);
        let Some((_, allowed)) = ALLOWED.iter().find(|(room, _)| *room == from) else {
            continue;
        };
        for part in code(&text).split("crate::").skip(1) {
            let to: String =
                part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if to != from && !free.contains(&to.as_str()) && !allowed.contains(&to.as_str()) {
                wrong.push(format!("`{from}` imports `{to}` ({name})"));
            }
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_room_is_in_the_table() {
    let outside = ["cli", "main", "lib", "exit", "clock", "path", "text"];
    for (name, _) in files(&source()) {
        let room = room(&name);
        assert!(
            outside.contains(&room.as_str()) || ALLOWED.iter().any(|(known, _)| *known == room),
            "`{room}` has no row in the import table"
        );
    }
}

#[test]
fn p2_process_is_imported_by_sandbox_for_starting_alone() {
    for (name, text) in files(&source()) {
        let is_inside = name.starts_with("process/") || name.starts_with("sandbox/");
        assert!(
            is_inside || !code(&text).contains("process::spawn"),
            "{name} starts a process without a proof"
        );
    }
}

#[test]
fn p2_clearances_are_made_where_the_table_says() {
    for (name, text) in files(&source()) {
        for (maker, places) in MAKERS {
            assert!(
                name.starts_with("approval")
                    || !code(&text).contains(maker)
                    || places.iter().any(|place| name.starts_with(place)),
                "{name} calls `{maker}`"
            );
        }
    }
}

#[test]
fn pure_rooms_touch_nothing() {
    let banned =
        ["std::fs", "std::process", "tokio", "TcpStream", "nix::", "std::os::unix", "reqwest"];
    for (name, text) in files(&source()) {
        if !PURE.iter().any(|room| name.starts_with(room)) {
            continue;
        }
        for word in banned {
            assert!(!code(&text).contains(word), "{name} names `{word}`");
        }
    }
}

#[test]
fn unsafe_code_lies_in_the_two_sys_files() {
    for (name, text) in files(&source()) {
        let has_unsafe = code(&text)
            .lines()
            .any(|line| line.trim_start().starts_with("unsafe ") || line.contains(" unsafe {"));
        assert!(
            !has_unsafe
                || name == "sandbox/linux/sys.rs"
                || name.starts_with("sandbox/linux/sys/")
                || name == "process/sys.rs",
            "{name} has unsafe code"
        );
    }
}

#[test]
fn nothing_says_where_it_was_made() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Put together so that this file doesn't hold the words itself.
    let banned =
        [["/work", "/main"].concat(), ["/work", "/shared"].concat(), ["crates", ".io"].concat()];
    for file in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "Cargo.toml"] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        for word in &banned {
            assert!(!text.contains(word.as_str()), "{file} names `{word}`");
        }
    }
}

#[test]
fn the_readme_shows_the_table_of_exit_statuses() {
    use horseman::exit::Exit;
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    for exit in Exit::ALL {
        let row = format!("| {} | {} | {} |", exit.code(), exit.name(), exit.meaning());
        assert!(text.contains(&row), "README.md lacks the row `{row}`");
    }
}
