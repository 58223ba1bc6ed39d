//! Workspaces of every kind, from every kind of checkout.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use horseman::plan::{CachePlan, WorkspaceKind};
use horseman::workspace::{Source, Workspace, WorkspaceError};

use crate::support::{Ground, block, git, plan, put, try_git};

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != ".git")
        .collect();
    names.sort();
    names
}

fn clone_of(ground: &Ground, checkout: &Path) -> Workspace {
    let source = ground.source(checkout);
    let mut plan = ground.plan();
    plan.commit = source.head().map(str::to_owned);
    let dir = ground.temp.path().join("other");
    fs::create_dir_all(&dir).unwrap();
    let mut workspace = block(Workspace::prepare(&ground.git, Some(&source), &plan, &dir)).unwrap();
    block(workspace.base()).unwrap();
    workspace
}

#[test]
fn a_clone_has_history_and_nothing_else_of_the_origin() {
    let ground = Ground::new();
    put(&ground.repo, "b.txt", "b\n");
    ground.commit("second");
    git(&ground.repo, &["branch", "old", "HEAD~1"]);
    git(&ground.repo, &["tag", "-a", "v1", "-m", "v1"]);
    git(&ground.repo, &["remote", "add", "origin", "https://example.invalid/x"]);
    git(&ground.repo, &["config", "http.extraheader", "secret"]);
    put(&ground.repo, ".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n");
    fs::set_permissions(
        ground.repo.join(".git/hooks/pre-commit"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    let workspace = ground.workspace();
    let root = workspace.root();
    assert_eq!(git(root, &["log", "--format=%s"]), "second\nfirst");
    assert_eq!(git(root, &["diff", "--name-only", "old...HEAD"]), "b.txt");
    assert_eq!(git(root, &["describe"]), "v1");
    assert_eq!(git(root, &["status", "--porcelain"]), "");
    assert_eq!(git(root, &["remote"]), "");
    assert!(!git(root, &["config", "--list", "--local"]).contains("secret"));
    assert!(!root.join(".git/hooks").exists());
    assert_eq!(git(root, &["count-objects"]), "0 objects, 0 kilobytes");
    put(root, "c.txt", "c\n");
    git(root, &["add", "-A"]);
    let (code, text) = try_git(root, &["commit", "-q", "-m", "inside"]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(git(&ground.repo, &["log", "--format=%s"]), "second\nfirst");
    git(&ground.repo, &["fsck"]);
}

#[test]
fn clones_of_worktrees_shallow_and_detached_checkouts() {
    let ground = Ground::new();
    put(&ground.repo, "b.txt", "b\n");
    ground.commit("second");
    git(&ground.repo, &["worktree", "add", "-q", "--detach", "../linked", "HEAD~1"]);
    let url = format!("file://{}", ground.repo.display());
    git(ground.temp.path(), &["clone", "-q", "--depth", "1", &url, "shallow"]);
    git(ground.temp.path(), &["clone", "-q", "--shared", ground.repo.to_str().unwrap(), "shared"]);
    for (name, log) in [("linked", "first"), ("shallow", "second"), ("shared", "second\nfirst")] {
        let workspace = clone_of(&ground, &ground.temp.path().join(name));
        let root = workspace.root();
        assert_eq!(git(root, &["log", "--format=%s"]), log, "{name}");
        assert_eq!(files(root).contains(&"b.txt".to_owned()), name != "linked");
        let says = workspace.notices().iter().any(|notice| notice.contains("shallow"));
        assert_eq!(says, name == "shallow");
        put(root, "a.txt", "changed\n");
        assert_eq!(block(workspace.result()).unwrap().files.len(), 1);
        drop(workspace);
        fs::remove_dir_all(ground.temp.path().join("other")).unwrap();
    }
}

#[test]
fn a_checkout_of_another_user_works() {
    let ground = Ground::new();
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let owner = nix::unistd::Uid::from_raw(4711);
    for path in [ground.repo.clone(), ground.repo.join(".git")] {
        nix::unistd::chown(&path, Some(owner), None).unwrap();
    }
    let (code, _) = try_git(&ground.repo, &["status"]);
    assert_ne!(code, 0, "git itself refuses here");
    assert!(ground.source(&ground.repo).head().is_some());
}

#[test]
fn a_sparse_clone_has_its_folders_and_keeps_the_rest() {
    let ground = Ground::new();
    put(&ground.repo, "big/x.txt", "x\n");
    ground.commit("big");
    let mut plan = ground.plan();
    plan.sparse = vec!["src".to_owned()];
    let mut workspace = ground.prepare(&plan);
    block(workspace.base()).unwrap();
    let root = workspace.root();
    assert_eq!(files(root), [".gitignore", "a.txt", "src"]);
    let change = block(workspace.result()).unwrap();
    assert!(change.is_empty());
    assert_eq!(change.base_tree, git(&ground.repo, &["rev-parse", "HEAD^{tree}"]));
    put(root, "big/x.txt", "written all the same\n");
    let change = block(workspace.result()).unwrap();
    assert_eq!(
        (change.files[0].kind.as_str(), change.files[0].path.as_str()),
        ("update", "big/x.txt")
    );
    let fresh = block(workspace.fresh(&change)).unwrap();
    assert_eq!(fs::read_to_string(fresh.root.join("big/x.txt")).unwrap(), "written all the same\n");
}

#[test]
fn uncommitted_changes_stay_or_come_along() {
    let ground = Ground::new();
    put(&ground.repo, "a.txt", "dirty\n");
    put(&ground.repo, "new/n.txt", "untracked\n");
    put(&ground.repo, "x.log", "ignored\n");
    fs::remove_file(ground.repo.join("src/lib.rs")).unwrap();
    let workspace = ground.workspace();
    assert_eq!(fs::read_to_string(workspace.root().join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    let said = "3 uncommitted paths: `a.txt`, `src/lib.rs`, `new/n.txt` left out of the workspace";
    assert!(workspace.notices().iter().any(|notice| notice == said), "{:?}", workspace.notices());
    drop(workspace);
    fs::remove_dir_all(ground.temp.path().join("attempt")).unwrap();
    let mut plan = ground.plan();
    plan.carry_dirty = true;
    let mut workspace = ground.prepare(&plan);
    block(workspace.base()).unwrap();
    let root = workspace.root();
    assert_eq!(files(root), [".gitignore", "a.txt", "new", "src"]);
    assert_eq!(fs::read_to_string(root.join("a.txt")).unwrap(), "dirty\n");
    assert!(block(workspace.result()).unwrap().is_empty());
    put(root, "new/n.txt", "edited\n");
    let change = block(workspace.result()).unwrap();
    assert_eq!((change.files[0].kind.as_str(), change.files.len()), ("update", 1));
    let fresh = block(workspace.fresh(&change)).unwrap();
    assert_eq!(fs::read_to_string(fresh.root.join("a.txt")).unwrap(), "dirty\n");
    assert_eq!(fs::read_to_string(fresh.root.join("new/n.txt")).unwrap(), "edited\n");
    drop(fresh);
    drop(workspace);
    plan.commit = Some(git(&ground.repo, &["commit-tree", "HEAD^{tree}", "-m", "x"]));
    let source = ground.source(&ground.repo);
    let dir = ground.temp.path().join("elsewhere");
    let error = block(Workspace::prepare(&ground.git, Some(&source), &plan, &dir)).unwrap_err();
    assert!(matches!(error, WorkspaceError::CarryElsewhere { .. }), "{error}");
}

#[test]
fn a_copy_has_no_way_back_to_the_original() {
    let ground = Ground::new();
    put(&ground.repo, "a.txt", "dirty\n");
    put(&ground.repo, "x.log", "ignored\n");
    git(&ground.repo, &["config", "http.extraheader", "secret"]);
    git(&ground.repo, &["worktree", "add", "-q", "--detach", "../linked"]);
    nix::unistd::mkfifo(&ground.repo.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let linked = ground.temp.path().join("linked");
    for checkout in [ground.repo.clone(), linked] {
        let source = block(Source::open(&ground.git, &checkout)).unwrap().map(std::rc::Rc::new);
        let plan = plan(WorkspaceKind::Copy, None, checkout.clone());
        let dir = ground.temp.path().join("copied");
        let workspace =
            block(Workspace::prepare(&ground.git, source.as_ref(), &plan, &dir)).unwrap();
        let root = workspace.root();
        assert!(root.join(".git").is_dir());
        assert!(!fs::read_to_string(root.join(".git/config")).unwrap().contains("secret"));
        assert_eq!(git(root, &["log", "--format=%s"]), "first");
        if checkout == ground.repo {
            assert_eq!(git(root, &["status", "--porcelain"]), " M a.txt");
            assert!(root.join("x.log").is_file() && !root.join("pipe").exists());
            assert!(workspace.notices().iter().any(|notice| notice.contains("pipe")));
        }
        drop(workspace);
        fs::remove_dir_all(dir).unwrap();
    }
}

#[test]
fn a_folder_of_a_checkout_is_a_workspace_too() {
    let ground = Ground::new();
    put(&ground.repo, "src/kept.log", "tracked although ignored\n");
    git(&ground.repo, &["add", "-f", "src/kept.log"]);
    ground.commit("log");
    for kind in [WorkspaceKind::Copy, WorkspaceKind::InPlace] {
        let mut workspace = ground.prepare(&plan(kind, None, ground.repo.join("src")));
        block(workspace.base()).unwrap();
        put(workspace.root(), "kept.log", "changed\n");
        put(workspace.root(), "other.txt", "new\n");
        let change = block(workspace.result()).unwrap();
        let paths: Vec<_> = change.files.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(paths, ["kept.log", "other.txt"], "{kind:?}");
        block(workspace.reset()).unwrap();
        drop(workspace);
        fs::remove_dir_all(ground.temp.path().join("attempt")).unwrap();
    }
    assert_eq!(git(&ground.repo, &["status", "--porcelain"]), "");
}

#[test]
fn caches_are_private_or_read_where_they_lie() {
    let ground = Ground::new();
    let host = ground.temp.path().join("cache");
    put(&host, "reg/x", "cached\n");
    symlink("reg", host.join("link")).unwrap();
    let cache = |path: &str, is_private_copy| CachePlan {
        path: path.to_owned(),
        from: host.clone(),
        is_private_copy,
    };
    let mut plan = ground.plan();
    plan.caches = vec![cache("deps/cache", true), cache("~/.cache/tool", true), cache("ro", false)];
    let mut workspace = ground.prepare(&plan);
    block(workspace.base()).unwrap();
    let root = workspace.root();
    put(root, "deps/cache/reg/x", "changed\n");
    assert_eq!(fs::read_to_string(host.join("reg/x")).unwrap(), "cached\n");
    assert!(workspace.home().join(".cache/tool/reg/x").is_file());
    assert_eq!(fs::read_link(root.join("ro")).unwrap(), host);
    assert!(workspace.read_extra().contains(&host));
    fs::remove_dir_all(root.join("deps")).unwrap();
    assert!(block(workspace.result()).unwrap().is_empty());
    for (number, bad) in ["../x", "/x", "", ".git/x", "~/../x"].into_iter().enumerate() {
        plan.caches = vec![cache(bad, true)];
        let dir = ground.temp.path().join(format!("bad{number}"));
        let source = ground.source(&ground.repo);
        let error = block(Workspace::prepare(&ground.git, Some(&source), &plan, &dir)).unwrap_err();
        assert!(matches!(error, WorkspaceError::CachePath { .. }), "{bad}: {error}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let ground = Ground::bare();
    let dir = ground.temp.path().join("a");
    let plan = plan(WorkspaceKind::Clone, None, PathBuf::new());
    let error = block(Workspace::prepare(&ground.git, None, &plan, &dir)).unwrap_err();
    assert!(matches!(error, WorkspaceError::NoCheckout), "{error}");
    let other = Ground::new();
    let mut plan = other.plan();
    plan.path = PathBuf::from("nope");
    let source = other.source(&other.repo);
    let error = block(Workspace::prepare(&other.git, Some(&source), &plan, &dir)).unwrap_err();
    assert!(matches!(error, WorkspaceError::NoFolder { .. }), "{error}");
}

#[test]
fn a_kept_workspace_is_moved_out() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    put(workspace.root(), "x", "x");
    let to = ground.temp.path().join("out/tasks/t/workspace");
    workspace.keep(&to).unwrap();
    assert!(to.join("x").is_file());
    assert_eq!(git(&to, &["log", "--format=%s"]), "first");
}

#[test]
#[ignore = "measures; takes a minute"]
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn time_does_not_grow_with_history() {
    for commits in [1_u32, 100_000] {
        let ground = Ground::bare();
        git(&ground.repo, &["init", "-q", "-b", "main"]);
        let mut stream = String::new();
        for number in 1..=commits {
            write!(
                stream,
                "commit refs/heads/main\ncommitter u <u@localhost> {number} +0000\ndata 1\nx\n\
                 M 100644 inline d{}/f{}.txt\ndata <<E\n{number}\nE\n",
                number % 20,
                number % 400
            )
            .unwrap();
        }
        put(ground.temp.path(), "stream", stream);
        let script = format!("git -C '{}' fast-import --quiet < stream", ground.repo.display());
        let status = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(ground.temp.path())
            .status()
            .unwrap();
        assert!(status.success());
        git(&ground.repo, &["checkout", "-q", "-f", "main"]);
        let start = std::time::Instant::now();
        let source = ground.source(&ground.repo);
        let opened = start.elapsed().as_millis();
        let mut workspace = ground.prepare(&ground.plan());
        let prepared = start.elapsed().as_millis();
        block(workspace.base()).unwrap();
        let based = start.elapsed().as_millis();
        put(workspace.root(), "d0/f0.txt", "changed");
        let change = block(workspace.result()).unwrap();
        let done = start.elapsed().as_millis();
        drop(block(workspace.fresh(&change)).unwrap());
        let fresh = start.elapsed().as_millis();
        println!(
            "{commits} commits, ms: open {opened}, prepared {prepared}, base {based}, result \
             {done}, fresh {fresh}"
        );
        assert!(source.head().is_some() && prepared < 10_000);
    }
}
