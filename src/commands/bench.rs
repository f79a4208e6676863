//! `lumos bench engine`: measures a model's speed on this machine and compares it with the hardware limits.

use std::io::{self, Write};

use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};
use lumos_engine::bench::{BenchCell, BenchReport, BenchSettings, measure};
use lumos_engine::{DType, DeviceName, LoadOptions, ModelSource, RandomShape};
use lumos_tasks::{Formulation, Role};

use crate::cli::{BenchArgs, BenchCommand};
use crate::exit::{CommandResult, Exit, Failure};
use crate::progress::write_line;
use crate::settings;

/// Seed of random weights, the same for measured and saved models.
const SEED: u64 = 1;

pub(crate) async fn run(arguments: &BenchArgs) -> CommandResult {
    let BenchCommand::Engine(arguments) = &arguments.what;
    arguments.output.as_deref().map_or(Ok(()), crate::writable::check_file)?;
    if let Some(folder) = &arguments.save_weights {
        crate::writable::check_folder(folder, Some("--save-weights"))?;
    }
    if let (Some(folder), Some(shape)) = (&arguments.save_weights, arguments.random_weights) {
        shape.write(SEED, arguments.dtype, folder).map_err(Failure::usage)?;
        write_line(format_args!("{shape} as {} in {}", arguments.dtype, folder.display()));
        return Ok(Exit::Complete);
    }
    let settings = BenchSettings {
        source: match arguments.random_weights {
            Some(shape) => ModelSource::Random { shape, seed: SEED },
            None => {
                let name = arguments.model.as_deref().unwrap_or_default();
                settings::model_source(name, Role::Planner, Formulation::Iterative)?
            }
        },
        options: LoadOptions {
            device: arguments.device,
            dtype: arguments.dtype,
            threads: arguments.threads,
            speculation: arguments.speculate,
            hash_weights: false,
            ..LoadOptions::default()
        },
        batch_sizes: arguments.batch_sizes.clone(),
        reuse: arguments.reuse.rounds(),
        prompt_tokens: arguments.prompt_tokens,
        new_tokens: arguments.new_tokens,
    };
    let report = measure(&settings).await.map_err(Failure::usage)?;
    if let Some(path) = &arguments.output {
        std::fs::write(path, serde_json::to_vec_pretty(&report)?)
            .map_err(|error| Failure::input(format!("cannot write {}: {error}", path.display())))?;
    }
    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        let name = arguments.random_weights.map_or_else(
            || arguments.model.clone().unwrap_or_default(),
            |shape| format!("{shape}, random weights"),
        );
        write!(out, "{}", text(&name, &report))?;
    }
    Ok(Exit::Complete)
}

/// Measures a shape with random weights and the default settings, for predictions.
pub(super) async fn measure_shape(shape: RandomShape, dtype: DType) -> Result<BenchReport, Failure> {
    let settings = BenchSettings {
        source: ModelSource::Random { shape, seed: SEED },
        options: LoadOptions { dtype, hash_weights: false, ..LoadOptions::default() },
        batch_sizes: vec![1, 8, 32],
        reuse: vec![true],
        prompt_tokens: 256,
        new_tokens: 32,
    };
    measure(&settings).await.map_err(Failure::usage)
}

/// Formats the report as text.
fn text(name: &str, report: &BenchReport) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "batch",
        "reuse",
        "prefill tok/s",
        "of limit",
        "decode tok/s",
        "of limit",
        "first token",
        "second turn",
        "cached",
        "KV cache",
        "accepted drafts",
    ]);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for cell in &report.cells {
        table.add_row(row(cell));
    }
    let limits = &report.limits;
    let place = match report.device {
        DeviceName::Cuda(_) => report.device.to_string(),
        DeviceName::Auto | DeviceName::Cpu => format!("{} threads", report.threads),
    };
    let apart = if report.cells.iter().all(|cell| cell.decoded_together) {
        ""
    } else {
        "* the first sequences ended before the last ones began to decode: all generated tokens over the whole time, \
         prefill included; hint: raise --new-tokens\n"
    };
    format!(
        "{name}: {:.1} M parameters, {}, {} of weights, {}\n\
         prompts of {} tokens, {} generated tokens each\n\
         limits: memory {:.1} GB/s, compute {:.0} GFLOP/s\n\n{table}\n\n\
         first token: mean over a batch sent at once; second turn: the same for prompt, reply and 16 more tokens\n\
         {apart}",
        report.model.parameters as f64 / 1e6,
        report.model.quantization.clone().unwrap_or_else(|| report.model.dtype.to_string()),
        ByteSize(report.weight_bytes),
        place,
        report.prompt_tokens,
        report.new_tokens,
        limits.read_bytes_per_second / 1e9,
        limits.operations_per_second / 1e9,
    )
}

fn row(cell: &BenchCell) -> [String; 11] {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let seconds = |seconds: f64| {
        if seconds < 1.0 { format!("{:.0} ms", 1e3 * seconds) } else { format!("{seconds:.2} s") }
    };
    [
        cell.batch_size.to_string(),
        if cell.reuse { "on" } else { "off" }.to_owned(),
        format!("{:.1}", cell.prefill_tokens_per_second),
        percent(cell.prefill_share_of_compute),
        format!("{:.1}{}", cell.decode_tokens_per_second, if cell.decoded_together { "" } else { "*" }),
        percent(cell.decode_share_of_limit()),
        seconds(cell.first_token_seconds),
        seconds(cell.second_turn_first_token_seconds),
        cell.second_turn_cached_tokens.to_string(),
        ByteSize(cell.cache_bytes).to_string(),
        match cell.drafts.drafted {
            0 => "–".to_owned(),
            drafted => format!("{} of {drafted}", cell.drafts.accepted),
        },
    ]
}
