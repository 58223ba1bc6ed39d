//! Declarations: one macro for mappings and one for choices of words.
//!
//! In: a list of fields or words with their descriptions. Out: the type, its reader, its published
//! schema and its merge, which so can't differ. Knows nothing of what the fields mean.

/// Declares a mapping: the struct, its reader, its schema and its merge.
///
/// A field is an `Option` or a `Spanned` that must be there. Fields under `unbuilt` are read for
/// their shape and then refused by name.
macro_rules! object {
    (
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $( $(#[doc = $about:literal])* pub $field:ident : $type:ty, )*
        }
        $( unbuilt { $( $(#[doc = $unbuilt_about:literal])* $unbuilt:ident : $unbuilt_type:ty, )* } )?
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $( $(#[doc = $about])* pub $field: $type, )*
        }

        impl $crate::task::read::Read for $name {
            fn read(
                node: &$crate::task::node::Node,
                reader: &mut $crate::task::read::Reader,
            ) -> Option<Self> {
                use $crate::task::read::Field;
                let keys = [
                    $( $crate::task::read::key(stringify!($field)), )*
                    $($( $crate::task::read::key(stringify!($unbuilt)), )*)?
                ];
                let fields = reader.fields(node, &keys)?;
                $(
                    let $field = <$type as Field>::take(
                        &fields,
                        $crate::task::read::key(stringify!($field)),
                        reader,
                    );
                )*
                $($(
                    let name = $crate::task::read::key(stringify!($unbuilt));
                    if let Some((key, node)) = fields.pair(name) {
                        reader.within(name, |reader| {
                            reader.refuse::<$unbuilt_type>(key, node);
                        });
                    }
                )*)?
                Some(Self { $( $field: $field?, )* })
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                use $crate::task::read::{Field, key, object_schema, property};
                let mut required: Vec<&str> = Vec::new();
                $(
                    if <$type as Field>::IS_REQUIRED {
                        required.push(key(stringify!($field)));
                    }
                )*
                let properties = vec![
                    $( (
                        key(stringify!($field)),
                        property::<<$type as Field>::Value>(generator, &[$($about),*]),
                    ), )*
                    $($( (
                        key(stringify!($unbuilt)),
                        property::<$unbuilt_type>(
                            generator,
                            &[$($unbuilt_about,)* " Not built yet."],
                        ),
                    ), )*)?
                ];
                object_schema(&[$($doc),*], properties, &required)
            }
        }

        impl $crate::task::read::Merge for $name {
            fn over(self, lower: Self) -> Self {
                Self { $( $field: $crate::task::read::Merge::over(self.$field, lower.$field), )* }
            }
        }
    };
}

/// Declares a choice of words: the enum, its reader and its schema. The first is the default;
/// words under `unbuilt` are known and refused by name.
macro_rules! choice {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $(#[doc = $first_about:literal])* $first:ident = $first_word:literal,
            $( $(#[doc = $about:literal])* $variant:ident = $word:literal, )*
        }
        $( unbuilt { $( $unbuilt:literal ),* } )?
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $first_about])* #[default] $first,
            $( $(#[doc = $about])* $variant, )*
        }

        impl $crate::task::read::Read for $name {
            fn read(
                node: &$crate::task::node::Node,
                reader: &mut $crate::task::read::Reader,
            ) -> Option<Self> {
                let built = [($first_word, Self::$first), $( ($word, Self::$variant), )*];
                let unbuilt: &[&str] = &[$( $( $unbuilt ),* )?];
                let words: Vec<&str> =
                    built.iter().map(|(word, _)| *word).chain(unbuilt.iter().copied()).collect();
                let word = $crate::task::read::word(node, &words, reader)?;
                let value = built.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
                if value.is_none() {
                    let path = format!("{}: {word}", reader.path());
                    reader.not_built(node, &path);
                }
                value
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "description": $crate::task::read::description(&[$($doc),*]),
                    "enum": [$first_word, $($word,)* $($($unbuilt,)*)?],
                })
            }
        }

        impl $crate::task::read::Merge for $name {}
    };
}

pub(crate) use {choice, object};
