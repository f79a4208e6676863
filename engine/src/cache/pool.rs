//! The page pool of an engine: allocates, shares, caches and evicts pages within a fixed capacity.
//!
//! [`Pool`] fills the [`KvCache`] of each sequence with pages and finds shared prefixes with its
//! [`PrefixIndex`].

use std::borrow::Cow;
use std::sync::Arc;

use super::index::{BlockId, PrefixIndex};
use super::layout::{PageLayout, PageMemory};
use super::sequence::{KvCache, Page};

/// All pages of an engine: free, cached (published, without holders) or held by sequences.
pub(crate) struct Pool {
    layout: PageLayout,
    /// Maximum number of pages.
    capacity: usize,
    free: Vec<PageMemory>,
    /// Unpublished pages, each owned by one sequence.
    own: usize,
    index: PrefixIndex,
    /// Storage of the published blocks.
    published: Vec<Option<Arc<PageMemory>>>,
    reuse: bool,
    evictions: u64,
}

impl Pool {
    /// Creates a pool of at most `capacity` pages, allocated on demand. With `reuse`, pages are published.
    pub(crate) fn new(layout: PageLayout, capacity: usize, reuse: bool) -> Self {
        Self {
            layout,
            capacity,
            free: Vec::new(),
            own: 0,
            index: PrefixIndex::default(),
            published: Vec::new(),
            reuse,
            evictions: 0,
        }
    }

    pub(crate) fn layout(&self) -> &PageLayout {
        &self.layout
    }

    /// Whether pages are published.
    pub(crate) fn reuses(&self) -> bool {
        self.reuse
    }

    /// Pages that a sequence can get: not allocated yet, free, or cached.
    pub(crate) fn available(&self) -> usize {
        self.capacity - self.held()
    }

    /// Pages held by sequences.
    pub(crate) fn held(&self) -> usize {
        self.own + self.index.len() - self.index.idle()
    }

    /// Published pages without holders.
    pub(crate) fn cached(&self) -> usize {
        self.index.idle()
    }

    /// Pages in memory.
    pub(crate) fn allocated(&self) -> usize {
        self.own + self.index.len() + self.free.len()
    }

    /// Published pages evicted so far.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Extends a cache that holds only published pages with published pages for the next of `tokens`, the
    /// whole sequence. At least the last token remains to be computed. Returns the number of positions
    /// gained.
    pub(crate) fn attach(&mut self, cache: &mut KvCache, tokens: &[u32]) -> usize {
        let size = self.layout.positions;
        let before = cache.length();
        if !self.reuse || !cache.is_published() {
            return 0;
        }
        while let Some(block) = self.next_block(cache, tokens) {
            self.index.hold(block);
            cache.pages.push(Page::Shared(self.storage(block)));
            cache.blocks.push(block);
            cache.advance(size);
        }
        cache.length() - before
    }

    /// Extends a cache that [`attach`](Self::attach) cannot extend any more by the beginning of the next page: copies the
    /// published page that has most of its tokens, if a page is available for the copy. Returns the number of positions
    /// gained.
    pub(crate) fn attach_part(&mut self, cache: &mut KvCache, tokens: &[u32]) -> usize {
        let start = cache.length();
        if !self.shares_parts() || !cache.is_published() {
            return 0;
        }
        let end = (start + self.layout.positions).min(tokens.len().saturating_sub(1));
        let parent = cache.blocks.last().copied();
        let next = key_tokens(cache, parent, tokens.get(start..end).unwrap_or_default());
        let Some((block, count)) = self.index.find_longest(parent, &next) else { return 0 };
        // The page must not be evicted to make room for its copy. Copying does not count as a use, because later turns of
        // a conversation use the copy.
        self.index.pin(block);
        let copied = self.available() > 0;
        if copied {
            let mut page = self.take();
            page.bytes.copy_from_slice(&self.storage(block).bytes);
            cache.pages.push(Page::Own(page));
            cache.advance(count);
        }
        self.index.unpin(block);
        if copied { count } else { 0 }
    }

    /// How many of the pages that [`attach`](Self::attach) would find for an empty cache are already held by sequences.
    pub(crate) fn shared_with_others(&self, cache: &KvCache, tokens: &[u32]) -> usize {
        let mut count = 0;
        let mut parent = None;
        for tokens in self.reusable(tokens) {
            parent = self
                .index
                .find(parent, &key_tokens(cache, parent, tokens))
                .filter(|block| self.index.is_held(*block));
            if parent.is_none() {
                break;
            }
            count += 1;
        }
        count
    }

    /// Extends `cache` to `positions` positions in total, evicting cached pages if necessary. Returns false
    /// and changes nothing if there are not enough pages.
    pub(crate) fn reserve(&mut self, cache: &mut KvCache, positions: usize) -> bool {
        let missing = self.layout.pages(positions).saturating_sub(cache.page_count());
        if missing > self.available() {
            return false;
        }
        for _ in 0..missing {
            let page = self.take();
            cache.pages.push(Page::Own(page));
        }
        true
    }

    /// Removes the positions of a cache from `length` on, which are not published, and frees their pages.
    pub(crate) fn truncate(&mut self, cache: &mut KvCache, length: usize) {
        for page in cache.truncate(length) {
            let Page::Own(page) = page else { panic!("position {length} is published") };
            self.own -= 1;
            self.free.push(page);
        }
    }

    /// Publishes the full pages. `tokens` is the sequence; the cache holds its first positions. A page whose
    /// content is already published is replaced by the existing page.
    pub(crate) fn publish(&mut self, cache: &mut KvCache, tokens: &[u32]) {
        let size = self.layout.positions;
        while self.reuse && cache.published() + size <= cache.length() {
            let at = cache.blocks.len();
            let tokens = &tokens[at * size..(at + 1) * size];
            let parent = cache.blocks.last().copied();
            let tokens = &key_tokens(cache, parent, tokens);
            let Page::Own(page) = std::mem::replace(&mut cache.pages[at], Page::Own(PageMemory::default()))
            else {
                panic!("a page is published once");
            };
            self.own -= 1;
            let block = match self.index.find(parent, tokens) {
                Some(block) => {
                    self.index.hold(block);
                    self.free.push(page);
                    block
                }
                None => self.insert(parent, tokens, page),
            };
            cache.pages[at] = Page::Shared(self.storage(block));
            cache.blocks.push(block);
        }
    }

    /// Publishes the page that is filled in part, for [`attach_part`](Self::attach_part), and takes it from the cache of a
    /// sequence that has ended. `tokens` is the sequence.
    pub(crate) fn publish_part(&mut self, cache: &mut KvCache, tokens: &[u32]) {
        let (start, end) = (cache.published(), cache.length());
        if !self.shares_parts() || start == end {
            return;
        }
        let parent = cache.blocks.last().copied();
        let tokens = key_tokens(cache, parent, &tokens[start..end]);
        if self.index.find_longest(parent, &tokens).is_some_and(|(_, count)| count == tokens.len()) {
            return;
        }
        let at = cache.blocks.len();
        let Page::Own(page) = cache.pages.remove(at) else { panic!("position {start} is published") };
        cache.length = start;
        self.own -= 1;
        let block = self.insert(parent, &tokens, page);
        self.index.release(&[block]);
    }

    /// Returns the pages of a sequence to the pool; published pages stay cached until their memory is needed.
    pub(crate) fn release(&mut self, cache: KvCache) {
        let KvCache { pages, blocks, .. } = cache;
        for page in pages {
            if let Page::Own(page) = page {
                self.own -= 1;
                self.free.push(page);
            }
        }
        self.index.release(&blocks);
    }

    /// Whether the pool is small enough to run [`check`](Self::check) in every step.
    #[cfg(debug_assertions)]
    pub(crate) fn is_small(&self) -> bool {
        self.index.len() <= 1024
    }

    /// Panics unless every page is free, cached, or held exactly as often as the sequences' caches hold it.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check<'a>(&self, caches: impl Iterator<Item = &'a KvCache>) {
        let mut holders = std::collections::HashMap::new();
        let mut own = 0;
        let mut numbers: Vec<u32> = self.free.iter().map(|page| page.number).collect();
        numbers.extend(self.published.iter().flatten().map(|page| page.number));
        for cache in caches {
            assert!(cache.length() <= cache.page_count() * self.layout.positions);
            for (at, page) in cache.pages.iter().enumerate() {
                match (page, cache.blocks.get(at)) {
                    (Page::Own(page), None) => {
                        own += 1;
                        numbers.push(page.number);
                    }
                    (Page::Shared(page), Some(block)) => {
                        assert!(Arc::ptr_eq(page, &self.storage(*block)), "wrong page for {block:?}");
                        *holders.entry(*block).or_default() += 1;
                    }
                    _ => panic!("published pages come first, and each has a block id"),
                }
            }
        }
        assert_eq!(own, self.own, "unpublished pages of sequences");
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..self.allocated() as u32), "page numbers are unique");
        self.index.check(&holders);
        assert!(self.allocated() <= self.capacity, "the pool exceeds its capacity");
        let mut hands = vec![1; self.published.len()];
        for (block, count) in &holders {
            hands[block.index()] += *count as usize;
        }
        for (page, hands) in self.published.iter().zip(hands) {
            assert!(
                page.as_ref().is_none_or(|page| Arc::strong_count(page) == hands),
                "a page has an untracked holder"
            );
        }
        assert_eq!(self.published.iter().flatten().count(), self.index.len());
    }

    /// Whether pages are shared that are equal in part only, which copies them.
    fn shares_parts(&self) -> bool {
        self.reuse && self.layout.is_in_host_memory()
    }

    /// Publishes a page, with one holder.
    fn insert(&mut self, parent: Option<BlockId>, tokens: &[u32], page: PageMemory) -> BlockId {
        let block = self.index.insert(parent, tokens);
        if self.published.len() <= block.index() {
            self.published.resize(block.index() + 1, None);
        }
        self.published[block.index()] = Some(Arc::new(page));
        block
    }

    fn next_block(&self, cache: &KvCache, tokens: &[u32]) -> Option<BlockId> {
        let next = self.reusable(tokens).nth(cache.blocks.len())?;
        let parent = cache.blocks.last().copied();
        self.index.find(parent, &key_tokens(cache, parent, next))
    }

    /// The chunks of `tokens` that may come from the cache: whole pages, without the last token.
    fn reusable<'a>(&self, tokens: &'a [u32]) -> impl Iterator<Item = &'a [u32]> {
        tokens[..tokens.len().saturating_sub(1)].chunks_exact(self.layout.positions)
    }

    fn storage(&self, block: BlockId) -> Arc<PageMemory> {
        self.published[block.index()].clone().expect("a published block has a page")
    }

    /// Takes a page; one must be available.
    fn take(&mut self) -> PageMemory {
        self.own += 1;
        if let Some(page) = self.free.pop() {
            return page;
        }
        if self.allocated() <= self.capacity {
            return PageMemory::new(self.allocated() - 1, &self.layout);
        }
        let page = self.index.evict().and_then(|block| self.published[block.index()].take());
        self.evictions += 1;
        page.and_then(Arc::into_inner).expect("a page that is available is free, cached or not allocated yet")
    }
}

/// The tokens under which a page is published. The first page of a long sequence
/// ([`KvCache::is_long`]) has a mark that no token has, so that it begins a chain of its own.
fn key_tokens<'a>(cache: &KvCache, parent: Option<BlockId>, tokens: &'a [u32]) -> Cow<'a, [u32]> {
    const MARK: u32 = 1 << 31;
    if parent.is_some() || !cache.is_long() {
        return Cow::Borrowed(tokens);
    }
    let mut tokens = tokens.to_vec();
    if let Some(first) = tokens.first_mut() {
        *first |= MARK;
    }
    Cow::Owned(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{KeyValueShape, Storage};
    use proptest::prelude::*;

    const LAYOUT: PageLayout = PageLayout {
        shape: KeyValueShape { layers: 1, heads: 1, head_size: 2 },
        positions: 4,
        storage: Storage::F32,
    };

    /// Computes the rest of `tokens`: a position's value is the sum of all tokens up to it.
    fn compute(pool: &mut Pool, cache: &mut KvCache, tokens: &[u32]) {
        for position in cache.length()..tokens.len() {
            let sum: u32 = tokens[..=position].iter().sum();
            cache.store(0, 0, position, &[sum as f32; 2], &[sum as f32; 2]);
            cache.advance(1);
        }
        pool.publish(cache, tokens);
    }

    fn holds(cache: &KvCache, tokens: &[u32]) -> bool {
        (0..cache.length()).all(|position| {
            let sum: u32 = tokens[..=position].iter().sum();
            let (keys, values) = cache.head::<f32>(0, 0, position);
            (keys[position % 4], values[position % 4 * 16]) == (sum as f32, sum as f32)
        })
    }

    #[test]
    fn sequences_beyond_the_original_context_share_pages_with_each_other_only() {
        let tokens: Vec<u32> = (0..12).collect();
        let mut pool = Pool::new(LAYOUT, 9, true);
        for long in [false, true] {
            let mut first = KvCache::new(LAYOUT).long(long);
            assert_eq!((pool.shared_with_others(&first, &tokens), pool.attach(&mut first, &tokens)), (0, 0));
            assert!(pool.reserve(&mut first, tokens.len()));
            compute(&mut pool, &mut first, &tokens);
            let mut second = KvCache::new(LAYOUT).long(long);
            assert_eq!(
                (pool.shared_with_others(&second, &tokens), pool.attach(&mut second, &tokens)),
                (2, 8)
            );
            let other = KvCache::new(LAYOUT).long(!long);
            assert!(first.same_prefix(&first) && !KvCache::new(LAYOUT).long(long).same_prefix(&other));
            pool.check([&first, &second].into_iter());
            pool.release(first);
            pool.release(second);
        }
    }

    #[test]
    fn prefixes_are_found_except_the_last_token() {
        let mut pool = Pool::new(LAYOUT, 8, true);
        let tokens: Vec<u32> = (1..=8).collect();
        let mut first = KvCache::new(LAYOUT);
        assert_eq!(pool.attach(&mut first, &tokens), 0);
        assert!(pool.reserve(&mut first, 8));
        compute(&mut pool, &mut first, &tokens);
        // The same tokens: the second page holds the last token and is computed again.
        let mut second = KvCache::new(LAYOUT);
        assert_eq!((pool.shared_with_others(&second, &tokens), pool.attach(&mut second, &tokens)), (1, 4));
        assert_eq!((pool.attach_part(&mut second, &tokens), pool.attach_part(&mut second, &tokens)), (3, 0));
        assert!(holds(&second, &tokens) && pool.reserve(&mut second, 8));
        assert_eq!(pool.held(), 3);
        compute(&mut pool, &mut second, &tokens);
        // The page was already published, so one of the two was returned.
        assert_eq!((pool.held(), pool.allocated()), (2, 3));
        let longer = [&tokens[..], &[9]].concat();
        let mut third = KvCache::new(LAYOUT);
        assert_eq!(pool.attach(&mut third, &longer), 8);
        assert!(holds(&third, &longer));
        pool.check([&first, &second, &third].into_iter());
        for cache in [first, second, third] {
            pool.release(cache);
        }
        assert_eq!((pool.held(), pool.cached(), pool.available()), (0, 2, 8));
        let mut off = Pool::new(LAYOUT, 8, false);
        let mut cache = KvCache::new(LAYOUT);
        assert!(off.reserve(&mut cache, 8) && !off.reserve(&mut KvCache::new(LAYOUT), 25));
        compute(&mut off, &mut cache, &tokens);
        off.release(cache);
        assert_eq!((off.cached(), off.attach(&mut KvCache::new(LAYOUT), &longer)), (0, 0));
    }

    #[test]
    fn parts_of_pages_are_copied_if_there_is_a_page_for_the_copy() {
        let mut pool = Pool::new(LAYOUT, 3, true);
        let mut first = KvCache::new(LAYOUT);
        assert!(pool.reserve(&mut first, 6));
        compute(&mut pool, &mut first, &[1, 2, 3, 4, 5, 6]);
        pool.publish_part(&mut first, &[1, 2, 3, 4, 5, 6]);
        pool.release(first);
        assert_eq!((pool.held(), pool.cached()), (0, 2));
        let attach = |pool: &mut Pool, tokens: &[u32], long| {
            let mut cache = KvCache::new(LAYOUT).long(long);
            let found = (pool.attach(&mut cache, tokens), pool.attach_part(&mut cache, tokens));
            assert!(holds(&cache, tokens));
            (found, cache)
        };
        // After the next turn's prompt, which continues the first sequence; after one that differs from it; and after
        // one that shares nothing, because its keys may be rotated differently.
        let (found, next) = attach(&mut pool, &[1, 2, 3, 4, 5, 6, 7, 8, 9], false);
        assert_eq!((found, pool.held(), pool.cached()), ((4, 2), 2, 1));
        pool.check([&next].into_iter());
        let (found, _) = attach(&mut pool, &[1, 2, 3, 4, 5, 6], true);
        assert_eq!(found, (0, 0));
        // The only page left is the one to copy.
        let (found, other) = attach(&mut pool, &[1, 2, 3, 4, 5, 7, 8], false);
        assert_eq!((found, pool.held(), pool.evictions()), ((4, 0), 2, 0));
        pool.release(next);
        pool.release(other);
        // The beginning of a published page is not published again.
        let (found, mut shorter) = attach(&mut pool, &[1, 2, 7], false);
        assert_eq!(found, (0, 2));
        pool.publish_part(&mut shorter, &[1, 2]);
        pool.release(shorter);
        assert_eq!((pool.held(), pool.cached(), pool.allocated()), (0, 2, 3));
        pool.check(std::iter::empty());
    }

    proptest! {
        /// Sequences over a few tokens start, grow and end in a pool that is too small for all of them.
        #[test]
        fn pages_hold_what_their_sequences_computed(
            actions in prop::collection::vec((0u8..4, any::<u32>(), 1usize..30), 1..120),
        ) {
            let mut pool = Pool::new(LAYOUT, 12, true);
            let mut running: Vec<(KvCache, Vec<u32>)> = Vec::new();
            for (action, number, length) in actions {
                let place = number as usize % running.len().max(1);
                match action {
                    0 => {
                        let tokens = (0..length).map(|at| number >> (at % 32) & 1).collect::<Vec<u32>>();
                        let mut cache = KvCache::new(LAYOUT);
                        pool.attach(&mut cache, &tokens);
                        pool.attach_part(&mut cache, &tokens);
                        prop_assert!(cache.length() < tokens.len());
                        running.push((cache, tokens));
                    }
                    1 if !running.is_empty() => {
                        let (cache, tokens) = &mut running[place];
                        if pool.reserve(cache, tokens.len()) {
                            compute(&mut pool, cache, tokens);
                            tokens.push(number & 1);
                        }
                    }
                    // A draft whose positions are rejected.
                    2 if !running.is_empty() => {
                        let (cache, _) = &mut running[place];
                        let (known, pages) = (cache.length(), cache.page_count());
                        if pool.reserve(cache, known + length) {
                            for position in known..known + length {
                                cache.store(0, 0, position, &[-1.0f32; 2], &[-1.0f32; 2]);
                            }
                            cache.advance(length);
                            pool.truncate(cache, known);
                            prop_assert_eq!((cache.length(), cache.page_count()), (known, pages.min(known.div_ceil(4))));
                        }
                    }
                    _ if !running.is_empty() => {
                        let (mut cache, tokens) = running.swap_remove(place);
                        if length % 2 == 0 {
                            pool.publish_part(&mut cache, &tokens);
                        }
                        pool.release(cache);
                    }
                    _ => {}
                }
                pool.check(running.iter().map(|(cache, _)| cache));
                prop_assert!(running.iter().all(|(cache, tokens)| holds(cache, tokens)));
                prop_assert!(pool.available() + pool.held() == 12);
            }
        }
    }
}
