//! Places: where an attempt's files lie in a run's folder.
//!
//! In: ids from a transcript, perhaps a foreign one. Out: relative paths that stay inside. Pure.

use crate::text;

/// Folder of an attempt's files, relative to the run's folder.
pub fn attempt(instance: &str, n: u32) -> String {
    format!("tasks/{}/attempt-{n}", component(instance))
}

/// Log of a call, relative to the run's folder.
pub fn call_log(instance: &str, n: u32, call: &str) -> String {
    format!("{}/calls/{}.log", attempt(instance, n), component(call))
}

/// `id` as one component of a path: letters, digits and `-_.=[],` stay; anything else becomes `_`
/// and a digest of `id` is added, so that two ids never share a folder.
pub fn component(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.=[],".contains(c);
    if !id.is_empty() && id.len() <= 128 && !id.starts_with('.') && id.chars().all(is_plain) {
        return id.to_owned();
    }
    let kept: String = id.chars().take(64).map(|c| if is_plain(c) { c } else { '_' }).collect();
    format!("_{kept}-{}", &text::sha256(id.as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use super::{attempt, call_log, component};

    #[test]
    fn ids_stay_inside_and_apart() {
        assert_eq!(call_log("fix", 2, "call-001"), "tasks/fix/attempt-2/calls/call-001.log");
        assert_eq!(attempt("deps[package=serde]", 1), "tasks/deps[package=serde]/attempt-1");
        for id in ["..", ".", "", "a/b", "../../etc", "a\0b", "-é"] {
            let safe = component(id);
            assert!(!safe.contains(['/', '\0']) && !safe.starts_with('.'), "{id} {safe}");
        }
        assert_ne!(component("a/b"), component("a:b"));
        assert!(component(&"x".repeat(1000)).len() < 128);
    }
}
