//! [`KvCache`]: the keys and values of one sequence.
//!
//! A cache is a list of pages: first the published ones, which may be shared with other sequences, then the
//! pages that belong to this sequence alone. The pool provides all of them; the forward pass writes to the
//! latter and reads all.

use std::sync::Arc;

use bytemuck::Pod;

use super::index::BlockId;
use super::layout::{PageLayout, PageMemory, TILE};

/// A page held by one sequence.
pub(super) enum Page {
    /// Written by this sequence only, and not visible to others.
    Own(PageMemory),
    /// Published: full, and never written again.
    Shared(Arc<PageMemory>),
}

impl Page {
    #[inline(always)]
    fn memory(&self) -> &PageMemory {
        match self {
            Self::Own(page) => page,
            Self::Shared(page) => page,
        }
    }
}

/// A sequence's KV cache: published pages first, then its own. A [`Pool`](super::Pool) provides the pages.
pub(crate) struct KvCache {
    layout: PageLayout,
    pub(super) pages: Vec<Page>,
    /// Ids of the published pages, which come first in `pages`.
    pub(super) blocks: Vec<BlockId>,
    pub(super) length: usize,
    long: bool,
}

impl KvCache {
    pub(crate) fn new(layout: PageLayout) -> Self {
        Self { layout, pages: Vec::new(), blocks: Vec::new(), length: 0, long: false }
    }

    /// Sets whether the sequence may exceed the model's original context. Keys of such sequences may be rotated
    /// differently, so they share no pages with others.
    pub(crate) fn long(self, long: bool) -> Self {
        Self { long, ..self }
    }

    /// Whether the sequence may exceed the model's original context.
    pub(crate) fn is_long(&self) -> bool {
        self.long
    }

    pub(crate) fn layout(&self) -> &PageLayout {
        &self.layout
    }

    /// Number of filled positions.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Number of pages held, published or not.
    pub(crate) fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// Numbers of the pages held, in order of position.
    pub(crate) fn page_numbers(&self) -> impl Iterator<Item = u32> {
        self.pages.iter().map(|page| page.memory().number)
    }

    /// Positions in published pages.
    pub(crate) fn published(&self) -> usize {
        self.blocks.len() * self.layout.positions
    }

    /// Whether the cache holds published pages only, so that it can be extended by others.
    pub(super) fn is_published(&self) -> bool {
        self.length == self.published() && self.pages.len() == self.blocks.len()
    }

    /// Whether two sequences hold the same published pages.
    pub(crate) fn same_prefix(&self, other: &Self) -> bool {
        self.long == other.long
            && self.blocks.len() == other.blocks.len()
            && self.blocks.last() == other.blocks.last()
    }

    /// Marks `count` more positions as filled.
    pub(crate) fn advance(&mut self, count: usize) {
        self.length += count;
    }

    /// Marks the positions from `length` on as empty; they must not be published. Returns the pages without filled
    /// positions. Later positions overwrite what remains in the last page.
    pub(super) fn truncate(&mut self, length: usize) -> std::vec::Drain<'_, Page> {
        assert!(
            self.published() <= length && length <= self.length,
            "only unpublished positions are removed"
        );
        self.length = length;
        self.pages.drain(self.layout.pages(length)..)
    }

    /// Stores the key and value (`head_size` numbers each, of the pages' type) of one head at `position`, which must be
    /// in an unpublished page.
    pub(crate) fn store<T: Pod>(
        &mut self,
        layer: usize,
        head: usize,
        position: usize,
        key: &[T],
        value: &[T],
    ) {
        let layout = &self.layout;
        let (page, slot) = (position / layout.positions, position % layout.positions);
        let Page::Own(page) = &mut self.pages[page] else {
            panic!("position {position} lies in a published page, which is never written again");
        };
        assert_eq!(size_of::<T>(), layout.width(), "the type of the pages");
        let numbers: &mut [T] = bytemuck::cast_slice_mut(&mut page.bytes);
        let (keys, values) =
            numbers[layout.start(layer, head)..][..layout.head()].split_at_mut(layout.keys());
        let (size, tile, padded) = (layout.shape.head_size, layout.tile(), layout.padded_head());
        let columns = &mut keys[slot / tile * tile * layout.key_width()..][..tile * layout.key_width()];
        if layout.is_paired() {
            for (column, pair) in columns.chunks_exact_mut(2 * tile).zip(key.chunks(2)) {
                column[slot % tile * 2..][..pair.len()].copy_from_slice(pair);
            }
            let pairs = values[slot / 2 * 2 * padded..][..2 * size].as_chunks_mut::<2>().0;
            for (pair, value) in pairs.iter_mut().zip(value) {
                pair[slot % 2] = *value;
            }
        } else {
            for (column, key) in columns.chunks_exact_mut(tile).zip(key) {
                column[slot % tile] = *key;
            }
            values[slot * padded..][..size].copy_from_slice(value);
        }
    }

    /// Keys and values of one head in the page that contains `position`.
    #[inline(always)]
    pub(crate) fn head<T: Pod>(&self, layer: usize, head: usize, position: usize) -> (&[T], &[T]) {
        let layout = &self.layout;
        let page: &[T] = bytemuck::cast_slice(&self.pages[position / layout.positions].memory().bytes);
        page[layout.start(layer, head)..][..layout.head()].split_at(layout.keys())
    }

    /// Keys and values of one head in the tile that starts at `position`. Pages have whole tiles.
    #[inline(always)]
    pub(crate) fn tile<T: Pod>(&self, layer: usize, head: usize, position: usize) -> (&[T], &[T]) {
        let layout = &self.layout;
        let (keys, values) = self.head::<T>(layer, head, position);
        let slot = position % layout.positions;
        let (key, value) = (layout.key_width(), layout.padded_head());
        (&keys[slot * key..][..TILE * key], &values[slot * value..][..TILE * value])
    }

    /// Copies the tile that starts at `position` from several pages, which are smaller, to the layout of
    /// [`tile`](Self::tile) in pages of whole tiles. Numbers of positions without a page are unchanged.
    pub(crate) fn collect<T: Pod>(
        &self,
        (layer, head, position): (usize, usize, usize),
        keys: &mut [T],
        values: &mut [T],
    ) {
        let (from, to) = (&self.layout, self.layout.of_one_tile());
        for slot in 0..TILE.min(self.pages.len() * from.positions - position) {
            let (stored_keys, stored_values) = self.head(layer, head, position + slot);
            let stored = (position + slot) % from.positions;
            for dimension in 0..from.shape.head_size {
                keys[to.key_index(slot, dimension)] = stored_keys[from.key_index(stored, dimension)];
                values[to.value_index(slot, dimension)] = stored_values[from.value_index(stored, dimension)];
            }
        }
    }
}
