//! Presets: hosts of the usual package sources, by ecosystem.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The list, made with the program; a test reads every entry.
static PRESETS: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(|| {
    serde_yaml::from_str(include_str!("../../../policies/presets.yml")).unwrap_or_default()
});

/// Names of the presets, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.keys().map(String::as_str)
}

/// Patterns of a preset.
pub(super) fn hosts(name: &str) -> Option<&'static [String]> {
    PRESETS.get(name).map(Vec::as_slice)
}
