//! Writes a cases file for an end-to-end shopping run without a model. A scripted customer visits the real shop for
//! every goal.
//!
//! `cargo run --release --example script_shopping -- --data data --limit 500 > cases.jsonl`, and then
//! `lumos run --tasks webshop --data data --limit 500 --model script:cases.jsonl --tool rank=bm25`.
//!
//! The customer follows simple rules ([`author`]), so that its figures only show that a run works.

mod author;

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use lumos_benchmarks::{get, replay};
use lumos_tasks::Formulation;
use lumos_tools::ToolSets;
use lumos_tools::sessions::catalogue::ShopFiles;

#[derive(Debug, Parser)]
struct Arguments {
    /// The data folder. Defaults to the built-in samples.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Maximum number of goals.
    #[arg(long)]
    limit: Option<usize>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let benchmark = get("webshop")?;
    let sets = ToolSets::default();
    let folder = arguments.data.as_ref().map(|data| data.join("webshop"));
    let shop = ShopFiles { folder, nouns: None }.backend();
    let planned = vec![sets.identify("rank", "bm25")?, sets.identify("shop", &shop)?];
    let source = benchmark.source(arguments.data.as_deref());
    let configuration = Arc::new(replay::configuration(benchmark, Formulation::Iterative, planned));
    let tools = sets.of(&configuration).await?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for item in benchmark.open(source)?.take(arguments.limit.unwrap_or(usize::MAX)) {
        let case = author::case(&item?, &configuration, tools.as_ref()).await?;
        serde_json::to_writer(&mut out, &case)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
