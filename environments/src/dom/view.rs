//! A pruned page: some of its elements, in document order.

use super::tree::{Node, Tree};

/// One element of a [`View`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// The element's number in the page.
    pub(super) node: u32,
    /// The index after its last descendant.
    pub(super) end: u32,
    /// Whether it keeps its id.
    pub(super) keeps_ident: bool,
}

/// Elements of a page in document order; the root is the first.
#[derive(Debug, Clone)]
pub struct View<'t> {
    pub(super) tree: &'t Tree,
    pub(super) entries: Vec<Entry>,
}

impl<'t> View<'t> {
    /// The whole page.
    pub(super) fn whole(tree: &'t Tree) -> Self {
        let entry =
            |(index, node): (usize, &Node)| Entry { node: index as u32, end: node.end, keeps_ident: true };
        Self { tree, entries: tree.nodes().iter().enumerate().map(entry).collect() }
    }

    pub(super) fn node(&self, place: usize) -> &'t Node {
        self.tree.node(self.entries[place].node)
    }

    /// Builds a view. `kept` is in document order with `end` unset; elements marked as `spliced` are replaced
    /// by their only child.
    pub(super) fn settle(tree: &'t Tree, kept: &[Entry], spliced: &[bool]) -> Self {
        let mut entries: Vec<Entry> = Vec::with_capacity(kept.len());
        // The ancestors of the current element, outermost first: number and index. Spliced elements have no
        // index.
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

/// Which elements have no information and are replaced by their only child, if any: `plain` ones without a
/// `text` child and with at most one child. As in the original, elements are decided from last to first, so
/// that children are decided before their parents. `kept` is in document order; `parent` returns the index of
/// an element's parent.
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
