//! Control groups: a limit of processes that holds for root too, and one of memory.
//!
//! In: limits, and this process's own groups. Out: a group below each, that goes away with the
//! [`Group`]. cgroups(7): version 1 has a tree a controller, version 2 one for all. Knows nothing
//! of who joins.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Begins the name of each of our groups.
const PREFIX: &str = "horseman-";

/// How often a group is tried to be removed whose last process is just ending; 5 ms apart.
const TRIES: u32 = 40;

/// Processes of ours in a group beside the commands': the starter, and a reaper a command. Ours;
/// more commands than this at a time take from the limit.
const OWN: u64 = 8;

/// Most that a group may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Most {
    /// Processes and threads, without ours.
    pub(crate) processes: Option<u64>,
    /// Bytes of memory. Only in version 2: in version 1 it has a tree of its own.
    pub(crate) memory: Option<u64>,
}

/// Which limits a group can hold here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holds {
    /// Whether `pids.max` is there.
    pub(crate) processes: bool,
    /// Whether `memory.max` is there.
    pub(crate) memory: bool,
}

/// A group of ours, removed with this value.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    holds: Holds,
}

impl Group {
    /// Makes a group with these limits; `None` where this user can make none that holds any.
    pub(crate) fn make(most: Most) -> Option<Self> {
        let parent = parent(
            &fs::read_to_string("/proc/self/cgroup").ok()?,
            &fs::read_to_string("/proc/self/mountinfo").ok()?,
        )?;
        Self::below(&parent, most)
    }

    fn below(parent: &Path, most: Most) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        sweep(parent);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&path).ok()?;
        let mut group = Self { path, holds: Holds::default() };
        let processes = most.processes.map(|most| most.saturating_add(OWN));
        group.holds.processes = group.limit("pids.max", processes);
        group.holds.memory = group.limit("memory.max", most.memory);
        let holds_any = group.holds != Holds::default();
        holds_any.then_some(group)
    }

    fn limit(&self, file: &str, most: Option<u64>) -> bool {
        // Without the controller there is no such file, and none can be made.
        let write = |most: u64| {
            let mut file = OpenOptions::new().write(true).open(self.path.join(file))?;
            file.write_all(most.to_string().as_bytes())
        };
        most.is_some_and(|most| write(most).is_ok())
    }

    /// Which limits it holds.
    pub(crate) fn holds(&self) -> Holds {
        self.holds
    }

    /// What a process writes `0` to so that it is in the group.
    pub(crate) fn door(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                // What is left, the next start sweeps.
                _ => return,
            }
        }
    }
}

/// Removes the groups of runners that are gone. The kernel refuses it while a process is inside.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let runner = name.as_bytes().strip_prefix(PREFIX.as_bytes()).map(|rest| {
            let id = rest.split(|byte| *byte == b'-').next().unwrap_or(rest);
            String::from_utf8_lossy(id).into_owned()
        });
        // An empty group of a runner that lives is about to be joined.
        if runner.is_some_and(|id| !Path::new("/proc").join(id).exists()) {
            drop(fs::remove_dir(entry.path()));
        }
    }
}

/// This process's own group: in the tree of `pids` of version 1, else in version 2.
fn parent(groups: &str, mounts: &str) -> Option<PathBuf> {
    // hierarchy:controllers:path
    let own = |wanted: &str| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let controllers = fields.next()?;
            let is_wanted = controllers.split(',').any(|name| name == wanted);
            is_wanted.then(|| fields.next()).flatten()
        })
    };
    // id parent device root point options [tags] - kind source options
    let point = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mut right = right.split(' ');
            let is_kind = right.next() == Some(kind);
            let options = right.nth(1)?;
            let is_wanted =
                is_kind && (option.is_empty() || options.split(',').any(|o| o == option));
            let mut left = left.split(' ').skip(3);
            is_wanted.then(|| Some((left.next()?, left.next()?))).flatten()
        })
    };
    let join = |(root, point): (&str, &str), own: &str| {
        let below = if root == "/" { own } else { own.strip_prefix(root)? };
        Some(Path::new(point).join(below.trim_start_matches('/')))
    };
    match own("pids") {
        Some(own) => join(point("cgroup", "pids")?, own),
        None => join(point("cgroup2", "")?, own("")?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::{Group, Most, parent, sweep};

    const MOUNTS: &str = "31 24 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
        32 24 0:28 /d/1 /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_own_group_is_found_in_both_versions() {
        let found = parent("8:pids:/a/b\n0::/\n", MOUNTS);
        assert_eq!(found, Some(PathBuf::from("/sys/fs/cgroup/pids/a/b")));
        let found = parent("0::/d/1/me\n", MOUNTS);
        assert_eq!(found, Some(PathBuf::from("/sys/fs/cgroup/unified/me")));
        assert_eq!(parent("0::/elsewhere\n", MOUNTS), None);
        assert_eq!(parent("", ""), None);
    }

    #[test]
    fn a_folder_without_controllers_holds_nothing_and_stays_clean() {
        let folder = tempfile::tempdir().unwrap();
        let unwritable = folder.path().join("gone");
        assert!(Group::below(&unwritable, Most { processes: Some(1), memory: None }).is_none());
        for processes in [None, Some(1)] {
            assert!(Group::below(folder.path(), Most { processes, memory: None }).is_none());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn groups_of_the_dead_are_swept() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!("horseman-{}-7", std::process::id());
        for name in ["horseman-4294967295-0", own.as_str(), "other"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        sweep(folder.path());
        let left = |name: &str| folder.path().join(name).exists();
        assert!(!left("horseman-4294967295-0") && left(&own) && left("other"));
    }
}
