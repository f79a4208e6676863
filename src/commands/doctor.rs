//! `lumos doctor`: checks this machine and this build.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bytesize::ByteSize;
use lumos_engine::{DType, Gpu, free_memory, gpus, instruction_limit, linear_path, quantized_path};
use lumos_models::hub::HubSettings;
use lumos_tools::browser::{BrowserName, BrowserSettings};
use serde::Serialize;

use crate::cli::DoctorArgs;
use crate::exit::{CommandResult, Exit};
use crate::table;

/// Everything that is checked.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// Enabled cargo features.
    features: Vec<&'static str>,
    /// Cargo features that this build does not include.
    missing_features: Vec<&'static str>,
    cores: usize,
    /// Available memory in bytes; unknown on systems other than Linux.
    free_memory_bytes: Option<u64>,
    /// Implementation of linear layers, by data type of the weights.
    linear_paths: Vec<LinearPath>,
    /// Implementation of linear layers with block-quantized weights.
    quantized_path: String,
    /// How the variable `LUMOS_CPU` limits instruction sets, or why it is invalid.
    instruction_limit: Option<String>,
    gpus: Vec<Gpu>,
    /// Why there is no GPU.
    no_gpu: Option<String>,
    programs: Vec<Program>,
    folders: Vec<Folder>,
}

#[derive(Serialize)]
struct LinearPath {
    dtype: DType,
    path: String,
}

/// An external program that some runs start.
#[derive(Serialize)]
struct Program {
    name: &'static str,
    /// The command.
    command: PathBuf,
    /// Reported version; `None` if the program was not found.
    version: Option<String>,
    /// Purpose of the program.
    needed_for: &'static str,
}

/// A folder in which lumos stores files.
#[derive(Serialize)]
struct Folder {
    name: &'static str,
    path: Option<PathBuf>,
    exists: bool,
}

pub(crate) fn run(arguments: &DoctorArgs) -> CommandResult {
    let report = examine();
    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer(&mut out, &report)?;
        writeln!(out)?;
    } else {
        let width = table::width();
        text(&report).lines().try_for_each(|line| out.write_all(table::wrapped(line, width).as_bytes()))?;
    }
    Ok(Exit::Complete)
}

/// Cargo features, and whether this program was built with them.
const FEATURES: [(&str, bool); 9] = [
    ("browser", cfg!(feature = "browser")),
    ("candle-cuda", cfg!(feature = "candle-cuda")),
    ("candle-transformers", cfg!(feature = "candle-transformers")),
    ("cuda", cfg!(feature = "cuda")),
    ("hub", cfg!(feature = "hub")),
    ("mcp", cfg!(feature = "mcp")),
    ("mysql", cfg!(feature = "mysql")),
    ("parquet", cfg!(feature = "parquet")),
    ("serve-model", cfg!(feature = "serve-model")),
];

fn examine() -> Report {
    let (gpus, no_gpu) = match gpus() {
        Ok(gpus) => (gpus, None),
        Err(reason) => (Vec::new(), Some(reason.to_string())),
    };
    let usual = || BrowserSettings::new(BrowserName::Chromedriver);
    let browser = BrowserSettings::from_environment(BrowserName::Chromedriver).unwrap_or_else(|_| usual());
    let hub = HubSettings::from_environment().ok();
    let exists = hub.as_ref().is_some_and(|hub| hub.cache.is_dir());
    let features = |enabled| FEATURES.iter().filter(move |one| one.1 == enabled).map(|one| one.0).collect();
    Report {
        version: env!("CARGO_PKG_VERSION"),
        features: features(true),
        missing_features: features(false),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        free_memory_bytes: free_memory(),
        linear_paths: [DType::F32, DType::Bf16, DType::F16]
            .map(|dtype| LinearPath { dtype, path: linear_path(dtype) })
            .into(),
        quantized_path: quantized_path(),
        instruction_limit: instruction_limit()
            .map(|limit| limit.map(|name| format!("limited to {name} by LUMOS_CPU")))
            .unwrap_or_else(Some),
        gpus,
        no_gpu,
        programs: vec![
            program("nats-server", PathBuf::from("nats-server"), "queues between machines"),
            program(
                "chromium",
                browser.chromium.unwrap_or_else(|| PathBuf::from("chromium")),
                "pages in a browser",
            ),
            program("chromedriver", browser.chromedriver, "pages in a browser"),
            program("mariadbd", PathBuf::from("mariadbd"), "InterCode SQL on MySQL, as in the original"),
        ],
        folders: vec![Folder { name: "models of the hub", path: hub.map(|hub| hub.cache), exists }],
    }
}

/// Runs a program to get its version.
fn program(name: &'static str, command: PathBuf, needed_for: &'static str) -> Program {
    let output = Command::new(&command).arg("--version").stdin(Stdio::null()).output();
    let version = output.ok().filter(|output| output.status.success()).and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    });
    Program { name, command, version, needed_for }
}

fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    let listed = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    lines.push(format!("lumos {}, features: {}", report.version, listed(&report.features)));
    lines.push(format!("  not in this build: {}", listed(&report.missing_features)));
    let memory = report.free_memory_bytes.map_or("unknown".to_owned(), |bytes| ByteSize(bytes).to_string());
    lines.push(format!("processor: {} cores, {memory} of memory free", report.cores));
    for LinearPath { dtype, path } in &report.linear_paths {
        lines.push(format!("  linear layers of {dtype}: {path}"));
    }
    lines.push(format!("  linear layers of Q8_0, Q4_K, Q6_K: {}", report.quantized_path));
    if let Some(limit) = &report.instruction_limit {
        lines.push(format!("  {limit}"));
    }
    for gpu in &report.gpus {
        lines.push(format!(
            "{}: {}, {} of memory, compute capability {}, driver for CUDA {}",
            gpu.name,
            gpu.model,
            ByteSize(gpu.memory_bytes),
            gpu.compute_capability,
            gpu.driver,
        ));
    }
    if let Some(reason) = &report.no_gpu {
        lines.push(format!("no GPU: {reason}"));
    }
    for Program { name, version, needed_for, .. } in &report.programs {
        let found = version.as_deref().unwrap_or("not found");
        lines.push(format!("{name}: {found} ({needed_for})"));
    }
    for Folder { name, path, exists } in &report.folders {
        let place = path.as_ref().map_or("unknown".to_owned(), |path| path.display().to_string());
        let state = if *exists { "" } else { " (not found)" };
        lines.push(format!("{name}: {place}{state}"));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_there_has_no_version() {
        assert_eq!(program("none", PathBuf::from("/nowhere/none"), "nothing").version, None);
        assert_eq!(program("false", PathBuf::from("false"), "nothing").version, None);
    }

    #[test]
    fn gpus_are_named_with_what_counts() {
        let gpu = Gpu {
            name: lumos_engine::DeviceName::Cuda(1),
            model: "Example".to_owned(),
            compute_capability: "9.0".to_owned(),
            memory_bytes: 80 << 30,
            driver: "13.0".to_owned(),
        };
        let report = Report { gpus: vec![gpu], no_gpu: None, ..examine() };
        let line = "cuda:1: Example, 80.0 GiB of memory, compute capability 9.0, driver for CUDA 13.0";
        assert!(text(&report).contains(line), "{}", text(&report));
    }
}
