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
streamed or whole. Prompts of /v1/completions are taken as they are, without a BOS before them. The first Ctrl-C answers
what was asked and ends, the second ends at once.";

/// What to serve.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeModelArgs {
    /// A model, or several: candle:<folder>, candle:<file.gguf> or builtin:tiny, with the name that clients ask for before
    /// a `=` [default: the name of the folder or file; tiny-planner-iterative, tiny-planner-onetime and tiny-grounder]
    #[arg(long = "model", value_name = "[NAME=]MODEL", required = true)]
    pub(crate) models: Vec<String>,
    /// Where to listen; port 0 takes a free one. With LUMOS_API_KEY set, clients must show that key.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000", env = "LUMOS_LISTEN")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
}
