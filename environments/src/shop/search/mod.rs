//! Search with Lucene's scores: BM25 with k1 0.9 and b 0.4 over texts in Lucene's English analysis.
//!
//! An index is a sequence of bytes, in memory or in a mapped file: [`ProductIndexBuilder`] writes it, [`ProductIndex`]
//! reads it.

mod analysis;
mod builder;
mod index;

pub(super) use builder::ProductIndexBuilder;
pub(super) use index::ProductIndex;
