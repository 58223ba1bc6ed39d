//! The operator's own proxy, which everything outside goes through where there is one.
//!
//! In: the runner's environment. Out: whether a target goes by a proxy, and what that one is told.

use std::collections::BTreeMap;
use std::fmt;

use crate::policy::hosts::{Host, Pattern, Target};

/// A proxy of HTTP.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Hop {
    /// Where it listens.
    pub(super) at: Target,
    /// `Proxy-Authorization` for it.
    pub(super) credentials: Option<String>,
}

impl fmt::Debug for Hop {
    // P6: never the credentials.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Hop({})", self.at)
    }
}

/// The operator's proxies. A value that isn't understood is kept as an error, and what would go by
/// it is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Upstream {
    http: Option<Result<Hop, String>>,
    https: Option<Result<Hop, String>>,
    direct: Vec<Direct>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Direct {
    All,
    /// A name and the names below it.
    Tree(String),
    Pattern(Pattern),
}

impl Upstream {
    /// Reads `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in lower case first.
    pub(crate) fn from_environment(env: &BTreeMap<String, String>) -> Self {
        let value = |names: &[&str]| {
            names
                .iter()
                .filter_map(|name| env.get(*name))
                .map(|value| value.trim())
                .find(|value| !value.is_empty())
        };
        let hop = |names: &[&str]| {
            value(names).map(|value| hop(value).ok_or_else(|| names[1].to_owned()))
        };
        let direct = value(&["no_proxy", "NO_PROXY"]).unwrap_or_default();
        Self {
            http: hop(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
            https: hop(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            direct: direct.split([',', ' ']).filter_map(Direct::read).collect(),
        }
    }

    /// The proxy that leads to `target`; `None`: there is none.
    ///
    /// # Errors
    ///
    /// The name of the variable that isn't understood.
    pub(super) fn route(&self, target: &Target, is_plain: bool) -> Result<Option<&Hop>, &str> {
        if self.direct.iter().any(|direct| direct.covers(target)) {
            return Ok(None);
        }
        let hop = if is_plain { &self.http } else { &self.https };
        match hop {
            None => Ok(None),
            Some(Ok(hop)) => Ok(Some(hop)),
            Some(Err(name)) => Err(name),
        }
    }
}

impl Direct {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        if text == "*" {
            return Some(Self::All);
        }
        let name = text.trim_start_matches("*.").trim_start_matches('.');
        if let Some(Host::Name(name)) = Host::parse(name) {
            return Some(Self::Tree(name));
        }
        Pattern::expand(text).ok()?.into_iter().next().map(Self::Pattern)
    }

    fn covers(&self, target: &Target) -> bool {
        match (self, &target.host) {
            (Self::All, _) => true,
            (Self::Tree(tree), Host::Name(name)) => name
                .strip_suffix(tree.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
            (Self::Pattern(pattern), _) => pattern.matches(target),
            (Self::Tree(_), Host::Address(_)) => false,
        }
    }
}

/// Reads `[http://][USER[:PASSWORD]@]HOST[:PORT]`. Other schemes aren't spoken.
fn hop(text: &str) -> Option<Hop> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = url::Url::parse(&url).ok().filter(|url| url.scheme() == "http")?;
    let at = Target { host: Host::parse(url.host_str()?)?, port: url.port().unwrap_or(80) };
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    let credentials = has_credentials.then(|| {
        let (user, password) = (decoded(url.username()), decoded(url.password().unwrap_or("")));
        format!("Basic {}", base64(&[user, b":".to_vec(), password].concat()))
    });
    Some(Hop { at, credentials })
}

/// Replaces `%XY`.
fn decoded(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let (b'%', Some(byte)) = (first, byte) {
            out.push(byte);
            rest = &after[2..];
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}

/// RFC 4648 §4.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for part in bytes.chunks(3) {
        let number = (0..3).fold(0_usize, |sum, at| {
            sum << 8 | usize::from(part.get(at).copied().unwrap_or_default())
        });
        for place in 0..4 {
            let digit = DIGITS[number >> (18 - 6 * place) & 63];
            out.push(if place > part.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Upstream, base64};
    use crate::policy::hosts::{Host, Target};

    fn upstream(pairs: &[(&str, &str)]) -> Upstream {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Upstream::from_environment(&pairs.collect())
    }

    fn target(text: &str) -> Target {
        let (host, port) = Host::parse_with_port(text, Some(443)).unwrap();
        Target { host, port }
    }

    #[test]
    fn the_operators_variables_are_read() {
        let upstream = upstream(&[
            ("HTTPS_PROXY", "http://u:p%40ss@proxy.example:3128"),
            ("http_proxy", "proxy.example"),
            ("NO_PROXY", "localhost,.corp.example, 10.0.0.0/8,one.example"),
        ]);
        let hop = upstream.route(&target("a.example"), false).unwrap().unwrap();
        assert_eq!(hop.at, target("proxy.example:3128"));
        assert_eq!(hop.credentials.as_deref(), Some("Basic dTpwQHNz"));
        assert!(!format!("{upstream:?}").contains("Basic"), "P6");
        let plain = upstream.route(&target("a.example"), true).unwrap().unwrap();
        assert_eq!(plain.at, target("proxy.example:80"));
        for direct in ["localhost", "x.corp.example", "corp.example", "10.2.3.4", "one.example"] {
            assert_eq!(upstream.route(&target(direct), false), Ok(None), "{direct}");
        }
        assert!(upstream.route(&target("notcorp.example"), false).unwrap().is_some());
    }

    #[test]
    fn a_proxy_that_is_not_understood_is_an_error() {
        let upstream = upstream(&[("ALL_PROXY", "socks5://proxy.example:1080")]);
        assert!(upstream.route(&target("a.example"), false).is_err());
        assert_eq!(self::upstream(&[]).route(&target("a.example"), false), Ok(None));
    }

    #[test]
    fn base64_is_padded() {
        for (text, digits) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(text.as_bytes()), digits);
        }
    }
}
