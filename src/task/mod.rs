//! The task file: what the user may say.
//!
//! In: text. Out: [`TaskFile`], or every complaint about the text at once, each with line and
//! column. The published schema comes from the same types. Knows nothing of files, git, the
//! command line or what follows from what is said.

pub mod check;
pub mod complaint;
pub(crate) mod declare;
pub mod entries;
pub mod file;
pub mod model;
pub mod network;
pub mod node;
pub mod permissions;
pub mod read;
pub mod unbuilt;
pub mod union;
pub mod value;
pub mod work;

use std::sync::Arc;

use serde_json::Value;

pub use complaint::{At, Complaint, Complaints};
pub use file::{IncludedFile, TaskFile};
pub use permissions::Permissions;
pub use read::Spanned;
use read::{Read, Reader};

/// The published schema, as committed; a test holds it equal to the types.
pub const SCHEMA: &str = include_str!("task.v1.schema.json");

/// Reads a task file. `name` is the file as the user knows it.
///
/// # Errors
///
/// Every complaint about shape and, where the shape is right, about what doesn't fit together
/// inside the file; also about everything that isn't built yet.
pub fn read(name: &str, text: &str) -> Result<TaskFile, Complaints> {
    read_as(name, text, check::task_file)
}

/// Reads a file that a task file includes.
///
/// # Errors
///
/// As [`read()`].
pub fn read_included(name: &str, text: &str) -> Result<IncludedFile, Complaints> {
    read_as(name, text, check::included_file)
}

/// Reads a file that has one `permissions` mapping, for `horseman sandbox --permissions FILE`.
///
/// # Errors
///
/// As [`read()`].
pub fn read_permissions(name: &str, text: &str) -> Result<Permissions, Complaints> {
    read_as(name, text, |_, _| ())
}

fn read_as<T: Read>(
    name: &str,
    text: &str,
    check: impl FnOnce(&T, &mut Complaints),
) -> Result<T, Complaints> {
    let file = Arc::from(name);
    let node = node::parse(&file, text)?;
    let mut reader = Reader::new(&file);
    let value = T::read(&node, &mut reader);
    let mut complaints = Complaints { list: reader.complaints, is_nothing_selected: false };
    let Some(value) = value else {
        // A value that can't be read has complained; the list is not empty.
        return complaints
            .or(())
            .and_then(|()| Err(At::whole(name).complain("no task file").into()));
    };
    check(&value, &mut complaints);
    complaints.or(value)
}

/// The JSON Schema of a task file, generated from the types.
pub fn schema() -> Value {
    let generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<TaskFile>().to_value();
    if let Some(tasks) = schema.pointer_mut("/properties/tasks") {
        tasks["minItems"] = 1.into();
    }
    if let Some(task) = schema.pointer_mut("/$defs/Task") {
        task["oneOf"] =
            serde_json::json!([{ "required": ["prompt"] }, { "required": ["prompt_file"] }]);
    }
    if let Some(secret) = schema.pointer_mut("/$defs/Secret") {
        secret["minProperties"] = 1.into();
        secret["maxProperties"] = 1.into();
    }
    schema
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, prop, proptest};

    use super::{read, read_included, read_permissions};

    const WORDS: [&str; 28] = [
        "version: 1\n",
        "tasks:",
        "\n",
        "  ",
        "- ",
        "id: ",
        "a",
        "prompt: x\n",
        "{",
        "}",
        "[",
        "]",
        ", ",
        ": ",
        "|\n",
        ">-\n",
        "\"",
        "'",
        "&a ",
        "*a",
        "#",
        "!",
        "<<: ",
        "\t",
        "~",
        "ä",
        "1",
        "permissions: ",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn no_text_panics_and_each_refusal_has_a_complaint(
            picks in prop::collection::vec(0..WORDS.len(), 0..40),
        ) {
            let text: String = picks.iter().map(|pick| WORDS[*pick]).collect();
            let errors = [
                read("t.yml", &text).err(),
                read_included("t.yml", &text).err(),
                read_permissions("t.yml", &text).err(),
            ];
            for complaints in errors.into_iter().flatten() {
                assert!(!complaints.is_empty(), "{text}");
            }
        }
    }
}
