//! Writes a page, or a part of it, as text (upstream `get_tree_repr`).
//!
//! The original writes XML and then applies a series of replacements. This module writes the result directly,
//! piece by piece; only where tags and text could be confused ([`literal`]) does it apply the replacements to
//! the XML.

use std::collections::HashMap;

use lumos_tasks::python::is_space;
use thiserror::Error;

use super::attributes::Order;
use super::literal;
use super::tree::{NONE, Node, Tree};
use super::view::View;

/// Maximum number of words of a `text` element.
const WORDS_OF_TEXT: usize = 20;

/// Numbers for ids, assigned from 0 in order of first use; shared by the texts of one page.
#[derive(Debug, Clone, Default)]
pub struct IdNumbers {
    numbers: HashMap<String, usize>,
}

impl IdNumbers {
    /// An id's number; assigns the next number if it has none.
    pub fn number(&mut self, id: &str) -> usize {
        if let Some(number) = self.numbers.get(id) {
            return *number;
        }
        let next = self.numbers.len();
        self.numbers.insert(id.to_owned(), next);
        next
    }

    /// An id's number, if it has one.
    pub fn get(&self, id: &str) -> Option<usize> {
        self.numbers.get(id).copied()
    }

    /// Number of ids that have a number.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether no id has a number.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// Whether tags are written as `<x …>…</x>` or as `(x …)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brackets {
    /// `<x …>…</x>`
    Angle,
    /// `(x …)`
    Round,
}

/// Errors of writing a page's text. In these cases the original raises an exception.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TextError {
    /// No element has the candidate's id, or the candidate lost its id while the page was pruned.
    #[error("no element of the page has the id `{0}`")]
    NoSuchElement(String),
    /// The candidate is a `text` element, which is not one of its own siblings.
    #[error("the element with the id `{0}` is text")]
    CandidateIsText(String),
    /// A `text` element is empty.
    #[error("a `text` element holds nothing")]
    EmptyText,
    /// The page's root is a `text` element.
    #[error("the root of the page is a `text` element")]
    RootIsText,
    /// The candidates' texts together are longer than 256 MiB.
    #[error("the texts of the page's candidates are longer than {most} bytes in all")]
    TooMuchText {
        /// The limit in bytes.
        most: usize,
    },
}

impl TextError {
    /// The exception that the original raises; `None` if it would continue.
    pub fn exception(&self) -> Option<&'static str> {
        match self {
            Self::NoSuchElement(_) => Some("IndexError"),
            Self::CandidateIsText(_) => Some("ValueError"),
            Self::EmptyText | Self::RootIsText => Some("AttributeError"),
            Self::TooMuchText { .. } => None,
        }
    }
}

/// The text of a page's elements, each written once and then copied.
#[derive(Debug)]
pub struct PageText<'t> {
    tree: &'t Tree,
    order: Order,
    /// Text written so far.
    written: String,
    /// For each element, the range of its attributes' representation (or of a `text` element's words), once
    /// it is known.
    spoken: Vec<(u32, u32)>,
}

impl<'t> PageText<'t> {
    /// Prepares the text of a page.
    pub fn new(tree: &'t Tree) -> Self {
        let spoken = vec![(NONE, NONE); tree.len()];
        Self { tree, order: Order::of(tree), written: String::new(), spoken }
    }

    /// The view as text.
    ///
    /// # Errors
    /// Fails if a `text` element is empty.
    pub fn tree_text(
        &mut self,
        view: &View<'t>,
        numbers: &mut IdNumbers,
        brackets: Brackets,
    ) -> Result<String, TextError> {
        self.text_of(view, 0, None, numbers, brackets)
    }

    /// The elements that kept their ids, in document order, each with the first ten words of its text.
    ///
    /// # Errors
    /// Fails if a `text` element is empty.
    pub fn choices(
        &mut self,
        view: &View<'t>,
        numbers: &mut IdNumbers,
        brackets: Brackets,
    ) -> Result<Vec<(String, String)>, TextError> {
        let mut choices = Vec::new();
        for (place, entry) in view.entries.iter().enumerate().filter(|(_, entry)| entry.keeps_ident) {
            let text = self.text_of(view, place, None, numbers, brackets)?;
            let text = text.split(' ').take(10).collect::<Vec<_>>().join(" ");
            choices.push((self.tree.ident(self.tree.node(entry.node).ident).to_owned(), text));
        }
        Ok(choices)
    }

    /// The text of the element at an index; `cut` is the index of an element to leave out.
    pub(super) fn text_of(
        &mut self,
        view: &View<'t>,
        place: usize,
        cut: Option<usize>,
        numbers: &mut IdNumbers,
        brackets: Brackets,
    ) -> Result<String, TextError> {
        let tree = self.tree;
        let mut text = String::new();
        let mut open: Vec<usize> = Vec::new();
        let (mut at, end) = (place, view.entries[place].end as usize);
        loop {
            while let Some(inner) = open.pop_if(|inner| at >= view.entries[*inner].end as usize) {
                match brackets {
                    Brackets::Round => text.push(')'),
                    Brackets::Angle => {
                        text.push_str("</");
                        text.push_str(tree.name(view.node(inner)));
                        text.push('>');
                    }
                }
                push_characters(&mut text, tree.characters(view.node(inner).tail));
            }
            if at >= end {
                break;
            }
            let entry = view.entries[at];
            if cut == Some(at) {
                at = entry.end as usize;
                continue;
            }
            let node = tree.node(entry.node);
            if is_ambiguous(tree, node, at + 1 < entry.end as usize) {
                return literal::text_of(view, place, cut, numbers, brackets, &self.order);
            }
            if node.is_text {
                if node.text.is_empty() {
                    return Err(TextError::EmptyText);
                }
                text.push_str(self.words(entry.node, node));
                push_characters(&mut text, tree.characters(node.tail));
                at += 1;
                continue;
            }
            text.push(if brackets == Brackets::Round { '(' } else { '<' });
            text.push_str(tree.name(node));
            if entry.keeps_ident {
                let number = numbers.number(tree.ident(node.ident));
                text.push_str(&format!(" id={number} "));
            }
            text.push_str(self.attributes(entry.node, node));
            let cut_is_only_child =
                cut.is_some_and(|cut| cut == at + 1 && view.entries[cut].end == entry.end);
            let childless = at + 1 == entry.end as usize || cut_is_only_child;
            if childless && node.text.is_empty() {
                text.push_str(match brackets {
                    Brackets::Angle => "/>",
                    // After `$/`, the first match of the mark starts in the text before it.
                    Brackets::Round if text.ends_with("$/") => literal::MARK,
                    Brackets::Round => ")",
                });
                push_characters(&mut text, tree.characters(node.tail));
                at = entry.end as usize;
                continue;
            }
            if text.ends_with(' ') {
                text.pop();
            }
            match brackets {
                Brackets::Angle => text.push('>'),
                // The original treats any `/>` as the end of an element.
                Brackets::Round if text.ends_with('/') => {
                    text.pop();
                    text.push_str(literal::MARK);
                }
                Brackets::Round => {}
            }
            push_characters(&mut text, tree.characters(node.text));
            open.push(at);
            at += 1;
        }
        if brackets == Brackets::Round && text.contains(literal::MARK) {
            text = text.replace(literal::MARK, ")");
        }
        Ok(collapse(&literal::without_entities(text)))
    }

    /// The first words of a `text` element.
    fn words(&mut self, index: u32, node: &Node) -> &str {
        let tree = self.tree;
        self.speak(index, || {
            let words = tree.characters(node.text).split(is_space).filter(|word| !word.is_empty());
            let mut text = String::new();
            push_characters(&mut text, &words.take(WORDS_OF_TEXT).collect::<Vec<_>>().join(" "));
            text
        })
    }

    /// The representation of an element's attributes, with a blank before and after it.
    fn attributes(&mut self, index: u32, node: &Node) -> &str {
        if self.spoken[index as usize].0 == NONE {
            let said = self.order.write(self.tree, node);
            let said =
                if said.is_empty() { said } else { literal::without_names(&format!(" meta= {said} ")) };
            return self.speak(index, || said);
        }
        self.speak(index, String::new)
    }

    fn speak(&mut self, index: u32, write: impl FnOnce() -> String) -> &str {
        let spoken = &mut self.spoken[index as usize];
        if spoken.0 == NONE {
            let start = self.written.len() as u32;
            self.written.push_str(&write());
            *spoken = (start, self.written.len() as u32);
        }
        &self.written[spoken.0 as usize..spoken.1 as usize]
    }
}

/// Whether replacements in the XML may differ from replacements in its pieces.
fn is_ambiguous(tree: &Tree, node: &Node, has_children: bool) -> bool {
    let in_text = node.is_text && (has_children || Tree::other_attributes(node) > 0);
    let has_return = |text: &str| text.contains('\r');
    in_text
        || has_return(tree.characters(node.tail))
        || (!node.is_text && has_return(tree.characters(node.text)))
}

/// Writes characters as the original leaves them. White space alone becomes one blank.
fn push_characters(text: &mut String, characters: &str) {
    if characters.is_empty() {
        return;
    }
    if characters.bytes().all(|byte| matches!(byte, b' ' | b'\n' | b'\t')) {
        text.push(' ');
    } else if characters.bytes().any(|byte| matches!(byte, b'"' | b'=')) {
        text.push_str(&literal::without_names(&characters.replace('"', " ")));
    } else {
        text.push_str(characters);
    }
}

/// Collapses runs of white space to one blank and trims the result.
pub(super) fn collapse(text: &str) -> String {
    let mut collapsed = String::with_capacity(text.len());
    for word in text.split(is_space).filter(|word| !word.is_empty()) {
        if !collapsed.is_empty() {
            collapsed.push(' ');
        }
        collapsed.push_str(word);
    }
    collapsed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dom::{PruneLimits, Pruner};

    /// Pages of a few elements whose texts and attributes look like the replaced marks.
    fn element() -> impl Strategy<Value = String> {
        let words =
            "(meta= |id= |id=| &gt;|/|\\$/\\$|\\$|&amp;|&lt;|lt;|gt;|&amp;nbsp;|\\(|\\)|nbsp;|a|B | ){0,6}";
        let leaf = prop_oneof![
            words.prop_map(|words| format!("<text>x{words}</text>")),
            words.prop_map(|words| format!("<a title=\"{words}\"/>")),
            Just("<b/>".to_owned()),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            (proptest::collection::vec(inner, 0..4), words, words, "(a|text|p)").prop_map(
                |(children, title, tail, name)| {
                    format!(
                        "<{name} backend_node_id=\"7\" title=\"{title}\">{}</{name}>{tail}",
                        children.concat()
                    )
                },
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn writing_at_once_is_replacing_in_the_xml(children in proptest::collection::vec(element(), 0..4)) {
            let page = format!("<html backend_node_id=\"1\">{}</html>", children.concat());
            let tree = Tree::parse(&page).unwrap();
            let Ok(view) = Pruner::new(&tree).prune(&["1"], PruneLimits::default()) else { return Ok(()) };
            for brackets in [Brackets::Round, Brackets::Angle] {
                let (mut ours, mut theirs) = (IdNumbers::default(), IdNumbers::default());
                let written = PageText::new(&tree).tree_text(&view, &mut ours, brackets);
                let replaced = literal::text_of(&view, 0, None, &mut theirs, brackets, &Order::of(&tree));
                prop_assert_eq!(written, replaced, "{}", page);
            }
        }
    }
}
