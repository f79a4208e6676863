//! Writes a cases file for an end-to-end question-answering run without a model. A scripted agent runs every item of a
//! benchmark with real tools.
//!
//! `cargo run --release --example script_questions -- --tasks hotpotqa --data data --limit 500 \
//! --tool wiki=corpus:pages.jsonl --tool rank=bm25 > cases.jsonl`, and then
//! `lumos run --tasks hotpotqa --data data --limit 500 --model script:cases.jsonl` with the same tools.
//!
//! The agent follows simple rules ([`author`]), so that its figures only show that a run works.

mod author;

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use lumos_benchmarks::{DataSource, get, replay};
use lumos_tasks::Formulation;
use lumos_tools::ToolSets;

#[derive(Debug, Parser)]
struct Arguments {
    /// The benchmark: hotpotqa or strategyqa.
    #[arg(long)]
    tasks: String,
    /// The data folder. Defaults to the built-in samples.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Maximum number of items.
    #[arg(long)]
    limit: Option<usize>,
    /// The formulation: iterative or onetime.
    #[arg(long, default_value = "iterative")]
    formulation: Formulation,
    /// Backend of a tool, as for `lumos run`.
    #[arg(long = "tool")]
    tools: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let benchmark = get(&arguments.tasks)?;
    let sets = ToolSets::default();
    let mut planned = Vec::new();
    for tool in &arguments.tools {
        let (tool, backend) =
            tool.split_once('=').ok_or("invalid value for --tool: expected TOOL=BACKEND")?;
        planned.push(sets.identify(tool, backend)?);
    }
    let source = match &arguments.data {
        Some(folder) => DataSource::File(folder.join(benchmark.data_file())),
        None => DataSource::Samples,
    };
    let configuration = Arc::new(replay::configuration(benchmark, arguments.formulation, planned));
    let tools = sets.of(&configuration).await?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for item in benchmark.open(source)?.take(arguments.limit.unwrap_or(usize::MAX)) {
        let case = author::case(&item?, &configuration, tools.as_ref()).await?;
        serde_json::to_writer(&mut out, &case)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
