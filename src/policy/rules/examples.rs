//! The examples of rules: `match` and `not_match`.
//!
//! In: loaded rules. Out: one line for each example, and the first that is wrong as an error.

use super::{PrefixRule, RuleError, RuleSet, basename};

/// How one example came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExampleReport {
    /// `file:line` of the rule.
    pub rule: String,
    /// Pattern of the rule.
    pub pattern: String,
    /// `match` or `not_match`.
    pub kind: &'static str,
    /// The example as shell text.
    pub example: String,
    /// Whether the rule does what the example says.
    pub is_right: bool,
}

impl RuleSet {
    /// Runs every example of every rule.
    pub fn run_examples(&self) -> Vec<ExampleReport> {
        self.prefix.iter().flat_map(|rule| self.run_examples_of(rule)).collect()
    }

    fn run_examples_of(&self, rule: &PrefixRule) -> Vec<ExampleReport> {
        let kinds = [("match", &rule.matching, true), ("not_match", &rule.not_matching, false)];
        kinds
            .into_iter()
            .flat_map(|(kind, examples, wanted)| {
                examples.iter().map(move |example| ExampleReport {
                    rule: rule.origin.reference(),
                    pattern: rule.pattern_text(),
                    kind,
                    example: join(example),
                    is_right: self.example_matches(rule, example) == wanted,
                })
            })
            .collect()
    }

    /// Prefix match of one argv; an absolute program also counts by its name, unless a
    /// `host_executable` says otherwise.
    fn example_matches(&self, rule: &PrefixRule, example: &[String]) -> bool {
        if rule.matched_prefix(example).is_some() {
            return true;
        }
        let Some((program, rest)) = example.split_first() else { return false };
        let name = basename(program);
        if !program.starts_with('/') || !self.is_host_path(name, program, None) {
            return false;
        }
        let named: Vec<String> =
            std::iter::once(name.to_owned()).chain(rest.iter().cloned()).collect();
        rule.matched_prefix(&named).is_some()
    }

    /// Returns the first example that doesn't hold, as an error.
    pub(super) fn check_examples(&self) -> Result<(), RuleError> {
        for rule in &self.prefix {
            if let Some(wrong) = self.run_examples_of(rule).into_iter().find(|one| !one.is_right) {
                let message = match wrong.kind {
                    "match" => format!(
                        "example `{}` of `match` must match {}, and doesn't",
                        wrong.example, wrong.pattern
                    ),
                    _ => format!(
                        "example `{}` of `not_match` must not match {}, and does",
                        wrong.example, wrong.pattern
                    ),
                };
                return Err(RuleError::new(rule.origin.clone(), message));
            }
        }
        Ok(())
    }
}

/// Joins words to shell text.
pub(crate) fn join(words: &[String]) -> String {
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}
