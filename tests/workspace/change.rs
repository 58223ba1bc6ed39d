//! The patch has everything the agent did, whatever it did with git.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use horseman::workspace::{Change, Workspace};

use crate::support::{Ground, block, git, put, try_git};

fn result(workspace: &Workspace) -> Change {
    block(workspace.result()).unwrap()
}

fn kinds(change: &Change) -> Vec<String> {
    change
        .files
        .iter()
        .map(|f| match &f.to {
            Some(to) => format!("{} {} -> {to}", f.kind, f.path),
            None => format!("{} {}", f.kind, f.path),
        })
        .collect()
}

/// Applies the patch on a clean checkout of the base and compares the trees.
fn assert_applies(ground: &Ground, change: &Change) {
    let check = ground.temp.path().join("check");
    git(ground.temp.path(), &["clone", "-q", ground.repo.to_str().unwrap(), "check"]);
    let patch = ground.temp.path().join("patch.diff");
    fs::write(&patch, &change.patch).unwrap();
    git(&check, &["apply", "--check", "--index", patch.to_str().unwrap()]);
    git(&check, &["apply", "--index", patch.to_str().unwrap()]);
    assert_eq!(git(&check, &["write-tree"]), change.result_tree);
    fs::remove_dir_all(check).unwrap();
}

#[test]
fn nothing_done_is_an_empty_patch_on_the_commits_own_tree() {
    let ground = Ground::new();
    let change = result(&ground.workspace());
    assert!(change.is_empty() && change.files.is_empty(), "{change:?}");
    assert_eq!(change.base_tree, git(&ground.repo, &["rev-parse", "HEAD^{tree}"]));
    assert_eq!(change.result_tree, change.base_tree);
}

#[test]
fn every_kind_of_change_is_in_the_patch_and_applies() {
    let ground = Ground::new();
    put(&ground.repo, "data.bin", [0, 1, 2, 255]);
    put(&ground.repo, "run.sh", "#!/bin/sh\n");
    put(&ground.repo, "long.txt", "line\n".repeat(50));
    ground.commit("more");
    let workspace = ground.workspace();
    let root = workspace.root();
    put(root, "a.txt", "one\r\n2\nthree");
    put(root, "neu/ä b.txt", "new\n");
    put(root, "logo.png", (0..2048u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>());
    put(root, "ignored.log", "never\n");
    put(root, "target/x", "never\n");
    put(root, "line\nbreak \\ \"quote\".txt", "odd\n");
    fs::remove_file(root.join("data.bin")).unwrap();
    fs::rename(root.join("long.txt"), root.join("moved.txt")).unwrap();
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a.txt", root.join("link")).unwrap();
    let change = result(&workspace);
    assert_eq!(
        kinds(&change),
        [
            "update a.txt",
            "delete data.bin",
            "add line\nbreak \\ \"quote\".txt",
            "add link",
            "add logo.png",
            "move long.txt -> moved.txt",
            "add neu/ä b.txt",
            "update run.sh",
        ]
    );
    assert!(change.notices.is_empty(), "{:?}", change.notices);
    assert_applies(&ground, &change);
}

#[test]
fn commits_stashes_and_a_lost_repository_lose_no_work() {
    // Hmbown/Codewhale#2486, coder/xum#3765
    let ground = Ground::new();
    let workspace = ground.workspace();
    let root = workspace.root();
    put(root, "a.txt", "committed\n");
    git(root, &["checkout", "-q", "-b", "work"]);
    git(root, &["commit", "-q", "-am", "work"]);
    put(root, "stashed.txt", "in a stash alone, so not in the tree\n");
    git(root, &["stash", "push", "-q", "-u"]);
    put(root, "b.txt", "staged\n");
    git(root, &["add", "b.txt"]);
    put(root, "c.txt", "untracked\n");
    let before = result(&workspace);
    assert_eq!(kinds(&before), ["update a.txt", "add b.txt", "add c.txt"]);
    fs::remove_dir_all(root.join(".git")).unwrap();
    assert_eq!(result(&workspace), before);
    assert_applies(&ground, &before);
}

#[test]
fn repositories_made_inside_hide_no_files() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    let root = workspace.root();
    for folder in ["vendor/lib", "src"] {
        put(root, &format!("{folder}/new.rs"), "new\n");
        put(root, &format!("{folder}/x.log"), "ignored from above\n");
        git(&root.join(folder), &["init", "-q"]);
        git(&root.join(folder), &["add", "-A"]);
        git(&root.join(folder), &["commit", "-q", "-m", "inner"]);
    }
    put(root, "vendor/lib/.gitignore", "own\n");
    put(root, "vendor/lib/own", "ignored inside\n");
    put(root, "vendor/lib/deep/repo/y.rs", "deep\n");
    git(&root.join("vendor/lib/deep/repo"), &["init", "-q"]);
    git(&root.join("vendor/lib/deep/repo"), &["add", "-A"]);
    git(&root.join("vendor/lib/deep/repo"), &["commit", "-q", "-m", "deep"]);
    let change = result(&workspace);
    assert_eq!(
        kinds(&change),
        [
            "add src/new.rs",
            "add vendor/lib/.gitignore",
            "add vendor/lib/deep/repo/y.rs",
            "add vendor/lib/new.rs"
        ]
    );
    assert!(change.notices.iter().any(|n| n.contains("`vendor/lib`")), "{:?}", change.notices);
    assert_applies(&ground, &change);
}

#[test]
fn files_become_folders_and_links_and_back() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    let root = workspace.root();
    fs::remove_dir_all(root.join("src")).unwrap();
    fs::create_dir(root.join("other")).unwrap();
    put(root, "other/lib.rs", "fn other() {}\n");
    symlink("other", root.join("src")).unwrap();
    fs::remove_file(root.join("a.txt")).unwrap();
    put(root, "a.txt/inner", "now a folder\n");
    let change = result(&workspace);
    assert_eq!(
        kinds(&change),
        [
            "delete a.txt",
            "add a.txt/inner",
            "add other/lib.rs",
            "add src",
            "delete src/größe mit blank.txt",
            "delete src/lib.rs"
        ]
    );
    assert_applies(&ground, &change);
}

#[test]
fn no_configuration_or_attribute_of_the_workspace_changes_the_patch() {
    let ground = Ground::new();
    put(&ground.repo, "w.bat", "echo\r\n");
    ground.commit("bat");
    let workspace = ground.workspace();
    let root = workspace.root();
    let canary = ground.temp.path().join("canary");
    let touch = format!("touch {}", canary.display());
    for (key, value) in [
        ("diff.noprefix", "true"),
        ("diff.external", &touch),
        ("diff.x.textconv", &touch),
        ("filter.x.clean", &touch),
        ("filter.x.smudge", &touch),
        ("core.fsmonitor", &touch),
        ("core.autocrlf", "true"),
        ("color.ui", "always"),
        ("core.hooksPath", "/tmp"),
    ] {
        git(root, &["config", key, value]);
    }
    put(root, ".gitattributes", "* text=auto eol=crlf filter=x diff=x ident\n*.txt -diff\n");
    put(root, "a.txt", "one\n$Id$\r\nthree\n");
    put(root, "w.bat", "echo 2\r\n");
    let change = result(&workspace);
    let text = String::from_utf8_lossy(&change.patch).into_owned();
    assert!(text.contains("--- a/a.txt\n+++ b/a.txt\n"), "{text}");
    assert!(text.contains("+$Id$\r\n"), "{text}");
    assert!(text.contains("-echo\r\n+echo 2\r\n"), "{text}");
    assert!(!canary.exists());
}

#[test]
fn what_setup_made_stays_out_while_it_is_the_same() {
    let ground = Ground::new();
    let mut workspace = ground.prepare(&ground.plan());
    let root = workspace.root().to_path_buf();
    put(&root, "built/same", "same\n");
    put(&root, "built/changed", "before\n");
    put(&root, "a.txt", "rewritten by setup\n");
    block(workspace.base()).unwrap();
    put(&root, "from-check", "same\n");
    block(workspace.note_untracked()).unwrap();
    assert!(result(&workspace).is_empty());
    put(&root, "built/changed", "after\n");
    put(&root, "a.txt", "rewritten by setup\nand the agent\n");
    let change = result(&workspace);
    assert_eq!(kinds(&change), ["update a.txt", "add built/changed"]);
}

#[test]
fn what_cannot_be_read_is_opened_and_what_git_cannot_hold_is_named() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    let root = workspace.root();
    put(root, "locked/secret", "s\n");
    put(root, "odd/.GIT/config", "c\n");
    put(root, "a\\b", "backslash\n");
    fs::set_permissions(root.join("locked/secret"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(root.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    let change = result(&workspace);
    assert_eq!(kinds(&change), ["add a\\b", "add locked/secret"]);
    assert!(change.notices.iter().any(|n| n.contains("`odd/.GIT/config`")), "{:?}", change.notices);
}

#[test]
fn a_submodules_changes_are_a_patch_of_its_own() {
    // SWE-agent/mini-swe-agent#736
    let ground = Ground::new();
    let inner = ground.temp.path().join("inner");
    fs::create_dir(&inner).unwrap();
    git(&inner, &["init", "-q"]);
    put(&inner, "f.txt", "inner\n");
    git(&inner, &["add", "-A"]);
    git(&inner, &["commit", "-q", "-m", "inner"]);
    git(&ground.repo, &["submodule", "--quiet", "add", inner.to_str().unwrap(), "libs/s"]);
    ground.commit("submodule");
    let workspace = ground.workspace();
    assert!(workspace.notices().is_empty(), "{:?}", workspace.notices());
    let root = workspace.root();
    assert_eq!(fs::read_to_string(root.join("libs/s/f.txt")).unwrap(), "inner\n");
    put(root, "libs/s/f.txt", "changed\n");
    put(root, "libs/s/new.txt", "new\n");
    git(&root.join("libs/s"), &["commit", "-q", "-am", "inside"]);
    let change = result(&workspace);
    assert_eq!(kinds(&change), ["update libs/s/f.txt", "add libs/s/new.txt"]);
    assert!(change.patch.is_empty() && !change.is_empty());
    let [module] = &change.submodules[..] else { panic!("{change:?}") };
    assert_eq!(module.path, Path::new("libs/s"));
    assert_eq!(module.commit, git(&inner, &["rev-parse", "HEAD"]));
    let fresh = block(workspace.fresh(&change)).unwrap();
    assert_eq!(fs::read_to_string(fresh.root.join("libs/s/f.txt")).unwrap(), "changed\n");
    assert_eq!(fs::read_to_string(fresh.root.join("libs/s/new.txt")).unwrap(), "new\n");
}

#[test]
fn lfs_contents_are_there_and_pointers_are_in_the_patch() {
    // git-lfs/git-lfs#2938
    let ground = Ground::new();
    let content = "large\n".repeat(1000);
    let oid = horseman::text::sha256(content.as_bytes());
    let pointer = format!(
        "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {}\n",
        content.len()
    );
    put(&ground.repo, ".gitattributes", "*.dat filter=lfs diff=lfs merge=lfs -text\n");
    put(&ground.repo, "b.dat", &pointer);
    put(&ground.repo, "same.dat", &pointer);
    put(&ground.repo, "lost.dat", pointer.replace(&oid[..4], "0000"));
    ground.commit("lfs");
    let store = format!(".git/lfs/objects/{}/{}/{oid}", &oid[..2], &oid[2..4]);
    put(&ground.repo, &store, &content);
    let workspace = ground.workspace();
    let root = workspace.root();
    assert_eq!(fs::read_to_string(root.join("b.dat")).unwrap(), content);
    assert!(
        workspace.notices().iter().any(|n| n.contains("`lost.dat`")),
        "{:?}",
        workspace.notices()
    );
    assert!(result(&workspace).is_empty());
    assert_eq!(result(&workspace).base_tree, git(&ground.repo, &["rev-parse", "HEAD^{tree}"]));
    put(root, "b.dat", "edited\n");
    let change = result(&workspace);
    assert_eq!(kinds(&change), ["update b.dat"]);
    assert!(String::from_utf8_lossy(&change.patch).contains("+oid sha256:"));
    assert_eq!(fs::read_to_string(&change.lfs[0].content).unwrap(), "edited\n");
    let fresh = block(workspace.fresh(&change)).unwrap();
    assert_eq!(fs::read_to_string(fresh.root.join("b.dat")).unwrap(), "edited\n");
    assert_eq!(fs::read_to_string(fresh.root.join("same.dat")).unwrap(), content);
}

#[test]
fn artifacts_are_copied_and_links_are_not() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    let root = workspace.root();
    put(root, "target/report/a.xml", "<a/>");
    put(root, "x.log", "log");
    symlink("/etc/passwd", root.join("target/report/passwd.xml")).unwrap();
    let to = ground.temp.path().join("artifacts");
    let kept = workspace.artifacts(&["target/report".to_owned(), "*.log".to_owned()], &to).unwrap();
    let paths: Vec<_> = kept.iter().map(|kept| kept.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["target/report/a.xml", "x.log"]);
    assert_eq!(fs::read_to_string(to.join("target/report/a.xml")).unwrap(), "<a/>");
    assert!(result(&workspace).is_empty());
}

#[test]
fn the_patch_is_the_one_that_git_takes_without_an_index_too() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    put(workspace.root(), "a.txt", "one\ntwo\nthree\nfour\n");
    let change = result(&workspace);
    let patch = ground.temp.path().join("p.diff");
    fs::write(&patch, &change.patch).unwrap();
    let (code, text) = try_git(&ground.repo, &["apply", "--check", patch.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(change.sha256, horseman::text::sha256(&change.patch));
}

#[test]
fn a_change_of_the_same_length_right_after_the_base_is_seen() {
    let ground = Ground::new();
    for round in 0..10 {
        let workspace = ground.workspace();
        put(workspace.root(), "a.txt", "one\nTWO\nthree\n");
        assert_eq!(kinds(&result(&workspace)), ["update a.txt"], "round {round}");
        drop(workspace);
        fs::remove_dir_all(ground.temp.path().join("attempt")).unwrap();
    }
}

#[test]
fn a_pipe_in_place_of_a_rule_file_does_not_stop_the_snapshot() {
    let ground = Ground::new();
    let workspace = ground.workspace();
    let root = workspace.root();
    fs::remove_file(root.join(".gitignore")).unwrap();
    for path in [".gitignore", ".gitattributes", "src/.gitignore", "pipe"] {
        nix::unistd::mkfifo(&root.join(path), nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    put(root, "new.log", "no longer ignored\n");
    assert_eq!(kinds(&result(&workspace)), ["delete .gitignore", "add new.log"]);
}
