//! Permission profile: what an attempt may do, resolved to absolute paths.
//!
//! In: the task's permissions, resolved by the plan. Out: plain data that policy, sandbox and
//! reports read. Pure; knows nothing of how it is enforced.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

/// The three modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Writes only into the attempt's private home and temporary folder.
    ReadOnly,
    /// Writes also into the workspace and the profile's `write` roots.
    #[default]
    WorkspaceWrite,
    /// No confinement at all.
    DangerFullAccess,
}

impl SandboxMode {
    /// Name in task files, events and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        }
    }
}

/// What of the network is reachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Nothing but the attempt's own loopback.
    #[default]
    None,
    /// The attempt's own loopback, the hosts that [`Hosts`] allows, and its forwarded services.
    Listed,
    /// Everything.
    Full,
}

impl Network {
    /// Name in task files, events and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Listed => "listed",
            Self::Full => "full",
        }
    }
}

/// Port of the proxy inside, at which [`Network::Listed`] reaches its hosts.
pub const PROXY_PORT: u16 = 3128;

/// Port of the resolver inside.
pub const NAMES_PORT: u16 = 53;

/// What [`Network::Listed`] reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hosts {
    /// Patterns of hosts that are reachable: `crates.io`, `*.example.com`, `preset:npm`, `10.0.0.7`.
    pub allow: Vec<String>,
    /// Patterns of hosts that are not; they win.
    pub deny: Vec<String>,
    /// Services of the host or of CI, reachable inside at the same port of localhost.
    pub forward: Vec<Forward>,
    /// What `.rules` files say beside the task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<HostRule>,
}

/// A `network_rule`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostRule {
    /// Host name or IP literal.
    pub host: String,
    /// `http`, `https`, `socks5_tcp` or `socks5_udp`; the last one never applies, since nothing
    /// relays datagrams.
    pub protocol: String,
    /// Whether it allows. What would need an approval is denied: nobody is there to ask.
    pub is_allowed: bool,
    /// `file:line`, with the rule's justification where there is one.
    pub source: String,
}

/// A service outside that is reachable inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Forward {
    /// Its host, seen from outside; `localhost` when only a port was named.
    pub host: String,
    /// Its port, outside and inside.
    pub port: u16,
}

/// Which tier must enforce the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// The strongest that works here.
    #[default]
    Auto,
    /// Namespaces, nothing less.
    Namespaces,
    /// Landlock and seccomp, exactly.
    Landlock,
}

/// Limits of each command's process tree; absent means no limit of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// `RLIMIT_NPROC`; not enforced by the kernel for uid 0 (measured). Default 4096.
    pub processes: Option<u64>,
    /// `RLIMIT_AS` in bytes. Default none.
    pub memory: Option<u64>,
    /// `RLIMIT_NOFILE`. Default none.
    pub open_files: Option<u64>,
    /// `RLIMIT_FSIZE` in bytes. Default none.
    pub file_size: Option<u64>,
    /// `RLIMIT_CPU` in seconds. Default none.
    pub cpu_seconds: Option<u64>,
    /// Most bytes in the private temporary folder. Default 2 GiB.
    pub tmp_size: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            processes: Some(4096),
            memory: None,
            open_files: None,
            file_size: None,
            cpu_seconds: None,
            tmp_size: Some(2 << 30),
        }
    }
}

/// How the environment of commands is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EnvPolicy {
    /// `none`, `core` or `all`.
    pub inherit: Inherit,
    /// Whether the variables that name toolchain places are passed.
    pub toolchains: bool,
    /// Names passed beside those.
    pub pass: Vec<String>,
    /// Values set last.
    pub set: BTreeMap<String, String>,
}

/// What of the runner's environment commands get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Inherit {
    /// Nothing but the private folders.
    None,
    /// The documented allow list.
    #[default]
    Core,
    /// Everything but provider keys.
    All,
}

impl Default for EnvPolicy {
    fn default() -> Self {
        Self { inherit: Inherit::Core, toolchains: true, pass: Vec::new(), set: BTreeMap::new() }
    }
}

/// Names of enforcement items, as `degraded` and reports name them.
pub const ITEMS: [&str; 13] = [
    "environment",
    "kill-on-exit",
    "limits",
    "network",
    "processes",
    "protected",
    "read",
    "secrets",
    "set-id",
    "signals",
    "tmp",
    "unix-sockets",
    "write",
];

/// What an attempt may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// Mode.
    pub mode: SandboxMode,
    /// Network.
    pub network: Network,
    /// What `Network::Listed` reaches.
    pub hosts: Hosts,
    /// Unix sockets of the host that are reachable; absolute.
    pub unix_sockets: Vec<PathBuf>,
    /// Names of enforcement items that may be missing.
    pub degraded: Vec<String>,
    /// Writable roots beside the workspace and the private folders; absolute.
    pub write: Vec<PathBuf>,
    /// Files and folders that must not be readable; absolute, or globs relative to the workspace.
    pub deny_read: Vec<String>,
    /// Readable roots beside the system set; `None`: everything but `deny_read`.
    pub read: Option<Vec<PathBuf>>,
    /// Globs of protected paths, relative to the workspace.
    pub protected: Vec<String>,
    /// Limits.
    pub limits: Limits,
    /// Tier.
    pub tier: Tier,
    /// Whether the operating system's sandbox must be there.
    pub require_sandbox: bool,
    /// Environment.
    pub env: EnvPolicy,
}
