//! State: the private folder of a run, and what earlier runs left behind (P9).
//!
//! In: a base folder and the run's id. Out: folders that vanish with the run; a sweep of the runs
//! that died. Knows nothing of git, tasks or processes: who ends processes is handed in.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use thiserror::Error;

use super::{WorkspaceError, io_error, tree};
use crate::clock::Clock;

/// How long a folder without a lock is left alone: the time in which a starting run takes its
/// lock, in milliseconds; our choice, generous.
const STARTING_MS: u64 = 60_000;

/// The private folder of one run. It goes when the value is dropped.
#[derive(Debug)]
pub struct RunState {
    folder: PathBuf,
    _lock: Flock<File>,
}

/// A dead run's folder that a sweep found.
#[derive(Debug)]
pub struct Swept {
    /// The folder.
    pub folder: PathBuf,
    /// Processes of it that were still alive and were ended.
    pub processes: u32,
    /// Why the folder is still there; `None`: it is gone.
    pub failure: Option<WorkspaceError>,
}

/// Why there is no private folder.
#[derive(Debug, Error)]
pub enum StateError {
    /// The base folder is somebody else's or can be read by others.
    #[error("state folder `{}` must be a folder of user {uid}, found {found}", path.display())]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// Who runs.
        uid: u32,
        /// What is there.
        found: String,
    },
    /// The run id is no plain name.
    #[error("run id `{id}` must be letters, digits, `-`, `_` and `.`, not starting with `.`")]
    Id {
        /// The id.
        id: String,
    },
    /// There is a live run of this id.
    #[error("run `{id}` is already going on")]
    Taken {
        /// The id.
        id: String,
    },
    /// A file or folder can't be made.
    #[error(transparent)]
    Io(#[from] WorkspaceError),
}

/// The base of all state folders of a user: `horseman-<uid>` in `tmp` (TMPDIR), default `/tmp`.
pub fn base(tmp: Option<&Path>, uid: u32) -> PathBuf {
    tmp.filter(|tmp| tmp.is_absolute()).unwrap_or(Path::new("/tmp")).join(format!("horseman-{uid}"))
}

impl RunState {
    /// Makes the folder of run `run_id` below `base` and locks it. `base` is made for this user
    /// alone, or checked: a symlink or a folder of somebody else is refused.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub fn create(base: &Path, run_id: &str) -> Result<Self, StateError> {
        if !is_plain(run_id) {
            return Err(StateError::Id { id: run_id.to_owned() });
        }
        open_base(base)?;
        let base = fs::canonicalize(base).map_err(io_error("resolve", base))?;
        let folder = base.join(run_id);
        // The lock is taken before the folder has its name: a sweep at the same time sees
        // either nothing or a locked folder.
        let starting = base.join(format!(".{run_id}.{}", std::process::id()));
        make_private(&starting)?;
        let path = starting.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(io_error("make", &path))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| io_error("lock", &path)(errno.into()))?;
        if let Err(error) = fs::rename(&starting, &folder) {
            tree::remove(&starting)?;
            return Err(match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOTEMPTY | Errno::EEXIST) => {
                    StateError::Taken { id: run_id.to_owned() }
                }
                _ => io_error("make", &folder)(error).into(),
            });
        }
        Ok(Self { folder, _lock: lock })
    }

    /// The folder; absolute, without symlinks. It is the marker by which leftover processes of
    /// this run are known.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes and returns the folder of one instance; the same one for each of its attempts.
    ///
    /// # Errors
    ///
    /// The folder can't be made.
    pub fn attempt_dir(&self, instance: &str) -> Result<PathBuf, WorkspaceError> {
        // Instance ids may hold characters of a matrix cell; the digest keeps two of them apart.
        let name: String = instance
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' })
            .take(40)
            .collect();
        let name = if name == instance {
            name
        } else {
            format!("{name}-{}", &crate::text::sha256(instance.as_bytes())[..8])
        };
        let folder = self.folder.join("tasks").join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(io_error("make", &folder))?;
        Ok(folder)
    }
}

impl Drop for RunState {
    fn drop(&mut self) {
        if let Err(error) = remove_run(&self.folder) {
            tracing::warn!("{error}; the next run clears it");
        }
    }
}

/// Clears what dead runs left below `base`: for every run folder whose lock is free, `end` ends
/// the processes that belong to the folder and says how many, then the folder goes.
///
/// # Errors
///
/// `base` is not private to this user or can't be read. A folder that stays is not an error but
/// says so in its [`Swept`].
pub fn sweep(base: &Path, end: &dyn Fn(&Path) -> u32) -> Result<Vec<Swept>, StateError> {
    if fs::symlink_metadata(base).is_err() {
        return Ok(Vec::new());
    }
    open_base(base)?;
    let base = fs::canonicalize(base).map_err(io_error("resolve", base))?;
    let mut swept = Vec::new();
    for name in tree::names(&base)? {
        let folder = base.join(name);
        let Some(_dead) = take(&folder) else { continue };
        let processes = end(&folder);
        let failure = remove_run(&folder).err();
        swept.push(Swept { folder, processes, failure });
    }
    Ok(swept)
}

/// Takes the lock of a dead run; `None` for a live one and for what is no run.
fn take(folder: &Path) -> Option<Dead> {
    let facts = fs::symlink_metadata(folder).ok().filter(fs::Metadata::is_dir)?;
    let seconds = u64::try_from(facts.mtime()).unwrap_or(0);
    let age = Clock::epoch_ms().saturating_sub(seconds.saturating_mul(1_000));
    // One that is being made may have a lock that its own run hasn't taken yet.
    let is_starting =
        folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    if is_starting && age <= STARTING_MS {
        return None;
    }
    let path = folder.join("lock");
    match OpenOptions::new().write(true).custom_flags(nix::libc::O_NOFOLLOW).open(&path) {
        Ok(file) => {
            let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()?;
            Some(Dead { _lock: Some(lock) })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            (age > STARTING_MS).then_some(Dead { _lock: None })
        }
        Err(_) => None,
    }
}

/// The right to remove a dead run's folder.
struct Dead {
    /// `None`: the run died before it had a lock.
    _lock: Option<Flock<File>>,
}

/// Removes a run's folder; the lock goes last, so that nobody else begins meanwhile.
fn remove_run(folder: &Path) -> Result<(), WorkspaceError> {
    if fs::symlink_metadata(folder).is_err() {
        return Ok(());
    }
    for name in tree::names(folder)? {
        if name != "lock" {
            tree::remove(&folder.join(name))?;
        }
    }
    tree::remove(folder)
}

fn open_base(base: &Path) -> Result<(), StateError> {
    let uid = nix::unistd::geteuid().as_raw();
    match DirBuilder::new().recursive(false).mode(0o700).create(base) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_error("make", base)(error).into()),
    }
    let facts = fs::symlink_metadata(base).map_err(io_error("look at", base))?;
    let refuse = |found: String| StateError::NotPrivate { path: base.to_path_buf(), uid, found };
    if facts.is_symlink() {
        return Err(refuse("a symlink".to_owned()));
    }
    if !facts.is_dir() {
        return Err(refuse("a file".to_owned()));
    }
    if facts.uid() != uid {
        return Err(refuse(format!("one of user {}", facts.uid())));
    }
    if facts.mode() & 0o077 != 0 {
        fs::set_permissions(base, fs::Permissions::from_mode(0o700))
            .map_err(io_error("set the mode of", base))?;
    }
    Ok(())
}

fn make_private(folder: &Path) -> Result<(), WorkspaceError> {
    DirBuilder::new().mode(0o700).create(folder).map_err(io_error("make", folder))
}

fn is_plain(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 128
        && !id.starts_with('.')
        && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}
