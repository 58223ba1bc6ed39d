//! What the supervisor lets happen.
//!
//! In: bytes that the runner made of a layout. Out: judgements on real paths and on addresses. Pure:
//! it looks at no file. Knows nothing of system calls.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Folder of POSIX shared memory and semaphores: `shm_overview(7)`.
const SHM: &[u8] = b"/dev/shm/";

/// What the runner decided. All paths are real ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Writable roots.
    pub(crate) write: Vec<PathBuf>,
    /// Read-only, though below a writable root.
    pub(crate) protected: Vec<PathBuf>,
    /// Unreadable, though below a writable root.
    pub(crate) denied: Vec<PathBuf>,
    /// What is shown in place of a file: the file, its clean copy.
    pub(crate) copies: Vec<(PathBuf, PathBuf)>,
    /// Private folder whose files are shown in `/dev/shm`.
    pub(crate) shared_memory: PathBuf,
    /// Unix sockets of the host that may be connected to.
    pub(crate) sockets: Vec<PathBuf>,
    /// Ports of the loopback that lead out, and where to.
    pub(crate) doors: Vec<(u16, SocketAddr)>,
    /// Where the attempt's own loopback lies on the host's; `None`: the network is the host's.
    /// The next address stands for `::1`.
    pub(crate) loopback: Option<Ipv4Addr>,
    /// Whether Landlock keeps abstract sockets apart.
    pub(crate) has_scopes: bool,
    /// Most processes and threads, where the kernel doesn't count them itself.
    pub(crate) processes: Option<u64>,
}

/// Where a path lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lies {
    /// In no writable root: Landlock decides.
    Outside,
    /// In a writable root that Landlock grants whole.
    Granted,
    /// In a writable root with something carved out of it, where the supervisor acts.
    Carved,
    /// In what is read-only.
    Protected,
    /// In what is unreadable.
    Denied,
}

impl Policy {
    /// Where `path` lies. The deepest root or carve-out above it decides; a root that was named at
    /// the same place as a carve-out wins, because whoever names it means it.
    pub(crate) fn locate(&self, path: &Path) -> Lies {
        let deepest = |places: &[PathBuf]| {
            let above = places.iter().filter(|place| path.starts_with(place));
            above.map(|place| place.components().count()).max()
        };
        let Some(root) = deepest(&self.write) else { return Lies::Outside };
        let denied = deepest(&self.denied).filter(|depth| *depth > root);
        let protected = deepest(&self.protected).filter(|depth| *depth > root);
        match (denied, protected) {
            (Some(_), _) => Lies::Denied,
            (None, Some(_)) => Lies::Protected,
            (None, None) => {
                let mut above = self.write.iter().filter(|root| path.starts_with(root));
                if above.all(|root| self.holds_carved(root)) { Lies::Carved } else { Lies::Granted }
            }
        }
    }

    /// Whether something that is carved out lies below `path`: moving it would move that.
    pub(crate) fn holds_carved(&self, path: &Path) -> bool {
        self.carved().any(|place| place.starts_with(path) && place != path)
    }

    /// All that is carved out.
    pub(crate) fn carved(&self) -> impl Iterator<Item = &PathBuf> {
        self.protected.iter().chain(&self.denied)
    }

    /// Whether files must be opened for reading by the supervisor too.
    pub(crate) fn guards_reading(&self) -> bool {
        !self.denied.is_empty() || !self.copies.is_empty()
    }

    /// What is shown in place of `path`.
    pub(crate) fn copy_of(&self, path: &Path) -> Option<&Path> {
        self.copies.iter().find(|(at, _)| at == path).map(|(_, copy)| copy.as_path())
    }

    /// The name that a path in `/dev/shm` has in the private folder.
    pub(crate) fn shared_name(path: &[u8]) -> Option<&OsStr> {
        let name = path.strip_prefix(SHM)?;
        let is_plain = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
        is_plain.then(|| OsStr::from_bytes(name))
    }

    /// Where a socket that asks for `wanted` is really bound. `None`: no address of this host.
    /// `is_v6_only`: a wildcard of IPv6 leaves IPv4 alone.
    pub(crate) fn bound(&self, wanted: SocketAddr, is_v6_only: bool) -> Option<SocketAddr> {
        let Some(own) = self.loopback else { return Some(wanted) };
        let address = match wanted.ip().to_canonical() {
            IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => own,
            IpAddr::V6(ip) if ip.is_loopback() => next(own),
            IpAddr::V6(ip) if ip.is_unspecified() => {
                if is_v6_only {
                    next(own)
                } else {
                    own
                }
            }
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        Some(SocketAddr::new(address.into(), wanted.port()))
    }

    /// Where a connection to `wanted` may lead: the attempt's own listeners, then a door. `None`:
    /// the address is not reachable at all.
    pub(crate) fn targets(&self, wanted: SocketAddr) -> Option<Targets> {
        let Some(own) = self.loopback else {
            return Some(Targets { own: Vec::new(), outside: Some(wanted) });
        };
        let own = match wanted.ip().to_canonical() {
            IpAddr::V4(ip) if ip.is_loopback() || ip.is_unspecified() => vec![own],
            // A wildcard of both families is bound to the address of IPv4.
            IpAddr::V6(ip) if ip.is_loopback() || ip.is_unspecified() => vec![next(own), own],
            IpAddr::V4(_) | IpAddr::V6(_) => return None,
        };
        let door = self.doors.iter().find(|(port, _)| *port == wanted.port());
        Some(Targets {
            own: own.into_iter().map(|ip| SocketAddr::new(ip.into(), wanted.port())).collect(),
            outside: door.map(|(_, outside)| *outside),
        })
    }

    /// What the caller sees in place of `real`. Addresses that aren't the attempt's own stay.
    pub(crate) fn seen(&self, real: SocketAddr) -> SocketAddr {
        let Some(own) = self.loopback else { return real };
        let IpAddr::V4(ip) = real.ip().to_canonical() else { return real };
        let is_v6 = real.is_ipv6();
        let seen = match ip {
            ip if ip == next(own) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip if ip == own && is_v6 => IpAddr::V6(Ipv4Addr::LOCALHOST.to_ipv6_mapped()),
            ip if ip == own => IpAddr::V4(Ipv4Addr::LOCALHOST),
            _ => return real,
        };
        SocketAddr::new(seen, real.port())
    }

    /// Whether this is an address of the attempt's own loopback.
    pub(crate) fn is_own(&self, ip: IpAddr) -> bool {
        let IpAddr::V4(ip) = ip.to_canonical() else { return false };
        self.loopback.is_some_and(|own| ip == own || ip == next(own))
    }

    /// The policy as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for places in [&self.write, &self.protected, &self.denied, &self.sockets] {
            put_number(&mut out, places.len() as u64);
            for place in places {
                put_path(&mut out, place);
            }
        }
        put_number(&mut out, self.copies.len() as u64);
        for (at, copy) in &self.copies {
            put_path(&mut out, at);
            put_path(&mut out, copy);
        }
        put_path(&mut out, &self.shared_memory);
        put_number(&mut out, self.doors.len() as u64);
        for (port, outside) in &self.doors {
            put_number(&mut out, u64::from(*port));
            put_bytes(&mut out, outside.to_string().as_bytes());
        }
        put_number(&mut out, self.loopback.map_or(0, |ip| u64::from(ip.to_bits())));
        put_number(&mut out, u64::from(self.has_scopes));
        put_number(&mut out, self.processes.map_or(0, |most| most.saturating_add(1)));
        out
    }

    /// Reads what [`Policy::encode`] wrote; `None` for anything else.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let from = &mut bytes;
        let [write, protected, denied, sockets] =
            [take_paths(from)?, take_paths(from)?, take_paths(from)?, take_paths(from)?];
        let mut copies = Vec::new();
        for _ in 0..take_number(from)? {
            copies.push((take_path(from)?, take_path(from)?));
        }
        let shared_memory = take_path(from)?;
        let mut doors = Vec::new();
        for _ in 0..take_number(from)? {
            let port = u16::try_from(take_number(from)?).ok()?;
            let outside = std::str::from_utf8(take_bytes(from)?).ok()?.parse().ok()?;
            doors.push((port, outside));
        }
        let loopback = u32::try_from(take_number(from)?).ok()?;
        let has_scopes = take_number(from)? != 0;
        let processes = take_number(from)?.checked_sub(1);
        let loopback = (loopback != 0).then(|| Ipv4Addr::from_bits(loopback));
        from.is_empty().then_some(Self {
            write,
            protected,
            denied,
            copies,
            shared_memory,
            sockets,
            doors,
            loopback,
            has_scopes,
            processes,
        })
    }
}

/// Where a connection may lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Targets {
    /// Addresses at which the attempt itself may listen.
    pub(crate) own: Vec<SocketAddr>,
    /// Where else.
    pub(crate) outside: Option<SocketAddr>,
}

/// The address that stands for `::1`.
fn next(own: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(own.to_bits() ^ 1)
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend(bytes);
}

fn put_path(out: &mut Vec<u8>, path: &Path) {
    put_bytes(out, path.as_os_str().as_bytes());
}

fn take_number(from: &mut &[u8]) -> Option<u64> {
    let (number, rest) = from.split_first_chunk::<8>()?;
    *from = rest;
    Some(u64::from_le_bytes(*number))
}

fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes)
}

fn take_path(from: &mut &[u8]) -> Option<PathBuf> {
    Some(PathBuf::from(std::ffi::OsString::from_vec(take_bytes(from)?.to_vec())))
}

fn take_paths(from: &mut &[u8]) -> Option<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for _ in 0..take_number(from)? {
        paths.push(take_path(from)?);
    }
    Some(paths)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::{Path, PathBuf};

    use super::{Lies, Policy};

    fn policy() -> Policy {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect();
        Policy {
            write: paths(&["/w", "/t", "/w/.git/lfs"]),
            protected: paths(&["/w/.git", "/w/sub/.git", "/w/.env/x"]),
            denied: paths(&["/w/.env"]),
            copies: vec![(PathBuf::from("/w/.git/config"), PathBuf::from("/t/c"))],
            shared_memory: PathBuf::from("/t/.shm"),
            sockets: paths(&["/run/s"]),
            doors: vec![(3128, "127.0.0.1:40000".parse().unwrap())],
            loopback: Some(Ipv4Addr::new(127, 5, 6, 8)),
            has_scopes: true,
            processes: Some(4096),
        }
    }

    #[test]
    fn a_policy_survives_the_way() {
        assert_eq!(Policy::decode(&policy().encode()), Some(policy()));
        let without = Policy { loopback: None, processes: None, ..policy() };
        assert_eq!(Policy::decode(&without.encode()), Some(without));
        assert_eq!(Policy::decode(b"x"), None);
        assert_eq!(Policy::decode(&[policy().encode(), vec![0]].concat()), None);
    }

    #[test]
    fn the_deepest_root_or_carve_out_decides() {
        for (path, lies) in [
            ("/w", Lies::Carved),
            ("/w/a", Lies::Carved),
            ("/w/.github", Lies::Carved),
            ("/w/.git", Lies::Protected),
            ("/w/.git/hooks/x", Lies::Protected),
            ("/w/.git/lfs/x", Lies::Granted),
            ("/w/sub", Lies::Carved),
            ("/w/sub/.git/x", Lies::Protected),
            ("/w/.env", Lies::Denied),
            ("/w/.env/x/y", Lies::Denied),
            ("/t/a", Lies::Granted),
            ("/ww", Lies::Outside),
            ("/", Lies::Outside),
        ] {
            assert_eq!(policy().locate(Path::new(path)), lies, "{path}");
        }
        assert!(policy().holds_carved(Path::new("/w/sub")));
        assert!(!policy().holds_carved(Path::new("/w/.git/hooks")));
    }

    #[test]
    fn the_loopback_is_the_attempts_own() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (wanted, is_v6_only, real) in [
            ("127.0.0.1:80", false, Some("127.5.6.8:80")),
            ("0.0.0.0:0", false, Some("127.5.6.8:0")),
            ("[::1]:80", false, Some("127.5.6.9:80")),
            ("[::]:80", true, Some("127.5.6.9:80")),
            ("[::]:80", false, Some("127.5.6.8:80")),
            ("[::ffff:127.0.0.1]:80", false, Some("127.5.6.8:80")),
            ("10.0.0.1:80", false, None),
            ("[fe80::1]:80", false, None),
        ] {
            assert_eq!(policy().bound(at(wanted), is_v6_only), real.map(at), "{wanted}");
        }
        let targets = policy().targets(at("127.0.0.1:3128")).unwrap();
        assert_eq!(targets.own, [at("127.5.6.8:3128")]);
        assert_eq!(targets.outside, Some(at("127.0.0.1:40000")));
        let targets = policy().targets(at("[::1]:22")).unwrap();
        assert_eq!(targets.own, [at("127.5.6.9:22"), at("127.5.6.8:22")]);
        assert_eq!(targets.outside, None);
        assert_eq!(policy().targets(at("169.254.169.254:80")), None);
        for (real, seen) in [
            ("127.5.6.8:7", "127.0.0.1:7"),
            ("[::ffff:127.5.6.9]:7", "[::1]:7"),
            ("[::ffff:127.5.6.8]:7", "[::ffff:127.0.0.1]:7"),
            ("127.0.0.1:7", "127.0.0.1:7"),
        ] {
            assert_eq!(policy().seen(at(real)), at(seen), "{real}");
        }
    }

    #[test]
    fn names_in_shared_memory_are_plain() {
        assert_eq!(Policy::shared_name(b"/dev/shm/sem.x").unwrap(), "sem.x");
        for path in [&b"/dev/shm/"[..], b"/dev/shm/..", b"/dev/shm/a/b", b"/dev/shmx/a", b"sem.x"] {
            assert_eq!(Policy::shared_name(path), None);
        }
    }
}
