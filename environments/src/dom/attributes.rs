//! Text representation of an element's attributes (upstream `get_attribute_repr`).

use lumos_tasks::python::is_space;

use super::tree::{Node, Tree};

/// The attributes that are represented, in order.
const SPEAKING: [&str; 16] = [
    "role",
    "aria_role",
    "type",
    "alt",
    "aria_description",
    "aria_label",
    "label",
    "title",
    "name",
    "text_value",
    "value",
    "placeholder",
    "input_checked",
    "input_value",
    "option_selected",
    "class",
];

/// Values that are ignored.
const SILENT: [&str; 5] = ["hidden", "none", "presentation", "null", "undefined"];

/// Words of at least this length are skipped.
const LONG_WORD: usize = 15;
/// Maximum number of words per attribute.
const WORDS_OF_ATTRIBUTE: usize = 5;
/// Maximum number of words per element.
const WORDS_OF_ELEMENT: usize = 20;

/// The rank of each attribute name; `None` for names that are not represented.
#[derive(Debug)]
pub(super) struct Order(Vec<Option<u8>>);

impl Order {
    /// The order for the attribute names of a page.
    pub(super) fn of(tree: &Tree) -> Self {
        let place = |name: &str| SPEAKING.iter().position(|speaking| *speaking == name).map(|at| at as u8);
        Self(tree.names().map(place).collect())
    }

    /// The representation of an element's attributes; empty if there is nothing to represent.
    pub(super) fn write(&self, tree: &Tree, node: &Node) -> String {
        let mut values: [Option<&str>; SPEAKING.len()] = [None; SPEAKING.len()];
        for attribute in tree.attributes(node) {
            if let Some(place) = self.0[attribute.name as usize] {
                values[usize::from(place)] = Some(tree.characters(attribute.value));
            }
        }
        let mut said: Vec<String> = Vec::new();
        for value in values.into_iter().flatten() {
            let value = value.to_lowercase();
            if SILENT.contains(&value.as_str()) || value.starts_with("http") {
                continue;
            }
            let words = value.split(is_space).filter(|word| !word.is_empty());
            let short = words.filter(|word| word.chars().nth(LONG_WORD - 1).is_none());
            let value = short.take(WORDS_OF_ATTRIBUTE).collect::<Vec<_>>().join(" ");
            if !value.is_empty() && !said.contains(&value) {
                said.push(value);
            }
        }
        let words = said.iter().flat_map(|value| value.split(' '));
        words.take(WORDS_OF_ELEMENT).collect::<Vec<_>>().join(" ")
    }
}
