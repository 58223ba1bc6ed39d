//! The proxy against real sockets of the loopback, with a resolver of its own.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener, UdpSocket as StdUdp};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;

use super::dial::{Lookup, Resolve};
use super::{Door, DoorSocket, Limits, NAMES_PORT, Note, Proxy, Purpose, Requested};
use crate::policy::hosts::HostRules;
use crate::profile::{Forward, PROXY_PORT};

/// Answers from a table; each lookup of a name takes the next of its answers, and stays at the last.
pub(super) struct Table {
    names: BTreeMap<String, Vec<Vec<IpAddr>>>,
    lookups: AtomicUsize,
}

impl Resolve for Table {
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        let at = self.lookups.fetch_add(1, Ordering::SeqCst);
        let found = self.names.get(name).and_then(|all| all.get(at).or(all.last())).cloned();
        Box::pin(async move { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}

pub(super) struct Stand {
    pub(super) at: SocketAddr,
    names: SocketAddr,
    log: Arc<Mutex<Vec<Requested>>>,
    table: Arc<Table>,
    _proxy: Proxy,
}

#[derive(Default)]
pub(super) struct Setting<'a> {
    pub(super) allow: &'a [&'a str],
    pub(super) deny: &'a [&'a str],
    pub(super) names: &'a [(&'a str, &'a [&'a str])],
    pub(super) env: &'a [(&'a str, String)],
    pub(super) limits: Limits,
}

impl Stand {
    pub(super) fn new(setting: &Setting<'_>) -> Self {
        let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let rules = HostRules::new(&texts(setting.allow), &texts(setting.deny)).unwrap();
        let answers = |list: &&[&str]| {
            list.iter().map(|it| vec![it.parse().unwrap()]).collect::<Vec<Vec<IpAddr>>>()
        };
        let names = setting.names.iter().map(|(name, list)| ((*name).to_owned(), answers(list)));
        let table = Arc::new(Table { names: names.collect(), lookups: AtomicUsize::new(0) });
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let udp = StdUdp::bind("127.0.0.1:0").unwrap();
        let names = udp.local_addr().unwrap();
        let doors = vec![
            Door { port: PROXY_PORT, socket: DoorSocket::Tcp(listener) },
            Door { port: NAMES_PORT, socket: DoorSocket::Udp(udp) },
        ];
        let (sender, mut notes) = mpsc::unbounded_channel::<Note>();
        let log = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&log);
        tokio::spawn(async move {
            while let Some(note) = notes.recv().await {
                written.lock().unwrap().push(note.requested);
                note.written.send(()).unwrap();
            }
        });
        let env = setting.env.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let purpose = Purpose { rules, forwards: &[], env: &env.collect(), log: Some(sender) };
        let proxy = Proxy::serve_with(doors, purpose, (table.clone(), setting.limits)).unwrap();
        Self { at, names, log, table, _proxy: proxy }
    }

    pub(super) fn rules(&self) -> Vec<(bool, String)> {
        let log = self.log.lock().unwrap();
        log.iter().map(|it| (it.is_allowed, it.rule.clone())).collect()
    }
}

/// Sends bytes and reads to the end, within 5 s.
pub(super) async fn talk(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    // A reset is an end as well.
    drop(tokio::time::timeout(Duration::from_secs(5), read).await.expect("no end"));
    String::from_utf8_lossy(&answer).into_owned()
}

/// A server that keeps what it got and answers each connection with `answer`, when `until` came.
async fn server(until: &'static str, answer: &'static str) -> (u16, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let got = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&got);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let kept = Arc::clone(&kept);
            tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 16];
                let mut all = String::new();
                while !all.ends_with(until) {
                    match stream.read(&mut bytes).await {
                        Ok(count) if count > 0 => {
                            let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                            all.push_str(&text);
                            kept.lock().unwrap().push_str(&text);
                        }
                        _ => return,
                    }
                }
                drop(stream.write_all(answer.as_bytes()).await);
                // It ignores `Connection: close`, as some do.
                drop(stream.read(&mut bytes).await);
            });
        }
    });
    (port, got)
}

const OPEN: Setting<'_> = Setting {
    allow: &["a.example", "127.0.0.0/8"],
    deny: &[],
    names: &[("a.example", &["127.0.0.1"])],
    env: &[],
    limits: Limits {
        connect: Duration::from_secs(2),
        head: Duration::from_millis(500),
        idle: Duration::from_secs(5),
        bytes: 1 << 20,
        connections: 64,
        denials: 3,
    },
};

#[tokio::test]
async fn a_request_is_relayed_and_nothing_behind_it() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: x\r\n\r\nokHTTP/1.1 200 late";
    let (port, got) = server("abc", answer).await;
    let stand = Stand::new(&OPEN);
    let asked = format!(
        "POST http://a.example:{port}/p HTTP/1.1\r\nHost: a.example:{port}\r\n\
         Content-Length: 3\r\n\r\nabcGET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n"
    );
    let answer = talk(stand.at, asked.as_bytes()).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
    let got = got.lock().unwrap().clone();
    assert!(got.starts_with("POST /p HTTP/1.1\r\n") && got.ends_with("\r\n\r\nabc"), "{got}");
    assert_eq!(stand.rules(), [(true, "`a.example` in permissions.network.allow".to_owned())]);
}

#[tokio::test]
async fn chunks_and_interim_answers_are_relayed() {
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                  2;x\r\nok\r\n0\r\nT: u\r\n\r\n";
    let (port, got) = server("0\r\n\r\n", answer).await;
    let stand = Stand::new(&OPEN);
    let asked = format!(
        "POST http://a.example:{port}/ HTTP/1.1\r\nHost: a.example:{port}\r\n\
         Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n"
    );
    let answer = talk(stand.at, asked.as_bytes()).await;
    assert!(answer.ends_with("Connection: close\r\n\r\n2\r\nok\r\n0\r\n\r\n"), "{answer}");
    assert!(got.lock().unwrap().ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
}

#[tokio::test]
async fn a_denied_host_is_named_with_its_rule() {
    let stand = Stand::new(&Setting { deny: &["*.evil.example"], ..OPEN });
    for (asked, rule) in [
        ("CONNECT b.example:443 HTTP/1.1\r\n\r\n", "(not in permissions.network.allow)"),
        (
            "CONNECT x.evil.example:443 HTTP/1.1\r\n\r\n",
            "(`*.evil.example` in permissions.network.deny)",
        ),
        (
            "GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "denied b.example:80 (not in",
        ),
    ] {
        let answer = talk(stand.at, asked.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 403 network: denied "), "{answer}");
        assert!(answer.contains(rule), "{answer}");
    }
    // A fourth denial is not recorded: the limit of this stand is three.
    talk(stand.at, b"CONNECT c.example:443 HTTP/1.1\r\n\r\n").await;
    assert_eq!(stand.rules().len(), 3);
    assert!(stand.rules().iter().all(|(is_allowed, _)| !is_allowed));
}

#[tokio::test]
async fn a_name_with_a_private_address_is_denied_and_looked_up_once() {
    // The second lookup would give a listed address, the first one does not.
    let names: &[(&str, &[&str])] = &[("a.example", &["10.0.0.1", "127.0.0.1"])];
    let stand = Stand::new(&Setting { names, ..OPEN });
    let (port, _) = server("\r\n\r\n", "HTTP/1.1 204 x\r\n\r\n").await;
    let asked = format!("CONNECT a.example:{port} HTTP/1.1\r\n\r\n");
    let answer = talk(stand.at, asked.as_bytes()).await;
    assert!(answer.contains("403 network: denied"), "{answer}");
    assert!(answer.contains("its address 10.0.0.1 is private"), "{answer}");
    assert_eq!(stand.table.lookups.load(Ordering::SeqCst), 1);
    // And the other way round: the first answer is the one that is connected to.
    let names: &[(&str, &[&str])] = &[("a.example", &["127.0.0.1", "10.0.0.1"])];
    let stand = Stand::new(&Setting { names, ..OPEN });
    let asked = format!("GET http://a.example:{port}/ HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n");
    assert!(talk(stand.at, asked.as_bytes()).await.starts_with("HTTP/1.1 204"));
    assert_eq!(stand.table.lookups.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn literals_of_the_host_are_denied_in_every_spelling() {
    let (port, got) = server("\r\n\r\n", "HTTP/1.1 204 x\r\n\r\n").await;
    let stand = Stand::new(&Setting { allow: &["*"], limits: Limits::default(), ..OPEN });
    for host in ["127.0.0.1", "0x7f.1", "2130706433", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0"] {
        let asked = format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n");
        let answer = talk(stand.at, asked.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
    }
    assert_eq!(*got.lock().unwrap(), "");
}

#[tokio::test]
async fn smuggled_requests_are_refused() {
    let stand = Stand::new(&OPEN);
    for fields in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: identity\r\n",
        "X: y\r\n z\r\n",
    ] {
        let asked =
            format!("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{fields}\r\nabc");
        let answer = talk(stand.at, asked.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 network: the request is refused: "), "{answer}");
    }
    assert!(stand.rules().is_empty());
}

#[tokio::test]
async fn an_unanswered_request_is_a_bad_gateway() {
    let free = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let stand = Stand::new(&OPEN);
    let answer =
        talk(stand.at, format!("CONNECT a.example:{free} HTTP/1.1\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 502 network: a.example"), "{answer}");
    let (port, _) = server("\r\n\r\n", "nonsense\r\n\r\n").await;
    let asked = format!("GET http://a.example:{port}/ HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n");
    let answer = talk(stand.at, asked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 502 network: a.example"), "{answer}");
}

#[tokio::test]
async fn a_slow_client_is_let_go() {
    let stand = Stand::new(&OPEN);
    let answer = talk(stand.at, b"GET http://a.example/ HT").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(talk(stand.at, b"").await, "");
    assert_eq!(talk(stand.at, &[5, 1]).await, "");
}

#[tokio::test]
async fn more_bytes_than_the_limit_end_the_connection() {
    let long = Box::leak(format!("HTTP/1.1 200 x\r\n\r\n{}", "x".repeat(2 << 20)).into_boxed_str());
    let (port, _) = server("\r\n\r\n", long).await;
    let stand = Stand::new(&OPEN);
    let asked = format!("GET http://a.example:{port}/ HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n");
    let answer = talk(stand.at, asked.as_bytes()).await;
    assert!(answer.len() <= 1 << 20 && answer.len() > 1 << 19, "{}", answer.len());
}

#[tokio::test]
async fn many_connections_wait_for_their_turn() {
    let (port, _) = server("\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let limits = Limits { connections: 4, ..OPEN.limits };
    let stand = Arc::new(Stand::new(&Setting { limits, ..OPEN }));
    let asked: Arc<str> =
        format!("GET http://a.example:{port}/ HTTP/1.1\r\nHost: a.example:{port}\r\n\r\n").into();
    let running: Vec<_> = (0..200)
        .map(|_| {
            let (at, asked) = (stand.at, Arc::clone(&asked));
            tokio::spawn(async move { talk(at, asked.as_bytes()).await })
        })
        .collect();
    for one in running {
        assert!(one.await.unwrap().ends_with("\r\n\r\nok"));
    }
    assert_eq!(stand.rules().len(), 200);
}

#[tokio::test]
async fn socks_connects_by_name_and_says_why_not() {
    let (port, _) = server("ping", "pong").await;
    let stand = Stand::new(&OPEN);
    let asked = |command: u8, host: &[u8]| {
        [&[5, 1, 0, 5, command, 0], host, &port.to_be_bytes(), b"ping"].concat()
    };
    let name = |name: &str| [&[3, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
    for (command, host, answer) in [
        (1, name("a.example"), &b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0pong"[..]),
        (1, vec![1, 127, 0, 0, 1], b"\x05\x00\x05\x00\x00\x01\0\0\0\0\0\0pong"),
        (1, name("b.example"), b"\x05\x00\x05\x02\x00\x01\0\0\0\0\0\0"),
        (1, vec![1, 10, 0, 0, 1], b"\x05\x00\x05\x02\x00\x01\0\0\0\0\0\0"),
        (2, name("a.example"), b"\x05\x00\x05\x07\x00\x01\0\0\0\0\0\0"),
        (3, name("a.example"), b"\x05\x00\x05\x07\x00\x01\0\0\0\0\0\0"),
        (1, name("a b"), b"\x05\x00\x05\x08\x00\x01\0\0\0\0\0\0"),
    ] {
        let mut stream = TcpStream::connect(stand.at).await.unwrap();
        stream.write_all(&asked(command, &host)).await.unwrap();
        let mut got = vec![0; answer.len()];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got, answer, "{command} {host:?}");
    }
    assert!(talk(stand.at, &[5, 1, 2]).await.starts_with('\u{5}'));
}

async fn lookup(at: SocketAddr, name: &str) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut query = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend(label.bytes());
    }
    query.extend([0, 0, 1, 0, 1]);
    socket.send_to(&query, at).await.unwrap();
    let mut answer = vec![0; 600];
    let received = tokio::time::timeout(Duration::from_secs(5), socket.recv(&mut answer));
    let count = received.await.unwrap().unwrap();
    answer.truncate(count);
    answer
}

#[tokio::test]
async fn only_listed_names_are_answered() {
    let names: &[(&str, &[&str])] = &[("a.example", &["127.0.0.1"]), ("c.example", &["10.0.0.1"])];
    let stand =
        Stand::new(&Setting { allow: &["a.example", "127.0.0.1", "c.example"], names, ..OPEN });
    let answer = lookup(stand.names, "a.example").await;
    assert_eq!((answer[3] & 15, &answer[answer.len() - 4..]), (0, &[127, 0, 0, 1][..]));
    assert_eq!(lookup(stand.names, "secret.b.example").await[3] & 15, 3);
    assert_eq!(lookup(stand.names, "c.example").await[3] & 15, 3);
    assert_eq!(stand.table.lookups.load(Ordering::SeqCst), 2, "a denied name is looked up nowhere");
}

#[tokio::test]
async fn an_address_of_the_stub_stands_for_its_name() {
    // 127.0.0.9 is admitted as an address of a name at this one port alone.
    let listener = TcpListener::bind("127.0.0.9:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let literal = format!("127.0.0.9:{}", 53);
    let allow: &[&str] = &["a.example", &literal];
    let names: &[(&str, &[&str])] = &[("a.example", &["127.0.0.9"])];
    let stand = Stand::new(&Setting { allow, names, ..OPEN });
    let asked = format!("CONNECT 127.0.0.9:{port} HTTP/1.1\r\n\r\n");
    assert!(talk(stand.at, asked.as_bytes()).await.starts_with("HTTP/1.1 403"));
    lookup(stand.names, "a.example").await;
    let mut stream = TcpStream::connect(stand.at).await.unwrap();
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 403", "the address is judged for its port again");
}

#[tokio::test]
async fn the_operators_proxy_is_gone_through() {
    let (port, got) = server("\r\n\r\n", "HTTP/1.1 200 ok\r\nContent-Length: 4\r\n\r\npong").await;
    let env = [
        ("HTTPS_PROXY", format!("http://u:p@127.0.0.1:{port}")),
        ("http_proxy", format!("http://127.0.0.1:{port}")),
    ];
    let stand = Stand::new(&Setting { env: &env, ..OPEN });
    let answer = talk(stand.at, b"CONNECT a.example:443 HTTP/1.1\r\n\r\nping").await;
    assert!(answer.ends_with("\r\n\r\npong"), "{answer}");
    assert!(got.lock().unwrap().starts_with(
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\
         Proxy-Authorization: Basic dTpw\r\n\r\n"
    ));
    got.lock().unwrap().clear();
    talk(stand.at, b"GET http://a.example/x HTTP/1.0\r\n\r\n").await;
    assert!(got.lock().unwrap().starts_with("GET http://a.example/x HTTP/1.0\r\n"));
    let answer = talk(stand.at, b"CONNECT b.example:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert_eq!(stand.table.lookups.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_forwarded_service_is_reached_and_its_name_is_the_loopback() {
    let (port, _) = server("ping", "pong").await;
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let doors = vec![Door { port, socket: DoorSocket::Tcp(listener) }];
    let forwards = [Forward { host: "127.0.0.1".to_owned(), port }];
    let rules = HostRules::default();
    let purpose = Purpose { rules, forwards: &forwards, env: &BTreeMap::new(), log: None };
    let proxy = Proxy::serve(doors, purpose).unwrap();
    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(b"ping").await.unwrap();
    let mut got = [0; 4];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"pong");
    drop(proxy);
    assert_eq!(stream.read(&mut got).await.unwrap_or(0), 0, "dropping it closes connections");
    tokio::task::yield_now().await;
    assert!(TcpStream::connect(at).await.is_err(), "dropping it closes doors");
}

#[tokio::test]
async fn without_a_record_nothing_is_let_through() {
    let (port, got) = server("\r\n\r\n", "HTTP/1.1 204 x\r\n\r\n").await;
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let doors = vec![Door { port: PROXY_PORT, socket: DoorSocket::Tcp(listener) }];
    let (sender, notes) = mpsc::unbounded_channel::<Note>();
    drop(notes);
    let rules = HostRules::new(&["127.0.0.1".to_owned()], &[]).unwrap();
    let purpose = Purpose { rules, forwards: &[], env: &BTreeMap::new(), log: Some(sender) };
    let _proxy = Proxy::serve(doors, purpose).unwrap();
    let asked = format!("GET http://127.0.0.1:{port}/ HTTP/1.0\r\n\r\n");
    assert!(talk(at, asked.as_bytes()).await.contains("the record is closed"), "P4");
    assert_eq!(*got.lock().unwrap(), "");
}
