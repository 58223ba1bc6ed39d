//! Checks of what a `network_rule` names.
//!
//! In: host and protocol as written. Out: the host in lower case, or what is wrong with it.

use std::net::IpAddr;

/// Protocols that a rule can name.
pub(super) const PROTOCOLS: [&str; 4] = ["http", "https", "socks5_tcp", "socks5_udp"];

/// Returns the protocol by its own name; `https_connect` is an older one of `https`.
pub(super) fn check_protocol(protocol: &str) -> Result<&str, String> {
    match protocol {
        "https_connect" => Ok("https"),
        known if PROTOCOLS.contains(&known) => Ok(known),
        other => {
            Err(format!("`protocol` must be one of `{}`, got `{other}`", PROTOCOLS.join("`, `")))
        }
    }
}

/// Returns the host in lower case, without brackets, port or final dot.
pub(super) fn check_host(host: &str) -> Result<String, String> {
    let host = host.trim();
    if host.contains('*') {
        return Err(format!("`host` must be one host, without wildcards, got `{host}`"));
    }
    let host = host
        .rsplit_once(':')
        .filter(|(name, port)| {
            !port.is_empty()
                && port.chars().all(|c| c.is_ascii_digit())
                && (name.ends_with(']') || !name.contains(':'))
        })
        .map_or(host, |(name, _)| name);
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if bare.parse::<IpAddr>().is_ok() {
        return Ok(bare.to_ascii_lowercase());
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_name = !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        });
    if is_name {
        Ok(name.to_ascii_lowercase())
    } else {
        Err(format!(
            "`host` must be a host name or an IP address without scheme or path, got `{host}`"
        ))
    }
}
