//! Loading: from a task file's path and flags to the plan, with git behind it.
//!
//! In: what was typed, and the surroundings. Out: a [`Loaded`] plan. Decides which commit is
//! trusted (P8).

use std::path::{Path, PathBuf};
use std::rc::Rc;

use tokio::runtime::Runtime;

use super::args::PlanArgs;
use super::host::Surroundings;
use crate::plan::{Files, Plan, PlanRequest, ProjectDoc, ProjectDocs};
use crate::run::record::chain;
use crate::task::Complaints;
use crate::transcript::event::InputFile;
use crate::workspace::{Git, RunState, Source, WorkspaceError};

/// Bytes of all project docs together; the number that models of this field are used to.
const DOCS_BYTES: usize = 32 << 10;
/// What helps in a pull-request event.
const HINT: &str = "pass `--trust-ref` with a commit of the base branch";
/// Largest file that is read from a commit or the checkout, in bytes; our choice.
const FILE_BYTES: u64 = 16 << 20;

/// A plan with what it was made from.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The plan.
    pub(super) plan: Plan,
    /// Our git.
    pub(super) git: Rc<Git>,
    /// The checkout, if it is one.
    pub(super) source: Option<Rc<Source>>,
}

/// Why there is no plan.
#[derive(Debug)]
pub(super) enum LoadError {
    /// The task file or what it names is wrong.
    Complaints(Complaints),
    /// One sentence, and the one remedy.
    Usage(String, Option<&'static str>),
    /// Git can't be confined here.
    Sandbox(String),
}

impl From<WorkspaceError> for LoadError {
    fn from(error: WorkspaceError) -> Self {
        if error.is_confinement() {
            Self::Sandbox(chain(&error))
        } else {
            Self::Usage(chain(&error), None)
        }
    }
}

/// The repository as files of a commit and of the checkout.
struct Checkout<'a> {
    runtime: &'a Runtime,
    root: &'a Path,
    source: Option<&'a Source>,
    trusted: Option<&'a str>,
}

impl Files for Checkout<'_> {
    fn trusted(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        match (self.source, self.trusted) {
            (Some(source), Some(commit)) => self
                .runtime
                .block_on(source.read_blob(commit, Path::new(path)))
                .map_err(|e| chain(&e)),
            _ => self.checkout(path),
        }
    }

    fn checkout(&self, path: &str) -> Result<Option<Vec<u8>>, String> {
        let file = self.root.join(path);
        let real = match file.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        if !real.starts_with(self.root) {
            return Err("it is a symlink out of the repository".to_owned());
        }
        let size = real.metadata().map_err(|error| error.to_string())?;
        if !size.is_file() {
            return Err("it is not a regular file".to_owned());
        }
        if size.len() > FILE_BYTES {
            return Err(format!("it has {} bytes, the limit is {FILE_BYTES}", size.len()));
        }
        std::fs::read(&real).map(Some).map_err(|error| error.to_string())
    }

    fn resolve(&self, revision: &str) -> Result<String, String> {
        let source = self.source.ok_or("there is no git checkout here")?;
        if let ("HEAD", Some(head)) = (revision, source.head()) {
            return Ok(head.to_owned());
        }
        self.runtime.block_on(source.resolve(revision)).map_err(|error| chain(&error))
    }
}

/// Makes the plan that `args` ask for.
pub(super) fn load(
    args: &PlanArgs,
    surroundings: &Surroundings,
    (runtime, state, is_check): (&Runtime, &RunState, bool),
) -> Result<Loaded, LoadError> {
    let named = args.task_file.display().to_string();
    let file = surroundings.cwd.join(&args.task_file);
    let file = file.canonicalize().map_err(|error| {
        LoadError::Usage(format!("failed to read task file `{named}`: {error}"), None)
    })?;
    let folder = file.parent().unwrap_or(Path::new("/")).to_path_buf();
    let scratch = state.folder().join("plan-git");
    std::fs::create_dir_all(&scratch)
        .map_err(|error| LoadError::Usage(format!("{}: {error}", scratch.display()), None))?;
    let git = Git::new(&surroundings.host, &scratch, &state.folder().to_string_lossy())
        .map(Rc::new)
        .map_err(WorkspaceError::from)?;
    let source = runtime.block_on(Source::open(&git, &folder))?.map(Rc::new);
    let root = source.as_ref().map_or(folder.clone(), |source| source.root().to_path_buf());
    let root = root.canonicalize().unwrap_or(root);
    let path = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().into_owned();

    let mut checkout = Checkout { runtime, root: &root, source: source.as_deref(), trusted: None };
    let own = read_text(checkout.checkout(&path), &named)?;
    let trust = trusted_commit(args, surroundings, &checkout, (&named, &own))?;
    if trust.is_some() {
        reached_directly(&surroundings.cwd.join(&args.task_file), &named)?;
    }
    checkout.trusted = trust.as_deref();
    let (text, task_file_commit) = match checkout.trusted(&path) {
        Ok(Some(bytes)) => (read_text(Ok(Some(bytes)), &named)?, trust.clone()),
        Ok(None) if surroundings.pull_request().is_some() && is_of_head(&checkout, &path)? => {
            return Err(LoadError::Usage(
                format!(
                    "this is a pull-request event, and the trusted commit has no `{path}`: the \
                     pull request brought the task file that would judge it"
                ),
                Some("merge the task file first, then run it"),
            ));
        }
        Ok(None) => (own, None),
        Err(error) => {
            return Err(LoadError::Usage(format!("failed to read `{named}`: {error}"), None));
        }
    };
    let request = PlanRequest {
        task_file: args.task_file.clone(),
        text,
        task_file_commit,
        root: root.clone(),
        task_dir: Path::new(&path).parent().unwrap_or(Path::new("")).to_string_lossy().into_owned(),
        is_git: source.is_some(),
        is_check,
        trust_commit: trust.clone(),
        inputs: inputs(&args.inputs)?,
        select: args.select.clone(),
        model: args.model.clone(),
        provider: args.provider.clone(),
        concurrency: args.concurrency.map(|number| number as usize),
        env: surroundings.host.env.clone(),
    };
    let mut plan = crate::plan::make(&request, &checkout).map_err(LoadError::Complaints)?;
    read_docs(&mut plan, &checkout)?;
    Ok(Loaded { plan, git, source })
}

/// Refuses a task file whose path leads, inside a repository, through a symlink or into another
/// repository: whoever may change the tree chooses then which file it is and which history is asked
/// for the trusted one (P8).
fn reached_directly(file: &Path, named: &str) -> Result<(), LoadError> {
    let mut folder = PathBuf::new();
    let mut repository: Option<PathBuf> = None;
    for part in file.components() {
        folder.push(part);
        let Some(root) = &repository else {
            if folder.join(".git").symlink_metadata().is_ok() {
                repository = Some(folder.clone());
            }
            continue;
        };
        let refuse = |what: &str| {
            let (root, place) = (root.display(), folder.display());
            Err(LoadError::Usage(
                format!(
                    "task file `{named}` is to come from a trusted commit, and `{place}` in the \
                     repository `{root}` is {what}"
                ),
                Some("name the task file by its own path, from its own repository"),
            ))
        };
        if folder.is_symlink() {
            return refuse("a symlink");
        }
        if is_named_by_gitlink(&folder) {
            return refuse("another repository");
        }
    }
    Ok(())
}

/// Whether `folder` is the work tree of a submodule: its `.git` is a file.
fn is_named_by_gitlink(folder: &Path) -> bool {
    folder.join(".git").symlink_metadata().is_ok_and(|facts| facts.is_file())
}

/// Whether the checked-out commit has the file `path`.
fn is_of_head(checkout: &Checkout<'_>, path: &str) -> Result<bool, LoadError> {
    let Some(source) = checkout.source else { return Ok(false) };
    let Some(head) = source.head() else { return Ok(false) };
    Ok(checkout.runtime.block_on(source.read_blob(head, Path::new(path)))?.is_some())
}

/// The `--input K=V` flags.
fn inputs(flags: &[String]) -> Result<Vec<(String, String)>, LoadError> {
    flags
        .iter()
        .map(|flag| {
            flag.split_once('=')
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .ok_or_else(|| LoadError::Usage(format!("`--input` takes K=V, got `{flag}`"), None))
        })
        .collect()
}

fn read_text(read: Result<Option<Vec<u8>>, String>, named: &str) -> Result<String, LoadError> {
    let wrong =
        |why: String| LoadError::Usage(format!("failed to read task file `{named}`: {why}"), None);
    let bytes = read.map_err(wrong)?.ok_or_else(|| wrong("it is not there".to_owned()))?;
    String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".to_owned()))
}

/// Decides which commit is trusted. In a pull-request event only a commit that the pull request
/// can't choose counts: the flag, or `trust.ref` of the file when it names a commit of the base
/// branch.
fn trusted_commit(
    args: &PlanArgs,
    surroundings: &Surroundings,
    checkout: &Checkout<'_>,
    (named, own): (&str, &str),
) -> Result<Option<String>, LoadError> {
    let resolve = |revision: &str, what: &str| {
        checkout
            .resolve(revision)
            .map_err(|error| LoadError::Usage(format!("{what}: {error}"), None))
    };
    if let Some(revision) = &args.trust_ref {
        return resolve(revision, "`--trust-ref`").map(Some);
    }
    let file = crate::task::read(named, own).map_err(LoadError::Complaints)?;
    let of_file = crate::plan::trust_ref(&file).map(|revision| revision.value.0.clone());
    let Some(event) = surroundings.pull_request() else {
        return of_file.map(|revision| resolve(&revision, "`trust.ref`")).transpose();
    };
    let variable = event.variable;
    let Some(revision) = of_file else {
        return Err(LoadError::Usage(
            format!(
                "this is a pull-request event (`{variable}` is set) and no trusted commit is named; \
                 the pull request could rewrite the rules that judge it"
            ),
            Some(HINT),
        ));
    };
    let commit = resolve(&revision, "`trust.ref`")?;
    // The branch that is checked out may be the pull request's own, whatever its name.
    let own = checkout.source.and_then(Source::branch);
    let bases: Vec<String> = event
        .base
        .iter()
        .filter(|base| own != Some(base.as_str()))
        .flat_map(|base| [format!("refs/remotes/origin/{base}"), format!("refs/heads/{base}")])
        .collect();
    let is_of_base = checkout.source.is_some_and(|source| {
        bases.iter().any(|base| {
            checkout.runtime.block_on(source.is_ancestor(&commit, base)).unwrap_or(false)
        })
    });
    if is_of_base {
        return Ok(Some(commit));
    }
    Err(LoadError::Usage(
        format!(
            "this is a pull-request event (`{variable}` is set), and `trust.ref: {revision}` stands \
             in a file that the pull request can change and names no commit of the base branch"
        ),
        Some(HINT),
    ))
}

/// Reads `AGENTS.md` from the repository root down to each working folder.
fn read_docs(plan: &mut Plan, checkout: &Checkout<'_>) -> Result<(), LoadError> {
    let Plan { instances, inputs, notices, .. } = plan;
    for instance in instances {
        let commit = match instance.project_docs {
            ProjectDocs::None => continue,
            ProjectDocs::Base => checkout.trusted.map(str::to_owned),
            ProjectDocs::Head => instance.workspace.commit.clone(),
        };
        let files = Checkout { trusted: commit.as_deref(), ..*checkout };
        let below = instance.workspace.path.strip_prefix(checkout.root);
        let folder = match below {
            Ok(below) => below.to_path_buf(),
            Err(_) if instance.workspace.path.is_absolute() => PathBuf::new(),
            Err(_) => instance.workspace.path.clone(),
        };
        let mut folders: Vec<PathBuf> = folder.ancestors().map(Path::to_path_buf).collect();
        folders.reverse();
        let mut left = DOCS_BYTES;
        for folder in folders {
            let path = folder.join("AGENTS.md").to_string_lossy().into_owned();
            let read = files.trusted(&path);
            let read = read.map_err(|why| LoadError::Usage(format!("`{path}`: {why}"), None))?;
            let Some(bytes) = read else { continue };
            let input = InputFile {
                path: path.clone(),
                role: "project-doc".to_owned(),
                commit: commit.clone(),
                sha256: crate::text::sha256(&bytes),
                bytes: bytes.len() as u64,
            };
            if !inputs.contains(&input) {
                inputs.push(input);
            }
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let kept = crate::text::floor_char_boundary(&text, left.min(text.len()));
            if kept < text.len() {
                notices.push(format!("only {kept} of {} bytes of `{path}` are used", text.len()));
            }
            left -= kept;
            instance.docs.push(ProjectDoc { path, text: text[..kept].to_owned() });
        }
        instance.digest = crate::plan::json::digest(instance, checkout.root);
    }
    Ok(())
}
