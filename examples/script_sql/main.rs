//! Writes a cases file for an end-to-end InterCode SQL run without a model. The agent answers every item with its gold
//! query, in both formulations.
//!
//! `cargo run --release --example script_sql -- --data data > cases.jsonl`, and then
//! `lumos run --tasks intercode_sql --formulation iterative,try-again --data data --model script:cases.jsonl`.
//!
//! The agent has the answers, so that its figures only show that a run works.

mod author;

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use clap::Parser;
use lumos_benchmarks::{DataSource, get};
use lumos_tasks::Formulation;

#[derive(Debug, Parser)]
struct Arguments {
    /// The data folder. Defaults to the built-in samples.
    #[arg(long)]
    data: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let benchmark = get("intercode_sql")?;
    let source = || match &arguments.data {
        Some(folder) => DataSource::File(folder.join(benchmark.data_file())),
        None => DataSource::Samples,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    for formulation in [Formulation::Iterative, Formulation::TryAgain] {
        for item in benchmark.open(source())? {
            serde_json::to_writer(&mut out, &author::case(benchmark, &item?, formulation)?)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(out.flush()?)
}
