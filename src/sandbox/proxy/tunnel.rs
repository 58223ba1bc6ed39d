//! Tunnels: bytes in both directions, after a look at the first ones.
//!
//! In: a client, a server, and the names that a TLS client may ask for. Out: their bytes moved.

use std::collections::BTreeSet;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dial::Dialler;
use super::hello::{self, Hello};
use super::limits::Meter;
use crate::policy::hosts::{Host, Protocol, Target};

/// Bytes moved at once. Measured on the loopback: more is not faster.
const PIECE: usize = 64 << 10;
/// What a TLS client is told when it asks for another name: a fatal alert, `unrecognized_name`;
/// RFC 8446 §6.2.
const ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

/// A client, and what it sent already.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) first: Vec<u8>,
}

/// What a tunnel is for.
pub(super) struct Aim<'a> {
    pub(super) target: &'a Target,
    pub(super) protocol: Protocol,
    /// Names that a TLS client must ask for; empty: any.
    pub(super) names: &'a BTreeSet<String>,
}

/// Moves bytes until both sides have ended, or a limit is reached.
pub(super) async fn run(
    mut client: Client,
    mut server: TcpStream,
    aim: Aim<'_>,
    dialler: &Dialler,
) -> io::Result<()> {
    if !both_ways(&mut client, &mut server, &aim, dialler).await? {
        // The client may be gone, or be told something by the server before.
        drop(client.stream.write_all(&ALERT).await);
        drop(client.stream.shutdown().await);
    }
    Ok(())
}

/// Whether the client was let through; moves its bytes then.
async fn both_ways(
    client: &mut Client,
    server: &mut TcpStream,
    aim: &Aim<'_>,
    dialler: &Dialler,
) -> io::Result<bool> {
    let meter = Meter::new(&dialler.limits);
    let (mut from_client, mut to_client) = client.stream.split();
    let (mut from_server, mut to_server) = server.split();
    let up = async {
        let mut first = std::mem::take(&mut client.first);
        if !aim.names.is_empty() {
            let looked = first_words(&mut from_client, &mut first, &dialler.limits);
            if let Some(wrong) = wrong_name(looked.await?, aim) {
                dialler.deny(aim.target, aim.protocol, wrong).await;
                return Ok::<bool, io::Error>(false);
            }
        }
        meter.add(first.len())?;
        meter.step(to_server.write_all(&first)).await?;
        copy(&mut from_client, &mut to_server, &meter).await?;
        Ok(true)
    };
    let down = copy(&mut from_server, &mut to_client, &meter);
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    tokio::select! {
        ended = &mut up => {
            let is_let = ended?;
            if is_let {
                down.await?;
            }
            Ok(is_let)
        }
        ended = &mut down => {
            ended?;
            up.await
        }
    }
}

/// Reads as much as tells what the client speaks. A client that waits for the server's first words
/// is given as long as it likes: what it sends then is looked at.
async fn first_words(
    from: &mut (impl AsyncRead + Unpin),
    first: &mut Vec<u8>,
    limits: &super::limits::Limits,
) -> io::Result<Hello> {
    loop {
        let seen = hello::read(first);
        if seen != Hello::Partial {
            return Ok(seen);
        }
        let at_most = if first.is_empty() { limits.idle } else { limits.head };
        let read = timeout(at_most, from.read_buf(first)).await;
        if read.map_err(|_| io::ErrorKind::TimedOut)?? == 0 {
            // A beginning of TLS that never goes on says nothing to the server either.
            return Ok(if first.is_empty() { Hello::Other } else { Hello::Broken });
        }
    }
}

/// Why a hello isn't let through.
fn wrong_name(hello: Hello, aim: &Aim<'_>) -> Option<String> {
    match hello {
        Hello::Partial | Hello::Other => None,
        Hello::Broken => Some("its TLS can't be read".to_owned()),
        Hello::Whole(None) => Some("its TLS names no host".to_owned()),
        Hello::Whole(Some(name)) => {
            let asked = Host::parse(&name);
            let is_right = matches!(&asked, Some(Host::Name(name)) if aim.names.contains(name));
            let shown = crate::text::clip(&name, 100);
            (!is_right).then(|| format!("its TLS asks for `{shown}`"))
        }
    }
}

/// Copies to the end, and passes the end on.
pub(super) async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    meter: &Meter,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = meter.step(from.read(&mut piece)).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        meter.add(count)?;
        meter.step(to.write_all(&piece[..count])).await?;
    }
}
