//! Grounds of a patch: which paths it may touch.
//!
//! In: paths as a patch names them, and [`Grounds`]. Out: why a path is out of bounds. Lexical: what
//! symbolic links make of a path is the sandbox's to enforce.

use std::path::{Component, Path, PathBuf};

use globset::GlobBuilder;

use super::{Grounds, RuleError};

/// Returns `path` without `.` and `..`, beneath `base` when it is relative.
pub(super) fn resolve(base: &Path, path: &str) -> PathBuf {
    let mut out = PathBuf::from("/");
    for component in base.join(path).components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    out
}

/// Whether the protected paths are globs.
pub(super) fn check(grounds: &Grounds) -> Result<(), RuleError> {
    for glob in &grounds.protected {
        matcher(glob).map_err(|why| {
            RuleError::file("protected paths", format!("`{glob}` must be a glob: {why}"))
        })?;
    }
    Ok(())
}

/// Why a patch must not touch `path`, which resolves against `base`; `None` when it may.
pub(super) fn objection(grounds: &Grounds, base: &Path, path: &str) -> Option<String> {
    if grounds.write_roots.is_empty() {
        return Some("the sandbox is read-only".to_owned());
    }
    if path.is_empty() || path.contains('\0') {
        return Some(format!("`{}` is not a path", path.escape_debug()));
    }
    let absolute = resolve(base, path);
    let is_inside = grounds.write_roots.iter().any(|root| absolute.starts_with(root));
    if !is_inside {
        let roots: Vec<String> =
            grounds.write_roots.iter().map(|root| format!("`{}`", root.display())).collect();
        return Some(format!("`{path}` is outside of the writable folders {}", roots.join(", ")));
    }
    let glob = grounds.protected.iter().find(|glob| is_protected(grounds, glob, &absolute))?;
    Some(format!("`{path}` is protected by `{glob}`"))
}

/// Whether `glob` covers the path or a folder that it lies in. Case doesn't count: on some file
/// systems two spellings are one file.
fn is_protected(grounds: &Grounds, glob: &str, absolute: &Path) -> bool {
    // A glob that can't be read protects everything: a policy that isn't understood denies.
    let Ok(matcher) = matcher(glob) else { return true };
    let subject = if glob.starts_with('/') {
        absolute.strip_prefix("/")
    } else {
        absolute.strip_prefix(&grounds.workspace)
    };
    let Ok(subject) = subject else { return false };
    let folded = subject.to_string_lossy().to_lowercase();
    Path::new(&folded)
        .ancestors()
        .filter(|part| !part.as_os_str().is_empty())
        .any(|part| matcher.is_match(part))
}

fn matcher(glob: &str) -> Result<globset::GlobMatcher, String> {
    let plain = glob.trim_start_matches("./").trim_start_matches('/').trim_end_matches('/');
    if plain.is_empty() {
        return Err("it names nothing".to_owned());
    }
    GlobBuilder::new(&plain.to_lowercase())
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| error.kind().to_string())
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Grounds, check, objection};

    fn grounds(protected: &[&str]) -> Grounds {
        Grounds {
            workspace: PathBuf::from("/work/tree"),
            write_roots: vec![PathBuf::from("/work/tree"), PathBuf::from("/cache")],
            protected: protected.iter().map(|&glob| glob.to_owned()).collect(),
        }
    }

    #[test]
    fn paths_stay_beneath_the_roots() {
        let grounds = grounds(&[]);
        for path in ["a", "./a/../b", "/work/tree/x", "a/../../tree/b", "/cache/x", "ä b"] {
            assert_eq!(objection(&grounds, &grounds.workspace, path), None, "{path}");
        }
        for path in ["../a", "/work/treeb", "/etc/passwd", "a/../../b", "", "/", "a\0b"] {
            assert!(objection(&grounds, &grounds.workspace, path).is_some(), "{path}");
        }
        let none = Grounds { write_roots: Vec::new(), ..grounds };
        assert_eq!(
            objection(&none, Path::new("/"), "a").as_deref(),
            Some("the sandbox is read-only")
        );
    }

    #[test]
    fn protected_paths_are_covered_whole_and_in_any_case() {
        let grounds = grounds(&[".git", ".github/workflows/*", "**/*.rules", "docs/", "/cache/k"]);
        for path in [
            ".git",
            ".git/config",
            ".GIT/config",
            "x/../.git/hooks/a",
            ".github/workflows/ci.yml",
            ".github/Workflows/sub/x.yml",
            "a.rules",
            "p/q/A.RULES",
            "docs/x/y",
            "/work/tree/.git/x",
            "/cache/k/x",
        ] {
            assert!(objection(&grounds, &grounds.workspace, path).is_some(), "{path}");
        }
        for path in [".gitignore", ".github/x", "rules", "src/docs/x", "/cache/other", "x.git"] {
            assert_eq!(objection(&grounds, &grounds.workspace, path), None, "{path}");
        }
        let said = objection(&grounds, &grounds.workspace, ".github/workflows/ci.yml").unwrap();
        assert_eq!(said, "`.github/workflows/ci.yml` is protected by `.github/workflows/*`");
    }

    #[test]
    fn a_glob_that_is_none_is_refused_and_denies() {
        let grounds = grounds(&["a[", ""]);
        assert!(check(&grounds).is_err());
        assert!(objection(&grounds, &grounds.workspace, "x").is_some());
    }
}
