//! Index of published blocks by their tokens: bookkeeping without storage.
//!
//! [`PrefixIndex`] is a tree of blocks whose edges are the tokens of a block. It counts the sequences that hold each block
//! and chooses blocks to evict. [`Pool`](super::Pool) owns the pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// Identifies a published block. An id is reused after its block was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId(u32);

impl BlockId {
    /// The id as an index; ids count from 0.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Blocks that follow the same block, by their tokens.
type Children = BTreeMap<Arc<[u32]>, BlockId>;

struct Entry {
    parent: Option<BlockId>,
    tokens: Arc<[u32]>,
    /// Sequences that hold the block.
    holders: u32,
    /// Published blocks that continue it.
    children: Children,
    /// Clock value of the last hold or release.
    used: u64,
}

/// Finds blocks by their contents: their own tokens and, through their parents, all preceding tokens.
#[derive(Default)]
pub(crate) struct PrefixIndex {
    /// Blocks without a parent.
    roots: Children,
    entries: Vec<Option<Entry>>,
    vacant: Vec<BlockId>,
    /// Blocks without holders and children, least recently used first.
    leaves: BTreeSet<(u64, BlockId)>,
    /// Number of blocks without holders.
    idle: usize,
    clock: u64,
}

impl PrefixIndex {
    /// Number of published blocks.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    /// Number of blocks without holders. All of them can be evicted, one after the other.
    pub(crate) fn idle(&self) -> usize {
        self.idle
    }

    /// Whether a sequence holds the block.
    pub(crate) fn is_held(&self, id: BlockId) -> bool {
        self.entry(id).holders > 0
    }

    /// Finds the block with exactly these tokens after `parent`.
    pub(crate) fn find(&self, parent: Option<BlockId>, tokens: &[u32]) -> Option<BlockId> {
        self.children(parent).get(tokens).copied()
    }

    /// Finds the block after `parent` whose first tokens equal most of the first of `tokens`, and their number, which is
    /// at least 1.
    pub(crate) fn find_longest(&self, parent: Option<BlockId>, tokens: &[u32]) -> Option<(BlockId, usize)> {
        let children = self.children(parent);
        // In order of their tokens, those that have most in common with `tokens` are next to it.
        let before = children.range::<[u32], _>((Bound::Unbounded, Bound::Included(tokens))).next_back();
        let after = children.range::<[u32], _>((Bound::Excluded(tokens), Bound::Unbounded)).next();
        let common = |(own, id): (&Arc<[u32]>, &BlockId)| {
            (*id, own.iter().zip(tokens).take_while(|(own, other)| own == other).count())
        };
        let found = before.into_iter().chain(after).map(common).max_by_key(|(_, count)| *count);
        found.filter(|(_, count)| *count > 0)
    }

    /// Adds a block with one holder. [`find`](Self::find) must not return it yet, and that holder must hold
    /// `parent` too.
    pub(crate) fn insert(&mut self, parent: Option<BlockId>, tokens: &[u32]) -> BlockId {
        let tokens: Arc<[u32]> = tokens.into();
        let used = self.tick();
        let entry = Entry { parent, tokens: tokens.clone(), holders: 1, children: Children::new(), used };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            BlockId(u32::try_from(self.entries.len() - 1).expect("fewer than 2³² blocks fit in memory"))
        });
        self.entries[id.index()] = Some(entry);
        self.children_mut(parent).insert(tokens, id);
        id
    }

    /// Adds one holder to the block, which counts as used now.
    pub(crate) fn hold(&mut self, id: BlockId) {
        self.pin(id);
        let used = self.tick();
        self.entry_mut(id).used = used;
    }

    /// Removes one holder from each of the blocks; all of them count as used now.
    pub(crate) fn release(&mut self, blocks: &[BlockId]) {
        let used = self.tick();
        for id in blocks {
            self.entry_mut(*id).used = used;
            self.unpin(*id);
        }
    }

    /// Adds one holder to the block, without a use.
    pub(crate) fn pin(&mut self, id: BlockId) {
        let entry = self.entry_mut(id);
        entry.holders += 1;
        if entry.holders == 1 {
            let leaf = (entry.used, id);
            self.idle -= 1;
            self.leaves.remove(&leaf);
        }
    }

    /// Removes one holder from the block, without a use.
    pub(crate) fn unpin(&mut self, id: BlockId) {
        let entry = self.entry_mut(id);
        entry.holders -= 1;
        if entry.holders == 0 {
            let leaf = entry.children.is_empty().then_some((entry.used, id));
            self.idle += 1;
            self.leaves.extend(leaf);
        }
    }

    /// Evicts the least recently used block without holders and children.
    pub(crate) fn evict(&mut self) -> Option<BlockId> {
        let (_, id) = self.leaves.pop_first()?;
        let entry = self.entries[id.index()].take()?;
        self.idle -= 1;
        self.vacant.push(id);
        self.children_mut(entry.parent).remove(&entry.tokens);
        if let Some(parent) = entry.parent {
            let entry = self.entry(parent);
            if entry.holders == 0 && entry.children.is_empty() {
                let leaf = (entry.used, parent);
                self.leaves.insert(leaf);
            }
        }
        Some(id)
    }

    /// Panics if the bookkeeping is inconsistent; `holders` gives the number of sequences that hold each
    /// block.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self, holders: &std::collections::HashMap<BlockId, u32>) {
        let mut children: BTreeMap<Option<BlockId>, Children> = BTreeMap::new();
        let all = || self.entries.iter().enumerate().filter_map(|(id, entry)| Some((id, entry.as_ref()?)));
        for (id, entry) in all() {
            children.entry(entry.parent).or_default().insert(entry.tokens.clone(), BlockId(id as u32));
        }
        assert_eq!(self.roots, children.remove(&None).unwrap_or_default(), "blocks without a parent");
        let (mut idle, mut leaves, mut count) = (0, 0, 0);
        for (id, entry) in all() {
            let id = BlockId(id as u32);
            count += 1;
            assert_eq!(entry.holders, holders.get(&id).copied().unwrap_or(0), "holders of {id:?}");
            assert_eq!(entry.children, children.remove(&Some(id)).unwrap_or_default(), "children of {id:?}");
            assert!(entry.parent.is_none_or(|parent| self.entry(parent).holders >= entry.holders));
            idle += usize::from(entry.holders == 0);
            let leaf = entry.holders == 0 && entry.children.is_empty();
            leaves += usize::from(leaf);
            assert_eq!(self.leaves.contains(&(entry.used, id)), leaf, "whether {id:?} is a leaf");
        }
        assert_eq!((idle, leaves, count), (self.idle, self.leaves.len(), self.len()));
        assert!(children.is_empty(), "an evicted block has children");
        assert!(holders.keys().all(|id| self.entries[id.index()].is_some()), "an evicted block is held");
    }

    fn children(&self, parent: Option<BlockId>) -> &Children {
        parent.map_or(&self.roots, |parent| &self.entry(parent).children)
    }

    fn children_mut(&mut self, parent: Option<BlockId>) -> &mut Children {
        match parent {
            Some(parent) => &mut self.entry_mut(parent).children,
            None => &mut self.roots,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn entry(&self, id: BlockId) -> &Entry {
        self.entries[id.index()].as_ref().expect("a block that is named is published")
    }

    fn entry_mut(&mut self, id: BlockId) -> &mut Entry {
        self.entries[id.index()].as_mut().expect("a block that is named is published")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_found_by_tokens_and_parent() {
        let mut index = PrefixIndex::default();
        let first = index.insert(None, &[1, 2]);
        let other = index.insert(None, &[3, 4]);
        let after_first = index.insert(Some(first), &[5, 6]);
        assert_eq!(index.find(None, &[1, 2]), Some(first));
        assert_eq!(index.find(None, &[3, 4]), Some(other));
        assert_eq!(index.find(Some(first), &[5, 6]), Some(after_first));
        // Equal tokens after a different parent are different content.
        assert_eq!(index.find(Some(other), &[5, 6]), None);
        assert_eq!(index.find(None, &[5, 6]), None);
        assert_eq!(index.find(Some(first), &[5, 7]), None);
        assert_eq!(index.find_longest(Some(first), &[5, 7]), Some((after_first, 1)));
        assert_eq!(index.find_longest(Some(first), &[6, 6]), None);
        assert_eq!(index.find_longest(Some(other), &[5, 6]), None);
    }

    #[test]
    fn the_least_recently_used_leaf_goes_first() {
        let mut index = PrefixIndex::default();
        let root = index.insert(None, &[1]);
        let old = index.insert(Some(root), &[2]);
        let young = index.insert(Some(root), &[3]);
        assert_eq!((index.evict(), index.idle()), (None, 0));
        index.release(&[old]);
        index.release(&[root, young]);
        assert_eq!(index.idle(), 3);
        index.hold(young);
        index.release(&[young]);
        assert_eq!(index.evict(), Some(old));
        assert_eq!(index.find(Some(root), &[2]), None);
        assert_eq!((index.evict(), index.evict(), index.evict()), (Some(young), Some(root), None));
        assert_eq!((index.len(), index.idle()), (0, 0));
    }

    proptest! {
        /// Compares the index with a plain list of contents.
        #[test]
        fn the_books_are_right(actions in prop::collection::vec((0u8..4, any::<u16>()), 1..200)) {
            let mut index = PrefixIndex::default();
            let mut sequences: Vec<Vec<BlockId>> = Vec::new();
            for (action, number) in actions {
                let number = usize::from(number);
                match action {
                    0 => sequences.push(Vec::new()),
                    1 if !sequences.is_empty() => {
                        let count = sequences.len();
                        let sequence = &mut sequences[number % count];
                        let (parent, tokens) = (sequence.last().copied(), [(number / count % 4) as u32]);
                        let id = match index.find(parent, &tokens) {
                            Some(id) => {
                                index.hold(id);
                                id
                            }
                            None => index.insert(parent, &tokens),
                        };
                        sequence.push(id);
                    }
                    2 if !sequences.is_empty() => {
                        let sequence = sequences.swap_remove(number % sequences.len());
                        index.release(&sequence);
                    }
                    _ => {
                        let before = (index.len(), index.idle());
                        match index.evict() {
                            Some(_) => prop_assert_eq!((index.len() + 1, index.idle() + 1), before),
                            None => prop_assert_eq!(before.1, 0),
                        }
                    }
                }
                let mut holders = std::collections::HashMap::new();
                for id in sequences.iter().flatten() {
                    *holders.entry(*id).or_default() += 1;
                }
                index.check(&holders);
            }
        }

        /// Compares the search with a comparison of all blocks.
        #[test]
        fn the_longest_common_beginning_is_found(
            blocks in prop::collection::btree_set(prop::collection::vec(0u32..3, 1..5), 0..20),
            tokens in prop::collection::vec(0u32..3, 0..5),
        ) {
            let mut index = PrefixIndex::default();
            let common = |block: &[u32]| block.iter().zip(&tokens).take_while(|(one, other)| one == other).count();
            let mut longest = 0;
            let mut by_id = std::collections::HashMap::new();
            for block in &blocks {
                longest = longest.max(common(block));
                by_id.insert(index.insert(None, block), block);
            }
            match index.find_longest(None, &tokens) {
                Some((id, count)) => prop_assert_eq!((count, common(by_id[&id])), (longest, longest)),
                None => prop_assert_eq!(longest, 0),
            }
        }
    }
}
