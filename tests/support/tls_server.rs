//! A TLS server on loopback that gives one answer to each connection.
//!
//! In: an answer's bytes. Out: a base URL and the PEM text of the certificate to trust.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// A certificate of its own for 127.0.0.1, with its key.
pub(crate) fn certificate() -> CertifiedKey<rcgen::KeyPair> {
    generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap()
}

/// Answers `connections` connections with `answer`, a whole HTTP answer; returns the base URL.
pub(crate) fn serve(
    certified: &CertifiedKey<rcgen::KeyPair>,
    answer: Vec<u8>,
    connections: usize,
) -> Fallible<String> {
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], PrivateKeyDer::from(key))?;
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("https://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().take(connections).flatten() {
            // A client that breaks the handshake off is part of the tests.
            drop(reply(stream, &config, &answer));
        }
    });
    Ok(url)
}

fn reply(stream: TcpStream, config: &Arc<ServerConfig>, answer: &[u8]) -> Fallible<()> {
    let connection = ServerConnection::new(Arc::clone(config))?;
    let mut input = BufReader::new(StreamOwned::new(connection, stream));
    let mut length = 0;
    loop {
        let mut line = String::new();
        input.read_line(&mut line)?;
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse()?;
        }
        if line.is_empty() {
            break;
        }
    }
    input.read_exact(&mut vec![0; length])?;
    let stream = input.get_mut();
    stream.write_all(answer)?;
    stream.conn.send_close_notify();
    stream.flush()?;
    Ok(())
}
