//! Prunes a page to the surroundings of some candidates (upstream `prune_tree` in `dom_utils.py` of
//! Mind2Web).

use super::text::TextError;
use super::tree::{NONE, Tree};
use super::view::{Entry, View, spliced};

/// Limits on the elements that are kept around a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneLimits {
    /// Depth below the candidate's children to which descendants are kept.
    pub depth: u32,
    /// Number of descendants to keep.
    pub descendants: usize,
    /// Number of siblings to keep on either side.
    pub siblings: usize,
}

impl Default for PruneLimits {
    /// The original's limits.
    fn default() -> Self {
        Self { depth: 5, descendants: 50, siblings: 3 }
    }
}

/// Prunes a page repeatedly, each time around different candidates, without visiting the whole page.
#[derive(Debug)]
pub struct Pruner<'t> {
    tree: &'t Tree,
    /// The round in which an id was last kept.
    kept_idents: Vec<u32>,
    candidates: Vec<u32>,
    /// The round in which an element was last kept, and its index in that round.
    kept_nodes: Vec<(u32, u32)>,
    round: u32,
    idents: Vec<u32>,
    nodes: Vec<u32>,
}

impl<'t> Pruner<'t> {
    /// Prepares to prune a page.
    pub fn new(tree: &'t Tree) -> Self {
        Self {
            tree,
            kept_idents: vec![0; tree.idents()],
            candidates: vec![0; tree.idents()],
            kept_nodes: vec![(0, 0); tree.len()],
            round: 0,
            idents: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// The part of the page around the candidates with these ids. Candidates keep their ids, all other
    /// elements lose theirs. An element without attributes and text of its own is replaced by its only child.
    ///
    /// # Errors
    /// Fails if no element has one of the ids, if one belongs to a `text` element, or if the root is a `text`
    /// element.
    pub fn prune(&mut self, candidates: &[&str], limits: PruneLimits) -> Result<View<'t>, TextError> {
        let tree = self.tree;
        self.round += 1;
        self.idents.clear();
        self.nodes.clear();
        for id in candidates {
            let ident = tree.ident_number(id).filter(|ident| tree.find(*ident) != NONE && !id.is_empty());
            let ident = ident.ok_or_else(|| TextError::NoSuchElement((*id).to_owned()))?;
            self.candidates[ident as usize] = self.round;
            let candidate = tree.find(ident);
            if tree.node(candidate).is_text && tree.node(candidate).parent != NONE {
                return Err(TextError::CandidateIsText((*id).to_owned()));
            }
            self.keep_around(candidate, limits);
        }
        if tree.node(0).is_text {
            return Err(TextError::RootIsText);
        }
        Ok(self.view())
    }

    /// Number of elements that the last call of [`prune`](Self::prune) visited, also those that it dropped.
    pub(super) fn visited(&self) -> usize {
        self.nodes.len()
    }

    fn keep(&mut self, node: u32) {
        let ident = self.tree.node(node).ident;
        if self.kept_idents[ident as usize] != self.round {
            self.kept_idents[ident as usize] = self.round;
            self.idents.push(ident);
        }
    }

    /// Keeps a candidate, its ancestors, its first descendants and its siblings.
    fn keep_around(&mut self, candidate: u32, limits: PruneLimits) {
        let tree = self.tree;
        self.keep(candidate);
        let mut above = tree.node(candidate).parent;
        while above != NONE {
            self.keep(above);
            above = tree.node(above).parent;
        }
        let node = tree.node(candidate);
        let deepest = node.depth + 1 + limits.depth;
        let (mut at, mut left) = (candidate + 1, limits.descendants);
        while at < node.end && left > 0 {
            self.keep(at);
            left -= 1;
            let descendant = tree.node(at);
            at = if descendant.depth == deepest { descendant.end } else { at + 1 };
        }
        for step in [|tree: &Tree, at| tree.node(at).previous, |tree: &Tree, at| tree.node(at).next] {
            let mut beside = step(tree, candidate);
            for _ in 0..limits.siblings {
                if beside == NONE {
                    break;
                }
                self.keep(beside);
                beside = step(tree, beside);
            }
        }
    }

    fn view(&mut self) -> View<'t> {
        let (tree, round) = (self.tree, self.round);
        for ident in &self.idents {
            self.nodes.extend(tree.elements_named(*ident));
        }
        // The root is never removed, and an element's texts are removed with it.
        if self.kept_idents[tree.node(0).ident as usize] != round {
            self.nodes.push(0);
        }
        let mut at = 0;
        while let Some(node) = self.nodes.get(at).map(|index| tree.node(*index)) {
            if self.kept_idents[node.ident as usize] == round {
                self.nodes.extend(tree.text_children(node));
            }
            at += 1;
        }
        self.nodes.sort_unstable();
        let mut kept: Vec<Entry> = Vec::with_capacity(self.nodes.len());
        for index in &self.nodes {
            let node = tree.node(*index);
            // The contents of an element that is not kept are removed with it.
            if node.parent != NONE && self.kept_nodes[node.parent as usize].0 != round {
                continue;
            }
            self.kept_nodes[*index as usize] = (round, kept.len() as u32);
            let keeps_ident =
                !node.is_text && node.has_ident && self.candidates[node.ident as usize] == round;
            kept.push(Entry { node: *index, end: 0, keeps_ident });
        }
        let parent = |place: usize| {
            let parent = tree.node(kept[place].node).parent;
            (parent != NONE).then(|| self.kept_nodes[parent as usize].1 as usize)
        };
        let node = |place: usize| tree.node(kept[place].node);
        let plain = |place: usize| Tree::other_attributes(node(place)) == 0 && !kept[place].keeps_ident;
        let spliced = spliced(&kept, parent, |place| node(place).is_text, plain);
        View::settle(tree, &kept, &spliced)
    }
}
