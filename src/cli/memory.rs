//! Options of the memory that models are computed in.

use clap::Args;
use lumos_coordinator::spec::MemorySize;
use lumos_tasks::Swap;

/// In how much memory models are computed.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Engine")]
pub(crate) struct MemoryArgs {
    /// Memory that models may take on each device, such as 20GiB: weights, keys and values together [default: no limit]
    #[arg(long, value_name = "BYTES", env = "LUMOS_MEMORY")]
    pub(crate) memory: Option<MemorySize>,
    /// Whether models that share a device take turns in its memory, all waiting turns of one and then all of the next: auto
    /// (where --memory holds each of them and not all), always, never; changes no result [default: auto]
    #[arg(long, value_name = "WHEN", env = "LUMOS_SWAP")]
    pub(crate) swap: Option<Swap>,
    /// Episodes driven side by side [default: as --batch-size; else 8 for each core where models are
    /// computed on the CPU, at most 64, and 64 elsewhere; 256 where models take turns, so that phases are long]
    #[arg(long, value_name = "N", env = "LUMOS_PLACES")]
    pub(crate) places: Option<u32>,
}
