//! Tools: the backends for the calls of an episode.
//!
//! [`ToolSets`] opens the backends that a run names. [`sessions`] have separate state for each episode; some of them
//! work in a [`browser`].

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod address;
mod bm25;
pub mod browser;
mod browsers;
mod corpus;
mod cross_encoder;
mod dpr;
mod live;
mod maths;
mod name;
mod pace;
mod recorded;
mod registry;
mod remembering;
pub mod sessions;
mod set;
mod tool;
mod wolfram;

pub use bm25::Bm25Ranking;
pub use corpus::Corpus;
pub use cross_encoder::{CrossEncoderRanker, rank_backend};
pub use dpr::DprRanker;
pub use live::{LiveWiki, WikiSettings};
pub use maths::NativeMaths;
pub use name::{TOOLS, ToolSetError, backends};
pub use recorded::RecordedTools;
pub use registry::ToolSets;
pub use remembering::Remembering;
pub use tool::{ToolFault, Tools};
pub use wolfram::{Wolfram, WolframSettings};
