//! Git: the one way this program runs the git command line.
//!
//! In: an operation of the closed list, arguments, and where it may write. Out: what git printed,
//! or its own error text. Nothing of the machine's, the user's or a workspace's git configuration
//! takes part. Knows nothing of what a workspace is.

mod spawn;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use thiserror::Error;

use crate::approval::{GitOperation, by_runner};
use crate::policy::Exec;
use crate::sandbox::{Host, SandboxError};
use spawn::Spawner;

/// The git command line with a cleaned environment and configuration.
#[derive(Debug)]
pub struct Git {
    program: PathBuf,
    path: String,
    home: PathBuf,
    outputs: PathBuf,
    number: Cell<u64>,
    spawner: Spawner,
}

/// Where and how one git command runs.
#[derive(Clone, Debug)]
pub struct GitOptions {
    /// Working folder; absolute.
    pub cwd: PathBuf,
    /// Repository; `None`: found from `cwd` upwards.
    pub git_dir: Option<PathBuf>,
    /// Work tree; `None`: what the repository says.
    pub work_tree: Option<PathBuf>,
    /// Index file; `None`: the repository's own.
    pub index: Option<PathBuf>,
    /// Extra configuration, stronger than any file.
    pub config: Vec<(String, String)>,
    /// Extra environment, for dates and identities.
    pub env: BTreeMap<String, String>,
    /// Folders that it may write below; empty: it only reads.
    pub write: Vec<PathBuf>,
    /// What it reads from stdin.
    pub stdin: Vec<u8>,
    /// Wall-clock deadline. Default 10 minutes; our choice.
    pub deadline: Duration,
}

impl GitOptions {
    /// Options for a command in `cwd` that only reads.
    pub fn at(cwd: &Path) -> Self {
        Self {
            cwd: cwd.to_path_buf(),
            git_dir: None,
            work_tree: None,
            index: None,
            config: Vec::new(),
            env: BTreeMap::new(),
            write: Vec::new(),
            stdin: Vec::new(),
            deadline: Duration::from_mins(10),
        }
    }

    /// Uses the repository at `git_dir`.
    #[must_use]
    pub fn git_dir(mut self, git_dir: &Path) -> Self {
        self.git_dir = Some(git_dir.to_path_buf());
        self
    }

    /// Uses the work tree at `work_tree`.
    #[must_use]
    pub fn work_tree(mut self, work_tree: &Path) -> Self {
        self.work_tree = Some(work_tree.to_path_buf());
        self
    }

    /// Uses the index file `index`.
    #[must_use]
    pub fn index(mut self, index: &Path) -> Self {
        self.index = Some(index.to_path_buf());
        self
    }

    /// Lets the command write below `folder`.
    #[must_use]
    pub fn write(mut self, folder: &Path) -> Self {
        self.write.push(folder.to_path_buf());
        self
    }

    /// Gives the command `bytes` on stdin.
    #[must_use]
    pub fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = bytes;
        self
    }
}

/// What git printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitOutput {
    /// Standard output, whole.
    pub stdout: Vec<u8>,
    /// What it said on standard error.
    pub notes: String,
}

impl GitOutput {
    /// Standard output as text without the last line end.
    pub fn line(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end_matches('\n').to_owned()
    }

    /// The fields of a `-z` output.
    pub fn fields(&self) -> impl Iterator<Item = &[u8]> {
        self.stdout.split(|&byte| byte == 0).filter(|field| !field.is_empty())
    }
}

/// Why git didn't do what was asked.
#[derive(Debug, Error)]
pub enum GitError {
    /// There is no git here.
    #[error(
        "`git` must be on PATH: workspaces and patches are made with it; found none in `{path}`"
    )]
    Missing {
        /// The PATH that was searched.
        path: String,
    },
    /// A private file of ours can't be written or read.
    #[error("failed to {action} `{}`", path.display())]
    Private {
        /// What was tried.
        action: &'static str,
        /// File.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A path that a command line can't carry.
    #[error("path `{}` must be valid UTF-8", path.display())]
    NotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// It could not be confined or started.
    #[error("failed to run `git {command}`")]
    Confine {
        /// Subcommand.
        command: String,
        /// Cause.
        #[source]
        source: Box<SandboxError>,
    },
    /// It ran and failed.
    #[error("`git {command}` failed with {status}: {text}")]
    Failed {
        /// Subcommand and its arguments, clipped.
        command: String,
        /// `exit status 128` or `signal 9`.
        status: String,
        /// What git said.
        text: String,
    },
    /// Its deadline passed.
    #[error("`git {command}` did not end within {} s", deadline.as_secs())]
    TimedOut {
        /// Subcommand.
        command: String,
        /// Deadline.
        deadline: Duration,
    },
}

impl GitError {
    /// Whether git itself ran and said no, which for a question is an answer.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// What git said, for [`Failed`](Self::Failed); empty otherwise.
    pub fn text(&self) -> &str {
        if let Self::Failed { text, .. } = self { text } else { "" }
    }
}

/// Settings that no repository may override. Order doesn't matter; each has one purpose: no
/// program of somebody else's is started, no byte is converted, no network is used.
const SETTINGS: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.sshCommand", "false"),
    ("core.gitProxy", ""),
    ("core.askPass", "false"),
    ("core.editor", "false"),
    ("core.pager", "cat"),
    ("core.alternateRefsCommand", "true"),
    ("protocol.allow", "never"),
    ("credential.helper", ""),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.autocrlf", "false"),
    ("core.safecrlf", "false"),
    ("core.quotePath", "false"),
    ("core.symlinks", "true"),
    ("core.fileMode", "true"),
    ("core.ignoreCase", "false"),
    ("core.precomposeUnicode", "false"),
    ("core.protectNTFS", "false"),
    ("core.protectHFS", "false"),
    ("core.trustctime", "true"),
    ("core.checkStat", "default"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("core.bigFileThreshold", "512m"),
    ("index.sparse", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("color.ui", "false"),
    ("advice.detachedHead", "false"),
    ("apply.whitespace", "nowarn"),
    ("apply.ignoreWhitespace", "no"),
    ("safe.directory", "*"),
    ("safe.bareRepository", "all"),
];

impl Git {
    /// Finds git on the host's PATH and makes its private home below `scratch`, a folder of ours
    /// that no command of a task can write. `marker` is the run's state folder.
    ///
    /// # Errors
    ///
    /// [`GitError::Missing`] without git; [`GitError::Private`] when the home can't be made.
    pub fn new(host: &Host, scratch: &Path, marker: &str) -> Result<Self, GitError> {
        let path = host.env.get("PATH").map_or("/usr/local/bin:/usr/bin:/bin", String::as_str);
        let program = find(path).ok_or_else(|| GitError::Missing { path: path.to_owned() })?;
        let (home, outputs) = (scratch.join("git-home"), scratch.join("git-outputs"));
        let private = |action, path: &Path, source| GitError::Private {
            action,
            path: path.to_path_buf(),
            source,
        };
        for folder in [&home, &outputs] {
            fs::create_dir_all(folder).map_err(|source| private("make", folder, source))?;
        }
        // Before git 2.38 `safe.directory` counts only in a file, so the list stands here too.
        let config = home.join(".gitconfig");
        fs::write(&config, "[safe]\n\tdirectory = *\n")
            .map_err(|source| private("write", &config, source))?;
        Ok(Self {
            program,
            path: path.to_owned(),
            home,
            outputs,
            number: Cell::new(0),
            spawner: Spawner::new(host, marker),
        })
    }

    /// Ends the processes that wait for the next command; a later one begins them again.
    pub fn rest(&self) {
        self.spawner.rest();
    }

    /// A private folder that every command of ours may write; it goes with the scratch folder.
    pub(crate) fn private(&self) -> &Path {
        &self.outputs
    }

    /// Runs git to its end. Standard output goes to a private file and comes back whole, however
    /// large; standard error is the text of the error.
    ///
    /// # Errors
    ///
    /// [`GitError::Failed`] with git's own text for any exit status but 0.
    pub async fn run(
        &self,
        operation: GitOperation,
        args: &[&str],
        options: GitOptions,
    ) -> Result<GitOutput, GitError> {
        let number = self.number.get();
        self.number.set(number + 1);
        let file = self.outputs.join(number.to_string());
        let private = |action, source| GitError::Private { action, path: file.clone(), source };
        fs::write(&file, b"").map_err(|source| private("write", source))?;
        let ran = self.run_into(operation, args, options, &file).await;
        let stdout = fs::read(&file).map_err(|source| private("read", source));
        fs::remove_file(&file).map_err(|source| private("remove", source))?;
        Ok(GitOutput { notes: ran?, stdout: stdout? })
    }

    async fn run_into(
        &self,
        operation: GitOperation,
        args: &[&str],
        options: GitOptions,
        stdout: &Path,
    ) -> Result<String, GitError> {
        let exec = self.exec(args, &options)?;
        let mut write = options.write;
        write.push(self.outputs.clone());
        write.sort_unstable();
        write.dedup();
        let job = spawn::Job {
            command: describe(args),
            cleared: by_runner(exec, operation),
            write,
            stdin: options.stdin,
            stdout: stdout.to_path_buf(),
            deadline: options.deadline,
        };
        self.spawner.run(job).await
    }

    fn exec(&self, args: &[&str], options: &GitOptions) -> Result<Exec, GitError> {
        let mut argv = vec!["git".to_owned()];
        for (key, value) in SETTINGS {
            argv.extend(["-c".to_owned(), format!("{key}={value}")]);
        }
        for (key, value) in &options.config {
            argv.extend(["-c".to_owned(), format!("{key}={value}")]);
        }
        argv.extend(args.iter().map(|&arg| arg.to_owned()));
        Ok(Exec {
            program: self.program.clone(),
            argv,
            cwd: options.cwd.clone(),
            env: self.environment(options)?,
            shell_text: None,
        })
    }

    fn environment(&self, options: &GitOptions) -> Result<BTreeMap<String, String>, GitError> {
        let config = self.home.join(".gitconfig");
        let mut env: BTreeMap<String, String> = [
            ("PATH", self.path.as_str()),
            ("HOME", text(&self.home)?),
            ("XDG_CONFIG_HOME", text(&self.home)?),
            ("LC_ALL", "C"),
            ("TZ", "UTC"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", text(&config)?),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_EDITOR", "false"),
            ("GIT_PAGER", "cat"),
            ("GIT_ASKPASS", "false"),
            ("SSH_ASKPASS", "false"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        for (key, value) in [
            ("GIT_DIR", &options.git_dir),
            ("GIT_WORK_TREE", &options.work_tree),
            ("GIT_INDEX_FILE", &options.index),
        ] {
            if let Some(value) = value {
                env.insert(key.to_owned(), text(value)?.to_owned());
            }
        }
        env.extend(options.env.clone());
        Ok(env)
    }
}

fn find(path: &str) -> Option<PathBuf> {
    path.split(':')
        .filter(|folder| folder.starts_with('/'))
        .map(|folder| Path::new(folder).join("git"))
        .find(|program| program.is_file() && access(program, AccessFlags::X_OK).is_ok())
}

/// The path as text for an argument.
pub(crate) fn text(path: &Path) -> Result<&str, GitError> {
    path.to_str().ok_or_else(|| GitError::NotUtf8 { path: path.to_path_buf() })
}

/// The path as git's own bytes.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn describe(args: &[&str]) -> String {
    crate::text::clip(&args.join(" "), 200)
}
