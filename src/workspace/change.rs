//! The change: a patch and what it does to files, as data.
//!
//! In: git's own lists of a difference. Out: file changes, and the protected paths among them.
//! Pure; knows nothing of work trees.

use std::collections::BTreeSet;
use std::path::PathBuf;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::WorkspaceError;
use crate::transcript::event::FileChange;

/// What an attempt changed, against the state after setup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Patch that `git apply` takes on the base; empty when nothing changed. Without submodules.
    pub patch: Vec<u8>,
    /// SHA-256 of `patch` in hex.
    pub sha256: String,
    /// Files of the patch and of the submodules' patches, paths relative to the workspace.
    pub files: Vec<FileChange>,
    /// Tree that the patch starts from.
    pub base_tree: String,
    /// Tree that the patch gives.
    pub result_tree: String,
    /// One patch for each submodule whose files changed.
    pub submodules: Vec<SubmoduleChange>,
    /// Contents of changed LFS files; the patch has their pointers.
    pub lfs: Vec<LfsObject>,
    /// Things a person should know, one sentence each.
    pub notices: Vec<String>,
}

/// What changed inside one submodule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmoduleChange {
    /// Path of the submodule relative to the workspace.
    pub path: PathBuf,
    /// Commit that was checked out there.
    pub commit: String,
    /// Patch to apply inside the submodule.
    pub patch: Vec<u8>,
    /// Tree that the patch starts from.
    pub base_tree: String,
    /// Tree that the patch gives.
    pub result_tree: String,
}

/// Content of a changed file that git knows only by a pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LfsObject {
    /// Path relative to the workspace.
    pub path: PathBuf,
    /// SHA-256 of the content in hex.
    pub oid: String,
    /// Private copy of the content; it lasts as long as the run.
    pub content: PathBuf,
}

impl Change {
    /// Whether nothing changed, in submodules neither.
    pub fn is_empty(&self) -> bool {
        self.patch.is_empty() && self.submodules.is_empty()
    }
}

/// Returns the paths of `change` that `globs` protect: both sides of a rename, whatever the case
/// of letters, since some checkouts are on file systems that don't tell cases apart.
///
/// # Errors
///
/// A glob that can't be read.
pub fn touched_protected(change: &Change, globs: &[String]) -> Result<Vec<String>, WorkspaceError> {
    let set = paths_set(globs, Case::Fold)?;
    let touched: BTreeSet<String> = change
        .files
        .iter()
        .flat_map(|file| [Some(&file.path), file.to.as_ref()])
        .flatten()
        .filter(|path| set.is_match(path))
        .cloned()
        .collect();
    Ok(touched.into_iter().collect())
}

/// Whether the case of letters counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// It doesn't.
    Fold,
    /// It does.
    Exact,
}

/// Compiles globs relative to the workspace. `*` stays inside one folder, `**` doesn't; a glob that
/// matches a folder covers all that is in it.
pub(super) fn paths_set(globs: &[String], case: Case) -> Result<GlobSet, WorkspaceError> {
    let mut set = GlobSetBuilder::new();
    for text in globs {
        let error = |source| WorkspaceError::Glob { glob: text.clone(), source };
        let glob = text.trim_start_matches("./").trim_end_matches('/');
        let glob = glob.strip_suffix("/**").unwrap_or(glob);
        for glob in [glob.to_owned(), format!("{glob}/**")] {
            set.add(
                GlobBuilder::new(&glob)
                    .literal_separator(true)
                    .case_insensitive(case == Case::Fold)
                    .backslash_escape(true)
                    .build()
                    .map_err(error)?,
            );
        }
    }
    set.build().map_err(|source| WorkspaceError::Glob { glob: globs.join(" "), source })
}

/// Reads `git diff-tree -r -M --raw --numstat -z`: all raw records, then all counts.
pub(super) fn parse_files(output: &[u8]) -> Vec<FileChange> {
    let fields: Vec<&[u8]> = output.split(|&byte| byte == 0).collect();
    let mut fields = fields.into_iter().peekable();
    let mut files: Vec<FileChange> = Vec::new();
    while let Some(raw) = fields.next_if(|field| field.starts_with(b":")) {
        let status = raw.rsplit(|&byte| byte == b' ').next().unwrap_or_default();
        let path = lossy(fields.next());
        let (kind, to) = match status.first() {
            Some(b'A') => ("add", None),
            Some(b'D') => ("delete", None),
            Some(b'R') => ("move", Some(lossy(fields.next()))),
            _ => ("update", None),
        };
        files.push(FileChange { path, kind: kind.to_owned(), to, ..FileChange::default() });
    }
    let mut each = files.iter_mut();
    while let Some(counts) = fields.next() {
        let mut parts = counts.splitn(3, |&byte| byte == b'\t');
        let (Some(added), Some(removed), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if path.is_empty() {
            // A rename: both paths follow as fields of their own.
            fields.nth(1);
        }
        if let Some(file) = each.next() {
            file.added = number(added);
            file.removed = number(removed);
        }
    }
    files
}

fn lossy(field: Option<&[u8]>) -> String {
    String::from_utf8_lossy(field.unwrap_or_default()).into_owned()
}

/// `-` stands for a binary file: it has no lines.
fn number(field: &[u8]) -> u64 {
    std::str::from_utf8(field).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Change, parse_files, touched_protected};
    use crate::transcript::event::FileChange;

    #[test]
    fn lists_of_a_difference_are_read() {
        let output = b":100644 000000 a b D\0gone\0:100644 100644 a a R100\0old\0new\0\
            :000000 100644 0 c A\0pic.png\x000\t3\tgone\x001\t2\t\0old\0new\0-\t-\tpic.png\0";
        let files = parse_files(output);
        let seen: Vec<_> = files
            .iter()
            .map(|f| (f.kind.as_str(), f.path.as_str(), f.to.as_deref(), f.added, f.removed))
            .collect();
        assert_eq!(
            seen,
            [
                ("delete", "gone", None, 0, 3),
                ("move", "old", Some("new"), 1, 2),
                ("add", "pic.png", None, 0, 0),
            ]
        );
    }

    fn change(files: &[(&str, Option<&str>)]) -> Change {
        let files = files
            .iter()
            .map(|(path, to)| FileChange {
                path: (*path).to_owned(),
                to: to.map(str::to_owned),
                ..FileChange::default()
            })
            .collect();
        Change { files, ..Change::default() }
    }

    #[test]
    fn protected_paths_cover_folders_cases_and_both_sides_of_a_move() {
        let change = change(&[
            (".GitHub/workflows/a.yml", None),
            ("src/lib.rs", Some("tests/lib.rs")),
            ("tests", None),
            ("a/Cargo.lock", None),
            ("docs/x.md", None),
        ]);
        let globs = |list: &[&str]| list.iter().map(|&glob| glob.to_owned()).collect::<Vec<_>>();
        let touched =
            touched_protected(&change, &globs(&[".github/**", "tests/", "**/Cargo.lock", "*.md"]));
        assert_eq!(
            touched.unwrap(),
            [".GitHub/workflows/a.yml", "a/Cargo.lock", "tests", "tests/lib.rs"]
        );
        assert!(touched_protected(&change, &globs(&["a[b"])).is_err());
    }
}
