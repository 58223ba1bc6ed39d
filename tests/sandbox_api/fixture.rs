//! A host with a home folder of its own, a workspace, and a folder outside.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use horseman::approval::by_operator;
use horseman::policy::Exec;
use horseman::profile::{EnvPolicy, Profile, Tier};
use horseman::sandbox::{
    Capture, Confined, Ended, Host, Output, Place, Sandbox, Stdin, environment,
};
use tempfile::TempDir;

pub(crate) const LONG: Duration = Duration::from_mins(1);

/// A host with a home folder of its own, a workspace, and a folder outside.
pub(crate) struct Fixture {
    root: TempDir,
    pub(crate) host: Host,
    pub(crate) place: Place,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = fs::canonicalize(root.path()).unwrap().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let user = at("user");
        fs::create_dir_all(user.join(".ssh")).unwrap();
        fs::write(user.join(".ssh/id_rsa"), "PRIVATE").unwrap();
        fs::write(user.join(".bashrc"), "readable").unwrap();
        fs::write(at("outside").join("target.txt"), "before").unwrap();
        let state = at("state");
        let mut variables: BTreeMap<String, String> =
            [("PATH".to_owned(), env::var("PATH").unwrap())].into();
        variables.insert("PROVIDER_KEY".to_owned(), "sk-1".to_owned());
        Self {
            host: Host {
                binary: PathBuf::from(env!("CARGO_BIN_EXE_horseman")),
                home: Some(user),
                env: variables,
                uid: nix::unistd::geteuid().as_raw(),
            },
            place: Place {
                workspace: at("ws"),
                home: at("state/home"),
                tmp: at("state/tmp"),
                read_extra: Vec::new(),
                write_extra: Vec::new(),
                marker: state.display().to_string(),
                is_disposable: true,
                ..Place::default()
            },
            root,
        }
    }

    pub(crate) fn outside(&self) -> PathBuf {
        fs::canonicalize(self.root.path()).unwrap().join("outside")
    }

    /// A sandbox of the tier `landlock`, unless the profile names another.
    pub(crate) async fn sandbox(&self, profile: &Profile) -> Sandbox {
        let tier = if profile.tier == Tier::Auto { Tier::Landlock } else { profile.tier };
        let profile = Profile { tier, ..profile.clone() };
        Sandbox::probe(&self.host, &profile, &self.place).await.unwrap()
    }

    pub(crate) fn shell(&self, sandbox: &Sandbox, text: &str) -> Confined {
        let keys = ["PROVIDER_KEY".to_owned()];
        let exec = Exec {
            program: PathBuf::from("/bin/bash"),
            argv: ["bash", "-c", text].map(str::to_owned).into(),
            cwd: self.place.workspace.clone(),
            env: environment(&EnvPolicy::default(), &self.host, &self.place, &keys),
            shell_text: Some(text.to_owned()),
        };
        sandbox.confine(by_operator(exec)).unwrap()
    }

    pub(crate) async fn run(&self, sandbox: &Sandbox, text: &str) -> (Ended, String) {
        let (ended, output) =
            self.shell(sandbox, text).finish(Stdin::Null, Capture::default(), LONG).await.unwrap();
        (ended, words(output))
    }
}

pub(crate) fn words(output: Output) -> String {
    assert_eq!(output.omitted, 0);
    String::from_utf8(output.head).unwrap()
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn pid_in(path: &Path) -> u32 {
    wait_for("no pid was written", || {
        fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'))
    });
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}
