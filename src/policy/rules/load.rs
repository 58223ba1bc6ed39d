//! Evaluates the Starlark text of rule files.
//!
//! In: texts with names. Out: a [`RuleSet`], or the first thing that is wrong with file, line,
//! column and the line's text. No `load`, no input or output; ticks, heap, call stack and size are
//! bounded.

use starlark::codemap::FileSpan;
use starlark::environment::{GlobalsBuilder, Module};
use starlark::eval::Evaluator;
use starlark::syntax::{AstModule, Dialect, DialectTypes};

use super::builtins::{rule_functions, take_rules};
use super::{Origin, RuleError, RuleSet, guard};
use crate::policy::RuleSource;

/// Most function calls and loop iterations of one file. Our choice: far above any list of rules,
/// far below a second.
const MAX_TICKS: u64 = 2_000_000;
/// Most bytes of Starlark values of one file. Our choice.
const MAX_HEAP: usize = 64 << 20;
/// Deepest call stack. Our choice.
const MAX_CALLS: usize = 50;
/// Stack of the thread that evaluates, in bytes: enough for the depth that the guard lets through.
const STACK: usize = 128 << 20;

/// Loads `sources` in order and runs their examples.
///
/// # Errors
///
/// A [`RuleError`] for the first file that is too large or too deep, doesn't parse, doesn't
/// evaluate within its limits, makes a rule that isn't valid, or has an example that doesn't hold.
pub fn load(sources: &[RuleSource]) -> Result<RuleSet, RuleError> {
    let rules = load_unchecked(sources)?;
    rules.check_examples()?;
    Ok(rules)
}

/// Loads `sources` without running their examples.
pub(crate) fn load_unchecked(sources: &[RuleSource]) -> Result<RuleSet, RuleError> {
    let mut rules = RuleSet::default();
    for source in sources {
        let one = evaluate_apart(source)?;
        rules.prefix.extend(one.prefix);
        rules.hosts.extend(one.hosts);
        rules.network.extend(one.network);
    }
    Ok(rules)
}

/// Evaluates on a thread of its own: the parser recurses, and the caller's stack is unknown.
fn evaluate_apart(source: &RuleSource) -> Result<RuleSet, RuleError> {
    guard::check(&source.text).map_err(|broken| {
        let line = u32::try_from(broken.line).unwrap_or(u32::MAX);
        let snippet = source.text.lines().nth(broken.line.saturating_sub(1)).unwrap_or("");
        let origin = Origin {
            file: source.name.clone(),
            line,
            column: 1,
            snippet: crate::text::clip(snippet, SNIPPET),
        };
        RuleError::new(origin, broken.message)
    })?;
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("rules".to_owned())
            .stack_size(STACK)
            .spawn_scoped(scope, || evaluate(source))
            .map_err(|error| {
                RuleError::file(&source.name, format!("no thread to evaluate it: {error}"))
            })?
            .join()
            .unwrap_or_else(|_| {
                Err(RuleError::file(&source.name, "the Starlark evaluator gave up on it"))
            })
    })
}

/// Longest line shown with an error, in bytes. Our choice.
const SNIPPET: usize = 160;

fn evaluate(source: &RuleSource) -> Result<RuleSet, RuleError> {
    let dialect = Dialect {
        enable_load: false,
        enable_load_reexport: false,
        enable_keyword_only_arguments: true,
        enable_types: DialectTypes::ParseOnly,
        enable_top_level_stmt: true,
        enable_f_strings: true,
        ..Dialect::Standard
    };
    let fail = |error: starlark::Error| to_error(source, &error);
    let ast = AstModule::parse(&source.name, source.text.clone(), &dialect).map_err(fail)?;
    let globals = GlobalsBuilder::standard().with(rule_functions).build();
    let result = Module::with_temp_heap(|module| {
        let mut eval = Evaluator::new(&module);
        let limits = eval
            .set_max_callstack_size(MAX_CALLS)
            .and_then(|()| eval.set_max_heap_size(MAX_HEAP))
            .and_then(|()| eval.set_max_tick_count(MAX_TICKS));
        if let Err(error) = limits {
            return Err(starlark::Error::new_other(error));
        }
        eval.eval_module(ast, &globals).map(|_| ())
    });
    result.map_err(fail)?;
    Ok(take_rules())
}

/// Where a span of a rule file begins.
pub(super) fn origin_of(span: &FileSpan) -> Origin {
    let begin = span.resolve_span().begin;
    Origin {
        file: span.filename().to_owned(),
        line: u32::try_from(begin.line + 1).unwrap_or(u32::MAX),
        column: u32::try_from(begin.column + 1).unwrap_or(u32::MAX),
        snippet: crate::text::clip(span.file.source_line(begin.line), SNIPPET),
    }
}

fn to_error(source: &RuleSource, error: &starlark::Error) -> RuleError {
    // A limit is hit nowhere in particular: the innermost call that is known stands for it.
    let called = || error.call_stack().frames.iter().rev().find_map(|one| one.location.as_ref());
    let origin = error
        .span()
        .or_else(called)
        .map_or_else(|| Origin { file: source.name.clone(), ..Origin::default() }, origin_of);
    RuleError::new(origin, reword(&error.without_diagnostic().to_string()))
}

/// One line, in our style, with the limits named as ours.
fn reword(message: &str) -> String {
    let line = message.lines().next().unwrap_or("").trim().trim_end_matches('.');
    let lower = line.to_lowercase();
    if lower.contains("tick") && lower.contains("limit") {
        return format!("evaluation takes more than {MAX_TICKS} calls and loop iterations");
    }
    if lower.contains("heap") && lower.contains("limit") {
        return format!("evaluation takes more than {MAX_HEAP} bytes");
    }
    if lower.contains("call stack overflow") || lower.contains("stack overflow") {
        return format!("calls are nested more than {MAX_CALLS} deep");
    }
    let line = line.strip_prefix("fail: ").unwrap_or(line);
    let mut chars = line.chars();
    match (chars.next(), chars.clone().next()) {
        // Keeps a name in capitals as it is.
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => line.to_owned(),
    }
}
