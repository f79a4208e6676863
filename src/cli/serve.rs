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

/// The worlds that can be opened.
#[derive(Debug, Subcommand)]
pub(crate) enum ServeCommand {
    /// WebShop: every visit is for one goal
    Shop(ServeShopArgs),
}

/// Options of `serve shop`.
#[derive(Debug, Args)]
pub(crate) struct ServeShopArgs {
    /// Folder with webshop/items_1000_documents.jsonl [default: the shipped samples]
    #[arg(long, value_name = "DIR", env = "LUMOS_DATA")]
    pub(crate) data: Option<PathBuf>,
    /// Nouns of product titles, JSON lines of `title` and `nouns` [default: an approximation]
    #[arg(long, value_name = "FILE", env = "LUMOS_POS_NOUNS")]
    pub(crate) pos_nouns: Option<PathBuf>,
    /// The address to listen at.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) bind: IpAddr,
    /// The port to listen at; 0 for one that is free.
    #[arg(long, value_name = "PORT", default_value_t = 3000)]
    pub(crate) port: u16,
}
