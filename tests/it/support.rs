//! Runs the program and reads the files it writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Returns the command of the program (or of `LUMOS_PROGRAM`), without the caller's settings.
pub(crate) fn lumos() -> Command {
    let named = std::env::var_os("LUMOS_PROGRAM").filter(|name| !name.is_empty());
    let mut command = Command::new(named.unwrap_or_else(|| env!("CARGO_BIN_EXE_lumos").into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["LUMOS_", "WOLFRAM_", "OPENAI_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs the program with these arguments.
pub(crate) fn run(arguments: &[&str]) -> Output {
    lumos().args(arguments).output().unwrap()
}

/// Returns exit code, standard output and standard error.
pub(crate) fn text(output: &Output) -> (i32, String, String) {
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

/// Runs the program and asserts the exit code.
pub(crate) fn expect(code: i32, arguments: &[&str]) -> (String, String) {
    let (found, stdout, stderr) = text(&run(arguments));
    assert_eq!(found, code, "lumos {arguments:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

/// Reads the rows of a compressed file of recordings.
pub(crate) fn rows(path: &Path) -> Vec<Value> {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    std::io::Read::read_to_string(&mut flate2::read::MultiGzDecoder::new(file), &mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs the program with lines on standard input.
pub(crate) fn fed(arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = lumos()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
    text(&child.wait_with_output().unwrap())
}

/// Returns the files in a run's folder with a prefix and a suffix, sorted.
pub(crate) fn files(folder: &Path, prefix: &str, suffix: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with(prefix) && name.ends_with(suffix)
        })
        .collect();
    files.sort();
    files
}

/// Removes everything that depends on the time and speed of a run.
fn without_telemetry(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let free = ["telemetry", "date", "name", "output_path", "created", "seconds", "time"];
            for name in free.into_iter().chain(["total_evaluation_time_seconds"]) {
                fields.remove(name);
            }
            fields.values_mut().for_each(without_telemetry);
        }
        Value::Array(values) => values.iter_mut().for_each(without_telemetry),
        _ => {}
    }
}

/// Returns the samples of a run by task, one value per line, and its results, without telemetry.
pub(crate) fn content(folder: &Path) -> (BTreeMap<String, Vec<Value>>, Value) {
    let mut samples = BTreeMap::new();
    for path in files(folder, "samples_", ".jsonl") {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let task = name.split('_').nth(1).unwrap().to_owned();
        let lines = std::fs::read_to_string(&path).unwrap();
        let rows = lines.lines().map(|line| {
            let mut row: Value = serde_json::from_str(line).unwrap();
            without_telemetry(&mut row);
            row
        });
        assert!(samples.insert(task, rows.collect()).is_none(), "older samples are replaced");
    }
    let results = files(folder, "results_", ".json");
    assert_eq!(results.len(), 1, "older results are replaced: {results:?}");
    let mut results: Value = serde_json::from_slice(&std::fs::read(&results[0]).unwrap()).unwrap();
    without_telemetry(&mut results);
    (samples, results)
}
