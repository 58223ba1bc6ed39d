//! The supervisor of the tier `landlock`: what it carries out, and what it refuses under attack.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use horseman::profile::{Limits, Network, Profile, Tier};
use horseman::sandbox::{Capture, Place, Sandbox, Stdin, end_leftovers};

use crate::fixture::{Fixture, block_on, is_alive, pid_in, wait_for};

fn landlock() -> Profile {
    Profile { tier: Tier::Landlock, ..Profile::default() }
}

/// An in-place workspace: `.git` and `rules` are protected, and so are `.codex` and `sub/.git`, which
/// aren't there; `.env` is hidden.
async fn in_place(fixture: &Fixture, hides: bool) -> Sandbox {
    let root = &fixture.place.workspace;
    fs::create_dir_all(root.join(".git/hooks")).unwrap();
    fs::write(root.join(".git/config"), "c").unwrap();
    fs::write(root.join(".env"), "SECRET").unwrap();
    fs::write(root.join("rules"), "r").unwrap();
    fs::hard_link(root.join("rules"), root.join("second-name")).unwrap();
    fs::hard_link(root.join(".env"), root.join("second-secret")).unwrap();
    let deny_read = if hides { vec![".env".to_owned()] } else { Vec::new() };
    let profile = Profile {
        protected: [".git", "rules", ".codex", "sub/.git"].map(str::to_owned).into(),
        deny_read,
        ..landlock()
    };
    let place = Place { is_disposable: false, ..fixture.place.clone() };
    Sandbox::probe(&fixture.host, &profile, &place).await.unwrap()
}

async fn all_succeed(fixture: &Fixture, sandbox: &Sandbox, texts: &[&str]) {
    for text in texts {
        let (ended, output) = fixture.run(sandbox, text).await;
        assert_eq!(ended.exit_code, Some(0), "{text}: {output}");
    }
}

async fn all_fail(fixture: &Fixture, sandbox: &Sandbox, texts: &[&str]) {
    for text in texts {
        let (ended, output) = fixture.run(sandbox, text).await;
        assert_ne!(ended.exit_code, Some(0), "{text}: {output}");
        assert!(!output.contains("SECRET"), "{text}: {output}");
    }
}

/// Python that runs `body` in a program of its own.
fn python(body: &str) -> String {
    format!("cat > /dev/null; python3 - <<'EOF'\n{body}\nEOF")
}

fn is_untouched(root: &Path) {
    assert_eq!(fs::read_to_string(root.join("rules")).unwrap(), "r");
    assert_eq!(fs::read_to_string(root.join(".git/config")).unwrap(), "c");
    assert_eq!(fs::read_dir(root.join(".git")).unwrap().count(), 2);
    assert_eq!(fs::read_dir(root.join(".git/hooks")).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(root.join(".env")).unwrap(), "SECRET");
    assert!(!root.join(".codex").exists());
    assert!(!root.join("sub/.git").exists());
}

#[test]
fn what_is_protected_in_place_stays() {
    block_on(async {
        for hides in [false, true] {
            let fixture = Fixture::new();
            let root = &fixture.place.workspace;
            let sandbox = in_place(&fixture, hides).await;
            let attacks = [
                "touch .git/x",
                "echo x > .git/hooks/post-checkout",
                "mv .git g",
                "rm -rf .git; [ ! -e .git ]",
                "chmod 700 .git",
                "chmod 600 rules",
                "touch rules",
                "truncate -s 0 rules",
                "echo x >> rules",
                "echo x >> ./d/../rules; mkdir d; echo x >> ./d/../rules",
                "echo x >> /proc/self/cwd/rules",
                "echo x >> /proc/self/root$PWD/rules",
                "exec 9< rules; echo x >> /proc/self/fd/9",
                "exec 9< rules; echo x >> /dev/fd/9",
                "ln -s rules l; echo x >> l",
                "ln -s .git g2; touch g2/x",
                "ln -s .codex l3; echo x > l3",
                "ln -s .codex/ l4; mkdir -p l4/x",
                "mv rules r2",
                "ln rules r3",
                "ln rules r3 || cp --link rules r3",
                "echo x >> second-name",
                "chmod 600 second-name",
                "touch second-name",
                "truncate -s 0 second-name",
                "mkdir .codex",
                "touch .codex",
                "ln -s x .codex",
                "mkfifo .codex",
                "mkdir n && mv n .codex",
                "mkdir -p sub/.git",
                "rmdir sub; mkdir -p t/.git && mv -T t sub",
                "mkdir -p u/.git; mkdir sub; python3 -c 'import ctypes; l = ctypes.CDLL(None); exit(0 if l.renameat2(-100, b\"u\", -100, b\"sub\", 2) == 0 else 1)'",
                "rmdir .git/hooks",
                "mv .git/hooks h",
                "echo y > y; mv y rules",
                "echo y > y; mv y .git/config",
                "echo y > y; ln -f y rules",
                "python3 -c 'import os; os.rename(\"y\", \"rules\")'",
                "python3 -c 'import os; os.utime(\"rules\", (1, 1))'",
                "python3 -c 'import os; os.setxattr(\"rules\", \"user.x\", b\"1\")'",
                "python3 -c 'import os; fd = os.open(\".git\", os.O_PATH); os.mkdir(\"x\", dir_fd=fd)'",
                "python3 -c 'import os; os.open(\".git\", os.O_TMPFILE | os.O_RDWR)'",
                "python3 -c 'import os; fd = os.open(\"rules\", os.O_RDONLY); os.fchmod(fd, 0o600)'",
                "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\".git/s\")'",
            ];
            all_fail(&fixture, &sandbox, &attacks).await;
            is_untouched(root);
            assert_eq!(fs::metadata(root.join("rules")).unwrap().mode() & 0o777, 0o644);
        }
    });
}

#[test]
fn work_in_place_goes_on() {
    block_on(async {
        for hides in [false, true] {
            let fixture = Fixture::new();
            let sandbox = in_place(&fixture, hides).await;
            let outer = fixture.outside().display().to_string();
            let work = [
                "cat rules .git/config && ls -la . .git",
                "echo a > f && cat f && echo b >> f && [ \"$(cat f)\" = \"$(printf 'a\\nb')\" ]",
                "mkdir -p a/b/c && touch a/b/c/f && mv a/b a/d && rm -r a",
                "umask 027; echo x > m; [ $(stat -c %a m) = 640 ]; mkdir md; [ $(stat -c %a md) = 750 ]",
                "echo x > s && ln -s s sl && echo y >> sl && [ $(wc -l < s) = 2 ] && [ -L sl ]",
                "ln -s dangling dl && echo x > dl && [ -f dangling ]",
                "set -C; echo x > new1 && ! echo y > new1",
                "cp /bin/true t && chmod 755 t && ./t",
                "printf '#!/bin/sh\\necho ran\\n' > sh1 && chmod +x sh1 && [ $(./sh1) = ran ]",
                "ln f hard && echo z >> hard && grep z f",
                "mkfifo p && (echo x > p & cat p) && (cat p > got & echo y > p; wait) && grep y got",
                "python3 -c 'import os, tempfile; f = tempfile.TemporaryFile(dir=\".\"); f.write(b\"x\")'",
                "python3 -c 'import os; fd = os.open(\".\", os.O_RDONLY); os.mkdir(\"viafd\", dir_fd=fd)'",
                "python3 -c 'import os; os.utime(\"f\", (1, 1)); assert os.stat(\"f\").st_mtime == 1'",
                "touch -d 2001-01-01 f && [ $(stat -c %Y f) = $(date -d 2001-01-01 +%s) ]",
                "touch -h sl && truncate -s 7 f && [ $(stat -c %s f) = 7 ] && chown $(id -u) f",
                "cp -a /etc/hostname h && tar cf x.tar f s sl && mkdir ex && tar xf x.tar -C ex",
                "n=$(printf 'x%.0s' $(seq 200)); d=.; for i in 1 2 3 4 5; do d=$d/$n; mkdir $d; done; \
                 echo x > $d/f && cat $d/f && rm -r ./$n",
                "git init -q gr && cd gr && git config user.email a@b && git config user.name n && \
                 echo x > f && git add f && git commit -qm m && git mv f g && git commit -qm n && \
                 git log --oneline",
                "echo x > /dev/null && echo x > /dev/stdout && echo x > $TMPDIR/t && mv $TMPDIR/t tt",
                "mv tt $HOME/tt && rm $HOME/tt",
                "python3 -m venv --without-pip v && v/bin/python -c 'print(1)'",
                "sqlite3 db 'create table t(x); insert into t values (1)' 2>/dev/null || python3 -c \
                 'import sqlite3; c = sqlite3.connect(\"db\"); c.execute(\"create table t(x)\"); c.commit()'",
            ];
            all_succeed(&fixture, &sandbox, &work).await;
            let outside = format!("! echo x > {outer}/new && ! ln {outer}/target.txt h2");
            all_succeed(&fixture, &sandbox, &[&outside]).await;
            is_untouched(&fixture.place.workspace);
        }
    });
}

#[test]
fn what_is_hidden_in_a_writable_root_is_not_read() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = in_place(&fixture, true).await;
        let attacks = [
            "cat .env",
            "cat second-secret",
            "cat < .env",
            "cat ./x/../.env; mkdir x; cat ./x/../.env",
            "cat /proc/self/cwd/.env",
            "ln -s .env e && cat e",
            "ln .env e2 && cat e2",
            "mv .env e3 && cat e3",
            "cp .env e4 && cat e4",
            "cp --reflink=always .env e5 && cat e5",
            "chmod +x .env; bash .env; sh .env; ./.env",
            "python3 -c 'import os; print(open(os.open(\".env\", os.O_RDONLY | os.O_NOFOLLOW)).read())'",
            "python3 -c 'import os; fd = os.open(\".env\", os.O_PATH); print(open(f\"/proc/self/fd/{fd}\").read())'",
            "tar cf x.tar .env && cat x.tar",
            "git hash-object .env && false",
        ];
        all_fail(&fixture, &sandbox, &attacks).await;
        is_untouched(&fixture.place.workspace);
    });
}

/// Threads change what a path leads to while others open it.
#[test]
fn races_lead_to_nothing_that_is_carved_out() {
    block_on(async {
        let fixture = Fixture::new();
        let root = fixture.place.workspace.clone();
        let sandbox = in_place(&fixture, true).await;
        fs::write(root.join("mine"), "").unwrap();
        let text = python(
            r#"
import ctypes, os, threading, time
libc = ctypes.CDLL(None, use_errno=True)
stop = time.time() + 4
leaked = []
def links():
    while time.time() < stop:
        for target in ("mine", "rules", ".git/config", ".env"):
            try:
                os.symlink(target, "swap.new"); os.rename("swap.new", "swap")
            except OSError: pass
def folders():
    os.makedirs("real/hooks", exist_ok=True)
    while time.time() < stop:
        for target in ("real", ".git"):
            try:
                os.symlink(target, "dswap.new"); os.rename("dswap.new", "dswap")
            except OSError: pass
buffer = ctypes.create_string_buffer(b"mine" + bytes(60))
def memory():
    while time.time() < stop:
        buffer.value = b"rules"; buffer.value = b"mine"; buffer.value = b".env"
def use():
    while time.time() < stop:
        for path in ("swap", "dswap/hooks/x", "dswap/config2"):
            for flags in (os.O_WRONLY, os.O_WRONLY | os.O_CREAT, os.O_RDONLY, os.O_RDWR | os.O_TRUNC):
                try:
                    fd = os.open(path, flags)
                except OSError: continue
                try:
                    if flags == os.O_RDONLY and b"SECRET" in os.read(fd, 99): leaked.append(path)
                    elif flags != os.O_RDONLY: os.write(fd, b"BAD")
                except OSError: pass
                os.close(fd)
        for act in (lambda: os.chmod("swap", 0o777), lambda: os.utime("swap", (1, 1)),
                    lambda: os.truncate("swap", 0), lambda: os.link("swap", "hl"),
                    lambda: os.mkdir("dswap/hooks/d"), lambda: os.unlink("dswap/config"),
                    lambda: os.rename("mine2", "dswap/config"), lambda: os.unlink("hl")):
            try: act()
            except OSError: pass
def raw():
    while time.time() < stop:
        for flags in (os.O_WRONLY | os.O_TRUNC, os.O_RDONLY):
            fd = libc.open(buffer, flags)
            if fd >= 0:
                if flags == os.O_RDONLY and b"SECRET" in os.read(fd, 99): leaked.append("raw")
                os.close(fd)
        libc.chmod(buffer, 0o777)
        libc.truncate(buffer, 0)
threads = [threading.Thread(target=t) for t in (links, folders, memory, use, raw, use)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not leaked, leaked
print("done")
"#,
        );
        let (ended, output) = fixture.run(&sandbox, &text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        assert!(output.contains("done"));
        is_untouched(&root);
        assert_eq!(fs::metadata(root.join("rules")).unwrap().mode() & 0o777, 0o644);
        assert_eq!(fs::metadata(root.join(".env")).unwrap().mode() & 0o777, 0o644);
    });
}

#[test]
fn many_opens_at_a_time_are_answered() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = in_place(&fixture, true).await;
        let text = python(
            r#"
import threading, os
def work(n):
    for i in range(1250):
        path = f"many/{n}-{i}"
        with open(path, "w") as f: f.write(path)
        with open(path) as f: assert f.read() == path
os.mkdir("many")
errors = []
def guard(n):
    try: work(n)
    except BaseException as e: errors.append(e)
threads = [threading.Thread(target=guard, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not errors, errors
assert len(os.listdir("many")) == 10000
"#,
        );
        let (ended, output) = fixture.run(&sandbox, &text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
    });
}

#[test]
fn the_loopback_is_the_attempts_own() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&landlock()).await;
        let host = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = host.local_addr().unwrap().port();
        let text = python(&format!("PORT = {port}\n{LOOPBACK}"));
        let (ended, output) = fixture.run(&sandbox, &text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        host.set_nonblocking(true).unwrap();
        assert!(host.accept().is_err(), "the host was reached");
    });
}

const LOOPBACK: &str = r#"
import asyncio, errno, os, socket, threading
def refused(address, family=socket.AF_INET):
    s = socket.socket(family)
    try: s.connect(address)
    except OSError as e: return e.errno
    return 0
assert refused(("127.0.0.1", PORT)) == errno.ECONNREFUSED
assert refused(("::1", PORT), socket.AF_INET6) == errno.ECONNREFUSED
assert refused(("192.0.2.1", 80)) == errno.ENETUNREACH
assert refused(("2001:db8::1", 80), socket.AF_INET6) == errno.ENETUNREACH
def echo(listener):
    peer, _ = listener.accept()
    assert peer.getsockname()[1] == listener.getsockname()[1]
    assert peer.getsockname()[0] in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), peer.getsockname()
    peer.sendall(peer.recv(99)); peer.close()
def pair(family, bind, connect):
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((bind, 0)); listener.listen()
    name = listener.getsockname()
    assert name[0] == bind, name
    thread = threading.Thread(target=echo, args=(listener,)); thread.start()
    c = socket.create_connection((connect, name[1]), timeout=5)
    assert c.getpeername()[:2] == (connect, name[1]) or connect == "localhost", c.getpeername()
    assert c.getsockname()[0] in ("127.0.0.1", "::1", "::ffff:127.0.0.1"), c.getsockname()
    c.sendall(b"hi"); assert c.recv(99) == b"hi"; assert c.recv(99) == b""
    thread.join(); listener.close()
    assert refused((name[0] if name[0] != "0.0.0.0" else "127.0.0.1", name[1]), family) == errno.ECONNREFUSED
pair(socket.AF_INET, "127.0.0.1", "127.0.0.1")
pair(socket.AF_INET, "0.0.0.0", "127.0.0.1")
pair(socket.AF_INET, "127.0.0.1", "localhost")
pair(socket.AF_INET6, "::1", "::1")
pair(socket.AF_INET6, "::", "127.0.0.1")
pair(socket.AF_INET6, "::", "::1")
# A port that was free a moment ago is free.
s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
s = socket.socket(); s.bind(("127.0.0.1", port)); s.listen(); s.close()
# A listener that was never bound is no listener of the host.
s = socket.socket(); s.listen(); port = s.getsockname()[1]
socket.create_connection(("127.0.0.1", port)).close()
# Both families at one port, and connections that aren't waited for.
async def main():
    async def serve(reader, writer):
        writer.write(await reader.read(9)); await writer.drain(); writer.close()
    server = await asyncio.start_server(serve, "localhost", 0)
    for s in server.sockets:
        host, port = s.getsockname()[:2]
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"x"); assert await reader.read(9) == b"x"; writer.close()
        assert writer.get_extra_info("peername")[:2] == (host, port)
    try:
        await asyncio.open_connection("127.0.0.1", PORT)
        raise SystemExit("reached")
    except ConnectionRefusedError: pass
asyncio.run(main())
for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
    try: socket.socket(socket.AF_INET, kind); raise SystemExit("made")
    except PermissionError: pass
try: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); raise SystemExit("made")
except PermissionError: pass
s = socket.socket()
try: s.sendto(b"x", 0x20000000, ("127.0.0.1", PORT)); raise SystemExit("sent")
except OSError as e: assert e.errno == errno.EOPNOTSUPP, e
"#;

#[test]
fn servers_of_other_languages_work() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&landlock()).await;
        let node = r"
const http = require('http');
const server = http.createServer((q, a) => a.end('hi')).listen(0, () => {
  http.get({ port: server.address().port, host: 'localhost' }, (a) => {
    a.on('data', (d) => console.log(String(d))); a.on('end', () => server.close());
  }).on('error', (e) => { console.log(e); process.exit(1); });
});
";
        if fixture.run(&sandbox, "command -v node").await.0.exit_code == Some(0) {
            let (ended, output) = fixture.run(&sandbox, &format!("node -e \"{node}\"")).await;
            assert_eq!((ended.exit_code, output.trim()), (Some(0), "hi"));
        }
    });
}

#[test]
fn unix_sockets_of_the_host_are_reached_when_listed() {
    block_on(async {
        let fixture = Fixture::new();
        let path = fixture.outside().join("service.sock");
        let host = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let connect = |path: &Path| {
            python(&format!(
                "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({:?})\nprint('in')",
                path.display().to_string()
            ))
        };
        let sandbox = fixture.sandbox(&landlock()).await;
        let (ended, output) = fixture.run(&sandbox, &connect(&path)).await;
        assert!(ended.exit_code == Some(1) && output.contains("PermissionError"), "{output}");
        let (ended, output) = fixture.run(&sandbox, &python(UNIX)).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");

        for network in [Network::None, Network::Full] {
            let profile = Profile { unix_sockets: vec![path.clone()], network, ..landlock() };
            let sandbox = fixture.sandbox(&profile).await;
            let (ended, output) = fixture.run(&sandbox, &connect(&path)).await;
            assert_eq!(ended.exit_code, Some(0), "{output}");
            drop(host.accept().unwrap());
        }
        let full = fixture.sandbox(&Profile { network: Network::Full, ..landlock() }).await;
        let (ended, output) = fixture.run(&full, &connect(&path)).await;
        assert!(ended.exit_code == Some(1) && output.contains("PermissionError"), "{output}");
    });
}

const UNIX: &str = r#"
import os, socket, threading, multiprocessing, errno
def talk(family_address):
    l = socket.socket(socket.AF_UNIX); l.bind(family_address); l.listen()
    assert l.getsockname() in (family_address, family_address.encode() if isinstance(family_address, str) else family_address)
    t = threading.Thread(target=lambda: l.accept()[0].sendall(b"x")); t.start()
    c = socket.socket(socket.AF_UNIX); c.connect(family_address); assert c.recv(9) == b"x"; t.join()
    try: socket.socket(socket.AF_UNIX).connect("/nowhere"); raise SystemExit(1)
    except FileNotFoundError: pass
os.umask(0o077)
talk("own.sock")
assert os.stat("own.sock").st_mode & 0o777 == 0o700, oct(os.stat("own.sock").st_mode)
talk(os.environ["TMPDIR"] + "/own.sock")
talk(b"\0horseman-test")
# A queue that is full is waited for.
l = socket.socket(socket.AF_UNIX); l.bind("full.sock"); l.listen(0)
def many():
    for _ in range(4): socket.socket(socket.AF_UNIX).connect("full.sock")
t = threading.Thread(target=many); t.start()
for _ in range(4): l.accept()
t.join()
try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); raise SystemExit(2)
except PermissionError: pass
"#;

/// A thread exchanges the address and the descriptor of a connection while another connects.
#[test]
fn a_changing_address_reaches_no_socket_of_the_host() {
    block_on(async {
        let fixture = Fixture::new();
        let path = fixture.outside().join("h.sock");
        let host = UnixListener::bind(&path).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let sandbox = fixture.sandbox(&landlock()).await;
        let text = python(&format!(
            r#"
import ctypes, os, socket, struct, threading, time
libc = ctypes.CDLL(None)
own = socket.socket(socket.AF_UNIX); own.bind("o.sock"); own.listen(9999)
good = struct.pack("H", 1) + b"o.sock" + bytes(102)
bad = struct.pack("H", 1) + {path:?}.encode().ljust(108, b"\0")
inet = (struct.pack("=H", 2) + struct.pack(">H", {port}) + bytes([127, 0, 0, 1])).ljust(110, b"\0")
buffer = ctypes.create_string_buffer(good, 110)
stop = time.time() + 2
def change():
    while time.time() < stop:
        for value in (bad, good, inet): ctypes.memmove(buffer, value, 110)
def swap():
    while time.time() < stop:
        s = socket.socket(socket.AF_UNIX); t = socket.socket()
        os.dup2(s.fileno(), 50); os.dup2(t.fileno(), 50); s.close(); t.close()
def connect():
    while time.time() < stop:
        s = socket.socket(socket.AF_UNIX)
        libc.connect(s.fileno(), buffer, 110); libc.connect(50, buffer, 110); s.close()
threads = [threading.Thread(target=t) for t in (change, swap, connect, connect)]
[t.start() for t in threads]; [t.join() for t in threads]
"#,
            path = path.display().to_string()
        ));
        let (ended, output) = fixture.run(&sandbox, &text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        host.set_nonblocking(true).unwrap();
        tcp.set_nonblocking(true).unwrap();
        assert!(host.accept().is_err() && tcp.accept().is_err(), "the host was reached");
    });
}

#[test]
fn shared_memory_is_private() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&landlock()).await;
        let text = python(
            r#"
import multiprocessing as m
from multiprocessing import shared_memory
def add(lock, value):
    with lock: value.value += 1
if __name__ == "__main__":
    context = m.get_context("fork")
    lock, value = context.Lock(), context.Value("i", 0)
    workers = [context.Process(target=add, args=(lock, value)) for _ in range(4)]
    [w.start() for w in workers]; [w.join() for w in workers]
    assert value.value == 4
    s = shared_memory.SharedMemory("horseman-shm-test", create=True, size=99)
    s.buf[0] = 7
    t = shared_memory.SharedMemory("horseman-shm-test"); assert t.buf[0] == 7
    t.close(); s.close(); s.unlink()
    with context.Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
"#,
        );
        let (ended, output) = fixture.run(&sandbox, &text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        assert!(!Path::new("/dev/shm/horseman-shm-test").exists());
    });
}

#[test]
fn attributes_outside_stay() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = fixture.sandbox(&landlock()).await;
        let target = fixture.outside().join("target.txt");
        let before = fs::metadata(&target).unwrap();
        let path = target.display();
        let attacks = [
            format!("chmod 777 {path}"),
            format!("touch -d 2001-01-01 {path}"),
            format!("chown $(id -u):$(id -g) {path}"),
            format!("ln -s {path} l && chmod 777 l"),
            format!("cd /proc/self/root/{path}/.. && chmod 777 target.txt"),
            format!("python3 -c 'import os; os.fchmod(os.open(\"{path}\", 0), 0o777)'"),
            format!("python3 -c 'import os; os.utime(os.open(\"{path}\", 0), (1, 1))'"),
            format!("python3 -c 'import os; os.setxattr(\"{path}\", \"user.x\", b\"1\")'"),
            format!("python3 -c 'import os; os.utime(\"{path}\", (1, 1), follow_symlinks=False)'"),
            format!(
                "python3 -c 'import os; os.chmod(\"target.txt\", 0o777, dir_fd=os.open(\"{}\", 0))'",
                fixture.outside().display()
            ),
            "chmod u+s /bin/true".to_owned(),
        ];
        let attacks: Vec<&str> = attacks.iter().map(String::as_str).collect();
        all_fail(&fixture, &sandbox, &attacks).await;
        let after = fs::metadata(&target).unwrap();
        assert_eq!((before.mode(), before.ctime_nsec()), (after.mode(), after.ctime_nsec()));
        let work = [
            "echo x > f && chmod 600 f && chown $(id -u):$(id -g) f && touch -d 2001-01-01 f",
            "python3 -c 'import os; os.fchmod(os.open(\"f\", 0), 0o640); os.utime(\"f\", ns=(5, 7))'",
            "[ $(stat -c %a f) = 640 ]",
            "python3 -c 'import os; fd = os.memfd_create(\"m\"); os.fchmod(fd, 0o600)'",
            "python3 -c 'import os; os.setxattr(\"f\", \"user.x\", b\"1\"); os.removexattr(\"f\", \"user.x\")' \
             || [ \"$(stat -f -c %T .)\" = tmpfs ]",
        ];
        all_succeed(&fixture, &sandbox, &work).await;
    });
}

#[test]
fn processes_of_root_are_counted() {
    block_on(async {
        let fixture = Fixture::new();
        let limits = Limits { processes: Some(60), ..Limits::default() };
        let sandbox = fixture.sandbox(&Profile { limits, ..landlock() }).await;
        let text = python(
            r#"
import os, time
made = 0
for _ in range(200):
    try: pid = os.fork()
    except BlockingIOError: break
    if pid == 0: time.sleep(60); os._exit(0)
    made += 1
assert 20 < made < 60, made
for _ in range(3):
    os.system("pkill -P %d sleep-nothing" % os.getpid())
"#,
        );
        let (ended, output) = fixture.run(&sandbox, &text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        // They were ended, and there is room again.
        let text = "for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; (sleep 0 | cat)";
        all_succeed(&fixture, &sandbox, &[text; 12]).await;
    });
}

#[test]
fn nothing_outlives_the_supervisor_or_the_starter() {
    block_on(async {
        for name in ["supervisor", "starter"] {
            let fixture = Fixture::new();
            let sandbox = fixture.sandbox(&landlock()).await;
            let text = "setsid sleep 60 & echo $! > pid; sleep 60";
            let running = fixture
                .shell(&sandbox, text)
                .start(Stdin::Null, Capture::default(), None)
                .await
                .unwrap();
            let pid = pid_in(&fixture.place.workspace.join("pid"));
            let parent = |pid: u32| -> u32 {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
                stat.rsplit_once(')').unwrap().1.split(' ').nth(2).unwrap().parse().unwrap()
            };
            let reaper = parent(running.pid());
            let starter = parent(reaper);
            let supervisor = parent(starter);
            let killed = if name == "supervisor" { supervisor } else { starter };
            let killed = nix::unistd::Pid::from_raw(i32::try_from(killed).unwrap());
            nix::sys::signal::kill(killed, nix::sys::signal::Signal::SIGKILL).unwrap();
            for pid in [pid, running.pid(), reaper, starter, supervisor] {
                wait_for(name, || !is_alive(pid));
            }
            drop((running, sandbox));
            assert_eq!(end_leftovers(Path::new(&fixture.place.marker)), 0, "{name}");
        }
    });
}

#[test]
fn a_program_that_hides_itself_is_served() {
    block_on(async {
        let fixture = Fixture::new();
        let sandbox = in_place(&fixture, true).await;
        let text = python(
            "import ctypes\nassert ctypes.CDLL(None).prctl(4, 0) == 0\nopen('f', 'w').write('x')",
        );
        let (ended, output) = fixture.run(&sandbox, &text).await;
        assert_eq!(ended.exit_code, Some(0), "{output}");
        // Killed while it waits for the other end of a FIFO, with others served meanwhile.
        let text = "mkfifo w; (exec 9> w) & (exec 8< w2) & sleep 0.1; echo x > g; kill -9 %1; wait %1; \
                    for i in $(seq 40); do (timeout 5 bash -c 'echo x > w') & done; echo y > h && \
                    kill $(jobs -p); wait; cat g h";
        all_succeed(&fixture, &sandbox, &[text]).await;
    });
}

#[test]
#[ignore = "a measurement"]
fn what_a_supervised_call_costs() {
    block_on(async {
        let fixture = Fixture::new();
        let text = python(
            r#"
import os, socket, time
def cost(what, act, n=3000):
    times = []
    for _ in range(n):
        start = time.perf_counter(); act(); times.append(time.perf_counter() - start)
    times.sort()
    print(f"{what}: p5 {times[n//20]*1e6:.1f} us, median {times[n//2]*1e6:.1f} us")
open("f", "w").close()
cost("open for writing", lambda: os.close(os.open("f", os.O_WRONLY)))
cost("open, making", lambda: os.close(os.open("f", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)))
cost("open for reading", lambda: os.close(os.open("f", os.O_RDONLY)))
cost("open for reading outside", lambda: os.close(os.open("/etc/passwd", os.O_RDONLY)))
cost("chmod", lambda: os.chmod("f", 0o600))
cost("socket", lambda: socket.socket().close(), 1000)
cost("fork", lambda: os.waitpid(os.fork() or os._exit(0), 0), 500)
"#,
        );
        let plain = fixture.sandbox(&landlock()).await;
        println!("nothing carved out:\n{}", fixture.run(&plain, &text).await.1);
        println!("carved out:\n{}", fixture.run(&in_place(&fixture, false).await, &text).await.1);
        fs::remove_file(fixture.place.workspace.join("second-name")).unwrap();
        fs::remove_file(fixture.place.workspace.join("second-secret")).unwrap();
        println!("and hidden:\n{}", fixture.run(&in_place(&fixture, true).await, &text).await.1);
    });
}
