//! History: the conversation so far, and its encoded form that is only ever appended to.
//!
//! In: items. Out: the same, and one JSON text. Pure.

use crate::model::Item;

/// The conversation of one session.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    items: Vec<Item>,
    encoded: String,
}

impl History {
    /// Appends one item.
    pub(super) fn push(&mut self, item: Item) {
        if !self.encoded.is_empty() {
            self.encoded.push(',');
        }
        self.encoded.push_str(item.raw.get());
        self.items.push(item);
    }

    /// The items, in order.
    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    /// The items as JSON, joined by commas, without brackets.
    pub(super) fn encoded(&self) -> &str {
        &self.encoded
    }
}
