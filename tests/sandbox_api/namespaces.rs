//! The tier `namespaces`: what is seen inside, and what is not.

use std::fs;
use std::net::TcpListener;

use horseman::profile::{Hosts, Network, Profile, SandboxMode, Tier};
use horseman::sandbox::{Capture, Place, Sandbox, Stdin, end_leftovers};

use crate::fixture::{Fixture, LONG, block_on, is_alive};

fn namespaces() -> Profile {
    Profile { tier: Tier::Namespaces, ..Profile::default() }
}

#[test]
fn what_is_seen_inside_is_the_attempts_own() {
    block_on(async {
        let fixture = Fixture::new();
        let secret = fixture.host.home.clone().unwrap().join(".ssh/id_rsa");
        let sandbox = fixture.sandbox(&namespaces()).await;
        assert_eq!(sandbox.enforcement().tier, "namespaces");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for (text, expected) in [
            ("ls / > /dev/null && ls /dev/shm".to_owned(), 0),
            ("echo x > f && cat f".to_owned(), 0),
            ("echo x > /tmp/horseman-inside && cat /var/tmp/horseman-inside".to_owned(), 0),
            ("touch /usr/x".to_owned(), 1),
            ("chmod 700 /usr".to_owned(), 1),
            (format!("cat {}", secret.display()), 1),
            (format!("stat {}", secret.display()), 1),
            (format!("exec 3<>/dev/tcp/127.0.0.1/{port}"), 1),
            ("[ $(grep -c : /proc/self/net/dev) = 1 ]".to_owned(), 0),
            ("[ $(ls -d /proc/[0-9]* | wc -l) -lt 8 ]".to_owned(), 0),
            ("python3 -c 'import multiprocessing as m; m.Lock()'".to_owned(), 0),
            ("mount -t tmpfs x /mnt || umount /proc || unshare -Ur true".to_owned(), 1),
            ("echo 1 > /proc/sys/kernel/core_pattern".to_owned(), 1),
            ("kill -9 1; sleep 0.1".to_owned(), 0),
        ] {
            let (ended, output) = fixture.run(&sandbox, &text).await;
            assert_eq!(ended.exit_code.map(|code| code.min(1)), Some(expected), "{text}: {output}");
        }
        assert!(!std::path::Path::new("/tmp/horseman-inside").exists());
    });
}

#[test]
fn a_path_in_place_is_protected() {
    block_on(async {
        let fixture = Fixture::new();
        let root = &fixture.place.workspace;
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        fs::write(root.join(".env"), "SECRET").unwrap();
        fs::write(root.join("rules"), "r").unwrap();
        let profile = Profile {
            protected: [".git", ".git/**", "rules", "rules/**"].map(str::to_owned).into(),
            deny_read: vec![".env".to_owned()],
            ..namespaces()
        };
        let place = Place { is_disposable: false, ..fixture.place.clone() };
        let sandbox = Sandbox::probe(&fixture.host, &profile, &place).await.unwrap();
        for text in [
            "touch .git/x",
            "echo x > .git/hooks/post-checkout",
            "mv .git g",
            "rm -rf .git",
            "chmod 777 .git",
            "echo x >> rules",
            "mv rules r2",
            "ln rules r2 && echo x >> r2",
            "cat .env",
            "ln .env e && cat e",
            "mv .env e && cat e",
        ] {
            let (ended, output) = fixture.run(&sandbox, text).await;
            assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
        }
        let (ended, output) = fixture.run(&sandbox, "ls .git && cat rules && touch ok").await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        assert_eq!(fs::read_to_string(root.join("rules")).unwrap(), "r");
        assert!(root.join(".git/hooks").is_dir());
    });
}

#[test]
fn nothing_outlives_a_command_and_its_process_id_is_the_hosts() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&namespaces()).await;
        let text = "setsid bash -c 'trap \"\" TERM; while :; do sleep 1; done' & echo ok; sleep 60";
        let mut running = fixture
            .shell(&sandbox, text)
            .start(Stdin::Null, Capture::default(), None)
            .await
            .unwrap();
        let pid = running.pid();
        assert!(is_alive(pid));
        while running.survivors().await < 1 {
            tokio::task::yield_now().await;
        }
        running.stop().await.unwrap();
        assert!(!is_alive(pid));
        drop((running, sandbox));
        assert_eq!(end_leftovers(std::path::Path::new(&fixture.place.marker)), 0);
    });
}

#[test]
fn read_only_has_private_folders_still() {
    block_on(async {
        let fixture = Fixture::new();
        let profile = Profile { mode: SandboxMode::ReadOnly, ..namespaces() };
        let sandbox = fixture.sandbox(&profile).await;
        let (ended, output) = fixture.run(&sandbox, "mktemp && ! touch f").await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        let open = sandbox.with_network(Network::Full, &Hosts::default());
        let (ended, output) = fixture
            .shell(&open, "[ $(grep -c : /proc/self/net/dev) -gt 1 ] || ls /sys/class/net")
            .finish(Stdin::Null, Capture::default(), LONG)
            .await
            .unwrap();
        assert_eq!(ended.exit_code, Some(0), "{output:?}");
    });
}

#[test]
fn root_is_the_owner_of_another_users_workspace() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    block_on(async {
        let fixture = Fixture::new();
        if fixture.host.uid != 0 {
            return;
        }
        let root = fixture.place.workspace.clone();
        chown(&root, Some(1000), Some(1000)).unwrap();
        let sandbox = fixture.sandbox(&namespaces()).await;
        let text = "touch f && mktemp > /dev/stdout && touch ~/x && [ \"$(id -u) $(id -G)\" = \
                    '1000 1000' ] && ! grep -E 'Cap...:.*[^0\t]' /proc/self/status && ! kill -9 1";
        let (ended, output) = fixture.run(&sandbox, text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        assert_eq!(fs::metadata(root.join("f")).unwrap().uid(), 1000);
    });
}

#[test]
fn a_listed_socket_is_reachable_and_no_other() {
    use std::os::unix::net::UnixListener;
    block_on(async {
        let fixture = Fixture::new();
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let paths = ["listed", "other"].map(|name| folder.path().join(name));
        let listeners = paths.clone().map(|path| UnixListener::bind(path).unwrap());
        let profile = Profile { unix_sockets: vec![paths[0].clone()], ..namespaces() };
        let sandbox = fixture.sandbox(&profile).await;
        for (path, expected) in paths.iter().zip([0, 1]) {
            let text = format!(
                "python3 -c 'import socket; socket.socket(1).connect(\"{}\")'",
                path.display()
            );
            let (ended, output) = fixture.run(&sandbox, &text).await;
            assert_eq!(ended.exit_code, Some(expected), "{output}");
        }
        drop(listeners);
    });
}
