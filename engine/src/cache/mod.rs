//! Keys and values in pages, and which pages hold what.
//!
//! A [`Pool`] belongs to one engine, and so to one set of weights in one type. It lends pages to sequences, each of
//! which writes to pages of its own only. A page that is full and computed through the last layer is published under
//! its content and shared from then on; nobody writes to it again. A published page that no sequence holds stays
//! until its memory is needed.

mod index;
mod layout;
mod page;
mod pool;
mod sequence;

pub(crate) use layout::{KeyValueShape, PageLayout, Storage, TILE, page_size_is_supported};
pub(crate) use pool::Pool;
pub(crate) use sequence::KvCache;
