//! Options of the commands that call a tool or a model directly: `tool` and `complete`.

use clap::Args;

use super::{BackendArgs, EngineArgs};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lumos tool maths '2 * (3 + 4)'\n  lumos tool maths 'Solve x + y = 5, x - y = 1'\n  \
                        echo '{\"query\": \"Expand (x + 1)^2\"}' | lumos tool maths --jsonl\n  \
                        lumos tool wiki Kyoto\n  lumos tool wiki --backend corpus:pages.jsonl 'rivers of Siberia'\n  \
                        echo '{\"query\": \"Which sea?\", \"texts\": [\"The Black Sea.\", \"A river.\"]}' | lumos tool rank --model bm25 --jsonl\n  \
                        lumos tool weather --backend 'exec:python3 weather.py' --operation forecast '{\"city\": \"Kyoto\"}'\n  \
                        lumos tool time --backend 'mcp:mcp-server-time'"
)]
pub(crate) struct ToolArgs {
    /// Select the tool: maths, rank, wiki, or a tool of your own with --backend
    pub(crate) name: String,
    /// Pass this query to the tool; to a tool of your own, a JSON object of arguments
    ///
    /// Without it, the tools of an MCP server are listed.
    #[arg(required_unless_present_any = ["jsonl", "model", "backend"])]
    pub(crate) argument: Option<String>,
    /// Read one JSON object per line from standard input
    ///
    /// Prints one result per line on standard output, in order.
    #[arg(long, conflicts_with = "argument")]
    pub(crate) jsonl: bool,
    /// Set the backend, as in `lumos run --tool NAME=BACKEND`
    ///
    /// Default: native for maths, bm25 for rank, live for wiki. Tools of your own: exec:<command>, http://<host>,
    /// https://<host>, mcp:<command or address>, recorded:<cases file>.
    #[arg(long)]
    pub(crate) backend: Option<String>,
    /// Call this operation of a tool of your own
    ///
    /// For an MCP server, the name of one of its tools. Example: --operation forecast
    #[arg(long, value_name = "NAME")]
    pub(crate) operation: Option<String>,
    /// Set the backend of rank: bm25, dpr:<folder> or cross-encoder:<folder>
    ///
    /// The folder of a DPR reader or a cross-encoder alone works too.
    #[arg(long, conflicts_with = "backend")]
    pub(crate) model: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  lumos complete --model builtin:tiny --role grounder 'text'\n  \
                        lumos complete --model candle:models/llama --jsonl --max-new-tokens 48 < prompts.jsonl")]
pub(crate) struct CompleteArgs {
    /// Set the model
    ///
    /// Forms: candle:<folder>, candle:<file.gguf>, candle:<hub id>, candle:<base>+<adapter>, builtin:tiny.
    #[arg(long, env = "LUMOS_MODEL")]
    pub(crate) model: String,
    /// Pass this raw prompt; `-` reads it from standard input
    #[arg(required_unless_present = "jsonl")]
    pub(crate) prompt: Option<String>,
    /// Read one JSON object per line from standard input: {"prompt": …}
    ///
    /// Prints one result per line on standard output, in order.
    #[arg(long, conflicts_with = "prompt")]
    pub(crate) jsonl: bool,
    /// Set the number of prompts in progress
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) concurrency: u64,
    /// Limit the length of each reply, in tokens
    #[arg(long, default_value_t = 512)]
    pub(crate) max_new_tokens: usize,
    /// Continue after the end-of-sequence token
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Stop at this text [default: the newline token]
    ///
    /// An empty text disables stopping at a text.
    #[arg(long)]
    pub(crate) stop: Option<String>,
    /// Set the sampling temperature; 0 decodes greedily
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// Set the seed of sampling
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Print also the N highest logits after the prompt
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) logits: usize,
    /// Select the role of builtin:tiny: planner or grounder
    #[arg(long, default_value = "planner")]
    pub(crate) role: String,
    /// Select the formulation of the planner of builtin:tiny
    #[arg(long, default_value = "iterative")]
    pub(crate) formulation: String,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    /// Limit prompt and reply together, in tokens [default: the model's context length]
    ///
    /// Example: --max-sequence-length 4096
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) max_sequence_length: Option<u32>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use crate::cli::Cli;

    #[test]
    fn a_model_needs_a_prompt_or_lines() {
        let parsed = |more: &[&str]| {
            let words = ["lumos", "complete", "--model", "builtin:tiny"];
            Cli::try_parse_from(words.iter().chain(more).copied()).map(drop).map_err(|error| error.kind())
        };
        assert_eq!(parsed(&[]), Err(ErrorKind::MissingRequiredArgument));
        assert_eq!((parsed(&["text"]), parsed(&["--jsonl"])), (Ok(()), Ok(())));
    }
}
