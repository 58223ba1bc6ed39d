//! Host facts: the only reader of environment, working folder and terminal.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use crate::sandbox::Host;

/// What the command was called with, beside its arguments.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// Facts that the sandbox needs.
    pub(super) host: Host,
    /// Working folder.
    pub(super) cwd: PathBuf,
    /// Folder for temporary files.
    pub(super) tmp: Option<PathBuf>,
}

impl Surroundings {
    /// Reads them.
    ///
    /// # Errors
    ///
    /// A sentence when there is no working folder or no path to our own binary.
    #[expect(clippy::disallowed_methods, reason = "this is where they are read")]
    pub(super) fn read() -> Result<Self, String> {
        let env: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let cwd = std::env::current_dir()
            .map_err(|error| format!("the working folder can't be read: {error}"))?;
        let binary = std::env::current_exe()
            .map_err(|error| format!("the path of this program can't be read: {error}"))?;
        let home = env.get("HOME").filter(|home| home.starts_with('/')).map(PathBuf::from);
        let tmp = env.get("TMPDIR").filter(|tmp| tmp.starts_with('/')).map(PathBuf::from);
        let uid = nix::unistd::Uid::effective().as_raw();
        Ok(Self { host: Host { binary, home, env, uid }, cwd, tmp })
    }

    /// Value of an environment variable that isn't empty.
    pub(super) fn env(&self, name: &str) -> Option<&str> {
        self.host.env.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether this is a CI job.
    pub(super) fn is_ci(&self) -> bool {
        self.env("CI").is_some_and(|value| value != "false" && value != "0")
            || self.env("GITHUB_ACTIONS").is_some()
    }

    /// Whether stderr is a terminal.
    pub(super) fn is_terminal() -> bool {
        std::io::stderr().is_terminal()
    }

    /// The variable that shows a CI pull-request event, with the base branch where the CI names
    /// it. Variables as the engines document them.
    pub(super) fn pull_request(&self) -> Option<PullRequest> {
        let by = |variable: &'static str, base: Option<&str>| {
            Some(PullRequest { variable, base: base.map(str::to_owned) })
        };
        if self.env("GITHUB_EVENT_NAME").is_some_and(|event| event.starts_with("pull_request")) {
            return by("GITHUB_EVENT_NAME", self.env("GITHUB_BASE_REF"));
        }
        if self.env("CI_MERGE_REQUEST_IID").is_some() {
            return by("CI_MERGE_REQUEST_IID", self.env("CI_MERGE_REQUEST_TARGET_BRANCH_NAME"));
        }
        if self.env("BUILDKITE_PULL_REQUEST").is_some_and(|value| value != "false") {
            let base = self.env("BUILDKITE_PULL_REQUEST_BASE_BRANCH");
            return by("BUILDKITE_PULL_REQUEST", base);
        }
        if self.env("SYSTEM_PULLREQUEST_PULLREQUESTID").is_some() {
            let base = self.env("SYSTEM_PULLREQUEST_TARGETBRANCHNAME");
            return by("SYSTEM_PULLREQUEST_PULLREQUESTID", base);
        }
        if self.env("TRAVIS_PULL_REQUEST").is_some_and(|value| value != "false") {
            return by("TRAVIS_PULL_REQUEST", self.env("TRAVIS_BRANCH"));
        }
        if self.env("BITBUCKET_PR_ID").is_some() {
            let base = self.env("BITBUCKET_PR_DESTINATION_BRANCH");
            return by("BITBUCKET_PR_ID", base);
        }
        if self.env("CHANGE_ID").is_some() && self.env("CHANGE_TARGET").is_some() {
            return by("CHANGE_ID", self.env("CHANGE_TARGET"));
        }
        if self.env("CIRCLE_PULL_REQUEST").is_some() {
            return by("CIRCLE_PULL_REQUEST", None);
        }
        None
    }
}

/// A CI pull-request event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PullRequest {
    /// Variable that shows it.
    pub(super) variable: &'static str,
    /// Base branch, where the CI names it.
    pub(super) base: Option<String>,
}
