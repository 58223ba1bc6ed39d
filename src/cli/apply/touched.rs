//! What a patch touches, read from its own headers.
//!
//! In: the bytes of a git patch with full object ids. Out: each file with its names and the id of
//! what it was taken on. Pure.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::transcript::event::FileChange;

/// One file of a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Touched {
    /// Name before; `None`: the file is new.
    pub(super) old: Option<PathBuf>,
    /// Name after; `None`: the file goes.
    pub(super) new: Option<PathBuf>,
    /// Object id before; `None` for a new file and for a change of name or mode alone.
    pub(super) id: Option<String>,
    /// Whether the old name stays, as in a copy.
    is_copy: bool,
    added: u64,
    removed: u64,
}

impl Touched {
    /// The file that must be there before.
    pub(super) fn before(&self) -> Option<&Path> {
        self.old.as_deref()
    }

    /// The name that must be free before.
    pub(super) fn added(&self) -> Option<&Path> {
        self.new.as_deref().filter(|new| self.old.as_deref() != Some(*new))
    }

    /// The change for reports.
    pub(super) fn change(&self) -> FileChange {
        let name = |path: &PathBuf| path.display().to_string();
        let (kind, path, to) = match (&self.old, &self.new) {
            (Some(old), Some(new)) if old != new && !self.is_copy => {
                ("move", name(old), Some(name(new)))
            }
            (Some(old), Some(new)) if old == new => ("update", name(old), None),
            (Some(old), None) => ("delete", name(old), None),
            (_, Some(new)) => ("add", name(new), None),
            (None, None) => ("update", String::new(), None),
        };
        let (added, removed) = (self.added, self.removed);
        FileChange { path, kind: kind.to_owned(), to, added, removed, hunks: Vec::new() }
    }
}

/// Reads the files of `patch`.
///
/// # Errors
///
/// What is wrong, with its line.
pub(super) fn read(patch: &[u8]) -> Result<Vec<Touched>, String> {
    let mut files: Vec<Touched> = Vec::new();
    let mut hunk = (0_u64, 0_u64);
    for (number, line) in patch.split(|&byte| byte == b'\n').enumerate() {
        let at = |what: &str| format!("line {}: {what}", number + 1);
        if hunk != (0, 0) {
            let Some(file) = files.last_mut() else { return Err(at("a hunk without a file")) };
            match line.first() {
                Some(b'+') => (file.added, hunk.1) = (file.added + 1, hunk.1.saturating_sub(1)),
                Some(b'-') => (file.removed, hunk.0) = (file.removed + 1, hunk.0.saturating_sub(1)),
                Some(b'\\') => {}
                Some(b' ') => {
                    hunk = (hunk.0.saturating_sub(1), hunk.1.saturating_sub(1));
                }
                Some(_) | None => {
                    return Err(at("a line of a hunk must start with ` `, `+`, `-` or `\\`"));
                }
            }
        } else if let Some(names) = line.strip_prefix(b"diff --git ") {
            let (old, new) = pair(names).ok_or_else(|| at("two names expected"))?;
            files.push(Touched { old: Some(old), new: Some(new), ..Touched::default() });
        } else if let Some(file) = files.last_mut() {
            if line.starts_with(b"@@ ") {
                hunk = lengths(line).ok_or_else(|| at("a hunk header expected"))?;
            } else {
                header(file, line).ok_or_else(|| at("a name can't be read"))?;
            }
        } else if !line.is_empty() {
            return Err(at("`diff --git` expected"));
        }
    }
    if hunk == (0, 0) { Ok(files) } else { Err("it ends inside a hunk".to_owned()) }
}

/// Reads one line of `git ls-files -s -z`: path and object id.
pub(super) fn index_entry(field: &[u8]) -> Option<(PathBuf, String)> {
    let tab = field.iter().position(|&byte| byte == b'\t')?;
    let id = std::str::from_utf8(&field[..tab]).ok()?.split(' ').nth(1)?;
    Some((path(&field[tab + 1..]), id.to_owned()))
}

fn header(file: &mut Touched, line: &[u8]) -> Option<()> {
    if line.starts_with(b"new file mode ") {
        file.old = None;
    } else if line.starts_with(b"deleted file mode ") {
        file.new = None;
    } else if let Some(name) = line.strip_prefix(b"rename from ") {
        file.old = Some(path(&name_of(name)?.0));
    } else if let Some(name) = line.strip_prefix(b"rename to ") {
        file.new = Some(path(&name_of(name)?.0));
    } else if let Some(name) = line.strip_prefix(b"copy from ") {
        file.old = Some(path(&name_of(name)?.0));
        file.is_copy = true;
    } else if let Some(name) = line.strip_prefix(b"copy to ") {
        file.new = Some(path(&name_of(name)?.0));
    } else if let Some(ids) = line.strip_prefix(b"index ") {
        let id = std::str::from_utf8(ids).ok()?.split("..").next()?;
        file.id = id.chars().any(|c| c != '0').then(|| id.to_owned());
    }
    Some(())
}

/// The names of a `diff --git` line. Unquoted ones can hold blanks; then both are the same but for
/// their first letter, or a `rename` line says them again.
fn pair(names: &[u8]) -> Option<(PathBuf, PathBuf)> {
    if names.starts_with(b"\"") || names.ends_with(b"\"") {
        let (old, rest) = name_of(names)?;
        let (new, _) = name_of(rest.strip_prefix(b" ")?)?;
        return Some((path(old.get(2..)?), path(new.get(2..)?)));
    }
    let middle = names.len() / 2;
    if names.get(middle) == Some(&b' ') && names.get(2..middle)? == names.get(middle + 3..)? {
        let name = path(&names[2..middle]);
        return Some((name.clone(), name));
    }
    let blank = names.windows(3).position(|window| window == b" b/")?;
    Some((path(names.get(2..blank)?), path(&names[blank + 3..])))
}

/// A name and what follows it: quoted as C does, or up to the end (up to ` b/` in a pair).
fn name_of(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.windows(2).position(|window| window == b" \"").unwrap_or(text.len());
        return Some((text[..end].to_vec(), &text[end..]));
    };
    let mut name = Vec::new();
    let mut bytes = quoted.iter().enumerate();
    while let Some((at, &byte)) = bytes.next() {
        match byte {
            b'"' => return Some((name, &quoted[at + 1..])),
            b'\\' => name.push(match bytes.next()?.1 {
                b'a' => 7,
                b'b' => 8,
                b't' => b'\t',
                b'n' => b'\n',
                b'v' => 11,
                b'f' => 12,
                b'r' => b'\r',
                digit @ b'0'..=b'3' => {
                    let (two, three) = (bytes.next()?.1, bytes.next()?.1);
                    let digits = [*digit, *two, *three].map(|digit| digit.wrapping_sub(b'0') & 7);
                    digits[0] << 6 | digits[1] << 3 | digits[2]
                }
                other => *other,
            }),
            other => name.push(other),
        }
    }
    None
}

/// Lines before and after of `@@ -1,2 +3,4 @@`.
fn lengths(line: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(line.get(..line.len().min(100))?)
        .or_else(|error| std::str::from_utf8(&line[..error.valid_up_to()]))
        .ok()?;
    let mut words = text.split(' ').skip(1);
    let mut length = |sign: char| {
        let range = words.next()?.strip_prefix(sign)?;
        range.split_once(',').map_or(Some(1), |(_, length)| length.parse().ok())
    };
    Some((length('-')?, length('+')?))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(OsStr::from_bytes(bytes).as_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn headers_give_names_ids_and_counts() {
        let patch = b"diff --git a/x y.txt b/x y.txt\nindex 1a..2b 100644\n--- a/x y.txt\t\n\
            +++ b/x y.txt\t\n@@ -1,2 +1,3 @@ diff --git a/fake b/fake\n one\n--- not a header\n\
            +two\n++++ b/x\n\\ No newline at end of file\ndiff --git a/old b/new name\n\
            similarity index 100%\nrename from old\nrename to new name\n\
            diff --git \"a/q\\n\\303\\244\" \"b/q\\n\\303\\244\"\nnew file mode 100644\n\
            index 0000000..3c\nGIT binary patch\nliteral 3\nKcmZ\n\nliteral 0\nHcmV\n\n\
            diff --git a/gone b/gone\ndeleted file mode 100644\nindex 4d..0000000\n";
        let files = read(patch).unwrap();
        let seen: Vec<_> = files
            .iter()
            .map(|file| {
                let change = file.change();
                (change.kind, change.path, change.to, file.id.clone(), change.added, change.removed)
            })
            .collect();
        let text = str::to_owned;
        let id = |id: &str| Some(id.to_owned());
        assert_eq!(
            seen,
            [
                (text("update"), text("x y.txt"), None, id("1a"), 2, 1),
                (text("move"), text("old"), id("new name"), None, 0, 0),
                (text("add"), text("q\nä"), None, None, 0, 0),
                (text("delete"), text("gone"), None, id("4d"), 0, 0),
            ]
        );
        assert!(read(b"diff --git a/x b/x\n@@ -1,2 +1 @@\n one\n").is_err());
        assert!(read(b"hello\n").is_err());
        assert!(read(b"").unwrap().is_empty());
    }
}
