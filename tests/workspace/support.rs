//! Temporary repositories and a workspace over them.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use horseman::plan::{Keep, WorkspaceKind, WorkspacePlan};
use horseman::sandbox::Host;
use horseman::workspace::{Git, Source, Workspace};
use tempfile::TempDir;

/// Runs `future` as the runner does: on one thread.
pub(crate) fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Runs git the way a user does, with a neutral identity.
pub(crate) fn git(at: &Path, args: &[&str]) -> String {
    let (code, out) = try_git(at, args);
    assert_eq!(code, 0, "git {args:?}: {out}");
    out.trim_end_matches('\n').to_owned()
}

/// As [`git`], with its exit status.
#[expect(clippy::disallowed_methods, reason = "the tests play the user and the agent")]
pub(crate) fn try_git(at: &Path, args: &[&str]) -> (i32, String) {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=u",
            "-c",
            "user.email=u@localhost",
            "-c",
            "protocol.file.allow=always",
        ])
        .args(args)
        .current_dir(at)
        .env_clear()
        .envs([("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/nonexistent"), ("LC_ALL", "C")])
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
}

/// Writes a file and its folders.
pub(crate) fn put(root: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A checkout and a private folder, gone with the test.
pub(crate) struct Ground {
    pub(crate) temp: TempDir,
    pub(crate) repo: PathBuf,
    pub(crate) git: Rc<Git>,
}

impl Ground {
    /// An empty folder `repo` that isn't a repository.
    pub(crate) fn bare() -> Self {
        let temp = TempDir::new().unwrap();
        let repo = temp.path().join("ré po");
        fs::create_dir(&repo).unwrap();
        let git = runner_git(temp.path());
        Self { temp, repo, git }
    }

    /// A repository with one commit of some ordinary files.
    pub(crate) fn new() -> Self {
        let ground = Self::bare();
        git(&ground.repo, &["init", "-q", "-b", "main"]);
        put(&ground.repo, "a.txt", "one\ntwo\nthree\n");
        put(&ground.repo, "src/lib.rs", "fn main() {}\n");
        put(&ground.repo, "src/größe mit blank.txt", "x\n");
        put(&ground.repo, ".gitignore", "*.log\ntarget/\n");
        ground.commit("first");
        ground
    }

    pub(crate) fn commit(&self, message: &str) -> String {
        git(&self.repo, &["add", "-A"]);
        git(&self.repo, &["commit", "-q", "-m", message]);
        git(&self.repo, &["rev-parse", "HEAD"])
    }

    /// The checkout at `folder`.
    pub(crate) fn source(&self, folder: &Path) -> Rc<Source> {
        Rc::new(block(Source::open(&self.git, folder)).unwrap().unwrap())
    }

    /// A plan of a clone at HEAD.
    pub(crate) fn plan(&self) -> WorkspacePlan {
        let (code, head) = try_git(&self.repo, &["rev-parse", "HEAD"]);
        plan(WorkspaceKind::Clone, (code == 0).then(|| head.trim().to_owned()), PathBuf::new())
    }

    /// The workspace of `plan`, base not taken.
    pub(crate) fn prepare(&self, plan: &WorkspacePlan) -> Workspace {
        let source = block(Source::open(&self.git, &self.repo)).unwrap().map(Rc::new);
        let dir = self.temp.path().join("attempt");
        fs::create_dir_all(&dir).unwrap();
        block(Workspace::prepare(&self.git, source.as_ref(), plan, &dir)).unwrap()
    }

    /// A clone at HEAD with its base.
    pub(crate) fn workspace(&self) -> Workspace {
        let mut workspace = self.prepare(&self.plan());
        block(workspace.base()).unwrap();
        workspace
    }
}

pub(crate) fn runner_git(temp: &Path) -> Rc<Git> {
    let scratch = temp.join("scratch");
    fs::create_dir_all(&scratch).unwrap();
    Rc::new(Git::new(&host(), &scratch, "marker").unwrap())
}

pub(crate) fn plan(kind: WorkspaceKind, commit: Option<String>, path: PathBuf) -> WorkspacePlan {
    WorkspacePlan {
        kind,
        commit,
        path,
        sparse: Vec::new(),
        setup: Vec::new(),
        caches: Vec::new(),
        keep: Keep::Never,
        carry_dirty: false,
    }
}

pub(crate) fn host() -> Host {
    Host {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_horseman")),
        home: None,
        env: BTreeMap::from([("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned())]),
        uid: nix::unistd::geteuid().as_raw(),
    }
}
