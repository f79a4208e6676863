//! Cleans a recorded page (upstream `clean_tree`): removes everything without information.

use std::collections::HashSet;

use lumos_tasks::python::is_space;

use super::attributes::is_salient;
use super::serialise::write_attribute;
use super::text::{TextError, collapse};
use super::tree::{IDENT, NONE, Node, Tree};
use super::view::{Entry, View, spliced};

impl Tree {
    /// The page's XML without uninformative attributes, empty `text` elements, and elements that have no
    /// information and are not candidates.
    ///
    /// # Errors
    /// Fails if the root is an empty `text` element.
    pub fn clean(&self, candidates: &HashSet<&str>) -> Result<String, TextError> {
        let attributes: Vec<Vec<(&str, String)>> =
            self.nodes().iter().map(|node| clean_attributes(self, node)).collect();
        let mut places = vec![NONE; self.len()];
        let mut kept: Vec<Entry> = Vec::new();
        for (index, node) in self.nodes().iter().enumerate() {
            let inside = node.parent == NONE || places[node.parent as usize] != NONE;
            let says = !node.is_text || !self.characters(node.text).chars().all(is_space);
            if inside && says {
                places[index] = kept.len() as u32;
                kept.push(Entry { node: index as u32, end: 0, keeps_ident: true });
            } else if inside && node.parent == NONE {
                return Err(TextError::RootIsText);
            }
        }
        let node = |place: usize| self.node(kept[place].node);
        let parent = |place: usize| {
            let parent = node(place).parent;
            (parent != NONE).then(|| places[parent as usize] as usize)
        };
        let plain = |place: usize| {
            attributes[kept[place].node as usize].len() == 1
                && !candidates.contains(self.ident(node(place).ident))
        };
        let spliced = spliced(&kept, parent, |place| node(place).is_text, plain);
        let mut xml = String::new();
        View::settle(self, &kept, &spliced).write_xml(0, None, &mut xml, |view, place, xml| {
            let node = view.node(place);
            for (name, value) in &attributes[view.entries[place].node as usize] {
                write_attribute(xml, name, value);
            }
            let text = self.characters(node.text);
            let text = if node.is_text { collapse(text) } else { text.to_owned() };
            (!text.is_empty()).then_some(text)
        });
        Ok(xml)
    }
}

fn clean_attributes<'t>(tree: &'t Tree, node: &Node) -> Vec<(&'t str, String)> {
    let of_icon = tree.name(node) == "svg";
    let clean = |(name, value): (&'t str, &str)| {
        let value = match name {
            IDENT => return Some((name, value.to_owned())),
            "class" if of_icon => {
                let words = value.split(is_space).filter(|word| names_icon(word));
                words.collect::<Vec<_>>().join(" ")
            }
            "role" if matches!(value, "presentation" | "none" | "link") => return None,
            "type" if value == "hidden" => return None,
            _ if is_salient(name) => collapse(value),
            _ => return None,
        };
        (!value.is_empty()).then_some((name, value))
    };
    let attributes = tree.attributes(node).iter();
    attributes.map(|one| (tree.name_of(one.name), tree.characters(one.value))).filter_map(clean).collect()
}

/// Whether a word contains `icon`, with Python's case-insensitive comparison.
fn names_icon(word: &str) -> bool {
    let plain = word.chars().map(|character| match character {
        'İ' | 'ı' => 'i',
        other => other.to_ascii_lowercase(),
    });
    plain.collect::<String>().contains("icon")
}
