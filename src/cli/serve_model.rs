//! Options of the model server.

use std::net::SocketAddr;

use clap::Args;

use super::EngineArgs;

const EXAMPLES: &str = "\
Examples:
  lumos serve-model --model candle:models/llama
  lumos serve-model --model planner=candle:models/plan --model grounder=candle:models/ground --batch-size 16
  LUMOS_API_KEY=… lumos serve-model --model builtin:tiny --listen 0.0.0.0:8000

Clients use the base address http://HOST:PORT/v1, as with OpenAI: /v1/models, /v1/completions, /v1/chat/completions,
with or without streaming. Prompts of /v1/completions are used unchanged, without a BOS token. The first Ctrl-C
finishes the requests in progress and exits, the second exits immediately.";

/// Options of `serve-model`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
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
    /// If LUMOS_API_KEY is set, clients must send that key.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000", env = "LUMOS_LISTEN")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}
