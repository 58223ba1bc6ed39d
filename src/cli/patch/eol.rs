//! Line endings of new files.
//!
//! In: the place of a new file. Out: whether the repository wants `\r\n` there, by `.gitattributes`
//! (gitattributes(5)), else by `.editorconfig`. Knows nothing of git's own configuration.

use std::path::{Path, PathBuf};

use globset::GlobBuilder;

use super::resolve::{Resolved, Roots};

/// Whether lines of a new file at `place` end in `\r\n`; without any word on it they don't.
pub(super) fn is_crlf(roots: &Roots, place: &Resolved) -> bool {
    let path = place.folder.join(&place.name);
    let mut folders: Vec<PathBuf> = place.folder.ancestors().map(Path::to_owned).collect();
    folders.reverse();
    let read = |name: &str| -> Vec<(PathBuf, String)> {
        folders
            .iter()
            .filter_map(|folder| Some((folder.clone(), roots.text(place.root, folder, name)?)))
            .collect()
    };
    by_attributes(&path, &read(".gitattributes"))
        .or_else(|| by_editorconfig(&path, &read(".editorconfig")))
        .unwrap_or(false)
}

/// What `.gitattributes` files, outermost first, say about `path`: the last matching line wins.
fn by_attributes(path: &Path, files: &[(PathBuf, String)]) -> Option<bool> {
    let mut answer = None;
    for (folder, text) in files {
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let Some(pattern) = words.next().filter(|word| !word.starts_with('#')) else {
                continue;
            };
            if !matches(pattern, folder, path) {
                continue;
            }
            for word in words {
                match word {
                    "eol=crlf" => answer = Some(true),
                    "eol=lf" | "-text" | "binary" => answer = Some(false),
                    "!eol" | "-eol" => answer = None,
                    _ => {}
                }
            }
        }
    }
    answer
}

/// What `.editorconfig` files, outermost first, say about `path`: the last matching section wins,
/// and a file with `root = true` hides those outside of it.
fn by_editorconfig(path: &Path, files: &[(PathBuf, String)]) -> Option<bool> {
    let mut answer = None;
    for (folder, text) in files {
        let mut applies = None;
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                applies = Some(matches(section, folder, path));
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            let (key, value) = (key.trim().to_lowercase(), value.trim().to_lowercase());
            match (applies, key.as_str(), value.as_str()) {
                (None, "root", "true") | (Some(true), "end_of_line", "unset") => answer = None,
                (Some(true), "end_of_line", "crlf") => answer = Some(true),
                (Some(true), "end_of_line", "lf" | "cr") => answer = Some(false),
                _ => {}
            }
        }
    }
    answer
}

/// Whether a pattern of a file in `folder` covers `path`: without a slash it is about names.
fn matches(pattern: &str, folder: &Path, path: &Path) -> bool {
    let Ok(inner) = path.strip_prefix(folder) else { return false };
    let (pattern, target) = if pattern.contains('/') {
        (pattern.trim_start_matches('/'), inner)
    } else {
        (pattern, Path::new(inner.file_name().unwrap_or_default()))
    };
    GlobBuilder::new(pattern)
        .literal_separator(true)
        .build()
        .is_ok_and(|glob| glob.compile_matcher().is_match(target))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{by_attributes, by_editorconfig};

    fn at(folder: &str, text: &str) -> (PathBuf, String) {
        (PathBuf::from(folder), text.to_owned())
    }

    #[test]
    fn the_last_matching_line_wins() {
        let files = [at("", "* text=auto\n*.bat text eol=crlf\n"), at("unix", "*.bat eol=lf\n")];
        for (path, answer) in [
            ("run.bat", Some(true)),
            ("a/run.bat", Some(true)),
            ("unix/run.bat", Some(false)),
            ("run.sh", None),
        ] {
            assert_eq!(by_attributes(Path::new(path), &files), answer, "{path}");
        }
        let anchored = [at("", "/win/*.txt eol=crlf\n# *.sh eol=crlf\n")];
        assert_eq!(by_attributes(Path::new("win/a.txt"), &anchored), Some(true));
        assert_eq!(by_attributes(Path::new("x/win/a.txt"), &anchored), None);
        assert_eq!(by_attributes(Path::new("a.sh"), &anchored), None);
    }

    #[test]
    fn editorconfig_sections_and_roots() {
        let outer = at("", "root = true\n[*]\nend_of_line = crlf\n[*.{sh,py}]\nend_of_line = lf\n");
        let inner = at("in", "root = true\n[*.md]\nend_of_line = lf\n");
        let files = [outer, inner];
        assert_eq!(by_editorconfig(Path::new("a.txt"), &files[..1]), Some(true));
        assert_eq!(by_editorconfig(Path::new("x/a.sh"), &files[..1]), Some(false));
        assert_eq!(by_editorconfig(Path::new("in/a.txt"), &files), None);
    }
}
