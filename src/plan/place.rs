//! Where the work of a task happens.
//!
//! In: the task's `workspace`. Out: a [`WorkspacePlan`]; which commit, which folder, what is put in.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::build::Maker;
use super::parts::{Texts, within};
use super::sources::{Complained, Sources};
use super::template::Place;
use super::{
    CachePlan, Keep, KeySource, SecretPlan, SetupPlan, WorkspaceKind, WorkspacePlan, profile, span,
};
use crate::task::union::Setup;
use crate::task::work::{Cache, CacheMode, Dirty, KeepWhen, Kinds, SetupFields, Workspace};
use crate::task::{At, Spanned};

/// Deadline of a setup command.
const SETUP_TIMEOUT: Duration = Duration::from_mins(30);

impl Maker<'_> {
    /// Decides where the work happens.
    pub(super) fn workspace(
        &self,
        spec: Option<&Workspace>,
        (task, texts): (&At, &Texts<'_>),
        sources: &mut Sources<'_>,
    ) -> Option<WorkspacePlan> {
        let blank = Workspace::default();
        let spec = spec.unwrap_or(&blank);
        let kind = self.kind(spec, sources);
        let path = self.working_folder(spec, kind, sources);
        let commit = self.commit(spec, (task, texts), sources);
        let setup_network = spec.setup_network.clone().unwrap_or_default();
        let setup = spec.setup.iter().flatten().map(|setup| {
            let Setup(fields) = &setup.value;
            let access = fields.network.as_ref().unwrap_or(&setup_network);
            let (network, hosts) = profile::network(access.clone());
            SetupPlan {
                run: texts.command(&fields.run, sources),
                network,
                hosts,
                timeout: fields.timeout.map_or(SETUP_TIMEOUT, |it| it.0),
                secrets: self.secrets(fields, sources),
                span: span(&setup.at),
            }
        });
        let setup = setup.collect();
        let caches = spec.caches.iter().flatten();
        let caches = caches.filter_map(|cache| cache_plan(cache, sources)).collect();
        let sparse = spec.sparse.iter().flatten();
        let sparse = sparse.filter_map(|path| within(path, "the repository", sources)).collect();
        Some(WorkspacePlan {
            kind,
            commit: commit.ok()?,
            path: path?,
            sparse,
            setup,
            caches,
            keep: match spec.keep.unwrap_or_default() {
                KeepWhen::OnFailure => Keep::OnFailure,
                KeepWhen::Never => Keep::Never,
                KeepWhen::Always => Keep::Always,
            },
            carry_dirty: spec.dirty.as_ref().is_some_and(|dirty| dirty.value == Dirty::Carry),
        })
    }

    fn kind(&self, spec: &Workspace, sources: &mut Sources<'_>) -> WorkspaceKind {
        let Some(kind) = &spec.kind else {
            if self.request.is_git {
                return WorkspaceKind::Clone;
            }
            sources.note("there is no git repository here: the workspace is a copy".to_owned());
            return WorkspaceKind::Copy;
        };
        match kind.value {
            Kinds::Clone if !self.request.is_git => {
                let text = format!("`{}: clone` needs a git repository", kind.at.key);
                let hint = "`copy`, `overlay` and `in-place` work without one";
                sources.complaints.push(kind.at.complain(text).with_hint(hint));
                WorkspaceKind::Clone
            }
            Kinds::Clone => WorkspaceKind::Clone,
            Kinds::Copy => WorkspaceKind::Copy,
            Kinds::InPlace => WorkspaceKind::InPlace,
            Kinds::Overlay => WorkspaceKind::Overlay,
        }
    }

    /// The secrets of a setup command. A provider's key is none: no command gets it (P6).
    fn secrets(&self, fields: &SetupFields, sources: &mut Sources<'_>) -> Vec<SecretPlan> {
        let mut secrets = Vec::new();
        for secret in fields.secrets.iter().flatten() {
            let Some(from) = super::wire::key(&secret.value.from, sources) else { continue };
            let keys = self.base.providers.0.iter().filter_map(|(id, provider)| {
                Some((id, provider.value.api_key.as_ref()?.value.env.as_ref()?))
            });
            let mut named = keys.filter(|(_, name)| from == KeySource::Env(name.value.0.clone()));
            if let (Some((id, name)), at) = (named.next(), &secret.value.from.at) {
                let text = format!(
                    "`{}` is the key of provider `{}`: no command gets it",
                    name.value.0, id.0
                );
                sources.complaints.push(at.complain(text));
            }
            secrets.push(SecretPlan { env: secret.value.env.value.0.clone(), from });
        }
        secrets
    }

    /// The folder to use, or inside a clone the working folder.
    fn working_folder(
        &self,
        spec: &Workspace,
        kind: WorkspaceKind,
        sources: &mut Sources<'_>,
    ) -> Option<PathBuf> {
        if kind != WorkspaceKind::Clone {
            let misplaced = [
                spec.r#ref.as_ref().map(|it| &it.at),
                spec.dirty.as_ref().map(|it| &it.at),
                spec.sparse.iter().flatten().next().map(|it| &it.at),
            ];
            for at in misplaced.into_iter().flatten() {
                let text =
                    format!("`{}` goes with `kind: clone`, got `kind: {}`", at.key, kind.name());
                sources.complaints.push(at.complain(text));
            }
        }
        match (&spec.path, kind) {
            (None, WorkspaceKind::Clone) => Some(PathBuf::new()),
            (Some(path), WorkspaceKind::Clone) => {
                within(path, "the repository", sources).map(PathBuf::from)
            }
            (None, WorkspaceKind::Copy | WorkspaceKind::InPlace | WorkspaceKind::Overlay) => {
                Some(self.request.root.clone())
            }
            (Some(path), WorkspaceKind::Copy | WorkspaceKind::InPlace | WorkspaceKind::Overlay) => {
                let inside = sources.locate(&path.at, &path.value.0)?;
                Some(join(&self.request.root, &inside))
            }
        }
    }

    /// The commit to work on; none without git.
    fn commit(
        &self,
        spec: &Workspace,
        (task, texts): (&At, &Texts<'_>),
        sources: &mut Sources<'_>,
    ) -> Result<Option<String>, Complained> {
        if !self.request.is_git {
            return Ok(None);
        }
        let Some(revision) = &spec.r#ref else {
            let at = task.below("workspace.ref");
            return sources.resolve(&at, "HEAD").map(Some).ok_or(Complained);
        };
        let before = sources.complaints.list.len();
        let text = texts.render(&revision.value.0, &revision.at, Place::Plain, sources);
        if sources.complaints.list.len() > before {
            return Err(Complained);
        }
        sources.resolve(&revision.at, text.trim()).map(Some).ok_or(Complained)
    }
}

fn cache_plan(cache: &Spanned<Cache>, sources: &mut Sources<'_>) -> Option<CachePlan> {
    let Cache { path, from, mode } = &cache.value;
    let (prefix, rest) = match path.value.0.strip_prefix("~/") {
        Some(rest) => ("~/", rest),
        None => ("", path.value.0.as_str()),
    };
    let inside = super::sources::inside("", rest).filter(|inside| !inside.is_empty());
    if inside.is_none() {
        let text = format!(
            "`{}` must be inside the workspace or `~/`, got `{}`",
            path.at.key, path.value.0
        );
        sources.complaints.push(path.at.complain(text));
    }
    let from = sources.host_path(&from.at, &from.value.0);
    Some(CachePlan {
        path: format!("{prefix}{}", inside?),
        from: from?,
        is_private_copy: mode.unwrap_or_default() == CacheMode::RwPrivate,
    })
}

fn join(root: &Path, inside: &str) -> PathBuf {
    if inside.is_empty() { root.to_owned() } else { root.join(inside) }
}
