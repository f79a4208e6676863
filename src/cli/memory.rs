//! Options for the memory of models.

use clap::Args;
use lumos_coordinator::spec::MemorySize;
use lumos_tasks::Swap;

/// Memory limits for models.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct MemoryArgs {
    /// Limit the memory of models on each device, such as 20GiB
    ///
    /// Covers weights, keys and values together. Default: no limit. Example: --memory 24GB
    #[arg(long, value_name = "BYTES", env = "LUMOS_MEMORY")]
    pub(crate) memory: Option<MemorySize>,
    /// Load models of a device in turns: auto, always or never [default: auto]
    ///
    /// One model is loaded at a time and computes all requests that wait for it, then the next is loaded.
    /// `auto` does so if --memory holds each model but not all of them. Does not change results. Example:
    /// --swap never
    #[arg(long, value_name = "WHEN", env = "LUMOS_SWAP")]
    pub(crate) swap: Option<Swap>,
    /// Set the number of episodes in progress at the same time
    ///
    /// Default: as --batch-size. With --batch-size auto, 8 per core (at most 64) if models are computed on
    /// the CPU, else 64. At least 256 if models are loaded in turns. Example: --concurrency 32
    #[arg(long, value_name = "N", env = "LUMOS_CONCURRENCY", alias = "places")]
    pub(crate) concurrency: Option<u32>,
}
