//! The proof that a command is confined.
//!
//! In: a cleared command and what confines it, from [`Sandbox::confine`] alone. Out: the only
//! thing that starts a process (P2). Neither cloned nor read from anywhere.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use super::proxy::{self, Door, DoorSocket, Proxy, Purpose};
use super::{Inner, Prepared, Running, Sandbox, SandboxError};
use crate::approval::{Authority, Cleared};
use crate::policy::Exec;
use crate::process::{Begin, Capture, Ended, Launch, Order, Output, Starter, Stdin, Streams, Tree};
use crate::profile::{NAMES_PORT, Network};

/// Margin after a deadline in which the reaper must have ended the tree.
const MARGIN: Duration = Duration::from_secs(10);

/// A command that may be started, once.
#[derive(Debug)]
pub struct Confined {
    sandbox: Sandbox,
    cleared: Cleared,
    launch: Launch,
    prepared: Arc<Prepared>,
}

impl Confined {
    pub(super) fn new(
        sandbox: Sandbox,
        cleared: Cleared,
        launch: Launch,
        prepared: Arc<Prepared>,
    ) -> Self {
        Self { sandbox, cleared, launch, prepared }
    }

    /// The pinned command.
    pub fn exec(&self) -> &Exec {
        self.cleared.exec()
    }

    /// Who cleared it.
    pub fn authority(&self) -> &Authority {
        self.cleared.authority()
    }

    /// What of the network it reaches.
    pub fn network(&self) -> Network {
        self.sandbox.inner.profile.network
    }

    /// Name of the tier that confines it: `landlock` or `none`.
    pub fn tier(&self) -> &str {
        &self.sandbox.inner.enforcement.tier
    }

    /// Starts it; returns as soon as the program is executed. At `deadline`, counted from the
    /// start, the whole tree gets SIGTERM and, 250 ms later, SIGKILL, whether anybody waits or not.
    ///
    /// Must be called inside a runtime. Dropping the [`Running`] kills the tree.
    ///
    /// # Errors
    ///
    /// When the confinement can't be applied or the program can't be executed;
    /// [`SandboxError::exit_code`] tells the latter.
    pub async fn start(
        self,
        stdin: Stdin,
        capture: Capture,
        deadline: Option<Duration>,
    ) -> Result<Running, SandboxError> {
        let starter = self.sandbox.starter(&self.prepared).await?;
        let limits = self.sandbox.limits();
        let order = self.sandbox.order(&limits, deadline);
        Ok(Running::new(Tree::start(&self.launch, (&starter, &order), stdin, &capture).await?))
    }

    /// Runs it to its end or to the deadline, then ends every descendant.
    ///
    /// # Errors
    ///
    /// As for [`Confined::start`]; and when a process outlives SIGKILL.
    pub async fn finish(
        self,
        stdin: Stdin,
        capture: Capture,
        deadline: Duration,
    ) -> Result<(Ended, Output), SandboxError> {
        let mut running = self.start(stdin, capture, Some(deadline)).await?;
        running.wait(deadline.saturating_add(MARGIN)).await?;
        let ended = running.stop().await?;
        Ok((ended, running.take_output()))
    }

    /// Starts it on streams of the caller's, who made them pipes: nothing is captured.
    ///
    /// # Errors
    ///
    /// As for [`Confined::start`].
    pub(crate) async fn relay(
        self,
        stdin: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
    ) -> Result<Running, SandboxError> {
        let starter = self.sandbox.starter(&self.prepared).await?;
        let limits = self.sandbox.limits();
        let order = self.sandbox.order(&limits, None);
        let streams = Streams { stdin, stdout, stderr };
        Ok(Running::new(Tree::attach(&self.launch, (&starter, &order), streams).await?))
    }
}

impl Sandbox {
    /// The starter of this confinement, begun at its first use.
    pub(super) async fn starter(&self, prepared: &Prepared) -> Result<Arc<Starter>, SandboxError> {
        let begin = async || {
            let fds: Vec<_> = prepared.fds.iter().map(OwnedFd::as_fd).collect();
            let begin = Begin {
                binary: &self.inner.host.binary,
                marker: &self.inner.place.marker,
                setup: &prepared.setup,
                fds: &fds,
            };
            let (starter, doors) = Starter::begin(begin).await?;
            Ok::<_, SandboxError>((Arc::new(starter), self.serve(doors)?))
        };
        let (starter, _) = prepared.starter.get_or_try_init(begin).await?;
        Ok(Arc::clone(starter))
    }

    /// Begins to answer at the doors that were made inside.
    fn serve(&self, sockets: Vec<OwnedFd>) -> Result<Option<Proxy>, SandboxError> {
        let Inner { host, profile, record, .. } = &*self.inner;
        if sockets.is_empty() {
            return Ok(None);
        }
        let hosts = &profile.hosts;
        let wrong = |why: String| SandboxError::unlisted(why);
        let rules = proxy::rules(hosts).map_err(|error| wrong(error.to_string()))?;
        let ports = proxy::ports(hosts).map_err(wrong)?;
        let mut doors = Vec::new();
        let mut sockets = sockets.into_iter();
        for (port, socket) in ports.into_iter().zip(&mut sockets) {
            doors.push(Door { port, socket: DoorSocket::Tcp(socket.into()) });
        }
        for socket in sockets {
            doors.push(Door { port: NAMES_PORT, socket: DoorSocket::Udp(socket.into()) });
        }
        let purpose =
            Purpose { rules, forwards: &hosts.forward, env: &host.env, log: record.clone() };
        let proxy = Proxy::serve(doors, purpose).map_err(|error| wrong(error.to_string()))?;
        Ok(Some(proxy))
    }

    /// What goes with a command.
    pub(super) fn order<'a>(
        &'a self,
        limits: &'a [(u32, u64)],
        deadline: Option<Duration>,
    ) -> Order<'a> {
        let quota = self.inner.quota.as_ref();
        Order { marker: &self.inner.place.marker, limits, deadline, quota }
    }

    /// Resource limits by the kernel's number. No core dumps, ever: they would hold what the
    /// command had in memory, in the workspace.
    pub(super) fn limits(&self) -> Vec<(u32, u64)> {
        use nix::libc;
        let limits = &self.inner.profile.limits;
        // The address space is a poor measure of memory: used only where there is no better one.
        let memory = limits.memory.filter(|_| !self.inner.facts.groups.memory);
        let named = [
            (libc::RLIMIT_NPROC, limits.processes),
            (libc::RLIMIT_AS, memory),
            (libc::RLIMIT_NOFILE, limits.open_files),
            (libc::RLIMIT_FSIZE, limits.file_size),
            (libc::RLIMIT_CPU, limits.cpu_seconds),
            (libc::RLIMIT_CORE, Some(0)),
        ];
        named.into_iter().filter_map(|(number, most)| Some((number, most?))).collect()
    }
}
