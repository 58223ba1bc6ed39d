//! Dialling: from a target to a connection, if the rules allow it.
//!
//! In: a target. Out: a stream to one address that the rules admit; the name is looked up once, and
//! never again for that connection. Each decision is recorded before it has an effect (P4).

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::limits::Limits;
use super::upstream::{Hop, Upstream};
use crate::policy::hosts::{Host, HostRules, Protocol, Target, Verdict};

/// Addresses of names that are remembered; ours.
const REMEMBERED: usize = 4096;
/// Most bytes of another proxy's answer; ours.
const ANSWER: usize = 16 << 10;

/// What a lookup gives.
pub(crate) type Lookup<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Looks names up.
pub(crate) trait Resolve: Send + Sync {
    /// The addresses of a name, in order of preference.
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a>;
}

/// The host's own resolver.
#[derive(Debug)]
pub(crate) struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, name: &'a str) -> Lookup<'a> {
        Box::pin(async move {
            // The final dot keeps search domains of the host out.
            let rooted = if name.contains('.') { format!("{name}.") } else { name.to_owned() };
            let found = tokio::net::lookup_host((rooted, 0)).await?;
            Ok(found.map(|address| address.ip().to_canonical()).collect())
        })
    }
}

/// A decision about one request, as the record has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// What was asked for.
    pub target: Target,
    /// How.
    pub protocol: Protocol,
    /// Whether it may be reached.
    pub is_allowed: bool,
    /// The rule.
    pub rule: String,
    /// Address that the name was looked up to; absent for denials and behind another proxy.
    pub address: Option<IpAddr>,
}

/// A decision on its way into the record. What it allows begins when `written` is used; dropping it
/// denies.
#[derive(Debug)]
pub struct Note {
    /// The decision.
    pub requested: Requested,
    /// Told when it is on disk.
    pub written: oneshot::Sender<()>,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// By this rule.
    Denied(String),
    /// The name has no address, or none answers.
    Unreachable(String),
    /// Too late.
    TimedOut,
}

impl Refused {
    /// One line for the client.
    pub(super) fn line(&self, target: &Target) -> String {
        match self {
            Self::Denied(rule) => format!("network: denied {target} ({rule})"),
            Self::Unreachable(why) => format!("network: {target} can't be reached: {why}"),
            Self::TimedOut => format!("network: {target} did not answer in time"),
        }
    }
}

/// A connection to a target.
#[derive(Debug)]
pub(super) struct Dialled {
    pub(super) stream: TcpStream,
    /// The other proxy at the end of the stream, which wants a whole URL.
    pub(super) hop: Option<Hop>,
    /// Names that a TLS client must ask for; empty: any.
    pub(super) names: BTreeSet<String>,
}

/// What all connections share.
pub(super) struct Dialler {
    pub(super) rules: HostRules,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) upstream: Upstream,
    pub(super) limits: Limits,
    pub(super) log: Option<mpsc::UnboundedSender<Note>>,
    /// Names that the stub answered with an address.
    answered: Mutex<HashMap<IpAddr, BTreeSet<String>>>,
    denials: AtomicU64,
}

impl Dialler {
    pub(super) fn new(
        rules: HostRules,
        (resolver, upstream): (Arc<dyn Resolve>, Upstream),
        limits: Limits,
        log: Option<mpsc::UnboundedSender<Note>>,
    ) -> Self {
        let answered = Mutex::new(HashMap::new());
        Self { rules, resolver, upstream, limits, log, answered, denials: AtomicU64::new(0) }
    }

    /// Writes a decision down.
    pub(super) async fn record(&self, requested: Requested) -> Result<(), Refused> {
        let is_denial = !requested.is_allowed;
        if is_denial && self.denials.fetch_add(1, Ordering::Relaxed) >= self.limits.denials {
            return Ok(());
        }
        let Some(log) = &self.log else { return Ok(()) };
        let gone = || Refused::Denied("the record is closed".to_owned());
        let (written, is_written) = oneshot::channel();
        log.send(Note { requested, written }).map_err(|_| gone())?;
        is_written.await.map_err(|_| gone())
    }

    /// Records that `target` is denied by `rule`, and says so.
    pub(super) async fn deny(&self, target: &Target, protocol: Protocol, rule: String) -> Refused {
        let requested = Requested {
            target: target.clone(),
            protocol,
            is_allowed: false,
            rule: rule.clone(),
            address: None,
        };
        // A denial that can't be recorded is still one.
        match self.record(requested).await {
            Ok(()) | Err(_) => Refused::Denied(rule),
        }
    }

    /// Connects to `target`.
    pub(super) async fn dial(
        &self,
        target: &Target,
        protocol: Protocol,
    ) -> Result<Dialled, Refused> {
        let (verdict, names) = self.judge(target, protocol);
        if !verdict.is_allowed {
            return Err(self.deny(target, protocol, verdict.rule).await);
        }
        let in_time = timeout(self.limits.connect, async {
            let hop = self.upstream.route(target, protocol == Protocol::Http).map_err(|name| {
                Refused::Unreachable(format!("`{name}` of the runner is not an `http://` proxy"))
            })?;
            let allowed = |address| Requested {
                target: target.clone(),
                protocol,
                is_allowed: true,
                rule: verdict.rule.clone(),
                address,
            };
            if let Some(hop) = hop {
                self.record(allowed(None)).await?;
                return self.through(hop, target, protocol).await;
            }
            let addresses = match self.admitted(target).await {
                Err(Refused::Denied(rule)) => return Err(self.deny(target, protocol, rule).await),
                other => other?,
            };
            self.record(allowed(addresses.first().copied())).await?;
            connect(&addresses, target.port).await
        });
        let stream = in_time.await.map_err(|_| Refused::TimedOut)??;
        let (stream, hop) = stream;
        Ok(Dialled { stream, hop, names })
    }

    /// Judges a target. An address that the stub gave for a name stands for that name.
    fn judge(&self, target: &Target, protocol: Protocol) -> (Verdict, BTreeSet<String>) {
        let verdict = self.rules.judge(target, protocol);
        let address = match &target.host {
            Host::Name(name) => return (verdict, BTreeSet::from([name.clone()])),
            Host::Address(address) => *address,
        };
        if verdict.is_allowed {
            return (verdict, BTreeSet::new());
        }
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = answered.get(&address).cloned().unwrap_or_default();
        drop(answered);
        let named = |name: &String| Target { host: Host::Name(name.clone()), port: target.port };
        names.retain(|name| self.rules.judge(&named(name), protocol).is_allowed);
        let Some(name) = names.first() else { return (verdict, names) };
        // It was admitted for a lookup, which has no port.
        match self.rules.admit(address, target.port) {
            Ok(()) => (self.rules.judge(&named(name), protocol), names),
            Err(rule) => (Verdict { is_allowed: false, rule }, names),
        }
    }

    /// Remembers what the stub answers.
    pub(super) fn remember(&self, name: &str, addresses: &[IpAddr]) {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        for address in addresses {
            if answered.len() < REMEMBERED || answered.contains_key(address) {
                answered.entry(*address).or_default().insert(name.to_owned());
            }
        }
    }

    /// The addresses of a target that the rules admit; never empty.
    pub(super) async fn admitted(&self, target: &Target) -> Result<Vec<IpAddr>, Refused> {
        let name = match &target.host {
            // A literal was judged itself; one that stands for a name was admitted as its answer.
            Host::Address(address) => return Ok(vec![*address]),
            Host::Name(name) => name,
        };
        let mut addresses = self
            .resolver
            .resolve(name)
            .await
            .map_err(|error| Refused::Unreachable(format!("looking it up failed: {error}")))?;
        let mut against = None;
        addresses.retain(|address| match self.rules.admit(*address, target.port) {
            Ok(()) => true,
            Err(rule) => {
                against.get_or_insert(rule);
                false
            }
        });
        match (addresses.is_empty(), against) {
            (false, _) => Ok(addresses),
            (true, Some(rule)) => Err(Refused::Denied(rule)),
            (true, None) => Err(Refused::Unreachable("it has no address".to_owned())),
        }
    }

    /// Goes by the operator's proxy.
    async fn through(
        &self,
        hop: &Hop,
        target: &Target,
        protocol: Protocol,
    ) -> Result<(TcpStream, Option<Hop>), Refused> {
        // Where the operator's proxy lies is not for rules of the task.
        let stream = self.plainly(&hop.at).await?;
        if protocol == Protocol::Http {
            return Ok((stream, Some(hop.clone())));
        }
        let stream = ask_for_tunnel(stream, hop, target).await?;
        Ok((stream, None))
    }

    /// Connects without rules: to the operator's proxy, and to services that are forwarded.
    pub(super) async fn plainly(&self, target: &Target) -> Result<TcpStream, Refused> {
        let addresses = match &target.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolver.resolve(name).await.map_err(|error| {
                Refused::Unreachable(format!("looking `{name}` up failed: {error}"))
            })?,
        };
        Ok(connect(&addresses, target.port).await?.0)
    }
}

async fn connect(addresses: &[IpAddr], port: u16) -> Result<(TcpStream, Option<Hop>), Refused> {
    let mut last = "it has no address".to_owned();
    for address in addresses {
        match TcpStream::connect((*address, port)).await {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|e| Refused::Unreachable(e.to_string()))?;
                return Ok((stream, None));
            }
            Err(error) => last = error.to_string(),
        }
    }
    Err(Refused::Unreachable(last))
}

/// Asks another proxy for a tunnel. Its answer is read byte by byte: what follows is the target's.
async fn ask_for_tunnel(
    mut stream: TcpStream,
    hop: &Hop,
    target: &Target,
) -> Result<TcpStream, Refused> {
    let failed = |error: io::Error| Refused::Unreachable(format!("the proxy {}: {error}", hop.at));
    let credentials = hop.credentials.as_ref();
    let credentials =
        credentials.map_or(String::new(), |c| format!("Proxy-Authorization: {c}\r\n"));
    let asked = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{credentials}\r\n");
    stream.write_all(asked.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= ANSWER {
            return Err(failed(io::Error::other("its answer has no end")));
        }
        answer.push(stream.read_u8().await.map_err(failed)?);
    }
    let status = answer.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    if status.len() == 3 && status[0] == b'2' {
        return Ok(stream);
    }
    let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = crate::text::clip(&String::from_utf8_lossy(line), 200);
    Err(Refused::Unreachable(format!("the proxy {} answered `{line}`", hop.at)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::{Dialler, System};
    use crate::policy::hosts::{Host, HostRules, Protocol, Target};
    use crate::sandbox::proxy::limits::Limits;
    use crate::sandbox::proxy::upstream::Upstream;

    #[test]
    fn an_address_of_the_stub_stands_for_its_names() {
        let allow = ["a.example:443", "b.example:80"].map(str::to_owned);
        let rules = HostRules::new(&allow, &[]).unwrap();
        let upstream = Upstream::from_environment(&BTreeMap::new());
        let dialler = Dialler::new(rules, (Arc::new(System), upstream), Limits::default(), None);
        let address = "1.1.1.1".parse().unwrap();
        let at = |port| Target { host: Host::Address(address), port };
        assert!(!dialler.judge(&at(443), Protocol::Socks).0.is_allowed);
        dialler.remember("a.example", &[address]);
        dialler.remember("b.example", &[address]);
        let (verdict, names) = dialler.judge(&at(443), Protocol::Socks);
        assert!(verdict.is_allowed);
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a.example"], "TLS must ask for it");
        assert!(!dialler.judge(&at(22), Protocol::Socks).0.is_allowed);
    }
}
