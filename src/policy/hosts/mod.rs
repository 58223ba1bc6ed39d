//! Hosts: which of them may be reached, by name, port and address.
//!
//! In: patterns of a profile, and a host that a command asks for. Out: a [`Verdict`] with the rule
//! that made it. Pure: looks no name up.

mod address;
mod host;
mod pattern;
mod presets;

pub use address::private;
pub use host::Host;
pub use pattern::{Pattern, PatternError};
pub use presets::names as preset_names;

use std::fmt;
use std::net::IpAddr;

use pattern::What;

/// What a command wants to reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its host.
    pub host: Host,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(out, "[{address}]:{}", self.port),
            host @ (Host::Name(_) | Host::Address(IpAddr::V4(_))) => {
                write!(out, "{host}:{}", self.port)
            }
        }
    }
}

/// How a command asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A request of HTTP with a whole URL.
    Http,
    /// `CONNECT` of HTTP.
    Https,
    /// SOCKS5.
    Socks,
    /// A lookup of a name.
    Dns,
    /// A forwarded service.
    Forward,
}

impl Protocol {
    /// Name in events; the first three are those of `network_rule` as well.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks => "socks5_tcp",
            Self::Dns => "dns",
            Self::Forward => "forward",
        }
    }
}

/// Whether a host may be reached, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it may.
    pub is_allowed: bool,
    /// The rule: its pattern and where it stands, or the reason why none applies.
    pub rule: String,
}

impl Verdict {
    fn denied(rule: impl Into<String>) -> Self {
        Self { is_allowed: false, rule: rule.into() }
    }
}

/// What is said of a host for which no rule speaks.
pub const UNLISTED: &str = "not in permissions.network.allow";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    pattern: Pattern,
    protocol: Option<String>,
    source: String,
}

impl Rule {
    fn is_for(&self, port: Option<u16>, protocol: Protocol) -> bool {
        // A lookup names no port and serves every protocol.
        let is_lookup = protocol == Protocol::Dns;
        let is_protocol = self.protocol.as_deref().is_none_or(|name| name == protocol.name());
        let is_port = self.pattern.port.is_none() || port.is_none() || self.pattern.port == port;
        is_port && (is_lookup || is_protocol)
    }
}

/// The rules of one confinement. Without any, nothing is reachable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRules {
    allow: Vec<Rule>,
    deny: Vec<Rule>,
}

impl HostRules {
    /// Reads the patterns of a profile's `allow` and `deny`.
    ///
    /// # Errors
    ///
    /// The first pattern that isn't one.
    pub fn new(allow: &[String], deny: &[String]) -> Result<Self, PatternError> {
        let read = |texts: &[String], key: &str| {
            let mut rules = Vec::new();
            for text in texts {
                for pattern in Pattern::expand(text)? {
                    let source = format!("`{text}` in {key}");
                    rules.push(Rule { pattern, protocol: None, source });
                }
            }
            Ok(rules)
        };
        Ok(Self {
            allow: read(allow, "permissions.network.allow")?,
            deny: read(deny, "permissions.network.deny")?,
        })
    }

    /// Adds a rule of a `.rules` file. `protocol` is what it names there, `source` where it stands.
    ///
    /// # Errors
    ///
    /// When `host` is neither a name nor an address.
    pub fn add(
        &mut self,
        host: &str,
        protocol: &str,
        (is_allowed, source): (bool, String),
    ) -> Result<(), PatternError> {
        let pattern = Pattern::literal(host)?;
        let rules = if is_allowed { &mut self.allow } else { &mut self.deny };
        rules.push(Rule { pattern, protocol: Some(protocol.to_owned()), source });
        Ok(())
    }

    /// Judges what a command asks for, before any lookup. A denying rule wins.
    pub fn judge(&self, target: &Target, protocol: Protocol) -> Verdict {
        self.decide(&target.host, Some(target.port), protocol)
    }

    /// Judges the lookup of a name: it is answered if the name may be reached at any port.
    pub fn judge_lookup(&self, host: &Host) -> Verdict {
        self.decide(host, None, Protocol::Dns)
    }

    fn decide(&self, host: &Host, port: Option<u16>, protocol: Protocol) -> Verdict {
        let fits = |rule: &&Rule| rule.pattern.what.matches(host) && rule.is_for(port, protocol);
        // A lookup isn't denied by a rule for one port or protocol of several.
        let is_whole = |rule: &&Rule| {
            protocol != Protocol::Dns || (rule.pattern.port.is_none() && rule.protocol.is_none())
        };
        if let Some(rule) = self.deny.iter().filter(is_whole).find(fits) {
            return Verdict::denied(rule.source.clone());
        }
        // `*` is no permission for the host's own network.
        let closed = match host {
            Host::Address(address) => private(*address),
            Host::Name(_) => None,
        };
        let is_open = |rule: &&Rule| closed.is_none() || rule.pattern.what != What::Any;
        match (self.allow.iter().filter(is_open).find(fits), closed) {
            (Some(rule), _) => Verdict { is_allowed: true, rule: rule.source.clone() },
            (None, Some(kind)) => {
                Verdict::denied(format!("a {kind} address, which must be listed"))
            }
            (None, None) => Verdict::denied(UNLISTED),
        }
    }

    /// Judges an address that an allowed name was looked up to: public, or listed itself; and not
    /// denied.
    ///
    /// # Errors
    ///
    /// The rule against it.
    pub fn admit(&self, address: IpAddr, port: u16) -> Result<(), String> {
        let host = Host::from(address);
        let fits = |rule: &&Rule| {
            rule.pattern.what != What::Any
                && rule.pattern.what.matches(&host)
                && rule.pattern.port.is_none_or(|named| named == port)
        };
        if let Some(rule) = self.deny.iter().find(fits) {
            return Err(rule.source.clone());
        }
        match private(address) {
            Some(_) if self.allow.iter().any(|rule| fits(&rule)) => Ok(()),
            Some(kind) => Err(format!("its address {address} is {kind}, which must be listed")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
