//! Traffic: what commands ask of the network, in the record before it happens (P4), and in the
//! answers of the calls that it happened in.
//!
//! In: decisions of the proxy. Out: events, and lines for the model. Knows nothing of how they are
//! made.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::plan::Instance;
use crate::policy::Decision;
use crate::policy::hosts::Protocol;
use crate::policy::rules::load_unchecked;
use crate::profile::{HostRule, Network};
use crate::run::Run;
use crate::sandbox::{Note, Requested};
use crate::transcript::{Event, Scope};

/// Most lines about denials in one answer; ours.
const LINES: usize = 20;

/// What programs say when there is no network.
const FAILURES: [&str; 14] = [
    "could not resolve host",
    "couldn't resolve host",
    "temporary failure in name resolution",
    "name or service not known",
    "no address associated with hostname",
    "failed to lookup address",
    "network is unreachable",
    "eai_again",
    "enotfound",
    "enetunreach",
    "getaddrinfo",
    "unknownhostexception",
    "dial tcp: lookup",
    "unable to resolve",
];

/// The requests of one instance.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    inner: RefCell<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Where events belong that are in no call.
    scope: Scope,
    /// Calls that run, with what was denied meanwhile.
    calls: BTreeMap<String, (Scope, Vec<String>)>,
}

impl Traffic {
    /// What an instance needs of it: a way for decisions, where hosts are listed at all.
    pub(super) fn begin(
        run: &Rc<Run>,
        instance: &Instance,
        scope: &Scope,
    ) -> (Rc<Self>, Option<UnboundedSender<Note>>) {
        let traffic = Rc::new(Self::default());
        traffic.enter(scope);
        if !lists_hosts(instance) {
            return (traffic, None);
        }
        let (sender, notes) = unbounded_channel();
        let (kept, run) = (Rc::clone(&traffic), Rc::clone(run));
        tokio::task::spawn_local(async move { kept.record(&run, notes).await });
        (traffic, Some(sender))
    }

    /// Sets where events belong that are in no call.
    pub(super) fn enter(&self, scope: &Scope) {
        self.inner.borrow_mut().scope = scope.clone();
    }

    /// A call begins to run.
    pub(super) fn begin_call(&self, scope: &Scope) {
        let id = scope.call.clone().unwrap_or_default();
        self.inner.borrow_mut().calls.insert(id, (scope.clone(), Vec::new()));
    }

    /// A call is over; returns what was denied meanwhile, a line each.
    pub(super) fn end_call(&self, scope: &Scope) -> Vec<String> {
        let id = scope.call.as_deref().unwrap_or_default();
        let ended = self.inner.borrow_mut().calls.remove(id);
        ended.map(|(_, lines)| lines).unwrap_or_default()
    }

    async fn record(&self, run: &Run, mut notes: UnboundedReceiver<Note>) {
        while let Some(Note { requested, written }) = notes.recv().await {
            self.note(&requested);
            // What can't be written down is not carried out; the next event of the run says why.
            if run.transcript.append(&self.scope(), event(&requested)).is_ok() {
                // The connection may be gone already.
                written.send(()).unwrap_or_default();
            }
        }
    }

    /// The one call that runs, or the attempt.
    fn scope(&self) -> Scope {
        let inner = self.inner.borrow();
        let mut calls = inner.calls.values();
        match (calls.next(), calls.next()) {
            (Some((scope, _)), None) => scope.clone(),
            (None | Some(_), _) => inner.scope.clone(),
        }
    }

    fn note(&self, requested: &Requested) {
        if requested.is_allowed {
            return;
        }
        let line = line(requested);
        for (_, lines) in self.inner.borrow_mut().calls.values_mut() {
            if lines.len() < LINES && !lines.contains(&line) {
                lines.push(line.clone());
            }
        }
    }
}

fn line(requested: &Requested) -> String {
    let Requested { target, protocol, rule, .. } = requested;
    if *protocol == Protocol::Dns {
        format!("network: denied the lookup of {} ({rule})", target.host)
    } else {
        format!("network: denied {target} ({rule})")
    }
}

fn event(requested: &Requested) -> Event {
    Event::NetworkRequested {
        host: requested.target.host.to_string(),
        port: requested.target.port,
        protocol: requested.protocol.name().to_owned(),
        decision: if requested.is_allowed { "allow" } else { "deny" }.to_owned(),
        rule: requested.rule.clone(),
        address: requested.address.map(|address| address.to_string()),
    }
}

fn lists_hosts(instance: &Instance) -> bool {
    let setup = instance.workspace.setup.iter().map(|step| step.network);
    let checks = instance.checks.iter().map(|check| check.network);
    setup.chain(checks).chain([instance.profile.network]).any(|it| it == Network::Listed)
}

/// The line for a call that has no network and whose output looks like it missed one.
pub(super) fn hint(network: Network, output: &str) -> Option<&'static str> {
    let output = output.to_lowercase();
    let has_failed = FAILURES.iter().any(|words| output.contains(words));
    (network == Network::None && has_failed)
        .then_some("network: off for this task (permissions.network is `none`)")
}

/// What the instance's `.rules` files say about hosts. Files that can't be read were refused before.
pub(super) fn host_rules(instance: &Instance) -> Vec<HostRule> {
    let rules = load_unchecked(&instance.rules).map(|rules| rules.network).unwrap_or_default();
    rules
        .into_iter()
        .map(|rule| {
            let justification = rule.justification.map(|why| format!(": {why}"));
            let unasked = match rule.decision {
                Decision::Prompt => " needs an approval, which nobody is there to give",
                Decision::Allow | Decision::Forbidden => "",
            };
            let place = rule.origin.reference();
            HostRule {
                host: rule.host,
                protocol: rule.protocol,
                is_allowed: rule.decision == Decision::Allow,
                source: format!("{place}{unasked}{}", justification.unwrap_or_default()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::{Traffic, hint};
    use crate::policy::hosts::{Host, Protocol, Target};
    use crate::profile::Network;
    use crate::sandbox::Requested;
    use crate::transcript::Scope;

    fn requested(protocol: Protocol, is_allowed: bool) -> Requested {
        let target = Target { host: Host::Name("a.example".to_owned()), port: 443 };
        let rule = "the rule".to_owned();
        Requested { target, protocol, is_allowed, rule, address: None::<IpAddr> }
    }

    fn call(id: &str) -> Scope {
        Scope { call: Some(id.to_owned()), ..Scope::default() }
    }

    #[test]
    fn a_denial_is_told_to_the_calls_that_run() {
        let traffic = Traffic::default();
        traffic.begin_call(&call("call-001"));
        assert_eq!(traffic.scope(), call("call-001"));
        traffic.note(&requested(Protocol::Https, true));
        traffic.note(&requested(Protocol::Https, false));
        traffic.note(&requested(Protocol::Https, false));
        traffic.begin_call(&call("call-002"));
        assert_eq!(traffic.scope(), Scope::default());
        traffic.note(&requested(Protocol::Dns, false));
        let lookup = "network: denied the lookup of a.example (the rule)";
        assert_eq!(
            traffic.end_call(&call("call-001")),
            ["network: denied a.example:443 (the rule)", lookup]
        );
        assert_eq!(traffic.end_call(&call("call-002")), [lookup]);
        traffic.note(&requested(Protocol::Dns, false));
        assert!(traffic.end_call(&call("call-002")).is_empty());
    }

    #[test]
    fn a_missing_network_is_said_where_it_is_missed() {
        assert!(hint(Network::None, "curl: (6) Could not resolve host: a.example").is_some());
        assert!(hint(Network::Full, "curl: (6) Could not resolve host: a.example").is_none());
        assert!(hint(Network::None, "error: no such file").is_none());
    }
}
