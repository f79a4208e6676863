//! Reads the files that a run writes, and copies a complete run, which is made once per process.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;

use super::lumos;

/// Reads the rows of a file of JSON lines, which may be compressed. Fields of samples that are JSON texts are parsed; an
/// empty one is null.
pub(crate) fn rows(path: &Path) -> Vec<Value> {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    let mut rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.iter_mut().filter(|row| row.get("trajectory").is_some_and(Value::is_string)).for_each(parse_texts);
    rows
}

/// Parses the fields of a sample that are JSON texts.
fn parse_texts(row: &mut Value) {
    let parsed = |text: &Value| match text.as_str().unwrap() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap(),
    };
    for name in ["error", "evidence", "judge", "scores", "telemetry", "trajectory"] {
        row[name] = parsed(&row[name]);
    }
    row["doc"] = parsed(&row["doc"]["record"]);
}

/// Returns the models' replies in a sample, in order.
pub(crate) fn replies(row: &Value) -> Vec<&str> {
    let steps = row["trajectory"].as_array().unwrap().iter();
    steps.filter(|step| step["step"] == "generate").map(|step| step["reply"].as_str().unwrap()).collect()
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

/// Returns the recorded units of a run by benchmark, in the order of configurations and items, and its results, without
/// telemetry. Faulted units, which have a file of their own, are included.
pub(crate) fn content(folder: &Path) -> (BTreeMap<String, Vec<Value>>, Value) {
    let mut results = results(folder);
    let keys: Vec<String> = results["results"].as_object().unwrap().keys().cloned().collect();
    let (settled, faulted) = (files(folder, "samples_", ".jsonl"), files(folder, "faults_", ".jsonl"));
    assert_eq!((settled.len(), faulted.len() < 2), (keys.len(), true), "older samples are replaced");
    let mut samples: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for mut row in settled.iter().chain(&faulted).flat_map(|path| rows(path)) {
        without_telemetry(&mut row);
        samples.entry(row["benchmark"].as_str().unwrap().to_owned()).or_default().push(row);
    }
    for rows in samples.values_mut() {
        let configuration = |row: &Value| keys.iter().position(|key| row["task"] == key.as_str()).unwrap();
        rows.sort_by_key(|row| (configuration(row), row["doc_id"].as_u64().unwrap()));
    }
    without_telemetry(&mut results);
    (samples, results)
}

/// Reads a JSON file.
pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the results of a run as written.
pub(crate) fn results(folder: &Path) -> Value {
    let results = files(folder, "results_", ".json");
    assert_eq!(results.len(), 1, "older results are replaced: {results:?}");
    read_json(&results[0])
}

/// Returns every file below a folder with its content, and every folder.
pub(crate) fn all(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::from([(folder.to_owned(), None)]);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all(&path));
        } else {
            let content = std::fs::read(&path).unwrap();
            found.insert(path, Some(content));
        }
    }
    found
}

/// Asserts that no file below a folder contains a text.
pub(crate) fn assert_nowhere(text: &str, folder: &Path) {
    let mut files = 0;
    for (path, content) in all(folder) {
        let Some(content) = content else { continue };
        let found = content.windows(text.len()).any(|at| at == text.as_bytes());
        assert!(!found, "`{text}` is in {}", path.display());
        files += 1;
    }
    assert!(files > 5, "only {files} files");
}

/// Number of units of [`finished_run`]: the thirty samples of SVAMP in two formulations.
pub(crate) const UNITS: u64 = 60;

/// Files of the run by path, and its folders without content.
static RUN: LazyLock<BTreeMap<PathBuf, Option<Vec<u8>>>> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = "run --tasks svamp --model builtin:tiny --formulation iterative,onetime";
    lumos().args(run).output(folder.path(), "sample").ok();
    let run = folder.path().join("sample");
    all(&run).into_iter().map(|(path, file)| (path.strip_prefix(&run).unwrap().to_owned(), file)).collect()
});

/// Copies the run `sample` into a folder, for a test that may change it. Returns the folder of the run.
pub(crate) fn finished_run(folder: &Path) -> PathBuf {
    let run = folder.join("sample");
    for (path, file) in &*RUN {
        match file {
            Some(content) => std::fs::write(run.join(path), content).unwrap(),
            None => std::fs::create_dir_all(run.join(path)).unwrap(),
        }
    }
    run
}
