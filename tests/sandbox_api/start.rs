//! Starting a command: what it gets, what comes back, what it costs.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use horseman::approval::by_operator;
use horseman::policy::Exec;
use horseman::profile::Profile;
use horseman::sandbox::{Capture, Cause, Observed, Stdin};

use crate::fixture::{Fixture, LONG, block_on, wait_for, words};

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
        let capture =
            Capture { window: 4096, log: Some(log.clone()), log_cap: 10_000, ..Capture::default() };
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

#[test]
fn a_hundred_commands_leak_nothing() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let count = || fs::read_dir("/proc/thread-self/fd").unwrap().count();
        fixture.run(&sandbox, "true").await;
        let before = count();
        let mut most = 0;
        for _ in 0..100 {
            fixture.run(&sandbox, "true").await;
            most = most.max(count());
        }
        // Other tests of this process open and close theirs meanwhile.
        assert!(most < before + 100, "{before} grew to {most}");
    });
}

#[test]
fn stdin_cannot_be_opened_again_for_writing() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let confined = fixture.shell(&sandbox, "cat /dev/stdin; echo x > /proc/self/fd/0");
        let input = Stdin::Bytes(b"in\n".to_vec());
        let (ended, output) = confined.finish(input, Capture::default(), LONG).await.unwrap();
        let output = words(output);
        assert!(output.starts_with("in\n"), "{output}");
        assert_ne!(ended.exit_code, Some(0), "{output}");
    });
}

/// Prints what confinement adds to a spawn: `cargo test spawn_cost -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn spawn_cost() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let (mut plain, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let start = Instant::now();
            std::process::Command::new("/bin/true").status().unwrap();
            plain.push(start.elapsed());
            let start = Instant::now();
            let exec = Exec {
                program: PathBuf::from("/bin/true"),
                argv: vec!["true".to_owned()],
                cwd: fixture.place.workspace.clone(),
                env: BTreeMap::new(),
                shell_text: None,
            };
            let confined = sandbox.confine(by_operator(exec)).unwrap();
            confined.finish(Stdin::Null, Capture::default(), LONG).await.unwrap();
            ours.push(start.elapsed());
        }
        for (name, times) in [("plain", &mut plain), ("confined", &mut ours)] {
            times.sort();
            println!("{name}: p5 {:?}, median {:?}", times[10], times[100]);
        }
    });
}

fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
