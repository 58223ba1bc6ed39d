//! Checks of what a `network_rule` names.
//!
//! In: host and protocol as written. Out: the host in lower case, or what is wrong with it.

use std::net::IpAddr;

/// Protocols that a rule can name.
pub(super) const PROTOCOLS: [&str; 4] = ["http", "https", "socks5_tcp", "socks5_udp"];

/// Returns the host in lower case and without brackets or final dot.
pub(super) fn check_host(host: &str) -> Result<String, String> {
    let host = host.trim();
    if host.contains('*') {
        return Err(format!("`host` must be one host, without wildcards, got `{host}`"));
    }
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
            "`host` must be a host name or an IP address without scheme, port or path, got `{host}`"
        ))
    }
}
