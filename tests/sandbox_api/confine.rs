//! What a confined command can do and what it can't.

use std::fs;
use std::path::{Path, PathBuf};

use horseman::profile::{Hosts, Limits, Network, Profile, SandboxMode, Tier};
use horseman::sandbox::{Capture, Sandbox, Stdin};

use crate::fixture::{Fixture, LONG, block_on, is_alive, pid_in};

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
        let open = sandbox.with_network(Network::Full, &Hosts::default());
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
fn p3_what_cannot_be_enforced_is_refused() {
    block_on(async {
        let fixture = Fixture::new();
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

#[test]
fn a_socket_of_the_host_is_out_of_reach() {
    block_on(async {
        let mut fixture = Fixture::new();
        let path = fixture.outside().join("agent.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        fixture.host.env.insert("SSH_AUTH_SOCK".to_owned(), path.display().to_string());
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let path = path.display();
        let stream =
            format!("python3 -c 'import socket as s; s.socket(s.AF_UNIX).connect(\"{path}\")'");
        let datagram = format!(
            "python3 -c 'import socket as s; s.socketpair(s.AF_UNIX, s.SOCK_DGRAM)[0]\
             .sendto(b\"x\", \"{path}\")'"
        );
        for network in [Network::None, Network::Full] {
            let sandbox = sandbox.with_network(network, &Hosts::default());
            for text in [&stream, &datagram] {
                let (ended, output) = fixture.run(&sandbox, text).await;
                assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
            }
            let pair = "python3 -c 'import socket; socket.socketpair()'";
            let (ended, output) = fixture.run(&sandbox, pair).await;
            assert_eq!(ended.exit_code, Some(0), "{output}");
        }
        assert!(listener.accept().is_err());
    });
}

#[test]
fn a_sandbox_works_inside_one_without_a_supervisor() {
    block_on(async {
        for (tier, expected) in [
            (Tier::Namespaces, "inner: in"),
            (Tier::Landlock, "another sandbox above supervises system calls already"),
        ] {
            let fixture = Fixture::new();
            let sandbox = fixture.sandbox(&Profile { tier, ..Profile::default() }).await;
            let runner = std::env::current_exe().unwrap();
            let name = "confine::runner_inside";
            let text = format!(
                "HORSEMAN_TEST_INSIDE=1 {} --exact {name} --ignored --nocapture",
                runner.display()
            );
            let (_, output) = fixture.run(&sandbox, &text).await;
            assert!(output.contains(expected), "{output}");
        }
    });
}

/// Not a test of its own: a runner that is confined itself.
#[test]
#[ignore = "started by another test"]
fn runner_inside() {
    if std::env::var("HORSEMAN_TEST_INSIDE").is_err() {
        return;
    }
    block_on(async {
        let fixture = Fixture::new();
        let profile = Profile { tier: Tier::Landlock, ..Profile::default() };
        let sandbox = match Sandbox::probe(&fixture.host, &profile, &fixture.place).await {
            Ok(sandbox) => sandbox,
            Err(error) => return println!("{error}"),
        };
        let (_, output) = fixture.run(&sandbox, "echo in; echo x > ../new").await;
        assert!(!fixture.outside().join("../new").exists());
        println!("inner: {output}");
    });
}
