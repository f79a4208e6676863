//! The replacements of `get_tree_repr` applied literally to the XML, as in the original.

use lumos_tasks::python::is_space;

use super::attributes::Order;
use super::serialise::write_attribute;
use super::text::{Brackets, IdNumbers, TextError, collapse};
use super::tree::IDENT;
use super::view::View;

/// Placeholder for the end of an element without children while other tags are replaced.
pub(super) const MARK: &str = "$/$";

/// Entities to decode, in this order: `&amp;lt;` becomes `<`.
const ENTITIES: [(&str, &str); 13] = [
    ("&quot;", "\""),
    ("&amp;", "&"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&nbsp;", " "),
    ("&ndash;", "-"),
    ("&rsquo;", "'"),
    ("&lsquo;", "'"),
    ("&ldquo;", "\""),
    ("&rdquo;", "\""),
    ("&#39;", "'"),
    ("&#40;", "("),
    ("&#41;", ")"),
];

/// Removes the names of the attributes that the original writes.
pub(super) fn without_names(text: &str) -> String {
    text.replace("meta= ", "").replace("id= ", "id=")
}

/// Decodes the entities in text whose `&quot;` and `&amp;` are already decoded.
pub(super) fn without_entities(mut text: String) -> String {
    for (entity, character) in &ENTITIES[2..] {
        if !text.contains('&') {
            break;
        }
        if text.contains(entity) {
            text = text.replace(entity, character);
        }
    }
    text
}

/// See [`PageText::text_of`](super::PageText).
pub(super) fn text_of(
    view: &View<'_>,
    place: usize,
    cut: Option<usize>,
    numbers: &mut IdNumbers,
    brackets: Brackets,
    order: &Order,
) -> Result<String, TextError> {
    let mut xml = String::new();
    let mut empty_text = false;
    view.write_xml(place, cut, &mut xml, |view, place, xml| {
        let (tree, node) = (view.tree, view.node(place));
        if node.is_text {
            for attribute in tree.attributes(node) {
                let name = tree.name_of(attribute.name);
                if name != IDENT {
                    write_attribute(xml, name, tree.characters(attribute.value));
                }
            }
            empty_text |= node.text.is_empty();
            let words = tree.characters(node.text).split(is_space).filter(|word| !word.is_empty());
            return Some(words.take(20).collect::<Vec<_>>().join(" "));
        }
        if view.entries[place].keeps_ident {
            write_attribute(xml, "id", &numbers.number(tree.ident(node.ident)).to_string());
        }
        let said = order.write(tree, node);
        if !said.is_empty() {
            write_attribute(xml, "meta", &said);
        }
        (!node.text.is_empty()).then(|| tree.characters(node.text).to_owned())
    });
    if empty_text {
        return Err(TextError::EmptyText);
    }
    let mut text = without_names(&xml.replace('"', " ")).replace(" >", ">");
    text = replace_between(&text, "<text>", "</text>", 0, str::to_owned);
    if brackets == Brackets::Round {
        text = text.replace("/>", &format!("{MARK}>"));
        text = replace_between(&text, "</", ">", 1, |_| ")".to_owned());
        text = replace_between(&text, "<", ">", 1, |inner| format!("({inner}"));
        text = text.replace(MARK, ")");
    }
    for (entity, character) in &ENTITIES[..2] {
        text = text.replace(entity, character);
    }
    Ok(collapse(&without_entities(text)))
}

/// Replaces the text between two marks on one line: from the first opening mark to the nearest closing one
/// with at least `least` characters (each of one byte) in between, and repeatedly after that.
fn replace_between(
    text: &str,
    opening: &str,
    closing: &str,
    least: usize,
    replaced: impl Fn(&str) -> String,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(opening) {
        let inner = &rest[start + opening.len()..];
        let line = inner.split('\n').next().unwrap_or_default();
        let from = line.char_indices().nth(least).map_or(line.len(), |(at, _)| at);
        match line[from..].find(closing) {
            Some(found) => {
                out.push_str(&rest[..start]);
                out.push_str(&replaced(&line[..from + found]));
                rest = &inner[from + found + closing.len()..];
            }
            None => {
                out.push_str(&rest[..start + opening.len()]);
                rest = inner;
            }
        }
    }
    out.push_str(rest);
    out
}
