//! The stub: answers lookups of names that may be reached, and of nothing else.
//!
//! In: queries by UDP and TCP. Out: answers. A name that the task forwards a service of is the
//! attempt's own loopback.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::dial::{Dialler, Refused};
use super::message::{self, Code, Kind, Query};
use crate::policy::hosts::{Host, Protocol, Target};

/// Lookups at one time; ours.
const AT_ONCE: usize = 64;
/// Most bytes of a query; ours. RFC 1035 has 512.
const QUERY: usize = 1 << 12;

/// The stub.
pub(super) struct Stub {
    pub(super) dialler: Arc<Dialler>,
    /// Names of forwarded services.
    pub(super) own: BTreeSet<String>,
}

impl Stub {
    /// Serves datagrams for ever.
    pub(super) async fn datagrams(self: Arc<Self>, socket: UdpSocket) {
        let (socket, places) = (Arc::new(socket), Arc::new(Semaphore::new(AT_ONCE)));
        let mut running = JoinSet::new();
        let mut buffer = vec![0; QUERY];
        loop {
            // An error belongs to one datagram, such as an answer that nobody waited for.
            let Ok((count, from)) = socket.recv_from(&mut buffer).await else { continue };
            while running.try_join_next().is_some() {}
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let (stub, socket) = (Arc::clone(&self), Arc::clone(&socket));
            let query = buffer[..count].to_vec();
            running.spawn(async move {
                if let Some(answer) = stub.answer(&query).await {
                    // A client that is gone needs no answer.
                    drop(socket.send_to(&answer, from).await);
                }
                drop(place);
            });
        }
    }

    /// Serves one connection.
    pub(super) async fn connection(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let length = timeout(self.dialler.limits.head, stream.read_u16()).await;
            let length = usize::from(length.map_err(|_| io::ErrorKind::TimedOut)??);
            if length > QUERY {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut query = vec![0; length];
            timeout(self.dialler.limits.head, stream.read_exact(&mut query)).await??;
            let Some(answer) = self.answer(&query).await else { return Ok(()) };
            stream.write_u16(u16::try_from(answer.len()).unwrap_or(0)).await?;
            stream.write_all(&answer).await?;
        }
    }

    async fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        match message::query(bytes) {
            Err(answer) => answer,
            Ok(query) => {
                let (code, addresses) = self.find(&query).await;
                Some(query.answer(code, &addresses))
            }
        }
    }

    async fn find(&self, query: &Query) -> (Code, Vec<IpAddr>) {
        let Some(host @ Host::Name(name)) = &query.host else { return (Code::Unknown, Vec::new()) };
        if self.own.contains(name) {
            return (Code::Fine, vec![Ipv4Addr::LOCALHOST.into()]);
        }
        let dialler = &self.dialler;
        let verdict = dialler.rules.judge_lookup(host);
        let target = Target { host: host.clone(), port: 53 };
        if !verdict.is_allowed {
            dialler.deny(&target, Protocol::Dns, verdict.rule).await;
            return (Code::Unknown, Vec::new());
        }
        if query.kind == Kind::Other {
            return (Code::Fine, Vec::new());
        }
        match timeout(dialler.limits.connect, dialler.admitted(&target)).await {
            Ok(Ok(addresses)) => {
                dialler.remember(name, &addresses);
                (Code::Fine, addresses)
            }
            Ok(Err(Refused::Denied(rule))) => {
                dialler.deny(&target, Protocol::Dns, rule).await;
                (Code::Unknown, Vec::new())
            }
            Ok(Err(Refused::Unreachable(_) | Refused::TimedOut)) | Err(_) => {
                (Code::Failed, Vec::new())
            }
        }
    }
}
