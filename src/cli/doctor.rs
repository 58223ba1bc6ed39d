//! `horseman doctor`: what this host can enforce, by which layer, and why not.
//!
//! In: the host, and a profile when a task's needs are asked for. Out: a [`Diagnosis`] as data and
//! as a table. It changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::exit::Exit;
use crate::profile::Profile;
use crate::sandbox::{Host, Place, Sandbox, SandboxError, facts};
use crate::text::clip;
use crate::transcript::event::{Enforcement, Level};
use crate::workspace::tree::no_programs;

/// Sockets printed in the table; all are in the JSON.
const SHOWN_SOCKETS: usize = 10;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// `landlock`, `none`, or absent when the confinement can't be enforced.
    pub tier: Option<String>,
    /// Kernel release.
    pub kernel: String,
    /// Architecture of this binary.
    pub arch: &'static str,
    /// Effective user id.
    pub uid: u32,
    /// Landlock's ABI; 0 without it.
    pub landlock_abi: u32,
    /// Why there is no Landlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landlock_lack: Option<String>,
    /// Actions that the kernel's seccomp knows.
    pub seccomp: Vec<String>,
    /// State of user namespaces, one sentence. This tier uses none.
    pub user_namespaces: String,
    /// Whether a writable cgroup of our own was found, one sentence. This tier uses none.
    pub cgroup: String,
    /// What is wrong with the folder for temporary files, which workspaces lie in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temporary_files: Option<String>,
    /// Unix sockets of the host that this user can connect to.
    pub host_sockets: Vec<PathBuf>,
    /// What is in force, when the trial succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforcement: Option<Enforcement>,
    /// What can't be enforced: item and reason.
    pub unenforceable: Vec<(String, String)>,
    /// What the operator can do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Examines the host by trying `profile` out in private folders below `root`, an existing private
/// one. `is_disposable` says whether the task works on a clone or copy.
///
/// # Errors
///
/// When the private folders or a part of the confinement can't even be made.
pub async fn diagnose(
    host: &Host,
    (profile, is_disposable): (&Profile, bool),
    root: &Path,
) -> Result<Diagnosis, SandboxError> {
    let make = |name: &str| {
        let path = root.join(name);
        // A folder that can't be made is found missing by the probe, with its name.
        drop(fs::create_dir(&path));
        path
    };
    let place = Place {
        workspace: make("workspace"),
        home: make("home"),
        tmp: make("tmp"),
        read_extra: Vec::new(),
        write_extra: Vec::new(),
        marker: root.to_string_lossy().into_owned(),
        is_disposable,
        ..Place::default()
    };
    let facts = facts(host, &[root]);
    let (enforcement, unenforceable, hint) = match Sandbox::probe(host, profile, &place).await {
        Ok(sandbox) => (Some(sandbox.enforcement().clone()), Vec::new(), None),
        Err(SandboxError::Unenforceable { items, hint }) => {
            (None, items, Some(hint).filter(|hint| !hint.is_empty()))
        }
        Err(error) => return Err(error),
    };
    Ok(Diagnosis {
        tier: enforcement.as_ref().map(|enforcement| enforcement.tier.clone()),
        kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
        arch: std::env::consts::ARCH,
        uid: host.uid,
        landlock_abi: facts.abi(),
        landlock_lack: facts.landlock.clone().err(),
        seccomp: first_line("/proc/sys/kernel/seccomp/actions_avail")
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        user_namespaces: user_namespaces(),
        cgroup: cgroup(),
        temporary_files: no_programs(root),
        host_sockets: facts.sockets,
        enforcement,
        unenforceable,
        hint,
    })
}

impl Diagnosis {
    /// 0 when the profile is enforced here, else 15.
    pub fn exit(&self) -> Exit {
        if self.unenforceable.is_empty() { Exit::Done } else { Exit::Sandbox }
    }

    /// The table for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let mut row = |name: &str, value: &str| line(&mut out, &format!("{name:<16}{value}"));
        row("tier", self.tier.as_deref().unwrap_or("none that does what is asked for"));
        row("kernel", &format!("{} ({}), uid {}", self.kernel, self.arch, self.uid));
        match &self.landlock_lack {
            None => row("landlock", &format!("ABI {}", self.landlock_abi)),
            Some(why) => row("landlock", &format!("none: {why}")),
        }
        let seccomp =
            if self.seccomp.is_empty() { "unknown".to_owned() } else { self.seccomp.join(" ") };
        row("seccomp", &seccomp);
        row("user namespaces", &self.user_namespaces);
        row("cgroup", &self.cgroup);
        if let Some(why) = &self.temporary_files {
            row("temporary files", why);
        }
        row("host sockets", &self.host_sockets.len().to_string());
        for socket in self.host_sockets.iter().take(SHOWN_SOCKETS) {
            row("", &clip(&socket.display().to_string(), 200));
        }
        if self.host_sockets.len() > SHOWN_SOCKETS {
            row("", &format!("and {} more", self.host_sockets.len() - SHOWN_SOCKETS));
        }
        if let Some(enforcement) = &self.enforcement {
            line(&mut out, &format!("\nin force for `{}`:", enforcement.mode));
            for (item, level) in &enforcement.items {
                line(&mut out, &format!("  {item:<14}{}", words(level)));
            }
        }
        for (item, why) in &self.unenforceable {
            line(&mut out, &format!("\ncan't be enforced: {item}: {why}"));
        }
        if let Some(hint) = &self.hint {
            line(&mut out, &format!("\nhint: {hint}"));
        }
        out
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn words(level: &Level) -> String {
    match level {
        Level::Full { layer } => format!("full     {layer}"),
        Level::Partial { layer, why } => format!("partial  {layer}; {why}"),
        Level::None { why } => format!("none     {why}"),
    }
}

fn first_line(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(str::to_owned)
}

fn user_namespaces() -> String {
    let read = |name: &str| first_line(Path::new("/proc/sys").join(name));
    if !Path::new("/proc/self/ns/user").exists() {
        return "not built into the kernel".to_owned();
    }
    if read("user/max_user_namespaces").as_deref() == Some("0") {
        return "limit is 0 (`user.max_user_namespaces`)".to_owned();
    }
    if read("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return "for root only (`kernel.unprivileged_userns_clone`)".to_owned();
    }
    if read("kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return "without rights for ordinary users (AppArmor)".to_owned();
    }
    "no setting forbids them; not used by this tier".to_owned()
}

fn cgroup() -> String {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::")) else {
        return "no cgroup v2".to_owned();
    };
    let folder = Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let controllers = first_line(folder.join("cgroup.controllers")).unwrap_or_default();
    if controllers.is_empty() {
        return "cgroup v2 without controllers; not used by this tier".to_owned();
    }
    format!("cgroup v2 with {controllers}; not used by this tier")
}
