//! Complex question answering: HotpotQA and StrategyQA (upstream `eval/hotpotqa`, `eval/strategyqa`).

pub mod answer;
pub mod execution;
mod machine;
pub mod page;
pub mod parse;
mod prompts;
pub mod ranking;
mod results;

pub(crate) use machine::Machine;
pub use prompts::hash as prompts_hash;
pub use results::Variables;
