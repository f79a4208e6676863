//! Iterates over a page's elements, for code that rebuilds the page.

use super::tree::{NONE, Tree};

/// One element of a page.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'t> {
    tree: &'t Tree,
    index: u32,
}

impl Tree {
    /// All elements in document order.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        (0..self.nodes().len() as u32).map(|index| Piece { tree: self, index })
    }
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
