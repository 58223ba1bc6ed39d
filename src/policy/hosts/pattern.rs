//! Patterns of hosts.
//!
//! In: text of `permissions.network`. Out: what it stands for, or what is wrong with it.

use std::net::IpAddr;

use thiserror::Error;

use super::address::is_in;
use super::{Host, presets};

/// Begins the name of a list of patterns.
const PRESET: &str = "preset:";

/// What a pattern names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Every name and every public address.
    Any,
    /// One name or address.
    One(Host),
    /// The names below this one, not itself.
    Below(String),
    /// The addresses of a network.
    Network(IpAddr, u32),
}

impl What {
    pub(super) fn matches(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Any, _) => true,
            (Self::One(one), host) => one == host,
            (Self::Below(parent), Host::Name(name)) => name
                .strip_suffix(parent.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            (Self::Network(network, bits), Host::Address(address)) => {
                is_in(*address, *network, *bits)
            }
            (Self::Below(_), Host::Address(_)) | (Self::Network(..), Host::Name(_)) => false,
        }
    }
}

/// A pattern of hosts.
///
/// `example.com` is that name alone; `*.example.com` the names below it at any depth and not
/// `example.com` itself; `*` every name and every public address; `10.0.0.7`, `[fd00::7]` and
/// `10.0.0.0/8` are addresses. `:PORT` at the end limits it to a port; without one every port is
/// meant. A private, loopback or link-local address is reached only if a pattern names it as an
/// address or its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    pub(super) what: What,
    pub(super) port: Option<u16>,
}

/// Why a text is no pattern of hosts.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatternError {
    /// Not one of the forms.
    #[error("a host must be a name, `*.NAME`, an address or `preset:NAME`, got `{0}`")]
    Form(String),
    /// A preset that isn't known.
    #[error("a preset must be one of {known}, got `{0}`", known = known())]
    Preset(String),
    /// A port that isn't one.
    #[error("the port of a host must be a number from 1 to 65535, got `{0}`")]
    Port(String),
    /// A network whose prefix isn't one.
    #[error("a network must be an address and the number of its leading bits, got `{0}`")]
    Network(String),
}

fn known() -> String {
    presets::names().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl Pattern {
    /// Reads a pattern, or the patterns of a preset.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn expand(text: &str) -> Result<Vec<Self>, PatternError> {
        let Some(name) = text.trim().strip_prefix(PRESET) else {
            return Ok(vec![Self::read(text.trim())?]);
        };
        let hosts = presets::hosts(name).ok_or_else(|| PatternError::Preset(name.to_owned()))?;
        hosts.iter().map(|host| Self::read(host)).collect()
    }

    /// Whether it names `target`.
    pub fn matches(&self, target: &super::Target) -> bool {
        self.what.matches(&target.host) && self.port.is_none_or(|port| port == target.port)
    }

    /// Reads one host without wildcards or port.
    pub(super) fn literal(text: &str) -> Result<Self, PatternError> {
        let host = Host::parse(text).ok_or_else(|| PatternError::Form(text.to_owned()))?;
        Ok(Self { what: What::One(host), port: None })
    }

    fn read(text: &str) -> Result<Self, PatternError> {
        let wrong = || PatternError::Form(text.to_owned());
        if text.contains("//") {
            return Err(wrong());
        }
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if name.ends_with(']') || !name.contains(':') => (name, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            None => None,
            Some(digits) => {
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                let port = digits.parse().ok().filter(|port| is_number && *port != 0);
                Some(port.ok_or_else(|| PatternError::Port(digits.to_owned()))?)
            }
        };
        let what = if name == "*" {
            What::Any
        } else if let Some((address, bits)) = name.split_once('/') {
            network(address, bits).ok_or_else(|| PatternError::Network(text.to_owned()))?
        } else if let Some(parent) = name.strip_prefix("*.") {
            match Host::parse(parent) {
                Some(Host::Name(parent)) => What::Below(parent),
                Some(Host::Address(_)) | None => return Err(wrong()),
            }
        } else {
            What::One(Host::parse(name).ok_or_else(wrong)?)
        };
        Ok(Self { what, port })
    }
}

fn network(address: &str, bits: &str) -> Option<What> {
    let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address: IpAddr = bare.unwrap_or(address).parse().ok()?;
    let bits: u32 = bits.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (bits <= most).then_some(What::Network(address, bits))
}
