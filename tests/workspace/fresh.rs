//! The fresh tree has the base and the patch, and nothing else of the agent's.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use horseman::approval::Span;
use horseman::plan::{Command, SetupPlan, WorkspaceKind, WorkspacePlan};
use horseman::profile::{Hosts, Network};
use horseman::workspace::{Workspace, WorkspaceError};

use crate::support::{Ground, block, git, plan, put};

fn with_setup(mut plan: WorkspacePlan) -> WorkspacePlan {
    plan.setup.push(SetupPlan {
        secrets: Vec::new(),
        run: Command::Shell("make".to_owned()),
        network: Network::None,
        hosts: Hosts::default(),
        timeout: Duration::from_secs(1),
        span: Span::default(),
    });
    plan
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok()
}

#[test]
fn p5_what_only_the_agents_tree_had_is_not_in_the_fresh_one() {
    let ground = Ground::new();
    for plan in [ground.plan(), with_setup(ground.plan())] {
        let mut workspace = ground.prepare(&plan);
        let (root, home, tmp) = (workspace.root().to_path_buf(), workspace.home(), workspace.tmp());
        if !plan.setup.is_empty() {
            put(&root, "made", "by setup\n");
            put(&root, "target/made.log", "by setup, ignored\n");
            put(&home, ".cache/made", "by setup\n");
        }
        block(workspace.base()).unwrap();
        put(&root, "a.txt", "fixed\n");
        put(&root, "target/cheat.log", "cheat\n");
        put(&root, ".git/info/attributes", "* filter=cheat\n");
        put(&home, ".bashrc", "cheat\n");
        put(&tmp, "cheat", "cheat\n");
        let change = block(workspace.result()).unwrap();
        let fresh = block(workspace.fresh(&change)).unwrap();
        assert_eq!(fresh.root, root);
        assert_eq!(read(&root, "a.txt").as_deref(), Some("fixed\n"));
        for (folder, path) in [(&root, "target/cheat.log"), (&home, ".bashrc"), (&tmp, "cheat")] {
            assert_eq!(read(folder, path), None, "{path}");
        }
        assert_eq!(read(&root, "made").is_some(), !plan.setup.is_empty());
        assert_eq!(read(&root, "target/made.log").is_some(), !plan.setup.is_empty());
        assert_eq!(read(&home, ".cache/made").is_some(), !plan.setup.is_empty());
        assert!(git(&root, &["status", "--porcelain"]).contains("M a.txt"));
        assert!(matches!(block(workspace.result()), Err(WorkspaceError::Order { .. })));
        put(&root, "from-check", "x");
        fresh.close().unwrap();
        assert_eq!(read(&root, "from-check"), None);
        assert_eq!(read(&root, "target/cheat.log").as_deref(), Some("cheat\n"));
        assert_eq!(read(&home, ".bashrc").as_deref(), Some("cheat\n"));
        assert_eq!(block(workspace.result()).unwrap(), change);
        drop(workspace);
        fs::remove_dir_all(ground.temp.path().join("attempt")).unwrap();
    }
}

#[test]
fn reset_goes_back_to_the_state_after_setup() {
    let ground = Ground::new();
    for plan in [ground.plan(), with_setup(ground.plan())] {
        let mut workspace = ground.prepare(&plan);
        let root = workspace.root().to_path_buf();
        if !plan.setup.is_empty() {
            put(&root, "built/x.log", "ignored product\n");
        }
        block(workspace.base()).unwrap();
        put(&root, "a.txt", "agent\n");
        put(&root, "target/left", "agent\n");
        fs::remove_dir_all(root.join("src")).unwrap();
        fs::remove_dir_all(root.join(".git")).unwrap();
        symlink("/", root.join("src")).unwrap();
        put(&workspace.home(), ".bashrc", "agent\n");
        block(workspace.reset()).unwrap();
        assert!(block(workspace.result()).unwrap().is_empty());
        assert_eq!(read(&root, "a.txt").as_deref(), Some("one\ntwo\nthree\n"));
        assert!(!root.join("target").exists() && root.join("src/lib.rs").is_file());
        assert_eq!(root.join("built/x.log").exists(), !plan.setup.is_empty());
        assert!(!workspace.home().join(".bashrc").exists());
        assert_eq!(git(&root, &["status", "--porcelain"]), "");
        drop(workspace);
        fs::remove_dir_all(ground.temp.path().join("attempt")).unwrap();
    }
}

#[test]
fn a_product_of_setup_that_the_agent_changed_is_replaced() {
    let ground = Ground::new();
    let mut workspace = ground.prepare(&with_setup(ground.plan()));
    let root = workspace.root().to_path_buf();
    put(&root, "gen.rs", "by setup\n");
    let outside = ground.temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, root.join("deps")).unwrap();
    block(workspace.base()).unwrap();
    put(&root, "gen.rs", "by the agent\n");
    fs::remove_file(root.join("deps")).unwrap();
    put(&root, "deps/x", "inside\n");
    let change = block(workspace.result()).unwrap();
    let fresh = block(workspace.fresh(&change)).unwrap();
    assert_eq!(read(&fresh.root, "gen.rs").as_deref(), Some("by the agent\n"));
    assert_eq!(read(&fresh.root, "deps/x").as_deref(), Some("inside\n"));
    assert!(fs::read_dir(&outside).unwrap().next().is_none(), "written through a link");
}

#[test]
fn a_tampered_patch_is_not_taken() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    put(workspace.root(), "a.txt", "fixed\n");
    let mut change = block(workspace.result()).unwrap();
    let text = String::from_utf8(change.patch.clone()).unwrap().replace("+fixed", "+other");
    change.patch = text.into_bytes();
    let error = block(workspace.fresh(&change)).unwrap_err();
    assert!(matches!(error, WorkspaceError::NotReproduced { .. }), "{error}");
}

#[test]
fn p5_protected_files_are_put_back_as_the_trusted_commit_has_them() {
    let ground = Ground::new();
    put(&ground.repo, "tests/t.rs", "trusted\n");
    put(&ground.repo, "tests/gone.rs", "trusted\n");
    let trusted = ground.commit("tests");
    put(&ground.repo, "tests/t.rs", "weakened by the pull request\n");
    put(&ground.repo, "tests/only-here.rs", "work commit\n");
    fs::remove_file(ground.repo.join("tests/gone.rs")).unwrap();
    ground.commit("pull request");
    let workspace = ground.workspace();
    let root = workspace.root().to_path_buf();
    fs::remove_dir_all(root.join("tests")).unwrap();
    let outside = ground.temp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, root.join("tests")).unwrap();
    let change = block(workspace.result()).unwrap();
    let touched =
        horseman::workspace::touched_protected(&change, &["tests/**".to_owned()]).unwrap();
    assert_eq!(touched, ["tests", "tests/only-here.rs", "tests/t.rs"]);
    let fresh = block(workspace.fresh(&change)).unwrap();
    let globs = ["tests/**".to_owned()];
    let restored = block(workspace.restore(&fresh, &globs, Some(&trusted))).unwrap();
    assert_eq!(restored, [PathBuf::from("tests/gone.rs"), PathBuf::from("tests/t.rs")]);
    assert_eq!(read(&fresh.root, "tests/t.rs").as_deref(), Some("trusted\n"));
    assert_eq!(read(&fresh.root, "tests/gone.rs").as_deref(), Some("trusted\n"));
    assert!(fs::read_dir(&outside).unwrap().next().is_none(), "written through a link");
}

fn folder_workspace(ground: &Ground, kind: WorkspaceKind) -> Workspace {
    let mut workspace = ground.prepare(&plan(kind, None, ground.repo.clone()));
    block(workspace.base()).unwrap();
    workspace
}

#[test]
fn copies_and_in_place_trees_have_a_fresh_tree_and_a_reset() {
    for is_git in [false, true] {
        for kind in [WorkspaceKind::Copy, WorkspaceKind::InPlace] {
            let ground = if is_git { Ground::new() } else { Ground::bare() };
            put(&ground.repo, "a.txt", "dirty\n");
            put(&ground.repo, "b/c.txt", "c\n");
            put(&ground.repo, "x.log", "log\n");
            put(&ground.repo, ".horseman/runs/x", "never\n");
            let workspace = folder_workspace(&ground, kind);
            let root = workspace.root().to_path_buf();
            assert!(block(workspace.result()).unwrap().is_empty());
            put(&root, "a.txt", "fixed\n");
            put(&root, "y/new.txt", "new\n");
            fs::remove_file(root.join("b/c.txt")).unwrap();
            let change = block(workspace.result()).unwrap();
            let paths: Vec<_> = change.files.iter().map(|f| f.path.as_str()).collect();
            assert_eq!(paths, ["a.txt", "b/c.txt", "y/new.txt"], "{kind:?} git {is_git}");
            let fresh = block(workspace.fresh(&change)).unwrap();
            assert_eq!(read(&fresh.root, "a.txt").as_deref(), Some("fixed\n"));
            assert!(!fresh.root.join("b").exists() && fresh.root.join("y/new.txt").is_file());
            assert!(fresh.root.join("x.log").is_file());
            assert!(!fresh.root.join(".horseman").exists());
            assert_eq!(fresh.root.join(".git").is_dir(), is_git);
            let back = block(workspace.restore(&fresh, &["b".to_owned()], None)).unwrap();
            assert_eq!(back, [PathBuf::from("b/c.txt")]);
            drop(fresh);
            block(workspace.reset()).unwrap();
            assert!(block(workspace.result()).unwrap().is_empty());
            assert_eq!(read(&root, "a.txt").as_deref(), Some("dirty\n"));
            assert!(!root.join("y").exists());
            assert!(ground.repo.join(".horseman/runs/x").is_file());
        }
    }
}
