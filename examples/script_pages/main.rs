//! Writes a cases file for an end-to-end run on Mind2Web without a model. On every task, a scripted agent performs the
//! gold actions and names elements in the words of the task's representation.
//!
//! `cargo run --release --example script_pages -- --data data/mind2web/test_task > cases.jsonl`, and then
//! `lumos run --tasks mind2web --data data --model script:cases.jsonl --tool rank=bm25`.
//!
//! The agent has the answers, so that its figures only show that a run works.

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
    /// A folder of tasks. Defaults to the built-in samples.
    #[arg(long)]
    data: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let benchmark = get("mind2web")?;
    let sets = ToolSets::default();
    let planned = vec![sets.identify("rank", "bm25")?, sets.identify("web", "native")?];
    let configuration = Arc::new(replay::configuration(benchmark, Formulation::Iterative, planned));
    let tools = sets.of(&configuration).await?;
    let source = arguments.data.map_or(DataSource::Samples, DataSource::File);
    let mut out = BufWriter::new(std::io::stdout().lock());
    for item in benchmark.open(source)? {
        let case = author::case(&item?, &configuration, tools.as_ref(), author::gold_words).await?;
        serde_json::to_writer(&mut out, &case)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
