//! A host as commands and users write it, in one form.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A host name in lower-case A-labels without a final dot, or an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name.
    Name(String),
    /// An address; one of IPv4 that is written as IPv6 is one of IPv4.
    Address(IpAddr),
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => out.write_str(name),
            Self::Address(address) => address.fmt(out),
        }
    }
}

impl Host {
    /// Reads a host. Every spelling of an IPv4 address that a C library takes (`127.1`, `0x7f.1`,
    /// `2130706433`) is that address. `None` for what is neither name nor address, for percent
    /// signs, and for an address with a zone.
    pub fn parse(text: &str) -> Option<Self> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse::<Ipv6Addr>() {
            return Some(IpAddr::V6(address).into());
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        // `Host::parse` decodes percent signs, which no name has.
        if name.is_empty() || name.len() > 1024 || name.contains(['%', '[', ']', ':']) {
            return None;
        }
        match url::Host::parse(name).ok()? {
            url::Host::Domain(name) => is_name(&name).then_some(Self::Name(name)),
            url::Host::Ipv4(address) => Some(IpAddr::V4(address).into()),
            url::Host::Ipv6(_) => None,
        }
    }

    /// Reads `HOST:PORT`, or `HOST` when a port is given for that case.
    pub fn parse_with_port(text: &str, default: Option<u16>) -> Option<(Self, u16)> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
            _ => (text, None),
        };
        // Without brackets an address of IPv6 has no place for a port.
        if host.contains(':') && !host.starts_with('[') {
            return None;
        }
        let port = match port {
            None => default?,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok()?
            }
            Some(_) => return None,
        };
        Some((Self::parse(host)?, port)).filter(|(_, port)| *port != 0)
    }
}

/// Letters, digits, hyphens and underscores in labels: RFC 1123, and what is in use beside it.
fn is_name(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|label| {
            let is_clean = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            (1..=63).contains(&label.len()) && label.bytes().all(is_clean)
        })
}
