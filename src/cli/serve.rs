//! Options of `serve` and `serve-model`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{EngineArgs, QueueArgs, RunsArgs};

const SERVE_EXAMPLES: &str = "\
Examples:
  lumos serve runs/sample
  lumos serve --queue nats://coordinator:4222
  LUMOS_SERVE_TOKEN=… lumos serve runs/sample --bind 0.0.0.0
  lumos serve shop

The page shows units by status, the scores so far, the rate, the remaining time, workers, faults and the depth of the
queue, and follows the runs. /metrics has the same figures for Prometheus. A run called shop is passed as ./runs/shop.";

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = SERVE_EXAMPLES)]
pub(crate) struct ServeArgs {
    #[command(subcommand)]
    pub(crate) environment: Option<ServeCommand>,
    #[command(flatten)]
    pub(crate) live: ServeRunsArgs,
}

/// Options of `serve` for runs.
#[derive(Debug, Args)]
pub(crate) struct ServeRunsArgs {
    /// Select runs: their folders, or their names in --output-path
    #[arg(value_name = "RUN")]
    pub(crate) runs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) within: RunsArgs,
    #[command(flatten)]
    pub(crate) queue: QueueArgs,
    /// Listen on this address
    ///
    /// An address other than loopback needs --token.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = "Server")]
    pub(crate) bind: IpAddr,
    /// Listen on this port; 0 selects a free one
    #[arg(long, value_name = "PORT", default_value_t = 3001, help_heading = "Server")]
    pub(crate) port: u16,
    /// Require this token from clients
    ///
    /// Browsers send it once as /?token=TOKEN and keep a cookie; Prometheus sends it as a bearer token. Prefer
    /// LUMOS_SERVE_TOKEN, which other users of the machine cannot see. Default: none.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "LUMOS_SERVE_TOKEN",
        hide_env_values = true,
        help_heading = "Server"
    )]
    pub(crate) token: Option<String>,
    /// Accept this host name in the address of the page; repeatable
    ///
    /// Loopback names and IP addresses are always accepted. Other names are refused, so that a foreign page cannot
    /// read this server through a host name that points to it. Example: --allow-host eval.example
    #[arg(long, value_name = "HOST", value_delimiter = ',', help_heading = "Server")]
    pub(crate) allow_host: Vec<String>,
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

const SERVE_MODEL_EXAMPLES: &str = "\
Examples:
  lumos serve-model --model candle:models/llama
  lumos serve-model --model planner=candle:models/plan --model grounder=candle:models/ground --batch-size 16
  LUMOS_API_KEY=… lumos serve-model --model builtin:tiny --listen 0.0.0.0:8000

Clients use the base address http://HOST:PORT/v1, as with OpenAI: /v1/models, /v1/completions, /v1/chat/completions,
with or without streaming. Prompts of /v1/completions are used unchanged, without a BOS token. The first Ctrl-C
finishes the requests in progress and exits, the second exits immediately.";

/// Options of `serve-model`.
#[derive(Debug, Args)]
#[command(after_help = SERVE_MODEL_EXAMPLES)]
pub(crate) struct ServeModelArgs {
    /// Serve this model; repeatable
    ///
    /// Forms: candle:<folder>, candle:<file.gguf> or builtin:tiny, with an optional name for clients:
    /// NAME=MODEL. Default name: the name of the folder or file; tiny-planner-iterative, tiny-planner-onetime
    /// and tiny-grounder for builtin:tiny.
    #[arg(long = "model", value_name = "[NAME=]MODEL", required = true)]
    pub(crate) models: Vec<String>,
    /// Listen on this address; port 0 selects a free one
    ///
    /// If LUMOS_API_KEY is set, clients must send that key. Without a key, a server on a loopback address accepts
    /// `localhost` and loopback addresses only as the host of a request.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000", env = "LUMOS_LISTEN")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}
