//! TLS through the proxy: the name that a client asks for must be the one that was allowed.

use std::io;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use super::Limits;
use super::tests::{Setting, Stand};

struct Server {
    port: u16,
    roots: rustls::RootCertStore,
}

/// Answers `pong` to `ping`, for any name.
async fn server(names: &[&str]) -> Server {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let certificate = CertificateDer::from(made.cert.der().to_vec());
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut got = [0; 4];
                if stream.read_exact(&mut got).await.is_ok() {
                    drop(stream.write_all(b"pong").await);
                    drop(stream.shutdown().await);
                }
            });
        }
    });
    Server { port, roots }
}

impl Server {
    async fn connect(
        &self,
        stream: TcpStream,
        name: &str,
        has_name: bool,
    ) -> io::Result<TlsStream<TcpStream>> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.enable_sni = has_name;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

async fn tunnel(stand: &Stand, host: &str, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(stand.at).await.unwrap();
    let asked = format!("CONNECT {host}:{port} HTTP/1.1\r\n\r\n");
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", answer.escape_ascii());
    stream
}

fn stand() -> Stand {
    Stand::new(&Setting {
        allow: &["a.example", "127.0.0.1"],
        names: &[("a.example", &["127.0.0.1"])],
        limits: Limits::default(),
        ..Setting::default()
    })
}

async fn speaks(mut stream: TlsStream<TcpStream>) -> bool {
    stream.write_all(b"ping").await.unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.unwrap();
    got == b"pong"
}

#[tokio::test]
async fn the_allowed_name_passes() {
    let (server, stand) = (server(&["a.example"]).await, stand());
    let stream = tunnel(&stand, "A.example.", server.port).await;
    assert!(speaks(server.connect(stream, "a.example", true).await.unwrap()).await);
    assert_eq!(stand.rules().len(), 1);
}

#[tokio::test]
async fn another_name_is_refused_before_the_server_sees_it() {
    let (server, stand) = (server(&["b.example"]).await, stand());
    let stream = tunnel(&stand, "a.example", server.port).await;
    let error = server.connect(stream, "b.example", true).await.unwrap_err();
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    let rules = stand.rules();
    assert_eq!(rules[1], (false, "its TLS asks for `b.example`".to_owned()));
}

#[tokio::test]
async fn no_name_is_refused_for_a_name_and_fine_for_an_address() {
    let (server, stand) = (server(&["a.example", "127.0.0.1"]).await, stand());
    let stream = tunnel(&stand, "a.example", server.port).await;
    assert!(server.connect(stream, "a.example", false).await.is_err());
    assert_eq!(stand.rules()[1], (false, "its TLS names no host".to_owned()));
    let stream = tunnel(&stand, "127.0.0.1", server.port).await;
    assert!(speaks(server.connect(stream, "127.0.0.1", true).await.unwrap()).await);
}

#[tokio::test]
async fn a_protocol_in_which_the_server_speaks_first_works() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let greeter = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 hello\r\n").await.unwrap();
        let mut got = [0; 6];
        stream.read_exact(&mut got).await.unwrap();
        got
    });
    let stand = stand();
    let mut stream = tunnel(&stand, "a.example", port).await;
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).await.unwrap();
    stream.write_all(b"HELO\r\n").await.unwrap();
    assert_eq!(&greeter.await.unwrap(), b"HELO\r\n");
}

/// Not a test of anything: `cargo test --release --lib throughput -- --ignored --nocapture`.
#[tokio::test]
#[ignore = "a measurement"]
async fn throughput() {
    const TOTAL: usize = 4 << 30;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = listener.into_std().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let piece = vec![7; 1 << 18];
                let mut left = TOTAL;
                while left > 0 && stream.write_all(&piece).await.is_ok() {
                    left = left.saturating_sub(piece.len());
                }
            }
        });
    });
    let stand = stand();
    for through in [false, true] {
        let mut stream = if through {
            tunnel(&stand, "127.0.0.1", port).await
        } else {
            TcpStream::connect(("127.0.0.1", port)).await.unwrap()
        };
        let clock = crate::clock::Clock::start();
        let (mut piece, mut got) = (vec![0; 1 << 18], 0);
        while got < TOTAL {
            let count = stream.read(&mut piece).await.unwrap();
            assert!(count > 0);
            got += count;
        }
        let ms = clock.at_ms().max(1);
        println!("through the proxy: {through}, {} MiB/s", (got >> 20) as u64 * 1000 / ms);
    }
}
