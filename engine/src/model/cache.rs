//! The keys and values of one sequence, in pages of [`PAGE`] positions.

use super::aligned::AlignedBuffer;

/// Positions in one page.
pub(crate) const PAGE: usize = 16;

/// What one page holds: for every layer and key-value head the keys (`head_size` × [`PAGE`], transposed so that
/// scores of neighbouring positions are computed side by side), then the values ([`PAGE`] × `padded_head`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageLayout {
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) head_size: usize,
}

impl PageLayout {
    /// `head_size` rounded up to whole vectors.
    pub(crate) fn padded_head(&self) -> usize {
        self.head_size.next_multiple_of(16)
    }

    fn keys(&self) -> usize {
        self.head_size * PAGE
    }

    fn head(&self) -> usize {
        self.keys() + PAGE * self.padded_head()
    }

    fn page(&self) -> usize {
        self.layers * self.heads * self.head()
    }
}

/// A sequence's cache. It grows by whole pages and gives them back to a [`PagePool`].
#[derive(Default)]
pub(crate) struct KvCache {
    pages: Vec<AlignedBuffer>,
    length: usize,
}

impl KvCache {
    /// Positions that are filled in.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Marks `count` more positions as filled in.
    pub(crate) fn advance(&mut self, count: usize) {
        self.length += count;
    }

    /// Makes room for `count` more positions.
    pub(crate) fn reserve(&mut self, count: usize, layout: &PageLayout, pool: &mut PagePool) {
        while self.pages.len() * PAGE < self.length + count {
            self.pages.push(pool.take(layout));
        }
    }

    /// Stores key and value (`head_size` each) of one head at `position`.
    pub(crate) fn store(
        &mut self,
        layout: &PageLayout,
        layer: usize,
        head: usize,
        position: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let start = (layer * layout.heads + head) * layout.head();
        let page = &mut self.pages[position / PAGE][start..start + layout.head()];
        let (keys, values) = page.split_at_mut(layout.keys());
        let slot = position % PAGE;
        for (column, key) in keys.as_chunks_mut::<PAGE>().0.iter_mut().zip(key) {
            column[slot] = *key;
        }
        values[slot * layout.padded_head()..][..layout.head_size].copy_from_slice(value);
    }

    /// Keys and values of one head, page after page.
    pub(crate) fn head(
        &self,
        layout: &PageLayout,
        layer: usize,
        head: usize,
    ) -> impl Iterator<Item = (&[f32], &[f32])> + Clone {
        let layout = *layout;
        let start = (layer * layout.heads + head) * layout.head();
        self.pages.iter().map(move |page| page[start..start + layout.head()].split_at(layout.keys()))
    }
}

/// Pages that finished sequences gave back.
#[derive(Default)]
pub(crate) struct PagePool {
    free: Vec<AlignedBuffer>,
}

impl PagePool {
    fn take(&mut self, layout: &PageLayout) -> AlignedBuffer {
        self.free.pop().unwrap_or_else(|| AlignedBuffer::zeros(layout.page()))
    }

    /// Takes the pages of a finished sequence.
    pub(crate) fn give_back(&mut self, cache: KvCache) {
        self.free.extend(cache.pages);
    }
}
