//! The way out of a confinement: hosts that the task lists, and services that it forwards.
//!
//! In: listeners that lie inside, and the rules. Out: connections from the runner's side, each one
//! judged and recorded first. Knows nothing of tiers and transcripts.
//!
//! Commands reach it by the usual variables, as a proxy of HTTP and SOCKS5 on one port. SSH and
//! anything else that speaks to no proxy has no way out.

mod body;
mod dial;
mod head;
mod hello;
mod http;
mod limits;
mod message;
mod names;
mod socks;
mod tunnel;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

pub use dial::{Note, Requested};
pub(crate) use limits::Limits;

use crate::policy::hosts::{Host, HostRules, PatternError, Protocol, Target};
use crate::profile::{Forward, Hosts, NAMES_PORT, PROXY_PORT};
use dial::{Dialler, Requested as Decision, Resolve, System};
use limits::Meter;
use names::Stub;
use upstream::Upstream;

/// The rules that `hosts` stand for.
///
/// # Errors
///
/// What is wrong with them.
pub(crate) fn rules(hosts: &Hosts) -> Result<HostRules, PatternError> {
    let mut rules = HostRules::new(&hosts.allow, &hosts.deny)?;
    for rule in &hosts.rules {
        rules.add(&rule.host, &rule.protocol, (rule.is_allowed, rule.source.clone()))?;
    }
    Ok(rules)
}

/// Ports of TCP that must be open inside, besides lookups by UDP.
///
/// # Errors
///
/// A forwarded port that is the proxy's or the resolver's own.
pub(crate) fn ports(hosts: &Hosts) -> Result<Vec<u16>, String> {
    let forwarded: BTreeSet<u16> = hosts.forward.iter().map(|forward| forward.port).collect();
    let own = [PROXY_PORT, NAMES_PORT];
    if let Some(port) = own.iter().find(|port| forwarded.contains(port)) {
        return Err(format!("port {port} can't be forwarded: it is the proxy's own"));
    }
    Ok(own.into_iter().chain(forwarded).collect())
}

/// Where commands knock.
#[derive(Debug)]
pub(crate) struct Door {
    /// Port inside.
    pub(crate) port: u16,
    /// The socket.
    pub(crate) socket: DoorSocket,
}

/// A socket of a door.
#[derive(Debug)]
pub(crate) enum DoorSocket {
    /// The proxy, a forwarded service, or lookups.
    Tcp(TcpListener),
    /// Lookups.
    Udp(UdpSocket),
}

/// What a proxy is for.
pub(crate) struct Purpose<'a> {
    /// Which hosts may be reached.
    pub(crate) rules: HostRules,
    /// Services that are forwarded.
    pub(crate) forwards: &'a [Forward],
    /// The runner's environment, which names the operator's own proxy.
    pub(crate) env: &'a BTreeMap<String, String>,
    /// Where decisions go; none: nowhere.
    pub(crate) log: Option<mpsc::UnboundedSender<Note>>,
}

/// A running proxy. Dropping it closes every connection and every door.
pub(crate) struct Proxy {
    tasks: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Proxy").field("doors", &self.tasks.len()).finish()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// What a door leads to.
#[derive(Clone)]
enum Room {
    Proxy,
    Names,
    Service(Target),
}

impl Proxy {
    /// Serves the doors, inside a runtime.
    ///
    /// # Errors
    ///
    /// When a socket can't be made asynchronous.
    pub(crate) fn serve(doors: Vec<Door>, purpose: Purpose<'_>) -> io::Result<Self> {
        Self::serve_with(doors, purpose, (Arc::new(System), Limits::default()))
    }

    fn serve_with(
        doors: Vec<Door>,
        purpose: Purpose<'_>,
        (resolver, limits): (Arc<dyn Resolve>, Limits),
    ) -> io::Result<Self> {
        let Purpose { rules, forwards, env, log } = purpose;
        let upstream = Upstream::from_environment(env);
        let dialler = Arc::new(Dialler::new(rules, (resolver, upstream), limits, log));
        let services = services(forwards);
        let own = services.values().filter_map(|target| match &target.host {
            Host::Name(name) => Some(name.clone()),
            Host::Address(_) => None,
        });
        let stub = Arc::new(Stub { dialler: Arc::clone(&dialler), own: own.collect() });
        let house = Arc::new(House {
            places: Arc::new(Semaphore::new(limits.connections)),
            dialler,
            stub: Arc::clone(&stub),
        });
        let mut proxy = Self { tasks: Vec::new() };
        for Door { port, socket } in doors {
            let task = match socket {
                DoorSocket::Udp(socket) => {
                    socket.set_nonblocking(true)?;
                    let socket = tokio::net::UdpSocket::from_std(socket)?;
                    tokio::spawn(Arc::clone(&stub).datagrams(socket))
                }
                DoorSocket::Tcp(listener) => {
                    listener.set_nonblocking(true)?;
                    let listener = tokio::net::TcpListener::from_std(listener)?;
                    let room = match (services.get(&port), port) {
                        (Some(target), _) => Room::Service(target.clone()),
                        (None, NAMES_PORT) => Room::Names,
                        (None, _) => Room::Proxy,
                    };
                    tokio::spawn(accept(listener, room, Arc::clone(&house)))
                }
            };
            proxy.tasks.push(task);
        }
        Ok(proxy)
    }
}

/// Forwarded services by their port inside. A host that is none is left out: nothing answers.
fn services(forwards: &[Forward]) -> BTreeMap<u16, Target> {
    forwards
        .iter()
        .filter_map(|forward| {
            let host = Host::parse(&forward.host)?;
            Some((forward.port, Target { host, port: forward.port }))
        })
        .collect()
}

/// What all connections share.
struct House {
    places: Arc<Semaphore>,
    dialler: Arc<Dialler>,
    stub: Arc<Stub>,
}

async fn accept(listener: tokio::net::TcpListener, room: Room, house: Arc<House>) {
    let mut running = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&house.places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // No descriptor is free, or the client is gone already: accept(2).
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        while running.try_join_next().is_some() {}
        let (room, house) = (room.clone(), Arc::clone(&house));
        running.spawn(async move {
            // How a connection ends is told to its two sides.
            drop(house.serve(stream, &room).await);
            drop(place);
        });
    }
}

impl House {
    async fn serve(&self, stream: TcpStream, room: &Room) -> io::Result<()> {
        stream.set_nodelay(true)?;
        match room {
            Room::Names => self.stub.connection(stream).await,
            Room::Service(target) => self.forward(stream, target).await,
            Room::Proxy => {
                let mut first = [0];
                let peeked = timeout(self.dialler.limits.head, stream.peek(&mut first)).await;
                match (peeked.map_err(|_| io::ErrorKind::TimedOut)??, first) {
                    (0, _) => Ok(()),
                    (_, [5]) => socks::serve(stream, &self.dialler).await,
                    _ => http::serve(stream, &self.dialler).await,
                }
            }
        }
    }

    /// Relays to a service outside.
    async fn forward(&self, mut stream: TcpStream, target: &Target) -> io::Result<()> {
        let requested = Decision {
            target: target.clone(),
            protocol: Protocol::Forward,
            is_allowed: true,
            rule: "permissions.network.forward".to_owned(),
            address: None,
        };
        let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
        self.dialler.record(requested).await.map_err(|_| closed())?;
        let dialled = timeout(self.dialler.limits.connect, self.dialler.plainly(target)).await;
        let mut server = dialled.map_err(|_| closed())?.map_err(|_| closed())?;
        let meter = Meter::new(&self.dialler.limits);
        let (mut from_client, mut to_client) = stream.split();
        let (mut from_server, mut to_server) = server.split();
        let up = tunnel::copy(&mut from_client, &mut to_server, &meter);
        let down = tunnel::copy(&mut from_server, &mut to_client, &meter);
        tokio::try_join!(up, down)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod tls_tests;
