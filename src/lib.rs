//! Distributed batch evaluation of Lumos language agents: planning, grounding, execution.
//!
//! This crate is the command line, as a library: [`Program`] runs it, also with benchmarks, tools and models of your own, in a
//! binary of your own ([docs/guide/extending.md]). `cli` defines the arguments, `settings` resolves them, `commands`
//! contains the commands by subject, and `pipeline` has the stages of a run. `exit` determines the exit code.
//!
//! [docs/guide/extending.md]: https://github.com/lumos-eval/lumos/blob/main/docs/guide/extending.md

mod budget;
mod cli;
mod commands;
mod estimate;
mod exit;
mod fleet;
mod interrupt;
mod memory;
mod pace;
mod pipeline;
mod program;
mod progress;
mod settings;
mod table;
mod terminal;
mod writable;

pub use lumos_benchmarks as benchmarks;
pub use lumos_models as models;
pub use lumos_tasks as tasks;
pub use lumos_tools as tools;

pub use memory::Allocator;
pub use program::Program;
