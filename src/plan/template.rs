//! Templates: texts of the task file with inputs put in.
//!
//! In: one text, where it stands, the inputs. Out: the rendered text, or a complaint with file and
//! line. What a value may do depends on the place: in prompts untrusted text is fenced, in
//! commands every value is quoted and untrusted ones are refused. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Object, ObjectRepr, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};

use super::fence::fence;
use super::inputs::{Input, Inputs};
use super::shell;
use crate::task::{At, Complaint};
use crate::text::{clip, nearest};

/// Instructions that one text may take. Our choice: a page of text takes some hundred.
const FUEL: u64 = 100_000;

/// Where a text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Into the prompt.
    Prompt,
    /// Into a shell.
    Shell,
    /// Into one argument of a command without a shell.
    Argument,
    /// Into a title or the name of a commit.
    Plain,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Self::Prompt => "a prompt",
            Self::Shell | Self::Argument => "a command",
            Self::Plain => "a title or the name of a commit",
        }
    }
}

/// Untrusted text in a prompt: prints itself fenced, whatever a filter does to it.
#[derive(Debug)]
struct Fenced {
    text: String,
    fenced: String,
}

impl Object for Fenced {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        !self.text.is_empty()
    }

    fn render(self: &Arc<Self>, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.fenced)
    }
}

/// Renders `text`.
///
/// # Errors
///
/// A complaint at the line of the template: syntax, a name that isn't there, an untrusted value
/// where it has no place, a value that can't be quoted, a template that doesn't end.
pub fn render(text: &str, at: &At, inputs: &Inputs, place: Place) -> Result<String, Complaint> {
    if !text.contains("{{") && !text.contains("{%") && !text.contains("{#") {
        return Ok(text.to_owned());
    }
    let values: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let environment = environment(place, &values);
    let names = inputs
        .iter()
        .filter_map(|(name, input)| Some((name.clone(), value(name, input.as_ref()?, place))));
    let context = BTreeMap::from([("inputs", names.collect::<BTreeMap<String, Value>>())]);
    let rendered = environment
        .template_from_str(text)
        .and_then(|template| template.render(&context))
        .map_err(|error| explain(&error, text, at, inputs))?;
    if place != Place::Shell {
        return Ok(rendered);
    }
    let values = values.lock().map(|values| values.clone()).unwrap_or_default();
    shell::put_in(&rendered, &values)
        .map_err(|reason| at.complain(format!("`{}` can't be rendered: {reason}", at.key)))
}

fn environment(place: Place, values: &Arc<Mutex<Vec<Vec<String>>>>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_debug(true);
    let mut syntax = SyntaxConfig::default().to_builder();
    if let Ok(syntax) = syntax.keep_trailing_newline(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    // HTML escapes have no meaning here and would read as if they made a value safe.
    for filter in ["safe", "escape", "e"] {
        environment.remove_filter(filter);
    }
    if place == Place::Shell {
        environment.add_filter("sh", |value: Value| value);
        let values = Arc::clone(values);
        environment.set_formatter(move |out, _state, value| mark(out, &values, value));
    } else {
        environment.add_filter("sh", |value: Value| {
            shlex::try_quote(&value.to_string())
                .map(std::borrow::Cow::into_owned)
                .map_err(|_| Error::new(ErrorKind::InvalidOperation, "a NUL byte can't be quoted"))
        });
        environment.set_formatter(plain);
    }
    environment
}

fn plain(out: &mut Output<'_>, _state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    fmt::Write::write_str(out, &value.to_string()).map_err(Error::from)
}

/// Notes a value and writes its number: only the whole text says how it must be quoted.
fn mark(
    out: &mut Output<'_>,
    values: &Mutex<Vec<Vec<String>>>,
    value: &Value,
) -> Result<(), Error> {
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let mut words = Vec::new();
    if value.kind() == ValueKind::Seq {
        words.extend(value.try_iter()?.map(|item| item.to_string()));
    } else {
        words.push(value.to_string());
    }
    let mut values = values
        .lock()
        .map_err(|_| Error::new(ErrorKind::InvalidOperation, "values are not to be had"))?;
    // A block that was captured holds marks of its own; they become what they stand for.
    let words = words.iter().map(|word| unmark(word, &values)).collect();
    let number = values.len();
    values.push(words);
    fmt::Write::write_fmt(out, format_args!("{0}{number}{0}", shell::MARK)).map_err(Error::from)
}

fn unmark(word: &str, values: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (index, piece) in word.split(shell::MARK).enumerate() {
        let value = piece.parse::<usize>().ok().and_then(|number| values.get(number));
        match value {
            Some(value) if index % 2 == 1 => text.push_str(&value.join(" ")),
            Some(_) | None => text.push_str(piece),
        }
    }
    text
}

fn value(name: &str, input: &Input, place: Place) -> Value {
    if !input.is_untrusted || (place == Place::Prompt && !input.is_free_text) {
        return plain_value(&input.value);
    }
    if place != Place::Prompt {
        let text = format!("the untrusted input `{name}` has no place in {}", place.name());
        return Value::from(Error::new(ErrorKind::InvalidOperation, text));
    }
    let fenced = |text: &str| {
        let fenced = match text {
            "" => String::new(),
            text => fence(&format!("input {name}"), text, true),
        };
        Value::from_object(Fenced { text: text.to_owned(), fenced })
    };
    match input.value.as_array() {
        Some(items) => items.iter().map(|item| fenced(item.as_str().unwrap_or_default())).collect(),
        None => fenced(input.value.as_str().unwrap_or_default()),
    }
}

/// JSON as a template's value; by hand, because with arbitrary precision in the build serde would
/// show a number's private form.
fn plain_value(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(value) => Value::from(*value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or_default()),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => items.iter().map(plain_value).collect(),
        serde_json::Value::Object(map) => {
            Value::from_pairs(map.iter().map(|(name, value)| (name.as_str(), plain_value(value))))
        }
    }
}

/// Words a template engine's error for the person who wrote the task file.
fn explain(error: &Error, text: &str, at: &At, inputs: &Inputs) -> Complaint {
    let range = error.range().filter(|range| text.get(range.clone()).is_some());
    let source = range.clone().and_then(|range| text.get(range)).unwrap_or_default();
    let at = locate(at, text, range.map(|range| range.start), error.line());
    let source = source.trim().trim_start_matches("{{").trim_end_matches("}}").trim();
    let shown = clip(source.lines().next().unwrap_or_default(), 60);
    if error.kind() == ErrorKind::UndefinedError {
        return undefined(&shown, &at, inputs);
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return at.complain(format!("the template of `{}` doesn't end", at.key));
    }
    let mut error = error;
    while let Some(source) = std::error::Error::source(error).and_then(|it| it.downcast_ref()) {
        error = source;
    }
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    at.complain(format!("the template of `{}` is wrong: {detail}", at.key))
}

fn undefined(source: &str, at: &At, inputs: &Inputs) -> Complaint {
    let source = if source.is_empty() { "a name" } else { source };
    let root = source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next();
    if matches!(root, Some("github" | "secrets" | "steps" | "env" | "runner" | "vars" | "jobs")) {
        let text = format!(
            "`{source}` in `{}` is not defined: this looks like a GitHub expression; pass it as an input",
            at.key
        );
        return at
            .complain(text)
            .with_hint("text that isn't meant for horseman goes between `{% raw %}` and `{% endraw %}`, or set `template: false`");
    }
    let name = source.strip_prefix("inputs.").unwrap_or(source);
    let name = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or(name);
    if let Some(None) = inputs.get(name)
        && source.starts_with("inputs.")
    {
        return at
            .complain(format!("`{source}` in `{}` has no value", at.key))
            .with_hint(format!("give `inputs.{name}` a `default`, or make it `required`"));
    }
    let complaint = at.complain(format!("`{source}` in `{}` is not defined", at.key));
    match nearest(name, inputs.keys().map(String::as_str)) {
        Some(near) => complaint.with_hint(format!("did you mean `inputs.{near}`?")),
        None => complaint,
    }
}

/// The place in the file of a byte, or a line, of the text.
fn locate(at: &At, text: &str, start: Option<usize>, line: Option<usize>) -> At {
    let Some((first, indent)) = at.text else { return at.clone() };
    let start = start.unwrap_or_else(|| {
        let line = line.unwrap_or(1).saturating_sub(1);
        text.split_inclusive('\n').take(line).map(str::len).sum()
    });
    let before = text.get(..start).unwrap_or_default();
    let lines = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let add = |base: u32, more: usize| base.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
    At { line: add(first, lines), column: add(indent, column), ..at.clone() }
}
