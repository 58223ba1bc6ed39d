//! The functions that a `.rules` file can call.
//!
//! In: Starlark values. Out: rules on this thread, checked as far as one call can be; anything
//! wrong ends the evaluation at the call.

#![expect(clippy::too_many_arguments, reason = "a rule has as many arguments as its language says")]

use std::cell::RefCell;

use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::ListRef;
use starlark::values::none::NoneType;
use starlark::values::tuple::TupleRef;
use starlark::values::{UnpackValue as _, Value};

use super::load::origin_of;
use super::{HostExecutable, NetworkRule, Origin, PrefixRule, RuleSet, basename, network};
use crate::policy::Decision;

thread_local! {
    /// What the calls of the file add up to that this thread evaluates. The evaluator's own slot
    /// for such a value wants an `unsafe` implementation; each file has a thread of its own anyway.
    static RULES: RefCell<RuleSet> = RefCell::new(RuleSet::default());
}

/// Takes what the calls on this thread added up to.
pub(super) fn take_rules() -> RuleSet {
    RULES.take()
}

/// A complaint of one of our functions.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Complaint(String);

fn complain(message: String) -> starlark::Error {
    starlark::Error::new_native(Complaint(message))
}

/// Most rules of one file. Our choice.
const MAX_RULES: usize = 100_000;

fn add(
    eval: &Evaluator<'_, '_, '_>,
    add: impl FnOnce(&mut RuleSet, Origin),
) -> starlark::Result<NoneType> {
    let origin = eval.call_stack_top_location().as_ref().map(origin_of).unwrap_or_default();
    RULES.with_borrow_mut(|rules| {
        if rules.prefix.len() + rules.hosts.len() + rules.network.len() >= MAX_RULES {
            return Err(complain(format!("a rule file makes at most {MAX_RULES} rules")));
        }
        add(rules, origin);
        Ok(NoneType)
    })
}

fn items(value: Value<'_>) -> Option<Vec<Value<'_>>> {
    if let Some(list) = ListRef::from_value(value) {
        return Some(list.content().to_vec());
    }
    TupleRef::from_value(value).map(|tuple| tuple.content().to_vec())
}

fn string(value: Value<'_>) -> Option<String> {
    <&str>::unpack_value(value).ok().flatten().map(ToOwned::to_owned)
}

fn decision(text: &str) -> starlark::Result<Decision> {
    match text {
        "allow" => Ok(Decision::Allow),
        "prompt" => Ok(Decision::Prompt),
        "forbidden" => Ok(Decision::Forbidden),
        other => Err(complain(format!(
            "`decision` must be `allow`, `prompt` or `forbidden`, got `{other}`"
        ))),
    }
}

fn justification(text: Option<String>) -> starlark::Result<Option<String>> {
    match text {
        Some(text) if text.trim().is_empty() => Err(complain(
            "`justification` must say something when it is given, got an empty string".to_owned(),
        )),
        other => Ok(other),
    }
}

fn pattern(value: Value<'_>) -> starlark::Result<Vec<Vec<String>>> {
    let wrong = |found: Value<'_>| {
        complain(format!(
            "an element of `pattern` must be a string or a list of strings, got `{found}`"
        ))
    };
    let elements = items(value)
        .ok_or_else(|| complain(format!("`pattern` must be a list of words, got `{value}`")))?;
    if elements.is_empty() {
        return Err(complain("`pattern` must have at least one word, got `[]`".to_owned()));
    }
    elements
        .into_iter()
        .map(|element| {
            let words = match (string(element), items(element)) {
                (Some(word), _) => vec![word],
                (None, Some(list)) => list
                    .into_iter()
                    .map(|word| string(word).ok_or_else(|| wrong(word)))
                    .collect::<starlark::Result<_>>()?,
                (None, None) => return Err(wrong(element)),
            };
            if words.is_empty() {
                return Err(complain(
                    "a list of alternatives in `pattern` must have at least one word, got `[]`"
                        .to_owned(),
                ));
            }
            Ok(words)
        })
        .collect()
}

fn examples(value: Option<Value<'_>>, name: &str) -> starlark::Result<Vec<Vec<String>>> {
    let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(Vec::new()) };
    let list = items(value)
        .ok_or_else(|| complain(format!("`{name}` must be a list of commands, got `{value}`")))?;
    list.into_iter()
        .map(|example| {
            let words = match (string(example), items(example)) {
                (Some(text), _) => shlex::split(&text).ok_or_else(|| {
                    complain(format!(
                        "an example in `{name}` must be one command with closed quotes, got `{text}`"
                    ))
                })?,
                (None, Some(list)) => list
                    .into_iter()
                    .map(|word| {
                        string(word).ok_or_else(|| {
                            complain(format!(
                                "a word of an example in `{name}` must be a string, got `{word}`"
                            ))
                        })
                    })
                    .collect::<starlark::Result<_>>()?,
                (None, None) => {
                    return Err(complain(format!(
                        "an example in `{name}` must be a string or a list of words, got `{example}`"
                    )));
                }
            };
            if words.is_empty() {
                return Err(complain(format!(
                    "an example in `{name}` must have at least one word"
                )));
            }
            Ok(words)
        })
        .collect()
}

fn host_paths(name: &str, value: Value<'_>) -> starlark::Result<Vec<String>> {
    let list = items(value)
        .ok_or_else(|| complain(format!("`paths` must be a list of paths, got `{value}`")))?;
    let mut paths: Vec<String> = Vec::new();
    for value in list {
        let path = string(value).ok_or_else(|| {
            complain(format!("a path in `paths` must be a string, got `{value}`"))
        })?;
        if !path.starts_with('/') && !path.starts_with("~/") {
            return Err(complain(format!(
                "a path in `paths` must be absolute or begin with `~/`, got `{path}`"
            )));
        }
        if basename(&path) != name {
            return Err(complain(format!("a path in `paths` must end in `/{name}`, got `{path}`")));
        }
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    Ok(paths)
}

#[starlark_module]
pub(super) fn rule_functions(builder: &mut GlobalsBuilder) {
    fn prefix_rule<'v>(
        pattern: Value<'v>,
        decision: Option<&str>,
        justification: Option<String>,
        r#match: Option<Value<'v>>,
        not_match: Option<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let pattern = self::pattern(pattern)?;
        let decision = decision.map_or(Ok(Decision::Allow), self::decision)?;
        let justification = self::justification(justification)?;
        let matching = examples(r#match, "match")?;
        let not_matching = examples(not_match, "not_match")?;
        add(eval, |rules, origin| {
            rules.prefix.push(PrefixRule {
                pattern,
                decision,
                justification,
                matching,
                not_matching,
                origin,
            });
        })
    }

    fn host_executable<'v>(
        name: &str,
        paths: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        if name.is_empty() || name.contains('/') {
            return Err(complain(format!(
                "`name` must be the bare name of a program, got `{name}`"
            )));
        }
        let paths = host_paths(name, paths)?;
        add(eval, |rules, origin| {
            rules.hosts.push(HostExecutable { name: name.to_owned(), paths, origin });
        })
    }

    fn network_rule<'v>(
        host: &str,
        protocol: &str,
        decision: &str,
        justification: Option<String>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<NoneType> {
        let host = network::check_host(host).map_err(complain)?;
        let protocol = network::check_protocol(protocol).map_err(complain)?;
        let decision = match decision {
            "deny" => Decision::Forbidden,
            other => self::decision(other)?,
        };
        let justification = self::justification(justification)?;
        add(eval, |rules, origin| {
            rules.network.push(NetworkRule {
                host,
                protocol: protocol.to_owned(),
                decision,
                justification,
                origin,
            });
        })
    }
}
