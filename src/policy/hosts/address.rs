//! Which addresses are not of the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of IPv4: address, bits, what they are. Registry of special addresses of the IANA, RFC
/// 6890; the last one is a cloud's metadata at a public address.
const V4: [(Ipv4Addr, u32, &str); 16] = [
    (Ipv4Addr::UNSPECIFIED, 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmark"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "metadata"),
];

/// Networks of IPv6 likewise. Tunnels and translations that hold an address of IPv4 are not looked
/// through but for NAT64's own prefix, which whole networks live behind.
const V6: [(Ipv6Addr, u32, &str); 13] = [
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::UNSPECIFIED, 64, "reserved"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "private"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discard"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "tunnel"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "private"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "private"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// NAT64: RFC 6052.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// What kind of non-public address it is: `loopback`, `private`, `link-local`, …; `None` for one of
/// the public internet.
pub fn private(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) if is_in_v6(address, NAT64, 96) => {
            let [.., a, b, c, d] = address.octets();
            v4(Ipv4Addr::new(a, b, c, d))
        }
        IpAddr::V6(address) => V6
            .iter()
            .find(|(network, bits, _)| is_in_v6(address, *network, *bits))
            .map(|(_, _, kind)| *kind),
    }
}

fn v4(address: Ipv4Addr) -> Option<&'static str> {
    V4.iter()
        .find(|(network, bits, _)| is_in_v4(address, *network, *bits))
        .map(|(_, _, kind)| *kind)
}

/// Whether `address` is one of the network's.
pub(super) fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address.to_canonical(), network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => is_in_v4(address, network, bits),
        (IpAddr::V6(address), IpAddr::V6(network)) => is_in_v6(address, network, bits),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

fn is_in_v4(address: Ipv4Addr, network: Ipv4Addr, bits: u32) -> bool {
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    (address.to_bits() ^ network.to_bits()) & mask == 0
}

fn is_in_v6(address: Ipv6Addr, network: Ipv6Addr, bits: u32) -> bool {
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    (address.to_bits() ^ network.to_bits()) & mask == 0
}
