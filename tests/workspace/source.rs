//! Facts of a checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use horseman::approval::GitOperation;
use horseman::sandbox::Sandbox;
use horseman::workspace::{GitError, GitOptions, Source, WorkspaceError};

use crate::support::{Ground, block, git, host, put};

#[test]
fn a_checkout_says_what_it_is() {
    let ground = Ground::new();
    let head = git(&ground.repo, &["rev-parse", "HEAD"]);
    let source = ground.source(&ground.repo.join("src"));
    assert_eq!(source.root(), ground.repo);
    assert_eq!((source.head(), source.branch()), (Some(head.as_str()), Some("main")));
    assert!(!source.is_shallow() && !source.is_detached() && source.notices().is_empty());
    assert_eq!(block(source.resolve("main")).unwrap(), head);
    let blob = block(source.read_blob(&head, Path::new("src/größe mit blank.txt"))).unwrap();
    assert_eq!(blob.as_deref(), Some(&b"x\n"[..]));
    assert_eq!(block(source.read_blob(&head, Path::new("src"))).unwrap(), None);
    assert_eq!(block(source.read_blob(&head, Path::new("nope"))).unwrap(), None);
    let listed = block(source.list(&head, Some(Path::new("src")))).unwrap();
    assert_eq!(listed.len(), 2);
    assert!(!block(source.uses_lfs(&head)).unwrap());
    assert!(block(source.submodules(&head)).unwrap().is_empty());
    let bare = Ground::bare();
    assert!(block(Source::open(&bare.git, &bare.repo)).unwrap().is_none());
    git(&bare.repo, &["init", "-q"]);
    assert_eq!(bare.source(&bare.repo).head(), None);
    git(bare.temp.path(), &["init", "-q", "--bare", "b.git"]);
    let bare_repo = bare.temp.path().join("b.git");
    assert!(block(Source::open(&bare.git, &bare_repo)).unwrap().is_none());
}

#[test]
fn uncommitted_changes_are_counted_and_named() {
    let ground = Ground::new();
    put(&ground.repo, "a.txt", "changed\n");
    put(&ground.repo, "neu ä.txt", "new\n");
    put(&ground.repo, "x.log", "ignored\n");
    put(&ground.repo, ".horseman/x", "ours\n");
    fs::remove_file(ground.repo.join("src/lib.rs")).unwrap();
    let dirty = block(ground.source(&ground.repo).uncommitted()).unwrap();
    assert_eq!(dirty.changed, [PathBuf::from("a.txt"), PathBuf::from("src/lib.rs")]);
    assert_eq!(dirty.untracked, [PathBuf::from("neu ä.txt")]);
    assert_eq!(dirty.summary(), "3 uncommitted paths: `a.txt`, `src/lib.rs`, `neu ä.txt`");
}

#[test]
fn an_unknown_revision_says_what_helps_and_it_helps() {
    // Szotasz/marveen#1438: the refspec of a tag clone never brings branches, so it is written out.
    let ground = Ground::new();
    put(&ground.repo, "b.txt", "b\n");
    ground.commit("second");
    git(&ground.repo, &["tag", "v1"]);
    let url = format!("file://{}", ground.repo.display());
    git(ground.temp.path(), &["clone", "-q", "--depth", "1", "--branch", "v1", &url, "shallow"]);
    let shallow = ground.temp.path().join("shallow");
    let source = ground.source(&shallow);
    assert!(source.is_shallow() && source.is_detached());
    let error = block(source.resolve("main")).unwrap_err();
    assert!(matches!(error, WorkspaceError::UnknownRevision { .. }));
    let text = error.to_string();
    let command = text.split("`git ").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    assert_eq!(command, "fetch --unshallow origin +refs/heads/main:refs/remotes/origin/main");
    git(&shallow, &command.split(' ').collect::<Vec<_>>());
    assert!(block(source.resolve("origin/main")).is_ok());
    assert!(block(ground.source(&ground.repo).resolve("--all")).is_err());
    assert!(block(ground.source(&ground.repo).resolve("")).is_err());
}

#[test]
fn no_program_of_the_checkout_runs() {
    let ground = Ground::new();
    let canary = ground.temp.path().join("canary");
    let touch = format!("touch '{}'; cat", canary.display());
    for key in ["filter.x.clean", "filter.x.smudge", "core.fsmonitor", "diff.external"] {
        git(&ground.repo, &["config", key, &touch]);
    }
    put(&ground.repo, ".git/info/attributes", "* filter=x\n");
    put(&ground.repo, "a.txt", "one\ntwo\nthreX\n");
    let dirty = block(ground.source(&ground.repo).uncommitted()).unwrap();
    assert_eq!(dirty.changed, [PathBuf::from("a.txt")]);
    let workspace = ground.workspace();
    assert!(workspace.root().join("a.txt").is_file() && !canary.exists());
}

#[test]
fn p2_our_own_git_writes_nowhere_but_where_it_is_told() {
    let ground = Ground::new();
    let sandbox = block(Sandbox::narrow(&host(), &[], "marker")).unwrap();
    if sandbox.enforcement().tier == "none" {
        return;
    }
    let store = |options: GitOptions| {
        let args = ["hash-object", "-w", "--stdin"];
        block(ground.git.run(GitOperation::Snapshot, &args, options.stdin(b"x".to_vec())))
    };
    let error = store(GitOptions::at(&ground.repo)).unwrap_err();
    assert!(matches!(error, GitError::Failed { .. }), "{error}");
    assert_eq!(git(&ground.repo, &["count-objects"]).split(' ').next(), Some("7"));
    store(GitOptions::at(&ground.repo).write(&ground.repo)).unwrap();
    assert_eq!(git(&ground.repo, &["count-objects"]).split(' ').next(), Some("8"));
}

#[test]
fn outputs_are_whole_and_deadlines_hold() {
    let ground = Ground::new();
    let large = "line of a large file\n".repeat(200_000);
    put(&ground.repo, "large.txt", &large);
    let head = ground.commit("large");
    let blob = block(ground.source(&ground.repo).read_blob(&head, Path::new("large.txt")));
    assert_eq!(blob.unwrap().map(|blob| blob.len()), Some(large.len()));
    let mut options = GitOptions::at(&ground.repo);
    options.deadline = Duration::from_millis(200);
    options.config.push(("alias.wait".to_owned(), "!sleep 30".to_owned()));
    let error = block(ground.git.run(GitOperation::Read, &["wait"], options)).unwrap_err();
    assert!(matches!(error, GitError::TimedOut { .. }), "{error}");
}
