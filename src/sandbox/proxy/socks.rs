//! The proxy's SOCKS5: `CONNECT` without credentials. RFC 1928.
//!
//! In: a client's connection. Out: a tunnel, or a code that says why not.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::dial::{Dialler, Refused};
use super::tunnel::{self, Aim, Client};
use crate::policy::hosts::{Host, Protocol, Target};

const VERSION: u8 = 5;
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 4;
const TOO_LATE: u8 = 6;
const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;

/// Serves one connection.
pub(super) async fn serve(mut stream: TcpStream, dialler: &Dialler) -> io::Result<()> {
    let asked = timeout(dialler.limits.head, asked(&mut stream)).await;
    let target = match asked.map_err(|_| io::ErrorKind::TimedOut)?? {
        Ok(target) => target,
        Err(code) => return answer(&mut stream, code).await,
    };
    match dialler.dial(&target, Protocol::Socks).await {
        Err(refused) => {
            let code = match refused {
                Refused::Denied(_) => NOT_ALLOWED,
                Refused::Unreachable(_) => UNREACHABLE,
                Refused::TimedOut => TOO_LATE,
            };
            answer(&mut stream, code).await
        }
        Ok(dialled) => {
            answer(&mut stream, 0).await?;
            let aim = Aim { target: &target, protocol: Protocol::Socks, names: &dialled.names };
            let client = Client { stream, first: Vec::new() };
            tunnel::run(client, dialled.stream, aim, dialler).await
        }
    }
}

/// Reads what is asked for; a code is the answer to what isn't served.
async fn asked(stream: &mut TcpStream) -> io::Result<Result<Target, u8>> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    let [version, count] = read(stream).await?;
    let mut methods = vec![0; usize::from(count)];
    stream.read_exact(&mut methods).await?;
    if version != VERSION {
        return Err(wrong());
    }
    if !methods.contains(&0) {
        stream.write_all(&[VERSION, 0xff]).await?;
        return Err(wrong());
    }
    stream.write_all(&[VERSION, 0]).await?;
    let [version, command, _, kind] = read(stream).await?;
    if version != VERSION {
        return Err(wrong());
    }
    let host = match kind {
        1 => Some(Host::from(IpAddr::V4(Ipv4Addr::from(read::<4>(stream).await?)))),
        4 => Some(Host::from(IpAddr::V6(Ipv6Addr::from(read::<16>(stream).await?)))),
        3 => {
            let [length] = read(stream).await?;
            let mut name = vec![0; usize::from(length)];
            stream.read_exact(&mut name).await?;
            std::str::from_utf8(&name).ok().and_then(Host::parse)
        }
        _ => return Ok(Err(NO_SUCH_ADDRESS)),
    };
    let port = u16::from_be_bytes(read(stream).await?);
    if command != 1 {
        return Ok(Err(NO_SUCH_COMMAND));
    }
    match host {
        Some(host) if port != 0 => Ok(Ok(Target { host, port })),
        Some(_) | None => Ok(Err(NO_SUCH_ADDRESS)),
    }
}

async fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn answer(stream: &mut TcpStream, code: u8) -> io::Result<()> {
    stream.write_all(&[VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    if code != 0 {
        stream.shutdown().await?;
    }
    Ok(())
}
