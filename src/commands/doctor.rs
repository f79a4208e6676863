//! `lumos doctor`: checks this machine and this build.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
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
    /// Reported version; `None` if the program was not found or its settings are invalid.
    version: Option<String>,
    /// Why the settings of the program are invalid.
    error: Option<String>,
    /// Purpose of the program.
    needed_for: &'static str,
}

/// A folder in which lumos stores files.
#[derive(Serialize)]
struct Folder {
    name: &'static str,
    path: Option<PathBuf>,
    exists: bool,
    /// Why the path is unknown.
    error: Option<String>,
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
    let browser = BrowserSettings::from_environment(BrowserName::Chromedriver);
    let [chromium, chromedriver] = browser_programs(browser);
    let cache = HubSettings::from_environment().map(|hub| hub.cache).map_err(|error| error.to_string());
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
            chromium,
            chromedriver,
            program("mariadbd", PathBuf::from("mariadbd"), "InterCode SQL on MySQL, as in the original"),
        ],
        folders: vec![folder("models of the hub", cache)],
    }
}

/// Returns the browser and its driver.
fn browser_programs(settings: Result<BrowserSettings, String>) -> [Program; 2] {
    const NEEDED_FOR: &str = "pages in a browser";
    match settings {
        Ok(browser) => {
            let chromium = browser.chromium.unwrap_or_else(|| PathBuf::from("chromium"));
            [
                program("chromium", chromium, NEEDED_FOR),
                program("chromedriver", browser.chromedriver, NEEDED_FOR),
            ]
        }
        Err(error) => ["chromium", "chromedriver"].map(|name| Program {
            name,
            command: PathBuf::from(name),
            version: None,
            error: Some(error.clone()),
            needed_for: NEEDED_FOR,
        }),
    }
}

/// Returns a folder whose path is set in the environment.
fn folder(name: &'static str, path: Result<PathBuf, String>) -> Folder {
    let (path, error) = match path {
        Ok(path) => (Some(path), None),
        Err(error) => (None, Some(error)),
    };
    Folder { name, exists: path.as_deref().is_some_and(Path::is_dir), path, error }
}

/// Runs a program to get its version.
fn program(name: &'static str, command: PathBuf, needed_for: &'static str) -> Program {
    let output = Command::new(&command).arg("--version").stdin(Stdio::null()).output();
    let version = output.ok().filter(|output| output.status.success()).and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    });
    Program { name, command, version, error: None, needed_for }
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
    for Program { name, version, error, needed_for, .. } in &report.programs {
        let found = version.as_deref().or(error.as_deref()).unwrap_or("not found");
        lines.push(format!("{name}: {found} ({needed_for})"));
    }
    for Folder { name, path, exists, error } in &report.folders {
        let state = if *exists { "" } else { " (not found)" };
        let found = path.as_ref().map(|path| format!("{}{state}", path.display()));
        lines.push(format!("{name}: {}", found.as_deref().or(error.as_deref()).unwrap_or("unknown")));
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
    fn invalid_settings_are_in_the_lines_of_what_they_set() {
        let programs = browser_programs(Err("invalid value `0` for LUMOS_BROWSER_SESSIONS".to_owned()));
        let folders = vec![folder("models of the hub", Err("invalid value for HF_ENDPOINT".to_owned()))];
        let report = Report { programs: programs.into(), folders, ..examine() };
        let shown = text(&report);
        for line in [
            "chromium: invalid value `0` for LUMOS_BROWSER_SESSIONS (pages in a browser)\n",
            "chromedriver: invalid value `0` for LUMOS_BROWSER_SESSIONS (pages in a browser)\n",
            "models of the hub: invalid value for HF_ENDPOINT\n",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["programs"][1]["error"], "invalid value `0` for LUMOS_BROWSER_SESSIONS");
        assert_eq!(json["folders"][0]["error"], "invalid value for HF_ENDPOINT");
        let found = folder("system", Ok(std::env::temp_dir()));
        assert!(found.exists && found.error.is_none());
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
