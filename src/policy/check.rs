//! Raw prefix match of one argv, as scripts know it from the reference implementation.
//!
//! In: rules and words. Out: every rule whose pattern the words begin with, and JSON in the
//! published shape. It doesn't look into shell text or wrappers; [`Policy::evaluate`] does.
//!
//! [`Policy::evaluate`]: super::Policy::evaluate

use serde::Serialize;

use super::Decision;
use super::rules::{RuleSet, basename};

/// What `rules check` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckReport {
    /// Every match, in order.
    pub matched_rules: Vec<CheckMatch>,
    /// Strictest decision; absent without a match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
}

/// One match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckMatch {
    /// A `prefix_rule`.
    #[serde(rename_all = "camelCase")]
    PrefixRuleMatch {
        /// Words that matched.
        matched_prefix: Vec<String>,
        /// Its decision.
        decision: &'static str,
        /// Path that the rule's name was resolved from.
        #[serde(skip_serializing_if = "Option::is_none")]
        resolved_program: Option<String>,
        /// Its justification.
        #[serde(skip_serializing_if = "Option::is_none")]
        justification: Option<String>,
    },
}

/// How the program of an argv is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Programs<'a> {
    /// As written.
    #[default]
    AsWritten,
    /// An absolute path that no rule matches also counts by its name, if a `host_executable`
    /// allows it; the value is the home folder.
    Resolved(Option<&'a str>),
}

/// Matches `argv` against every prefix rule.
pub fn check(rules: &RuleSet, argv: &[String], programs: Programs<'_>) -> CheckReport {
    let mut matches = matches_of(rules, argv, None);
    if matches.is_empty()
        && let (Programs::Resolved(home), Some((program, rest))) = (programs, argv.split_first())
    {
        let name = basename(program);
        if program.starts_with('/') && rules.is_host_path(name, program, home) {
            let named: Vec<String> =
                std::iter::once(name.to_owned()).chain(rest.iter().cloned()).collect();
            matches = matches_of(rules, &named, Some(program));
        }
    }
    let decision = matches.iter().map(|(decision, _)| *decision).max().map(Decision::name);
    CheckReport { matched_rules: matches.into_iter().map(|(_, one)| one).collect(), decision }
}

fn matches_of(
    rules: &RuleSet,
    argv: &[String],
    resolved: Option<&String>,
) -> Vec<(Decision, CheckMatch)> {
    rules
        .prefix
        .iter()
        .filter_map(|rule| {
            let words = rule.matched_prefix(argv)?;
            let one = CheckMatch::PrefixRuleMatch {
                matched_prefix: words.to_vec(),
                decision: rule.decision.name(),
                resolved_program: resolved.cloned(),
                justification: rule.justification.clone(),
            };
            Some((rule.decision, one))
        })
        .collect()
}
