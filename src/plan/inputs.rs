//! Inputs: values from the command line and the environment, typed.
//!
//! In: the file's `inputs`, `--input K=V` and the runner's environment. Out: a value for each
//! input that has one. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::task::entries::Entries;
use crate::task::file::{InputSpec, InputTrust, InputType};
use crate::task::value::Ident;
use crate::task::{At, Complaint, Complaints, Spanned};
use crate::text::{clip, nearest};

/// The value of one input.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Value; a list for `list`.
    pub value: Value,
    /// Whether it may not be believed.
    pub is_untrusted: bool,
    /// Whether it is text that anybody could have written, as opposed to a number, a truth value
    /// or one of the author's own options.
    pub is_free_text: bool,
}

/// Every input of the file, by name; `None` for one that has no value.
pub type Inputs = BTreeMap<String, Option<Input>>;

/// Where values come from.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// `--input` in order.
    pub flags: &'a [(String, String)],
    /// The runner's environment. An empty variable counts as not given: CI systems set what isn't
    /// there to empty text.
    pub env: &'a BTreeMap<String, String>,
    /// Whether a value that must be given may be missing; an example stands for it then.
    pub is_check: bool,
}

/// Finds the value of each input: flag, then variable, then default.
pub fn resolve(
    specs: Option<&Entries<Ident, InputSpec>>,
    given: Given<'_>,
    complaints: &mut Complaints,
) -> Inputs {
    let empty = BTreeMap::new();
    let specs = specs.map_or(&empty, |specs| &specs.0);
    let flags = flags(specs, given.flags, complaints);
    let mut inputs = Inputs::new();
    for (name, spec) in specs {
        if let Some(default) = &spec.value.default
            && let Err(expected) = check(&spec.value, default.value.0.clone())
        {
            let text = format!("`{}` must be {expected}", default.at.key);
            complaints
                .push(default.at.complain(format!("{text}, got `{}`", show(&default.value.0))));
        }
        let value = match one(&name.0, spec, flags.get(name.0.as_str()).copied(), given) {
            Ok(value) => value,
            Err(complaint) => {
                complaints.push(complaint);
                None
            }
        };
        let kind = spec.value.r#type.value;
        let is_free_text = matches!(kind, InputType::String | InputType::Path | InputType::List);
        let is_untrusted = spec.value.trust == Some(InputTrust::Untrusted);
        let input = value.map(|value| Input { value, is_untrusted, is_free_text });
        inputs.insert(name.0.clone(), input);
    }
    inputs
}

fn flags<'a>(
    specs: &BTreeMap<Ident, Spanned<InputSpec>>,
    flags: &'a [(String, String)],
    complaints: &mut Complaints,
) -> BTreeMap<&'a str, &'a str> {
    let mut map = BTreeMap::new();
    for (name, value) in flags {
        if !specs.contains_key(&Ident(name.clone())) {
            let mut complaint =
                At::default().complain(format!("`--input {name}` is no input of the file"));
            complaint.hint = Some(match nearest(name, specs.keys().map(|key| key.0.as_str())) {
                Some(near) => format!("did you mean `{near}`?"),
                None if specs.is_empty() => "the file has no inputs".to_owned(),
                None => {
                    let names: Vec<&str> = specs.keys().map(|key| key.0.as_str()).collect();
                    format!("inputs: {}", names.join(", "))
                }
            });
            complaints.push(complaint);
        } else if map.insert(name.as_str(), value.as_str()).is_some() {
            complaints.push(At::default().complain(format!("`--input {name}` must be given once")));
        }
    }
    map
}

fn one(
    name: &str,
    spec: &Spanned<InputSpec>,
    flag: Option<&str>,
    given: Given<'_>,
) -> Result<Option<Value>, Complaint> {
    let variable = spec.value.env.as_ref().map(|variable| variable.0.as_str());
    let from_env = variable.and_then(|name| given.env.get(name)).filter(|text| !text.is_empty());
    let (text, place) = match (flag, from_env, variable) {
        (Some(text), _, _) => (text, format!("`--input {name}`")),
        (None, Some(text), Some(variable)) => {
            (text.as_str(), format!("`{variable}` for `inputs.{name}`"))
        }
        (None, _, _) => return without(name, spec, given.is_check),
    };
    let value = parse(spec.value.r#type.value, text, spec.value.options.as_ref());
    value.and_then(|value| check(&spec.value, value)).map(Some).map_err(|expected| {
        let text = format!("{place} must be {expected}, got `{}`", clip(text, 60));
        At::default().complain(text)
    })
}

fn without(
    name: &str,
    spec: &Spanned<InputSpec>,
    is_check: bool,
) -> Result<Option<Value>, Complaint> {
    if let Some(default) = &spec.value.default {
        return Ok(check(&spec.value, default.value.0.clone()).ok());
    }
    if is_check {
        return Ok(Some(example(&spec.value)));
    }
    if spec.value.required != Some(true) {
        return Ok(None);
    }
    let or = spec.value.env.as_ref().map_or(String::new(), |it| format!(" or set `{}`", it.0));
    Err(spec
        .at
        .complain(format!("`inputs.{name}` must be given"))
        .with_hint(format!("pass `--input {name}=…`{or}")))
}

fn example(spec: &InputSpec) -> Value {
    let least = spec.min.as_ref().map_or(1.0, |min| min.value.0);
    match spec.r#type.value {
        InputType::String | InputType::Path => Value::from("example"),
        InputType::Integer | InputType::Number => Value::from(least),
        InputType::Boolean => Value::from(true),
        InputType::List => Value::from(vec!["example"]),
        InputType::Choice => spec
            .options
            .as_ref()
            .and_then(|options| options.value.first())
            .map_or(Value::Null, |option| option.value.0.clone()),
    }
}

/// Reads the text of a flag or a variable.
fn parse(
    kind: InputType,
    text: &str,
    options: Option<&Spanned<Vec<Spanned<crate::task::value::Json>>>>,
) -> Result<Value, String> {
    if text.contains('\0') {
        return Err("text without NUL".to_owned());
    }
    match kind {
        InputType::String | InputType::Path => Ok(Value::from(text)),
        InputType::Integer => {
            text.parse::<i64>().map(Value::from).map_err(|_| "a whole number".to_owned())
        }
        InputType::Number => text
            .parse::<f64>()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .map(Value::Number)
            .ok_or_else(|| "a number".to_owned()),
        InputType::Boolean => match text {
            "true" => Ok(Value::from(true)),
            "false" => Ok(Value::from(false)),
            _ => Err("`true` or `false`".to_owned()),
        },
        InputType::Choice => {
            let options = options.map(|options| options.value.as_slice()).unwrap_or_default();
            let found = options.iter().find(|option| show(&option.value.0) == text);
            found.map(|option| option.value.0.clone()).ok_or_else(|| choices(options))
        }
        InputType::List => {
            Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect())
        }
    }
}

fn choices(options: &[Spanned<crate::task::value::Json>]) -> String {
    let list: Vec<String> =
        options.iter().map(|option| format!("`{}`", show(&option.value.0))).collect();
    format!("one of {}", list.join(", "))
}

/// Returns `value` if it has the type and keeps the bounds, else what was expected.
fn check(spec: &InputSpec, value: Value) -> Result<Value, String> {
    let bounds = |number: f64, of: &str| bounds(spec, number, of);
    match (spec.r#type.value, &value) {
        (InputType::String, Value::String(text)) => matches(spec, text)?,
        (InputType::Path, Value::String(text)) => {
            super::sources::inside("", text).ok_or("a relative path that stays inside")?;
            matches(spec, text)?;
        }
        (InputType::Integer, Value::Number(number)) if number.is_i64() || number.is_u64() => {
            bounds(number.as_f64().unwrap_or_default(), "a whole number")?;
        }
        (InputType::Number, Value::Number(number)) => {
            bounds(number.as_f64().unwrap_or_default(), "a number")?;
        }
        (InputType::Boolean, Value::Bool(_)) => {}
        (InputType::Choice, value) => {
            let options = spec.options.as_ref().map(|it| it.value.as_slice()).unwrap_or_default();
            if !options.iter().any(|option| option.value.0 == *value) {
                return Err(choices(options));
            }
        }
        (InputType::List, Value::Array(items)) => {
            for item in items {
                matches(spec, item.as_str().ok_or("a list of texts")?)?;
            }
            bounds(
                f64::from(u32::try_from(items.len()).unwrap_or(u32::MAX)),
                "a list with a length",
            )?;
        }
        (kind, _) => return Err(named(kind).to_owned()),
    }
    Ok(value)
}

fn named(kind: InputType) -> &'static str {
    match kind {
        InputType::String => "text",
        InputType::Path => "a path",
        InputType::Integer => "a whole number",
        InputType::Number => "a number",
        InputType::Boolean => "`true` or `false`",
        InputType::Choice => "one of the options",
        InputType::List => "a list of texts",
    }
}

fn bounds(spec: &InputSpec, number: f64, of: &str) -> Result<(), String> {
    let min = spec.min.as_ref().map(|min| min.value.0);
    let max = spec.max.as_ref().map(|max| max.value.0);
    if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
        return Err(match (min, max) {
            (Some(min), Some(max)) => format!("{of} from {min} to {max}"),
            (Some(min), None) => format!("{of} of at least {min}"),
            (None, Some(max)) => format!("{of} of at most {max}"),
            (None, None) => of.to_owned(),
        });
    }
    Ok(())
}

fn matches(spec: &InputSpec, text: &str) -> Result<(), String> {
    let Some(pattern) = &spec.pattern else { return Ok(()) };
    // The reader has compiled every pattern once already.
    let is_match = regex::Regex::new(&pattern.value.0).is_ok_and(|regex| regex.is_match(text));
    if is_match { Ok(()) } else { Err(format!("text that matches `{}`", pattern.value.0)) }
}

/// A value as a person would write it.
fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}
