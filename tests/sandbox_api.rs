//! The sandbox on the real kernel, through the library's API. Our own binary is the inner stage.

#![expect(clippy::unwrap_used, reason = "a panic is how a test reports")]
#![expect(clippy::disallowed_methods, reason = "a test reads its environment and the clock")]

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

const LONG: Duration = Duration::from_mins(1);

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

#[test]
fn what_is_outside_stays_as_it_is() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let out = fixture.outside().display().to_string();
        let user = fixture.host.home.clone().unwrap().display().to_string();
        for text in [
            format!("echo x > {out}/target.txt"),
            format!("echo x > {out}/new"),
            format!("echo x > /proc/self/root{out}/new"),
            format!("ln -s {out} l && echo x > l/new"),
            format!("rm {out}/target.txt"),
            format!("mv {out}/target.txt ."),
            format!("truncate -s 0 {out}/target.txt"),
            format!("mkdir {out}/d"),
            format!("ln {out}/target.txt hard"),
            format!("cat {user}/.ssh/id_rsa"),
            format!("ls {user}/.ssh"),
            format!("cd {user}/.ssh && cat id_rsa"),
            format!("ln -s {user}/.ssh/id_rsa k && cat k"),
            "echo x > /tmp/horseman-probe".to_owned(),
            "echo x > /dev/shm/horseman-probe".to_owned(),
            "echo 1 > /proc/sys/vm/overcommit_memory".to_owned(),
            "cat /proc/$PPID/environ".to_owned(),
            "mknod dev c 1 3".to_owned(),
            "cp /bin/true t && chmod u+s t".to_owned(),
            "mkdir -m 2755 d".to_owned(),
            "unshare -U true".to_owned(),
            "mount -t tmpfs none .".to_owned(),
        ] {
            let (ended, output) = fixture.run(&sandbox, &text).await;
            assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
            assert!(!output.contains("PRIVATE"), "{text}: {output}");
        }
        assert_eq!(fs::read_to_string(format!("{out}/target.txt")).unwrap(), "before");
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    });
}

#[test]
fn ordinary_work_goes_on() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let user = fixture.host.home.clone().unwrap().display().to_string();
        for text in [
            "echo x > a && mv a b && mkdir -p d/e && mv b d/e && rm -r d".to_owned(),
            "echo x > $HOME/f && mktemp && ls ~".to_owned(),
            "echo x > /dev/null && head -c1 /dev/urandom | wc -c && echo x > /dev/stderr"
                .to_owned(),
            "echo a | cat | grep a && cat <(echo b)".to_owned(),
            format!("cat {user}/.bashrc"),
            "python3 -c 'import socket; a, b = socket.socketpair(); a.send(b\"x\"); b.recv(1)'"
                .to_owned(),
            "python3 -c 'import asyncio; asyncio.run(asyncio.sleep(0))'".to_owned(),
            "python3 -c 'import threading; threading.Thread(target=print).start()'".to_owned(),
            "git init -q r && cd r && git config user.email a@b && git config user.name n && \
             echo x > f && git add f && git commit -qm m && git log --oneline"
                .to_owned(),
            "mkfifo p && (echo x > p & cat p)".to_owned(),
            "cp /bin/true t && chmod 755 t && ./t".to_owned(),
            "sleep 30 & kill %1; wait; true".to_owned(),
        ] {
            let (ended, output) = fixture.run(&sandbox, &text).await;
            assert_eq!(ended.exit_code, Some(0), "{text}: {output}");
        }
    });
}

#[test]
fn read_only_leaves_the_workspace_alone() {
    block_on(async {
        let fixture = Fixture::new();
        let profile = Profile { mode: SandboxMode::ReadOnly, ..Profile::default() };
        let sandbox = fixture.sandbox(&profile).await;
        fs::write(fixture.place.workspace.join("f"), "f").unwrap();
        let (ended, _) = fixture.run(&sandbox, "echo x > f").await;
        assert_ne!(ended.exit_code, Some(0));
        let (ended, output) = fixture.run(&sandbox, "cat f && echo x > $(mktemp)").await;
        assert_eq!((ended.exit_code, output.as_str()), (Some(0), "f"));
    });
}

#[test]
fn no_network_is_no_socket_but_unix_ones() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let make = |kind: &str| format!("python3 -c 'import socket as s; s.socket({kind})'");
        let tcp = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        let udp = format!("exec 3<>/dev/udp/127.0.0.1/{port}");
        let mptcp = make("s.AF_INET, s.SOCK_STREAM, 262");
        let netlink = make("s.AF_NETLINK, s.SOCK_RAW, 0");
        let vsock = make("s.AF_VSOCK, s.SOCK_STREAM");
        let packet = make("s.AF_PACKET, s.SOCK_RAW");
        for text in [&tcp, &udp, &mptcp, &netlink, &vsock, &packet] {
            let (ended, output) = fixture.run(&sandbox, text).await;
            assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
        }
        let open = sandbox.with_network(Network::Full);
        for text in [&tcp, &udp, &netlink] {
            let (ended, output) = fixture.run(&open, text).await;
            assert_eq!(ended.exit_code, Some(0), "{text}: {output}");
        }
        for text in [&vsock, &packet] {
            let (ended, output) = fixture.run(&open, text).await;
            assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
        }
    });
}

#[test]
fn other_processes_are_out_of_reach() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let me = std::process::id();
        for text in [
            format!("kill -0 {me}"),
            "kill -0 $PPID".to_owned(),
            format!("cat /proc/{me}/environ"),
            format!("readlink /proc/{me}/fd/1"),
            format!("echo x > /proc/{me}/root/x"),
            format!("prlimit --pid {me} --nofile=100"),
            format!("renice 5 {me}"),
            format!(
                "python3 -c 'import ctypes, sys; l = ctypes.CDLL(None); \
                 sys.exit(0 if l.ptrace(16, {me}, 0, 0) == 0 else 1)'"
            ),
        ] {
            let (ended, output) = fixture.run(&sandbox, &text).await;
            assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
        }
    });
}

#[test]
fn nothing_of_the_runner_is_inherited() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        // Without FD_CLOEXEC, as a careless library leaves it.
        let careless = fs::File::open("/etc/passwd").unwrap();
        nix::fcntl::fcntl(&careless, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))
            .unwrap();
        let (_, output) = fixture.run(&sandbox, "ls -l /proc/self/fd | grep -c ' -> /etc'").await;
        assert_eq!(output, "0\n");
        // The fourth is the listing's own.
        let list = "python3 -c 'import os; print(*sorted(os.listdir(\"/proc/self/fd\")))'";
        let (_, output) = fixture.run(&sandbox, list).await;
        assert_eq!(output, "0 1 2 3\n");
        let (_, output) = fixture.run(&sandbox, "env").await;
        assert!(!output.contains("sk-1"), "{output}");
        let (_, output) = fixture
            .run(&sandbox, "grep -E 'Sig(Ign|Blk)|NoNew|Cap(Eff|Prm|Bnd)' /proc/self/status")
            .await;
        for line in ["SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(output.contains(line), "{output}");
        }
        assert!(!output.contains("CapEff:\t00000000000000f"), "{output}");
    });
}

#[test]
fn a_background_child_does_not_hold_the_call() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let confined = fixture.shell(&sandbox, "sleep 600 & echo $! > pid; echo ok");
        let mut running = confined.start(Stdin::Null, Capture::default(), None).await.unwrap();
        let start = Instant::now();
        let Observed::Ended(ended) = running.wait(LONG).await.unwrap() else { panic!("runs") };
        assert!(start.elapsed() < Duration::from_secs(2));
        assert_eq!((ended.exit_code, ended.survivors), (Some(0), 1));
        assert_eq!(words(running.take_output()), "ok\n");
        let pid = pid_in(&fixture.place.workspace.join("pid"));
        assert!(is_alive(pid), "background children survive the call");
        assert_eq!(running.survivors().await, 1);
        running.stop().await.unwrap();
        assert!(!is_alive(pid));
        assert_eq!(running.survivors().await, 0);
    });
}

#[test]
fn late_output_of_a_helper_process_is_kept() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let text = "exec > >(tee -a log) 2>&1; echo done";
        let (ended, output) = fixture.run(&sandbox, text).await;
        assert_eq!((ended.exit_code, output.as_str()), (Some(0), "done\n"));
    });
}

#[test]
fn the_deadline_kills_what_left_its_session() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let text = "setsid bash -c 'trap \"\" TERM HUP; echo $BASHPID > pid; \
                    while :; do sleep 1; done' & sleep 600";
        let confined = fixture.shell(&sandbox, text);
        let deadline = Duration::from_millis(700);
        let start = Instant::now();
        let (ended, _) = confined.finish(Stdin::Null, Capture::default(), deadline).await.unwrap();
        assert_eq!(ended.cause, Cause::TimedOut);
        assert!(ended.exit_code != Some(0) && start.elapsed() < Duration::from_secs(5));
        assert!(!is_alive(pid_in(&fixture.place.workspace.join("pid"))));
    });
}

#[test]
fn the_deadline_holds_when_nobody_waits() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let confined = fixture.shell(&sandbox, "exec sleep 600");
        let deadline = Some(Duration::from_millis(100));
        let mut running = confined.start(Stdin::Null, Capture::default(), deadline).await.unwrap();
        let pid = running.pid();
        wait_for("it lives", || !is_alive(pid));
        let Observed::Ended(ended) = running.wait(LONG).await.unwrap() else { panic!("runs") };
        assert_eq!(ended.cause, Cause::TimedOut);
    });
}

#[test]
fn dropping_kills() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let confined = fixture.shell(&sandbox, "setsid sleep 600 & echo $! > pid; sleep 600");
        let running = confined.start(Stdin::Null, Capture::default(), None).await.unwrap();
        let child = pid_in(&fixture.place.workspace.join("pid"));
        let pid = running.pid();
        drop(running);
        assert!(!is_alive(pid) && !is_alive(child));
    });
}

#[test]
fn stdin_is_null_bytes_or_open() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let (ended, output) = fixture.run(&sandbox, "cat; echo end").await;
        assert_eq!((ended.exit_code, output.as_str()), (Some(0), "end\n"));

        let many = vec![b'x'; 300_000];
        let confined = fixture.shell(&sandbox, "wc -c");
        let (_, output) =
            confined.finish(Stdin::Bytes(many), Capture::default(), LONG).await.unwrap();
        assert_eq!(words(output).trim(), "300000");

        let confined = fixture.shell(&sandbox, "cat");
        let mut running = confined.start(Stdin::Open, Capture::default(), None).await.unwrap();
        let wait = running.wait(Duration::from_millis(50)).await.unwrap();
        assert_eq!(wait, Observed::StillRunning);
        running.close_stdin();
        let Observed::Ended(ended) = running.wait(LONG).await.unwrap() else { panic!("runs") };
        assert_eq!(ended.exit_code, Some(0));
    });
}

#[test]
fn an_interrupt_reaches_the_group() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let text = "trap 'echo caught; exit 3' INT; echo x > ready; while :; do sleep 0.05; done";
        let confined = fixture.shell(&sandbox, text);
        let mut running = confined.start(Stdin::Null, Capture::default(), None).await.unwrap();
        wait_for("not ready", || fixture.place.workspace.join("ready").exists());
        running.interrupt();
        let Observed::Ended(ended) = running.wait(LONG).await.unwrap() else { panic!("runs") };
        assert_eq!(ended.exit_code, Some(3));
        assert_eq!(words(running.take_output()), "caught\n");
    });
}

#[test]
fn endless_output_takes_bounded_memory() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let log = fixture.outside().join("log");
        let capture = Capture { window: 4096, log: Some(log.clone()), log_cap: 10_000 };
        let before = memory();
        let confined = fixture.shell(&sandbox, "yes");
        let deadline = Duration::from_millis(500);
        let (ended, output) = confined.finish(Stdin::Null, capture, deadline).await.unwrap();
        assert_eq!(ended.cause, Cause::TimedOut);
        assert_eq!((output.head.len(), output.tail.len()), (4096, 4096));
        assert!(ended.output_bytes > 1_000_000, "{}", ended.output_bytes);
        assert_eq!(output.omitted + 8192, ended.output_bytes);
        assert!(output.omitted_lines.abs_diff(output.omitted / 2) <= 1);
        assert!(memory() < before + (64 << 20));
        wait_for("the log says nothing", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("bytes more were not kept"))
        });
        assert!(fs::metadata(&log).unwrap().len() < 10_100);
    });
}

fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn processes_that_respawn_themselves_are_killed() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let script = "#!/bin/bash\n\
            trap '' TERM INT HUP\n\
            if [ \"$1\" -gt 0 ]; then setsid \"$0\" $(($1 - 1)) & setsid \"$0\" $(($1 - 1)) & fi\n\
            while :; do sleep 0.01; done\n";
        let path = fixture.place.workspace.join("respawn");
        fs::write(&path, script).unwrap();
        let confined =
            fixture.shell(&sandbox, "chmod +x respawn; setsid ./respawn 5 & sleep 1.5; echo ok");
        let (ended, output) = confined.finish(Stdin::Null, Capture::default(), LONG).await.unwrap();
        assert_eq!(words(output), "ok\n");
        assert!(ended.survivors > 10, "{}", ended.survivors);
        assert_eq!(end_leftovers(Path::new(&fixture.place.marker)), 0);
    });
}

#[test]
fn leftovers_are_found_by_mark_and_by_place() {
    let fixture = Fixture::new();
    let marker = fixture.place.marker.clone();
    let mut marked = std::process::Command::new("sleep")
        .arg("600")
        .env("HORSEMAN_STATE", &marker)
        .spawn()
        .unwrap();
    let mut placed = std::process::Command::new("sleep")
        .arg("600")
        .env_remove("HORSEMAN_STATE")
        .current_dir(&fixture.place.home)
        .spawn()
        .unwrap();
    let mut other = std::process::Command::new("sleep")
        .arg("600")
        .env("HORSEMAN_STATE", format!("{marker}2"))
        .spawn()
        .unwrap();
    // A spawned process shows its own environment only after exec, which `spawn` has waited for.
    assert_eq!(end_leftovers(Path::new(&marker)), 2);
    assert!(marked.wait().unwrap().code().is_none() && placed.wait().unwrap().code().is_none());
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Not a test of its own: the runner that `p9_killing_the_runner_leaves_nothing` kills.
#[test]
#[ignore = "started by another test"]
fn runner_that_is_killed() {
    let Ok(folder) = env::var("HORSEMAN_TEST_FOLDER") else { return };
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        fs::write(
            Path::new(&folder).join("ws"),
            format!("{}\n", fixture.place.workspace.display()),
        )
        .unwrap();
        let text = "setsid bash -c 'trap \"\" TERM; echo $BASHPID > deep; sleep 600' & \
                    echo $$ > main; sleep 600";
        let confined = fixture.shell(&sandbox, text);
        let mut running = confined.start(Stdin::Null, Capture::default(), None).await.unwrap();
        running.wait(LONG).await.unwrap();
    });
}

#[test]
fn p9_killing_the_runner_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut runner = std::process::Command::new(env::current_exe().unwrap())
        .args(["--exact", "runner_that_is_killed", "--ignored"])
        .env("HORSEMAN_TEST_FOLDER", folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_for("no workspace", || {
        fs::read_to_string(folder.path().join("ws")).is_ok_and(|text| text.ends_with('\n'))
    });
    let text = fs::read_to_string(folder.path().join("ws")).unwrap();
    let workspace = Path::new(text.trim());
    let pids = [pid_in(&workspace.join("main")), pid_in(&workspace.join("deep"))];
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    runner.kill().unwrap();
    runner.wait().unwrap();
    wait_for("a process outlived its runner", || !pids.iter().any(|pid| is_alive(*pid)));
    fs::remove_dir_all(workspace.parent().unwrap()).unwrap();
}

#[test]
fn p3_what_cannot_be_enforced_is_refused() {
    block_on(async {
        let fixture = Fixture::new();
        let place = Place { is_disposable: false, ..fixture.place.clone() };
        let profile = Profile { protected: vec![".git".to_owned()], ..Profile::default() };
        let error = Sandbox::probe(&fixture.host, &profile, &place).await.unwrap_err();
        let SandboxError::Unenforceable { items, hint } = error else { panic!("{error}") };
        assert_eq!(items[0].0, "protected");
        assert!(!hint.is_empty());
        let profile = Profile { write: vec![PathBuf::from("/nowhere")], ..Profile::default() };
        let error = Sandbox::probe(&fixture.host, &profile, &fixture.place).await.unwrap_err();
        assert!(error.to_string().contains("`/nowhere` does not exist"), "{error}");
    });
}

#[test]
fn a_narrow_list_still_runs_programs() {
    block_on(async {
        let fixture = Fixture::new();
        let secret = fixture.outside().join("target.txt");
        let profile = Profile { read: Some(Vec::new()), ..Profile::default() };
        let sandbox = fixture.sandbox(&profile).await;
        let (ended, output) = fixture.run(&sandbox, "ls -d . && echo x > f && cat f").await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        let (ended, _) = fixture.run(&sandbox, &format!("cat {}", secret.display())).await;
        assert_ne!(ended.exit_code, Some(0));
    });
}

#[test]
fn denied_reads_hold_outside_and_in_a_read_only_workspace() {
    block_on(async {
        let fixture = Fixture::new();
        let workspace = &fixture.place.workspace;
        fs::create_dir(workspace.join("sub")).unwrap();
        for name in [".env", "sub/key.pem", "sub/other"] {
            fs::write(workspace.join(name), "PRIVATE").unwrap();
        }
        let outside = fixture.outside().join("target.txt");
        let profile = Profile {
            mode: SandboxMode::ReadOnly,
            deny_read: vec![
                ".env".to_owned(),
                "**/*.pem".to_owned(),
                outside.display().to_string(),
            ],
            ..Profile::default()
        };
        let sandbox = fixture.sandbox(&profile).await;
        for text in ["cat .env", "cat sub/key.pem", &format!("cat {}", outside.display())] {
            let (ended, output) = fixture.run(&sandbox, text).await;
            assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
        }
        let (ended, output) = fixture.run(&sandbox, "cat sub/other").await;
        assert_eq!((ended.exit_code, output.as_str()), (Some(0), "PRIVATE"));
    });
}

#[test]
fn our_own_git_is_confined_narrowly() {
    block_on(async {
        let fixture = Fixture::new();
        let write = [fixture.place.workspace.clone()];
        let sandbox = Sandbox::narrow(&fixture.host, &write, &fixture.place.marker).await.unwrap();
        let out = fixture.outside();
        let user = fixture.host.home.clone().unwrap();
        let (ended, _) = fixture.run(&sandbox, "git init -q r && ls r").await;
        assert_eq!(ended.exit_code, Some(0));
        for text in [
            format!("echo x > {}/new", out.display()),
            format!("cat {}/.ssh/id_rsa", user.display()),
            "exec 3<>/dev/tcp/127.0.0.1/1".to_owned(),
        ] {
            let (ended, _) = fixture.run(&sandbox, &text).await;
            assert_ne!(ended.exit_code, Some(0), "{text}");
        }
    });
}

#[test]
fn full_access_still_has_a_reaper_and_a_clean_environment() {
    block_on(async {
        let fixture = Fixture::new();
        let profile = Profile { mode: SandboxMode::DangerFullAccess, ..Profile::default() };
        let sandbox = fixture.sandbox(&profile).await;
        assert_eq!(sandbox.enforcement().tier, "none");
        let out = fixture.outside().display().to_string();
        let (ended, output) =
            fixture.run(&sandbox, &format!("echo x > {out}/new; ulimit -c; env | grep sk-1")).await;
        assert_eq!((ended.exit_code, output.as_str()), (Some(1), "0\n"));
        assert!(Path::new(&out).join("new").exists());
        let confined = fixture.shell(&sandbox, "setsid sleep 600 & echo $! > pid");
        confined.finish(Stdin::Null, Capture::default(), LONG).await.unwrap();
        assert!(!is_alive(pid_in(&fixture.place.workspace.join("pid"))));
    });
}

#[test]
fn limits_are_set() {
    block_on(async {
        let fixture = Fixture::new();
        let limits = Limits {
            open_files: Some(50),
            file_size: Some(1 << 20),
            cpu_seconds: Some(100),
            ..Limits::default()
        };
        let sandbox = fixture.sandbox(&Profile { limits, ..Profile::default() }).await;
        let (_, output) =
            fixture.run(&sandbox, "ulimit -n; ulimit -f; ulimit -t; ulimit -u; ulimit -c").await;
        assert_eq!(output, "50\n1024\n100\n4096\n0\n");
    });
}

#[test]
fn a_workspace_that_was_made_again_is_writable_again() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        fs::remove_dir_all(&fixture.place.workspace).unwrap();
        fs::create_dir(&fixture.place.workspace).unwrap();
        let (ended, output) = fixture.run(&sandbox, "echo x > f").await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        let fresh = fixture.outside();
        let moved = sandbox.with_workspace(fresh.clone());
        let text = format!("echo x > {}/f && ! touch g", fresh.display());
        let (ended, output) = fixture.run(&moved, &text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
    });
}
