//! A patch goes onto a checkout whole, or not at all.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use horseman::cli::apply::{Applied, ApplyError, ApplyOptions, OtherBase, apply};
use horseman::workspace::Change;

use crate::support::{Ground, block, git, put};

/// A patch with every kind of change, and the ground it was taken on.
fn patched() -> (Ground, Change) {
    let ground = Ground::new();
    put(&ground.repo, "dos.txt", "one\r\ntwo\r\n");
    put(&ground.repo, "old name.txt", "line\n".repeat(40));
    put(&ground.repo, "gone.bin", [0, 1, 2]);
    ground.commit("second");
    let workspace = ground.workspace();
    let root = workspace.root();
    put(root, "a.txt", "one\nTWO\nthree\n");
    put(root, "dos.txt", "one\r\nTWO\r\n");
    put(root, "new/ä\n\"q\".txt", "new\n");
    fs::rename(root.join("old name.txt"), root.join("new name.txt")).unwrap();
    fs::remove_file(root.join("gone.bin")).unwrap();
    fs::set_permissions(root.join("src/lib.rs"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a.txt", root.join("link")).unwrap();
    let change = block(workspace.result()).unwrap();
    drop(workspace);
    (ground, change)
}

fn run(ground: &Ground, change: &Change, options: &ApplyOptions) -> Result<Applied, ApplyError> {
    block(apply(&ground.git, &change.patch, &ground.repo, options))
}

fn tree(repo: &Path) -> String {
    git(repo, &["add", "-A"]);
    git(repo, &["write-tree"])
}

#[test]
fn every_kind_of_change_arrives() {
    let (ground, change) = patched();
    put(&ground.repo, "src/größe mit blank.txt", "uncommitted elsewhere\n");
    let options = ApplyOptions { sha256: Some(change.sha256.clone()), ..ApplyOptions::default() };
    let applied = run(&ground, &change, &options).unwrap();
    assert_eq!(applied.files, change.files);
    assert_eq!(applied.commit, None);
    assert!(git(&ground.repo, &["diff", "--cached", "--name-only"]).is_empty(), "nothing staged");
    git(&ground.repo, &["checkout", "src/größe mit blank.txt"]);
    assert_eq!(tree(&ground.repo), change.result_tree);
}

#[test]
fn a_commit_has_the_patch_and_runs_no_hook() {
    let (ground, change) = patched();
    let hook = ground.repo.join(".git/hooks/pre-commit");
    put(&ground.repo, ".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let options =
        ApplyOptions { commit: Some("fix: it\n\nby a run".to_owned()), ..ApplyOptions::default() };
    let applied = run(&ground, &change, &options).unwrap();
    let head = git(&ground.repo, &["rev-parse", "HEAD"]);
    assert_eq!(applied.commit, Some(head));
    assert_eq!(git(&ground.repo, &["rev-parse", "HEAD^{tree}"]), change.result_tree);
    assert_eq!(git(&ground.repo, &["status", "--porcelain"]), "");
    assert_eq!(
        git(&ground.repo, &["log", "-1", "--format=%an <%ae> %B"]),
        "horseman <horseman@localhost> fix: it\n\nby a run"
    );
    assert_eq!(git(&ground.repo, &["branch", "--show-current"]), "main");
}

#[test]
fn nothing_is_written_when_something_does_not_fit() {
    type Break = fn(&Ground);
    let cases: [(&str, Break, &str); 6] = [
        (
            "other base",
            |g| {
                put(&g.repo, "a.txt", "one\ntwo\nthree\nand more far below\n");
                g.commit("moved on");
            },
            "differ from the base",
        ),
        (
            "uncommitted",
            |g| put(&g.repo, "a.txt", "one\ntwo\nthree\nmine\n"),
            "uncommitted changes",
        ),
        (
            "staged",
            |g| {
                put(&g.repo, "a.txt", "mine\n");
                git(&g.repo, &["add", "a.txt"]);
            },
            "uncommitted changes",
        ),
        ("deleted", |g| fs::remove_file(g.repo.join("dos.txt")).unwrap(), "uncommitted changes"),
        ("in the way", |g| put(&g.repo, "new name.txt", "mine\n"), "already there"),
        (
            "renamed away",
            |g| {
                git(&g.repo, &["mv", "old name.txt", "x.txt"]);
                g.commit("moved");
            },
            "",
        ),
    ];
    for (name, spoil, says) in cases {
        let (ground, change) = patched();
        spoil(&ground);
        let before = git(&ground.repo, &["status", "--porcelain", "-uall"]);
        let error = run(&ground, &change, &ApplyOptions::default()).unwrap_err();
        assert!(error.to_string().contains(says), "{name}: {error}");
        assert_eq!(git(&ground.repo, &["status", "--porcelain", "-uall"]), before, "{name}");
    }
}

#[test]
fn digest_and_protected_paths_are_verified_first() {
    let (ground, change) = patched();
    let wrong = ApplyOptions { sha256: Some("0".repeat(64)), ..ApplyOptions::default() };
    assert!(matches!(run(&ground, &change, &wrong), Err(ApplyError::Digest { .. })));
    for glob in ["old name.txt", "NEW/**", "src"] {
        let options = ApplyOptions { protected: vec![glob.to_owned()], ..ApplyOptions::default() };
        let error = run(&ground, &change, &options).unwrap_err();
        assert!(matches!(error, ApplyError::Protected { .. }), "{glob}: {error}");
    }
    let middle = change.patch.windows(4).position(|window| window == b"+TWO").unwrap();
    let torn = Change { patch: change.patch[..middle].to_vec(), ..change };
    assert!(run(&ground, &torn, &ApplyOptions::default()).is_err());
    assert_eq!(git(&ground.repo, &["status", "--porcelain"]), "");
}

#[test]
fn a_merge_takes_a_base_that_moved_on_and_refuses_conflicts() {
    let merge = ApplyOptions { on_other_base: OtherBase::Merge, ..ApplyOptions::default() };
    let (ground, change) = patched();
    put(&ground.repo, "dos.txt", "zero\r\n\r\n\r\n\r\none\r\ntwo\r\n");
    ground.commit("moved on");
    run(&ground, &change, &merge).unwrap();
    let merged = fs::read_to_string(ground.repo.join("dos.txt")).unwrap();
    assert_eq!(merged, "zero\r\n\r\n\r\n\r\none\r\nTWO\r\n");
    let (ground, change) = patched();
    put(&ground.repo, "a.txt", "one\nother\nthree\n");
    ground.commit("conflict");
    let error = run(&ground, &change, &merge).unwrap_err();
    assert!(matches!(error, ApplyError::Conflicts { .. }), "{error}");
    assert_eq!(git(&ground.repo, &["status", "--porcelain"]), "");
}

#[test]
fn a_patch_of_carried_changes_fits_the_checkout_that_has_them() {
    let ground = Ground::new();
    put(&ground.repo, "a.txt", "dirty\n");
    put(&ground.repo, "new.txt", "untracked\n");
    let mut plan = ground.plan();
    plan.carry_dirty = true;
    let mut workspace = ground.prepare(&plan);
    block(workspace.base()).unwrap();
    put(workspace.root(), "a.txt", "dirty\nfixed\n");
    put(workspace.root(), "new.txt", "untracked\nfixed\n");
    let change = block(workspace.result()).unwrap();
    run(&ground, &change, &ApplyOptions::default()).unwrap();
    assert_eq!(fs::read_to_string(ground.repo.join("a.txt")).unwrap(), "dirty\nfixed\n");
    assert_eq!(fs::read_to_string(ground.repo.join("new.txt")).unwrap(), "untracked\nfixed\n");
}

#[test]
fn folders_without_git_and_folders_of_a_checkout_take_patches() {
    for is_git in [false, true] {
        let ground = if is_git { Ground::new() } else { Ground::bare() };
        put(&ground.repo, "sub/f.txt", "f\n");
        if is_git {
            ground.commit("sub");
        }
        let sub = ground.repo.join("sub");
        let plan = crate::support::plan(horseman::plan::WorkspaceKind::Copy, None, sub.clone());
        let mut workspace = ground.prepare(&plan);
        block(workspace.base()).unwrap();
        put(workspace.root(), "f.txt", "fixed\n");
        put(workspace.root(), "g/new.txt", "new\n");
        let change = block(workspace.result()).unwrap();
        block(apply(&ground.git, &change.patch, &sub, &ApplyOptions::default())).unwrap();
        assert_eq!(fs::read_to_string(sub.join("f.txt")).unwrap(), "fixed\n");
        assert_eq!(fs::read_to_string(sub.join("g/new.txt")).unwrap(), "new\n");
        let again = block(apply(&ground.git, &change.patch, &sub, &ApplyOptions::default()));
        assert!(again.is_err());
        let commit = ApplyOptions { commit: Some("x".to_owned()), ..ApplyOptions::default() };
        let error = block(apply(&ground.git, b"", &sub, &commit)).err();
        assert_eq!(matches!(error, Some(ApplyError::NoCheckout { .. })), !is_git);
    }
}

#[test]
fn line_ends_that_the_checkout_converts_stay_converted() {
    let ground = Ground::new();
    put(&ground.repo, ".gitattributes", "*.bat text eol=crlf\n");
    put(&ground.repo, "w.bat", "one\r\ntwo\r\n");
    ground.commit("bat");
    let workspace = ground.workspace();
    assert_eq!(fs::read_to_string(workspace.root().join("w.bat")).unwrap(), "one\ntwo\n");
    put(workspace.root(), "w.bat", "one\nTWO\n");
    let change = block(workspace.result()).unwrap();
    run(&ground, &change, &ApplyOptions::default()).unwrap();
    assert_eq!(fs::read_to_string(ground.repo.join("w.bat")).unwrap(), "one\r\nTWO\r\n");
    assert_eq!(tree(&ground.repo), change.result_tree);
}

#[test]
fn a_patch_does_not_write_outside_or_into_the_repository() {
    let ground = Ground::new();
    let outside = ground.temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, ground.repo.join("out")).unwrap();
    ground.commit("link");
    for path in ["../x", ".git/hooks/x", "out/x", "/tmp/horseman-x", ".GIT/x"] {
        let patch = format!(
            "diff --git a/{path} b/{path}\nnew file mode 100755\nindex {}..{}\n--- /dev/null\n\
             +++ b/{path}\n@@ -0,0 +1 @@\n+x\n",
            "0".repeat(40),
            "5".repeat(40),
        );
        let ran =
            block(apply(&ground.git, patch.as_bytes(), &ground.repo, &ApplyOptions::default()));
        assert!(ran.is_err(), "{path}");
    }
    assert!(fs::read_dir(&outside).unwrap().next().is_none());
    assert!(!ground.repo.join(".git/hooks/x").exists());
}
