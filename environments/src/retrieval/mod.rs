//! Finding pages and ranking passages by their words: BM25, without a model and without I/O.
//!
//! [`Library`] holds pages by title and finds others by their words; [`Index`] is the ranking below it, for any
//! texts; [`scores`] ranks a handful of passages among themselves. Equal input gives equal output: scores are summed
//! in a fixed order and ties go to what was added first.

mod index;
mod library;
mod stem;
mod words;

pub use index::{Bm25, Hit, Index, IndexBuilder, scores};
pub use library::{Library, LibraryBuilder, Listed};
pub use stem::{lucene_stem, stem};
pub use words::{is_stop_word, words};

/// The pages that HotpotQA's shipped samples can be answered from: JSON lines of `title` and `text`.
pub const HOTPOTQA_PAGES: &str = include_str!("../../samples/hotpotqa_pages.jsonl");

/// The pages that StrategyQA's shipped samples can be answered from: JSON lines of `title` and `text`.
pub const STRATEGYQA_PAGES: &str = include_str!("../../samples/strategyqa_pages.jsonl");

/// Raised when rankings change, so that results under old and new ones are not mixed.
pub const VERSION: u32 = 1;
