//! Values: the leaves of a task file, each with its own rule and its own words when it is broken.
//!
//! In: a node. Out: a checked value. Knows nothing of where in the file a value may stand.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::node::{Kind, Node};
use super::read::{Merge, Read, Reader, Shape};
use crate::text::{parse_duration, parse_size};

/// Declares a leaf: its schema stands where it is used.
macro_rules! leaf {
    ($type:ty, $name:literal, $schema:tt) => {
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }

        impl Merge for $type {}
    };
}

/// Text with something in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text(pub String);

/// An id: `[a-z0-9]`, then up to 63 of `[a-z0-9._-]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub String);

/// A path with something in it; what it is relative to, its field says.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub String);

/// Name of an environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variable(pub String);

/// A duration of more than zero, such as `90s` or `1h30m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A size of at least one byte: a number of bytes, or text such as `64KiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size(pub u64);

/// A whole number of at least `MIN` and at most `MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count<const MIN: u64, const MAX: u64 = { u32::MAX as u64 }>(pub u64);

/// An amount of more than zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount(pub f64);

/// A price or temperature: zero or more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Price(pub f64);

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fraction(pub f64);

/// Any finite number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Number(pub f64);

/// SHA-256 in lower-case hex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest(pub String);

/// A regular expression, in the syntax of the `regex` crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern(pub String);

/// Any value, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Json(pub Value);

/// A mapping of any values, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object(pub Value);

/// An identifier: `[a-z_]`, then up to 63 of `[a-z0-9_]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ident(pub String);

const DURATION: &str = "a duration such as `90s` or `1h30m`";

leaf!(Text, "Text", { "type": "string", "minLength": 1 });
leaf!(Id, "Id", { "type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$" });
leaf!(Path, "Path", { "type": "string", "minLength": 1 });
leaf!(Variable, "Variable", { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" });
leaf!(Ident, "Ident", { "type": "string", "pattern": "^[a-z_][a-z0-9_]{0,63}$" });
leaf!(Time, "Time", { "type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$" });
leaf!(Size, "Size", {
    "type": ["integer", "string"],
    "minimum": 1,
    "pattern": "^[0-9]+ *(B|[KMGT]|[KMGT]iB|[KMG]B)?$",
});
leaf!(Amount, "Amount", { "type": "number", "exclusiveMinimum": 0 });
leaf!(Price, "Price", { "type": "number", "minimum": 0 });
leaf!(Fraction, "Fraction", { "type": "number", "minimum": 0, "maximum": 1 });
leaf!(Number, "Number", { "type": "number" });
leaf!(Digest, "Digest", { "type": "string", "pattern": "^[0-9a-f]{64}$" });
leaf!(Pattern, "Pattern", { "type": "string" });
leaf!(Json, "Json", true);
leaf!(Object, "Object", { "type": "object" });

impl<const MIN: u64, const MAX: u64> Merge for Count<MIN, MAX> {}

impl<const MIN: u64, const MAX: u64> JsonSchema for Count<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Count_{MIN}_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// Reads text that `is_right`.
fn checked(
    node: &Node,
    reader: &mut Reader,
    expected: &str,
    is_right: impl Fn(&str) -> bool,
) -> Option<String> {
    let text = words(node, reader, expected)?;
    if is_right(text) {
        return Some(text.to_owned());
    }
    reader.expected(node, expected);
    None
}

pub(super) fn is_id(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 64
        && text.starts_with(is_letter)
        && text.chars().all(|c| is_letter(c) || matches!(c, '.' | '_' | '-'))
}

pub(super) fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(super) fn is_ident(text: &str) -> bool {
    is_variable(text) && text.len() <= 64 && !text.contains(|c: char| c.is_ascii_uppercase())
}

impl Read for Text {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = words(node, reader, "text")?;
        if text.trim().is_empty() {
            reader.expected(node, "text with something in it");
            return None;
        }
        Some(Self(text.to_owned()))
    }
}

impl Read for Id {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let expected = "an id of at most 64 of `a-z 0-9 . _ -` that starts with a letter or digit";
        checked(node, reader, expected, is_id).map(Self)
    }
}

impl Read for Ident {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        checked(node, reader, <Self as super::entries::Key>::EXPECTED, is_ident).map(Self)
    }
}

impl Read for Path {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        checked(node, reader, "a path", |text| !text.trim().is_empty() && !text.contains('\0'))
            .map(Self)
    }
}

impl Read for Variable {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        checked(node, reader, "the name of an environment variable", is_variable).map(Self)
    }
}

impl Read for Digest {
    /// A digest may have digits alone, so that what YAML takes for a number is read as well.
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if let Kind::Scalar(scalar) = &node.kind
            && scalar.text.len() == 64
            && scalar.text.chars().all(is_hex)
        {
            return Some(Self(scalar.text.clone()));
        }
        reader.expected(node, "a SHA-256 of 64 lower-case hex digits");
        None
    }
}

impl Read for Pattern {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = reader.text(node, "a regular expression")?;
        if regex::Regex::new(text).is_ok() {
            return Some(Self(text.to_owned()));
        }
        reader.expected(node, "a regular expression without look-around and back references");
        None
    }
}

impl Read for String {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        words(node, reader, "text").map(str::to_owned)
    }
}

/// Reads text; where a number or a truth value stands, the remedy is to quote it.
fn words<'a>(node: &'a Node, reader: &mut Reader, expected: &str) -> Option<&'a str> {
    let text = reader.text(node, expected);
    if let (None, Kind::Scalar(scalar), Some(last)) =
        (text, &node.kind, reader.complaints.last_mut())
        && scalar.shape() != Shape::Nothing
    {
        last.hint = Some(format!("quote it: `\"{}\"`", scalar.text));
    }
    text
}

impl Read for bool {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if let Kind::Scalar(scalar) = &node.kind
            && let Shape::Truth(value) = scalar.shape()
        {
            return Some(value);
        }
        reader.expected(node, "`true` or `false`");
        None
    }
}

impl Read for Time {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = reader.text(node, DURATION)?;
        match parse_duration(text) {
            Some(Duration::ZERO) => reader.expected(node, "a duration of more than zero"),
            Some(time) => return Some(Self(time)),
            None => reader.expected(node, DURATION),
        }
        None
    }
}

impl Read for Size {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if let Kind::Scalar(scalar) = &node.kind
            && let Some(size) = parse_size(&scalar.text).filter(|size| *size > 0)
        {
            return Some(Self(size));
        }
        reader.expected(node, "a size of at least one byte such as `64KiB` or `65536`");
        None
    }
}

impl<const MIN: u64, const MAX: u64> Read for Count<MIN, MAX> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if let Kind::Scalar(scalar) = &node.kind
            && scalar.shape() == Shape::Number
            && let Ok(number) = scalar.text.parse::<u64>()
            && (MIN..=MAX).contains(&number)
        {
            return Some(Self(number));
        }
        let expected = if MAX < u64::from(u32::MAX) {
            format!("a whole number from {MIN} to {MAX}")
        } else {
            format!("a whole number of at least {MIN}")
        };
        reader.expected(node, &expected);
        None
    }
}

fn number(
    node: &Node,
    reader: &mut Reader,
    expected: &str,
    is_right: impl Fn(f64) -> bool,
) -> Option<f64> {
    if let Kind::Scalar(scalar) = &node.kind
        && scalar.shape() == Shape::Number
        && let Ok(number) = scalar.text.parse::<f64>()
        && number.is_finite()
        && is_right(number)
    {
        return Some(number);
    }
    reader.expected(node, expected);
    None
}

impl Read for Amount {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        number(node, reader, "a number of more than zero", |value| value > 0.0).map(Self)
    }
}

impl Read for Price {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        number(node, reader, "a number of at least zero", |value| value >= 0.0).map(Self)
    }
}

impl Read for Fraction {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        number(node, reader, "a number from 0 to 1", |value| (0.0..=1.0).contains(&value)).map(Self)
    }
}

impl Read for Number {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        number(node, reader, "a number", |_| true).map(Self)
    }
}

impl Read for Json {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        json(node, reader).map(Self)
    }
}

impl Read for Object {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        if matches!(node.kind, Kind::Map(_)) {
            return json(node, reader).map(Self);
        }
        reader.expected(node, "a mapping");
        None
    }
}

/// Turns a node into JSON by YAML's core schema.
fn json(node: &Node, reader: &mut Reader) -> Option<Value> {
    match &node.kind {
        Kind::Scalar(scalar) => match scalar.shape() {
            Shape::Text => Some(Value::String(scalar.text.clone())),
            Shape::Nothing => Some(Value::Null),
            Shape::Truth(value) => Some(Value::Bool(value)),
            Shape::Number => {
                let number = json_number(&scalar.text);
                if number.is_none() {
                    reader.expected(node, "a number that JSON can say");
                }
                number
            }
        },
        Kind::List(values) => {
            let mut list = Vec::with_capacity(values.len());
            for (index, value) in values.iter().enumerate() {
                list.extend(reader.within(&format!("[{index}]"), |reader| json(value, reader)));
            }
            Some(Value::Array(list))
        }
        Kind::Map(_) => {
            let mut map = serde_json::Map::new();
            for (key, _, value) in reader.pairs(node)? {
                if let Some(value) = reader.within(key, |reader| json(value, reader)) {
                    map.insert(key.to_owned(), value);
                }
            }
            Some(Value::Object(map))
        }
    }
}

fn json_number(text: &str) -> Option<Value> {
    let radix = |digits: &str, radix| u64::from_str_radix(digits, radix).ok().map(Value::from);
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    if let Ok(number) = text.parse::<i64>() {
        return Some(Value::from(number));
    }
    if let Ok(number) = text.parse::<u64>() {
        return Some(Value::from(number));
    }
    text.parse().ok().and_then(serde_json::Number::from_f64).map(Value::Number)
}
