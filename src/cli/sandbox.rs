//! `horseman sandbox -- CMD`: runs a command confined exactly as a tool call would be.
//!
//! In: a resolved [`Profile`] and the command. Out: the command's exit status, its streams passed
//! on as they come. No descriptor of the caller reaches the command: all three streams are pipes.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use thiserror::Error;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use crate::approval::by_operator;
use crate::policy::Exec;
use crate::profile::{Profile, SandboxMode};
use crate::sandbox::{
    Ended, Host, Observed, Place, Running, Sandbox, SandboxError, environment, input_pipe, pump,
};

/// Exit status when the confinement can't be set up.
pub const UNCONFINED: u8 = 125;

/// How long output of background children is passed on after the command ended. Ours; the same as
/// for a tool call.
const DRAIN: Duration = Duration::from_millis(200);

/// What to run.
#[derive(Clone, Debug)]
pub struct Request {
    /// Profile, resolved.
    pub profile: Profile,
    /// Folder to work in; absolute, existing. It is used in place: nothing is cloned.
    pub workspace: PathBuf,
    /// Command and arguments; not empty.
    pub argv: Vec<String>,
    /// Private folder for HOME and temporary files; absolute, existing. It is the marker by which
    /// what a killed command leaves is found.
    pub state: PathBuf,
}

/// Why a command did not run; [`RunError::status`] is the exit status.
#[derive(Debug, Error)]
pub enum RunError {
    /// The private folders can't be made.
    #[error("failed to make the private folder of the command")]
    Folder(#[source] io::Error),
    /// A pipe or a signal handler.
    #[error("failed to {what}")]
    Stream {
        /// What was tried.
        what: &'static str,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// There is no such program on `PATH`.
    #[error("`{0}` is not found")]
    NotFound(String),
    /// Confinement, or the program itself.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

impl RunError {
    /// What the operator can do about it, if there is one obvious thing.
    pub fn hint(&self) -> Option<&str> {
        if let Self::Sandbox(error) = self { error.hint() } else { None }
    }

    /// 126 or 127 when the program is the reason, else 125.
    pub fn status(&self) -> u8 {
        match self {
            Self::NotFound(_) => 127,
            Self::Sandbox(error) => error.exit_code().unwrap_or(UNCONFINED),
            Self::Folder(_) | Self::Stream { .. } => UNCONFINED,
        }
    }
}

/// Runs the command and returns its exit status: its code, or 128 and the number of the signal.
///
/// The workspace is the caller's own. In this tier nothing inside it can be protected, so a profile
/// that names protected paths and writes to the workspace is refused; the built-in
/// `workspace-write` names none here. SIGINT and SIGTERM are passed on as SIGINT, and end the whole
/// tree when the command does not end within 2 s.
///
/// # Errors
///
/// A [`RunError`] when the command did not run or was lost.
pub async fn run(host: &Host, request: &Request, keys: &[String]) -> Result<u8, RunError> {
    let place = place(&request.workspace, &request.state)?;
    let sandbox = Sandbox::probe(host, &request.profile, &place).await?;
    let env = environment(&request.profile.env, host, &place, keys);
    let name = request.argv.first().map_or("", String::as_str);
    let path = env.get("PATH").map_or("/usr/bin:/bin", String::as_str);
    let program =
        find(name, path, &place.workspace).ok_or_else(|| RunError::NotFound(name.to_owned()))?;
    let exec = Exec {
        program,
        argv: request.argv.clone(),
        cwd: place.workspace.clone(),
        env,
        shell_text: None,
    };
    let confined = sandbox.confine(by_operator(exec))?;

    let (stdin, to_stdin) = input_pipe().map_err(SandboxError::from)?;
    let (from_stdout, stdout) = pair()?;
    let (from_stderr, stderr) = pair()?;
    let outputs = [(from_stdout, Target::Stdout), (from_stderr, Target::Stderr)];
    let mut pumps = tokio::task::JoinSet::new();
    for (from, target) in outputs {
        let from = pipe::Receiver::from_owned_fd(from).map_err(stream("watch an output pipe"))?;
        pumps.spawn(pump(from, move |chunk| target.write(chunk).is_ok()));
    }
    let mut running = confined.relay(stdin, stdout, stderr).await?;
    feed(to_stdin);
    let ended = wait(&mut running).await?;
    let drained = timeout(DRAIN, async { while pumps.join_next().await.is_some() {} }).await;
    drop(drained);
    running.stop().await?;
    Ok(status(&ended))
}

fn place(workspace: &Path, folder: &Path) -> Result<Place, RunError> {
    let make = |name: &str| {
        let path = folder.join(name);
        std::fs::create_dir(&path).map(|()| path).map_err(RunError::Folder)
    };
    let workspace = std::fs::canonicalize(workspace).map_err(RunError::Folder)?;
    Ok(Place {
        git: crate::workspace::git_folders(&workspace),
        workspace,
        home: make("home")?,
        tmp: make("tmp")?,
        read_extra: Vec::new(),
        write_extra: Vec::new(),
        marker: folder.to_string_lossy().into_owned(),
        is_disposable: false,
        ..Place::default()
    })
}

/// The profile of `horseman sandbox` without `--permissions`: `workspace-write` in place, without
/// protected paths, because this tier could not protect any.
pub fn default_profile() -> Profile {
    Profile { mode: SandboxMode::WorkspaceWrite, require_sandbox: true, ..Profile::default() }
}

/// Finds a program as a shell would: a name with a slash is a path, else the first executable on
/// `path`. A file that exists and can't be executed is returned too, so that exec says why.
pub fn find(name: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(cwd.join(name));
    }
    if name.is_empty() {
        return None;
    }
    let candidates = path.split(':').map(|folder| cwd.join(folder).join(name));
    let existing: Vec<PathBuf> = candidates.filter(|path| path.is_file()).collect();
    let can_run = |path: &&PathBuf| {
        nix::unistd::access(path.as_path(), nix::unistd::AccessFlags::X_OK).is_ok()
    };
    existing.iter().find(can_run).or(existing.first()).cloned()
}

async fn wait(running: &mut Running) -> Result<Ended, RunError> {
    let hear = |kind| signal(kind).map_err(stream("hear signals"));
    let mut interrupt = hear(SignalKind::interrupt())?;
    let mut terminate = hear(SignalKind::terminate())?;
    loop {
        let observed = tokio::select! {
            observed = running.wait(Duration::from_hours(1)) => observed?,
            _ = interrupt.recv() => give_up(running).await?,
            _ = terminate.recv() => give_up(running).await?,
        };
        if let Observed::Ended(ended) = observed {
            return Ok(ended);
        }
    }
}

async fn give_up(running: &mut Running) -> Result<Observed, RunError> {
    running.interrupt();
    match running.wait(Duration::from_secs(2)).await? {
        Observed::StillRunning => Ok(Observed::Ended(running.stop().await?)),
        ended @ Observed::Ended(_) => Ok(ended),
    }
}

fn status(ended: &Ended) -> u8 {
    let code = ended.exit_code.or_else(|| ended.signal.map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(UNCONFINED)
}

#[derive(Clone, Copy)]
enum Target {
    Stdout,
    Stderr,
}

impl Target {
    /// Passes a chunk on. An error ends the pump and closes the pipe, so that the command learns
    /// that nobody reads it any more.
    fn write(self, chunk: &[u8]) -> io::Result<()> {
        let put = |mut out: Box<dyn Write>| out.write_all(chunk).and_then(|()| out.flush());
        match self {
            Self::Stdout => put(Box::new(io::stdout())),
            Self::Stderr => put(Box::new(io::stderr())),
        }
    }
}

/// Copies the caller's stdin into the pipe, in a thread: a read of a terminal or file can't be
/// waited for otherwise. The thread ends with the process.
fn feed(to: OwnedFd) {
    std::thread::spawn(move || {
        let mut to = File::from(to);
        let mut from = io::stdin().lock();
        let mut chunk = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            if to.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
    });
}

fn pair() -> Result<(OwnedFd, OwnedFd), RunError> {
    pipe2(OFlag::O_CLOEXEC).map_err(|errno| stream("make a pipe")(errno.into()))
}

fn stream(what: &'static str) -> impl Fn(io::Error) -> RunError {
    move |source| RunError::Stream { what, source }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::find;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path();
        std::fs::write(cwd.join("plain"), "").unwrap();
        let path = format!("/nowhere:{}:/bin", cwd.display());
        assert_eq!(find("sh", &path, cwd), Some(PathBuf::from("/bin/sh")));
        assert_eq!(find("plain", &path, cwd), Some(cwd.join("plain")));
        assert_eq!(find("./x", &path, Path::new("/w")), Some(PathBuf::from("/w/./x")));
        assert_eq!(find("no-such-program", &path, cwd), None);
        assert_eq!(find("", &path, cwd), None);
    }
}
