//! A host that is worth escaping to: secrets, sockets, a victim process, files outside.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use serde::Deserialize;
use tempfile::TempDir;

/// One attempt.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) technique: String,
    pub(crate) command: String,
    pub(crate) expected: Expected,
    pub(crate) mark: Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Expected {
    Denied,
    Allowed,
}

/// Where it shows that an attempt got out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mark {
    /// `ESCAPED` in the output.
    Output,
    /// A file in the host's /tmp.
    Hosttmp,
    /// A signal that the victim got.
    Usr1,
    /// A process that lived on and wrote a file.
    Daemon,
    /// A datagram that the host received.
    Udp,
    /// A connection from the host that was accepted.
    Inbound,
}

/// Who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    Me,
    /// Uid and gid 1000, without groups; only root can become it.
    Other,
}

/// A small static program for x86-64 that asks for its id by the 32-bit gate, and writes `ESCAPED`
/// when the kernel answers.
const GATE: [u8; 52] = [
    0xb8, 0x14, 0, 0, 0, 0xcd, 0x80, 0x85, 0xc0, 0x78, 0x18, 0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0,
    0x48, 0x8d, 0x35, 0x10, 0, 0, 0, 0xba, 8, 0, 0, 0, 0x0f, 0x05, 0xb8, 0x3c, 0, 0, 0, 0x31, 0xff,
    0x0f, 0x05, b'E', b'S', b'C', b'A', b'P', b'E', b'D', b'\n',
];

fn gate() -> Vec<u8> {
    let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let size = 120 + GATE.len() as u64;
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [0x0040_0078_u64, 64, 0] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0_u64, 0x0040_0000, 0x0040_0000, size, size, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(GATE);
    elf
}

/// The host.
pub(crate) struct Fixture {
    root: TempDir,
    user: User,
    victim: Child,
    tcp: TcpListener,
    tcp6: TcpListener,
    udp: UdpSocket,
    _sockets: Vec<UnixListener>,
    docker: PathBuf,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Fixture {
    pub(crate) fn new(user: User) -> Self {
        // Not below /tmp, of which an attempt may have its own.
        let root = tempfile::Builder::new()
            .prefix("host-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        let at = |name: &str| root.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), text).unwrap();
        };
        for folder in ["ws/.git/hooks", "ws/.git/objects", "ws/.git/refs/heads", "wtcommon"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        write("ws/.git/HEAD", "ref: refs/heads/main\n");
        write("ws/.git/config", "[core]\n\trepositoryformatversion = 0\n\tbare = false\n");
        write("ws/.git/hooks/pre-commit.sample", "#!/bin/sh\n");
        write("ws/.env", "TOKEN=1\n");
        write("ws/.runner/state.json", "{}\n");
        write("ws/.rules", "x\n");
        write("ws/src/a.txt", "a\n");
        write("out/wtcommon/HEAD", "ref: refs/heads/main\n");
        write("ws/wt/.git", &format!("gitdir: {}\n", at("out/wtcommon").display()));
        write("home/.ssh/id_rsa", "PRIVATE KEY\n");
        write("home/.bashrc", "# rc\n");
        for name in [
            "target.txt",
            "target2.txt",
            "target3.txt",
            "mv.txt",
            "trunc.txt",
            "rm.txt",
            "stdin.txt",
            "github_env",
            "github_path",
        ] {
            write(&format!("out/{name}"), "outside\n");
        }
        write("out/inherit.txt", "INHERITED\n");
        fs::write(at("i386"), gate()).unwrap();
        fs::set_permissions(at("i386"), Permissions::from_mode(0o755)).unwrap();
        let agent = UnixListener::bind(at("out/agent.sock")).unwrap();
        fs::set_permissions(at("out/agent.sock"), Permissions::from_mode(0o777)).unwrap();
        let mut sockets = vec![agent];
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("host-abstract-{}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        sockets.push(UnixListener::bind_addr(&address).unwrap());
        let run = if nix::unistd::geteuid().is_root() { PathBuf::from("/run") } else { at("out") };
        let docker = run.join(format!("{name}-docker.sock"));
        sockets.push(UnixListener::bind(&docker).unwrap());
        fs::set_permissions(&docker, Permissions::from_mode(0o777)).unwrap();
        write("names", &format!("{name}\n{}\n", docker.display()));
        write("permissions.yml", &permissions(&at("home")));
        write("ci/github_env", "");
        write("ci/github_path", "");
        if user == User::Other {
            own(root.path());
        }
        let mark = at("signalled");
        let text = format!("trap 'echo x > {}' USR1; while :; do sleep 0.1; done", mark.display());
        let victim = person(user)
            .args(["bash", "-c", &text])
            .env("VSECRET", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        Self {
            user,
            victim,
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            tcp6: TcpListener::bind("[::1]:0").unwrap(),
            udp,
            _sockets: sockets,
            docker,
            root,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Runs the case inside and says what got out.
    pub(crate) fn attempt(&self, case: &Case, tier: &str, prelude: &str) -> Attempt {
        let names = fs::read_to_string(self.at("names")).unwrap();
        let mut names = names.lines();
        let (abstract_name, docker) = (names.next().unwrap(), names.next().unwrap());
        let host_tmp = format!("/tmp/{abstract_name}-marker");
        let command = case
            .command
            .replace("escfx-abs", abstract_name)
            .replace("/run/escfx-docker.sock", docker)
            .replace("/tmp/sbx_host_marker", &host_tmp);
        let inbound = AtomicBool::new(false);
        let is_over = AtomicBool::new(false);
        let output = thread::scope(|scope| {
            if case.mark == Mark::Inbound {
                scope.spawn(|| knock(&is_over, &inbound));
            }
            let output = self.run(&command, tier, prelude);
            is_over.store(true, Ordering::Relaxed);
            output
        });
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let soon = |is_so: &dyn Fn() -> bool, time: Duration| {
            let start = Instant::now();
            while !is_so() && start.elapsed() < time {
                thread::sleep(Duration::from_millis(20));
            }
            is_so()
        };
        let got_out = match case.mark {
            Mark::Output => text.contains("ESCAPED"),
            Mark::Hosttmp => fs::remove_file(&host_tmp).is_ok(),
            Mark::Usr1 => soon(&|| self.at("signalled").exists(), Duration::from_millis(500)),
            Mark::Daemon => soon(&|| self.at("ws/daemon_alive").exists(), Duration::from_secs(2)),
            Mark::Udp => soon(&|| self.udp.recv(&mut [0; 8]).is_ok(), Duration::from_millis(300)),
            Mark::Inbound => inbound.load(Ordering::Relaxed),
        };
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        Attempt { got_out, status: output.status.code(), text, errors }
    }

    fn run(&self, command: &str, tier: &str, prelude: &str) -> Output {
        let port = self.tcp.local_addr().unwrap().port();
        let out = self.at("out");
        let me = person(self.user);
        let mut words: Vec<String> = vec![me.get_program().to_string_lossy().into_owned()];
        words.extend(me.get_args().map(|word| word.to_string_lossy().into_owned()));
        let script = format!(
            "exec 7<>/dev/tcp/127.0.0.1/{port} 8<{out} 9<{out}/inherit.txt < {out}/stdin.txt; \
             {prelude} exec {} \"$@\"",
            words.join(" "),
            out = out.display(),
        );
        Command::new("bash")
            .args(["-c", &script, "bash"])
            .arg(binary())
            .args(["sandbox", "--tier", tier])
            .arg("--permissions")
            .arg(self.at("permissions.yml"))
            .arg("--workspace")
            .arg(self.at("ws"))
            .args(["--", "bash", "-c", &format!("{}\n{command}", self.names())])
            .env_clear()
            .env("PATH", env::var("PATH").unwrap())
            .env("HOME", self.at("home"))
            .env("FX", self.root.path())
            .env("OUT", &out)
            .env("VPID", self.victim_pid().to_string())
            .env("PORT", port.to_string())
            .env("PORT6", self.tcp6.local_addr().unwrap().port().to_string())
            .env("UPORT", self.udp.local_addr().unwrap().port().to_string())
            .env("SSH_AUTH_SOCK", out.join("agent.sock"))
            .env("GITHUB_ENV", self.at("ci/github_env"))
            .env("GITHUB_PATH", self.at("ci/github_path"))
            .env("RUNNER_SECRET", "1")
            .current_dir(self.at("ws"))
            .output()
            .unwrap()
    }

    /// The names of the fixture, for a profile that passes no variables.
    fn names(&self) -> String {
        let pairs = [
            ("HOME", self.at("home").display().to_string()),
            ("FX", self.root.path().display().to_string()),
            ("OUT", self.at("out").display().to_string()),
            ("VPID", self.victim_pid().to_string()),
            ("PORT", self.tcp.local_addr().unwrap().port().to_string()),
            ("PORT6", self.tcp6.local_addr().unwrap().port().to_string()),
            ("UPORT", self.udp.local_addr().unwrap().port().to_string()),
        ];
        pairs.map(|(name, value)| format!("export {name}={value};")).join(" ")
    }

    fn victim_pid(&self) -> u32 {
        self.victim.id()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.victim.kill());
        drop(self.victim.wait());
        drop(fs::remove_file(&self.docker));
    }
}

/// What became of an attempt.
pub(crate) struct Attempt {
    pub(crate) got_out: bool,
    pub(crate) status: Option<i32>,
    pub(crate) text: String,
    pub(crate) errors: String,
}

fn permissions(home: &Path) -> String {
    format!(
        "sandbox: workspace-write\n\
         protected_paths: [ .runner, .rules, wt/.git ]\n\
         deny_read: [ .env, ~/.ssh ]\n\
         limits: {{ processes: 200, memory: 1GiB, tmp_size: 512MiB }}\n\
         env:\n  pass: [ FX, OUT, VPID, PORT, PORT6, UPORT ]\n  set: {{ HOME: {} }}\n",
        home.display()
    )
}

/// The host tries to be answered at the port that a case listens to.
fn knock(is_over: &AtomicBool, inbound: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect("127.0.0.1:34567") {
            inbound.store(true, Ordering::Relaxed);
            drop(stream.write_all(b"x"));
            drop(stream.read(&mut [0]));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// A command that runs as `user`.
fn person(user: User) -> Command {
    match user {
        User::Me => Command::new("env"),
        User::Other => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]);
            command
        }
    }
}

/// Our binary, where every user can start it.
fn binary() -> PathBuf {
    static COPY: std::sync::OnceLock<(TempDir, PathBuf)> = std::sync::OnceLock::new();
    let (_, path) = COPY.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("binary-").tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("horseman");
        fs::copy(env!("CARGO_BIN_EXE_horseman"), &path).unwrap();
        drop(File::open(&path).unwrap());
        (folder, path)
    });
    path.clone()
}

fn own(path: &Path) {
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            own(&entry.unwrap().path());
        }
    }
    chown(path, Some(1000), Some(1000)).unwrap();
}
