//! Entries: mappings whose keys the file chooses.
//!
//! In: a node. Out: values by checked key. Knows nothing of what the values mean.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::node::Node;
use super::read::{Merge, Read, Reader, Spanned, found};
use super::value::{Id, Ident, Variable, is_id, is_ident, is_variable};

/// A mapping whose keys are ids that the file chooses.
#[derive(Clone, Debug, PartialEq)]
pub struct Entries<K, T>(pub BTreeMap<K, Spanned<T>>);

/// What the keys of [`Entries`] must be.
pub trait Key: Sized + Ord {
    /// A key as the schema's `pattern`.
    const PATTERN: &'static str;
    /// What a key must be, in words.
    const EXPECTED: &'static str;
    /// Reads a key.
    fn parse(text: &str) -> Option<Self>;
}

impl Key for Id {
    const PATTERN: &'static str = "^[a-z0-9][a-z0-9._-]{0,63}$";
    const EXPECTED: &'static str =
        "an id of at most 64 of `a-z 0-9 . _ -` that starts with a letter or digit";

    fn parse(text: &str) -> Option<Self> {
        is_id(text).then(|| Self(text.to_owned()))
    }
}

impl Key for Ident {
    const PATTERN: &'static str = "^[a-z_][a-z0-9_]{0,63}$";
    const EXPECTED: &'static str =
        "an identifier of at most 64 of `a-z 0-9 _` that starts with no digit";

    fn parse(text: &str) -> Option<Self> {
        is_ident(text).then(|| Self(text.to_owned()))
    }
}

impl Key for Variable {
    const PATTERN: &'static str = "^[A-Za-z_][A-Za-z0-9_]*$";
    const EXPECTED: &'static str = "the name of an environment variable";

    fn parse(text: &str) -> Option<Self> {
        is_variable(text).then(|| Self(text.to_owned()))
    }
}

impl Key for String {
    const PATTERN: &'static str = "^.+$";
    const EXPECTED: &'static str = "a name";

    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.to_owned())
    }
}

impl<K, T> Default for Entries<K, T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Key, T: Read> Read for Entries<K, T> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let mut map = BTreeMap::new();
        for (text, key, value) in reader.pairs(node)? {
            reader.within(text, |reader| {
                if let Some(name) = K::parse(text) {
                    let value = Spanned::<T>::read(value, reader);
                    map.extend(value.map(|value| (name, value)));
                    return;
                }
                let (path, expected) = (reader.path(), K::EXPECTED);
                let message = format!("the key `{path}` must be {expected}, got {}", found(key));
                reader.complain(key, message);
            });
        }
        Some(Self(map))
    }
}

/// Entries of the upper mapping replace entries of the lower one whole: half of a provider laid
/// over another could send a key to a foreign address.
impl<K: Ord, T> Merge for Entries<K, T> {
    fn over(self, lower: Self) -> Self {
        let mut map = lower.0;
        map.extend(self.0);
        Self(map)
    }
}

impl<K: Key, T: JsonSchema> JsonSchema for Entries<K, T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Entries_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let value = generator.subschema_for::<T>();
        json_schema!({
            "type": "object",
            "propertyNames": { "pattern": K::PATTERN },
            "additionalProperties": value,
        })
    }
}
