//! What stays on disk when writing fails, and what the command prints.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use nix::errno::Errno;

use super::scenarios::snapshot;
use super::write::Disk;
use super::{PatchOptions, PatchStatus, base64, run, run_on};
use crate::exit::Exit;

const PATCH: &str = "*** Begin Patch
*** Add File: new/folder/n.txt
+n
*** Update File: u.sh
@@
-one
+two
*** Delete File: d.txt
*** Update File: m.txt
*** Move to: moved/m.txt
@@
-one
+two
*** Update File: twin.txt
@@
-one
+two
*** End Patch
";

fn tree(root: &Path) {
    for name in ["u.sh", "d.txt", "m.txt", "twin.txt"] {
        fs::write(root.join(name), "one\n").unwrap();
    }
    fs::set_permissions(root.join("u.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::hard_link(root.join("twin.txt"), root.join("other.txt")).unwrap();
}

fn options(root: &Path) -> PatchOptions {
    PatchOptions { cwd: root.to_owned(), ..PatchOptions::default() }
}

/// P7: whatever step fails, and however, the tree is the old one or the new one.
#[test]
fn p7_a_failure_at_any_step_changes_nothing() {
    for error in [Errno::ENOSPC, Errno::EIO, Errno::EROFS, Errno::EACCES] {
        let mut step = 0;
        loop {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            tree(root);
            let inodes = |name: &str| fs::metadata(root.join(name)).unwrap().ino();
            let inode = inodes("u.sh");
            let before = snapshot(root);
            let disk = Disk::default();
            disk.fails.set(Some((step, error)));
            let outcome = run_on(&options(root), PATCH.as_bytes(), &disk);
            if outcome.exit == Exit::Done {
                assert!(step > 20, "only {step} steps were tried");
                break;
            }
            assert_eq!(snapshot(root), before, "{error} at step {step}: {}", outcome.stderr);
            assert_eq!(inodes("u.sh"), inode, "{error} at step {step}");
            let status = outcome.report.status;
            if error == Errno::EACCES {
                assert_eq!((outcome.exit, status), (Exit::NotDone, PatchStatus::Refused));
            } else {
                assert_eq!((outcome.exit, status), (Exit::Internal, PatchStatus::Fault));
            }
            assert!(outcome.stderr.contains("nothing was changed"), "{}", outcome.stderr);
            step += 1;
        }
    }
}

#[test]
fn p9_a_success_leaves_no_other_names() {
    let folder = tempfile::tempdir().unwrap();
    tree(folder.path());
    assert_eq!(run(&options(folder.path()), PATCH.as_bytes()).exit, Exit::Done);
    let names: Vec<String> = snapshot(folder.path()).into_keys().collect();
    assert_eq!(
        names,
        [
            "moved/",
            "moved/m.txt",
            "new/",
            "new/folder/",
            "new/folder/n.txt",
            "other.txt",
            "twin.txt",
            "u.sh"
        ]
    );
    assert_eq!(fs::read(folder.path().join("other.txt")).unwrap(), b"one\n");
}

#[test]
fn json_is_one_object() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), b"caf\xe9\nx\n").unwrap();
    let options = PatchOptions { json: true, ..options(folder.path()) };
    let text = "*** Begin Patch\n*** Update File: a\n@@\n-x\n+y\n*** End Patch\n";
    let outcome = run(&options, text.as_bytes());
    let value: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(outcome.stderr, "");
    assert_eq!(value["status"], "applied");
    assert_eq!(value["written"], true);
    assert_eq!(
        value["files"],
        serde_json::json!([
            {"path": "a", "kind": "update", "added": 1, "removed": 1, "hunks": ["exact"]}
        ])
    );
    let diff = b"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n caf\xe9\n-x\n+y\n";
    assert_eq!(value["diff_base64"], base64(diff));
    let again = run(&options, text.as_bytes());
    assert_eq!(again.exit, Exit::NotDone);
    assert!(again.stdout.starts_with("{\"status\":\"refused\",\"message\":\"patch refused"));
    let none = run(&options, b"no patch");
    assert_eq!((none.exit, none.report.status), (Exit::Usage, PatchStatus::Invalid));
    let bytes = run(&options, b"*** Begin Patch\n\xff");
    assert_eq!(
        bytes.report.message,
        "invalid patch: line 2: expected UTF-8 text, found other bytes"
    );
}

#[test]
fn a_missing_folder_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = run(&options(&folder.path().join("gone")), PATCH.as_bytes());
    assert_eq!((outcome.exit, outcome.report.status), (Exit::Internal, PatchStatus::Fault));
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let text = "*** Begin Patch\n*** Update File: fifo\n@@\n-x\n+y\n*** End Patch\n";
    let outcome = run(&options(folder.path()), text.as_bytes());
    assert!(outcome.stderr.contains("it is not a regular file"), "{}", outcome.stderr);
}

#[test]
fn base64_has_padding() {
    for (bytes, text) in
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("fooba", "Zm9vYmE=")]
    {
        assert_eq!(base64(bytes.as_bytes()), text);
    }
}
