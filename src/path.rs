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

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::normalise;

    #[test]
    fn dots_are_resolved_in_the_text() {
        assert_eq!(normalise(Path::new("/a/./b/../c")), PathBuf::from("/a/c"));
        assert_eq!(normalise(Path::new("/../..")), PathBuf::from("/"));
    }
}
