//! Sources: every file that decides what a run does, read from where it must be read.
//!
//! In: paths as files of the task name them. Out: their text, with digest and commit noted (P8).
//! Knows nothing of git: that is behind [`Files`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::PlanRequest;
use crate::task::entries::Entries;
use crate::task::file::Include;
use crate::task::model::Provider;
use crate::task::read::Merge as _;
use crate::task::value::Id;
use crate::task::work::Defaults;
use crate::task::{At, Complaints, IncludedFile, Permissions, Spanned, TaskFile};
use crate::text::sha256;
use crate::transcript::event::InputFile;

/// Most included files, those included again counted again. Our choice.
const MAX_INCLUDES: usize = 100;

/// Largest file that a task names, in bytes. Our choice.
pub const MAX_FILE: usize = 4 << 20;

/// Reads files of the repository. Paths are relative to its root, `/` between parts, without `..`;
/// that no symbolic link leads out of the root is the implementor's duty.
pub trait Files {
    /// The file as the trusted commit has it; `None` if it has none. Without git, as the checkout
    /// has it.
    ///
    /// # Errors
    ///
    /// A lower-case fragment that says why it can't be read.
    fn trusted(&self, path: &str) -> Result<Option<Vec<u8>>, String>;

    /// The file as the checkout has it; `None` if it has none.
    ///
    /// # Errors
    ///
    /// A lower-case fragment that says why it can't be read.
    fn checkout(&self, path: &str) -> Result<Option<Vec<u8>>, String>;

    /// The full id of the commit that `revision` names.
    ///
    /// # Errors
    ///
    /// A lower-case fragment that says why there is none.
    fn resolve(&self, revision: &str) -> Result<String, String>;
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Source {
    /// Path relative to the repository root.
    pub path: String,
    /// Path as the user would write it.
    pub name: String,
    /// Text.
    pub text: String,
}

/// What includes add up to.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// Providers.
    pub providers: Entries<Id, Provider>,
    /// Profiles.
    pub profiles: Entries<Id, Permissions>,
    /// Defaults.
    pub defaults: Defaults,
    /// Included files, relative to the root.
    pub files: Vec<String>,
}

/// What was wanted can't be had, and a complaint says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complained;

/// Reads sources and notes what was read.
pub struct Sources<'a> {
    request: &'a PlanRequest,
    files: &'a dyn Files,
    /// Folder of each file, by the name that its places carry; relative to the root.
    folders: BTreeMap<String, String>,
    /// Every input with its digest, in order of reading.
    pub inputs: Vec<InputFile>,
    /// Things a person should know.
    pub notices: Vec<String>,
    /// What is wrong so far.
    pub complaints: Complaints,
    includes: usize,
}

/// Joins `path` to `folder` and resolves `.` and `..`; `None` if that leaves the root or is
/// absolute.
pub fn inside(folder: &str, path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains('\0') {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The folder of a path with `/` between its parts; empty for none.
fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The name of a file that `from` names as `path`, as the user would write it.
fn named(from: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let is_absolute = from.starts_with('/');
    for part in folder(from).split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("{}{}", if is_absolute { "/" } else { "" }, parts.join("/"))
}

impl<'a> Sources<'a> {
    /// Starts with the task file itself.
    pub fn new(request: &'a PlanRequest, files: &'a dyn Files) -> Self {
        let name = request.task_file.display().to_string();
        let file = request.task_file.file_name().map(|it| it.to_string_lossy().into_owned());
        let path = inside(&request.task_dir, &file.unwrap_or_default()).unwrap_or_default();
        let task_file = InputFile {
            path,
            role: "task-file".to_owned(),
            commit: request.task_file_commit.clone(),
            sha256: sha256(request.text.as_bytes()),
            bytes: request.text.len() as u64,
        };
        Self {
            request,
            files,
            folders: BTreeMap::from([(name, request.task_dir.clone())]),
            inputs: vec![task_file],
            notices: Vec::new(),
            complaints: Complaints::default(),
            includes: 0,
        }
    }

    /// The task file's path, relative to the root.
    pub fn task_path(&self) -> &str {
        self.inputs.first().map_or("", |input| &input.path)
    }

    /// The path, relative to the root, of what stands at `at` as `path`. Complains if it leaves
    /// the root.
    pub fn locate(&mut self, at: &At, path: &str) -> Option<String> {
        let base = self.folders.get(at.file.as_ref()).map_or("", String::as_str);
        let found = inside(base, path);
        if found.is_none() {
            let text = format!("`{}` must stay inside the repository, got `{path}`", at.key);
            self.complaints.push(at.complain(text));
        }
        found
    }

    /// The absolute path of a file or folder of the host: absolute, below HOME with `~/`, or
    /// relative to the file that names it.
    pub fn host_path(&mut self, at: &At, path: &str) -> Option<PathBuf> {
        if path.starts_with('/') {
            return Some(PathBuf::from(path));
        }
        if let Some(rest) = path.strip_prefix("~/") {
            let home = self.request.env.get("HOME").filter(|home| home.starts_with('/'));
            if home.is_none() {
                self.complaints.push(at.complain(format!("`{}` needs HOME to be set", at.key)));
            }
            return home.map(|home| PathBuf::from(home).join(rest));
        }
        self.locate(at, path).map(|path| self.request.root.join(path))
    }

    /// Reads a file that decides something: from the trusted commit; what that commit doesn't
    /// have, from the checkout.
    pub fn trusted(&mut self, at: &At, path: &str, role: &str) -> Option<Source> {
        let found = self.locate(at, path)?;
        let trusted = self.bytes(at, self.files.trusted(&found)).ok()?;
        let checkout = if self.request.is_git || trusted.is_none() {
            self.bytes(at, self.files.checkout(&found)).ok()?
        } else {
            None
        };
        let (bytes, is_trusted) = match (trusted, checkout) {
            (Some(bytes), checkout) => {
                if self.request.is_git && checkout.is_some_and(|checkout| checkout != bytes) {
                    self.note(format!(
                        "`{found}` differs in the checkout; it is used as the trusted commit has it"
                    ));
                }
                (bytes, true)
            }
            (None, Some(bytes)) => {
                if self.request.is_git {
                    self.note(format!(
                        "`{found}` is not in the trusted commit; it is used as the checkout has it"
                    ));
                }
                (bytes, false)
            }
            (None, None) => {
                let text = format!("`{}` must be a file that is there, got `{path}`", at.key);
                self.complaints.push(at.complain(text));
                return None;
            }
        };
        let commit = if is_trusted { self.request.trust_commit.clone() } else { None };
        self.noted(at, path, found, (bytes, role, commit))
    }

    /// Reads a file of the checkout, for `from: source`.
    pub fn checkout(&mut self, at: &At, path: &str) -> Option<Source> {
        let found = self.locate(at, path)?;
        let Some(bytes) = self.bytes(at, self.files.checkout(&found)).ok()? else {
            let text = format!("`{}` must be a file that is there, got `{path}`", at.key);
            self.complaints.push(at.complain(text));
            return None;
        };
        // A log may hold any bytes; what isn't UTF-8 in it is replaced.
        let bytes = String::from_utf8_lossy(&bytes).into_owned().into_bytes();
        self.noted(at, path, found, (bytes, "context", None))
    }

    /// Resolves a revision to a commit.
    pub fn resolve(&mut self, at: &At, revision: &str) -> Option<String> {
        if revision.starts_with('-') || revision.chars().any(char::is_control) {
            let text = format!("`{}` must name a commit, got `{revision}`", at.key);
            self.complaints.push(at.complain(text));
            return None;
        }
        match self.files.resolve(revision) {
            Ok(commit) => Some(commit),
            Err(reason) => {
                let text = format!("`{}` must name a commit, got `{revision}`: {reason}", at.key);
                self.complaints.push(at.complain(text));
                None
            }
        }
    }

    /// Adds a notice, each once.
    pub fn note(&mut self, notice: String) {
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }

    fn bytes(
        &mut self,
        at: &At,
        read: Result<Option<Vec<u8>>, String>,
    ) -> Result<Option<Vec<u8>>, Complained> {
        match read {
            Ok(bytes) if bytes.as_ref().is_some_and(|bytes| bytes.len() > MAX_FILE) => {
                let text = format!("`{}` must name a file of at most {MAX_FILE} bytes", at.key);
                self.complaints.push(at.complain(text));
                Err(Complained)
            }
            Ok(bytes) => Ok(bytes),
            Err(reason) => {
                self.complaints.push(at.complain(format!("`{}` can't be read: {reason}", at.key)));
                Err(Complained)
            }
        }
    }

    fn noted(
        &mut self,
        at: &At,
        path: &str,
        found: String,
        (bytes, role, commit): (Vec<u8>, &str, Option<String>),
    ) -> Option<Source> {
        let input = InputFile {
            path: found.clone(),
            role: role.to_owned(),
            commit,
            sha256: sha256(&bytes),
            bytes: bytes.len() as u64,
        };
        if !self.inputs.contains(&input) {
            self.inputs.push(input);
        }
        let Ok(text) = String::from_utf8(bytes) else {
            self.complaints
                .push(at.complain(format!("`{}` must name UTF-8 text, got `{path}`", at.key)));
            return None;
        };
        let name = named(&at.file, path);
        self.folders.insert(name.clone(), folder(&found).to_owned());
        Some(Source { path: found, name, text })
    }

    /// Reads everything that `file` includes and lays `file` over it.
    pub fn base(&mut self, file: &TaskFile) -> Base {
        let mut base = Base::default();
        let mut open = vec![self.task_path().to_owned()];
        self.includes(file.include.as_deref(), &mut open, &mut base);
        base.lay(&Layer {
            providers: file.providers.as_ref(),
            profiles: file.permission_profiles.as_ref(),
            defaults: file.defaults.as_ref(),
        });
        base
    }

    fn includes(
        &mut self,
        includes: Option<&[Spanned<Include>]>,
        open: &mut Vec<String>,
        base: &mut Base,
    ) {
        for include in includes.unwrap_or_default() {
            let at = &include.value.0.file.at;
            self.includes += 1;
            if self.includes > MAX_INCLUDES {
                let text = format!("at most {MAX_INCLUDES} files may be included");
                self.complaints.push(at.complain(text));
                return;
            }
            if let Some((path, file)) = self.included(include, open) {
                open.push(path.clone());
                self.includes(file.include.as_deref(), open, base);
                open.pop();
                base.lay(&Layer {
                    providers: file.providers.as_ref(),
                    profiles: file.permission_profiles.as_ref(),
                    defaults: file.defaults.as_ref(),
                });
                if !base.files.contains(&path) {
                    base.files.push(path);
                }
            }
        }
    }

    fn included(
        &mut self,
        include: &Spanned<Include>,
        open: &[String],
    ) -> Option<(String, IncludedFile)> {
        let fields = &include.value.0;
        let at = &fields.file.at;
        let found = self.locate(at, &fields.file.value.0)?;
        if let Some(start) = open.iter().position(|path| *path == found) {
            let way: Vec<&str> =
                open.iter().skip(start).map(String::as_str).chain([found.as_str()]).collect();
            self.complaints.push(at.complain(format!("include cycle: {}", way.join(" → "))));
            return None;
        }
        let source = self.trusted(at, &fields.file.value.0, "include")?;
        if let Some(pin) = &fields.sha256 {
            let digest = sha256(source.text.as_bytes());
            if pin.0 != digest {
                let text = format!(
                    "`{}` must have the digest `{}`, got `{digest}`",
                    fields.file.value.0, pin.0
                );
                self.complaints.push(at.complain(text));
                return None;
            }
        }
        match crate::task::read_included(&source.name, &source.text) {
            Ok(file) => Some((found, file)),
            Err(complaints) => {
                self.complaints.extend(complaints);
                None
            }
        }
    }
}

impl Base {
    /// Lays the parts of one file over what is there.
    fn lay(&mut self, over: &Layer<'_>) {
        if let Some(providers) = over.providers {
            self.providers = providers.clone().over(std::mem::take(&mut self.providers));
        }
        if let Some(profiles) = over.profiles {
            self.profiles = profiles.clone().over(std::mem::take(&mut self.profiles));
        }
        if let Some(defaults) = over.defaults {
            self.defaults = defaults.clone().over(std::mem::take(&mut self.defaults));
        }
    }
}

/// What one file adds to those that it includes.
struct Layer<'a> {
    providers: Option<&'a Entries<Id, Provider>>,
    profiles: Option<&'a Entries<Id, Permissions>>,
    defaults: Option<&'a Defaults>,
}
