//! The paged KV cache and its prefix index.
//!
//! A [`Pool`] belongs to one engine, and therefore to one set of weights of one type. It assigns pages to
//! sequences; each sequence writes only to its own pages. A full page that is computed through the last layer
//! is published under its content; sequences with the same prefix share it, and it is never written again. The last
//! page of a sequence that ended is published too. Of a page that is equal in part, a sequence takes a copy. A
//! published page without holders stays cached until its memory is needed.

mod index;
mod layout;
mod pool;
mod sequence;

pub(crate) use layout::{KeyValueShape, PageLayout, Storage, TILE, page_size_is_supported};
pub(crate) use pool::Pool;
pub(crate) use sequence::KvCache;
