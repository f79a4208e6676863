//! Complex question answering: HotpotQA and StrategyQA (upstream `eval/hotpotqa`, `eval/strategyqa`).

pub mod execution;
mod machine;
pub mod page;
pub mod parse;
mod prompts;
mod results;

pub(crate) use machine::Machine;
pub use prompts::hash as prompts_hash;
pub use results::Variables;

/// Extracts answers from replies.
pub mod answer {
    pub use super::results::{of_reply, of_value};
}

/// Selects passages by their scores.
pub mod ranking {
    pub use super::execution::world::highest;
}
