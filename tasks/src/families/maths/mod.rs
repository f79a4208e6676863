//! Mathematics: GSM8K and SVAMP (upstream `eval/gsm`, `eval/svamp`).

pub mod execution;
mod family;
pub mod parse;
mod results;

pub use family::prompts_hash;
pub(crate) use family::{GROUND, start};

/// Extracts the answer from a single model's reply.
pub mod answer {
    pub use super::results::{of_chain, of_direct};
}
