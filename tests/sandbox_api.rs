//! The sandbox on the real kernel, through the library's API. Our own binary is the inner stage.

#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![expect(clippy::disallowed_methods, reason = "a test reads its environment and the clock")]
#![expect(clippy::panic, reason = "a panic is how a test reports")]

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use horseman::approval::by_operator;
use horseman::policy::Exec;
use horseman::profile::{EnvPolicy, Limits, Network, Profile, SandboxMode};
use horseman::sandbox::{
    Capture, Cause, Confined, Ended, Host, Observed, Output, Place, Sandbox, SandboxError, Stdin,
    end_leftovers, environment,
};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);

/// A host with a home folder of its own, a workspace, and a folder outside.
struct Fixture {
    root: TempDir,
    host: Host,
    place: Place,
}

impl Fixture {
    fn new() -> Self {
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
            },
            root,
        }
    }

    fn outside(&self) -> PathBuf {
        fs::canonicalize(self.root.path()).unwrap().join("outside")
    }

    async fn sandbox(&self, profile: &Profile) -> Sandbox {
        Sandbox::probe(&self.host, profile, &self.place).await.unwrap()
    }

    fn shell(&self, sandbox: &Sandbox, text: &str) -> Confined {
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

    async fn run(&self, sandbox: &Sandbox, text: &str) -> (Ended, String) {
        let (ended, output) =
            self.shell(sandbox, text).finish(Stdin::Null, Capture::default(), LONG).await.unwrap();
        (ended, words(output))
    }
}

fn words(output: Output) -> String {
    assert_eq!(output.omitted, 0);
    String::from_utf8(output.head).unwrap()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn pid_in(path: &Path) -> u32 {
    wait_for("no pid was written", || {
        fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'))
    });
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

#[test]
fn exit_codes_and_signals_are_exact() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        for (text, code, signal) in [
            ("exit 0", Some(0), None),
            ("exit 7", Some(7), None),
            ("exit 255", Some(255), None),
            ("kill -KILL $$", None, Some(9)),
            ("kill -SEGV $$", None, Some(11)),
            ("kill -PIPE $$", None, Some(13)),
        ] {
            let (ended, _) = fixture.run(&sandbox, text).await;
            assert_eq!((ended.exit_code, ended.signal), (code, signal), "{text}");
            assert_eq!((ended.cause, ended.survivors), (Cause::Exited, 0), "{text}");
        }
        assert_eq!(fs::read_dir(&fixture.place.workspace).unwrap().count(), 0, "a core dump");
    });
}

#[test]
fn output_keeps_its_order_and_is_counted() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let text = "for i in 1 2 3; do echo out$i; echo err$i >&2; done";
        let (ended, output) = fixture.run(&sandbox, text).await;
        assert_eq!(output, "out1\nerr1\nout2\nerr2\nout3\nerr3\n");
        assert_eq!(ended.output_bytes, 30);
    });
}

#[test]
fn a_program_that_cannot_run_is_told_from_a_fault() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        for (program, code) in [("/nowhere/x", 127), ("/etc/passwd", 126), ("/usr", 126)] {
            let exec = Exec {
                program: PathBuf::from(program),
                argv: vec![program.to_owned()],
                cwd: fixture.place.workspace.clone(),
                env: BTreeMap::new(),
                shell_text: None,
            };
            let confined = sandbox.confine(by_operator(exec)).unwrap();
            let error = confined.start(Stdin::Null, Capture::default(), None).await.unwrap_err();
            assert_eq!(error.exit_code(), Some(code), "{program}: {error}");
        }
    });
}
