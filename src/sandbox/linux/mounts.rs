//! Mounts: which part of the file system a command sees, and how.
//!
//! In: a list of places, ordered by this module. Out: the mounts of a fresh mount namespace, all of
//! it read-only but for what the list says. Runs in the starter, before any command.

use std::ffi::{CString, OsStr};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::mount::{MsFlags, mount};

use super::sys::{self, NO_DEVICES, NO_SET_ID, READ_ONLY};

/// How a place is seen. The deeper of two places decides; at the same depth, the later kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum View {
    /// Read-only, as it is outside.
    Kept,
    /// Writable, as it is outside.
    Writable,
    /// Read-only, though below a writable place.
    Protected,
    /// Neither readable nor listed.
    Hidden,
}

/// A place and what is seen there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Where; absolute, without symlinks.
    pub(crate) at: PathBuf,
    /// What of the outside is seen there; the same as `at` but for private folders and copies.
    pub(crate) what: PathBuf,
    /// How.
    pub(crate) view: View,
}

/// A folder that is seen with changes which lie elsewhere: overlayfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layers {
    /// The folder, and where the whole is seen; absolute, without symlinks.
    pub(crate) lower: PathBuf,
    /// The changes.
    pub(crate) upper: PathBuf,
    /// Private to the kernel.
    pub(crate) work: PathBuf,
}

/// Devices that a command sees.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Below the process's own folder, so that names of devices lead to its own streams.
const STREAMS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// A part of the fresh tree that became another mount than the one outside.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// Folders that commands may write to and that no ruleset made outside knows.
    pub(crate) writable: Vec<OwnedFd>,
    /// The workspace, when it is laid over a folder.
    pub(crate) layered: Option<OwnedFd>,
}

/// What failed, and where.
pub(crate) type Failed = Errno;

/// Sorts places so that each stands behind those above it.
pub(crate) fn ordered(mut places: Vec<Placed>) -> Vec<Placed> {
    places.sort_by_key(|place| (place.at.components().count(), place.at.clone(), place.view));
    places.dedup();
    places
}

/// Carries the list out in this process's own mount namespace, above `layers`.
pub(crate) fn carry_out(
    places: &[Placed],
    (layers, shm_size): (Option<&Layers>, u64),
) -> Result<Made, Failed> {
    // While its upper folder is still writable; its place takes it over like any other folder.
    if let Some(layers) = layers {
        join_layers(layers)?;
    }
    // What is shown must be taken before anything is laid over it, and while it is writable.
    let taken: Vec<Option<OwnedFd>> = places
        .iter()
        .map(|place| match place.view {
            View::Kept | View::Writable => take(&place.what),
            View::Protected if place.at != place.what => take(&place.what),
            View::Protected | View::Hidden => Ok(None),
        })
        .collect::<Result<_, _>>()?;
    let devices: Vec<(&str, OwnedFd)> = DEVICES
        .iter()
        .filter_map(|name| Some((*name, take(&Path::new("/dev").join(name)).ok()??)))
        .collect();

    let root = File::from(nix::fcntl::open(
        c"/",
        nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_CLOEXEC,
        nix::sys::stat::Mode::empty(),
    )?);
    sys::set_mount(root.as_fd(), READ_ONLY | NO_SET_ID, true)?;

    let mut veils = Vec::new();
    for (place, tree) in places.iter().zip(taken) {
        lay(place, tree, &mut veils)?;
    }
    let mut made = private_devices(devices, shm_size)?;
    if let Some(layers) = layers {
        made.layered = Some(open(&layers.lower)?);
    }
    for veil in veils {
        mount_flags(&veil, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY)?;
    }
    Ok(made)
}

/// Mounts layers over the lower one: the kernel's overlayfs document. In a user namespace its marks
/// are attributes of users; an index would be refused while an earlier mount is still going away.
fn join_layers(Layers { lower, upper, work }: &Layers) -> Result<(), Failed> {
    let mut options = Vec::new();
    for (name, path) in [("lowerdir=", lower), (",upperdir=", upper), (",workdir=", work)] {
        options.extend(name.bytes());
        for byte in path.as_os_str().as_bytes() {
            if matches!(byte, b'\\' | b',' | b':') {
                options.push(b'\\');
            }
            options.push(*byte);
        }
    }
    options.extend(b",userxattr,index=off");
    let options = OsStr::from_bytes(&options);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("overlay"), lower, Some("overlay"), flags, Some(options))
}

/// A detached copy of what is there; `None` when nothing is.
fn take(path: &Path) -> Result<Option<OwnedFd>, Failed> {
    match sys::clone_tree(&c_string(path)?) {
        Ok(tree) => Ok(Some(tree)),
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EACCES | Errno::ELOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn lay(place: &Placed, tree: Option<OwnedFd>, veils: &mut Vec<PathBuf>) -> Result<(), Failed> {
    match place.view {
        View::Kept | View::Writable => {
            let Some(tree) = tree else { return Ok(()) };
            let is_writable = place.view == View::Writable;
            let set = NO_SET_ID | NO_DEVICES | if is_writable { 0 } else { READ_ONLY };
            sys::set_mount(tree.as_fd(), set, true)?;
            if !stand_in(&place.at, place.what.is_dir() || is_folder(&tree)) {
                return Ok(());
            }
            sys::place_tree(tree.as_fd(), &c_string(&place.at)?)
        }
        View::Protected => {
            let tree = match tree {
                Some(tree) => Some(tree),
                None => take(&place.at)?,
            };
            let Some(tree) = tree else { return Ok(()) };
            sys::set_mount(tree.as_fd(), NO_SET_ID | NO_DEVICES | READ_ONLY, true)?;
            sys::place_tree(tree.as_fd(), &c_string(&place.at)?)
        }
        View::Hidden => match fs::symlink_metadata(&place.at) {
            Err(_) => Ok(()),
            Ok(facts) if facts.is_dir() => {
                let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
                let options = Some("mode=111,size=64k,nr_inodes=256");
                mount(Some("tmpfs"), &place.at, Some("tmpfs"), flags, options)?;
                veils.push(place.at.clone());
                Ok(())
            }
            Ok(_) => {
                // Without devices, so that it can be neither read nor written.
                let null = take(Path::new("/dev/null"))?.ok_or(Errno::ENOENT)?;
                sys::set_mount(null.as_fd(), READ_ONLY | NO_SET_ID | NO_DEVICES, false)?;
                sys::place_tree(null.as_fd(), &c_string(&place.at)?)
            }
        },
    }
}

fn is_folder(tree: &OwnedFd) -> bool {
    tree.try_clone().is_ok_and(|fd| File::from(fd).metadata().is_ok_and(|facts| facts.is_dir()))
}

/// Makes sure that something of the right kind is there to be laid over. It can be made in private
/// folders and veils only; the rest is read-only by now.
fn stand_in(at: &Path, is_folder: bool) -> bool {
    if fs::symlink_metadata(at).is_ok_and(|facts| facts.is_dir() == is_folder) {
        return true;
    }
    let Some(parent) = at.parent() else { return false };
    let mut folder = DirBuilder::new();
    folder.recursive(true).mode(0o755);
    if folder.create(parent).is_err() {
        return false;
    }
    if is_folder {
        folder.create(at).is_ok()
    } else {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(at).is_ok()
    }
}

/// Lays a folder of devices of our own over the host's.
fn private_devices(devices: Vec<(&str, OwnedFd)>, shm_size: u64) -> Result<Made, Failed> {
    let dev = Path::new("/dev");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), dev, Some("tmpfs"), flags, Some("mode=755,size=64k,nr_inodes=64"))?;
    for (name, device) in devices {
        let at = dev.join(name);
        make_file(&at)?;
        sys::place_tree(device.as_fd(), &c_string(&at)?)?;
    }
    for (name, target) in STREAMS {
        symlink(target, dev.join(name)).map_err(errno)?;
    }
    let mut made = Made::default();
    let pts = dev.join("pts");
    fs::create_dir(&pts).map_err(errno)?;
    let options = Some("newinstance,ptmxmode=0666,mode=620");
    // Without it there are no pseudo-terminals, and nothing else is missing.
    if mount(Some("devpts"), &pts, Some("devpts"), flags, options).is_ok() {
        made.writable.push(open(&pts)?);
    }
    let shm = dev.join("shm");
    fs::create_dir(&shm).map_err(errno)?;
    let flags = flags | MsFlags::MS_NODEV;
    let options = format!("mode=1777,size={shm_size}");
    mount(Some("tmpfs"), &shm, Some("tmpfs"), flags, Some(options.as_str()))?;
    made.writable.push(open(&shm)?);
    mount_flags(dev, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY)?;
    Ok(made)
}

/// Changes the flags of a mount of ours.
fn mount_flags(at: &Path, flags: MsFlags) -> Result<(), Failed> {
    let none = None::<&str>;
    let flags = flags | MsFlags::MS_BIND | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount(none, at, none, flags, none)
}

/// The fresh /proc of a process namespace, read-only: what a command may write there it may not
/// write by its ruleset either. Returns whether it could be had: not where the outer one is masked.
pub(crate) fn fresh_proc() -> Result<bool, Failed> {
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    match mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>) {
        Ok(()) => {}
        Err(Errno::EPERM | Errno::EACCES | Errno::EBUSY) => return Ok(false),
        Err(errno) => return Err(errno),
    }
    Ok(true)
}

fn open(path: &Path) -> Result<OwnedFd, Failed> {
    let flags = nix::fcntl::OFlag::O_PATH | nix::fcntl::OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, nix::sys::stat::Mode::empty())
}

fn make_file(at: &Path) -> Result<(), Failed> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(at).map(drop).map_err(errno)
}

#[expect(clippy::needless_pass_by_value, reason = "taken as `map_err` hands it over")]
fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

pub(super) fn c_string(path: &Path) -> Result<CString, Failed> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// Writes the list for the other half: kind, two strings.
pub(crate) fn encode(places: &[Placed], out: &mut Vec<u8>) {
    out.extend((places.len() as u64).to_le_bytes());
    for Placed { at, what, view } in places {
        out.push(*view as u8);
        put(at, out);
        put(what, out);
    }
}

/// Writes a path behind its length.
pub(super) fn put(path: &Path, out: &mut Vec<u8>) {
    let bytes = path.as_os_str().as_bytes();
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// Writes layers for the other half: three strings, empty for none.
pub(crate) fn encode_layers(layers: Option<&Layers>, out: &mut Vec<u8>) {
    let none = Layers::default();
    let Layers { lower, upper, work } = layers.unwrap_or(&none);
    for path in [lower, upper, work] {
        put(path, out);
    }
}

/// Reads what [`encode_layers`] wrote; a lower folder without a name for none.
pub(crate) fn decode_layers(from: &mut &[u8]) -> Option<Layers> {
    Some(Layers { lower: path(from)?, upper: path(from)?, work: path(from)? })
}

/// Reads what [`encode`] wrote.
pub(crate) fn decode(from: &mut &[u8]) -> Option<Vec<Placed>> {
    (0..number(from)?)
        .map(|_| {
            let (kind, rest) = from.split_first()?;
            *from = rest;
            let view = *[View::Kept, View::Writable, View::Protected, View::Hidden]
                .get(usize::from(*kind))?;
            Some(Placed { at: path(from)?, what: path(from)?, view })
        })
        .collect()
}

pub(super) fn number(from: &mut &[u8]) -> Option<u64> {
    let (bytes, rest) = from.split_first_chunk::<8>()?;
    *from = rest;
    Some(u64::from_le_bytes(*bytes))
}

/// Reads what [`put`] wrote.
pub(super) fn path(from: &mut &[u8]) -> Option<PathBuf> {
    let length = usize::try_from(number(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(PathBuf::from(OsStr::from_bytes(bytes)))
}
