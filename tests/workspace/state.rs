//! The private folder of a run, and the sweep of dead ones.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use horseman::workspace::{RunState, StateError, sweep};
use tempfile::TempDir;

use crate::support::put;

#[test]
fn p9_a_run_s_folder_is_private_and_goes_with_it() {
    let temp = TempDir::new().unwrap();
    let base = temp.path().join("base");
    let state = RunState::create(&base, "run-1").unwrap();
    let folder = state.folder().to_path_buf();
    for path in [&base, &folder] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
    }
    let one = state.attempt_dir("task").unwrap();
    let two = state.attempt_dir("task[os=a/b]").unwrap();
    let three = state.attempt_dir("task[os=a-b]").unwrap();
    assert!(one != two && two != three && two.starts_with(&folder));
    assert_eq!(one, state.attempt_dir("task").unwrap());
    put(&one, "locked/file", "x");
    fs::set_permissions(one.join("locked"), fs::Permissions::from_mode(0o500)).unwrap();
    assert!(matches!(RunState::create(&base, "run-1"), Err(StateError::Taken { .. })));
    for bad in ["", "..", "a/b", ".x"] {
        assert!(matches!(RunState::create(&base, bad), Err(StateError::Id { .. })), "{bad}");
    }
    drop(state);
    assert!(!folder.exists());
}

#[test]
fn p9_the_next_start_clears_dead_runs_and_leaves_live_ones() {
    let temp = TempDir::new().unwrap();
    let base = temp.path().join("base");
    let outside = temp.path().join("outside");
    put(&outside, "kept", "x");
    let live = RunState::create(&base, "live").unwrap();
    let base = fs::canonicalize(&base).unwrap();
    let dead = base.join("dead");
    put(&dead, "lock", "");
    put(&dead, "tasks/t/workspace/deep/file", "x");
    symlink(&outside, dead.join("tasks/link")).unwrap();
    fs::set_permissions(dead.join("tasks/t/workspace/deep"), fs::Permissions::from_mode(0o000))
        .unwrap();
    let starting = base.join(".starting.1");
    // Between making its lock and taking it: another start must not take it.
    put(&starting, "lock", "");
    symlink(&outside, base.join("link")).unwrap();
    let ended: RefCell<Vec<PathBuf>> = RefCell::default();
    let swept = sweep(&base, &|folder| {
        assert!(folder.join("tasks").is_dir(), "ended before it is removed");
        ended.borrow_mut().push(folder.to_path_buf());
        3
    })
    .unwrap();
    assert_eq!(ended.take(), std::slice::from_ref(&dead));
    assert_eq!(swept.len(), 1);
    assert_eq!((swept[0].processes, &swept[0].folder), (3, &dead));
    assert!(swept[0].failure.is_none() && !dead.exists());
    assert!(live.folder().exists() && starting.exists() && outside.join("kept").exists());
    assert!(sweep(&temp.path().join("none"), &|_| 0).unwrap().is_empty());
}

#[test]
fn a_base_that_is_not_ours_alone_is_refused() {
    let temp = TempDir::new().unwrap();
    let real = temp.path().join("real");
    fs::create_dir(&real).unwrap();
    let base = temp.path().join("base");
    symlink(&real, &base).unwrap();
    let error = RunState::create(&base, "x").unwrap_err();
    assert!(error.to_string().contains("found a symlink"), "{error}");
    assert!(sweep(&base, &|_| 0).is_err());
    let file = temp.path().join("file");
    OpenOptions::new().write(true).create_new(true).open(&file).unwrap();
    assert!(RunState::create(&file, "x").is_err());
    fs::set_permissions(&real, fs::Permissions::from_mode(0o777)).unwrap();
    RunState::create(&real, "x").unwrap();
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o700);
}
