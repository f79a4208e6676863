//! Options of `serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Options of `serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(subcommand)]
    pub(crate) world: ServeCommand,
}

/// Environments that can be served.
#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// Serve WebShop; each visit has one goal
    Shop(ServeShopArgs),
}

/// Options of `serve shop`.
#[derive(Debug, Args)]
pub(crate) struct ServeShopArgs {
    /// Read the catalogue from this data folder [default: the built-in samples]
    ///
    /// The folder contains webshop/items_1000_documents.jsonl.
    #[arg(long, value_name = "PATH", env = "LUMOS_DATA")]
    pub(crate) data: Option<PathBuf>,
    /// Read part-of-speech nouns of product titles, for the reward
    ///
    /// JSON lines with `title` and `nouns`. Default: an approximation without a tagger.
    #[arg(long, value_name = "PATH", env = "LUMOS_POS_NOUNS")]
    pub(crate) pos_nouns: Option<PathBuf>,
    /// Listen on this address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) bind: IpAddr,
    /// Listen on this port; 0 selects a free one
    #[arg(long, value_name = "PORT", default_value_t = 3000)]
    pub(crate) port: u16,
}
