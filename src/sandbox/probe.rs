//! The probe: what this host can enforce, found out by doing it.
//!
//! In: host, profile, places. Out: a [`Sandbox`] that works, or what can't be enforced and what
//! the operator can do (P3).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use tokio::time::timeout;

use super::inner::{NOTE, OUTER_PROC, Tried, trial_arguments};
use super::layout::OVERLAY;
use super::linux::cgroup::{Group, Holds};
use super::linux::landlock::OLDEST;
use super::turn::Turn;
use super::{Host, Kind, Overlay, Place, Sandbox, SandboxError, linux, reach};
use crate::process::{Capture, Launch, ProcessError, Stdin, Step, Tree};
use crate::profile::{Profile, SandboxMode, Tier};

/// How long the trial may take. It takes a few milliseconds; a loaded machine gets its time.
const TRIAL_TIME: Duration = Duration::from_secs(20);

/// What was found out about the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Landlock's ABI, or why there is none.
    pub landlock: Result<u32, String>,
    /// Home folders of the host.
    pub homes: Vec<PathBuf>,
    /// Unix sockets of the host that this user can connect to.
    pub sockets: Vec<PathBuf>,
    /// Whether a trial in namespaces had to keep the /proc of the host.
    pub has_outer_proc: bool,
    /// Which limits a control group holds; found out for namespaces alone.
    pub(crate) groups: Holds,
}

impl Facts {
    /// Landlock's ABI; 0 for none.
    pub fn abi(&self) -> u32 {
        self.landlock.as_ref().copied().unwrap_or(0)
    }
}

/// Looks at the host. Sockets below `own` are the attempt's own.
pub fn facts(host: &Host, own: &[&Path]) -> Facts {
    Facts { sockets: reach::sockets(host, own), ..cheap_facts() }
}

fn cheap_facts() -> Facts {
    let landlock = linux::landlock_abi().map_err(|errno| {
        if errno == Errno::ENOSYS {
            "the kernel has no Landlock, or a filter hides it".to_owned()
        } else if errno == Errno::EOPNOTSUPP {
            "Landlock is switched off at boot".to_owned()
        } else {
            format!("landlock_create_ruleset: {}", errno.desc())
        }
    });
    let mut homes = vec![PathBuf::from("/root")];
    let entries = fs::read_dir("/home").into_iter().flatten().flatten();
    homes.extend(entries.filter(|e| e.file_type().is_ok_and(|k| k.is_dir())).map(|e| e.path()));
    Facts { landlock, homes, sockets: Vec::new(), has_outer_proc: false, groups: Holds::default() }
}

/// Why Landlock can't be the tier here; `None` when it can.
fn lack(facts: &Facts) -> Option<String> {
    match &facts.landlock {
        Err(why) => Some(why.clone()),
        Ok(abi) if *abi < OLDEST => Some(format!(
            "Landlock ABI {OLDEST} or later is needed (Linux 6.2), this kernel has {abi}: \
             truncation can't be confined"
        )),
        Ok(_) => None,
    }
}

const HINT: &str = "run on Linux 6.2 or later with `landlock` among the security modules (boot \
                    parameter `lsm=`), and, in a container, with an engine whose filter lets \
                    `landlock_*` through (Docker 23 or later); `horseman doctor` shows what is there";

/// What the operator can do so that namespaces work here.
fn namespaces_hint(failed: Option<(Step, i32)>) -> String {
    let is = |file: &str, value: &str| {
        fs::read_to_string(Path::new("/proc/sys").join(file)).is_ok_and(|text| text.trim() == value)
    };
    let what = match failed {
        _ if is("kernel/apparmor_restrict_unprivileged_userns", "1") => {
            "AppArmor restricts user namespaces: set sysctl \
             `kernel.apparmor_restrict_unprivileged_userns=0`, or load a profile with `userns,` for \
             our binary"
        }
        _ if is("kernel/unprivileged_userns_clone", "0") => {
            "set sysctl `kernel.unprivileged_userns_clone=1`"
        }
        Some((Step::Namespaces, nix::libc::ENOSPC | nix::libc::EUSERS)) => {
            "raise sysctl `user.max_user_namespaces` and its like"
        }
        Some((Step::Namespaces, nix::libc::EPERM)) => {
            "in a container use a seccomp profile that allows `unshare` and `mount`; in a chroot, and \
             inside another sandbox, there is no way"
        }
        Some((_, nix::libc::ENOSYS)) => "Linux 5.12 or later is needed",
        Some((Step::Mounts, nix::libc::EPERM | nix::libc::EACCES)) => {
            "in a container use a profile of AppArmor or SELinux that allows `mount`"
        }
        _ => return String::new(),
    };
    format!("{what}; or use `tier: auto`")
}

const OVERLAY_HINT: &str = "use `workspace.kind: copy`, which needs no mount, or allow user namespaces and leave `tier` at \
     `auto`";

/// The sandbox of an attempt.
pub(super) async fn attempt(
    host: &Host,
    profile: &Profile,
    place: &Place,
) -> Result<Sandbox, SandboxError> {
    let host = Arc::new(Host { home: host.home.as_ref().map(real), ..host.clone() });
    let place = canonical(place);
    let write = profile.write.iter().map(real).collect();
    let profile = &Profile { write, ..profile.clone() };
    let open = |why: &str| {
        let parts = (Arc::new(cheap_facts()), Kind::Open(why.to_owned()), Turn::default());
        Sandbox::new(Arc::clone(&host), profile.clone(), place.clone(), parts)
    };
    if profile.mode == SandboxMode::DangerFullAccess {
        if place.overlay.is_some() {
            return Err(no_overlay(Vec::new()));
        }
        return Ok(open("`danger-full-access` confines nothing"));
    }
    let own: Vec<&Path> = [&place.workspace, &place.home, &place.tmp].map(PathBuf::as_path).into();
    let facts = facts(&host, &own);
    let lack = lack(&facts);
    if let Some(why) = &lack
        && !profile.require_sandbox
        && profile.tier == Tier::Auto
        && place.overlay.is_none()
    {
        return Ok(open(&format!("{why}; `require_sandbox` is false")));
    }
    let facts = Arc::new(facts);
    let make = |facts: &Arc<Facts>, kind| {
        let parts = (Arc::clone(facts), kind, Turn::default());
        Sandbox::new(Arc::clone(&host), profile.clone(), place.clone(), parts)
    };
    if let Some(why) = lack {
        let items = vec![("sandbox".to_owned(), why)];
        return Err(SandboxError::Unenforceable { items, hint: HINT.to_owned() });
    }
    let mut refused = Vec::new();
    if profile.tier != Tier::Landlock {
        // Gone with the statement.
        let groups = Group::make(super::groups_limits(profile))
            .as_ref()
            .map(Group::holds)
            .unwrap_or_default();
        let facts = Arc::new(Facts { groups, ..(*facts).clone() });
        let sandbox = make(&facts, Kind::Namespaces);
        let mut failed = None;
        refused = missing(&sandbox);
        if refused.is_empty() {
            let mut outcome = trial(&sandbox).await?;
            outcome.items = needed(profile, outcome.items);
            if outcome.items.is_empty() && outcome.has_outer_proc {
                let facts = Arc::new(Facts { has_outer_proc: true, ..(*facts).clone() });
                return Ok(make(&facts, Kind::Namespaces));
            }
            (refused, failed) = (outcome.items, outcome.failed);
        }
        if refused.is_empty() {
            return Ok(sandbox);
        }
        if profile.tier == Tier::Namespaces {
            let hint = namespaces_hint(failed);
            return Err(SandboxError::Unenforceable { items: refused, hint });
        }
    }
    let sandbox = make(&facts, Kind::Landlock);
    if place.overlay.is_some() {
        return Err(no_overlay(refused));
    }
    let mut items = missing(&sandbox);
    if items.is_empty() {
        items = needed(profile, trial(&sandbox).await?.items);
    }
    if items.is_empty() {
        return Ok(sandbox);
    }
    // What the stronger tier lacks is what would have helped.
    items.extend(refused.into_iter().map(|(_, why)| ("tier namespaces".to_owned(), why)));
    Err(SandboxError::Unenforceable { items, hint: String::new() })
}

/// The sandbox of our own git.
pub(super) fn narrow(
    host: &Host,
    write: &[PathBuf],
    marker: &str,
) -> Result<Sandbox, SandboxError> {
    let facts = cheap_facts();
    let kind = match lack(&facts) {
        Some(why) => Kind::Open(why),
        None => Kind::Narrow(write.to_vec()),
    };
    let first = write.first().cloned().unwrap_or_else(|| PathBuf::from("/"));
    let place = Place {
        workspace: first.clone(),
        home: first.clone(),
        tmp: first,
        read_extra: Vec::new(),
        write_extra: Vec::new(),
        marker: marker.to_owned(),
        is_disposable: true,
        ..Place::default()
    };
    let sandbox = Sandbox::new(
        Arc::new(host.clone()),
        Profile::default(),
        place,
        (Arc::new(facts), kind, Turn::default()),
    );
    sandbox.prepared()?;
    Ok(sandbox)
}

/// An overlay can't be mounted, and what is missing for it.
fn no_overlay(refused: Vec<(String, String)>) -> SandboxError {
    let overlay = ("workspace".to_owned(), OVERLAY.to_owned());
    let items = std::iter::once(overlay).chain(refused).collect();
    SandboxError::Unenforceable { items, hint: OVERLAY_HINT.to_owned() }
}

/// What is missing and may not be.
fn needed(profile: &Profile, mut items: Vec<(String, String)>) -> Vec<(String, String)> {
    items.retain(|(item, _)| !profile.degraded.contains(item));
    items
}

fn missing(sandbox: &Sandbox) -> Vec<(String, String)> {
    let roots = sandbox.layout().write.into_iter().filter(|root| !root.exists());
    roots
        .map(|root| ("write".to_owned(), format!("the root `{}` does not exist", root.display())))
        .collect()
}

/// The real path, as the kernel walks it; a path that is not there stays as it is.
fn real(path: &PathBuf) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.clone())
}

fn canonical(place: &Place) -> Place {
    Place {
        workspace: real(&place.workspace),
        home: real(&place.home),
        tmp: real(&place.tmp),
        read_extra: place.read_extra.iter().map(real).collect(),
        write_extra: place.write_extra.iter().map(real).collect(),
        overlay: place.overlay.as_ref().map(|Overlay { lower, upper, work }| Overlay {
            lower: real(lower),
            upper: real(upper),
            work: real(work),
        }),
        ..place.clone()
    }
}

/// What a trial showed.
#[derive(Debug, Default)]
struct Outcome {
    /// Policy item and reason; empty when all is in force.
    items: Vec<(String, String)>,
    /// The step that failed and its error number, when the trial didn't even start.
    failed: Option<(Step, i32)>,
    has_outer_proc: bool,
}

impl Outcome {
    fn of(item: &str, why: String) -> Self {
        Self { items: vec![(item.to_owned(), why)], ..Self::default() }
    }

    /// Reads the lines that the trial printed.
    fn read(text: &str) -> Self {
        let mut outcome = Self::default();
        for (item, why) in text.lines().filter_map(|line| line.split_once('\t')) {
            if item == NOTE {
                outcome.has_outer_proc |= why == OUTER_PROC;
            } else {
                outcome.items.push((item.to_owned(), why.to_owned()));
            }
        }
        outcome
    }
}

/// Most places of a kind that a trial tries out. Ours; a profile names a few.
const TRIED: usize = 32;

/// What a trial looks at.
fn tried(sandbox: &Sandbox) -> Result<Tried, SandboxError> {
    let layout = sandbox.layout();
    let roots = layout.write.clone();
    let layout = sandbox.carved(&layout)?;
    let is_granted = |path: &PathBuf| layout.write.iter().any(|root| root.starts_with(path));
    let there = |paths: Vec<PathBuf>| -> Vec<PathBuf> {
        let paths = paths.into_iter().filter(|path| !path.starts_with("/dev") && path.exists());
        paths.filter(|path| !is_granted(path)).take(TRIED).collect()
    };
    let denied = super::denied(&layout)?.into_iter().collect();
    Ok(Tried { roots, protected: there(layout.protected.clone()), denied: there(denied) })
}

/// Runs our own binary inside and returns what it found.
async fn trial(sandbox: &Sandbox) -> Result<Outcome, SandboxError> {
    let prepared = sandbox.prepared()?;
    let inner = &sandbox.inner;
    let has_namespaces = inner.kind == Kind::Namespaces;
    let launch = Launch {
        program: inner.host.binary.clone(),
        argv: trial_arguments(inner.profile.network, has_namespaces, &tried(sandbox)?),
        cwd: inner.place.workspace.clone(),
        env: std::collections::BTreeMap::new(),
    };
    let limits = sandbox.limits();
    let order = sandbox.order(&limits, Some(TRIAL_TIME));
    let started = match sandbox.starter(&prepared).await {
        Ok(starter) => {
            Tree::start(&launch, (&starter, &order), Stdin::Null, &Capture::default()).await
        }
        Err(SandboxError::Process(error)) => Err(error),
        Err(error) => return Err(error),
    };
    let mut tree = match started {
        Ok(tree) => tree,
        Err(ProcessError::Setup { step, source, .. }) => {
            let failed = Some((step, source.raw_os_error().unwrap_or(0)));
            let why = match failed {
                // The kernel allows one in a line of filters: seccomp_unotify(2).
                Some((Step::Supervisor, nix::libc::EBUSY)) => {
                    "another sandbox above supervises system calls already, and only one can"
                        .to_owned()
                }
                _ => format!("{}: {source}", step.name()),
            };
            return Ok(Outcome { failed, ..Outcome::of(item_of(step), why) });
        }
        Err(error @ (ProcessError::NotFound { .. } | ProcessError::NotExecutable { .. })) => {
            return Ok(Outcome::of("read", format!("our own binary: {error} inside")));
        }
        Err(error) => return Err(error.into()),
    };
    let has_ended = timeout(TRIAL_TIME, tree.wait(TRIAL_TIME)).await.is_ok_and(|r| r.is_ok());
    let output = String::from_utf8_lossy(&tree.take_output().head).into_owned();
    let is_done = tree.ended().is_some_and(|ended| ended.exit_code == Some(0));
    if !has_ended || !is_done {
        let how = tree.ended().map_or_else(
            || format!("it did not end within {} s", TRIAL_TIME.as_secs()),
            |ended| format!("exit code {:?}, signal {:?}", ended.exit_code, ended.signal),
        );
        return Ok(Outcome::of("sandbox", format!("the trial run failed: {how}")));
    }
    Ok(Outcome::read(&output))
}

/// The policy item that falls with a step.
fn item_of(step: Step) -> &'static str {
    match step {
        Step::Landlock => "write",
        Step::Seccomp => "network",
        Step::NoNewPrivs => "set-id",
        Step::Limits => "limits",
        Step::Capabilities => "processes",
        Step::Receive
        | Step::Namespaces
        | Step::Mounts
        | Step::Supervisor
        | Step::Fork
        | Step::Session
        | Step::Streams
        | Step::Signals
        | Step::Cwd
        | Step::Descriptors
        | Step::Exec => "sandbox",
    }
}
