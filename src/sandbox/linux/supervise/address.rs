//! Addresses of sockets, as bytes and as what they mean.
//!
//! In: `struct sockaddr` of any family that is supported. Out: a place. Knows nothing of what is
//! allowed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use nix::errno::Errno;
use nix::libc;

use super::caller::Caller;

/// Most bytes of an address: `struct sockaddr_storage`.
const MOST: usize = 128;

/// Least bytes of an address of IPv6, which had no scope once: `SIN6_LEN_RFC2133`.
const SHORT_V6: usize = 24;

/// What an address means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address<'a> {
    /// `AF_UNSPEC`, which ends a connection.
    None,
    Inet(SocketAddr),
    /// A path.
    Unix(&'a [u8]),
    /// An abstract unix address, or one that the kernel is to choose.
    Abstract,
}

/// Copies an address.
pub(super) fn read(caller: &Caller<'_>, address: u64, length: i32) -> nix::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
    if !(2..=MOST).contains(&length) {
        return Err(Errno::EINVAL);
    }
    let bytes = caller.bytes(address, length)?;
    caller.check()?;
    Ok(bytes)
}

/// What an address means.
pub(super) fn parse(bytes: &[u8]) -> nix::Result<Address<'_>> {
    let (family, rest) = bytes.split_first_chunk::<2>().ok_or(Errno::EINVAL)?;
    let port = |rest: &[u8]| Some(u16::from_be_bytes(*rest.first_chunk::<2>()?));
    let inet = |ip: Option<IpAddr>| match (ip, port(rest)) {
        (Some(ip), Some(port)) => Ok(Address::Inet(SocketAddr::new(ip, port))),
        _ => Err(Errno::EINVAL),
    };
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_UNSPEC => Ok(Address::None),
        libc::AF_INET if bytes.len() >= size_of::<libc::sockaddr_in>() => {
            let ip = rest.get(2..6).and_then(|ip| <[u8; 4]>::try_from(ip).ok());
            inet(ip.map(|ip| Ipv4Addr::from(ip).into()))
        }
        libc::AF_INET6 if bytes.len() >= SHORT_V6 => {
            let ip = rest.get(6..22).and_then(|ip| <[u8; 16]>::try_from(ip).ok());
            inet(ip.map(|ip| Ipv6Addr::from(ip).into()))
        }
        libc::AF_UNIX => Ok(match rest.first() {
            None | Some(0) => Address::Abstract,
            Some(_) => {
                let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
                Address::Unix(&rest[..end])
            }
        }),
        libc::AF_INET | libc::AF_INET6 => Err(Errno::EINVAL),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// An address as bytes, for a socket of this family.
pub(super) fn render(address: SocketAddr, family: i32) -> Vec<u8> {
    let mut out = u16::try_from(family).unwrap_or(0).to_ne_bytes().to_vec();
    out.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) if family == libc::AF_INET => {
            out.extend(ip.octets());
            out.extend([0; 8]);
        }
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => {
            let (ip, scope) = match (ip, address) {
                (IpAddr::V4(ip), _) => (ip.to_ipv6_mapped(), 0),
                (IpAddr::V6(ip), SocketAddr::V6(address)) => (ip, SocketAddrV6::scope_id(&address)),
                (IpAddr::V6(ip), SocketAddr::V4(_)) => (ip, 0),
            };
            out.extend([0; 4]);
            out.extend(ip.octets());
            out.extend(scope.to_ne_bytes());
        }
    }
    out
}

/// A unix address. `None` when the path is too long for one.
pub(super) fn unix(path: &[u8]) -> Option<Vec<u8>> {
    let room = size_of::<libc::sockaddr_un>() - size_of::<libc::sa_family_t>();
    if path.len() >= room {
        return None;
    }
    let mut out = u16::try_from(libc::AF_UNIX).ok()?.to_ne_bytes().to_vec();
    out.extend(path);
    out.push(0);
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use nix::errno::Errno;
    use nix::libc;

    use super::{Address, parse, render, unix};

    #[test]
    fn addresses_survive_the_way() {
        for (text, family) in [("127.0.0.1:80", libc::AF_INET), ("[::1]:443", libc::AF_INET6)] {
            let address: SocketAddr = text.parse().unwrap();
            let bytes = render(address, family);
            assert_eq!(parse(&bytes), Ok(Address::Inet(address)));
            assert_eq!(parse(&bytes[..8]), Err(Errno::EINVAL));
        }
        let mapped = render("127.0.0.1:80".parse().unwrap(), libc::AF_INET6);
        assert_eq!(parse(&mapped), Ok(Address::Inet("[::ffff:127.0.0.1]:80".parse().unwrap())));
        assert_eq!(parse(&unix(b"/a/s").unwrap()), Ok(Address::Unix(b"/a/s")));
        assert_eq!(unix(&[b'a'; 108]), None);
        assert_eq!(parse(&[1, 0, 0, b'x']), Ok(Address::Abstract));
        assert_eq!(parse(&[0, 0]), Ok(Address::None));
        assert_eq!(parse(&[40, 0, 0, 0]), Err(Errno::EAFNOSUPPORT));
        assert_eq!(parse(&[1]), Err(Errno::EINVAL));
    }
}
