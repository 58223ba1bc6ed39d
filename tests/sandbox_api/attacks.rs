//! Attempts to get around the supervisor of the tier `landlock`, and work that it must not disturb.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use horseman::profile::{Limits, Profile, Tier};
use horseman::sandbox::{Place, Sandbox};

use crate::fixture::{Fixture, block_on};

/// Everything below a folder: path, mode, times and content.
fn snapshot(root: &Path) -> BTreeMap<String, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let facts = fs::symlink_metadata(&path).unwrap();
        let content = if facts.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        if facts.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path.display().to_string(), (facts.mode(), facts.mtime(), content));
    }
    found
}

/// Mode, time of change and content of each file.
type Tree = BTreeMap<String, (u32, i64, Vec<u8>)>;

/// An in-place workspace with carve-outs.
struct Carved {
    fixture: Fixture,
    place: Place,
}

impl Carved {
    fn new() -> Self {
        let fixture = Fixture::new();
        let root = &fixture.place.workspace;
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        fs::write(root.join(".git/config"), "[core]\n").unwrap();
        fs::write(root.join("rules"), "r\n").unwrap();
        fs::hard_link(root.join("rules"), root.join("second-name")).unwrap();
        fs::create_dir_all(root.join("deep/er/kept")).unwrap();
        fs::write(root.join("deep/er/kept/file"), "k\n").unwrap();
        fs::write(root.join(".env"), "SECRET\n").unwrap();
        fs::hard_link(root.join(".env"), root.join("env-again")).unwrap();
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(root.join("src/a"), "a\n").unwrap();
        let place = Place { is_disposable: false, ..fixture.place.clone() };
        Self { fixture, place }
    }

    fn profile(denies: bool) -> Profile {
        Profile {
            protected: [".git", ".git/**", "rules", "deep/er/kept", ".codex"]
                .map(str::to_owned)
                .into(),
            deny_read: if denies { vec![".env".to_owned()] } else { Vec::new() },
            tier: Tier::Landlock,
            ..Profile::default()
        }
    }

    async fn sandbox(&self, denies: bool) -> Sandbox {
        Sandbox::probe(&self.fixture.host, &Self::profile(denies), &self.place).await.unwrap()
    }

    fn kept(&self) -> Vec<Tree> {
        let root = &self.place.workspace;
        [".git", "rules", "deep/er/kept", ".env"].map(|name| snapshot(&root.join(name))).into()
    }
}

const CARVE_OUTS: [&str; 54] = [
    "echo x > .git/config",
    "echo x >> .git/config",
    "echo x > .git/new",
    "echo x > ./src/../.git/new",
    "cd .git && echo x > new",
    "cd .git/hooks && echo x > ../new",
    "cd src && echo x > ../.git/new",
    "mkdir .git/d",
    "rmdir .git/hooks",
    "rm -f .git/config; [ ! -e .git/config ]",
    "rm -rf .git; [ ! -e .git/config ]",
    "mv .git g",
    "mv .git/config c",
    "mv src .git/src",
    "mv src/a .git/config",
    "mv src/a rules",
    "mv rules r",
    "mv -T src .git",
    "ln .git/config c && echo x > c",
    "ln rules r && echo x > r",
    "ln src/a .git/b",
    "ln -s /etc/passwd .git/l",
    "ln -s .git g && echo x > g/new",
    "ln -s .git/config c && echo x > c",
    "ln -s .git/new n && echo x > n",
    "ln -s ../.git src/g && echo x > src/g/new",
    "ln -s $PWD/.git/new n2 && echo x > n2",
    "ln -s $PWD/.codex n3 && mkdir n3/ ; [ -e .codex ]",
    "ln -s .codex n4 && echo x > n4; [ -e .codex ]",
    "mkdir .codex",
    "mkdir .codex/",
    "mkdir ./.codex/.",
    "mkdir -p .codex/x",
    "echo x > .codex",
    "mv src .codex",
    "ln -s src .codex",
    "ln src/a .codex",
    "mkfifo .codex",
    "python3 -c 'import socket; socket.socket(1).bind(\".codex\")'",
    "mv deep d",
    "mv deep/er d",
    "rm -rf deep; [ ! -e deep/er/kept/file ]",
    "echo x > deep/er/kept/new",
    "echo x > second-name",
    "truncate -s 0 second-name",
    "chmod 777 second-name",
    "chmod 700 .git",
    "chmod 777 .git/config",
    "touch -d 2001-01-01 .git/config",
    "truncate -s 0 .git/config",
    "exec 3< .git/config; echo x > /proc/self/fd/3",
    "exec 3< .git; echo x > /proc/self/fd/3/new",
    "echo x > /proc/self/cwd/.git/new",
    "echo x > /proc/self/root$PWD/.git/new",
];

#[test]
fn carve_outs_stay_as_they_are() {
    block_on(async {
        for denies in [false, true] {
            let carved = Carved::new();
            let sandbox = carved.sandbox(denies).await;
            let before = carved.kept();
            for text in CARVE_OUTS {
                let (ended, output) = carved.fixture.run(&sandbox, text).await;
                assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
                assert_eq!(carved.kept(), before, "{text}: {output}");
                assert!(!carved.place.workspace.join(".codex").exists(), "{text}: {output}");
            }
            assert!(carved.place.workspace.join("src/a").exists());
        }
    });
}

/// What can't be said in a shell: exits 0 when something was got.
const CALLS: &str = r"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
got = []
def tried(name, call):
    try:
        call()
        got.append(name)
    except OSError:
        pass
def raw(*numbers):
    if libc.syscall(*numbers) < 0:
        raise OSError(ctypes.get_errno(), 'raw')
W = os.O_WRONLY
git = os.open('.git', os.O_RDONLY)
path = os.open('.git/config', os.O_PATH)
read = os.open('.git/config', os.O_RDONLY)
folder = os.open('.git', os.O_PATH)
tried('dirfd', lambda: os.open('config', W, dir_fd=git))
tried('dirfd new', lambda: os.open('new', W | os.O_CREAT, dir_fd=folder))
tried('path fd', lambda: os.open(f'/proc/self/fd/{path}', W))
tried('read fd', lambda: os.open(f'/proc/self/fd/{read}', os.O_RDWR))
tried('pid fd', lambda: os.open(f'/proc/{os.getpid()}/fd/{read}', os.O_RDWR))
tried('thread fd', lambda: os.open(f'/proc/thread-self/fd/{read}', os.O_RDWR))
tried('dev fd', lambda: os.open(f'/dev/fd/{read}', os.O_RDWR))
tried('task fd', lambda: os.open(f'/proc/self/task/{os.getpid()}/fd/{read}', os.O_RDWR))
tried('tmpfile', lambda: os.open('.git', W | os.O_TMPFILE))
tried('truncating read', lambda: os.open('.git/config', os.O_TRUNC))
tried('mode 3', lambda: os.open('.git/config', 3))
tried('fchmod', lambda: os.fchmod(read, 0o777))
tried('fchmod folder', lambda: os.fchmod(git, 0o777))
tried('futimens', lambda: os.utime(read, (1, 1)))
tried('fchown', lambda: os.fchown(read, os.getuid(), os.getgid()))
tried('xattr', lambda: os.setxattr('.git/config', 'user.x', b'1'))
tried('fxattr', lambda: os.setxattr(read, 'user.x', b'1'))
tried('link path fd', lambda: raw(265, path, b'', -100, b'stolen', 0x1000))
tried('link read fd', lambda: os.link(f'/proc/self/fd/{read}', 'stolen2', follow_symlinks=True))
tried('exchange', lambda: raw(316, -100, b'src', -100, b'.git', 2))
tried('exchange above', lambda: raw(316, -100, b'deep', -100, b'src', 2))
tried('openat2', lambda: raw(437, -100, b'.git/config', (ctypes.c_uint64 * 3)(1, 0, 0), 24))
tried('io_uring', lambda: raw(425, 8, (ctypes.c_char * 256)()))
tried('file_setattr', lambda: raw(469, -100, b'.git/config', (ctypes.c_uint64 * 4)(), 24, 0))
tried('inode flags', lambda: __import__('fcntl').ioctl(read, 0x40086602, (64).to_bytes(8, 'little')))
tried('long', lambda: os.open('./' * 1500 + '.git/config', W))
tried('creat', lambda: raw(85, b'.git/new', 0o600))
tried('mknod', lambda: raw(133, b'.git/node', 0o100600, 0))
tried('no end', lambda: os.open('.git//config', W))
tried('dots', lambda: os.open('src/.././.git/hooks/../config', W))
tried('mem', lambda: os.open(f'/proc/{os.getppid()}/mem', os.O_RDWR))
os.chdir('.git/hooks')
tried('cwd', lambda: os.open('../config', W))
tried('proc cwd', lambda: os.open('/proc/self/cwd/../config', W))
print(got)
sys.exit(0 if got else 1)
";

#[test]
fn no_call_reaches_a_carve_out() {
    block_on(async {
        for denies in [false, true] {
            let carved = Carved::new();
            fs::write(carved.place.home.join("calls.py"), CALLS).unwrap();
            let sandbox = carved.sandbox(denies).await;
            let before = carved.kept();
            let (ended, output) = carved.fixture.run(&sandbox, "python3 ~/calls.py 2>&1").await;
            assert_eq!((ended.exit_code, output.as_str()), (Some(1), "[]\n"));
            assert_eq!(carved.kept(), before, "{output}");
        }
    });
}

/// Three seconds of a second thread that swaps what a path leads to.
const RACES: &str = r"
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
end = time.monotonic() + float(sys.argv[2])
done = 0
what = sys.argv[1]
os.makedirs('good', exist_ok=True)
open('good/config', 'w').close()
def again(act):
    global done
    while time.monotonic() < end:
        try:
            if act() != -1:
                done += act is not swapper
        except OSError:
            pass
def link(target):
    try:
        os.symlink(target, 'next')
    except FileExistsError:
        pass
    os.rename('next', 'way')
def swap():
    link('good')
    link('.git')
def names():
    os.rename('good', 'other')
    os.symlink('.git', 'good')
    os.unlink('good')
    os.rename('other', 'good')
path = ctypes.create_string_buffer(b'good/config\0\0')
def memory():
    ctypes.memmove(path, b'.git/config', 11)
    ctypes.memmove(path, b'good/config', 11)
fd = os.open('good', os.O_RDONLY)
def numbers():
    for name in ('.git', 'good'):
        other = os.open(name, os.O_RDONLY)
        os.dup2(other, fd)
        os.close(other)
def write(fd):
    os.write(fd, b'x')
    os.close(fd)
W = os.O_WRONLY | os.O_CREAT
acts = {
    'swap': (swap, [
        lambda: write(os.open('way/config', W)),
        lambda: write(os.open('way/new', W)),
        lambda: os.chmod('way/config', 0o777),
        lambda: os.truncate('way/config', 0),
        lambda: os.utime('way/config', (1, 1)),
        lambda: os.unlink('way/config'),
        lambda: os.rename('src/a', 'way/config'),
        lambda: os.link('way/config', 'stolen'),
        lambda: os.mkdir('way/dir'),
    ]),
    'names': (names, [
        lambda: write(os.open('good/config', W)),
        lambda: write(os.open('good/new', W)),
        lambda: os.mkdir('good/dir'),
        lambda: os.unlink('good/config'),
    ]),
    'memory': (memory, [
        lambda: write(libc.syscall(257, -100, path, W, 0o600)),
        lambda: libc.syscall(90, path, 0o777),
        lambda: libc.syscall(76, path, 0),
        lambda: libc.syscall(87, path),
        lambda: libc.syscall(82, b'src/a', path),
    ]),
    'numbers': (numbers, [
        lambda: write(os.open('config', W, dir_fd=fd)),
        lambda: write(os.open('new', W, dir_fd=fd)),
        lambda: os.fchmod(fd, 0o777),
        lambda: os.mkdir('dir', dir_fd=fd),
    ]),
}
swapper, tries = acts[what]
threads = [threading.Thread(target=again, args=(act,)) for act in [swapper, *tries]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(done)
";

#[test]
fn no_race_reaches_a_carve_out() {
    block_on(async {
        for kind in ["swap", "names", "memory", "numbers"] {
            let carved = Carved::new();
            fs::write(carved.place.home.join("races.py"), RACES).unwrap();
            let sandbox = carved.sandbox(false).await;
            let before = carved.kept();
            let text = format!("python3 ~/races.py {kind} 2 2>&1");
            let (ended, output) = carved.fixture.run(&sandbox, &text).await;
            assert_eq!(ended.exit_code, Some(0), "{kind}: {output}");
            assert_eq!(carved.kept(), before, "{kind}: {output}");
            // The race was run: the harmless half of it took effect.
            let done: u32 = output.trim().parse().unwrap();
            assert!(done > 100, "{kind}: {output}");
        }
    });
}

#[test]
fn a_denied_file_in_a_root_is_not_read() {
    block_on(async {
        let carved = Carved::new();
        fs::write(carved.place.home.join("reads.py"), READS).unwrap();
        let sandbox = carved.sandbox(true).await;
        for text in [
            "cat .env",
            "cat ./src/../.env",
            "cat env-again",
            "ln .env e && cat e",
            "ln -s .env e2 && cat e2",
            "mv .env e3 && cat e3",
            "cp .env e4 && cat e4",
            "cat < .env",
            "cat /proc/self/cwd/.env",
            "cat /proc/self/root$PWD/.env",
            "cat /proc/$$/root$PWD/.env",
            "cd src && cat ../.env",
            "exec 3< .; cat /proc/self/fd/3/.env",
            "git hash-object -w --stdin < .env && false",
            "grep -r SECRET . | grep SECRET",
            "bash .env 2>&1 | grep SECRET",
            "chmod +x .env; ./.env 2>&1 | grep SECRET",
            "python3 ~/reads.py",
        ] {
            let (ended, output) = carved.fixture.run(&sandbox, text).await;
            assert!(!output.contains("SECRET"), "{text}: {output}");
            assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
        }
    });
}

/// Reads by descriptors and with memory that changes.
const READS: &str = r"
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
found = []
harmless = []
path = os.open('.env', os.O_PATH)
for name in (f'/proc/self/fd/{path}', f'/dev/fd/{path}', f'/proc/{os.getpid()}/fd/{path}'):
    try:
        found.append(os.read(os.open(name, os.O_RDONLY), 9))
    except OSError:
        pass
end = time.monotonic() + 2
for other in (b'src/a', b'/etc/hostname'):
    text = ctypes.create_string_buffer(32)
    def swap():
        while time.monotonic() < end and not found:
            ctypes.memmove(text, other + b'\0', len(other) + 1)
            ctypes.memmove(text, b'.env\0', 5)
    def read():
        while time.monotonic() < end and not found:
            fd = libc.syscall(257, -100, text, 0, 0)
            if fd >= 0:
                data = os.read(fd, 9)
                harmless.append(data)
                if b'SECRET' in data:
                    found.append(data)
                os.close(fd)
    threads = [threading.Thread(target=act) for act in (swap, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end += 2
print(found)
raise SystemExit(0 if found or len(harmless) < 10 else 1)
";

#[test]
fn work_in_a_root_with_carve_outs_goes_on() {
    block_on(async {
        for denies in [false, true] {
            let carved = Carved::new();
            let sandbox = carved.sandbox(denies).await;
            for text in [
                "cat .git/config rules deep/er/kept/file > /dev/null && ls -la . .git > /dev/null",
                "echo 1 > f && echo 2 >> f && [ \"$(cat f)\" = $'1\\n2' ] && : > f && [ ! -s f ]",
                "umask 027; echo > m1; mkdir m2; [ \"$(stat -c %a m1 m2 | xargs)\" = '640 750' ]",
                "set -C; ! echo > f && echo > g",
                "mkdir -p a/b/c && mv a z && mv z/b . && rmdir b/c b && rm -r z",
                "ln -s f l && readlink l && echo y > l && [ \"$(cat f)\" = y ] && ln f h && rm l h",
                "ln -s not-there d && echo x > d && [ -f not-there ] && rm d not-there",
                "mktemp -p . && mktemp -d -p . && mktemp && mktemp -d",
                "mkfifo p && (echo hello > p & cat p | grep hello) && rm p",
                "printf '#!/bin/sh\\necho ran\\n' > s && chmod +x s && [ \"$(./s)\" = ran ]",
                "mkdir new && cp /bin/true new/t && ./new/t && cp /bin/true t && ./t",
                "chmod 600 f && touch -d 2001-01-01 f && [ \"$(stat -c %a,%Y f)\" != x ]",
                "truncate -s 5 f && [ \"$(stat -c %s f)\" = 5 ]",
                "cp -a src copy && diff -r src copy && rm -r copy && tar c src | tar x -C $TMPDIR",
                "mv src $TMPDIR/moved && mv $TMPDIR/moved src && cat src/a",
                "git init -q repo && cd repo && git config user.email a@b && git config user.name n \
                 && echo x > y && git add y && git commit -qm m && git status --porcelain",
                "python3 -c 'import os; f=os.open(\".\", os.O_TMPFILE|os.O_RDWR, 0o600); \
                 os.link(f\"/proc/self/fd/{f}\", \"linked\", src_dir_fd=0, follow_symlinks=True)'",
                "python3 -c 'import sqlite3; c=sqlite3.connect(\"db\"); \
                 c.execute(\"pragma journal_mode=wal\"); c.execute(\"create table t(x)\"); \
                 c.execute(\"insert into t values(1)\"); c.commit()'",
                "python3 -c 'import tempfile; tempfile.NamedTemporaryFile(dir=\".\").write(b\"x\")'",
                "echo x > /dev/null; echo x 2> /dev/stderr; cat /proc/self/status > /dev/null",
                "cat /proc/mounts /proc/net/tcp /proc/self/maps /proc/cpuinfo > /dev/null",
                "ps aux > /dev/null && ls /proc/self/fd",
                "echo hi > /dev/stdout && echo hi | cat /dev/stdin && cat <(echo sub) && \
                 cat /dev/stdin < <(true) && sleep 0.1 | cat /dev/stdin",
                "echo x > /proc/self/cwd/c1 && echo y > /proc/self/root$PWD/c2 && [ \"$(cat c1 c2)\" \
                 = $'x\\ny' ] && exec 3> c1 && echo z > /dev/fd/3 && [ \"$(cat c1)\" = z ]",
                "python3 -m venv --without-pip v && v/bin/python -c 'print(1)'",
                "sed -i s/r/r/ src/a && find . -name a -newer .git/config; rm -rf repo v",
                "for i in $(seq 200); do echo $i > k$i & done; wait; cat k* | wc -l | grep 200 && rm k*",
            ] {
                let (ended, output) = carved.fixture.run(&sandbox, text).await;
                assert_eq!(ended.exit_code, Some(0), "denies {denies}: {text}: {output}");
            }
        }
    });
}

const PARALLEL: &str = r"
import os, threading
def work(n):
    for i in range(625):
        name = f'p{n}-{i}'
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(fd, name.encode())
        os.close(fd)
threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all(open(f'p{n}-{i}').read() == f'p{n}-{i}' for n in range(16) for i in range(625))
";

#[test]
fn ten_thousand_files_are_made_at_the_same_time() {
    block_on(async {
        let carved = Carved::new();
        fs::write(carved.place.home.join("parallel.py"), PARALLEL).unwrap();
        let sandbox = carved.sandbox(false).await;
        let (ended, output) = carved.fixture.run(&sandbox, "python3 ~/parallel.py 2>&1").await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
    });
}

#[test]
fn attributes_of_what_is_outside_stay() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let out = fixture.outside();
        let before = snapshot(&out);
        let file = out.join("target.txt").display().to_string();
        for text in [
            format!("chmod 777 {file}"),
            format!("chmod 777 {}", out.display()),
            format!("chmod +x {file}"),
            format!("touch -d 2001-01-01 {file}"),
            format!("touch -a -d 2001-01-01 {file}"),
            format!("chown $(id -u) {file}"),
            format!("ln -s {file} l; chmod 777 l"),
            format!("ln -sn {} d; chmod 777 d/target.txt", out.display()),
            format!("chmod 777 /proc/self/root{file}"),
            format!("exec 3< {file}; chmod 777 /proc/self/fd/3"),
            format!("exec 3< {file}; touch -d 2001-01-01 /proc/self/fd/3"),
            format!("python3 -c 'import os; os.fchmod(os.open(\"{file}\", 0), 0o777)'"),
            format!("python3 -c 'import os; os.utime(os.open(\"{file}\", 0), (1, 1))'"),
            format!("python3 -c 'import os; os.setxattr(\"{file}\", \"user.a\", b\"1\")'"),
            format!(
                "python3 -c 'import os; os.setxattr(os.open(\"{file}\", 0), \"user.a\", b\"1\")'"
            ),
            "touch g && chmod 4755 g".to_owned(),
            "touch g && python3 -c 'import os; os.fchmod(os.open(\"g\", 2), 0o2755)'".to_owned(),
        ] {
            let (ended, output) = fixture.run(&sandbox, &text).await;
            assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
            assert_eq!(snapshot(&out), before, "{text}: {output}");
        }
        let text = "touch f && chmod 640 f && touch -d 2001-01-01 f && stat -c '%a %Y' f && \
                    chmod 1777 . && cp -p f g && python3 -c 'import os; os.fchmod(os.open(\"f\", 0), \
                    0o600); os.utime(\"f\"); os.chown(\"f\", os.getuid(), -1)' && stat -c %a f";
        let (ended, output) = fixture.run(&sandbox, text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        assert!(output.starts_with("640 9") && output.ends_with("\n600\n"), "{output}");
        let mode = fs::metadata(fixture.place.workspace.join("g")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
    });
}

const LOOPBACK: &str = r"
import asyncio, http.server, multiprocessing, os, select, socket, threading, urllib.request
from multiprocessing.connection import Client, Listener

# A server and a client, of both families.
for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((host, 0))
    assert server.getsockname()[0] == host, server.getsockname()
    server.listen()
    port = server.getsockname()[1]
    assert server.getsockname()[0] == host
    client = socket.create_connection((host, port))
    near, _ = server.accept()
    assert client.getpeername()[:2] == (host, port), client.getpeername()
    assert near.getsockname()[:2] == (host, port), near.getsockname()
    assert client.getsockname()[1] == near.getpeername()[1]
    client.sendall(b'hello')
    assert near.recv(9) == b'hello'
    client.close()
    assert near.recv(9) == b'', 'the end of a closed connection is seen'
    near.close()
    server.close()
    # What was closed refuses, and its port can be had again.
    try:
        socket.create_connection((host, port), 1)
        raise SystemExit('a closed server answers')
    except ConnectionRefusedError:
        pass
    other = socket.socket(family)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.bind((host, port))
    other.close()
    other = socket.socket(family)
    other.bind((host, 0))
    other.listen()

# A server of every address, by name, in another process and by a server library.
class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
for bound in ('', 'localhost', '0.0.0.0'):
    server = http.server.ThreadingHTTPServer((bound, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in ('localhost', '127.0.0.1'):
        url = f'http://{name}:{server.server_port}/'
        assert urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url).status == 200
    server.shutdown()

# Both families in one socket.
both = socket.create_server(('::', 0), family=socket.AF_INET6, dualstack_ipv6=True)
socket.create_connection(('127.0.0.1', both.getsockname()[1])).close()
socket.create_connection(('::1', both.getsockname()[1])).close()

# Without waiting.
server = socket.create_server(('127.0.0.1', 0))
client = socket.socket()
client.setblocking(False)
assert client.connect_ex(server.getsockname()) in (0, 115)
select.select([], [client], [], 5)
assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
assert client.getpeername() == server.getsockname()

async def main():
    async def serve(reader, writer):
        writer.write(await reader.read(5))
        await writer.drain()
        writer.close()
    server = await asyncio.start_server(serve, 'localhost', 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
    writer.write(b'12345')
    assert await reader.read() == b'12345'
    server = await asyncio.start_unix_server(serve, 'u.sock')
    reader, writer = await asyncio.open_unix_connection('u.sock')
    writer.write(b'12345')
    assert await reader.read() == b'12345'
asyncio.run(main())

# Unix sockets by path and by abstract name.
for name in ('deep.sock', os.path.abspath('deep2.sock'), '\0mine'):
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen(1)
    shown = server.getsockname()
    assert (shown if isinstance(shown, str) else shown.decode()) == name, shown
    client = socket.socket(socket.AF_UNIX)
    client.connect(name)
    near, _ = server.accept()
    client.close()
    assert near.recv(1) == b''
os.umask(0o077)
server = socket.socket(socket.AF_UNIX)
server.bind('private.sock')
assert os.stat('private.sock').st_mode & 0o777 == 0o700

def square(x):
    return x * x
if __name__ == '__main__':
    with multiprocessing.Pool(2) as pool:
        assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]
    with multiprocessing.Manager() as manager:
        assert manager.list([1])[0] == 1
    from multiprocessing import shared_memory
    memory = shared_memory.SharedMemory(create=True, size=100)
    again = shared_memory.SharedMemory(name=memory.name)
    memory.buf[0] = 7
    assert again.buf[0] == 7
    again.close()
    memory.close()
    memory.unlink()
    multiprocessing.Lock()
    print('done')
";

#[test]
fn servers_and_clients_of_one_attempt_find_each_other() {
    block_on(async {
        let fixture = Fixture::new();
        fs::write(fixture.place.home.join("loopback.py"), LOOPBACK).unwrap();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let before = fs::read_dir("/dev/shm").unwrap().count();
        let (ended, output) = fixture.run(&sandbox, "python3 ~/loopback.py 2>&1").await;
        assert_eq!((ended.exit_code, output.as_str()), (Some(0), "done\n"));
        assert_eq!(fs::read_dir("/dev/shm").unwrap().count(), before);
    });
}

#[test]
fn the_hosts_ports_are_neither_reached_nor_answered() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        let listeners = ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"]
            .map(|at| TcpListener::bind(at).unwrap());
        for listener in &listeners {
            let port = listener.local_addr().unwrap().port();
            for host in
                ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::ffff:127.0.0.1", "127.0.0.2"]
            {
                let text = format!(
                    "python3 -c 'import socket; socket.create_connection((\"{host}\", {port}), 2)'"
                );
                let (ended, output) = fixture.run(&sandbox, &text).await;
                assert_ne!(ended.exit_code, Some(0), "{host}:{port}: {output}");
            }
        }
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "a connection from inside came");
        }
        // Neither a bound nor an unbound listener answers the host at its usual address.
        for bind in ["s.bind((\"127.0.0.1\", 0))", "s.bind((\"\", 0))", "0"] {
            let text = format!(
                "python3 -c 'import os, socket, time; s=socket.socket(); {bind}; s.listen(); \
                 open(\"port.new\", \"w\").write(str(s.getsockname()[1])); \
                 os.rename(\"port.new\", \"port\"); time.sleep(60)'"
            );
            let mut running = fixture
                .shell(&sandbox, &text)
                .start(horseman::sandbox::Stdin::Null, horseman::sandbox::Capture::default(), None)
                .await
                .unwrap();
            let path = fixture.place.workspace.join("port");
            crate::fixture::wait_for("no port", || path.exists());
            let port: u16 = fs::read_to_string(&path).unwrap().parse().unwrap();
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{bind}");
            assert!(TcpStream::connect(("::1", port)).is_err(), "{bind}");
            fs::remove_file(path).unwrap();
            running.stop().await.unwrap();
        }
    });
}

#[test]
fn sockets_of_others_are_out_of_reach() {
    block_on(async {
        use std::os::linux::net::SocketAddrExt as _;
        use std::os::unix::net::SocketAddr;
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&Profile::default()).await;
        // Made after the start, in a place that is not the attempt's.
        let path = fixture.outside().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let name = format!("horseman-test-{}", std::process::id());
        let hidden =
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let path = path.display();
        for text in [
            format!("socket.socket(1).connect(\"{path}\")"),
            format!("os.symlink(\"{path}\", \"l\"); socket.socket(1).connect(\"l\")"),
            format!("socket.socket(1).connect(\"/proc/self/root{path}\")"),
            format!("socket.socket(1).connect(\"\\0{name}\")"),
            format!("socket.socket(1, 2).sendto(b\"x\", \"{path}\")"),
            format!("socket.socket(1).bind(\"{path}2\")"),
            "socket.socket(2, 2)".to_owned(),
            "socket.socket(2, 3, 1)".to_owned(),
            "socket.socket(2, 1, 262)".to_owned(),
            "socket.socket(40, 1)".to_owned(),
            "socket.socket(17, 3)".to_owned(),
            "socket.socket(2).sendto(b\"x\", 0x20000000, (\"127.0.0.1\", 22))".to_owned(),
            "socket.socket(2).sendmsg([b\"x\"], [], 0x20000000, (\"127.0.0.1\", 22))".to_owned(),
            "socket.socket(2).setsockopt(6, 30, 1)".to_owned(),
            "socket.socketpair(1, 2)".to_owned(),
        ] {
            let text = format!("python3 -c 'import os, socket; {text}'");
            let (ended, output) = fixture.run(&sandbox, &text).await;
            assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
        }
        for listener in [listener, hidden] {
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "a connection from inside came");
        }
    });
}

#[test]
fn processes_are_counted_for_root_too() {
    block_on(async {
        let fixture = Fixture::new();
        let limits = Limits { processes: Some(60), ..Limits::default() };
        let profile = Profile { limits, ..Profile::default() };
        let sandbox = fixture.sandbox(&profile).await;
        let text = "python3 -c 'import os, time\nn = 0\ntry:\n for _ in range(200):\n  \
                    if os.fork() == 0: time.sleep(2); os._exit(0)\n  n += 1\n\
                    except BlockingIOError: pass\nprint(n)'";
        let (ended, output) = fixture.run(&sandbox, text).await;
        let count: u32 = output.trim().parse().unwrap();
        assert_eq!(ended.exit_code, Some(0), "{output}");
        // Another user's other processes count as well where the kernel counts.
        assert!(count <= 60, "{count}");
        assert!(fixture.host.uid != 0 || count > 40, "{count}");
    });
}

/// Asks the proxy for a host that is not listed, and a service that is forwarded.
const DOORS: &str = r"
import os, socket, sys
port = int(sys.argv[1])
for host in ('127.0.0.1', 'localhost'):
    service = socket.create_connection((host, port), 5)
    assert service.getpeername()[1] == port
    assert service.recv(5) == b'hello', 'the service greets'
proxy = os.environ['http_proxy'].removeprefix('http://')
host, _, number = proxy.rpartition(':')
way = socket.create_connection((host, int(number)), 5)
way.sendall(b'GET http://elsewhere.test/ HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n')
assert b' 403 ' in way.recv(99).splitlines()[0]
try:
    socket.create_connection(('127.0.0.1', int(sys.argv[2])), 2)
    raise SystemExit('a service that is not forwarded answers')
except OSError:
    pass
print('done')
";

#[test]
fn a_forwarded_service_is_reached_and_no_other() {
    use horseman::profile::{Forward, Hosts, Network};
    use std::io::Write as _;
    block_on(async {
        for tier in [Tier::Landlock, Tier::Namespaces] {
            let fixture = Fixture::new();
            fs::write(fixture.place.home.join("doors.py"), DOORS).unwrap();
            // Of every address, as a published port of a container is.
            let service = TcpListener::bind("0.0.0.0:0").unwrap();
            let other = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = service.local_addr().unwrap().port();
            std::thread::spawn(move || {
                for guest in service.incoming().take(2) {
                    guest.unwrap().write_all(b"hello").unwrap();
                }
            });
            let forward = vec![Forward { host: "localhost".to_owned(), port }];
            let profile = Profile {
                network: Network::Listed,
                hosts: Hosts { allow: vec!["listed.test".to_owned()], forward, ..Hosts::default() },
                tier,
                ..Profile::default()
            };
            let sandbox = fixture.sandbox(&profile).await;
            let text =
                format!("python3 ~/doors.py {port} {} 2>&1", other.local_addr().unwrap().port());
            let (ended, output) = fixture.run(&sandbox, &text).await;
            assert_eq!((ended.exit_code, output.as_str()), (Some(0), "done\n"), "{tier:?}");
        }
    });
}

#[test]
fn one_that_waits_keeps_no_other_waiting() {
    block_on(async {
        let carved = Carved::new();
        for denies in [false, true] {
            let sandbox = carved.sandbox(denies).await;
            // More waiting opens than the supervisor has threads.
            let text = "mkfifo w && for i in $(seq 40); do (: < w) & done; sleep 0.2; \
                        echo x > quick && mkdir d && chmod 700 d && rm -r d quick && echo quick; \
                        exec 3> w; wait; rm w; echo ok";
            let (ended, output) = carved.fixture.run(&sandbox, text).await;
            assert_eq!(ended.exit_code, Some(0), "denies {denies}: {output}");
            assert!(output.starts_with("quick\n"), "denies {denies}: {output}");
            assert!(output.ends_with("ok\n"), "denies {denies}: {output}");
        }
    });
}
