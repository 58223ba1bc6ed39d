//! Layout: what of the file system is readable and writable.
//!
//! In: profile, places, and the facts of the host. Out: roots and denied paths. Pure: it names paths and looks at none.

use std::path::{Path, PathBuf};

use super::{Host, Place};
use crate::profile::{Profile, SandboxMode};

/// Places with credentials below a home folder.
pub(crate) const CREDENTIALS: [&str; 14] = [
    ".ssh",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".config/gh",
    ".docker/config.json",
    ".kube",
    ".netrc",
    ".pypirc",
    ".gnupg",
    ".git-credentials",
    ".npmrc",
    ".cargo/credentials",
    ".cargo/credentials.toml",
];

/// Variables of CI services that name files which later trusted steps read.
const CI_FILES: [&str; 5] =
    ["GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_STATE"];

/// Variable of CI services that names a folder with tokens and command files.
const CI_TEMP: &str = "RUNNER_TEMP";

/// What every program needs, when the profile lists what is readable.
const SYSTEM: [&str; 13] = [
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix",
    "/opt",
    "/proc",
    "/run/systemd/resolve",
    "/sbin",
    "/sys",
    "/usr",
];

/// Never readable as a whole: raw disks and the terminals and shared memory of others.
const DEVICES: &str = "/dev";

/// Why an overlay can't be had without a mount namespace.
pub(crate) const OVERLAY: &str = "an overlay is a mount, which needs the tier of namespaces";

/// Folders that every user of a host shares; an attempt has its own.
const PRIVATE: [&str; 2] = ["/tmp", "/var/tmp"];

/// Roots and denied paths. All absolute; not yet looked up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Readable roots.
    pub(crate) read: Vec<PathBuf>,
    /// Writable roots.
    pub(crate) write: Vec<PathBuf>,
    /// Places that hold credentials or steer the host: not readable, whether there or not.
    pub(crate) denied: Vec<PathBuf>,
    /// What the profile names to be unreadable; paths or globs.
    pub(crate) hidden: Vec<String>,
    /// Read-only, though below a writable root. A name that isn't there must not come to be.
    pub(crate) protected: Vec<PathBuf>,
    /// What is shown in place of a file that also holds credentials: the file, its clean copy.
    pub(crate) copies: Vec<(PathBuf, PathBuf)>,
    /// Private folders at well-known places: `/tmp`, `/var/tmp`, `/dev/shm`, and what is there.
    pub(crate) private: Vec<(PathBuf, PathBuf)>,
    /// Unix sockets of the host that may be connected to.
    pub(crate) sockets: Vec<PathBuf>,
}

/// Lays out an attempt. `homes` are the home folders that there are on the host.
pub(crate) fn layout(host: &Host, profile: &Profile, place: &Place, homes: &[PathBuf]) -> Layout {
    let is_writable = profile.mode == SandboxMode::WorkspaceWrite;
    let mut write = vec![place.home.clone(), place.tmp.clone()];
    write.extend(place.write_extra.iter().cloned());
    if is_writable {
        write.push(place.workspace.clone());
        write.extend(profile.write.iter().cloned());
    }
    Layout {
        read: read_roots(host, profile, place),
        write,
        denied: denied(host, homes),
        hidden: profile.deny_read.iter().map(|path| absolute(path, place)).collect(),
        sockets: profile.unix_sockets.clone(),
        private: PRIVATE.map(|at| (PathBuf::from(at), place.tmp.clone())).into(),
        ..Layout::default()
    }
}

/// The layout of our own git: all but credentials readable, only `write` writable.
pub(crate) fn narrow(host: &Host, write: &[PathBuf], homes: &[PathBuf]) -> Layout {
    Layout {
        read: vec![PathBuf::from("/")],
        write: write.to_vec(),
        denied: denied(host, homes),
        ..Layout::default()
    }
}

fn read_roots(host: &Host, profile: &Profile, place: &Place) -> Vec<PathBuf> {
    let mut roots = match &profile.read {
        None => vec![PathBuf::from("/")],
        Some(listed) => SYSTEM.iter().map(PathBuf::from).chain(listed.iter().cloned()).collect(),
    };
    // Our own binary writes patches, so a narrow list must not hide it.
    roots.push(host.binary.clone());
    roots.push(place.workspace.clone());
    roots.extend(place.read_extra.iter().cloned());
    roots
}

fn denied(host: &Host, homes: &[PathBuf]) -> Vec<PathBuf> {
    let mut denied = vec![PathBuf::from(DEVICES)];
    for home in host.home.iter().chain(homes) {
        denied.extend(CREDENTIALS.iter().map(|place| home.join(place)));
    }
    let named =
        |name: &str| host.env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
    for name in CI_FILES {
        // The folder, because the service makes a new file in it for each step. A file that lies
        // directly in `/tmp` or the like is denied alone.
        let path = named(name);
        let folder = path.as_deref().and_then(Path::parent).filter(|f| f.components().count() > 2);
        denied.extend(folder.map(Path::to_owned).or(path));
    }
    denied.extend(named(CI_TEMP).filter(|folder| folder.components().count() > 2));
    denied.sort();
    denied.dedup();
    denied
}

fn absolute(path: &str, place: &Place) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{}/{}", place.workspace.display(), path.trim_start_matches("./"))
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Layout, layout};
    use crate::profile::{Profile, SandboxMode};
    use crate::sandbox::{Host, Place};

    fn laid_out(profile: &Profile, workspace: &str, is_disposable: bool) -> Layout {
        let env = [("GITHUB_ENV", "/ci/_temp/files/env"), ("RUNNER_TEMP", "/ci/_temp")];
        let host = Host {
            binary: PathBuf::from("/h/horseman"),
            home: Some(PathBuf::from("/home/u")),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            uid: 1,
        };
        let place = Place {
            workspace: PathBuf::from(workspace),
            home: PathBuf::from("/s/home"),
            tmp: PathBuf::from("/s/tmp"),
            read_extra: Vec::new(),
            write_extra: Vec::new(),
            marker: "/s".to_owned(),
            is_disposable,
            ..Place::default()
        };
        layout(&host, profile, &place, &[])
    }

    #[test]
    fn read_only_writes_private_folders_alone() {
        let profile = Profile {
            mode: SandboxMode::ReadOnly,
            write: vec![PathBuf::from("/w2")],
            ..Profile::default()
        };
        assert_eq!(
            laid_out(&profile, "/w", false).write,
            [Path::new("/s/home"), Path::new("/s/tmp")]
        );
    }

    #[test]
    fn ci_command_files_are_denied_with_their_folder() {
        let denied = laid_out(&Profile::default(), "/w", true).denied;
        for path in ["/ci/_temp/files", "/ci/_temp", "/home/u/.ssh", "/dev"] {
            assert!(denied.contains(&PathBuf::from(path)), "{path}");
        }
    }

    #[test]
    fn a_narrow_list_keeps_the_system_and_our_binary() {
        let profile = Profile { read: Some(vec![PathBuf::from("/data")]), ..Profile::default() };
        let read = laid_out(&profile, "/w", true).read;
        for path in ["/usr", "/data", "/h/horseman", "/w"] {
            assert!(read.contains(&PathBuf::from(path)), "{path}");
        }
        assert!(!read.contains(&PathBuf::from("/")));
    }
}
