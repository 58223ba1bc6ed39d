//! Places: a layout as what is laid over what in a mount namespace.
//!
//! In: a layout, and what of it is there. Out: places in the order in which they are laid. Pure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::carve;
use super::layout::Layout;
use super::linux::mounts::{Placed, View, ordered};

/// What was found out about a layout on this host.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Unreadable places; real paths.
    pub(super) denied: BTreeSet<PathBuf>,
    /// Sockets of the host that this user can connect to.
    pub(super) sockets: Vec<PathBuf>,
}

/// The places of an attempt. `kept` stays visible, though it may lie below a private folder.
pub(super) fn places(layout: &Layout, found: &Found, kept: &[PathBuf]) -> Vec<Placed> {
    let own = |at: &Path, view| Placed { at: at.to_owned(), what: at.to_owned(), view };
    let is_root = |path: &Path| layout.write.iter().any(|root| root == path);
    let private: Vec<&(PathBuf, PathBuf)> =
        layout.private.iter().filter(|(at, _)| !is_root(at)).collect();
    let mut out: Vec<Placed> = layout.write.iter().map(|root| own(root, View::Writable)).collect();
    out.extend(private.iter().map(|(at, what)| Placed {
        at: at.clone(),
        what: what.clone(),
        view: View::Writable,
    }));
    let is_private = |path: &Path| private.iter().any(|(at, _)| path.starts_with(at));
    let is_written = |path: &Path| layout.write.iter().any(|root| path.starts_with(root));
    out.extend(
        kept.iter()
            .filter(|path| is_private(path) && !is_written(path))
            .map(|path| own(path, View::Kept)),
    );
    let pinned = carve::pinned(&layout.protected, &layout.write);
    out.extend(pinned.iter().map(|path| own(path, View::Writable)));
    out.extend(layout.protected.iter().map(|path| own(path, View::Protected)));
    out.extend(layout.copies.iter().map(|(at, what)| Placed {
        at: at.clone(),
        what: what.clone(),
        view: View::Protected,
    }));
    let is_kept = |path: &Path| kept.iter().any(|kept| path.starts_with(kept));
    let hidden = found.denied.iter().chain(&found.sockets);
    out.extend(
        hidden
            // Devices are laid out by themselves; what a private folder covers isn't seen.
            .filter(|path| !path.starts_with("/dev") && !is_root(path))
            .filter(|path| !layout.sockets.contains(path))
            .filter(|path| !is_private(path) || is_written(path) || is_kept(path))
            .map(|path| own(path, View::Hidden)),
    );
    ordered(out)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Found, places};
    use crate::sandbox::layout::Layout;
    use crate::sandbox::linux::mounts::View;

    fn paths(list: &[&str]) -> Vec<PathBuf> {
        list.iter().map(PathBuf::from).collect()
    }

    fn seen(layout: &Layout, denied: &[&str], kept: &[&str]) -> Vec<(String, View)> {
        let found = Found { denied: paths(denied).into_iter().collect(), sockets: Vec::new() };
        places(layout, &found, &paths(kept))
            .into_iter()
            .map(|place| (place.at.to_string_lossy().into_owned(), place.view))
            .collect()
    }

    #[test]
    fn what_a_private_folder_covers_is_kept_only_when_it_is_needed() {
        let layout = Layout {
            write: paths(&["/tmp/s/w"]),
            private: vec![(PathBuf::from("/tmp"), PathBuf::from("/tmp/s/tmp"))],
            ..Layout::default()
        };
        assert_eq!(
            seen(&layout, &["/tmp/s", "/h/.ssh", "/tmp/s/w/.env"], &["/tmp/repo", "/usr/x"]),
            [
                ("/tmp".to_owned(), View::Writable),
                ("/h/.ssh".to_owned(), View::Hidden),
                ("/tmp/repo".to_owned(), View::Kept),
                ("/tmp/s/w".to_owned(), View::Writable),
                ("/tmp/s/w/.env".to_owned(), View::Hidden),
            ]
        );
    }

    #[test]
    fn a_protected_path_is_laid_behind_its_root() {
        let layout = Layout {
            write: paths(&["/w", "/w/.git/x"]),
            protected: paths(&["/w/.git"]),
            ..Layout::default()
        };
        assert_eq!(
            seen(&layout, &["/w"], &[]),
            [
                ("/w".to_owned(), View::Writable),
                ("/w/.git".to_owned(), View::Protected),
                ("/w/.git/x".to_owned(), View::Writable),
            ]
        );
    }
}
