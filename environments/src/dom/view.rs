//! What is left of a page when it is pruned: some of its elements, in document order.

use super::tree::{Node, Tree};

/// One element of a [`View`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// The element's number in the page.
    pub(super) node: u32,
    /// The place behind its last descendant.
    pub(super) end: u32,
    /// Whether it keeps its id.
    pub(super) keeps_ident: bool,
}

/// Elements of a page, each in the place of the one it stands in; the root is the first.
#[derive(Debug, Clone)]
pub struct View<'t> {
    pub(super) tree: &'t Tree,
    pub(super) entries: Vec<Entry>,
}

impl<'t> View<'t> {
    /// All of a page.
    pub(super) fn whole(tree: &'t Tree) -> Self {
        let entry =
            |(index, node): (usize, &Node)| Entry { node: index as u32, end: node.end, keeps_ident: true };
        Self { tree, entries: tree.nodes().iter().enumerate().map(entry).collect() }
    }

    pub(super) fn node(&self, place: usize) -> &'t Node {
        self.tree.node(self.entries[place].node)
    }

    /// Puts elements into their places: `kept` are in document order with `end` unset; those that are `spliced` give
    /// their place to their only child.
    pub(super) fn settle(tree: &'t Tree, kept: &[Entry], spliced: &[bool]) -> Self {
        let mut entries: Vec<Entry> = Vec::with_capacity(kept.len());
        // The elements around the one at hand, outermost first: number and place, which those that are spliced lack.
        let mut around: Vec<(u32, Option<usize>)> = Vec::new();
        let close = |entries: &mut Vec<Entry>, around: &mut Vec<(u32, Option<usize>)>, before: u32| {
            while let Some((_, place)) = around.pop_if(|(node, _)| before >= tree.node(*node).end) {
                let end = entries.len() as u32;
                if let Some(entry) = place.and_then(|place| entries.get_mut(place)) {
                    entry.end = end;
                }
            }
        };
        for (entry, spliced) in kept.iter().zip(spliced) {
            close(&mut entries, &mut around, entry.node);
            around.push((entry.node, (!spliced).then_some(entries.len())));
            if !spliced {
                entries.push(*entry);
            }
        }
        close(&mut entries, &mut around, u32::MAX);
        Self { tree, entries }
    }
}

/// Which elements have nothing to say and give their place to their only child, if any: those `plain` ones without a
/// `text` child and with at most one child. Decided from the last element to the first, as the original does, so that
/// children have been decided before. `kept` are in document order; `parent` gives the place of a place's parent.
pub(super) fn spliced(
    kept: &[Entry],
    parent: impl Fn(usize) -> Option<usize>,
    is_text: impl Fn(usize) -> bool,
    plain: impl Fn(usize) -> bool,
) -> Vec<bool> {
    let mut children = vec![0u32; kept.len()];
    let mut texts = vec![false; kept.len()];
    let mut spliced = vec![false; kept.len()];
    for place in (0..kept.len()).rev() {
        let Some(above) = parent(place) else { continue };
        let is_text = is_text(place);
        spliced[place] = !is_text && !texts[place] && children[place] <= 1 && plain(place);
        texts[above] |= is_text;
        children[above] += if spliced[place] { children[place] } else { 1 };
    }
    spliced
}
