//! Index of published blocks by their tokens: bookkeeping without storage.
//!
//! [`PrefixIndex`] maps chained hashes to blocks, counts the sequences that hold each block and chooses
//! blocks to evict. [`Pool`](super::Pool) owns the pages.

use std::collections::{BTreeSet, HashMap};

/// Identifies a published block. An id is reused after its block was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId(u32);

impl BlockId {
    /// The id as an index; ids count from 0.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

struct Entry {
    parent: Option<BlockId>,
    key: u64,
    tokens: Box<[u32]>,
    /// Sequences that hold the block.
    holders: u32,
    /// Published blocks that continue it.
    children: u32,
    /// Clock value of the last hold or release.
    used: u64,
}

/// Finds blocks by their contents: their own tokens and, through their parents, all preceding tokens.
///
/// Keys are chained hashes. A lookup also compares tokens and parent, so blocks whose keys collide are not
/// confused.
pub(crate) struct PrefixIndex {
    seed: u64,
    hash: fn(u64, &[u32]) -> u64,
    entries: Vec<Option<Entry>>,
    vacant: Vec<BlockId>,
    by_key: HashMap<u64, Vec<BlockId>>,
    /// Blocks without holders and children, least recently used first.
    leaves: BTreeSet<(u64, BlockId)>,
    /// Number of blocks without holders.
    idle: usize,
    clock: u64,
}

impl PrefixIndex {
    /// `seed` represents everything other than tokens that the content depends on.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            hash: chained,
            entries: Vec::new(),
            vacant: Vec::new(),
            by_key: HashMap::new(),
            leaves: BTreeSet::new(),
            idle: 0,
            clock: 0,
        }
    }

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

    /// Finds the block with these tokens after `parent`.
    pub(crate) fn find(&self, parent: Option<BlockId>, tokens: &[u32]) -> Option<BlockId> {
        let candidates = self.by_key.get(&self.key(parent, tokens))?;
        candidates.iter().copied().find(|id| {
            let entry = self.entry(*id);
            entry.parent == parent && *entry.tokens == *tokens
        })
    }

    /// Adds a block with one holder. [`find`](Self::find) must not return it yet, and that holder must hold
    /// `parent` too.
    pub(crate) fn insert(&mut self, parent: Option<BlockId>, tokens: &[u32]) -> BlockId {
        let key = self.key(parent, tokens);
        let used = self.tick();
        let entry = Entry { parent, key, tokens: tokens.into(), holders: 1, children: 0, used };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(None);
            BlockId(u32::try_from(self.entries.len() - 1).expect("fewer than 2³² blocks fit in memory"))
        });
        self.entries[id.index()] = Some(entry);
        if let Some(parent) = parent {
            self.entry_mut(parent).children += 1;
        }
        self.by_key.entry(key).or_default().push(id);
        id
    }

    /// Adds one holder to the block.
    pub(crate) fn hold(&mut self, id: BlockId) {
        let used = self.tick();
        let entry = self.entry_mut(id);
        let leaf = (entry.used, id);
        let was_idle = entry.holders == 0;
        entry.holders += 1;
        entry.used = used;
        if was_idle {
            self.idle -= 1;
            self.leaves.remove(&leaf);
        }
    }

    /// Removes one holder from each of the blocks; all of them count as used now.
    pub(crate) fn release(&mut self, blocks: &[BlockId]) {
        let used = self.tick();
        for id in blocks {
            let entry = self.entry_mut(*id);
            entry.holders -= 1;
            entry.used = used;
            if entry.holders == 0 {
                let leaf = entry.children == 0;
                self.idle += 1;
                if leaf {
                    self.leaves.insert((used, *id));
                }
            }
        }
    }

    /// Evicts the least recently used block without holders and children.
    pub(crate) fn evict(&mut self) -> Option<BlockId> {
        let (_, id) = self.leaves.pop_first()?;
        let entry = self.entries[id.index()].take()?;
        self.idle -= 1;
        self.vacant.push(id);
        if let Some(candidates) = self.by_key.get_mut(&entry.key) {
            candidates.retain(|candidate| *candidate != id);
            if candidates.is_empty() {
                self.by_key.remove(&entry.key);
            }
        }
        if let Some(parent) = entry.parent {
            let entry = self.entry_mut(parent);
            entry.children -= 1;
            if entry.holders == 0 && entry.children == 0 {
                let leaf = (entry.used, parent);
                self.leaves.insert(leaf);
            }
        }
        Some(id)
    }

    /// Panics if the bookkeeping is inconsistent; `holders` gives the number of sequences that hold each
    /// block.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check(&self, holders: &HashMap<BlockId, u32>) {
        let mut children: HashMap<BlockId, u32> = HashMap::new();
        let all = || self.entries.iter().enumerate().filter_map(|(id, entry)| Some((id, entry.as_ref()?)));
        for parent in all().filter_map(|(_, entry)| entry.parent) {
            *children.entry(parent).or_default() += 1;
        }
        let (mut idle, mut leaves, mut count) = (0, 0, 0);
        for (id, entry) in all() {
            let id = BlockId(id as u32);
            count += 1;
            assert_eq!(entry.holders, holders.get(&id).copied().unwrap_or(0), "holders of {id:?}");
            assert_eq!(entry.children, children.get(&id).copied().unwrap_or(0), "children of {id:?}");
            assert!(entry.parent.is_none_or(|parent| self.entry(parent).holders >= entry.holders));
            idle += usize::from(entry.holders == 0);
            let leaf = entry.holders == 0 && entry.children == 0;
            leaves += usize::from(leaf);
            assert_eq!(self.leaves.contains(&(entry.used, id)), leaf, "whether {id:?} is a leaf");
        }
        assert_eq!((idle, leaves, count), (self.idle, self.leaves.len(), self.len()));
        assert_eq!(self.by_key.values().map(Vec::len).sum::<usize>(), count);
        assert!(holders.keys().all(|id| self.entries[id.index()].is_some()), "an evicted block is held");
    }

    fn key(&self, parent: Option<BlockId>, tokens: &[u32]) -> u64 {
        (self.hash)(parent.map_or(self.seed, |parent| self.entry(parent).key), tokens)
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

/// The hash of a chain of blocks: the hash of the preceding chain, then token by token.
fn chained(before: u64, tokens: &[u32]) -> u64 {
    tokens.iter().fold(before, |state, token| {
        let mixed = (state ^ u64::from(*token)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_are_found_by_tokens_and_parent_whatever_their_keys() {
        let index = || PrefixIndex { hash: |_, _| 7, ..PrefixIndex::new(0) };
        for mut index in [index(), PrefixIndex::new(3)] {
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
        }
    }

    #[test]
    fn the_least_recently_used_leaf_goes_first() {
        let mut index = PrefixIndex::new(0);
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
            let mut index = PrefixIndex { hash: |_, tokens| u64::from(tokens[0] % 3), ..PrefixIndex::new(0) };
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
                let mut holders = HashMap::new();
                for id in sequences.iter().flatten() {
                    *holders.entry(*id).or_default() += 1;
                }
                index.check(&holders);
            }
        }
    }
}
