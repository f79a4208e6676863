//! Complex question answering: HotpotQA and StrategyQA (upstream `eval/hotpotqa`, `eval/strategyqa`).

mod execution;
mod family;
pub mod page;
pub(super) mod prompts;
mod results;

pub(crate) use family::start;
pub use prompts::hash as prompts_hash;

/// Extracts answers from replies.
pub mod answer {
    pub use super::results::of_reply;
    pub(crate) use super::results::{of_value, own_value};
}

/// Selects passages by their scores.
pub mod ranking {
    pub use super::execution::world::highest;
}
