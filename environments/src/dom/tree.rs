//! A page as a compact tree: elements in document order, all text in one string.
//!
//! [`Builder`] creates a [`Tree`] while the page is parsed; other crates read its elements as [`Piece`]s. Names
//! and ids are numbered, and nodes refer to each other by index, so that pruning and writing need no copies of the
//! page.

use std::collections::HashMap;

/// The attribute that contains an element's id.
pub(super) const IDENT: &str = "backend_node_id";
/// The name of the elements that contain the page's text.
pub(super) const TEXT: &str = "text";
/// No element.
pub(super) const NONE: u32 = u32::MAX;

/// A piece of [`Tree::characters`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }
}

/// One element. Elements are numbered in document order, so an element's descendants are the following
/// elements up to its `end`.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// The number of its name.
    pub(super) name: u32,
    /// The number of its id; 0 for the empty id of elements without one.
    pub(super) ident: u32,
    pub(super) parent: u32,
    pub(super) end: u32,
    pub(super) depth: u32,
    /// The range of its attributes, including the id.
    pub(super) attributes: (u32, u32),
    /// Whether one of the attributes is the id.
    pub(super) has_ident: bool,
    pub(super) is_text: bool,
    /// Characters before its first child.
    pub(super) text: Span,
    /// Characters after it.
    pub(super) tail: Span,
    /// Its first child that is a `text` element.
    pub(super) first_text: u32,
    /// The next sibling that is also a `text` element.
    pub(super) next_text: u32,
    /// The siblings before and after it that are not `text` elements.
    pub(super) previous: u32,
    pub(super) next: u32,
    /// The next element with the same id that is not a `text` element.
    pub(super) namesake: u32,
}

/// One attribute: the number of its name, and its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute {
    pub(super) name: u32,
    pub(super) value: Span,
}

/// A parsed page. It is never changed: pruning creates a [`View`](super::view::View).
#[derive(Debug, Clone, Default)]
pub struct Tree {
    nodes: Vec<Node>,
    attributes: Vec<Attribute>,
    characters: String,
    names: Vec<Box<str>>,
    idents: Vec<Box<str>>,
    ident_numbers: HashMap<Box<str>, u32>,
    /// The first element of each id, `text` elements included.
    first: Vec<u32>,
    /// The first element of each id that is not a `text` element.
    first_element: Vec<u32>,
}

impl Tree {
    /// Number of elements in the page.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the page has no elements; a parsed page always has some.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The id of each element that has one and is not a `text` element, in document order.
    pub(super) fn element_ids(&self) -> impl Iterator<Item = &str> {
        let elements = self.nodes.iter().filter(|node| node.has_ident && !node.is_text);
        elements.map(|node| self.ident(node.ident))
    }

    /// All elements in document order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        (0..self.nodes().len() as u32).map(|index| Piece { tree: self, index })
    }

    pub(super) fn node(&self, index: u32) -> &Node {
        &self.nodes[index as usize]
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn name(&self, node: &Node) -> &str {
        self.name_of(node.name)
    }

    pub(super) fn name_of(&self, name: u32) -> &str {
        &self.names[name as usize]
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }

    pub(super) fn ident(&self, ident: u32) -> &str {
        &self.idents[ident as usize]
    }

    pub(super) fn idents(&self) -> usize {
        self.idents.len()
    }

    pub(super) fn ident_number(&self, ident: &str) -> Option<u32> {
        self.ident_numbers.get(ident).copied()
    }

    /// The first element with the id.
    pub(super) fn find(&self, ident: u32) -> u32 {
        self.first.get(ident as usize).copied().unwrap_or(NONE)
    }

    /// The elements with the id that are not `text` elements, in document order.
    pub(super) fn elements_named(&self, ident: u32) -> impl Iterator<Item = u32> {
        let first = self.first_element.get(ident as usize).copied().unwrap_or(NONE);
        chain(first, |index| self.node(index).namesake)
    }

    /// The `text` elements among a node's children, in document order.
    pub(super) fn text_children(&self, node: &Node) -> impl Iterator<Item = u32> {
        chain(node.first_text, |index| self.node(index).next_text)
    }

    pub(super) fn attributes(&self, node: &Node) -> &[Attribute] {
        &self.attributes[node.attributes.0 as usize..node.attributes.1 as usize]
    }

    pub(super) fn characters(&self, span: Span) -> &str {
        &self.characters[span.start as usize..span.end as usize]
    }

    /// Number of an element's attributes without its id.
    pub(super) fn other_attributes(node: &Node) -> u32 {
        node.attributes.1 - node.attributes.0 - u32::from(node.has_ident)
    }
}

/// One element of a page, for code that rebuilds the page.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'t> {
    tree: &'t Tree,
    index: u32,
}

impl<'t> Piece<'t> {
    /// The index of the parent element; `None` for the root.
    pub fn parent(self) -> Option<u32> {
        let parent = self.tree.node(self.index).parent;
        (parent != NONE).then_some(parent)
    }

    /// The element's name.
    pub fn name(self) -> &'t str {
        self.tree.name(self.tree.node(self.index))
    }

    /// The attributes by name, including the id.
    pub fn attributes(self) -> impl Iterator<Item = (&'t str, &'t str)> {
        let tree = self.tree;
        let attributes = tree.attributes(tree.node(self.index)).iter();
        attributes.map(move |attribute| (tree.name_of(attribute.name), tree.characters(attribute.value)))
    }

    /// The characters before its first child.
    pub fn text(self) -> &'t str {
        self.tree.characters(self.tree.node(self.index).text)
    }

    /// The characters after the element.
    pub fn tail(self) -> &'t str {
        self.tree.characters(self.tree.node(self.index).tail)
    }
}

/// Follows a linked list of elements.
fn chain(first: u32, next: impl Fn(u32) -> u32) -> impl Iterator<Item = u32> {
    let some = |index: u32| (index != NONE).then_some(index);
    std::iter::successors(some(first), move |index| some(next(*index)))
}

/// Builds a tree, element by element in document order.
#[derive(Debug)]
pub(super) struct Builder {
    tree: Tree,
    name_numbers: HashMap<Box<str>, u32>,
    open: Vec<Open>,
    /// The last element of each id that is not a `text` element.
    last_element: Vec<u32>,
    /// The element that was closed last; following characters become its tail.
    closed: u32,
}

#[derive(Debug)]
struct Open {
    index: u32,
    last_text: u32,
    last_element: u32,
}

impl Builder {
    pub(super) fn new() -> Self {
        let mut builder = Self {
            tree: Tree::default(),
            name_numbers: HashMap::new(),
            open: Vec::new(),
            last_element: Vec::new(),
            closed: NONE,
        };
        builder.ident("");
        builder
    }

    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    pub(super) fn elements(&self) -> usize {
        self.tree.nodes.len()
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(number) = self.name_numbers.get(name) {
            return *number;
        }
        let number = self.tree.names.len() as u32;
        self.tree.names.push(name.into());
        self.name_numbers.insert(name.into(), number);
        number
    }

    fn ident(&mut self, ident: &str) -> u32 {
        if let Some(number) = self.tree.ident_numbers.get(ident) {
            return *number;
        }
        let number = self.tree.idents.len() as u32;
        self.tree.idents.push(ident.into());
        self.tree.ident_numbers.insert(ident.into(), number);
        self.tree.first.push(NONE);
        self.tree.first_element.push(NONE);
        self.last_element.push(NONE);
        number
    }

    fn push(&mut self, text: &str) -> Span {
        let start = self.tree.characters.len() as u32;
        self.tree.characters.push_str(text);
        Span { start, end: self.tree.characters.len() as u32 }
    }

    /// Opens an element below the currently open one.
    pub(super) fn open(&mut self, name: &str) {
        let index = self.tree.nodes.len() as u32;
        let is_text = name == TEXT;
        let name = self.name(name);
        let attributes = self.tree.attributes.len() as u32;
        let mut node = Node {
            name,
            ident: 0,
            parent: NONE,
            end: index + 1,
            depth: self.open.len() as u32,
            attributes: (attributes, attributes),
            has_ident: false,
            is_text,
            text: Span::default(),
            tail: Span::default(),
            first_text: NONE,
            next_text: NONE,
            previous: NONE,
            next: NONE,
            namesake: NONE,
        };
        if let Some(parent) = self.open.last_mut() {
            node.parent = parent.index;
            let nodes = &mut self.tree.nodes;
            if is_text {
                match parent.last_text {
                    NONE => nodes[parent.index as usize].first_text = index,
                    last => nodes[last as usize].next_text = index,
                }
                parent.last_text = index;
            } else {
                if parent.last_element != NONE {
                    node.previous = parent.last_element;
                    nodes[parent.last_element as usize].next = index;
                }
                parent.last_element = index;
            }
        }
        self.tree.nodes.push(node);
        self.open.push(Open { index, last_text: NONE, last_element: NONE });
        self.closed = NONE;
    }

    /// Adds an attribute to the element that was just opened.
    pub(super) fn attribute(&mut self, name: &str, value: &str) {
        if name == IDENT {
            let ident = self.ident(value);
            if let Some(node) = self.tree.nodes.last_mut() {
                node.ident = ident;
                node.has_ident = true;
            }
        }
        let name = self.name(name);
        let value = self.push(value);
        self.tree.attributes.push(Attribute { name, value });
        if let Some(node) = self.tree.nodes.last_mut() {
            node.attributes.1 += 1;
        }
    }

    /// Marks the attributes of the element that was just opened as complete.
    pub(super) fn opened(&mut self) {
        let Some(index) = self.tree.nodes.len().checked_sub(1) else { return };
        let (ident, is_text) = (self.tree.nodes[index].ident as usize, self.tree.nodes[index].is_text);
        let index = index as u32;
        if self.tree.first[ident] == NONE {
            self.tree.first[ident] = index;
        }
        if !is_text {
            match self.last_element[ident] {
                NONE => self.tree.first_element[ident] = index,
                last => self.tree.nodes[last as usize].namesake = index,
            }
            self.last_element[ident] = index;
        }
    }

    /// Adds characters at the current position.
    pub(super) fn characters(&mut self, text: &str) {
        let Some(parent) = self.open.last().map(|open| open.index) else { return };
        let added = self.push(text);
        let node = if self.closed == NONE { parent } else { self.closed };
        let node = &mut self.tree.nodes[node as usize];
        let span = if self.closed == NONE { &mut node.text } else { &mut node.tail };
        if span.is_empty() {
            *span = added;
        } else {
            // The ranges are adjacent: attributes are only written with an element.
            span.end = added.end;
        }
    }

    /// Closes the open element.
    pub(super) fn close(&mut self) {
        if let Some(open) = self.open.pop() {
            self.tree.nodes[open.index as usize].end = self.tree.nodes.len() as u32;
            self.closed = open.index;
        }
    }

    pub(super) fn finish(self) -> Tree {
        self.tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_in_document_order_with_all_their_characters() {
        let tree = Tree::parse("<a x='1' backend_node_id='2'>b<c>d&amp;</c>e<f/>g</a>").unwrap();
        let pieces: Vec<_> = tree
            .pieces()
            .map(|piece| {
                (piece.parent(), piece.name(), piece.attributes().count(), piece.text(), piece.tail())
            })
            .collect();
        let expected = [(None, "a", 2, "b", ""), (Some(0), "c", 0, "d&", "e"), (Some(0), "f", 0, "", "g")];
        assert_eq!(pieces, expected);
    }
}
