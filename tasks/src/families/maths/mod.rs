//! Mathematics: GSM8K and SVAMP (upstream `eval/gsm`, `eval/svamp`).

pub mod answer;
pub mod execution;
mod machine;
pub mod parse;
mod prompts;
mod results;

pub(crate) use machine::Machine;
pub use prompts::hash as prompts_hash;
