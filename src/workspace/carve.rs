//! Carving: which folders of git a checkout stands on, found without running git in it.
//!
//! In: the root of a work tree. Out: its `.git`, what that leads to, and those of its submodules.
//! Knows nothing of how they are protected.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Most bytes read of a `.git` file, a `commondir` or a `.gitmodules`; our choice.
const MOST: u64 = 1 << 20;

/// The git folders and files that the work tree at `root` stands on, absolute: its `.git`; where
/// that leads as a symlink, or as the file of a linked worktree or submodule, with the folder that
/// several worktrees share; and the same of the submodules that `.gitmodules` names. Repositories
/// that were made in subfolders are no part of it.
pub fn git_folders(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut trees = vec![root.to_path_buf()];
    while let Some(tree) = trees.pop() {
        let known = found.len();
        follow(&tree.join(".git"), &mut found);
        if found.len() == known {
            continue;
        }
        let text = read(&tree.join(".gitmodules")).unwrap_or_default();
        trees.extend(submodule_paths(&text).map(|path| tree.join(path)));
    }
    found.sort();
    found.dedup();
    found
}

fn follow(git: &Path, found: &mut Vec<PathBuf>) {
    let Ok(facts) = fs::symlink_metadata(git) else { return };
    if found.iter().any(|known| known == git) {
        return;
    }
    found.push(git.to_path_buf());
    if facts.is_symlink() {
        if let Ok(target) = fs::canonicalize(git) {
            follow(&target, found);
        }
    } else if facts.is_file() {
        let text = read(git).unwrap_or_default();
        let named = text.strip_prefix("gitdir:").map(str::trim).filter(|named| !named.is_empty());
        if let (Some(named), Some(parent)) = (named, git.parent())
            && let Ok(folder) = fs::canonicalize(parent.join(named))
        {
            follow(&folder, found);
        }
    } else if let Some(common) = read(&git.join("commondir"))
        && let Ok(common) = fs::canonicalize(git.join(common.trim()))
    {
        found.push(common);
    }
}

/// Values of `path = …` that stay inside.
fn submodule_paths(text: &str) -> impl Iterator<Item = &Path> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("path")?.trim_start().strip_prefix('='))
        .map(|value| Path::new(value.trim().trim_matches('"')))
        .filter(|path| path.components().all(|part| matches!(part, Component::Normal(_))))
        .filter(|path| !path.as_os_str().is_empty())
}

/// The text of a regular file: anything else could hold its reader for ever (P1).
fn read(path: &Path) -> Option<String> {
    use std::io::Read as _;
    if !fs::symlink_metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::git_folders;

    #[test]
    fn a_worktree_leads_to_its_own_folder_and_the_shared_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let own = root.join("main/.git/worktrees/w");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(root.join("w/sub")).unwrap();
        fs::create_dir_all(root.join("main/.git/modules/sub")).unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        fs::write(root.join("w/.git"), format!("gitdir: {}\n", own.display())).unwrap();
        fs::write(
            root.join("w/.gitmodules"),
            "[submodule \"s\"]\n\tpath = sub\n[submodule \"t\"]\n\tpath = ../main\n",
        )
        .unwrap();
        fs::write(root.join("w/sub/.git"), "gitdir: ../../main/.git/modules/sub\n").unwrap();
        let expected: Vec<PathBuf> =
            ["main/.git", "main/.git/modules/sub", "main/.git/worktrees/w", "w/.git", "w/sub/.git"]
                .map(|path| root.join(path))
                .into();
        assert_eq!(git_folders(&root.join("w")), expected);
    }

    #[test]
    fn a_symlink_and_its_target_count_and_a_loop_ends() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("w")).unwrap();
        fs::create_dir_all(root.join("store")).unwrap();
        symlink("../store", root.join("w/.git")).unwrap();
        assert_eq!(git_folders(&root.join("w")), [root.join("store"), root.join("w/.git")]);
        fs::remove_file(root.join("w/.git")).unwrap();
        symlink(".git", root.join("w/.git")).unwrap();
        assert_eq!(git_folders(&root.join("w")), [root.join("w/.git")]);
        assert!(git_folders(&root.join("nowhere")).is_empty());
    }
}
