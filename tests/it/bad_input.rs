//! Invalid input: the message names the input and the fix, the exit code is 2, and no files are created or
//! lost.

use std::fs;
use std::path::Path;

use crate::support::{Ended, content, lumos, read_json, repository};

const RUN: &str = "run --model builtin:tiny --tasks gsm8k";

/// Runs in a separate folder and expects an error.
fn refused(folder: &Path, arguments: impl AsRef<str>) -> Ended {
    let runs = folder.join("runs");
    let ended = lumos().args(arguments).args("--output-path").arg(&runs).exits(2);
    assert!(!runs.exists(), "a rejected run creates no files");
    ended
}

/// Runs a model of a folder and expects an error.
fn refused_model(folder: &Path, model: &Path) -> Ended {
    refused(folder, format!("run --tasks gsm8k --model 'candle:{}'", model.display()))
}

/// Writes the data of GSM8K. Returns the arguments of a run with it.
fn gsm8k(folder: &Path, content: &str) -> String {
    let data = folder.join("data");
    fs::create_dir_all(data.join("gsm8k")).unwrap();
    fs::write(data.join("gsm8k/test.jsonl"), content).unwrap();
    format!("{RUN} --data '{}'", data.display())
}

fn record(index: usize) -> String {
    format!(
        "{{\"question\": \"What is {index} and 1?\", \"answer\": \"{index}+1 = {0}\\n#### {0}\"}}\n",
        index + 1
    )
}

#[test]
fn unknown_keys_of_the_specification() {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("spec.toml");
    fs::write(&spec, "tasks = [\"gsm8k\"]\nmodel = \"builtin:tiny\"\nformulaton = \"iterative\"\n").unwrap();
    refused(folder.path(), format!("run --config '{}'", spec.display())).reports([
        "spec.toml:3",
        "formulaton",
        "formulation",
    ]);
}

#[test]
fn unknown_benchmarks_formulations_and_models() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &str| refused(folder.path(), arguments);
    refused("run --model builtin:tiny --tasks gsm9k").reports(["gsm9k", "gsm8k, svamp"]);
    refused(&format!("{RUN} --formulation iterativ")).reports(["iterativ", "onetime"]);
    refused("run --tasks gsm8k --model tiny").reports(["tiny", "builtin:tiny", "candle:<folder>"]);
    refused(&format!("{RUN} --formulation cot")).reports(["builtin:tiny", "answerer"]);
}

#[test]
fn models_that_are_not_there_or_broken() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nowhere");
    refused_model(folder.path(), &missing).reports(["nowhere", "check that it exists"]);

    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    let assets = repository("models/assets/tiny/maths");
    for file in ["config.json", "tokenizer.json"] {
        fs::copy(assets.join(file), model.join(file)).unwrap();
    }
    refused_model(folder.path(), &model).reports(["safetensors", model.to_str().unwrap()]);

    let weights = fs::read(assets.join("model.safetensors")).unwrap();
    fs::write(model.join("model.safetensors"), &weights[..weights.len() / 2]).unwrap();
    refused_model(folder.path(), &model).reports(["model.safetensors", "incomplete"]);
}

#[test]
fn a_tokenizer_with_more_pieces_than_the_model_has_rows() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    let assets = repository("models/assets/tiny/maths");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(assets.join(file), model.join(file)).unwrap();
    }
    let mut tokenizer = read_json(&assets.join("tokenizer.json"));
    tokenizer["model"]["vocab"]["one too many"] = 99_999.into();
    fs::write(model.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    refused_model(folder.path(), &model).reports(["tokenizer.json", "pieces", "rows"]);
}

#[test]
fn malformed_data_names_file_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines: Vec<String> = (0..800).map(record).collect();
    lines[699] = "{\"question\": \"broken\n".to_owned();
    let run = gsm8k(folder.path(), &lines.concat());
    refused(folder.path(), run).reports(["test.jsonl:700: ", "--skip-invalid"]);

    lines[699] = "{\"question\": \"no answer\"}\n".to_owned();
    let run = gsm8k(folder.path(), &lines.concat());
    refused(folder.path(), &run).reports(["test.jsonl:700: ", "`answer`"]);

    let skipping = lumos().args(run.replacen("run", "validate", 1)).args("--skip-invalid");
    skipping.ok().prints(["799 of 800 records"]).reports(["1 malformed"]);
}

#[test]
fn data_that_is_not_there_empty_or_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &str| refused(folder.path(), arguments);
    let missing = refused(&format!("{RUN} --data /nowhere"));
    missing.reports(["/nowhere/gsm8k/test.jsonl", "`lumos fetch gsm8k --data /nowhere`"]);
    refused(&gsm8k(folder.path(), "")).reports(["test.jsonl", "no record"]);
    let data = folder.path().join("folder");
    fs::create_dir_all(data.join("gsm8k/test.jsonl")).unwrap();
    refused(&format!("{RUN} --data '{}'", data.display())).reports(["test.jsonl", "folder"]);
}

#[test]
fn a_run_folder_of_another_specification_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let named = |limit: &str| lumos().args(RUN).output(folder.path(), "mine").args("--limit").arg(limit);
    named("2").ok();
    let before = content(&folder.path().join("mine"));
    named("3").exits(2).reports(["mine", "different settings", "--limit", "--name"]);
    assert_eq!(content(&folder.path().join("mine")), before);
}

#[test]
fn nothing_selected_has_a_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let run = gsm8k(folder.path(), &[record(1), "{}\n".to_owned()].concat());
    let runs = folder.path().join("runs");
    lumos().args(run).args("--samples 1 --skip-invalid --output-path").arg(runs).exits(4);
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let run = gsm8k(folder.path(), &record(1));
    let locked = folder.path().join("data/gsm8k");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser can read everything, so there is no error.
    if fs::read_dir(&locked).is_err() {
        refused(folder.path(), run).reports(["test.jsonl", "failed to read"]);
    }
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
}
