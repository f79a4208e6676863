//! Mathematics: GSM8K and SVAMP (upstream `eval/gsm`, `eval/svamp`).

pub mod execution;
mod machine;
pub mod parse;
mod prompts;
mod results;

pub(crate) use machine::Machine;
pub use prompts::hash as prompts_hash;

/// Extracts the answer from a single model's reply.
pub mod answer {
    pub use super::results::{of_chain, of_direct};
}
