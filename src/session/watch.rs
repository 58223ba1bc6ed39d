//! The watch: protected paths that the confinement can't hold are looked at after each command and
//! put back, and the record says so.
//!
//! In: what the sandbox says must be watched. Out: `protected.restored` in the transcript, and a
//! sentence for the model.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::run::Run;
use crate::transcript::{Event, Scope};
use crate::workspace::Guard;

use super::stage::{Early, Stage};

/// Most paths that are named in one sentence.
const NAMED: usize = 10;

/// What is watched during an instance.
#[derive(Debug)]
pub(super) struct Watch {
    run: Rc<Run>,
    root: PathBuf,
    /// `None`: nothing needs it.
    guard: RefCell<Option<Guard>>,
    lost: RefCell<BTreeSet<String>>,
}

impl Watch {
    /// Begins to watch `paths` of the tree at `root`; contents are kept below `folder`. The run's own
    /// record may lie in a protected folder, and changes.
    pub(super) fn begin(
        run: &Rc<Run>,
        (root, folder): (&Path, &Path),
        paths: &[PathBuf],
    ) -> Result<Self, Early> {
        let runs = root.join(".horseman/runs");
        let own = if run.out.starts_with(&runs) { runs } else { run.out.clone() };
        let guard = match paths {
            [] => None,
            paths => Some(Guard::take(root, &folder.join("guard"), (paths, &[own]))?),
        };
        Ok(Self {
            run: Rc::clone(run),
            root: root.to_path_buf(),
            guard: RefCell::new(guard),
            lost: RefCell::default(),
        })
    }

    /// Whether a watched path was changed.
    pub(super) fn is_touched(&self) -> Result<bool, Early> {
        match &mut *self.guard.borrow_mut() {
            Some(guard) => Ok(!guard.changed()?.is_empty()),
            None => Ok(false),
        }
    }

    /// Puts back what was changed and writes it down; a sentence about it, if anything was. No
    /// process of the attempt may be left.
    pub(super) fn put_back(&self, scope: &Scope) -> Result<Option<String>, Early> {
        let done = match &mut *self.guard.borrow_mut() {
            Some(guard) => guard.put_back()?,
            None => return Ok(None),
        };
        if done.restored.is_empty() && done.lost.is_empty() {
            return Ok(None);
        }
        let names = |paths: &[PathBuf]| -> Vec<String> {
            let name = |path: &PathBuf| path.strip_prefix(&self.root).unwrap_or(path).to_owned();
            paths.iter().map(|path| name(path).to_string_lossy().into_owned()).collect()
        };
        let (restored, lost) = (names(&done.restored), names(&done.lost));
        self.lost.borrow_mut().extend(lost.iter().cloned());
        let said = sentence(&restored, &lost);
        let event = Event::ProtectedRestored { paths: restored, lost };
        self.run.transcript.append(scope, event)?;
        Ok(Some(said))
    }

    /// Paths that were changed for good.
    pub(super) fn lost(&self) -> Vec<String> {
        self.lost.borrow().iter().cloned().collect()
    }
}

impl Stage<'_> {
    /// Looks at the watched paths while no command runs, and puts them back.
    pub(super) fn put_back(&self, scope: &Scope) -> Result<(), Early> {
        if self.watch.is_touched()? {
            self.watch.put_back(scope)?;
        }
        Ok(())
    }
}

fn sentence(restored: &[String], lost: &[String]) -> String {
    let list = |paths: &[String]| {
        let more = if paths.len() > NAMED { ", …" } else { "" };
        let shown: Vec<_> = paths.iter().take(NAMED).map(|path| format!("`{path}`")).collect();
        format!("{}{more}", shown.join(", "))
    };
    let mut said = String::new();
    if !restored.is_empty() {
        said = format!("protected paths were changed and put back: {}", list(restored));
    }
    if !lost.is_empty() {
        let joint = if said.is_empty() { "" } else { "; " };
        said = format!("{said}{joint}protected paths were changed for good: {}", list(lost));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn a_sentence_names_what_was_put_back_and_what_was_not() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            sentence(&names(&[".git/config"]), &names(&["big"])),
            "protected paths were changed and put back: `.git/config`; protected paths were \
             changed for good: `big`"
        );
        assert!(sentence(&names(&["x"; 11]), &[]).ends_with("`x`, …"));
    }
}
