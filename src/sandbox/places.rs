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
    /// Folders that services put sockets into; real paths.
    pub(super) socket_folders: Vec<PathBuf>,
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
    let is_kept = |path: &Path| kept.iter().any(|kept| path.starts_with(kept));
    let hidden: Vec<&PathBuf> = found
        .denied
        .iter()
        .chain(&found.sockets)
        // A folder that is needed as a whole can't be hidden; sockets in it are, one by one.
        .chain(found.socket_folders.iter().filter(|path| !is_written(path) && !is_kept(path)))
        // Devices are laid out by themselves; what a private folder covers isn't seen.
        .filter(|path| !path.starts_with("/dev") && !is_root(path))
        .filter(|path| !layout.sockets.contains(path))
        .filter(|path| !is_private(path) || is_written(path) || is_kept(path))
        .collect();
    let is_covered = |path: &Path| {
        is_private(path) || hidden.iter().any(|place| *place != path && path.starts_with(place))
    };
    out.extend(
        kept.iter()
            .filter(|path| is_covered(path) && !is_written(path))
            .chain(layout.sockets.iter().filter(|path| is_covered(path)))
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
    out.extend(hidden.into_iter().map(|path| own(path, View::Hidden)));
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
        let denied = paths(denied).into_iter().collect();
        let found = Found { denied, socket_folders: paths(&["/run/user"]), ..Found::default() };
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
                ("/run/user".to_owned(), View::Hidden),
                ("/tmp/repo".to_owned(), View::Kept),
                ("/tmp/s/w".to_owned(), View::Writable),
                ("/tmp/s/w/.env".to_owned(), View::Hidden),
            ]
        );
    }

    #[test]
    fn a_listed_socket_is_kept_in_a_hidden_folder() {
        let layout = Layout {
            write: paths(&["/w"]),
            sockets: paths(&["/run/user/1/bus", "/srv/db"]),
            ..Layout::default()
        };
        assert_eq!(
            seen(&layout, &["/srv/db"], &[]),
            [
                ("/w".to_owned(), View::Writable),
                ("/run/user".to_owned(), View::Hidden),
                ("/run/user/1/bus".to_owned(), View::Kept),
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
                ("/run/user".to_owned(), View::Hidden),
                ("/w/.git".to_owned(), View::Protected),
                ("/w/.git/x".to_owned(), View::Writable),
            ]
        );
    }
}
