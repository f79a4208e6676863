//! Tools: the backends for the calls of an episode.

mod address;
mod bm25;
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
mod set;
mod wolfram;

pub use crate::tool::{ToolFault, Tools};
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
pub use wolfram::{Wolfram, WolframSettings};
