//! Reading: from nodes to typed values, collecting every complaint on the way.
//!
//! In: a [`Node`]. Out: values that are right in shape, or complaints. Knows nothing of what the fields mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::complaint::{At, Complaint};
use super::node::{Kind, Node, Scalar};
use crate::text::nearest;

/// A value and where it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its place.
    pub at: At,
}

/// Collects complaints and knows the path of keys that leads to the current node.
#[derive(Debug)]
pub struct Reader {
    file: Arc<str>,
    path: String,
    /// What is wrong so far.
    pub complaints: Vec<Complaint>,
}

/// A value that can be read from a node. Complains once and returns `None` when it can't.
pub trait Read: Sized + JsonSchema {
    /// Reads `node`.
    fn read(node: &Node, reader: &mut Reader) -> Option<Self>;
}

/// Lays a value over a lower one: mappings key by key, all else replaces.
pub trait Merge: Sized {
    /// Returns `self` with what only `lower` has.
    #[must_use]
    fn over(self, lower: Self) -> Self {
        drop(lower);
        self
    }
}

/// The type of a field in a mapping: an `Option`, or a [`Spanned`] that must be there.
pub trait Field: Sized {
    /// What stands in the file.
    type Value: Read;
    /// Whether the key must be there.
    const IS_REQUIRED: bool;
    /// Takes the field out of `fields`.
    fn take(fields: &Fields<'_>, key: &str, reader: &mut Reader) -> Option<Self>;
}

/// The keys of a mapping, known to be known ones, each once.
#[derive(Debug)]
pub struct Fields<'a> {
    at: At,
    pairs: Vec<(&'a str, &'a Node, &'a Node)>,
}

impl Reader {
    /// Starts at the top of `file`.
    pub fn new(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), path: String::new(), complaints: Vec::new() }
    }

    /// The place of `node`.
    pub fn at(&self, node: &Node) -> At {
        let text = match &node.kind {
            Kind::Scalar(scalar) => scalar.block,
            Kind::List(_) | Kind::Map(_) => None,
        };
        let (file, key) = (Arc::clone(&self.file), self.path.clone());
        At { file, line: node.line, column: node.column, key, text }
    }

    /// The current path in backticks, or what stands for the whole file.
    pub fn name(&self) -> String {
        if self.path.is_empty() { "the file".to_owned() } else { format!("`{}`", self.path) }
    }

    /// Complains that the current node must be `expected`.
    pub fn expected(&mut self, node: &Node, expected: &str) {
        let complaint = self.at(node).complain(format!(
            "{} must be {expected}, got {}",
            self.name(),
            found(node)
        ));
        self.complaints.push(complaint);
    }

    /// Complains that the current node means something that isn't built yet.
    pub fn not_built(&mut self, node: &Node, what: &str) {
        let complaint = self.at(node).complain(format!("`{what}` is not built yet"));
        self.complaints.push(complaint);
    }

    /// Reads the current node for its shape alone and complains that its key isn't built yet.
    pub fn refuse<T: Read>(&mut self, key: &Node, node: &Node) {
        drop(T::read(node, self));
        let path = self.path.clone();
        self.not_built(key, &path);
    }

    /// Complains about the current node.
    pub fn complain(&mut self, node: &Node, message: String) {
        let complaint = self.at(node).complain(message);
        self.complaints.push(complaint);
    }

    /// The current path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Calls `inner` with the path of `key` below the current one.
    pub fn within<T>(&mut self, key: &str, inner: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if !self.path.is_empty() && !key.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(key);
        let value = inner(self);
        self.path.truncate(length);
        value
    }

    /// The scalar text of `node`, if it is text and not a number, a truth value or nothing.
    pub fn text<'a>(&mut self, node: &'a Node, expected: &str) -> Option<&'a str> {
        match &node.kind {
            Kind::Scalar(scalar) if scalar.shape() == Shape::Text => Some(&scalar.text),
            Kind::Scalar(_) | Kind::List(_) | Kind::Map(_) => {
                self.expected(node, expected);
                None
            }
        }
    }

    /// The pairs of a mapping with text keys, duplicates and merge keys refused.
    pub fn pairs<'a>(&mut self, node: &'a Node) -> Option<Vec<(&'a str, &'a Node, &'a Node)>> {
        let Kind::Map(pairs) = &node.kind else {
            self.expected(node, "a mapping");
            return None;
        };
        let mut seen: BTreeMap<&str, &Node> = BTreeMap::new();
        let mut known = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let Kind::Scalar(Scalar { text, is_plain, .. }) = &key.kind else {
                let message =
                    format!("the keys of {} must be words, got {}", self.name(), found(key));
                self.complain(key, message);
                continue;
            };
            if *is_plain && text == "<<" {
                let complaint = self
                    .at(key)
                    .complain("merge keys (`<<`) are not supported")
                    .with_hint("write what tasks share under `defaults`");
                self.complaints.push(complaint);
                continue;
            }
            if let Some(first) = seen.insert(text, key) {
                let message = self.within(text, |reader| {
                    format!(
                        "{} must be given once, got it in line {} too",
                        reader.name(),
                        first.line
                    )
                });
                self.complain(key, message);
                continue;
            }
            known.push((text.as_str(), key.as_ref(), value.as_ref()));
        }
        Some(known)
    }

    /// The fields of a mapping that may have `keys` and no others.
    pub fn fields<'a>(&mut self, node: &'a Node, keys: &[&str]) -> Option<Fields<'a>> {
        let mut pairs = Vec::new();
        for (text, key, value) in self.pairs(node)? {
            if keys.contains(&text) {
                pairs.push((text, key, value));
                continue;
            }
            let mut complaint = self.within(text, |reader| {
                reader.at(key).complain(format!("{} is no known key", reader.name()))
            });
            complaint.hint = Some(match nearest(text, keys.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known keys: {}", keys.join(", ")),
            });
            self.complaints.push(complaint);
        }
        Some(Fields { at: self.at(node), pairs })
    }
}

impl<'a> Fields<'a> {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&'a Node> {
        self.pair(key).map(|(_, value)| value)
    }

    /// The node of `key` itself, and its value.
    pub fn pair(&self, key: &str) -> Option<(&'a Node, &'a Node)> {
        let pair = self.pairs.iter().find(|(name, ..)| *name == key);
        pair.map(|(_, key, value)| (*key, *value))
    }

    /// Complains that `key` is missing.
    fn missing(&self, key: &str, reader: &mut Reader) {
        let at = self.at.below(key);
        reader.complaints.push(at.complain(format!("`{}` is missing", at.key)));
    }
}

impl<T: Read> Field for Option<T> {
    type Value = T;
    const IS_REQUIRED: bool = false;

    fn take(fields: &Fields<'_>, key: &str, reader: &mut Reader) -> Option<Self> {
        Some(fields.get(key).and_then(|node| reader.within(key, |reader| T::read(node, reader))))
    }
}

impl<T: Read> Field for Spanned<T> {
    type Value = T;
    const IS_REQUIRED: bool = true;

    fn take(fields: &Fields<'_>, key: &str, reader: &mut Reader) -> Option<Self> {
        let Some(node) = fields.get(key) else {
            fields.missing(key, reader);
            return None;
        };
        reader.within(key, |reader| Self::read(node, reader))
    }
}

impl<T: Read> Read for Spanned<T> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        T::read(node, reader).map(|value| Self { value, at: reader.at(node) })
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let Kind::List(values) = &node.kind else {
            reader.expected(node, "a list");
            return None;
        };
        let mut list = Self::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            list.extend(reader.within(&format!("[{index}]"), |reader| T::read(value, reader)));
        }
        Some(list)
    }
}

impl<T: Merge> Merge for Option<T> {
    fn over(self, lower: Self) -> Self {
        match (self, lower) {
            (Some(upper), Some(lower)) => Some(upper.over(lower)),
            (upper, lower) => upper.or(lower),
        }
    }
}

impl<T: Merge> Merge for Spanned<T> {
    fn over(self, lower: Self) -> Self {
        Self { value: self.value.over(lower.value), at: self.at }
    }
}

impl<T> Merge for Vec<T> {}
impl Merge for String {}
impl Merge for bool {}

impl<T: JsonSchema> JsonSchema for Spanned<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// What a plain scalar means in YAML's core schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Text.
    Text,
    /// Nothing: `~`, `null`, or no text at all.
    Nothing,
    /// `true` or `false`.
    Truth(bool),
    /// A number.
    Number,
}

impl Scalar {
    /// Whether the text is quoted and would be a number, a truth value or nothing without quotes.
    fn means_else_bare(&self) -> bool {
        let bare = Self { text: self.text.clone(), is_plain: true, block: None };
        !self.is_plain && bare.shape() != Shape::Text
    }

    /// What the scalar means.
    pub fn shape(&self) -> Shape {
        if !self.is_plain {
            return Shape::Text;
        }
        match self.text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Shape::Nothing,
            "true" | "True" | "TRUE" => Shape::Truth(true),
            "false" | "False" | "FALSE" => Shape::Truth(false),
            text if is_number(text) => Shape::Number,
            _ => Shape::Text,
        }
    }
}

fn is_number(text: &str) -> bool {
    let bare = text.strip_prefix(['-', '+']).unwrap_or(text);
    let hex = |digits: &str| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    if let Some(digits) = text.strip_prefix("0x") {
        return hex(digits);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return !digits.is_empty() && digits.chars().all(|c| ('0'..='7').contains(&c));
    }
    if matches!(bare, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    bare.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && bare.contains(|c: char| c.is_ascii_digit())
        && bare.parse::<f64>().is_ok()
}

/// What stands there, for "got …".
pub fn found(node: &Node) -> String {
    match &node.kind {
        Kind::List(_) => "a list".to_owned(),
        Kind::Map(_) => "a mapping".to_owned(),
        Kind::Scalar(scalar) => match scalar.shape() {
            Shape::Nothing => "nothing".to_owned(),
            Shape::Text if scalar.text.is_empty() => "an empty text".to_owned(),
            Shape::Text if scalar.means_else_bare() => format!("the text `{}`", scalar.text),
            Shape::Text | Shape::Truth(_) | Shape::Number => {
                let line = scalar.text.lines().next().unwrap_or_default();
                format!("`{}`", crate::text::clip(line, 60))
            }
        },
    }
}

/// The key of a field, from its Rust name.
pub fn key(name: &'static str) -> &'static str {
    name.strip_prefix("r#").unwrap_or(name)
}

/// One sentence out of the lines of a doc comment.
pub fn description(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").replace("  ", "\n\n")
}

/// The schema of a mapping.
pub fn object_schema(about: &[&str], properties: Vec<(&str, Schema)>, required: &[&str]) -> Schema {
    let mut map = serde_json::Map::new();
    for (name, schema) in properties {
        map.insert(name.to_owned(), schema.to_value());
    }
    let mut schema = schemars::json_schema!({
        "type": "object",
        "description": description(about),
        "additionalProperties": false,
        "properties": map,
    });
    if !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema
}

/// The schema of a property, with the field's own description beside a reference.
pub fn property<T: JsonSchema>(generator: &mut SchemaGenerator, about: &[&str]) -> Schema {
    let mut schema = generator.subschema_for::<T>();
    schema.insert("description".to_owned(), description(about).into());
    schema
}

/// Reads one of `words`.
pub fn word<'a>(node: &'a Node, words: &[&str], reader: &mut Reader) -> Option<&'a str> {
    let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let expected = if words.len() == 1 { list } else { format!("one of {list}") };
    let text = match &node.kind {
        Kind::Scalar(scalar) if words.contains(&scalar.text.as_str()) => return Some(&scalar.text),
        Kind::Scalar(scalar) => scalar.text.as_str(),
        Kind::List(_) | Kind::Map(_) => "",
    };
    reader.expected(node, &expected);
    if let (Some(near), Some(last)) =
        (nearest(text, words.iter().copied()), reader.complaints.last_mut())
    {
        last.hint = Some(format!("did you mean `{near}`?"));
    }
    None
}
