//! Reach: which unix sockets of the host a command could connect to.
//!
//! In: a few folders and `/proc/net/unix`. Out: paths of sockets that this user may write to. A
//! look at one moment: a socket that is made later is not in it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::Host;
use super::linux::can_write;

/// Folders that services put sockets into.
const FOLDERS: [&str; 3] = ["/run", "/var/run", "/tmp"];

/// How deep the folders are searched. `/run/user/1000/podman/podman.sock` lies four deep.
const DEPTH: u32 = 4;

/// Entries looked at before the search ends; a host with more is taken to have sockets.
const ENTRIES: usize = 20_000;

/// Flag of a listening socket in `/proc/net/unix`: `__SO_ACCEPTCON`, linux/net.h.
const LISTENS: &str = "00010000";

/// Folders that hold sockets of services and little else; a socket that is made in one later is out
/// of reach with the folder.
const SERVICES: [&str; 15] = [
    "/run/avahi-daemon",
    "/run/buildkit",
    "/run/containerd",
    "/run/crio",
    "/run/cups",
    "/run/dbus",
    "/run/docker",
    "/run/libvirt",
    "/run/mysqld",
    "/run/pcscd",
    "/run/podman",
    "/run/postgresql",
    "/run/systemd",
    "/run/tailscale",
    "/run/user",
];

/// Below a folder of sockets, what names are looked up with: resolv.conf(5) may lead there.
pub(crate) const RESOLVER: [&str; 2] =
    ["/run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// The folders of sockets that there are; real paths.
pub(crate) fn folders(host: &Host) -> Vec<PathBuf> {
    let own = host.env.get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let all = SERVICES.iter().map(PathBuf::from).chain(own);
    let real = all.filter_map(|folder| fs::canonicalize(folder).ok());
    // A variable that names a folder near the root would hide the host.
    let found: BTreeSet<PathBuf> =
        real.filter(|folder| folder.is_dir() && folder.components().count() > 2).collect();
    found.into_iter().collect()
}

/// Finds the sockets outside `own`, which are the attempt's folders.
pub(crate) fn sockets(host: &Host, own: &[&Path]) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(PathBuf::from).collect();
    folders.extend(host.env.get("XDG_RUNTIME_DIR").map(PathBuf::from));
    let mut found = BTreeSet::new();
    let mut left = ENTRIES;
    for folder in folders.iter().filter_map(|folder| fs::canonicalize(folder).ok()) {
        search(&folder, DEPTH, &mut left, &mut found);
    }
    found.extend(listening(&fs::read_to_string("/proc/net/unix").unwrap_or_default()));
    for name in ["SSH_AUTH_SOCK", "DOCKER_HOST"] {
        let value = host.env.get(name).map(|value| value.trim_start_matches("unix://"));
        found.extend(value.map(PathBuf::from).filter(|path| path.is_absolute()));
    }
    found
        .into_iter()
        .filter(|path| !own.iter().any(|folder| path.starts_with(folder)))
        .filter(|path| fs::metadata(path).is_ok_and(|data| data.file_type().is_socket()))
        .filter(|path| can_write(path))
        .collect()
}

fn search(folder: &Path, depth: u32, left: &mut usize, found: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_socket() {
            found.insert(entry.path());
        } else if kind.is_dir() && depth > 1 {
            search(&entry.path(), depth - 1, left, found);
        }
    }
}

/// Paths of the sockets of this network namespace that listen or, as datagram sockets, receive.
fn listening(table: &str) -> impl Iterator<Item = PathBuf> {
    table.lines().skip(1).filter_map(|line| {
        // Num RefCount Protocol Flags Type St Inode Path
        let fields: Vec<&str> = line.splitn(8, ' ').collect();
        let [_, _, _, flags, kind, _, _, rest] = fields.as_slice() else { return None };
        let path = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let receives = *flags == LISTENS || *kind == "0002";
        (receives && path.starts_with('/')).then(|| PathBuf::from(path))
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::listening;

    #[test]
    fn the_kernels_table_is_read() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff1: 00000002 00000000 00010000 0001 01 19022 /run/docker.sock\n\
            ffff2: 00000003 00000000 00000000 0001 03 19023 /run/connected\n\
            ffff3: 00000002 00000000 00000000 0002 01 19024 /run/log socket\n\
            ffff4: 00000002 00000000 00010000 0001 01 19025 @abstract\n\
            ffff5: 00000002 00000000 00010000 0001 01 19026\n";
        let found: Vec<PathBuf> = listening(table).collect();
        assert_eq!(found, [PathBuf::from("/run/docker.sock"), PathBuf::from("/run/log socket")]);
    }
}
