//! Pages as text: what a model is shown of a page's elements (upstream `dom_utils.py` and `dataloader.py` of Mind2Web,
//! which Lumos took over).
//!
//! A page is read once into a [`Tree`]. [`Pruner`] cuts out what stands around some candidates without copying the
//! page, [`PageText`] writes it down, [`CandidateTexts`] does both for one candidate after the other.

mod attributes;
mod candidate;
mod clean;
mod error;
mod literal;
mod parse;
mod piece;
mod prune;
mod serialise;
mod step;
mod text;
mod tree;
mod view;

pub use candidate::{CandidateTexts, MAX_TEXT, own_words};
pub use error::{PageError, TextError};
pub use parse::{MAX_ATTRIBUTES, MAX_BYTES, MAX_DEPTH, MAX_ELEMENTS};
pub use piece::Piece;
pub use prune::{PruneLimits, Pruner};
pub use step::{CandidateError, candidates};
pub use text::{Brackets, IdNumbers, PageText};
pub use tree::Tree;
pub use view::View;
