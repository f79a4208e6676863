//! Finds pages and ranks passages by their words with BM25, without a model and without I/O.
//!
//! [`Library`] finds pages by title and by words; [`scores`] ranks a few passages against each other with the
//! same index. Equal input gives equal output: scores are summed in a
//! fixed order, and ties are broken by insertion order.

mod index;
mod library;
mod words;

pub use index::scores;
pub use library::{Library, LibraryBuilder, Listed};
pub(crate) use words::lucene_stem;
pub use words::{is_stop_word, words};

/// Pages needed to answer HotpotQA's shipped samples: JSON lines of `title` and `text`.
pub const HOTPOTQA_PAGES: &str = include_str!("../../samples/hotpotqa_pages.jsonl");

/// Pages needed to answer StrategyQA's shipped samples: JSON lines of `title` and `text`.
pub const STRATEGYQA_PAGES: &str = include_str!("../../samples/strategyqa_pages.jsonl");

/// Incremented when rankings change, so that results with old and new rankings are not mixed.
pub const VERSION: u32 = 2;
