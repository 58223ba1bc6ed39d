//! The sandbox: where a command runs, and what is really in force.
//!
//! In: a [`Cleared`] action and the attempt's [`Profile`]. Out: [`Confined`], which alone starts a
//! process, and the [`Enforcement`]. Knows nothing of models, sessions or the transcript's files.

mod carve;
mod confined;
mod enforcement;
mod enumerate;
mod environment;
mod error;
mod inner;
pub(crate) mod layers;
mod layout;
mod linux;
mod owner;
mod places;
mod probe;
mod proxy;
mod reach;
mod running;
mod supervised;
mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OnceCell;
use tokio::sync::mpsc::UnboundedSender;

pub use confined::Confined;
pub use environment::environment;
pub use error::SandboxError;
pub use inner::inner_stage;
pub use linux::landlock::LandlockError;
pub use probe::{Facts, facts};
pub use proxy::{Note, Requested};
pub use running::{Observed, Running};

pub use crate::process::{Capture, Cause, Ended, Output, ProcessError, Stdin, Step, end_leftovers};

pub(crate) use crate::process::{input_pipe, pump};

use crate::approval::Cleared;
use crate::policy::Action;
use crate::process::{Launch, Quota, Starter};
use crate::profile::{Hosts, Network, Profile};
use crate::transcript::event::Enforcement;
use layout::Layout;
use linux::cgroup::{Group, Most};
use linux::landlock::Fence;
use linux::mounts::Layers;
use linux::namespaces::Plan;
use linux::seccomp::UnixSockets;
use places::Found;
use proxy::Proxy;
use turn::Turn;

/// Facts of the host, read once by `cli`.
#[derive(Clone, Debug)]
pub struct Host {
    /// Our executable, absolute; started again as the inner stage.
    pub binary: PathBuf,
    /// Home folder of the user; its credential places are hidden from commands.
    pub home: Option<PathBuf>,
    /// The runner's environment.
    pub env: BTreeMap<String, String>,
    /// Effective user id.
    pub uid: u32,
}

/// Folders of one attempt; absolute, existing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Working tree.
    pub workspace: PathBuf,
    /// Private HOME.
    pub home: PathBuf,
    /// Private TMPDIR.
    pub tmp: PathBuf,
    /// Readable whatever the profile says: the store that a clone borrows its objects from.
    pub read_extra: Vec<PathBuf>,
    /// Writable in every mode: private copies of caches.
    pub write_extra: Vec<PathBuf>,
    /// Value of `HORSEMAN_STATE`, which marks processes: the run's private state folder.
    pub marker: String,
    /// Whether the workspace is a clone or copy: nothing in it needs a carve-out.
    pub is_disposable: bool,
    /// Git folders and files of an in-place workspace, wherever they lie: its `.git`, what that
    /// names, those of its submodules. Read-only unless `write` names them.
    pub git: Vec<PathBuf>,
    /// What the workspace shows, when it is laid over a folder.
    pub overlay: Option<Overlay>,
}

/// A folder that commands see with their own changes, which lie elsewhere: overlayfs. All absolute,
/// existing, `upper` and `work` empty or of an earlier mount, on one file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// The folder; it isn't changed.
    pub lower: PathBuf,
    /// Where changes go.
    pub upper: PathBuf,
    /// Folder for what is private to the kernel.
    pub work: PathBuf,
}

/// A confinement that was tried out here. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    host: Arc<Host>,
    profile: Profile,
    place: Place,
    facts: Arc<Facts>,
    kind: Kind,
    enforcement: Enforcement,
    /// Where the proxy's decisions go.
    record: Option<UnboundedSender<Note>>,
    /// What limits the private temporary folder.
    quota: Option<Quota>,
    /// Ruleset and filter, made at the first use; made again when a root is another folder.
    prepared: Mutex<Option<Arc<Prepared>>>,
    /// Its turn with the overlay.
    turn: Turn,
}

/// Which layout a sandbox has.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// An attempt's, by Landlock and seccomp alone.
    Landlock,
    /// An attempt's, in namespaces of its own as well.
    Namespaces,
    /// Our own git's: these roots are writable.
    Narrow(Vec<PathBuf>),
    /// No confinement, for this reason.
    Open(String),
}

/// What the starter applies, and the starter itself.
#[derive(Debug)]
struct Prepared {
    /// Device and inode of each writable root: a rule holds for the folder, not for its name.
    roots: Vec<Option<(u64, u64)>>,
    setup: Vec<u8>,
    fds: Vec<OwnedFd>,
    starter: OnceCell<(Arc<Starter>, Option<Proxy>)>,
    /// Goes after the starter, which is in it.
    #[expect(dead_code, reason = "held for its end")]
    group: Option<Group>,
}

impl Prepared {
    fn new(roots: Vec<Option<(u64, u64)>>, setup: Vec<u8>, fds: Vec<OwnedFd>) -> Self {
        Self { roots, setup, fds, starter: OnceCell::new(), group: None }
    }
}

impl Inner {
    fn new(
        host: Arc<Host>,
        profile: Profile,
        place: Place,
        (facts, kind, turn): (Arc<Facts>, Kind, Turn),
    ) -> Self {
        let enforcement = enforcement::decide(&host, &profile, &place, (&facts, &kind));
        let prepared = Mutex::new(None);
        let most = profile.limits.tmp_size.filter(|_| is_attempt(&kind));
        let quota = most.map(|most| Quota { folder: place.tmp.clone(), most });
        Self { host, profile, place, facts, kind, enforcement, record: None, quota, prepared, turn }
    }
}

impl Sandbox {
    /// Tries the whole confinement out, by a run of our own binary inside it, and decides what is
    /// in force.
    ///
    /// # Errors
    ///
    /// - [`SandboxError::Unenforceable`] when the profile asks for what can't be had here.
    /// - Others when a part of the confinement can't even be made.
    pub async fn probe(
        host: &Host,
        profile: &Profile,
        place: &Place,
    ) -> Result<Self, SandboxError> {
        probe::attempt(host, profile, place).await
    }

    /// The narrow confinement of our own git: writes below `write` alone, reads everything but
    /// credential places, no network. On a kernel without Landlock it is no confinement, and
    /// [`Sandbox::enforcement`] says so.
    ///
    /// # Errors
    ///
    /// As for [`Sandbox::confine`]; a folder of `write` must exist.
    #[expect(clippy::unused_async, reason = "a later tier probes here")]
    pub async fn narrow(
        host: &Host,
        write: &[PathBuf],
        marker: &str,
    ) -> Result<Self, SandboxError> {
        probe::narrow(host, write, marker)
    }

    /// What is in force.
    pub fn enforcement(&self) -> &Enforcement {
        &self.inner.enforcement
    }

    /// The same confinement with another network; `hosts` matter to `Network::Listed` alone.
    #[must_use]
    pub fn with_network(&self, network: Network, hosts: &Hosts) -> Self {
        let profile = Profile { network, hosts: hosts.clone(), ..self.inner.profile.clone() };
        self.changed(profile, (self.inner.place.clone(), self.inner.record.clone()))
    }

    /// The same confinement, which tells of each request to a listed host before it is carried out.
    #[must_use]
    pub fn with_record(&self, record: UnboundedSender<Note>) -> Self {
        let inner = &self.inner;
        self.changed(inner.profile.clone(), (inner.place.clone(), Some(record)))
    }

    /// Whether the hosts that it lists can be held here (P3). The probe has done this for the
    /// profile's own.
    ///
    /// # Errors
    ///
    /// [`SandboxError::Unenforceable`] when they can't.
    pub fn check_hosts(&self) -> Result<(), SandboxError> {
        let inner = &self.inner;
        if inner.profile.network != Network::Listed || matches!(inner.kind, Kind::Open(_)) {
            return Ok(());
        }
        let hosts = &inner.profile.hosts;
        proxy::rules(hosts).map_err(|error| SandboxError::unlisted(error.to_string()))?;
        proxy::ports(hosts).map(drop).map_err(SandboxError::unlisted)
    }

    /// What of the network commands reach.
    pub fn network(&self) -> Network {
        self.inner.profile.network
    }

    /// The same profile on another tree, which is a disposable one.
    #[must_use]
    pub fn with_workspace(&self, workspace: PathBuf) -> Self {
        let place = Place { workspace, is_disposable: true, ..self.inner.place.clone() };
        self.changed(self.inner.profile.clone(), (place, self.inner.record.clone()))
    }

    /// Protected paths that this confinement doesn't hold, so that they have to be looked at after
    /// each command: what a mount can't be laid over, or all of them where `degraded` names
    /// `protected` and no layer carves them out.
    ///
    /// # Errors
    ///
    /// A glob that can't be looked up.
    pub fn watched(&self) -> Result<Vec<PathBuf>, SandboxError> {
        let Inner { profile, place, kind, .. } = &*self.inner;
        let is_degraded = profile.degraded.iter().any(|item| item == PROTECTED);
        let mut watched = carve::loose(profile, place);
        match kind {
            Kind::Narrow(_) | Kind::Landlock => return Ok(Vec::new()),
            Kind::Namespaces => {}
            Kind::Open(_) if !is_degraded => return Ok(Vec::new()),
            Kind::Open(_) => watched.extend(carve::protected(profile, place)?),
        }
        Ok(watched)
    }

    /// Begins anew at the next command: the folders that the confinement was laid over were emptied.
    pub fn renew(&self) {
        *self.inner.prepared.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn changed(
        &self,
        profile: Profile,
        (place, record): (Place, Option<UnboundedSender<Note>>),
    ) -> Self {
        let inner = &self.inner;
        let parts = (Arc::clone(&inner.facts), inner.kind.clone(), inner.turn.another());
        let made = Inner::new(Arc::clone(&inner.host), profile, place, parts);
        Self { inner: Arc::new(Inner { record, ..made }) }
    }

    fn new(
        host: Arc<Host>,
        profile: Profile,
        place: Place,
        parts: (Arc<Facts>, Kind, Turn),
    ) -> Self {
        Self { inner: Arc::new(Inner::new(host, profile, place, parts)) }
    }

    /// Confines a cleared command: the only maker of a [`Confined`].
    ///
    /// # Errors
    ///
    /// When ruleset or filter can't be made, or the action is no command.
    pub fn confine(&self, cleared: Cleared) -> Result<Confined, SandboxError> {
        if matches!(**cleared.action(), Action::Input(_)) {
            return Err(SandboxError::NotACommand);
        }
        let exec = cleared.exec();
        let mut launch = Launch {
            program: exec.program.clone(),
            argv: exec.argv.clone(),
            cwd: exec.cwd.clone(),
            env: exec.env.clone(),
        };
        if self.network() == Network::Listed && is_attempt(&self.inner.kind) {
            environment::with_proxy(&mut launch.env, &self.inner.profile.env);
        }
        check(&launch)?;
        let prepared = self.prepared()?;
        Ok(Confined::new(self.clone(), cleared, launch, prepared))
    }

    fn prepared(&self) -> Result<Arc<Prepared>, SandboxError> {
        let layout = self.layout();
        let upper = self.inner.place.overlay.iter().map(|overlay| &overlay.upper);
        let roots: Vec<_> = layout.write.iter().chain(upper).map(|root| identity(root)).collect();
        let mut slot = self.inner.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if self.inner.place.overlay.is_some() && !self.inner.turn.take() {
            *slot = None;
        }
        if let Some(prepared) = slot.as_ref().filter(|prepared| prepared.roots == roots) {
            return Ok(Arc::clone(prepared));
        }
        let prepared = Arc::new(self.prepare(&layout, roots)?);
        *slot = Some(Arc::clone(&prepared));
        Ok(prepared)
    }

    fn layout(&self) -> Layout {
        let Inner { host, profile, place, facts, kind, .. } = &*self.inner;
        match kind {
            Kind::Landlock | Kind::Namespaces => layout::layout(host, profile, place, &facts.homes),
            Kind::Narrow(write) => layout::narrow(host, write, &facts.homes),
            Kind::Open(_) => Layout::default(),
        }
    }

    fn prepare(
        &self,
        layout: &Layout,
        roots: Vec<Option<(u64, u64)>>,
    ) -> Result<Prepared, SandboxError> {
        self.check_hosts()?;
        match &self.inner.kind {
            Kind::Open(_) => Ok(Prepared::new(roots, linux::encode_nothing(), Vec::new())),
            Kind::Namespaces => self.prepare_namespaces(layout, roots),
            Kind::Landlock => {
                let supervised = supervised::prepare(&self.inner, &self.carved(layout)?)?;
                Ok(Prepared::new(roots, supervised.setup, supervised.fds))
            }
            Kind::Narrow(_) => self.prepare_narrow(layout, roots),
        }
    }

    fn prepare_narrow(
        &self,
        layout: &Layout,
        roots: Vec<Option<(u64, u64)>>,
    ) -> Result<Prepared, SandboxError> {
        let Inner { profile, facts, .. } = &*self.inner;
        let denied = denied(layout)?;
        let read = enumerate::granted(&real_roots(&layout.read), &denied);
        let ruleset = linux::landlock::ruleset(facts.abi(), Fence::NoTcp, &read, &layout.write)?;
        let filter = linux::seccomp::filter(profile.network, UnixSockets::NoConnect)
            .map_err(SandboxError::Filter)?;
        let setup = linux::encode_landlock(linux::FILE_CAPABILITIES, &filter);
        Ok(Prepared::new(roots, setup, vec![ruleset]))
    }

    /// The layout with the protected paths that are there.
    fn carved(&self, layout: &Layout) -> Result<Layout, SandboxError> {
        let Inner { profile, place, .. } = &*self.inner;
        let mut layout = layout.clone();
        layout.protected.extend(carve::protected(profile, place)?);
        Ok(layout)
    }

    /// Checks the listed hosts, shows commands a resolver of their own, and returns the ports that
    /// must be open inside.
    fn open_network(&self, layout: &mut Layout) -> Result<Vec<u16>, SandboxError> {
        let Inner { profile, place, .. } = &*self.inner;
        let ports = proxy::ports(&profile.hosts).map_err(SandboxError::unlisted)?;
        // Where there is no such file, the C library asks the loopback: resolv.conf(5).
        if let Ok(at) = fs::canonicalize("/etc/resolv.conf") {
            let copy = place.home.with_file_name("resolv.conf");
            fs::write(&copy, "nameserver 127.0.0.1\n").map_err(|error| {
                SandboxError::unlisted(format!("writing `{}`: {error}", copy.display()))
            })?;
            layout.copies.push((at, copy));
        }
        Ok(ports)
    }

    fn prepare_namespaces(
        &self,
        layout: &Layout,
        roots: Vec<Option<(u64, u64)>>,
    ) -> Result<Prepared, SandboxError> {
        let Inner { host, profile, place, facts, .. } = &*self.inner;
        let mut layout = self.carved(layout)?;
        let (doors, has_names) = match profile.network {
            Network::Listed => (self.open_network(&mut layout)?, true),
            Network::None | Network::Full => (Vec::new(), false),
        };
        let layout = &layout;
        let found = Found {
            denied: denied(layout)?,
            sockets: facts.sockets.clone(),
            socket_folders: reach::folders(host),
        };
        let mut kept = vec![host.binary.clone(), place.workspace.clone()];
        let layers = match place.overlay.clone() {
            Some(Overlay { lower, upper, work }) => {
                let made = self.inner.turn.work_folder(&work);
                let work = made.map_err(|source| SandboxError::Work { path: work, source })?;
                Some(Layers { lower, upper, work })
            }
            None => None,
        };
        kept.extend(reach::RESOLVER.iter().map(PathBuf::from));
        kept.extend(place.read_extra.iter().cloned());
        kept.extend(profile.read.iter().flatten().cloned());
        let kept = real_roots(&kept);
        let owner = owner::needed(host, profile, place);
        if let Some(owner) = owner {
            let folders = [&place.home, &place.tmp].into_iter().chain(&place.write_extra);
            folders.for_each(|folder| owner::give(folder, owner));
        }
        let group = Group::make(groups_limits(profile));
        if group.as_ref().map(Group::holds).unwrap_or_default() != facts.groups {
            let why = "the control group that the trial had can't be made again".to_owned();
            let items = vec![("limits".to_owned(), why)];
            return Err(SandboxError::Unenforceable { items, hint: String::new() });
        }
        let plan = Plan {
            group: group.as_ref().map(Group::door),
            owner,
            places: places::places(layout, &found, &kept),
            layers,
            own_network: profile.network != Network::Full,
            doors,
            has_names,
            shm_size: profile.limits.tmp_size.unwrap_or(SHM),
            filter: linux::seccomp::inside().map_err(SandboxError::Filter)?,
        };
        let read = real_roots(&layout.read);
        // The folder below an overlay is nobody's to write to; what lies over it is granted inside.
        let is_below =
            |root: &&PathBuf| place.overlay.as_ref().is_some_and(|it| it.lower == **root);
        let write: Vec<_> = layout.write.iter().filter(|root| !is_below(root)).cloned().collect();
        let ruleset = linux::landlock::ruleset(facts.abi(), Fence::Open, &read, &write)?;
        let prepared = Prepared::new(roots, linux::encode_namespaces(&plan), vec![ruleset]);
        Ok(Prepared { group, ..prepared })
    }
}

/// The enforcement item of protected paths.
const PROTECTED: &str = "protected";

fn is_attempt(kind: &Kind) -> bool {
    matches!(kind, Kind::Landlock | Kind::Namespaces)
}

/// What of the limits a control group can hold.
fn groups_limits(profile: &Profile) -> Most {
    Most { processes: profile.limits.processes, memory: profile.limits.memory }
}

/// Bytes of `/dev/shm` when the profile sets no limit; ours.
const SHM: u64 = 2 << 30;

fn real_roots(roots: &[PathBuf]) -> Vec<PathBuf> {
    roots.iter().filter_map(|root| fs::canonicalize(root).ok()).collect()
}

/// The unreadable places of a layout, looked up.
fn denied(layout: &Layout) -> Result<BTreeSet<PathBuf>, SandboxError> {
    let mut denied = enumerate::resolve(&layout.denied);
    for pattern in &layout.hidden {
        let found = enumerate::find(pattern).map_err(|why| SandboxError::Unenforceable {
            items: vec![("read".to_owned(), why)],
            hint: String::new(),
        })?;
        denied.extend(found);
    }
    Ok(denied)
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).ok().map(|data| (data.dev(), data.ino()))
}

fn check(launch: &Launch) -> Result<(), SandboxError> {
    use std::os::unix::ffi::OsStrExt as _;
    let nul = |what| SandboxError::Nul { program: launch.program.clone(), what };
    if launch.argv.iter().any(|argument| argument.contains('\0')) {
        return Err(nul("an argument"));
    }
    if launch.env.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        return Err(nul("the environment"));
    }
    if launch.cwd.as_os_str().as_bytes().contains(&0) {
        return Err(nul("the working folder"));
    }
    Ok(())
}

/// Makes this process unreadable for other processes of the same user, and free of core dumps.
/// `cli` calls it before a key is read (P6).
pub fn harden_self() {
    linux::harden();
}
