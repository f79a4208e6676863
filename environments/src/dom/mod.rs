//! Pages as text: the representation of a page's elements that a model is shown (upstream `dom_utils.py` and
//! `dataloader.py` of Mind2Web, which Lumos uses too).
//!
//! A page is parsed once into a [`Tree`]. [`Pruner`] extracts the surroundings of candidates without copying
//! the page, [`PageText`] writes them as text, [`CandidateTexts`] does both for one candidate after the
//! other.

mod attributes;
mod candidate;
mod literal;
mod parse;
mod prune;
mod serialise;
mod step;
mod text;
mod tree;
mod view;

pub use candidate::CandidateTexts;
pub use parse::PageError;
pub use prune::{PruneLimits, Pruner};
pub use step::{CandidateError, candidates};
pub use text::{Brackets, IdNumbers, PageText, TextError};
pub use tree::{Piece, Tree};
pub use view::View;
