//! The kernel's tables of TCP sockets.
//!
//! In: `/proc/net/tcp` and `/proc/net/tcp6`. Out: who listens where, and what a socket is connected
//! to, found by its inode: proc(5).

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// States of a socket: `net/tcp_states.h`.
pub(super) const ESTABLISHED: u8 = 1;
pub(super) const SYN_SENT: u8 = 2;
const LISTEN: u8 = 10;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) state: u8,
    pub(super) inode: u64,
}

/// Whether a socket that is bound to this very address listens. One of all addresses at the same port
/// may be the host's, and would get the connection if the other were closed meanwhile: then nothing
/// does.
pub(super) fn is_listening(at: SocketAddr) -> bool {
    is_among(&rows(), at)
}

/// Whether somebody listens at this port of all addresses.
pub(super) fn is_taken(port: u16) -> bool {
    rows().iter().any(|row| is_everywhere(row, port))
}

fn is_among(rows: &[Row], at: SocketAddr) -> bool {
    let is_it = |row: &Row| {
        row.state == LISTEN
            && row.local.port() == at.port()
            && row.local.ip().to_canonical() == at.ip()
    };
    rows.iter().any(is_it) && !rows.iter().any(|row| is_everywhere(row, at.port()))
}

fn is_everywhere(row: &Row, port: u16) -> bool {
    row.state == LISTEN && row.local.port() == port && row.local.ip().is_unspecified()
}

/// The row of a socket.
pub(super) fn row(inode: u64) -> Option<Row> {
    rows().into_iter().find(|row| row.inode == inode)
}

fn rows() -> Vec<Row> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let tables = tables.map(|path| fs::read_to_string(path).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().skip(1).filter_map(parse)).collect()
}

fn parse(line: &str) -> Option<Row> {
    let mut fields = line.split_ascii_whitespace();
    let local = address(fields.nth(1)?)?;
    let remote = address(fields.next()?)?;
    let state = u8::from_str_radix(fields.next()?, 16).ok()?;
    Some(Row { local, remote, state, inode: fields.nth(5)?.parse().ok()? })
}

/// Words of an address are printed as this machine holds them; the port is not.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let word = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        Some(word.to_ne_bytes())
    };
    let ip = if ip.len() == 8 {
        IpAddr::V4(Ipv4Addr::from(word(0)?))
    } else {
        let mut bytes = [0; 16];
        for (index, part) in bytes.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *part = word(index * 8)?;
        }
        IpAddr::V6(Ipv6Addr::from(bytes))
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::{Row, is_among, parse};

    #[test]
    fn a_port_that_is_listened_to_everywhere_is_nobodys_own() {
        let row = |local: &str, state| Row {
            local: local.parse().unwrap(),
            remote: "0.0.0.0:0".parse().unwrap(),
            state,
            inode: 1,
        };
        let own = "127.5.6.8:80".parse().unwrap();
        let there = row("127.5.6.8:80", 10);
        assert!(is_among(&[there], own));
        assert!(is_among(&[row("[::ffff:127.5.6.8]:80", 10)], own));
        assert!(!is_among(&[row("127.5.6.8:80", 1)], own));
        assert!(!is_among(&[row("127.5.6.8:81", 10)], own));
        assert!(!is_among(&[there, row("0.0.0.0:80", 10)], own));
        assert!(!is_among(&[there, row("[::]:80", 10)], own));
        assert!(is_among(&[there, row("[::]:81", 10)], own));
    }

    #[test]
    fn the_kernels_rows_are_read() {
        let line = "   0: 0806057F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
                    0        0 19022 1 0 100 0 0 10 0";
        let row = Row {
            local: "127.5.6.8:8080".parse().unwrap(),
            remote: "0.0.0.0:0".parse().unwrap(),
            state: 10,
            inode: 19022,
        };
        assert_eq!(parse(line), Some(row));
        let line = "   1: 0000000000000000FFFF00000906057F:0050 \
                    00000000000000000000000001000000:0001 01 0:0 00:0 0 0 0 7 1";
        let row = Row {
            local: "[::ffff:127.5.6.9]:80".parse().unwrap(),
            remote: "[::1]:1".parse().unwrap(),
            state: 1,
            inode: 7,
        };
        assert_eq!(parse(line), Some(row));
    }
}
