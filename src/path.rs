//! Paths: looking programs up, and lexical containment.
//!
//! In: paths as text. Out: absolute paths. Touches the disk only to see whether a program is there.

use std::path::{Component, Path, PathBuf};

/// Finds `name` on `path` (a `PATH` value), or takes it as it is when it is absolute.
pub fn find_program(name: &str, path: Option<&String>) -> Option<PathBuf> {
    let is_program = |candidate: &Path| {
        use std::os::unix::fs::PermissionsExt as _;
        candidate
            .metadata()
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let candidate = PathBuf::from(name);
        return (candidate.is_absolute() && is_program(&candidate)).then_some(candidate);
    }
    path?
        .split(':')
        .filter(|folder| folder.starts_with('/'))
        .map(|folder| Path::new(folder).join(name))
        .find(|candidate| is_program(candidate))
}

/// Resolves `.` and `..` in the text of an absolute path, without touching the disk.
pub fn normalise(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                out.push(component);
            }
        }
    }
    out
}

/// Folder of an attempt's files, relative to the run's folder.
pub fn attempt_folder(instance: &str, n: u32) -> String {
    format!("tasks/{}/attempt-{n}", component(instance))
}

/// Log of a call, relative to the run's folder.
pub fn call_log(instance: &str, n: u32, call: &str) -> String {
    format!("{}/calls/{}.log", attempt_folder(instance, n), component(call))
}

/// `id` as one component of a path: letters, digits and `-_.=[],` stay; anything else becomes `_`
/// and a digest of `id` is added, so that two ids never share a folder.
pub fn component(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.=[],".contains(c);
    if !id.is_empty() && id.len() <= 128 && !id.starts_with('.') && id.chars().all(is_plain) {
        return id.to_owned();
    }
    let kept: String = id.chars().take(64).map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("_{kept}-{}", &crate::text::sha256(id.as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{attempt_folder, call_log, component, normalise};

    #[test]
    fn dots_are_resolved_in_the_text() {
        assert_eq!(normalise(Path::new("/a/./b/../c")), PathBuf::from("/a/c"));
        assert_eq!(normalise(Path::new("/../..")), PathBuf::from("/"));
    }

    #[test]
    fn ids_stay_inside_and_apart() {
        assert_eq!(call_log("fix", 2, "call-001"), "tasks/fix/attempt-2/calls/call-001.log");
        assert_eq!(attempt_folder("deps[package=serde]", 1), "tasks/deps[package=serde]/attempt-1");
        for id in ["..", ".", "", "a/b", "../../etc", "a\0b", "-é"] {
            let safe = component(id);
            assert!(!safe.contains(['/', '\0']) && !safe.starts_with('.'), "{id} {safe}");
        }
        assert_ne!(component("a/b"), component("a:b"));
        assert!(component(&"x".repeat(1000)).len() < 128);
    }
}
