//! The end of a command: deadlines, stops, losses; nothing lives on.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use horseman::profile::Profile;
use horseman::sandbox::{Capture, Cause, Observed, Stdin, end_leftovers};

use crate::fixture::{Fixture, LONG, block_on, is_alive, pid_in, wait_for, words};

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
        drop(sandbox);
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
        .args(["--exact", "end::runner_that_is_killed", "--ignored"])
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
fn a_lost_reaper_is_a_fault_and_no_output() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let confined = fixture.shell(&sandbox, "sleep 600");
        let mut running = confined.start(Stdin::Null, Capture::default(), None).await.unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap();
        let parent: i32 =
            stat.rsplit(") ").next().unwrap()[2..].split(' ').next().unwrap().parse().unwrap();
        let reaper = nix::unistd::Pid::from_raw(parent);
        nix::sys::signal::kill(reaper, nix::sys::signal::Signal::SIGKILL).unwrap();
        let error = running.wait(LONG).await.unwrap_err();
        assert!(error.to_string().contains("is gone"), "{error}");
        drop(running);
        end_leftovers(Path::new(&fixture.place.marker));
    });
}
