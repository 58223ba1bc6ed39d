//! Profiles: from what a task asks to be allowed to a profile that is complete.
//!
//! In: permissions as written, the file's profiles, where workspace and home lie. Out: a
//! [`Profile`] and what else follows from permissions, or complaints. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::policy::Opaque;
use crate::profile::{
    EnvPolicy, Hosts, ITEMS, Inherit, Limits, Network, Profile, SandboxMode, Tier,
};
use crate::task::entries::Entries;
use crate::task::network::NetworkAccess;
use crate::task::permissions::{
    EnvSpec, InheritFrom, LimitSpec, Mode, OnDenied, OpaqueMeans, Overwrite, TierName,
};
use crate::task::read::Merge as _;
use crate::task::value::Id;
use crate::task::{At, Complaints, Permissions, Spanned, value};
use crate::text::nearest;

/// Names of the built-in profiles.
pub const BUILT_IN: [&str; 5] =
    ["read-only", "workspace-write", "danger-full-access", "ci", "maintenance"];

/// Names that are protected in every profile.
pub const PROTECTED: [&str; 5] = [".git", ".horseman", ".codex", ".agents", ".claude"];

/// Definitions of CI pipelines, protected in `ci` and `maintenance`.
pub const CI_DEFINITIONS: [&str; 8] = [
    ".github/workflows/**",
    ".gitlab-ci.yml",
    ".circleci/**",
    "azure-pipelines.yml",
    "Jenkinsfile",
    ".buildkite/**",
    ".travis.yml",
    "bitbucket-pipelines.yml",
];

/// Tools that this version has.
pub const TOOLS: [&str; 4] = ["exec_command", "write_stdin", "apply_patch", "update_plan"];

/// Where relative paths and `~/` lead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places<'a> {
    /// The workspace; without it, relative paths stay relative to it.
    pub workspace: Option<&'a Path>,
    /// HOME.
    pub home: Option<&'a Path>,
}

/// What follows from permissions.
#[derive(Clone, Debug)]
pub struct Permits {
    /// Profile. `protected` has [`PROTECTED`] and the task's own, names as the pair of themselves
    /// and everything below.
    pub profile: Profile,
    /// Rule files as written, in order.
    pub rules: Vec<Spanned<value::Path>>,
    /// What opaque commands mean.
    pub opaque: Opaque,
    /// Tools offered; `None`: all.
    pub tools_allow: Option<Vec<String>>,
    /// Tools left out.
    pub tools_deny: Vec<String>,
    /// Whether a denial fails the task.
    pub on_denied_fail: bool,
    /// Most denials.
    pub max_denials: Option<u32>,
    /// Whether a patch may replace an existing file.
    pub patch_overwrite: bool,
}

/// The built-in profile of that name.
pub fn built_in(name: &str) -> Option<Permissions> {
    let blank = Permissions::default();
    let ci = || {
        let paths = CI_DEFINITIONS.iter().map(|path| Spanned {
            value: value::Path((*path).to_owned()),
            at: At::whole("built-in profile"),
        });
        Permissions {
            sandbox: Some(Mode::WorkspaceWrite),
            network: Some(NetworkAccess::None),
            protected_paths: Some(paths.collect()),
            ..Permissions::default()
        }
    };
    Some(match name {
        "read-only" => Permissions { sandbox: Some(Mode::ReadOnly), ..blank },
        "workspace-write" => Permissions { sandbox: Some(Mode::WorkspaceWrite), ..blank },
        "danger-full-access" => Permissions {
            sandbox: Some(Mode::DangerFullAccess),
            network: Some(NetworkAccess::Full),
            require_sandbox: Some(false),
            ..blank
        },
        "ci" => Permissions { opaque: Some(OpaqueMeans::Prompt), ..ci() },
        "maintenance" => ci(),
        _ => return None,
    })
}

/// Resolves `permissions` through `extends` to what is in force.
///
/// # Errors
///
/// Unknown profiles, cycles of `extends`, unknown tools, `~/` without HOME, globs where a folder
/// must stand.
pub fn resolve(
    permissions: &Permissions,
    profiles: &Entries<Id, Permissions>,
    places: Places<'_>,
) -> Result<Permits, Complaints> {
    let mut complaints = Complaints::default();
    let fields = flatten(permissions, profiles, &mut complaints);
    let permits = complete(&fields, places, &mut complaints);
    complaints.or(permits)
}

/// Lays `permissions` over the profile that it extends, and so on.
fn flatten(
    permissions: &Permissions,
    profiles: &Entries<Id, Permissions>,
    complaints: &mut Complaints,
) -> Permissions {
    let mut fields = permissions.clone();
    let mut way: Vec<String> = Vec::new();
    while let Some(name) = fields.extends.take() {
        // A profile of the file that bears a built-in's name may start from the built-in.
        let own = profiles.0.get(&name.value).filter(|_| way.last() != Some(&name.value.0));
        let lower = match own {
            Some(profile) if !way.contains(&name.value.0) => Some(profile.value.clone()),
            Some(_) => None,
            None => built_in(&name.value.0),
        };
        if lower.is_none() && profiles.0.contains_key(&name.value) {
            way.push(name.value.0.clone());
            let text = format!("`extends` cycle: {}", way.join(" → "));
            complaints.push(name.at.complain(text));
        } else if lower.is_none() {
            unknown(&name, profiles, complaints);
        }
        let Some(lower) = lower else { break };
        way.push(name.value.0);
        fields = fields.over(lower);
    }
    fields
}

fn unknown(name: &Spanned<Id>, profiles: &Entries<Id, Permissions>, complaints: &mut Complaints) {
    let names = profiles.0.keys().map(|id| id.0.as_str()).chain(BUILT_IN);
    let names: Vec<&str> = names.collect();
    let text = format!("`{}` must name a profile, got `{}`", name.at.key, name.value.0);
    let hint = match nearest(&name.value.0, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("profiles: {}", names.join(", ")),
    };
    complaints.push(name.at.complain(text).with_hint(hint));
}

fn complete(fields: &Permissions, places: Places<'_>, complaints: &mut Complaints) -> Permits {
    let mode = match fields.sandbox.unwrap_or_default() {
        Mode::WorkspaceWrite => SandboxMode::WorkspaceWrite,
        Mode::ReadOnly => SandboxMode::ReadOnly,
        Mode::DangerFullAccess => SandboxMode::DangerFullAccess,
    };
    let mut roots = |list: &[Spanned<value::Path>]| -> Vec<PathBuf> {
        list.iter().filter_map(|path| root(path, places, complaints)).collect()
    };
    let write = roots(fields.write.as_deref().unwrap_or_default());
    let read = fields.read.as_deref().map(roots);
    let deny_read = fields.deny_read.iter().flatten();
    let deny_read = deny_read.filter_map(|path| denied(path, places, complaints)).collect();
    let mut protected: Vec<String> = PROTECTED.iter().flat_map(|name| covering(name)).collect();
    for path in fields.protected_paths.iter().flatten() {
        protected.extend(protect(path, complaints));
    }
    let degraded = fields.degraded.iter().flatten();
    let degraded = degraded.filter_map(|item| known_item(item, complaints)).collect();
    let tools = fields.tools.clone().unwrap_or_default();
    let mut names = |list: Vec<Spanned<value::Text>>| -> Vec<String> {
        list.into_iter().map(|tool| known_tool(tool, complaints)).collect()
    };
    let (access, hosts) = network(fields.network.clone().unwrap_or_default());
    Permits {
        profile: Profile {
            mode,
            network: access,
            hosts,
            unix_sockets: Vec::new(),
            degraded,
            write,
            deny_read,
            read,
            protected,
            limits: limits(fields.limits.as_ref()),
            tier: match fields.tier.unwrap_or_default() {
                TierName::Auto => Tier::Auto,
                TierName::Namespaces => Tier::Namespaces,
                TierName::Landlock => Tier::Landlock,
            },
            require_sandbox: fields.require_sandbox.unwrap_or(true),
            env: environment(fields.env.as_ref()),
        },
        rules: fields.rules.clone().unwrap_or_default(),
        opaque: match fields.opaque.unwrap_or_default() {
            OpaqueMeans::Sandbox => Opaque::Sandbox,
            OpaqueMeans::Prompt => Opaque::Prompt,
            OpaqueMeans::Forbidden => Opaque::Forbidden,
        },
        tools_allow: tools.allow.map(&mut names),
        tools_deny: tools.deny.map(names).unwrap_or_default(),
        on_denied_fail: fields.on_denied == Some(OnDenied::Fail),
        max_denials: fields.max_denials.and_then(|most| u32::try_from(most.0).ok()),
        patch_overwrite: fields.patch_overwrite == Some(Overwrite::Allow),
    }
}

/// What of the network is reachable, and the hosts where only some are.
pub fn network(access: NetworkAccess) -> (Network, Hosts) {
    match access {
        NetworkAccess::None => (Network::None, Hosts::default()),
        NetworkAccess::Listed(hosts) => (Network::Listed, hosts),
        NetworkAccess::Full => (Network::Full, Hosts::default()),
    }
}

fn limits(spec: Option<&LimitSpec>) -> Limits {
    let Some(spec) = spec else { return Limits::default() };
    let default = Limits::default();
    Limits {
        processes: spec.processes.map(|it| it.0).or(default.processes),
        memory: spec.memory.map(|it| it.0),
        open_files: spec.open_files.map(|it| it.0),
        file_size: spec.file_size.map(|it| it.0),
        cpu_seconds: spec
            .cpu
            .map(|it| it.0.as_secs().saturating_add(u64::from(it.0.subsec_nanos() > 0))),
        tmp_size: spec.tmp_size.map(|it| it.0).or(default.tmp_size),
    }
}

fn environment(spec: Option<&EnvSpec>) -> EnvPolicy {
    let Some(spec) = spec else { return EnvPolicy::default() };
    let set = spec.set.iter().flat_map(|set| &set.0);
    EnvPolicy {
        inherit: match spec.inherit.unwrap_or_default() {
            InheritFrom::Core => Inherit::Core,
            InheritFrom::None => Inherit::None,
            InheritFrom::All => Inherit::All,
        },
        toolchains: spec.toolchains.unwrap_or(true),
        pass: spec.pass.iter().flatten().map(|name| name.value.0.clone()).collect(),
        set: set
            .map(|(name, text)| (name.0.clone(), text.value.clone()))
            .collect::<BTreeMap<_, _>>(),
    }
}

fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

/// A name covers the file or the whole folder.
pub(crate) fn covering(name: &str) -> Vec<String> {
    let name = name.trim_end_matches('/');
    if is_glob(name) { vec![name.to_owned()] } else { vec![name.to_owned(), format!("{name}/**")] }
}

/// A readable or writable root: absolute, below HOME, or below the workspace.
fn root(
    path: &Spanned<value::Path>,
    places: Places<'_>,
    complaints: &mut Complaints,
) -> Option<PathBuf> {
    let text = path.value.0.as_str();
    if is_glob(text) {
        let text =
            format!("`{}` must be a file or folder without globs, got `{text}`", path.at.key);
        complaints.push(path.at.complain(text));
        return None;
    }
    if text.starts_with('/') || text.starts_with("~/") || text == "~" {
        return absolute(path, places, complaints).map(PathBuf::from);
    }
    let inside = inside_workspace(path, complaints)?;
    Some(
        places
            .workspace
            .map_or_else(|| PathBuf::from(&inside), |workspace| workspace.join(&inside)),
    )
}

fn denied(
    path: &Spanned<value::Path>,
    places: Places<'_>,
    complaints: &mut Complaints,
) -> Option<String> {
    let text = path.value.0.as_str();
    if text.starts_with('/') || text.starts_with("~/") || text == "~" {
        return absolute(path, places, complaints);
    }
    let inside = inside_workspace(path, complaints)?;
    glob(path, &inside, complaints).then_some(inside)
}

fn protect(path: &Spanned<value::Path>, complaints: &mut Complaints) -> Vec<String> {
    match inside_workspace(path, complaints) {
        Some(inside) if inside.is_empty() => vec!["**".to_owned()],
        Some(inside) if glob(path, &inside, complaints) => covering(&inside),
        Some(_) | None => Vec::new(),
    }
}

fn glob(path: &Spanned<value::Path>, text: &str, complaints: &mut Complaints) -> bool {
    let built = globset::GlobBuilder::new(text).literal_separator(true).build();
    if let Err(error) = &built {
        let text = format!("`{}` must be a glob, got `{text}`: {}", path.at.key, error.kind());
        complaints.push(path.at.complain(text));
    }
    built.is_ok()
}

fn inside_workspace(path: &Spanned<value::Path>, complaints: &mut Complaints) -> Option<String> {
    let inside = super::sources::inside("", &path.value.0);
    if inside.is_none() {
        let (key, text) = (&path.at.key, &path.value.0);
        let text = format!("`{key}` must stay inside the workspace, got `{text}`");
        complaints.push(path.at.complain(text));
    }
    inside
}

fn absolute(
    path: &Spanned<value::Path>,
    places: Places<'_>,
    complaints: &mut Complaints,
) -> Option<String> {
    let text = path.value.0.as_str();
    if text.split('/').any(|part| part == "..") {
        let text = format!("`{}` must have no `..` in it, got `{text}`", path.at.key);
        complaints.push(path.at.complain(text));
        return None;
    }
    let Some(rest) = text.strip_prefix('~') else { return Some(text.to_owned()) };
    let Some(home) = places.home else {
        complaints.push(path.at.complain(format!("`{}` needs HOME to be set", path.at.key)));
        return None;
    };
    Some(format!("{}{rest}", home.display()))
}

fn known_item(item: &Spanned<value::Text>, complaints: &mut Complaints) -> Option<String> {
    let name = &item.value.0;
    if ITEMS.contains(&name.as_str()) {
        return Some(name.clone());
    }
    let text = format!("`{}` must name an enforcement item, got `{name}`", item.at.key);
    let hint = match nearest(name, ITEMS) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("items: {}", ITEMS.join(", ")),
    };
    complaints.push(item.at.complain(text).with_hint(hint));
    None
}

fn known_tool(tool: Spanned<value::Text>, complaints: &mut Complaints) -> String {
    let name = tool.value.0;
    if !TOOLS.contains(&name.as_str()) {
        let text = format!("`{}` must name a tool, got `{name}`", tool.at.key);
        let hint = match nearest(&name, TOOLS) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("tools: {}", TOOLS.join(", ")),
        };
        complaints.push(tool.at.complain(text).with_hint(hint));
    }
    name
}
